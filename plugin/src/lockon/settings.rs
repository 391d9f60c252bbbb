//! The values of the properties, and their meaning for lockon.
//!
//! Most properties are fields of lockon's [`Request`], of the same name: it declares their names, values and
//! effects. `template`, a text, has `templates` beside it, an array; `view`, `post-messages`, `navigation`
//! and `qos` are the element's own.

use std::collections::BTreeMap;
use std::ffi::OsString;

use gst::glib;
use gst::prelude::*;
use lockon_core::change::Change;
use lockon_core::config::OnDeviceLoss;
use lockon_core::control::Control;
use lockon_core::error::Result;
use lockon_core::orders::Repeated;
use lockon_core::output;
use lockon_gst::detections::DetectionFilter;
use lockon_run::backend::{self, Options};
use lockon_run::request::{Field, InElement, Number, Request, Shape};
use lockon_run::setup::{self, Setup};

use super::choices::{self, PostMessages, View};

/// The properties' set values. Texts are checked when they are used.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Settings {
    /// Values of the request's fields, by their names.
    texts: BTreeMap<&'static str, Vec<OsString>>,
    pub(super) view: View,
    pub(super) posts: PostMessages,
    pub(super) has_qos: bool,
    pub(super) navigates: bool,
    /// Frames in flight on the device, 0 for the usual number. A number, since it is read with each frame.
    depth: u32,
    /// Ends the stream after so many frames, 0 for never; a number for the same reason.
    pub(super) max_frames: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            texts: BTreeMap::new(),
            view: View::default(),
            posts: PostMessages::default(),
            has_qos: true,
            navigates: false,
            depth: 0,
            max_frames: 0,
        }
    }
}

/// The device: settings that stay the same until the element is set to READY.
#[derive(Debug, Clone)]
pub(super) struct Device {
    pub(super) options: Options,
    pub(super) on_loss: OnDeviceLoss,
    /// Results files.
    pub(super) results: Vec<String>,
    /// The requests made during an earlier run.
    pub(super) orders: Vec<Repeated>,
    /// Selects the detections of upstream's detector to follow.
    pub(super) detections: Option<DetectionFilter>,
}

const OF_TYPE: &str = "GObject has checked the type";

impl Settings {
    /// Sets a property. The value is of its type: `GObject` has checked that. False if it had the same value.
    pub(super) fn set(&mut self, property: &str, value: &glib::Value) -> bool {
        let before = self.clone();
        let switch = || value.get::<bool>().expect(OF_TYPE);
        match property {
            "templates" => {
                let array = value.get::<gst::Array>().expect(OF_TYPE);
                let texts = array.iter().filter_map(|value| value.get::<String>().ok());
                self.texts.insert("template", texts.map(OsString::from).collect());
            }
            "view" => self.view = value.get().expect(OF_TYPE),
            "post-messages" => self.posts = value.get().expect(OF_TYPE),
            "qos" => self.has_qos = switch(),
            "navigation" => self.navigates = switch(),
            name => {
                let field = Field::named(name).expect("a property is the element's own or a field");
                self.texts.insert(field.name, texts_of(field, value));
                match name {
                    "depth" => self.depth = value.get().expect(OF_TYPE),
                    "max-frames" => self.max_frames = value.get().expect(OF_TYPE),
                    _ => {}
                }
            }
        }
        *self != before
    }

    /// Frames in flight on the device, of a source that is live or not.
    pub(super) fn depth(&self, is_live: bool) -> usize {
        if self.depth == 0 { backend::usual_depth(is_live) } else { self.depth as usize }
    }

    /// A property's value.
    pub(super) fn get(&self, property: &str) -> glib::Value {
        match property {
            "templates" => {
                let texts = self.texts("template").iter().map(|text| text.to_string_lossy().into_owned());
                gst::Array::new(texts).to_value()
            }
            "view" => self.view.to_value(),
            "post-messages" => self.posts.to_value(),
            "qos" => self.has_qos.to_value(),
            "navigation" => self.navigates.to_value(),
            name => {
                let field = Field::named(name).expect("a property is the element's own or a field");
                let default = field.texts(&Request::default());
                value_of(field, self.texts.get(name).filter(|texts| !texts.is_empty()).unwrap_or(&default))
            }
        }
    }

    /// Gives a property, and no other, the value that it had in `before`.
    pub(super) fn restore(&mut self, property: &str, before: &Self) {
        // As one text a list of names with a `;` in them would fall apart.
        let property = if property == "template" { "templates" } else { property };
        self.set(property, &before.get(property));
    }

    /// True if a property has the value that it has in `other`.
    pub(super) fn has_same(&self, property: &str, other: &Self) -> bool {
        let name = if property == "templates" { "template" } else { property };
        self.texts(name) == other.texts(name)
    }

    /// The properties of the search whose values are not those of `before`.
    pub(super) fn changed_since(&self, before: &Self) -> Vec<&'static str> {
        let names = Field::of_element().map(|field| field.name);
        names.filter(|name| Self::is_of_the_search(name) && !self.has_same(name, before)).collect()
    }

    /// Removes the template of that name from the property; true if it was there.
    pub(super) fn forget_template(&mut self, name: &str) -> bool {
        let Some(texts) = self.texts.get_mut("template") else { return false };
        let before = texts.len();
        texts.retain(|text| setup::name_and_path(&text.to_string_lossy()).0 != name);
        texts.len() < before
    }

    /// True for properties of the search: they can be set while frames pass.
    pub(super) fn is_of_the_search(property: &str) -> bool {
        property == "templates"
            || Field::named(property).is_some_and(|field| field.spec.element == InElement::Playing)
    }

    /// The properties whose values a control binding can set.
    pub(super) fn controllable() -> impl Iterator<Item = &'static str> {
        Field::of_element().filter(|field| is_controllable(field)).map(|field| field.name)
    }

    /// True for a property that a change consists of.
    pub(super) fn is_of_change(property: &str, change: &Change) -> bool {
        match property {
            "template" => !(change.add.is_empty() && change.remove.is_empty()),
            "scales" => change.scales.is_some(),
            "angles" => change.angles.is_some(),
            "search" => change.search.is_some(),
            "roi" => change.roi.is_some(),
            "threshold" => change.threshold.is_some(),
            "min-score" => change.min_score.is_some(),
            "max-matches" => change.max_matches.is_some(),
            "max-overlap" => change.max_overlap.is_some(),
            name if Field::named(name).is_some_and(|field| field.spec.of_masks) => change.objects.is_some(),
            _ => false,
        }
    }

    /// The property's name, if a change counts from the next start on only.
    pub(super) fn of_the_start(property: &str) -> Option<&'static str> {
        // The end of a stream (`max-frames`) is checked with each frame.
        let is_of_the_start =
            |field: &&Field| field.spec.element == InElement::Ready && field.name != "max-frames";
        Field::named(property).filter(is_of_the_start).map(|field| field.name)
    }

    fn texts(&self, name: &str) -> &[OsString] {
        self.texts.get(name).map_or(&[], Vec::as_slice)
    }

    /// True if the thresholded frame is drawn, where there is one.
    pub(super) fn wants_mask(&self) -> bool {
        self.view.has_mask()
    }

    /// True if there is anything to search, follow or threshold, or will be as soon as a user drags a box.
    pub(super) fn has_work(&self) -> bool {
        self.navigates
            || ["template", "track", "threshold", "control", "track-detections"]
                .iter()
                .any(|name| !self.texts(name).is_empty())
    }

    /// Returns the request of the properties.
    pub(super) fn request(&self) -> Result<Request> {
        let mut request = Request::default();
        for (name, texts) in self.texts.iter().filter(|(_, texts)| !texts.is_empty()) {
            let field = Field::named(name).expect("it was set by its name");
            field.give(&mut request, texts, &field.join(texts))?;
        }
        Ok(request)
    }

    /// Reads the templates.
    pub(super) fn setup(&self) -> Result<Setup> {
        let request = self.request()?;
        request.setup(setup::load_templates(&request.template)?, &Control::new())
    }

    pub(super) fn device(&self) -> Result<Device> {
        let request = self.request()?;
        output::check(&request.results)?;
        Ok(Device {
            options: request.options(&Control::new()),
            on_loss: request.on_device_loss,
            orders: request.orders()?,
            detections: request.detections(),
            results: request.results,
        })
    }
}

/// The texts of a set value. Empty text sets nothing, nor does 0 if 0 is not a value.
fn texts_of(field: &Field, value: &glib::Value) -> Vec<OsString> {
    let number = |text: String| match (field.shape, text.as_str()) {
        (Shape::Maybe, "0") => Vec::new(),
        _ => vec![text.into()],
    };
    match (field.shape, field.number) {
        (Shape::Switch, _) if value.get::<bool>().expect(OF_TYPE) => vec!["true".into()],
        (Shape::Switch, _) => Vec::new(),
        (_, Number::Real) => number(value.get::<f64>().expect(OF_TYPE).to_string()),
        (_, Number::Whole) => number(value.get::<u32>().expect(OF_TYPE).to_string()),
        (_, Number::Long) => number(value.get::<u64>().expect(OF_TYPE).to_string()),
        (_, Number::No) => {
            let text = || value.get::<Option<&str>>().expect(OF_TYPE);
            field.split(choices::word(value).or_else(text).unwrap_or_default())
        }
    }
}

fn value_of(field: &Field, texts: &[OsString]) -> glib::Value {
    let text = field.join(texts);
    let invariant = "a number's text is a number";
    let number = || if text.is_empty() { "0" } else { &text };
    match (field.shape, field.number) {
        (Shape::Switch, _) => (text == "true").to_value(),
        (_, Number::Real) => number().parse::<f64>().expect(invariant).to_value(),
        (_, Number::Whole) => number().parse::<u32>().expect(invariant).to_value(),
        (_, Number::Long) => number().parse::<u64>().expect(invariant).to_value(),
        (_, Number::No) => choices::of_field(field.name)
            .and_then(|choices| choices::value(choices, &text))
            .unwrap_or_else(|| Some(text).filter(|text| !text.is_empty()).to_value()),
    }
}

/// The element's properties.
pub(super) fn properties() -> Vec<glib::ParamSpec> {
    let mut properties: Vec<_> = Field::of_element().map(property).collect();
    properties.extend([
        gst::ParamSpecArray::builder("templates")
            .nick("Templates")
            .blurb("As template, but an array, for names that contain a ;")
            .element_spec(&glib::ParamSpecString::builder("template").build())
            .mutable_playing()
            .build(),
        glib::ParamSpecEnum::builder::<View>("view")
            .nick("View")
            .blurb("The picture of outgoing frames")
            .mutable_playing()
            .build(),
        glib::ParamSpecEnum::builder::<PostMessages>("post-messages")
            .nick("Post messages")
            .blurb("For which frames an element message with the results is posted")
            .mutable_playing()
            .build(),
        glib::ParamSpecBoolean::builder("navigation")
            .nick("Navigation")
            .blurb(
                "Follow boxes that are dragged in the window downstream, and forget tracks that are clicked",
            )
            .mutable_playing()
            .build(),
        glib::ParamSpecBoolean::builder("qos")
            .nick("QoS")
            .blurb("Drop frames that a sink says are late, before they are searched")
            .default_value(true)
            .mutable_playing()
            .build(),
    ]);
    properties
}

/// A field as a property: numbers, switches and choices are of `GObject`'s types, everything else is text.
///
/// Numbers that can be set while frames pass can be controlled, too: each frame is searched with the values
/// that are due at its time.
fn property(field: &'static Field) -> glib::ParamSpec {
    let mut nick = field.name.replace('-', " ");
    nick[..1].make_ascii_uppercase();
    let what = match field.shape {
        Shape::List => "; several are separated by semicolons",
        Shape::Maybe if field.number != Number::No => "; 0 if not given",
        _ => "",
    };
    let of_value =
        if field.spec.value.is_empty() { String::new() } else { format!("{}: ", field.spec.value) };
    let blurb = format!("{of_value}{}{what}", field.help.replace("; may be given several times", ""));
    let default = field.texts(&Request::default());
    let default = field.join(&default);
    let (least, most) = field.spec.range.unwrap_or((0.0, f64::INFINITY));
    let least = if field.shape == Shape::Maybe { 0.0 } else { least };
    let mut flags = glib::ParamFlags::READWRITE;
    // A field that is not for PLAYING is for READY.
    flags |= match field.spec.element {
        InElement::Playing => gst::PARAM_FLAG_MUTABLE_PLAYING,
        InElement::Ready | InElement::No => gst::PARAM_FLAG_MUTABLE_READY,
    };
    if is_controllable(field) {
        flags |= gst::PARAM_FLAG_CONTROLLABLE;
    }
    match (field.shape, field.number) {
        (Shape::Switch, _) => {
            glib::ParamSpecBoolean::builder(field.name).nick(&nick).blurb(&blurb).flags(flags).build()
        }
        (_, Number::Real) => glib::ParamSpecDouble::builder(field.name)
            .nick(&nick)
            .blurb(&blurb)
            .minimum(least)
            .maximum(most)
            .default_value(default.parse().unwrap_or_default())
            .flags(flags)
            .build(),
        (_, Number::Whole) => glib::ParamSpecUInt::builder(field.name)
            .nick(&nick)
            .blurb(&blurb)
            .minimum(least as u32)
            .maximum(most as u32)
            .default_value(default.parse().unwrap_or_default())
            .flags(flags)
            .build(),
        (_, Number::Long) => glib::ParamSpecUInt64::builder(field.name)
            .nick(&nick)
            .blurb(&blurb)
            .minimum(least as u64)
            .maximum(most as u64)
            .default_value(default.parse().unwrap_or_default())
            .flags(flags)
            .build(),
        (_, Number::No) => choices::property(field.name, &nick, &blurb, flags).unwrap_or_else(|| {
            glib::ParamSpecString::builder(field.name)
                .nick(&nick)
                .blurb(&blurb)
                .default_value(Some(default.as_str()).filter(|text| !text.is_empty()))
                .flags(flags)
                .build()
        }),
    }
}

/// True for numbers that can be set while frames pass.
fn is_controllable(field: &Field) -> bool {
    field.spec.element == InElement::Playing && field.number != Number::No
}
