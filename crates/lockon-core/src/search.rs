//! The search of a run: templates, scales, angles, limits, threshold, and how orders change them.

use std::sync::{Arc, OnceLock};

use crate::backend::{self, Variants};
use crate::change::Change;
use crate::config::{Angles, Limits, LumaRange, ObjectSpec, Scales, SearchMethod, ThresholdSpec, Typed};
use crate::control::Control;
use crate::error::{Bytes, Error, Result};
use crate::frame::{Frame, Rect, Size, VideoFormat};
use crate::results::{SearchRecord, SoughtRecord};
use crate::template::{self, Bank, Template};

/// The search in every frame. It can be changed between two frames: see [`Self::changed`].
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// The templates, in the order of their matches in results.
    templates: Vec<Template>,
    scales: Typed<Scales>,
    angles: Typed<Angles>,
    method: SearchMethod,
    /// The templates in all sizes and directions; none if there are none.
    sought: Option<Arc<Sought>>,
    /// The region to search: the whole frame by default.
    pub roi: Option<Rect>,
    /// The limits of a match.
    pub limits: Limits,
    /// The adaptive threshold.
    pub threshold: Option<ThresholdSpec>,
    /// The cleaning and the objects of the thresholded frame, where there is a threshold.
    pub objects: Option<ObjectSpec>,
    /// The range of luma that is searched and thresholded.
    pub range: LumaRange,
}

impl Search {
    /// A search for templates of different names, in the whole frame, by the usual limits.
    ///
    /// # Errors
    /// As [`Bank::expanded`] and [`template::check_count`]; `Stopped` if `control` was while a bank is made.
    pub fn new(
        templates: Vec<Template>,
        method: SearchMethod,
        scales: &Typed<Scales>,
        angles: &Typed<Angles>,
        control: &Control,
    ) -> Result<Self> {
        let (scales, angles) = (scales.clone(), angles.clone());
        let search = Self { templates, scales, angles, method, ..Self::default() }.with_sought()?;
        search.make_bank(control)?;
        Ok(search)
    }

    /// Makes the bank now if it will be needed, whatever the device.
    ///
    /// # Errors
    /// As [`Bank::expanded`]; `Stopped`.
    pub fn make_bank(&self, control: &Control) -> Result<()> {
        if let Some(sought) = self.sought.as_ref().filter(|sought| sought.is_exhaustive()) {
            sought.bank(control, Bytes(u64::MAX))?;
        }
        Ok(())
    }

    /// The templates, in the order of their matches in results.
    pub fn templates(&self) -> &[Template] {
        &self.templates
    }

    /// The sizes at which they are searched.
    pub fn scales(&self) -> &Scales {
        &self.scales
    }

    /// The directions in which they are searched.
    pub fn angles(&self) -> &Angles {
        &self.angles
    }

    /// The templates in all sizes and directions, if there are any.
    pub fn sought(&self) -> Option<&Sought> {
        self.sought.as_deref()
    }

    /// True if luma of this format is expanded before it is searched and thresholded.
    pub fn expands(&self, format: &VideoFormat) -> bool {
        self.range == LumaRange::Full && format.is_limited_range()
    }

    /// Seconds of one core that this picture takes, if `auto` has chosen the exhaustive search and that is
    /// too long for it: [`backend::long_in`].
    pub fn turns_out_long(&self, frame: &Frame) -> Option<f64> {
        let sought = self.sought.as_ref()?;
        let roi = self.roi.unwrap_or(Rect::whole(frame.format.size));
        // A picture in a device's memory is only fetched if there is something to decide.
        if !sought.taken.get().is_some_and(|taken| taken.watches_content) || !roi.is_inside(frame.format.size)
        {
            return None;
        }
        backend::long_in(sought.variants(), frame.luma().crop(roi))
    }

    /// True if there is neither a template nor a threshold.
    pub fn is_idle(&self) -> bool {
        self.sought.is_none() && self.threshold.is_none()
    }

    /// Returns this search after a change. Banks are made when a device is opened for it; unchanged parts are
    /// shared by both.
    ///
    /// # Errors
    /// `Order` if a template to remove does not exist, `Value` for invalid limits, and as
    /// [`template::check_count`].
    pub fn changed(&self, change: &Change) -> Result<Self> {
        let mut search = self.clone();
        for name in &change.remove {
            let place = search.place(name).ok_or_else(|| search.missing(name, change))?;
            search.templates.remove(place);
        }
        for added in &change.add {
            match search.place(added.name()) {
                Some(place) => search.templates[place] = added.clone(),
                None => search.templates.push(added.clone()),
            }
        }
        let Limits { min_score, max_matches, max_overlap } = &mut search.limits;
        *min_score = change.min_score.unwrap_or(*min_score);
        *max_matches = change.max_matches.unwrap_or(*max_matches);
        *max_overlap = change.max_overlap.unwrap_or(*max_overlap);
        search.limits.check()?;
        search.threshold = change.threshold.unwrap_or(search.threshold);
        search.objects = change.objects.unwrap_or(search.objects);
        search.roi = change.roi.unwrap_or(search.roi);
        search.method = change.search.unwrap_or(search.method);
        if let Some(scales) = &change.scales {
            search.scales = scales.clone();
        }
        if let Some(angles) = &change.angles {
            search.angles = angles.clone();
        }
        let is_same = search.templates == self.templates
            && (search.scales(), search.angles()) == (self.scales(), self.angles());
        match &self.sought {
            Some(sought) if is_same && search.method == self.method => {
                if search.roi != self.roi {
                    // The cost of a search depends on its region.
                    search.sought = Some(Arc::new(sought.undecided()));
                }
                Ok(search)
            }
            _ => search.with_sought(),
        }
    }

    /// A copy for another run, which chooses the method again.
    #[must_use]
    pub fn for_another_run(&self) -> Self {
        let sought = self.sought.as_ref().map(|sought| Arc::new(sought.undecided()));
        Self { sought, ..self.clone() }
    }

    /// The change from another search to this one.
    #[must_use]
    pub fn since(&self, before: &Self) -> Change {
        fn if_new<T: PartialEq>(value: T, before: &T) -> Option<T> {
            Some(value).filter(|value| value != before)
        }
        let Limits { min_score, max_matches, max_overlap } = self.limits;
        // New templates come last, so the templates before the first difference stay.
        let pairs = self.templates.iter().zip(&before.templates);
        let same = pairs.take_while(|(template, before)| template == before).count();
        Change {
            remove: before.templates[same..].iter().map(|template| template.name().clone()).collect(),
            add: self.templates[same..].to_vec(),
            min_score: if_new(min_score, &before.limits.min_score),
            max_matches: if_new(max_matches, &before.limits.max_matches),
            max_overlap: if_new(max_overlap, &before.limits.max_overlap),
            scales: (*self.scales != *before.scales).then(|| self.scales.clone()),
            angles: (*self.angles != *before.angles).then(|| self.angles.clone()),
            search: if_new(self.method, &before.method),
            roi: if_new(self.roi, &before.roi),
            threshold: if_new(self.threshold, &before.threshold),
            objects: if_new(self.objects, &before.objects),
        }
    }

    /// The search as outputs get it.
    pub fn record(&self) -> SearchRecord {
        let Limits { min_score, max_matches, max_overlap } = self.limits;
        let sought = |template: &Template| {
            let Size { width: w, height: h } = template.size();
            SoughtRecord { name: template.name().clone(), w, h }
        };
        SearchRecord {
            templates: self.templates.iter().map(sought).collect(),
            min_score,
            max_matches,
            max_overlap,
            roi: self.roi.map(|roi| roi.to_string()),
            threshold: self.threshold.map(|threshold| threshold.to_string()),
            objects: self.objects,
        }
    }

    /// The search cut to frames that are too small for all of it: the rest of the region, or no search at
    /// all.
    #[must_use]
    pub fn cut_to(&self, frame: Size) -> Self {
        let rest = Self { roi: self.roi.and_then(|roi| roi.cut_to(frame)), ..self.clone() };
        // Without this remainder the whole frame would be searched.
        let is_left = self.roi.is_none() || rest.roi.is_some();
        if is_left && rest.check(frame).is_ok() { rest } else { Self { sought: None, roi: None, ..rest } }
    }

    /// Refuses frames of a size in which no part of it fits.
    ///
    /// # Errors
    /// `Outside` if the region does not lie inside them, `NothingFits` if no template does, in no size or
    /// direction.
    pub fn check(&self, frame: Size) -> Result<()> {
        let Some(sought) = &self.sought else { return Ok(()) };
        let roi = self.roi.unwrap_or(Rect::whole(frame));
        if !roi.is_inside(frame) {
            return Err(Error::Outside { what: "region of interest", rect: roi, frame });
        }
        let sizes = || sought.members().map(|(_, size)| size);
        if sizes().any(|size| size.fits_in(roi.size())) {
            return Ok(());
        }
        let smallest = sizes().min_by_key(|size| size.area()).unwrap_or(Size::new(0, 0));
        Err(Error::NothingFits { smallest, area: roi.size() })
    }

    /// Refuses a change that adds a template which fits nowhere in frames of that size, in no size or
    /// direction: it would never be found.
    ///
    /// # Errors
    /// `Order`.
    pub(crate) fn check_added(&self, change: &Change, frame: Size) -> Result<()> {
        let area = self.roi.map_or(frame, Rect::size);
        for added in &change.add {
            let sizes = || {
                let members = self.sought.iter().flat_map(|sought| sought.members());
                members.filter(|(name, _)| *name == &**added.name()).map(|(_, size)| size)
            };
            if sizes().any(|size| size.fits_in(area)) {
                continue;
            }
            let smallest = sizes().min_by_key(|size| size.area()).unwrap_or(added.size());
            let reason = format!(
                "template {:?} is larger than what is searched: it has {smallest} pixels at its smallest scale, the \
                 searched area {area}",
                &**added.name()
            );
            return Err(Error::Order { order: change.to_string(), reason });
        }
        Ok(())
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.templates.iter().position(|template| **template.name() == *name)
    }

    fn missing(&self, name: &str, change: &Change) -> Error {
        let names: Vec<_> = self.templates.iter().map(|there| format!("{:?}", &**there.name())).collect();
        let there =
            if names.is_empty() { "there is none".into() } else { format!("there are {}", names.join(", ")) };
        Error::Order { order: change.to_string(), reason: format!("no template is named {name:?}: {there}") }
    }

    fn with_sought(mut self) -> Result<Self> {
        template::check_count(self.templates.len(), &self.scales, &self.angles)?;
        let method = self.method;
        let (templates, scales, angles) =
            (self.templates.clone(), self.scales().clone(), self.angles().clone());
        let variants = Variants { templates, scales, angles };
        self.sought = (!variants.templates.is_empty())
            .then(|| Arc::new(Sought { variants, method, bank: OnceLock::new(), taken: OnceLock::new() }));
        Ok(self)
    }
}

/// Every template at every scale and angle, and the way in which they are searched.
#[derive(Debug, Clone)]
pub struct Sought {
    variants: Variants,
    method: SearchMethod,
    /// All variants, made when the exhaustive search needs them.
    bank: OnceLock<Bank>,
    /// The method of the first frame. It stays when the frames' size or the device changes.
    taken: OnceLock<Taken>,
}

/// The method that `auto` or the user chose.
#[derive(Debug, Clone, Copy)]
struct Taken {
    method: SearchMethod,
    /// The device takes longer for some pictures than for others, so `auto` may change to a pyramid.
    watches_content: bool,
}

impl Sought {
    /// The templates, scales and angles.
    pub fn variants(&self) -> &Variants {
        &self.variants
    }

    /// All variants, made now if they are new, in so much memory.
    ///
    /// # Errors
    /// As [`Bank::expanded_within`]; `Stopped`.
    pub fn bank(&self, control: &Control, limit: Bytes) -> Result<&Bank> {
        if let Some(bank) = self.bank.get() {
            return Ok(bank);
        }
        let Variants { templates, scales, angles } = &self.variants;
        let bank = Bank::expanded_within(templates, scales, angles, || control.check(), limit)?;
        Ok(self.bank.get_or_init(|| bank))
    }

    /// The requested method.
    pub fn asked(&self) -> SearchMethod {
        self.method
    }

    /// The chosen method, once it is known.
    pub fn taken(&self) -> Option<SearchMethod> {
        self.taken.get().map(|taken| taken.method)
    }

    /// Uses this method from now on, unless `auto` watches the cost of pictures and one costs too much.
    pub fn take(&self, method: SearchMethod, watches_content: bool) {
        let is_free =
            self.method == SearchMethod::Auto && method == SearchMethod::Exhaustive && !self.is_one();
        let watches_content = watches_content && is_free && backend::depends_on_content(&self.variants);
        let _ = self.taken.set(Taken { method, watches_content });
    }

    /// The chosen method, or the method without further knowledge.
    pub fn method(&self) -> SearchMethod {
        self.taken().unwrap_or(self.method)
    }

    /// Names and sizes of all members.
    pub fn members(&self) -> impl Iterator<Item = (&str, Size)> {
        let bank = self.bank.get().filter(|_| self.method() != SearchMethod::Pyramid);
        let made = bank.into_iter().flat_map(Bank::members);
        let made = made.map(|member| (&**member.name(), member.size()));
        let count = if bank.is_some() { 0 } else { self.variants.count() };
        let to_be = |variant| (&**self.variants.template(variant).name(), self.variants.size(variant));
        made.chain((0..count).map(to_be))
    }

    /// True if all variants are needed, whatever the device.
    fn is_exhaustive(&self) -> bool {
        self.method == SearchMethod::Exhaustive || self.is_one() && self.method == SearchMethod::Auto
    }

    /// True if there is one scale and one angle.
    fn is_one(&self) -> bool {
        self.variants.scales.0.len() * self.variants.angles.0.len() == 1
    }

    /// As `new`, but the search method is not chosen yet.
    fn undecided(&self) -> Self {
        Self { taken: OnceLock::new(), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Size = Size::new(64, 48);

    fn template(name: &str, width: usize) -> Template {
        Template::new(name, crate::reference::picture(Size::new(width, 7)), None).unwrap()
    }

    fn search(names: &[&str]) -> Search {
        let templates = names.iter().map(|name| template(name, 9)).collect();
        let (scales, angles) = (Typed::default(), Typed::default());
        Search::new(templates, SearchMethod::Auto, &scales, &angles, &Control::new()).unwrap()
    }

    fn names(search: &Search) -> Vec<&str> {
        search.templates().iter().map(|template| &**template.name()).collect()
    }

    #[test]
    fn templates_keep_their_places_and_new_ones_come_last() {
        let before = search(&["a", "b", "c"]);
        let change = Change {
            remove: vec!["a".into()],
            add: vec![template("d", 9), template("b", 11)],
            ..Change::default()
        };
        let after = before.changed(&change).unwrap();
        assert_eq!(names(&after), ["b", "c", "d"]);
        assert_eq!(after.sought().unwrap().variants().size(0), Size::new(11, 7));
        assert_eq!(names(&before), ["a", "b", "c"]);
        let none =
            before.changed(&Change { remove: ["a", "b", "c"].map(Into::into).into(), ..Change::default() });
        assert!(none.unwrap().is_idle());
    }

    #[test]
    fn the_change_between_two_searches_makes_the_one_of_the_other() {
        let all = Change {
            remove: vec!["b".into()],
            add: vec![template("c", 12), template("d", 9), template("b", 9)],
            min_score: Some(0.5),
            max_matches: Some(7),
            max_overlap: Some(0.1),
            scales: Some("0.8..1.25/1.1".parse().unwrap()),
            angles: Some("-30..30".parse().unwrap()),
            search: Some(SearchMethod::Exhaustive),
            roi: Some(Some(Rect::new(1, 2, 30, 40))),
            threshold: Some(Some("mean:31:5".parse().unwrap())),
            objects: Some(Some(ObjectSpec { max: Some(9), ..ObjectSpec::default() })),
        };
        let parts = [
            Change { add: vec![template("a", 12)], ..Change::default() },
            Change { remove: vec!["c".into()], ..Change::default() },
            Change { remove: vec!["a".into()], add: vec![template("a", 9)], ..Change::default() },
            all,
        ];
        let as_told = |search: &Search| {
            let Search { templates, scales, angles, method, roi, limits, threshold, objects, .. } =
                search.clone();
            (templates, scales, angles, method, (roi, limits, threshold, objects))
        };
        let before = search(&["a", "b", "c"]);
        let mut after = before.clone();
        assert!(after.since(&before).is_empty());
        for change in parts {
            after = after.changed(&change).unwrap();
            for (one, other) in [(&before, &after), (&after, &before)] {
                // In the form of a results file.
                let text = serde_json::to_string(&other.since(one)).unwrap();
                let read: Change = serde_json::from_str(&text).unwrap();
                assert_eq!(as_told(&one.changed(&read).unwrap()), as_told(other), "{text}");
            }
        }
    }

    #[test]
    fn the_record_of_a_search_has_its_templates_and_all_that_was_set() {
        let change = Change {
            remove: vec!["a".into()],
            add: vec![template("b", 11), template("c", 8)],
            min_score: Some(0.5),
            roi: Some(Some(Rect::new(1, 2, 30, 40))),
            threshold: Some(Some("mean:31:5".parse().unwrap())),
            objects: Some(Some(ObjectSpec::default())),
            ..Change::default()
        };
        let record = search(&["a", "b"]).changed(&change).unwrap().record();
        assert_eq!(
            serde_json::to_value(&record).unwrap(),
            serde_json::json!({
                "templates": [{ "name": "b", "w": 11, "h": 7 }, { "name": "c", "w": 8, "h": 7 }],
                "min_score": 0.5, "max_matches": 1, "max_overlap": 0.3, "roi": "1,2,30,40", "threshold": "mean:31:5",
                "objects": { "colour": "white", "connect": "8" },
            })
        );
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_reason() {
        let (some, none) = (search(&["a", "b"]), search(&[]));
        let refused = |search: &Search, change: Change| search.changed(&change).unwrap_err().to_string();
        let remove = |name: &str| Change::removing(name);
        assert_eq!(
            refused(&some, remove("c")),
            "cannot remove template \"c\": no template is named \"c\": there are \"a\", \"b\""
        );
        assert!(refused(&none, remove("c")).ends_with("there is none"));
        for change in [
            Change { min_score: Some(1.5), ..Change::default() },
            Change { min_score: Some(f64::NAN), ..Change::default() },
            Change { max_matches: Some(0), ..Change::default() },
            Change { max_overlap: Some(-0.1), ..Change::default() },
        ] {
            assert!(matches!(some.changed(&change), Err(Error::Value { .. })), "{change}");
        }
        let many = Change {
            scales: Some("0.01..100/1.001".parse().unwrap()),
            angles: Some("-180..180/0.01".parse().unwrap()),
            ..Change::default()
        };
        assert!(some.changed(&many).is_err() && none.changed(&many).is_ok());
    }

    #[test]
    fn a_change_of_limits_makes_no_bank_anew_and_one_of_the_region_leaves_the_way_open() {
        let before = search(&["a"]);
        let sought = |search: &Search| Arc::as_ptr(search.sought.as_ref().unwrap());
        before.sought().unwrap().take(SearchMethod::Pyramid, false);
        let limits = before.changed(&Change { min_score: Some(0.5), ..Change::default() }).unwrap();
        assert_eq!(sought(&limits), sought(&before));
        let roi = before.changed(&Change { roi: Some(Some(Rect::new(1, 2, 20, 20))), ..Change::default() });
        let roi = roi.unwrap();
        assert_eq!(roi.sought().unwrap().taken(), None);
        assert!(roi.sought().unwrap().bank.get().is_some());
    }

    #[test]
    fn what_does_not_fit_is_cut_off_and_nothing_is_searched_where_nothing_fits() {
        let whole = search(&["a"]);
        let with = |roi: &str| Search { roi: Some(roi.parse().unwrap()), ..whole.clone() };
        assert!(whole.check(FRAME).is_ok() && with("50,40,14,8").check(FRAME).is_ok());
        let outside = with("50,30,20,20");
        assert!(matches!(outside.check(FRAME), Err(Error::Outside { .. })));
        assert_eq!(outside.cut_to(FRAME).roi, Some(Rect::new(50, 30, 14, 18)));
        let small = with("50,40,8,8");
        assert!(matches!(small.check(FRAME), Err(Error::NothingFits { .. })));
        for nowhere in [small.cut_to(FRAME), with("99,0,20,20").cut_to(FRAME), whole.cut_to(Size::new(8, 8))]
        {
            assert!(nowhere.is_idle());
        }
    }
}
