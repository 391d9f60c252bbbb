//! Pipeline text: any text can be taken apart, added to and printed, and a property that is set comes out of
//! the printed line as it was put in.

#![no_main]

use arbitrary::Arbitrary;
use gst::prelude::*;
use libfuzzer_sys::fuzz_target;
use lockon::media::launch::{self, Launch};

#[derive(Debug, Arbitrary)]
struct Typed<'a> {
    text: &'a str,
    sink: &'a str,
    value: &'a str,
}

fuzz_target!(|typed: Typed<'_>| {
    let mut launch = Launch::new("source", typed.text);
    let sink = Launch::new("sink", typed.sink);
    let _ = (launch.has("frames"), launch.sets("frames", "location"));
    launch.set("frames", "location", typed.value);
    let _ = launch.joined("lockon", &[]).map(|joined| joined.to_string());
    let _ = launch.joined("lockon", &[sink.clone(), sink]).map(|joined| joined.to_string());
    if launch.insert_before("frames", "identity").is_ok() {
        assert!(launch.has("frames"), "{launch}");
    }
    let _ = launch.to_string();

    // A zero ends a text of C's.
    if typed.value.contains('\0') {
        return;
    }
    launch::init().expect("GStreamer starts");
    let mut known = Launch::new("known", "fakesrc ! filesink name=frames");
    known.set("frames", "location", typed.value);
    let location = |pipeline: &gst::Pipeline| {
        pipeline
            .by_name("frames")
            .expect("it is there")
            .property::<Option<String>>("location")
            .unwrap_or_default()
    };
    assert_eq!(location(&known.build().expect("any location can be set")), typed.value);
    let line = known.to_string();
    let words = through_shell(&line);
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let parsed = gst::parse::launchv(&words).unwrap_or_else(|error| panic!("{line}: {error}"));
    let parsed = parsed.downcast::<gst::Pipeline>().expect("two elements are a pipeline");
    assert_eq!(location(&parsed), typed.value, "{line}");
});

/// The words that a POSIX shell makes of a line in which only single quotes, and backslashes outside of them,
/// mean anything.
fn through_shell(line: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\'' => is_quoted = !is_quoted,
            '\\' if !is_quoted => word.extend(chars.next()),
            ' ' if !is_quoted => words.push(std::mem::take(&mut word)),
            c => word.push(c),
        }
    }
    words.push(word);
    words
}
