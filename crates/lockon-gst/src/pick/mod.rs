//! A window for drawing boxes on the frames of a video.
//!
//! It shows one frame until a key or the bar below it moves to another one; whenever the mouse or a key
//! changes something, the picture is drawn again and shown.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, select};
use gst::prelude::*;

use super::launch::{Milestone, Running};
use super::sink::{self, Painter, Timestamps};
use super::window::{self, Action};
use lockon_core::config::Moment;
use lockon_core::control::Control;
use lockon_core::error::{Error, Result};
use lockon_core::frame::{Frame, Rect, VideoFormat};
use lockon_core::overlay::{self, Strip, StripLayout};

mod film;
mod selection;

pub use film::{Film, Opening, Reach};

use film::Step;
use selection::{PickState, Selection};

/// Maximum waiting actions of the window.
const WAITING: usize = 1024;
/// How often the wait for the user is interrupted to check whether the program must end.
const POLL: Duration = Duration::from_millis(50);
/// Time limit of the first picture.
const FIRST_PICTURE: Duration = Duration::from_secs(10);
/// Nominal time between two pictures: they are shown at once.
const STEP_NS: u64 = 1_000_000;

/// The keys for boxes.
pub const KEYS: &str =
    "drag a box; arrows move it, Shift+arrows resize it; Enter takes it, A adds another, Esc cancels";

/// The keys that move to another frame.
pub const SCRUB_KEYS: &str = "before that, find the frame: Left and Right move by a frame, with Shift by 1 s; Page Up and Page \
     Down by 10 s, or by 10 % of short videos; Home, End and the bar below the picture; , and . move by a frame where there is a box";

/// The keys that move to another frame of a source that cannot be seeked.
pub const FORWARD_KEYS: &str =
    "this input cannot be seeked: Right moves to the next frame, Left to frames shown before";

/// A drawn box, and its frame.
pub struct Picked {
    /// The box.
    pub rect: Rect,
    /// The frame.
    pub frame: Frame,
    /// The frame's number, or its time if its number is not known.
    pub from: Moment,
}

/// A window that shows a frame, for drawing boxes on it.
pub struct Picker {
    /// Dropped before the pipeline that sends the actions is stopped.
    actions: Receiver<Action>,
    running: Running,
    appsrc: gst_app::AppSrc,
    painter: Painter,
    layout: StripLayout,
    film: Film,
    selection: Selection,
    /// The accepted boxes, each with its frame.
    picked: Vec<Picked>,
    /// True while the mouse is pressed on the strip.
    is_on_bar: bool,
    /// The number of shown pictures.
    shown: u64,
    /// The user has closed the window.
    is_closed: bool,
}

impl Picker {
    /// Opens a window named `title` and shows the frame of the film in it. If the program ends meanwhile, or
    /// the window is closed, returns a picker without boxes.
    ///
    /// # Errors
    /// `Output` if there is no screen, `MissingElement`, `Pipeline` or `Resource` if GStreamer cannot show
    /// it.
    pub fn open(film: Film, title: &str, control: &Control) -> Result<Self> {
        sink::check_screen("")?;
        let launch = sink::display_launch(true);
        let running = Running::new(launch.build()?);
        let pipeline = running.pipeline();
        let appsrc = launch.element(pipeline, "results")?.downcast::<gst_app::AppSrc>();
        let appsrc = appsrc.map_err(|_| launch.fault("`results` is not an appsrc"))?;
        let (painter, layout) = painter_for(&film)?;
        sink::prepare(&appsrc, &painter.info, true);
        let (sender, actions) = crossbeam_channel::bounded(WAITING);
        window::watch(&appsrc, move |action| {
            // A user does not make so many while a picture is drawn; after a lost action the mouse's next
            // move has the new place.
            let _ = sender.try_send(action);
        });
        window::set_title(&appsrc, title);
        let (arrived, has_arrived) = crossbeam_channel::bounded(1);
        for end in pipeline.iterate_sinks().into_iter().flatten() {
            let arrived = arrived.clone();
            if let Some(pad) = end.sink_pads().into_iter().next() {
                pad.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
                    let _ = arrived.try_send(());
                    gst::PadProbeReturn::Remove
                });
            }
        }
        running.set_state(gst::State::Playing)?;
        if !window::is_shown(running.pipeline()) {
            return Err(fault(sink::NO_WINDOW.to_owned()));
        }
        let selection = Selection::new(film.shown().format.size);
        let (picked, is_on_bar, shown, is_closed) = (Vec::new(), false, 0, false);
        let mut picker = Self {
            actions,
            running,
            appsrc,
            painter,
            layout,
            film,
            selection,
            picked,
            is_on_bar,
            shown,
            is_closed,
        };
        picker.show()?;
        picker.await_picture(&has_arrived, control)?;
        Ok(picker)
    }

    /// Waits until the picture is shown, or the window is closed.
    fn await_picture(&mut self, has_arrived: &Receiver<()>, control: &Control) -> Result<()> {
        let deadline = Instant::now() + FIRST_PICTURE;
        while has_arrived.is_empty() && !self.is_closed && !control.is_stopped() {
            if Instant::now() > deadline {
                return Err(fault(format!("no window in {} s", FIRST_PICTURE.as_secs())));
            }
            self.is_closed = self.running.wait(POLL)? == Some(Milestone::Closed);
        }
        Ok(())
    }

    /// Returns the boxes that the user draws, in the order in which they were accepted, at least one; `None`
    /// if the user cancelled or closed the window, or if the program must end.
    ///
    /// # Errors
    /// The failure of the window.
    pub fn pick(mut self, control: &Control) -> Result<Option<Vec<Picked>>> {
        while !control.is_stopped() && !self.is_closed {
            select! {
                recv(self.actions) -> action => {
                    let actions: Vec<_> = action.into_iter().chain(self.actions.try_iter()).collect();
                    match self.apply(&actions, control)? {
                        PickState::Same => {}
                        PickState::Done => return Ok(Some(self.picked)),
                        PickState::Cancelled => return Ok(None),
                    }
                    self.show()?;
                }
                recv(self.running.news()) -> news => if let Ok(news) = news
                    && self.running.attend(news)? == Some(Milestone::Closed)
                {
                    return Ok(None);
                },
                default(POLL) => {}
            }
        }
        Ok(None)
    }

    /// Carries out the user's actions in the window. Successive moves become one: held keys repeat faster
    /// than a video can be decoded.
    fn apply(&mut self, actions: &[Action], control: &Control) -> Result<PickState> {
        let mut pending = None;
        for action in actions {
            if let Some(step) = self.step_of(action) {
                let (before, after) = merged(pending, step);
                self.go(before, control)?;
                pending = Some(after);
                continue;
            }
            if matches!(action, Action::Key(_) | Action::Press(..) | Action::Release(..)) {
                self.go(pending.take(), control)?;
            }
            if self.is_bars(action) {
                continue;
            }
            let state = self.selection.apply(action);
            self.note_picked();
            if state != PickState::Same {
                return Ok(state);
            }
        }
        self.go(pending, control)?;
        Ok(PickState::Same)
    }

    /// The move to another frame by a key or by the mouse on the bar.
    fn step_of(&mut self, action: &Action) -> Option<Step> {
        match *action {
            Action::Press(x, y) if y >= self.selection.frame.height as f64 => {
                self.is_on_bar = true;
                self.layout.share(x).map(Step::Share)
            }
            Action::Move(x, _) if self.is_on_bar => self.layout.share(x).map(Step::Share),
            ref action => self.selection.step_of(action),
        }
    }

    /// True for events of the mouse after it was pressed on the strip.
    fn is_bars(&mut self, action: &Action) -> bool {
        match action {
            Action::Press(..) | Action::Move(..) => self.is_on_bar,
            Action::Release(..) => std::mem::take(&mut self.is_on_bar),
            Action::Key(_) | Action::KeyUp(_) => false,
        }
    }

    /// Notes the frame of each accepted box, and removes those that were withdrawn.
    fn note_picked(&mut self) {
        self.picked.truncate(self.selection.kept.len());
        for rect in &self.selection.kept[self.picked.len()..] {
            let (frame, from) = (self.film.shown().clone(), self.film.moment());
            self.picked.push(Picked { rect: *rect, frame, from });
        }
    }

    /// Moves to another frame. A frame that cannot be reached gives a warning, and the window does not
    /// change.
    fn go(&mut self, step: Option<Step>, control: &Control) -> Result<()> {
        let Some(step) = step else { return Ok(()) };
        if let Err(error) = self.film.go(step, control) {
            if !control.is_stopped() {
                tracing::warn!("{error}");
            }
            return Ok(());
        }
        let format = &self.film.shown().format;
        self.selection.move_to(format.size);
        if !self.painter.is_for(format) {
            (self.painter, self.layout) = painter_for(&self.film)?;
            self.appsrc.set_caps(self.painter.info.to_caps().ok().as_ref());
        }
        Ok(())
    }

    /// Draws the frame with the selection, and shows it.
    fn show(&mut self) -> Result<()> {
        let times = Timestamps { pts: self.shown * STEP_NS, duration: STEP_NS };
        let Self { film, selection, layout, .. } = self;
        let (frame, labels) = (film.shown(), labels(film));
        // A frame that was decoded again is the same one; its number may be unknown now.
        let name = |frame: &Frame| frame.meta.pts_ns.ok_or(frame.meta.index);
        let here = self.picked.iter().enumerate().filter(|(_, picked)| name(&picked.frame) == name(frame));
        let kept: Vec<_> = here.map(|(index, picked)| (index + 1, picked.rect)).collect();
        let hints = hints(film, selection);
        let hints: Vec<_> = hints.iter().map(String::as_str).collect();
        let marks: Vec<_> = self.picked.iter().filter_map(|picked| place(film, &picked.frame)).collect();
        let strip = Strip { place: place(film, frame), marks: &marks, labels: &labels, hints: &hints };
        let painted = self.painter.paint_above_strip(
            frame,
            times,
            |canvas| overlay::draw_selection(canvas, &kept, selection.current),
            |canvas| overlay::draw_strip(canvas, layout, frame.format.size, &strip),
        );
        self.shown += 1;
        // Only a failed pipeline refuses it, and the pipeline reports the reason.
        let _ = self.appsrc.push_buffer(painted.map_err(fault)?);
        Ok(())
    }
}

/// A painter for the frame that is shown, above its strip.
fn painter_for(film: &Film) -> Result<(Painter, StripLayout)> {
    let format: &VideoFormat = &film.shown().format;
    let (labels, place) = (labels(film), place(film, film.shown()));
    let strip = Strip { place, labels: &labels, ..Strip::default() };
    let layout = StripLayout::new(format.size, &strip);
    let painter = Painter::with_strip(format, layout.size).map_err(|error| fault(error.to_string()))?;
    Ok((painter, layout))
}

/// Joins two successive moves. Returns the first separately if they cannot become one.
fn merged(before: Option<Step>, step: Step) -> (Option<Step>, Step) {
    match (before, step) {
        (Some(Step::Frames(a)), Step::Frames(b)) => (None, Step::Frames(a.saturating_add(b))),
        (Some(Step::Time(a)), Step::Time(b)) => (None, Step::Time(a.saturating_add(b))),
        (Some(Step::Pages(a)), Step::Pages(b)) => (None, Step::Pages(a.saturating_add(b))),
        // From anywhere.
        (_, Step::Share(_) | Step::Start | Step::End) => (None, step),
        (before, _) => (before, step),
    }
}

/// Returns the position of a frame in the video, from 0 to 1; `None` if it is not known.
fn place(film: &Film, frame: &Frame) -> Option<f64> {
    let length = film.length_ns()?;
    // The last frame begins a frame before the end.
    let last = length.saturating_sub(film.interval_ns()).max(1);
    Some((film.time_of(frame) as f64 / last as f64).min(1.0))
}

/// Returns the number or time of the frame that is shown, as labels of several lengths. The length of each
/// stays the same.
fn labels(film: &Film) -> [String; 3] {
    let frame = |digits: usize| match film.moment() {
        Moment::Frame(index) => format!("  frame {index:<digits$}"),
        Moment::Time(_) => " ".repeat("  frame ".len() + digits),
    };
    let Some(length) = film.length_ns() else {
        let text = frame(0).trim_start().to_owned();
        return [text.clone(), text.clone(), text];
    };
    let digits = (length / film.interval_ns().max(1)).max(1).ilog10() as usize + 1;
    let (end, now) = (clock(length, length), clock(film.shown_ns(), length));
    let times = format!("{now} / {end}");
    [format!("{times}{}", frame(digits)), times, now]
}

/// `1:02:03.480`, or `2:03.480` in videos that are shorter than an hour.
fn clock(ns: u64, length: u64) -> String {
    let (seconds, milliseconds) = (ns / 1_000_000_000, ns / 1_000_000 % 1000);
    let (minutes, second) = (seconds / 60, seconds % 60);
    let digits = (length / 60_000_000_000).max(1).ilog10() as usize + 1;
    if length < 3_600_000_000_000 {
        return format!("{minutes:>digits$}:{second:02}.{milliseconds:03}");
    }
    format!("{}:{:02}:{second:02}.{milliseconds:03}", minutes / 60, minutes % 60)
}

/// Returns the actions that are possible now, the most important first.
fn hints(film: &Film, selection: &Selection) -> Vec<String> {
    let page = if film.page_ns() < film::PAGE_NS { "10 %" } else { "10 s" };
    let moves = match film.reach() {
        Reach::Nothing => String::new(),
        Reach::Forward => "Right: next frame".to_owned(),
        Reach::Recount | Reach::Seek => {
            format!("Left/Right: frame, Shift: 1 s, PgUp/PgDn: {page}, Home/End")
        }
    };
    let hints = match (selection.current, selection.kept.len()) {
        (Some(_), _) => {
            let steps = if film.reach() == Reach::Nothing { "" } else { ", and . : frame" };
            let hints =
                ["Enter: done", "arrows: move, Shift: resize", "A: another box", steps, "Esc: cancel"];
            hints.map(str::to_owned).to_vec()
        }
        (None, 0) => vec!["drag a box".to_owned(), moves, "Esc: cancel".to_owned()],
        (None, 1) => vec!["Enter: done (1 box)".to_owned(), "drag another".to_owned(), moves],
        (None, count) => vec![format!("Enter: done ({count} boxes)"), "drag another".to_owned(), moves],
    };
    hints.into_iter().filter(|hint| !hint.is_empty()).collect()
}

fn fault(reason: String) -> Error {
    Error::Output { name: "display".to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::Launch;
    use lockon_core::frame::Size;

    const FRAME: Size = Size::new(640, 360);

    /// A picker whose picture is never shown.
    fn unseen() -> Picker {
        let launch = Launch::new("test", "appsrc name=results ! fakesink name=screen");
        let running = Running::new(launch.build().unwrap());
        let appsrc = running.pipeline().by_name("results").unwrap().downcast().unwrap();
        let format = sink::tests::format("GRAY8", FRAME.width, FRAME.height, (25, 1));
        let film = Film::of(sink::tests::frame(0, &format, None));
        let (painter, layout) = painter_for(&film).unwrap();
        Picker {
            actions: crossbeam_channel::never(),
            running,
            appsrc,
            painter,
            layout,
            film,
            selection: Selection::new(FRAME),
            picked: Vec::new(),
            is_on_bar: false,
            shown: 0,
            is_closed: false,
        }
    }

    #[test]
    fn a_window_that_is_closed_before_it_shows_anything_picks_nothing() {
        let mut picker = unseen();
        let screen = picker.running.pipeline().by_name("screen").unwrap();
        gst::element_error!(screen, gst::ResourceError::NotFound, ("Output window was closed"));
        let (start, control) = (Instant::now(), Control::new());
        picker.await_picture(&crossbeam_channel::bounded(1).1, &control).unwrap();
        assert!(start.elapsed() < FIRST_PICTURE / 2);
        assert!(picker.pick(&control).unwrap().is_none());
    }

    #[test]
    fn a_program_that_is_to_end_does_not_wait_for_its_window() {
        let (mut picker, start, control) = (unseen(), Instant::now(), Control::new());
        control.stop();
        picker.await_picture(&crossbeam_channel::bounded(1).1, &control).unwrap();
        assert!(start.elapsed() < FIRST_PICTURE / 2);
        assert!(picker.pick(&control).unwrap().is_none());
    }

    #[test]
    fn moves_of_a_kind_are_made_as_one_and_the_bar_overtakes_what_came_before() {
        assert_eq!(merged(None, Step::Frames(1)), (None, Step::Frames(1)));
        assert_eq!(merged(Some(Step::Frames(2)), Step::Frames(-3)), (None, Step::Frames(-1)));
        assert_eq!(merged(Some(Step::Frames(2)), Step::Time(5)), (Some(Step::Frames(2)), Step::Time(5)));
        assert_eq!(merged(Some(Step::Pages(1)), Step::Share(0.5)), (None, Step::Share(0.5)));
        assert_eq!(
            merged(Some(Step::Share(0.5)), Step::Frames(1)),
            (Some(Step::Share(0.5)), Step::Frames(1))
        );
    }

    #[test]
    fn clocks_have_as_many_letters_as_that_of_the_end() {
        const MINUTE: u64 = 60_000_000_000;
        for (ns, length, expected) in [
            (0, 5_000_000_000, "0:00.000"),
            (62_040_000_000, 30 * MINUTE, " 1:02.040"),
            (3_723_480_000_000, 90 * MINUTE, "1:02:03.480"),
        ] {
            assert_eq!(clock(ns, length), expected);
            assert_eq!(clock(length, length).len(), expected.len());
        }
    }
}
