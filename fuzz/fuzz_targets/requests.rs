//! What is sent to the port of `--metrics`: any bytes are answered, and only one request is answered with
//! what was asked for.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lockon::metrics::status_of;

fuzz_target!(|bytes: &[u8]| {
    let status = status_of(bytes);
    assert!(["200", "400", "404", "405"].iter().any(|code| status.starts_with(code)));
    let is_ours = bytes.starts_with(b"GET /metrics ") || bytes.starts_with(b"GET /metrics?");
    assert!(is_ours || !status.starts_with("200"));
});
