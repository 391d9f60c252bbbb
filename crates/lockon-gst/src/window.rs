//! The window of an output: mouse and keys in it, and its title.
//!
//! GStreamer's video outputs report keys and the mouse as navigation events, which travel upstream; elements
//! that scale the picture convert places in the window to places in the picture. They report a closed window
//! as an error, which [`launch`] sorts out.

use std::sync::{Arc, Mutex};

use gst::prelude::*;

use super::launch;
use lockon_core::control::Control;
use lockon_core::frame::{Rect, Size};
use lockon_core::locks::lock;
use lockon_core::results::{FrameRecord, Track};

/// An action of the user in a window. Places are in pixels of the shown frames, and may lie outside of them.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Action {
    /// A key went down, or is held and repeats: its name in X11, such as `q`, `Escape`, `Left`.
    Key(String),
    /// A key was released.
    KeyUp(String),
    /// The left button of the mouse went down.
    Press(f64, f64),
    /// The mouse moved.
    Move(f64, f64),
    /// The left button was released.
    Release(f64, f64),
}

impl Action {
    /// Returns the action of a navigation event, if it is one of these.
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

/// Calls `hear` with each action in the window where the pipeline behind `appsrc` ends. It is called on a
/// thread of GStreamer's, which must not wait.
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
                // It was handled: the output need not report it on the bus too.
                gst::PadProbeReturn::Handled
            }
            None => gst::PadProbeReturn::Ok,
        }
    });
}

/// Frames that a run keeps for boxes dragged in a window: more than lie between the shown frame and the
/// searched one.
pub const KEPT: usize = 16;

/// A box with shorter sides, in pixels, was a click.
const LEAST_SIDE: f64 = 4.0;

/// Controls a run from its window.
///
/// Keys are those of video players: `q` and Escape end the run, space pauses and resumes it, `.` steps by one
/// frame. A box that is dragged is followed, a track that is clicked is forgotten.
pub struct Steering {
    control: Control,
    /// The frame in the window: its record and its size.
    shown: Mutex<Option<(Arc<FrameRecord>, Size)>>,
    drag: Mutex<Option<Drag>>,
}

/// The mouse's path with its button down: first and last place.
#[derive(Debug, Clone, Copy)]
struct Drag {
    from: (f64, f64),
    to: (f64, f64),
}

impl Steering {
    /// Steers a run.
    pub fn new(control: Control) -> Self {
        Self { control, shown: Mutex::default(), drag: Mutex::default() }
    }

    /// Notes the frame in the window: its record and its size.
    pub fn show(&self, record: &Arc<FrameRecord>, size: Size) {
        *lock(&self.shown) = Some((record.clone(), size));
    }

    /// The box that is being dragged.
    pub fn dragged(&self) -> Option<Rect> {
        let Drag { from, to } = (*lock(&self.drag))?;
        let (_, size) = lock(&self.shown).clone()?;
        boxed(from, to, size)
    }

    /// Handles a navigation event of the mouse, with positions in pixels of the frame.
    pub fn hear_mouse(&self, event: &gst::StructureRef) {
        if let Some(action) = Action::of(event).filter(|action| !matches!(action, Action::Key(_))) {
            self.hear(&action);
        }
    }

    /// Carries out an action. It waits for nothing: the run reports what it cannot do.
    pub(super) fn hear(&self, action: &Action) {
        match *action {
            Action::Key(ref key) => match key.as_str() {
                "q" | "Q" | "Escape" => self.control.stop(),
                "space" => self.control.pause(!self.control.is_paused()),
                "period" | "KP_Decimal" => self.control.step(),
                _ => {}
            },
            Action::Press(x, y) => *lock(&self.drag) = Some(Drag { from: (x, y), to: (x, y) }),
            Action::Move(x, y) => {
                if let Some(drag) = &mut *lock(&self.drag) {
                    drag.to = (x, y);
                }
            }
            Action::Release(x, y) => {
                let Some(Drag { from, .. }) = lock(&self.drag).take() else { return };
                let Some((shown, size)) = lock(&self.shown).clone() else { return };
                let asked = match meant(from, (x, y), size, &shown.tracks) {
                    Some(Meant::Follow(rect)) => self.control.follow(rect, Some(shown.frame)),
                    Some(Meant::Forget(id)) => self.control.forget(id),
                    None => return,
                };
                if let Err(error) = asked {
                    tracing::warn!("{error}");
                }
            }
            Action::KeyUp(_) => {}
        }
    }
}

/// The request of the mouse.
#[derive(Debug, PartialEq)]
enum Meant {
    Follow(Rect),
    Forget(u32),
}

/// Returns the request where the button went down in one place and up in another, over a frame of that size
/// with these tracks: a box, cut off at the frame's borders, or the smallest track there.
fn meant(from: (f64, f64), to: (f64, f64), size: Size, tracks: &[Track]) -> Option<Meant> {
    if let Some(rect) = boxed(from, to, size) {
        return Some(Meant::Follow(rect));
    }
    let is_there = |track: &&Track| {
        (track.x..track.x + track.w).contains(&to.0) && (track.y..track.y + track.h).contains(&to.1)
    };
    let area = |track: &&Track| track.w * track.h;
    let clicked = tracks.iter().filter(is_there).min_by(|a, b| area(a).total_cmp(&area(b)))?;
    Some(Meant::Forget(clicked.id))
}

/// The box between two places, cut off at the borders of a frame of that size; none if it is too small to be
/// more than a click.
fn boxed(from: (f64, f64), to: (f64, f64), size: Size) -> Option<Rect> {
    let side = |a: f64, b: f64, length: usize| {
        let inside = |at: f64| at.clamp(0.0, length as f64);
        (inside(a.min(b)), inside(a.max(b)))
    };
    let ((left, right), (top, bottom)) = (side(from.0, to.0, size.width), side(from.1, to.1, size.height));
    let whole = |at: f64| at.round() as usize;
    let (x, y) = (whole(left), whole(top));
    (right - left >= LEAST_SIDE && bottom - top >= LEAST_SIDE)
        .then(|| Rect::new(x, y, whole(right) - x, whole(bottom) - y))
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

/// True unless an automatic output of a pipeline that was started has found none that works: then it drops
/// the frames, and reports nothing.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_is_dragged_while_the_button_is_down() {
        let steering = Steering::new(Control::new());
        steering.show(&Arc::default(), Size::new(100, 60));
        steering.hear(&Action::Move(40.0, 40.0));
        assert_eq!(steering.dragged(), None);
        steering.hear(&Action::Press(10.0, 20.0));
        assert_eq!(steering.dragged(), None);
        steering.hear(&Action::Move(40.0, 90.0));
        assert_eq!(steering.dragged(), Some(Rect::new(10, 20, 30, 40)));
        steering.hear(&Action::Release(40.0, 90.0));
        assert_eq!(steering.dragged(), None);
    }

    #[test]
    fn a_drag_is_a_box_in_the_frame_and_a_click_the_smallest_track_there() {
        let size = Size::new(100, 60);
        let track = |id, x, y, w, h| Track { id, x, y, w, h, ..Track::default() };
        let tracks = [track(1, 0.0, 0.0, 90.0, 50.0), track(2, 20.0, 20.0, 10.0, 10.0)];
        let meant = |from, to| super::meant(from, to, size, &tracks);
        let follow = |x, y, w, h| Some(Meant::Follow(Rect::new(x, y, w, h)));
        assert_eq!(meant((10.2, 5.0), (30.0, 25.6)), follow(10, 5, 20, 21));
        assert_eq!(meant((30.0, 25.6), (10.2, 5.0)), follow(10, 5, 20, 21));
        assert_eq!(meant((-20.0, 50.0), (30.0, 90.0)), follow(0, 50, 30, 10));
        assert_eq!(meant((25.0, 25.0), (26.0, 25.0)), Some(Meant::Forget(2)));
        assert_eq!(meant((5.0, 5.0), (5.0, 5.0)), Some(Meant::Forget(1)));
        // Beside all of them, and a line.
        assert_eq!(meant((95.0, 55.0), (95.0, 55.0)), None);
        assert_eq!(meant((92.0, 1.0), (93.0, 40.0)), None);
        // Beside the frame there is nothing to follow.
        assert_eq!(meant((120.0, 70.0), (160.0, 90.0)), None);
    }
}
