//! `--search auto` during a run: changes to a pyramid at a picture in which the exhaustive search takes too
//! long.

use super::orders::Carried;
use super::{Engine, Run};
use crate::change::Change;
use crate::config::SearchMethod;
use crate::error::Result;
use crate::frame::Frame;
use crate::orders::{Asked, Order};

/// Every so many frames one is checked, beginning with the first: a check takes some milliseconds.
const LOOK_EVERY: u64 = 16;

/// A change to the pyramid, until it is reported.
pub(super) struct Turn {
    /// The first frame that the pyramid searches.
    frame: u64,
    /// Seconds of one core for an exhaustive search of it.
    exhaustive_s: f64,
}

impl Engine<'_> {
    /// Switches to a pyramid from this frame on, the next one, if the exhaustive search that `auto` chose
    /// takes too long in its picture. Outputs get this as an order, so that a repeated run does it too.
    pub(super) fn watch_content(&mut self, run: &mut Run, frame: &Frame) -> Result<()> {
        let is_looked_at = run.submitted.is_multiple_of(LOOK_EVERY);
        run.submitted += 1;
        let last = run.open.as_ref().expect("a frame is about to be submitted").relay.last();
        // A spare device continues with the method of the first.
        let can_turn = !run.has_turned && run.device_lost.is_none() && !last.is_cut;
        if !(is_looked_at && can_turn) {
            return Ok(());
        }
        let Some(exhaustive_s) = run.search.turns_out_long(frame) else { return Ok(()) };
        run.has_turned = true;
        let change = Change { search: Some(SearchMethod::Pyramid), ..Change::default() };
        let index = frame.meta.index;
        let mut due = [Carried::new(index, Asked::own(Order::Change(Box::new(change))))];
        self.carry_out(run, &mut due, index)?;
        if due[0].is_done() {
            run.turn = Some(Turn { frame: index, exhaustive_s });
        }
        run.carried.extend(due);
        Ok(())
    }

    /// Logs once, when the first such frame is done, why the method changed and how the search works now.
    pub(super) fn report_turn(run: &mut Run, frame: u64) {
        if let Some(Turn { frame: first, exhaustive_s }) = run.turn.take_if(|turn| turn.frame <= frame) {
            let pyramid_s = run.findings.standing_us as f64 / 1e6;
            tracing::warn!(
                "frame {first}: much of the picture is nearly flat, so the exhaustive search takes about {exhaustive_s:.1} s of \
                 one core for each frame. Templates are searched from coarse to fine from here on, which took {pyramid_s:.2} s \
                 and can miss a match (--search exhaustive misses none, --search pyramid does this from the first frame on)"
            );
        }
    }
}
