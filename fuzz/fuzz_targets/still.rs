//! Still pictures: any bytes are a picture or an error, and what is declared is not trusted with memory.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use lockon::still;
use lockon::template::Template;

fuzz_target!(|bytes: &[u8]| {
    // Less than in earnest: sizes are refused in the same place, and a picture of 2^20 pixels takes seconds
    // here.
    const MAX_PIXELS: u64 = 1 << 16;
    if let Ok(picture) = still::decode(bytes, Path::new("fuzz"), MAX_PIXELS) {
        let size = picture.luma.size();
        assert!(size.area() as u64 <= MAX_PIXELS);
        assert!(picture.alpha.as_ref().is_none_or(|alpha| alpha.size() == size));
        let _ = Template::new("fuzz", picture.luma, picture.alpha.as_ref());
    }
});
