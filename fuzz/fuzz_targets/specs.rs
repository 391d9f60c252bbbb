//! Typed text: any text is a value or an error; values are in their range, and print as text with the same
//! meaning.

#![no_main]

use std::fmt::{Debug, Display};
use std::str::FromStr;

use libfuzzer_sys::fuzz_target;
use lockon::config::{
    Angles, BackendChoice, Kernel, Moment, OnDeviceLoss, Scales, SearchMethod, ThresholdSpec, TrackSpec, View,
};
use lockon::frame::{Rect, Size};
use lockon::media::source::{Decoder, Input};
use lockon::request::ListenAddress;

/// Parsed, printed and parsed again it is what it was.
fn comes_back<T: FromStr + Display + PartialEq + Debug>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        let printed = value.to_string();
        assert_eq!(printed.parse().ok().as_ref(), Some(&value), "{text:?} prints as {printed:?}");
    }
}

fuzz_target!(|text: &str| {
    comes_back::<ThresholdSpec>(text);
    comes_back::<TrackSpec>(text);
    comes_back::<Moment>(text);
    comes_back::<Rect>(text);
    comes_back::<Size>(text);
    comes_back::<Kernel>(text);
    comes_back::<ListenAddress>(text);
    if let Ok(Scales(scales)) = text.parse() {
        assert!(scales.contains(&1.0) && scales.is_sorted(), "{text:?}");
        assert!(scales.iter().all(|scale| (0.009..=101.0).contains(scale)), "{text:?}");
    }
    if let Ok(Angles(angles)) = text.parse() {
        assert!(!angles.is_empty() && angles.is_sorted(), "{text:?}");
        assert!(angles.iter().all(|angle| (-360.1..=360.1).contains(angle)), "{text:?}");
    }
    let _ = text.parse::<BackendChoice>();
    let _ = text.parse::<OnDeviceLoss>();
    let _ = text.parse::<SearchMethod>();
    let _ = text.parse::<View>();
    let _ = text.parse::<Decoder>();
    let _ = text.parse::<Input>();
    let _ = lockon::setup::name_and_path(text);
});
