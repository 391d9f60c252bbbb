//! Constants and structures that launchers and kernels share, checked at compile time: constants are read
//! from the PTX that is loaded. See `kernels/shared.h` for the kernels' side.

/// The value of a `constexpr` number of the kernels' outermost namespace, which NVRTC writes into the PTX as
/// `.u32 NAME = VALUE;`.
///
/// # Panics
/// If there is no such name, or its value is negative. In a constant this is a compile error.
pub(super) const fn constant(ptx: &str, name: &str) -> usize {
    let (text, name) = (ptx.as_bytes(), name.as_bytes());
    let mut at = 0;
    while at < text.len() {
        // Constants come before the first kernel; the kernels' text is long.
        assert!(!stands(text, at, b".entry"), "no such constant before the first kernel");
        if stands(text, at, b".u32 ")
            && stands(text, at + 5, name)
            && stands(text, at + 5 + name.len(), b" = ")
        {
            return number(text, at + 5 + name.len() + 3);
        }
        at += 1;
    }
    panic!("no such constant")
}

/// True if `text` has `word` at offset `at`.
const fn stands(text: &[u8], at: usize, word: &[u8]) -> bool {
    let mut i = 0;
    while i < word.len() {
        if at + i >= text.len() || text[at + i] != word[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// The decimals from `at` to the next semicolon.
const fn number(text: &[u8], mut at: usize) -> usize {
    let mut value = 0;
    while text[at] != b';' {
        assert!(text[at].is_ascii_digit(), "not a number in decimals");
        value = value * 10 + (text[at] - b'0') as usize;
        at += 1;
    }
    value
}

/// Makes a `#[repr(C)]` structure [`Pod`](super::driver::Pod). The compiler checks that these are all of its
/// fields, that each is `Pod`, that nothing lies between or behind them, and that they lie at the offsets
/// that the kernels' `static_assert` beside the structure has.
macro_rules! pod_structure {
    ($name:ident, $bytes:literal bytes { $($field:ident: $type:ty $(= $offset:literal)?),* $(,)? }) => {
        const _: () = {
            assert!(size_of::<$name>() == $bytes, "the kernel's structure has another size");
            assert!(size_of::<$name>() == 0 $(+ size_of::<$type>())*, "there is room between the fields");
            $($(
                assert!(std::mem::offset_of!($name, $field) == $offset, "the kernel's field lies elsewhere");
            )?)*
        };
        const _: fn($name) = |it| {
            fn is_pod<T: $crate::driver::Pod>(_: T) {}
            let $name { $($field),* } = it;
            $( is_pod::<$type>($field); )*
        };
        // SAFETY: as was just checked, these are all fields, each without padding, pointers or invalid
        // values, and nothing lies between or behind them.
        #[expect(unsafe_code, reason = "what it promises is checked above")]
        unsafe impl $crate::driver::Pod for $name {}
    };
}
pub(super) use pod_structure;

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "
.global .align 4 .u32 TILE_XY = 7;
.global .align 4 .u32 TILE_X = 128;
.global .align 4 .u32 BELOW = -1;
.visible .entry kernel(
.global .align 4 .u32 LATE = 1;
";

    #[test]
    fn a_constant_is_found_by_its_whole_name() {
        const { assert!(constant(PTX, "TILE_X") == 128 && constant(PTX, "TILE_XY") == 7) };
    }

    #[test]
    fn what_is_no_constant_is_refused() {
        for name in ["TILE", "BELOW", "LATE", "ELSEWHERE"] {
            assert!(lockon_core::error::catch_panic(|| constant(PTX, name)).is_err(), "{name}");
        }
    }
}
