//! The vector instructions that the loops of the CPU backend and the tracker are compiled for.
//!
//! Loops are written once, in plain Rust, over slices and arrays that a compiler can vectorise. `Level::run`
//! compiles the closure it is given once for each level and runs the one of its own level. [`Level::best`] is
//! chosen once a process: the best that the processor has, or a lower one that the environment variable
//! `LOCKON_SIMD` names. All levels give the same bytes: reported numbers are rounded by IEEE's rules, and
//! estimates only decide where to look.

use std::fmt;
use std::sync::OnceLock;

/// Names a level by its environment variable: `plain`, and on x86-64 `avx2` and `avx512`, on 64-bit ARM
/// `dotprod`.
const VARIABLE: &str = "LOCKON_SIMD";

/// A set of vector instructions that this processor has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(Set);

/// From the least to the most. Kept private, so that a [`Level`] exists only where its instructions do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Set {
    /// The instructions that every processor of the architecture has: SSE2 on x86-64, NEON on 64-bit ARM.
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 as of Ice Lake and Zen 4, VNNI included.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// NEON with dot products of bytes.
    #[cfg(target_arch = "aarch64")]
    Dotprod,
}

impl Level {
    /// The level that is used by default.
    pub fn best() -> Self {
        static BEST: OnceLock<Level> = OnceLock::new();
        *BEST.get_or_init(|| {
            let available = Self::available();
            let best = *available.last().expect("every processor has what all of its kind have");
            let Some(asked) = std::env::var_os(VARIABLE) else { return best };
            let named = available.iter().find(|level| *asked == *level.to_string());
            named.copied().unwrap_or_else(|| {
                let names: Vec<_> = available.iter().map(ToString::to_string).collect();
                tracing::warn!("{VARIABLE}={} is not one of {} here", asked.display(), names.join(", "));
                best
            })
        })
    }

    /// All levels that this processor has, from the least to the most.
    pub fn available() -> Vec<Self> {
        let mut sets = vec![Set::Plain];
        #[cfg(target_arch = "x86_64")]
        {
            // Every processor with AVX2 counts and finds bits, but the compiler does not know.
            let has_bits = is_x86_feature_detected!("popcnt")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2");
            if has_bits && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                sets.push(Set::Avx2);
                if is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vbmi")
                    && is_x86_feature_detected!("avx512vnni")
                {
                    sets.push(Set::Avx512);
                }
            }
        }
        #[cfg(target_arch = "aarch64")]
        {
            if std::arch::is_aarch64_feature_detected!("dotprod") {
                sets.push(Set::Dotprod);
            }
        }
        sets.into_iter().map(Self).collect()
    }

    /// True if the FFT's own vector instructions, which it chooses by itself, are none beyond this level's.
    pub(crate) fn has_wide_transforms(self) -> bool {
        cfg!(target_arch = "aarch64") || self.0 > Set::Plain
    }

    /// True if `f32::mul_add` is one instruction, and not a call.
    pub(crate) fn has_mul_add(self) -> bool {
        cfg!(target_arch = "aarch64") || self.0 > Set::Plain
    }

    /// True if there are 32 vector registers of 16 `f32` each.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(clippy::unused_self, reason = "no other processor has so many")
    )]
    pub(crate) fn has_wide_vectors(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.0 == Set::Avx512;
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// Runs `work` as compiled for this level.
    ///
    /// Only code that is inlined into `run` is compiled so: the closure itself and all that it calls have to
    /// be `#[inline(always)]`, or small.
    #[inline]
    #[expect(unsafe_code, reason = "calling code that is compiled for more than every processor has")]
    pub fn run<R>(self, work: impl FnOnce() -> R) -> R {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,popcnt,lzcnt,bmi1,bmi2")]
        fn avx2<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(
            enable = "avx2,fma,popcnt,lzcnt,bmi1,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni"
        )]
        fn avx512<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        #[cfg(target_arch = "aarch64")]
        #[target_feature(enable = "dotprod")]
        fn dotprod<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        match self.0 {
            Set::Plain => work(),
            // SAFETY: `available` alone makes levels, and makes this one only where all of its features were
            // detected.
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => unsafe { avx2(work) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => unsafe { avx512(work) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Set::Dotprod => unsafe { dotprod(work) },
        }
    }
}

/// Asks the processor to fetch `bytes` into its first cache while it does other work, where the architecture
/// has such an instruction.
pub(crate) fn prefetch(bytes: &[u8]) {
    prefetch_beyond(bytes, 0);
}

/// As [`prefetch`], for the bytes one page further on, whether they belong to the same memory or not.
///
/// Processors fetch ahead by themselves, but many only to the end of a page: a loop over memory that is in no
/// cache waits at the start of each.
#[inline(always)]
pub(crate) fn prefetch_next_page(bytes: &[u8]) {
    const PAGE: usize = 4096;
    prefetch_beyond(bytes, PAGE);
}

#[inline(always)]
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "the instruction takes an address"))]
fn prefetch_beyond(bytes: &[u8], distance: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: it reads nothing, whatever lies there, and every x86-64 has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().wrapping_add(distance).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, distance);
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Set::Plain => "plain",
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => "avx512",
            #[cfg(target_arch = "aarch64")]
            Set::Dotprod => "dotprod",
        })
    }
}

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
