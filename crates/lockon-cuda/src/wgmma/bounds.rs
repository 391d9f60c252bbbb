//! The bounds by which the kernels pass positions over, computed as they do, beside exact scores.

use super::PTX;
use super::arguments::shift;
use crate::shared::constant;
use crate::testing::Random;

/// `slack_of` of `kernels/ncc_wgmma.cuh`.
const fn slack(n: i64) -> i64 {
    2 + 3 * n / 256
}
const _: () = assert!(slack(2) == 2 && slack(86) == 3 && slack(32_768) == 386);

#[test]
fn a_score_that_is_told_roughly_is_off_by_less_than_slack() {
    // As `rough_lack` and `Record` have it.
    let mut random = Random(7);
    // As often near the largest as anywhere.
    let up_to = |most: i64, random: &mut Random| {
        let any = random.below(most as usize + 1) as i64;
        if random.below(2) == 0 { any } else { most - any % 1000.min(most + 1) }
    };
    let mut most = 0.0_f64;
    for n in [2, 3, 85, 86, 256, 1024, 4096, 12_345, 32_768_i64].repeat(20_000) {
        let (s, t1) = (up_to(255 * n, &mut random), up_to(255 * n, &mut random));
        let st = up_to(255 * s.min(t1), &mut random);
        let products = st + slack(n);
        assert!(products <= i64::from(i32::MAX), "{n}");
        let mean = (t1 as f64 / n as f64) as f32;
        let told = f64::from((s as f32).mul_add(mean, -(products as f32)));
        let is = (s * t1) as f64 / n as f64 - st as f64 - slack(n) as f64;
        assert!((told - is).abs() <= (slack(n) - 1) as f64, "{n} {s} {t1} {st}: {told} instead of {is}");
        most = most.max((told - is).abs() / (slack(n) - 1) as f64);
    }
    // It is not far from that.
    assert!(most > 0.3, "{most}");
}

/// Bits of S, below those of SS.
const SUM_BITS: usize = constant(PTX, "SUM_BITS");

/// `cut_of` of `kernels/ncc_peaks.cuh`, which asserts this number.
const CUT: f32 = 0.55;

/// Maximum relative error of `inverse_root`: 2^-22.9.
const ROOT_OFF: f64 = 1.2778e-7;

/// A window's n SS - S S as `moments_of` keeps it where all peaks are wanted: 1 / sqrt, off by a part of
/// what it may be.
fn inverse_root(n: i64, s: i64, ss: i64, off: f64) -> f32 {
    let variance = (n * ss - s * s - (1 << shift(n))) as u64 >> shift(n);
    let nearest = variance as u32 as f32;
    // Towards zero.
    let above = f64::from(nearest) > f64::from(variance as u32);
    let below = if above { nearest.next_down() } else { nearest };
    (1.0 / f64::from(below + 1.0).sqrt() * (1.0 + off * ROOT_OFF)) as f32
}

/// Sums over n pixels of pairs of up to four values, of a window and of a template: S, SS, t1, t2 and ST.
fn sums_of_pairs(n: i64, random: &mut Random) -> [i64; 5] {
    let contrast = [2, 20, 256][random.below(3)];
    let mut sums = [0; 5];
    let mut left = n;
    for part in 0..4 {
        let count = if part == 3 { left } else { random.below(left as usize + 1) as i64 };
        left -= count;
        let [i, t] = [0; 2].map(|_| (256 - contrast + random.below(contrast)) as i64);
        for (sum, product) in sums.iter_mut().zip([i, i * i, t, t * t, i * t]) {
            *sum += count * product;
        }
    }
    sums
}

#[test]
fn sums_of_squares_follow_from_nine_bits_and_the_rest() {
    // As `squares_of` has it.
    let squares = |n: i64, packed: u32, inverse_root: f32| {
        let (s, root) = (f64::from(packed & ((1 << SUM_BITS) - 1)), f64::from(inverse_root));
        let is_flat = inverse_root < 1.002 / 65536.0;
        let variance = if is_flat { 0.0 } else { f64::from(1 << shift(n)) / (root * root) };
        let near = ((variance + s * s) / n as f64).round_ties_even() as i32;
        i64::from(near) + i64::from((packed.wrapping_sub((near as u32) << SUM_BITS) as i32) >> SUM_BITS)
    };
    let check = |n: i64, s: i64, ss: i64| {
        for off in [-1.0, -0.5, 0.0, 0.5, 1.0] {
            let packed = s as u32 | (ss as u32) << SUM_BITS;
            assert_eq!(squares(n, packed, inverse_root(n, s, ss, off)), ss, "{n} {s} {off}");
        }
    };
    let mut random = Random(11);
    for n in [2, 3, 512, 513, 4096, 12_345, 16_385, 32_767, 32_768_i64] {
        for value in [0, 1, 128, 255] {
            check(n, n * value, n * value * value);
        }
        // The highest variance, and the lowest.
        check(n, n / 2 * 255, n / 2 * 255 * 255);
        check(n, n * 254 + 1, n * 254 * 254 + 509);
        for _ in 0..2000 {
            let [s, ss, ..] = sums_of_pairs(n, &mut random);
            check(n, s, ss);
        }
    }
}

#[test]
fn scores_lie_between_the_bounds_by_which_peaks_are_told() {
    let margin = 1.0 / f64::from(1 << 18);
    let mut random = Random(13);
    let mut narrow = 0;
    for n in [2, 3, 85, 512, 513, 1024, 4096, 16_385, 32_768_i64].repeat(20_000) {
        let [s, ss, t1, t2, st] = sums_of_pairs(n, &mut random);
        let template_variance = n * t2 - t1 * t1;
        if template_variance == 0 {
            continue;
        }
        let scale = template_variance as f64 / (n * n) as f64 * f64::from(1 << shift(n));
        let (mean, root_scale) = ((t1 as f64 / n as f64) as f32, scale.sqrt() as f32);
        // As `FourBounds` has it.
        let off = random.below(2001) as f64 / 1000.0 - 1.0;
        let (r, cut, doubt) = (inverse_root(n, s, ss, off), CUT * root_scale, 2.0 * slack(n) as f32);
        let y = (-(s as f32)).mul_add(mean, (st - slack(n)) as f32);
        let least = r.mul_add(-cut, y) * r;
        let most = r.mul_add(r.mul_add(2.0 * cut, doubt), least);

        let variance = n * ss - s * s;
        let squared = (variance as f64 * template_variance as f64).max(1.0);
        let score = (n * st - s * t1) as f64 / squared.sqrt();
        let [least, most] = [least, most].map(|bound| f64::from(bound) / scale.sqrt());
        let bounds = (least - margin)..=(most + margin);
        assert!(bounds.contains(&score), "{n} {s} {ss} {t1} {t2} {st}: {score} is not in {bounds:?}");
        narrow += usize::from(most - least < 0.01);
    }
    // Not trivial: many bounds are narrow.
    assert!(narrow > 100_000, "{narrow}");
}

#[test]
fn what_is_cut_off_leaves_32_bits_and_no_window_but_a_flat_one_at_0() {
    for n in 2_i64..=32_768 {
        // Half of the pixels 0, half 255; and one pixel that is different.
        let (most, least) = (n * n * 255 * 255 / 4, n - 1);
        assert!(most >> shift(n) < 1 << 32 && least >> shift(n) >= 1, "{n}");
    }
}
