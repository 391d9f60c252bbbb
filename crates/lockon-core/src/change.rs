//! Changes to a search during a run, as one order.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use crate::as_text;
use crate::config::{Angles, ObjectSpec, Scales, SearchMethod, ThresholdSpec, Typed};
use crate::frame::Rect;
use crate::template::Template;

/// A change of the search. It is applied between two frames, completely or, if a part of it cannot be done,
/// not at all. Fields that are `None` stay as they are.
///
/// ```
/// # use lockon_core::{change::Change, template::Template, Result};
/// # fn of(logo: Template) -> Result<Change> {
/// // A template, and the box that it needs.
/// let roi = Some(Some("0,0,640,200".parse()?));
/// Ok(Change { add: vec![logo], roi, min_score: Some(0.7), ..Change::default() })
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Change {
    /// Names of templates to remove.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<Arc<str>>,
    /// Templates to add: one with the name of another replaces it, the others come last. Done after `remove`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<Template>,
    /// Minimum score of a match, in [-1, 1].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_score: Option<f64>,
    /// Maximum matches of each template in a frame, 1 or more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_matches: Option<usize>,
    /// Maximum overlap of two matches of one template: intersection over union, in [0, 1].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_overlap: Option<f64>,
    /// The sizes to search.
    #[serde(with = "as_text::maybe", skip_serializing_if = "Option::is_none")]
    pub scales: Option<Typed<Scales>>,
    /// The directions to search.
    #[serde(with = "as_text::maybe", skip_serializing_if = "Option::is_none")]
    pub angles: Option<Typed<Angles>>,
    /// The search method: `auto`, `exhaustive` or `pyramid`.
    #[serde(with = "as_text::maybe", skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchMethod>,
    /// The box that is searched, `X,Y,W,H`; `Some(None)`, as text `null`, is the whole frame.
    #[serde(with = "as_text::or_null", skip_serializing_if = "Option::is_none")]
    pub roi: Option<Option<Rect>>,
    /// The adaptive threshold, as it is typed; `Some(None)`, as text `null`, is none.
    #[serde(with = "as_text::or_null", skip_serializing_if = "Option::is_none")]
    pub threshold: Option<Option<ThresholdSpec>>,
    /// The cleaning of the thresholded frame, and the objects that are reported of it; `Some(None)`, as
    /// `null`, is none.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub objects: Option<Option<ObjectSpec>>,
}

/// Reads a value that can be set to "none" explicitly, by `null`, for serde's `deserialize_with`: with a
/// default, a value that is missing is `None`, and `null` is `Some(None)`.
///
/// # Errors
/// The errors of the value.
pub fn given<'a, T: Deserialize<'a>, D: Deserializer<'a>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl Change {
    /// Searches for a template too, or for this one instead of the one that has its name.
    pub fn adding(template: Template) -> Self {
        Self { add: vec![template], ..Self::default() }
    }

    /// Stops searching for a template.
    pub fn removing(name: impl Into<Arc<str>>) -> Self {
        Self { remove: vec![name.into()], ..Self::default() }
    }

    /// Splits it into several changes that can be made without each other: of templates and the forms in
    /// which they are searched; of the region; of the rules for matches; of the threshold; of objects.
    pub fn parts(self) -> Vec<Self> {
        let Self {
            remove,
            add,
            min_score,
            max_matches,
            max_overlap,
            scales,
            angles,
            search,
            roi,
            threshold,
            objects,
        } = self;
        let parts = [
            Self { remove, add, scales, angles, search, ..Self::default() },
            Self { roi, ..Self::default() },
            Self { min_score, max_matches, max_overlap, ..Self::default() },
            Self { threshold, ..Self::default() },
            Self { objects, ..Self::default() },
        ];
        parts.into_iter().filter(|part| !part.is_empty()).collect()
    }

    /// True if it changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Change {
    /// In words: `remove template "a", set min-score to 0.7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            remove,
            add,
            min_score,
            max_matches,
            max_overlap,
            scales,
            angles,
            search,
            roi,
            threshold,
            objects,
        } = self;
        let mut parts = Vec::new();
        parts.extend(remove.iter().map(|name| format!("remove template {:?}", &**name)));
        parts
            .extend(add.iter().map(|added| format!("add template {:?} ({})", &**added.name(), added.size())));
        let mut set = |what: &str, value: Option<&dyn fmt::Display>| {
            parts.extend(value.map(|value| format!("set {what} to {value}")));
        };
        set("min-score", shown(min_score.as_ref()));
        set("max-matches", shown(max_matches.as_ref()));
        set("max-overlap", shown(max_overlap.as_ref()));
        set("scales", shown(scales.as_ref()));
        set("angles", shown(angles.as_ref()));
        set("search", shown(search.as_ref()));
        set("roi", roi.as_ref().and_then(|roi| shown(roi.as_ref())));
        set("threshold", threshold.as_ref().and_then(|threshold| shown(threshold.as_ref())));
        set("objects", objects.as_ref().and_then(|objects| shown(objects.as_ref())));
        parts.extend((*roi == Some(None)).then(|| "search the whole frame".into()));
        parts.extend((*threshold == Some(None)).then(|| "threshold no more".into()));
        parts.extend((*objects == Some(None)).then(|| "look for no objects".into()));
        f.write_str(if parts.is_empty() { "change nothing" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}

fn shown<T: fmt::Display>(value: Option<&T>) -> Option<&dyn fmt::Display> {
    value.map(|value| value as &dyn fmt::Display)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Size;

    fn all() -> Change {
        Change {
            remove: vec!["a".into()],
            add: vec![Template::new("b", crate::reference::picture(Size::new(9, 7)), None).unwrap()],
            min_score: Some(0.723_456_789_012_345_6),
            max_matches: Some(3),
            max_overlap: Some(0.1),
            scales: Some("0.8..1.25/1.1".parse().unwrap()),
            angles: Some("-30..30".parse().unwrap()),
            search: Some(SearchMethod::Exhaustive),
            roi: Some(Some(Rect::new(1, 2, 3, 4))),
            threshold: Some(Some("sauvola:31:0.2:inv".parse().unwrap())),
            objects: Some(Some(ObjectSpec { max: Some(9), ..ObjectSpec::default() })),
        }
    }

    #[test]
    fn a_change_is_the_same_after_it_was_written_and_read() {
        let none =
            Change { roi: Some(None), threshold: Some(None), objects: Some(None), ..Change::default() };
        for change in [all(), none, Change::default(), Change::removing("a")] {
            let text = serde_json::to_string(&change).unwrap();
            assert_eq!(serde_json::from_str::<Change>(&text).unwrap(), change, "{text}");
        }
        assert_eq!(serde_json::to_string(&Change::default()).unwrap(), "{}");
        let text = r#"{"roi":null,"threshold":"mean:31:5","min_score":0.5,"objects":null}"#;
        let read: Change = serde_json::from_str(text).unwrap();
        assert_eq!(read.objects, Some(None));
        assert_eq!((read.roi, read.min_score, read.max_matches), (Some(None), Some(0.5), None));
        for text in [r#"{"roi":"1,2,0,4"}"#, r#"{"threshold":"mean:30:5"}"#, r#"{"search":"guess"}"#] {
            assert!(serde_json::from_str::<Change>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_parts_of_a_change_are_all_of_it() {
        let parts = all().parts();
        let told: Vec<_> = parts.iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 5, "{told:?}");
        let in_order = [0, 2, 1, 3, 4].map(|part| told[part].as_str()).join(", ");
        for word in
            all().to_string().split(", ").filter(|word| word.starts_with("set") || word.starts_with("add"))
        {
            assert!(in_order.contains(word), "{word}");
        }
        assert!(Change::default().parts().is_empty());
        assert_eq!(Change::removing("a").parts(), [Change::removing("a")]);
    }

    #[test]
    fn a_change_is_told_in_words() {
        assert_eq!(
            all().to_string(),
            "remove template \"a\", add template \"b\" (9x7), set min-score to 0.7234567890123456, \
             set max-matches to 3, set max-overlap to 0.1, set scales to 0.8..1.25/1.1, set angles to -30..30, \
             set search to exhaustive, set roi to 1,2,3,4, set threshold to sauvola:31:0.2:inv, \
             set objects to white, 8 neighbours, at most 9"
        );
        let none =
            Change { roi: Some(None), threshold: Some(None), objects: Some(None), ..Change::default() };
        assert_eq!(none.to_string(), "search the whole frame, threshold no more, look for no objects");
        assert_eq!(Change::default().to_string(), "change nothing");
    }
}
