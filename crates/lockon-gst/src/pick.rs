//! A window in which somebody draws boxes on a frame.
//!
//! The frame stands still; whenever the mouse or a key changes a box, it is drawn anew and shown.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, select};
use gst::prelude::*;

use super::launch::{Milestone, Running};
use super::sink::{self, Painter, Timestamps};
use super::window::{self, Action};
use lockon_core::config::View;
use lockon_core::control::Control;
use lockon_core::error::{Error, Result};
use lockon_core::frame::{Frame, Rect, Size};
use lockon_core::overlay;

/// Things done in the window that may wait until they are looked at.
const WAITING: usize = 1024;
/// How often waiting for somebody is interrupted to see whether the program is to end.
const POLL: Duration = Duration::from_millis(50);
/// How long the first picture may take to be shown.
const FIRST_PICTURE: Duration = Duration::from_secs(10);
/// From one picture to the next, as far as their times are concerned: they are shown at once.
const STEP_NS: u64 = 1_000_000;
/// A box that is smaller than this on a side was a click.
const LEAST_SIDE: usize = 3;

/// What the keys do, for help and for the window itself.
pub const KEYS: &str =
    "drag a box; arrows move it, Shift+arrows resize it; Enter takes it, A adds another, Esc cancels";

/// A window that shows a frame and asks for boxes on it.
pub struct Picker {
    /// Dropped before what it is told from is stopped.
    actions: Receiver<Action>,
    running: Running,
    appsrc: gst_app::AppSrc,
    painter: Painter,
    frame: Frame,
    selection: Selection,
    /// Pictures that were shown.
    shown: u64,
    /// Somebody has closed the window.
    is_closed: bool,
}

impl Picker {
    /// Opens a window named `title` and shows the frame in it. Whoever ends the program meanwhile, or closes
    /// the window, gets a picker from which nothing is picked.
    ///
    /// # Errors
    /// Why no window can be had: `Output` if there is no screen, `MissingElement`, `Pipeline` or `Resource`
    /// if GStreamer cannot show it.
    pub fn open(frame: Frame, title: &str, control: &Control) -> Result<Self> {
        sink::check_screen("")?;
        let launch = sink::display_launch(true);
        let running = Running::new(launch.build()?);
        let pipeline = running.pipeline();
        let appsrc = launch.element(pipeline, "results")?.downcast::<gst_app::AppSrc>();
        let appsrc = appsrc.map_err(|_| launch.fault("`results` is not an appsrc"))?;
        let painter = Painter::new(&frame.format, View::Overlay, false).map_err(|e| fault(e.to_string()))?;
        sink::prepare(&appsrc, &painter.info, true);
        let (sender, actions) = crossbeam_channel::bounded(WAITING);
        window::watch(&appsrc, move |action| {
            // Nobody makes so many while a picture is drawn; of what is too much the mouse's next move tells.
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
        let selection = Selection::new(frame.format.size);
        let (shown, is_closed) = (0, false);
        let mut picker = Self { actions, running, appsrc, painter, frame, selection, shown, is_closed };
        picker.show()?;
        picker.await_picture(&has_arrived, control)?;
        Ok(picker)
    }

    /// Waits until the picture is shown, or nobody is there to look at it.
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

    /// The boxes that somebody draws, in the order in which they were taken, one at least; `None` if nothing
    /// is to be picked: that was said, or the window closed, or the program is to end.
    ///
    /// # Errors
    /// What made the window fail.
    pub fn pick(mut self, control: &Control) -> Result<Option<Vec<Rect>>> {
        while !control.is_stopped() && !self.is_closed {
            select! {
                recv(self.actions) -> action => {
                    let actions: Vec<_> = action.into_iter().chain(self.actions.try_iter()).collect();
                    for action in &actions {
                        match self.selection.apply(action) {
                            PickState::Same => {}
                            PickState::Done => return Ok(Some(self.selection.kept)),
                            PickState::Cancelled => return Ok(None),
                        }
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

    /// Draws the frame with what is selected, and shows it.
    fn show(&mut self) -> Result<()> {
        let times = Timestamps { pts: self.shown * STEP_NS, duration: STEP_NS };
        let Selection { kept, current, .. } = &self.selection;
        let painted = self.painter.paint_with(&self.frame, times, |canvas| {
            overlay::draw_selection(canvas, kept, *current, KEYS);
        });
        self.shown += 1;
        // Refused only by a pipeline that failed, and that tells why.
        let _ = self.appsrc.push_buffer(painted.map_err(fault)?);
        Ok(())
    }
}

fn fault(reason: String) -> Error {
    Error::Output { name: "display".to_owned(), reason }
}

/// What is selected, and how the mouse and keys change it.
#[derive(Debug)]
struct Selection {
    frame: Size,
    /// Boxes that were taken.
    kept: Vec<Rect>,
    /// The box that can still be changed.
    current: Option<Rect>,
    /// Where the mouse was pressed, while it is.
    anchor: Option<(usize, usize)>,
    is_shift_down: bool,
}

/// What something that was done means for whoever waits for boxes.
#[derive(Debug, PartialEq, Eq)]
enum PickState {
    /// It goes on.
    Same,
    /// The boxes are picked.
    Done,
    /// Nothing is to be picked.
    Cancelled,
}

impl Selection {
    fn new(frame: Size) -> Self {
        Self { frame, kept: Vec::new(), current: None, anchor: None, is_shift_down: false }
    }

    fn apply(&mut self, action: &Action) -> PickState {
        match action {
            Action::Press(x, y) => self.anchor = Some(self.corner(*x, *y)),
            Action::Move(x, y) => self.drag(*x, *y),
            Action::Release(x, y) => {
                self.drag(*x, *y);
                self.anchor = None;
            }
            Action::Key(key) => return self.press(key),
            Action::KeyUp(key) => {
                if is_shift(key) {
                    self.is_shift_down = false;
                }
            }
        }
        PickState::Same
    }

    fn press(&mut self, key: &str) -> PickState {
        match key {
            "Return" | "KP_Enter" | "space" => {
                self.kept.extend(self.current.take());
                if !self.kept.is_empty() {
                    return PickState::Done;
                }
            }
            "a" | "A" => self.kept.extend(self.current.take()),
            "BackSpace" | "Delete" if self.current.take().is_some() => {}
            "BackSpace" | "Delete" => drop(self.kept.pop()),
            "c" | "C" | "q" | "Q" | "Escape" => return PickState::Cancelled,
            "Left" | "KP_Left" => self.nudge(-1, 0),
            "Right" | "KP_Right" => self.nudge(1, 0),
            "Up" | "KP_Up" => self.nudge(0, -1),
            "Down" | "KP_Down" => self.nudge(0, 1),
            key if is_shift(key) => self.is_shift_down = true,
            _ => {}
        }
        PickState::Same
    }

    /// The corner between pixels that is nearest to a place.
    fn corner(&self, x: f64, y: f64) -> (usize, usize) {
        // What is beside the frame is at its edge; so is what is no number.
        let near = |at: f64, length: usize| libm::round(at).clamp(0.0, length as f64) as usize;
        (near(x, self.frame.width), near(y, self.frame.height))
    }

    /// Draws the box from where the mouse was pressed to where it is.
    fn drag(&mut self, x: f64, y: f64) {
        let Some((from_x, from_y)) = self.anchor else { return };
        let (to_x, to_y) = self.corner(x, y);
        let (w, h) = (from_x.abs_diff(to_x), from_y.abs_diff(to_y));
        if w >= LEAST_SIDE && h >= LEAST_SIDE {
            self.current = Some(Rect::new(from_x.min(to_x), from_y.min(to_y), w, h));
        }
    }

    /// Moves the box, or its right and lower edges while Shift is held, by pixels; it stays inside the frame.
    fn nudge(&mut self, by_x: isize, by_y: isize) {
        let Some(rect) = &mut self.current else { return };
        let Size { width, height } = self.frame;
        let moved = |value: usize, by: isize, least: usize, most: usize| {
            value.saturating_add_signed(by).clamp(least, most)
        };
        if self.is_shift_down {
            rect.w = moved(rect.w, by_x, LEAST_SIDE, width - rect.x);
            rect.h = moved(rect.h, by_y, LEAST_SIDE, height - rect.y);
        } else {
            rect.x = moved(rect.x, by_x, 0, width - rect.w);
            rect.y = moved(rect.y, by_y, 0, height - rect.h);
        }
    }
}

fn is_shift(key: &str) -> bool {
    matches!(key, "Shift_L" | "Shift_R")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::Launch;

    const FRAME: Size = Size::new(640, 360);

    fn key(name: &str) -> Action {
        Action::Key(name.to_owned())
    }

    /// A selection after a box was dragged from one place to the other.
    fn dragged((x, y): (f64, f64), (to_x, to_y): (f64, f64)) -> Selection {
        let mut selection = Selection::new(FRAME);
        let middle = (f64::midpoint(x, to_x), f64::midpoint(y, to_y));
        for action in [Action::Press(x, y), Action::Move(middle.0, middle.1), Action::Release(to_x, to_y)] {
            assert_eq!(selection.apply(&action), PickState::Same);
        }
        selection
    }

    /// A picker whose picture is never shown.
    fn unseen() -> Picker {
        let launch = Launch::new("test", "appsrc name=results ! fakesink name=screen");
        let running = Running::new(launch.build().unwrap());
        let appsrc = running.pipeline().by_name("results").unwrap().downcast().unwrap();
        let format = sink::tests::format("GRAY8", FRAME.width, FRAME.height, (25, 1));
        let painter = Painter::new(&format, View::Overlay, false).unwrap();
        let frame = sink::tests::frame(0, &format, None);
        let (actions, selection) = (crossbeam_channel::never(), Selection::new(FRAME));
        Picker { actions, running, appsrc, painter, frame, selection, shown: 0, is_closed: false }
    }

    #[test]
    fn a_window_that_is_closed_before_it_shows_anything_picks_nothing() {
        let mut picker = unseen();
        let screen = picker.running.pipeline().by_name("screen").unwrap();
        gst::element_error!(screen, gst::ResourceError::NotFound, ("Output window was closed"));
        let (start, control) = (Instant::now(), Control::new());
        picker.await_picture(&crossbeam_channel::bounded(1).1, &control).unwrap();
        assert!(start.elapsed() < FIRST_PICTURE / 2);
        assert_eq!(picker.pick(&control).unwrap(), None);
    }

    #[test]
    fn a_program_that_is_to_end_does_not_wait_for_its_window() {
        let (mut picker, start, control) = (unseen(), Instant::now(), Control::new());
        control.stop();
        picker.await_picture(&crossbeam_channel::bounded(1).1, &control).unwrap();
        assert!(start.elapsed() < FIRST_PICTURE / 2);
        assert_eq!(picker.pick(&control).unwrap(), None);
    }

    #[test]
    fn a_box_reaches_from_where_the_mouse_was_pressed_to_where_it_was_let_go() {
        for (from, to) in
            [((100.2, 49.8), (160.4, 90.0)), ((160.0, 90.0), (100.0, 50.0)), ((100.0, 90.0), (160.0, 50.0))]
        {
            assert_eq!(dragged(from, to).current, Some(Rect::new(100, 50, 60, 40)));
        }
    }

    #[test]
    fn a_box_that_is_dragged_beyond_the_frame_ends_at_its_edge() {
        assert_eq!(dragged((600.0, 300.0), (900.0, 9e9)).current, Some(Rect::new(600, 300, 40, 60)));
        assert_eq!(dragged((20.0, 10.0), (-5.0, f64::NEG_INFINITY)).current, Some(Rect::new(0, 0, 20, 10)));
    }

    #[test]
    fn a_click_and_a_move_without_a_button_leave_the_box_alone() {
        let mut selection = dragged((100.0, 50.0), (160.0, 90.0));
        for action in [Action::Press(300.0, 200.0), Action::Release(301.0, 201.0), Action::Move(400.0, 300.0)]
        {
            selection.apply(&action);
        }
        assert_eq!(selection.current, Some(Rect::new(100, 50, 60, 40)));
    }

    #[test]
    fn arrows_move_the_box_and_with_shift_its_far_edges() {
        let mut selection = dragged((100.0, 50.0), (160.0, 90.0));
        for name in ["Left", "Up", "Up", "Shift_L", "Right", "Right", "Down"] {
            selection.apply(&key(name));
        }
        assert_eq!(selection.current, Some(Rect::new(99, 48, 62, 41)));
        selection.apply(&Action::KeyUp("Shift_L".into()));
        selection.apply(&key("Down"));
        assert_eq!(selection.current, Some(Rect::new(99, 49, 62, 41)));
    }

    #[test]
    fn arrows_keep_the_box_inside_the_frame_and_larger_than_a_click() {
        let mut selection = dragged((630.0, 0.0), (640.0, 4.0));
        for name in ["Right", "Up", "Shift_R", "Right", "Up", "Up", "Up"] {
            selection.apply(&key(name));
        }
        assert_eq!(selection.current, Some(Rect::new(630, 0, 10, LEAST_SIDE)));
    }

    #[test]
    fn enter_and_space_take_the_box_and_nothing_is_taken_without_one() {
        for name in ["Return", "KP_Enter", "space"] {
            assert_eq!(Selection::new(FRAME).apply(&key(name)), PickState::Same);
            let mut selection = dragged((100.0, 50.0), (160.0, 90.0));
            assert_eq!(selection.apply(&key(name)), PickState::Done);
            assert_eq!(selection.kept, [Rect::new(100, 50, 60, 40)]);
        }
    }

    #[test]
    fn several_boxes_are_taken_in_order_and_the_last_one_can_be_taken_back() {
        let mut selection = dragged((100.0, 50.0), (160.0, 90.0));
        selection.apply(&key("a"));
        for (x, y) in [(200.0, 100.0), (300.0, 150.0)] {
            selection.apply(&Action::Press(x, y));
            selection.apply(&Action::Release(x + 30.0, y + 20.0));
            selection.apply(&key("a"));
        }
        selection.apply(&key("BackSpace"));
        assert_eq!(selection.apply(&key("Return")), PickState::Done);
        assert_eq!(selection.kept, [Rect::new(100, 50, 60, 40), Rect::new(200, 100, 30, 20)]);
    }

    #[test]
    fn escape_q_and_c_pick_nothing() {
        for name in ["Escape", "q", "c"] {
            assert_eq!(dragged((100.0, 50.0), (160.0, 90.0)).apply(&key(name)), PickState::Cancelled);
        }
    }
}
