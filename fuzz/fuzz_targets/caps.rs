//! Caps as a stranger's element might give them: they are refused, or describe a picture whose planes lie in
//! its buffer.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lockon::frame::plane_bytes;
use lockon::media::{launch, source};

fuzz_target!(|text: &str| {
    launch::init().expect("GStreamer starts");
    if text.contains('\0') {
        return;
    }
    let Ok(caps) = text.parse::<gst::Caps>() else { return };
    if let Ok((info, format)) = source::describe(&caps) {
        assert!(format.size.width > 0 && format.size.height > 0, "{caps}");
        for plane in 0..format.pixels.planes() {
            let size = format.pixels.plane_size(plane, format.size);
            let (offset, stride) = (info.offset()[plane], info.stride()[plane] as usize);
            let bytes = plane_bytes(size, stride).expect("it fits in memory");
            assert!(stride >= size.width && offset + bytes <= info.size(), "{caps}: plane {plane}");
        }
    }
});
