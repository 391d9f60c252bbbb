//! PTX as the program carries it.

use std::io::Read;

use flate2::read::ZlibDecoder;

/// PTX, compressed by `build.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ptx(pub(crate) &'static [u8]);

impl Ptx {
    pub(crate) fn text(self) -> String {
        let mut text = String::new();
        ZlibDecoder::new(self.0).read_to_string(&mut text).expect("`build.rs` has compressed text");
        text
    }
}

/// The PTX of `ptx/NAME.ptx`.
macro_rules! ptx {
    ($name:expr) => {
        $crate::driver::Ptx(include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".ptx.zlib")))
    };
}
pub(crate) use ptx;

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_carried_is_the_ptx_that_constants_are_read_from() {
        assert_eq!(ptx!("ncc").text(), include_str!("../../ptx/ncc.ptx"));
    }
}
