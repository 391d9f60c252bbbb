//! Data sent to the port of the live page: any request, order or message of a browser. The page answers or
//! closes the connection, and never fails itself.

#![no_main]

use std::cell::LazyCell;

use libfuzzer_sys::fuzz_target;
use lockon::media::launch;
use lockon_page::Rehearsal;

thread_local! {
    static PAGE: LazyCell<Rehearsal> = const {
        LazyCell::new(|| {
            launch::init().expect("GStreamer is there");
            Rehearsal::new().expect("a page can be had")
        })
    };
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, sent)) = bytes.split_first() else { return };
    let orders = Rehearsal::ORDERS;
    let answer = PAGE.with(|page| match usize::from(kind) {
        at if at < orders.len() => {
            let (method, path, _) = orders[at];
            page.answer_to(method, path, "application/json", sent)
        }
        b if b == usize::from(b'P') => page.answer_to("PUT", "/api/videos/0/templates/a", "image/png", sent),
        b if b == usize::from(b'V') => page.answer_to_viewer(&sent[..sent.len().min(65_535)]),
        _ => page.answer(bytes),
    });
    let head = std::str::from_utf8(&answer[..answer.len().min(12)]).unwrap_or("not HTTP");
    // The answer has the version of the request. 503 is the answer if no picture comes.
    let status = ["HTTP/1.1 ", "HTTP/1.0 "].iter().find_map(|version| head.strip_prefix(version));
    let is_fine = |status: &str| matches!(status, "101" | "503") || status.starts_with(['2', '4']);
    assert!(head.is_empty() || status.is_some_and(is_fine), "{head}");
});
