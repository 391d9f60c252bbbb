//! The change from one request to another during a run.

use super::Request;
use crate::setup;
use lockon_core::change::Change;
use lockon_core::error::Result;

impl Request {
    /// Returns the change from the search of `before` to this request's, as one order. Templates at the
    /// beginning of both lists that are equal are not read again: a file may be gone by now, or replaced.
    ///
    /// # Errors
    /// As [`setup::load_templates`] and [`setup::check_device`]; `Settings` for work on masks without a
    /// threshold.
    pub fn change_since(&self, before: &Self) -> Result<Change> {
        fn new<T: PartialEq + Clone>(before: &T, now: &T) -> Option<T> {
            (before != now).then(|| now.clone())
        }
        let search = (!self.template.is_empty()).then_some(self.search);
        setup::check_device(&self.kernel, self.backend, search, self.threshold)?;
        self.check_work_on_masks()?;
        let pairs = before.template.iter().zip(&self.template);
        let (kept, added) = self.template.split_at(pairs.take_while(|(before, now)| before == now).count());
        let removed = before.template[kept.len()..].iter().map(|text| setup::name_and_path(text).0.into());
        let added = setup::load_more_templates(kept, added)?.into_iter().map(|named| named.template);
        Ok(Change {
            remove: removed.collect(),
            add: added.collect(),
            min_score: new(&before.min_score, &self.min_score),
            max_matches: new(&before.max_matches, &self.max_matches).map(|most| most as usize),
            max_overlap: new(&before.max_overlap, &self.max_overlap),
            scales: new(&before.scales, &self.scales),
            angles: new(&before.angles, &self.angles),
            search: new(&before.search, &self.search),
            roi: new(&before.roi, &self.roi),
            threshold: new(&before.threshold, &self.threshold),
            objects: new(&before.object_spec(), &self.object_spec()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockon_core::frame::{Rect, Size};

    #[test]
    fn what_differs_is_changed_and_templates_are_read_from_the_first_that_differs_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        for name in ["b.png", "c.png"] {
            let picture = lockon_core::reference::picture(Size::new(9, 7));
            lockon_core::still::save(path(name).as_ref(), picture.as_ref()).unwrap();
        }
        let with = |names: &[&str]| Request {
            template: names.iter().map(|name| path(name)).collect(),
            ..Request::default()
        };
        // `a` is gone by now, and is not needed.
        let before = with(&["a.png", "b.png"]);
        assert!(before.change_since(&before).unwrap().is_empty());
        let now = Request {
            roi: Some(Rect::new(1, 2, 3, 4)),
            min_score: 0.5,
            threshold: Some("mean:31:5".parse().unwrap()),
            objects: true,
            object_max: Some(7),
            ..with(&["a.png", "c.png", "b.png"])
        };
        let change = now.change_since(&before).unwrap();
        assert_eq!(
            change.to_string(),
            "remove template \"b\", add template \"c\" (9x7), add template \"b\" (9x7), set min-score to 0.5, \
             set roi to 1,2,3,4, set threshold to mean:31:5, set objects to white, 8 neighbours, at most 7"
        );
        let back = before.change_since(&now).unwrap();
        assert_eq!(
            (back.roi, back.objects, back.add.len(), back.remove.len()),
            (Some(None), Some(None), 1, 2)
        );
        let without = Request { threshold: None, template: Vec::new(), ..now };
        let error = without.change_since(&before).unwrap_err().to_string();
        assert!(error.contains("--objects is for the thresholded picture"), "{error}");
        for (names, said) in [(&["b.png", "a.png"], "cannot read"), (&["a.png", "a.png"], "two templates")] {
            let error = with(names).change_since(&before).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
