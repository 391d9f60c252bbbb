//! The selected boxes on a frame, and their changes by mouse and keys.

use super::film::Step;
use crate::window::Action;
use lockon_core::frame::{Rect, Size};

/// A box with a smaller side than this was a click.
const LEAST_SIDE: usize = 3;

/// A second, and a minute, in nanoseconds.
const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;

/// The selected boxes, changed by the mouse and keys.
#[derive(Debug)]
pub(super) struct Selection {
    pub(super) frame: Size,
    /// Accepted boxes.
    pub(super) kept: Vec<Rect>,
    /// The box that can still be changed.
    pub(super) current: Option<Rect>,
    /// The place where the mouse was pressed, while it is down.
    anchor: Option<(usize, usize)>,
    is_shift_down: bool,
}

/// The state of picking after an action.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PickState {
    /// Picking continues.
    Same,
    /// The boxes are picked.
    Done,
    /// The user picks nothing.
    Cancelled,
}

impl Selection {
    pub(super) fn new(frame: Size) -> Self {
        Self { frame, kept: Vec::new(), current: None, anchor: None, is_shift_down: false }
    }

    pub(super) fn apply(&mut self, action: &Action) -> PickState {
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

    /// A key's move to another frame. Arrows move the box if there is one.
    pub(super) fn step_of(&self, action: &Action) -> Option<Step> {
        let Action::Key(key) = action else { return None };
        let is_free = self.current.is_none();
        let by = |sign: i64| if self.is_shift_down { Step::Time(sign * SECOND) } else { Step::Frames(sign) };
        Some(match key.as_str() {
            "comma" => by(-1),
            "period" => by(1),
            "Left" | "KP_Left" if is_free => by(-1),
            "Right" | "KP_Right" if is_free => by(1),
            "Up" | "KP_Up" if is_free => Step::Time(MINUTE),
            "Down" | "KP_Down" if is_free => Step::Time(-MINUTE),
            // X11 has both names.
            "Prior" | "Page_Up" | "KP_Prior" | "KP_Page_Up" => Step::Pages(1),
            "Next" | "Page_Down" | "KP_Next" | "KP_Page_Down" => Step::Pages(-1),
            "Home" | "KP_Home" => Step::Start,
            "End" | "KP_End" => Step::End,
            _ => return None,
        })
    }

    /// Handles another frame, perhaps of another size: removes boxes that do not fit.
    pub(super) fn move_to(&mut self, frame: Size) {
        self.frame = frame;
        self.current = self.current.filter(|rect| rect.is_inside(frame));
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

    /// The corner between pixels nearest to a place.
    fn corner(&self, x: f64, y: f64) -> (usize, usize) {
        // A place beside the frame is moved to its edge, and so is NaN.
        let near = |at: f64, length: usize| libm::round(at).clamp(0.0, length as f64) as usize;
        (near(x, self.frame.width), near(y, self.frame.height))
    }

    /// Draws the box from the place where the mouse was pressed to its current place.
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

    #[test]
    fn keys_move_to_other_frames_and_arrows_do_where_there_is_no_box() {
        let mut selection = Selection::new(FRAME);
        let step = |selection: &Selection, name: &str| selection.step_of(&key(name));
        for (name, expected) in [
            ("Left", Step::Frames(-1)),
            ("Right", Step::Frames(1)),
            ("period", Step::Frames(1)),
            ("Prior", Step::Pages(1)),
            ("Page_Down", Step::Pages(-1)),
            ("Home", Step::Start),
            ("End", Step::End),
        ] {
            assert_eq!(step(&selection, name), Some(expected), "{name}");
        }
        selection.apply(&key("Shift_L"));
        assert_eq!(step(&selection, "Right"), Some(Step::Time(SECOND)));
        assert_eq!(step(&selection, "comma"), Some(Step::Time(-SECOND)));
        let selection = dragged((100.0, 50.0), (160.0, 90.0));
        assert_eq!((step(&selection, "Left"), step(&selection, "Up")), (None, None));
        assert_eq!(step(&selection, "comma"), Some(Step::Frames(-1)));
        assert_eq!(step(&selection, "a"), None);
    }

    #[test]
    fn a_box_stays_on_the_next_frame_unless_that_is_too_small_for_it() {
        let mut selection = dragged((100.0, 50.0), (160.0, 90.0));
        selection.move_to(FRAME);
        assert_eq!(selection.current, Some(Rect::new(100, 50, 60, 40)));
        selection.move_to(Size::new(150, 90));
        assert_eq!(selection.current, None);
    }
}
