//! NCC from exact sums: the formula that every backend reports scores by.
//!
//! Both differences and the numerator are exact 64-bit integers: a template has at most 2^22 pixels, so n *
//! SS is less than 2^60. Each integer is converted to f64 once; product, square root and division are done
//! once, in f64, in this order.

use crate::template::TemplateSums;

/// NCC, in [-1, 1], of a window with the sums `s` = sum I, `ss` = sum I * I and `st` = sum I * T over the
/// template's counted pixels. A flat window scores exactly 0.
///
/// Grey levels may be counted from any two numbers, one for I and one for T, as long as all sums of a call
/// agree.
pub fn score(template: TemplateSums, s: i64, ss: i64, st: i64) -> f64 {
    let TemplateSums { n, t1, .. } = template;
    ratio(n * st - s * t1, n * ss - s * s, template.variance())
}

/// `numerator / sqrt(window_variance * template_variance)`, in [-1, 1]; 0 if the window's variance is 0.
///
/// `numerator` is n * ST - S * t1, `window_variance` n * SS - S * S, `template_variance` n * t2 - t1 * t1.
#[inline]
pub fn ratio(numerator: i64, window_variance: i64, template_variance: i64) -> f64 {
    // Variances are whole numbers, so a product below 1 is 0. Then the numerator is 0 too, by Cauchy-Schwarz,
    // and 0 / 1 is the 0 that we want: flat windows need no branch.
    let squared = (window_variance as f64 * template_variance as f64).max(1.0);
    (numerator as f64 / squared.sqrt()).clamp(-1.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_equal_to_the_template_scores_one_and_its_negative_minus_one() {
        let template = TemplateSums { n: 3, t1: 6, t2: 14 };
        assert_eq!(score(template, 6, 14, 14), 1.0);
        assert_eq!(score(template, 6, 14, 10), -1.0);
    }

    #[test]
    fn a_flat_window_scores_positive_zero() {
        let template = TemplateSums { n: 3, t1: 6, t2: 14 };
        assert_eq!(score(template, 27, 243, 54).to_bits(), 0.0_f64.to_bits());
    }

    #[test]
    fn grey_levels_may_be_counted_from_anywhere() {
        let plain = score(TemplateSums { n: 3, t1: 6, t2: 14 }, 9, 35, 21);
        // T - 2 = -1, 0, 1 and I - 3 of I = 1, 3, 5.
        assert_eq!(plain, score(TemplateSums { n: 3, t1: 0, t2: 2 }, 0, 8, 3));
    }
}
