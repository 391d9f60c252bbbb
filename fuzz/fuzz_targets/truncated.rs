//! The outermost headers of video files: any bytes can be measured, and that comes to an end.

#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use lockon::media::truncated::measured;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some(found)) = measured(&mut Cursor::new(bytes), bytes.len() as u64) {
        let _ = found.to_string();
    }
});
