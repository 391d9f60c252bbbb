//! The current search of a run: its first search and all changes since.

use std::sync::Arc;

use serde::Serialize;

use lockon_core::change::Change;
use lockon_core::config::Limits;
use lockon_core::frame::Rect;
use lockon_core::results::RunRecord;

/// The search: `Search` in `openapi.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Searched {
    templates: Vec<Sought>,
    min_score: f64,
    max_matches: usize,
    max_overlap: f64,
    /// `X,Y,W,H`.
    roi: Option<String>,
    /// In the form of `--threshold`.
    pub(super) threshold: Option<String>,
}

/// A template of the search.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Sought {
    name: Arc<str>,
    w: usize,
    h: usize,
}

impl Searched {
    /// The search at the start of a run.
    pub(super) fn new(limits: Limits, roi: Option<Rect>) -> Self {
        Self {
            min_score: limits.min_score,
            max_matches: limits.max_matches,
            max_overlap: limits.max_overlap,
            roi: roi.map(|roi| roi.to_string()),
            ..Self::default()
        }
    }

    /// Adds the templates and the threshold of the run's record.
    pub(super) fn begin(&mut self, run: &RunRecord) {
        let sought = |template: &lockon_core::results::TemplateRecord| Sought {
            name: template.name.clone(),
            w: template.w,
            h: template.h,
        };
        self.templates = run.templates.iter().map(sought).collect();
        self.threshold.clone_from(&run.threshold);
    }

    /// Applies a change.
    pub(super) fn change(&mut self, change: &Change) {
        self.templates.retain(|sought| !change.remove.contains(&sought.name));
        for added in &change.add {
            let sought = Sought { name: added.name().clone(), w: added.size().width, h: added.size().height };
            match self.templates.iter_mut().find(|before| before.name == sought.name) {
                Some(before) => *before = sought,
                None => self.templates.push(sought),
            }
        }
        self.min_score = change.min_score.unwrap_or(self.min_score);
        self.max_matches = change.max_matches.unwrap_or(self.max_matches);
        self.max_overlap = change.max_overlap.unwrap_or(self.max_overlap);
        if let Some(roi) = &change.roi {
            self.roi = roi.map(|roi| roi.to_string());
        }
        if let Some(threshold) = &change.threshold {
            self.threshold = threshold.as_ref().map(ToString::to_string);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockon_core::frame::{Plane, Size};
    use lockon_core::template::Template;

    #[test]
    fn what_is_searched_is_what_it_began_with_and_all_changes() {
        let mut searched = Searched::new(Limits::default(), Some(Rect::new(1, 2, 3, 4)));
        let template = |name: &str, w: usize| {
            let pixels = (0..w * 7).map(|i| (i * 37 % 251) as u8).collect();
            Template::new(name, Plane::from_vec(pixels, Size::new(w, 7)), None).unwrap()
        };
        searched.change(&Change { add: vec![template("a", 5), template("b", 6)], ..Change::default() });
        let change = Change {
            remove: vec!["a".into()],
            add: vec![template("b", 9), template("c", 8)],
            min_score: Some(0.5),
            roi: Some(None),
            threshold: Some(Some("mean:31:5".parse().unwrap())),
            ..Change::default()
        };
        searched.change(&change);
        let said = serde_json::to_value(&searched).unwrap();
        assert_eq!(
            said,
            serde_json::json!({
                "templates": [{ "name": "b", "w": 9, "h": 7 }, { "name": "c", "w": 8, "h": 7 }],
                "min_score": 0.5, "max_matches": 1, "max_overlap": 0.3, "roi": null, "threshold": "mean:31:5",
            })
        );
    }
}
