//! Templates as orders and their records have them: pixels in base64.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};

use super::Template;
use crate::frame::{Plane, Size};

/// The text form. Bytes lie row by row, without padding.
#[derive(serde::Serialize, serde::Deserialize)]
struct Written {
    name: Arc<str>,
    w: usize,
    h: usize,
    /// Pixels.
    luma: String,
    /// 128 or more where a pixel counts; all count if it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mask: Option<String>,
}

impl Serialize for Template {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Size { width: w, height: h } = self.size();
        let luma = BASE64_STANDARD.encode(self.luma.data());
        let mask = self.mask().map(|mask| mask.data().iter().map(|&counts| counts * 255).collect::<Vec<_>>());
        let mask = mask.map(|mask| BASE64_STANDARD.encode(mask));
        Written { name: self.name.clone(), w, h, luma, mask }.serialize(serializer)
    }
}

impl<'a> Deserialize<'a> for Template {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        let Written { name, w, h, luma, mask } = Written::deserialize(deserializer)?;
        let plane = |what: &str, text: &str| {
            let of = |error: &dyn std::fmt::Display| D::Error::custom(format!("{what} of {name:?}: {error}"));
            let bytes = BASE64_STANDARD.decode(text).map_err(|error| of(&error))?;
            let wanted = w.checked_mul(h);
            if wanted != Some(bytes.len()) {
                return Err(of(&format_args!("{} bytes are not the pixels of {w}x{h}", bytes.len())));
            }
            Ok(Plane::from_vec(bytes, Size::new(w, h)))
        };
        let mask = mask.map(|text| plane("mask", &text)).transpose()?;
        let luma = plane("luma", &luma)?;
        Self::new(name, luma, mask.as_ref()).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::picture;

    #[test]
    fn a_template_is_the_same_after_it_was_written_and_read() {
        let size = Size::new(13, 7);
        let holes =
            Plane::from_vec((0..size.area()).map(|i| if i % 5 == 0 { 127 } else { 128 }).collect(), size);
        for mask in [None, Some(&holes)] {
            let template = Template::new("a \"b\"", picture(size), mask).unwrap();
            let text = serde_json::to_string(&template).unwrap();
            assert_eq!(text.contains("\"mask\""), mask.is_some(), "{text}");
            let read: Template = serde_json::from_str(&text).unwrap();
            assert_eq!(read, template);
            assert_eq!(read.sums(), template.sums());
        }
    }

    #[test]
    fn what_is_no_template_is_refused_with_its_reason() {
        for (text, said) in [
            (r#"{"name":"a","w":2,"h":2,"luma":"AAEC"}"#, "3 bytes are not the pixels of 2x2"),
            (r#"{"name":"a","w":2,"h":1,"luma":"AA=E"}"#, "luma of \"a\": "),
            (r#"{"name":"a","w":2,"h":1,"luma":"AAE=","mask":"/w=="}"#, "mask of \"a\": 1 bytes"),
            (r#"{"name":"a","w":2,"h":1,"luma":"AAA="}"#, "template \"a\""),
            (r#"{"name":"a","w":0,"h":0,"luma":""}"#, "template \"a\""),
            (r#"{"name":"a","w":18446744073709551615,"h":3,"luma":""}"#, "0 bytes are not"),
        ] {
            let error = serde_json::from_str::<Template>(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
