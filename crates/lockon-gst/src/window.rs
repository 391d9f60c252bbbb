//! The window of an output: what is done in it, and what it is called.
//!
//! GStreamer's video outputs tell keys and the mouse as navigation events, which travel upstream; elements
//! that scale the picture on the way turn places in the window into places in it. That a window was closed
//! they tell as an error, which [`launch`](super::launch) sorts out.

use gst::prelude::*;

use super::launch;
use lockon_core::control::Control;

/// What somebody did in a window. Places are in pixels of the frames that it shows, and may lie beside them.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Action {
    /// A key went down, or is held and repeats: its name in X11, such as `q`, `Escape`, `Left`.
    Key(String),
    /// A key was let go.
    KeyUp(String),
    /// The left button of the mouse went down.
    Press(f64, f64),
    /// The mouse moved.
    Move(f64, f64),
    /// The left button was let go.
    Release(f64, f64),
}

impl Action {
    /// What a navigation event tells, if it is one of these.
    fn of(event: &gst::StructureRef) -> Option<Self> {
        let key = || event.get::<String>("key").ok();
        let place = || Some((event.get::<f64>("pointer_x").ok()?, event.get::<f64>("pointer_y").ok()?));
        let is_left = || event.get::<i32>("button") == Ok(1);
        match event.get::<&str>("event").ok()? {
            "key-press" => key().map(Self::Key),
            "key-release" => key().map(Self::KeyUp),
            "mouse-move" => place().map(|(x, y)| Self::Move(x, y)),
            "mouse-button-press" if is_left() => place().map(|(x, y)| Self::Press(x, y)),
            "mouse-button-release" if is_left() => place().map(|(x, y)| Self::Release(x, y)),
            _ => None,
        }
    }
}

/// Tells `hear` what is done in the window where the pipeline behind `appsrc` ends. It is called on a thread
/// of GStreamer's, which must not wait.
pub(super) fn watch(appsrc: &gst_app::AppSrc, hear: impl Fn(Action) + Send + Sync + 'static) {
    let Some(pad) = appsrc.static_pad("src") else { return };
    pad.add_probe(gst::PadProbeType::EVENT_UPSTREAM, move |pad, info| {
        let action = info
            .event()
            .filter(|event| event.type_() == gst::EventType::Navigation)
            .and_then(|event| Action::of(event.structure()?));
        match action {
            Some(action) => {
                launch::guarded(pad, (), || hear(action));
                // It has arrived: the output need not tell it on the bus too.
                gst::PadProbeReturn::Handled
            }
            None => gst::PadProbeReturn::Ok,
        }
    });
}

/// Steers a run by keys, as video players do: `q` and Escape end it, space pauses it and lets it go on, `.`
/// goes on by one frame.
pub(super) fn steer(control: &Control, action: &Action) {
    let Action::Key(key) = action else { return };
    match key.as_str() {
        "q" | "Q" | "Escape" => control.stop(),
        "space" => control.pause(!control.is_paused()),
        "period" | "KP_Decimal" => control.step(),
        _ => {}
    }
}

/// Names the window where the pipeline behind `appsrc` ends: a video output takes its name from the title of
/// what it shows.
pub(super) fn set_title(appsrc: &gst_app::AppSrc, title: &str) {
    let Some(pad) = appsrc.static_pad("src") else { return };
    let title = title.to_owned();
    pad.add_probe(gst::PadProbeType::BUFFER, move |pad, _| {
        launch::guarded(pad, gst::PadProbeReturn::Remove, || {
            let mut tags = gst::TagList::new();
            tags.make_mut().add::<gst::tags::Title>(&title.as_str(), gst::TagMergeMode::Replace);
            // Not earlier, as tags come after the segment. A pipeline that does not take it shows another
            // title.
            pad.push_event(gst::event::Tag::new(tags));
            gst::PadProbeReturn::Remove
        })
    });
}

/// Sees to it that an automatic output tries nothing that ends the process, as the output `dfbvideosink` of
/// Debian 12 does where it finds no screen.
pub(super) fn avoid_directfb() {
    if let Some(factory) = gst::ElementFactory::find("dfbvideosink") {
        factory.set_rank(gst::Rank::NONE);
    }
}

/// True unless an automatic output of a pipeline that was started has found none that works: then it shows
/// frames to nobody, and says nothing of it.
pub(super) fn is_shown(pipeline: &gst::Pipeline) -> bool {
    let factory = |element: &gst::Object| element.downcast_ref::<gst::Element>()?.factory();
    let is_fake = |element: &gst::Element| {
        let is = |object: &gst::Object, names: &[&str]| {
            factory(object).is_some_and(|factory| names.contains(&factory.name().as_str()))
        };
        is(element.upcast_ref(), &["fakesink", "fakevideosink"])
            && element.parent().is_some_and(|parent| is(&parent, &["autovideosink"]))
    };
    !pipeline.iterate_recurse().into_iter().flatten().any(|element| is_fake(&element))
}

/// Lets the video outputs of a pipeline show every frame, however late it is.
///
/// By default they drop what is 20 ms late, and post a warning each second in which all of them were. What is
/// shown here is stamped with the time at which it is drawn, and on a busy machine it is converted and shown
/// later than that.
pub(super) fn show_late_frames(pipeline: &gst::Pipeline) {
    let show = |element: &gst::Element| {
        if element.has_property_with_type("max-lateness", i64::static_type()) {
            element.set_property("max-lateness", -1_i64);
            element.set_property("qos", false);
        }
    };
    pipeline.iterate_recurse().into_iter().flatten().for_each(|element| show(&element));
    // An automatic output finds the one that it uses later.
    pipeline.connect_deep_element_added(move |_, _, element| show(element));
}
