//! Sizes and boxes as they are typed. Their types are below errors, which hold some of them.

use std::str::FromStr;

use crate::error::{Error, Result};
use crate::frame::{Rect, Size};

impl FromStr for Size {
    type Err = Error;

    /// `WxH` in whole pixels, each from 1 to 65535.
    fn from_str(text: &str) -> Result<Self> {
        let side = |text: &str| text.parse::<u16>().ok().map(usize::from).filter(|&side| side > 0);
        text.split_once('x')
            .and_then(|(width, height)| Some(Self::new(side(width)?, side(height)?)))
            .ok_or_else(|| Error::value("size", text, "expected WIDTHxHEIGHT up to 65535, such as 64x48"))
    }
}

impl FromStr for Rect {
    type Err = Error;

    /// `X,Y,W,H` in whole pixels, with W and H of 1 or more.
    fn from_str(text: &str) -> Result<Self> {
        let bad = |expected: &str| Error::value("box", text, expected);
        let mut numbers = [0; 4];
        let mut parts = text.split(',');
        for number in &mut numbers {
            *number = parts
                .next()
                .and_then(|part| part.trim().parse().ok())
                .ok_or_else(|| bad("expected X,Y,W,H: four whole numbers of pixels, none negative"))?;
        }
        if parts.next().is_some() {
            return Err(bad("more than four numbers"));
        }
        let [x, y, w, h] = numbers;
        if w == 0 || h == 0 {
            return Err(bad("width and height must be 1 or more"));
        }
        Ok(Self { x, y, w, h })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_no_picture_has_are_refused() {
        assert_eq!("65535x1".parse::<Size>().unwrap(), Size::new(65535, 1));
        for text in ["0x1", "65536x1", "4294967296x4294967296", "-1x5", "5", "5x", "x", "5x5x5"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
