//! Follows boxes from frame to frame.
//!
//! All tracks ask their questions of a frame together, one round at a time: first each in a window around where its target
//! should be; then those that found nothing, in the whole frame; then those whose target has changed, for its pixels. A
//! search of frame n depends on the answer for n-1, so nothing here can run ahead of the frames.

mod target;

use crate::backend::{Backend, Query, Response, SlotId};
use crate::config::TrackSpec;
use crate::error::{Error, Result};
use crate::frame::{FrameMeta, Rect, Size};
use crate::results::Track;

use target::Target;

/// Everything that is followed in one video.
pub struct Tracker {
    targets: Vec<Target>,
    /// The targets as they were before the step that goes on; empty between steps.
    before: Vec<Target>,
    /// Boxes whose frame has not come yet, each with its one-based id.
    waiting: Vec<(u32, TrackSpec)>,
    frame: Size,
    queries: Vec<Query>,
    /// Index in `targets` of the track that asked `queries[i]`.
    asked_by: Vec<usize>,
    responses: Vec<Response>,
}

impl Tracker {
    /// A tracker that starts each box at its frame.
    pub fn new(specs: &[TrackSpec]) -> Self {
        Self {
            targets: Vec::new(),
            before: Vec::new(),
            waiting: (1..).zip(specs.iter().copied()).collect(),
            frame: Size::new(0, 0),
            queries: Vec::new(),
            asked_by: Vec::new(),
            responses: Vec::new(),
        }
    }

    /// Learns the frames' size.
    ///
    /// # Errors
    /// `Outside` if a box does not lie in frames of this size.
    pub fn check(&mut self, frame: Size) -> Result<()> {
        self.frame = frame;
        for (_, spec) in &self.waiting {
            if !spec.rect.is_inside(frame) {
                return Err(Error::Outside { what: "track box", rect: spec.rect, frame });
            }
        }
        Ok(())
    }

    /// Frames have another size from now on: boxes are scaled with them, also those that have not started. Templates are
    /// not, so a target may have to be found again.
    pub fn rescale(&mut self, before: Size, after: Size) {
        self.frame = after;
        let (x_factor, y_factor) =
            (after.width as f64 / before.width as f64, after.height as f64 / before.height as f64);
        for target in &mut self.targets {
            target.rescale(x_factor, y_factor);
        }
        let scaled = |length: usize, factor: f64| libm::round(length as f64 * factor) as usize;
        for (_, TrackSpec { rect, .. }) in &mut self.waiting {
            rect.x = scaled(rect.x, x_factor);
            rect.y = scaled(rect.y, y_factor);
            rect.w = scaled(rect.w, x_factor).clamp(1, after.width - rect.x.min(after.width - 1));
            rect.h = scaled(rect.h, y_factor).clamp(1, after.height - rect.y.min(after.height - 1));
        }
    }

    /// The boxes whose frame has not come, each with its one-based id.
    pub fn not_started(&self) -> &[(u32, TrackSpec)] {
        &self.waiting
    }

    /// Follows every track into the frame that lies in `slot` and appends the results to `tracks`, in the order of ids.
    ///
    /// If it fails, the tracker is as it was, so that another backend can be asked about the same frame.
    ///
    /// # Errors
    /// `Template` if a box that starts here is flat; what the backend failed with.
    pub fn step(
        &mut self,
        meta: FrameMeta,
        backend: &mut dyn Backend,
        slot: &SlotId,
        tracks: &mut Vec<Track>,
    ) -> Result<()> {
        self.before.extend_from_slice(&self.targets);
        let outcome = self.follow(meta, backend, slot, tracks);
        if outcome.is_err() {
            std::mem::swap(&mut self.targets, &mut self.before);
        }
        // Emptied, so that a template that was replaced is not kept for a frame longer.
        self.before.clear();
        outcome
    }

    fn follow(
        &mut self,
        meta: FrameMeta,
        backend: &mut dyn Backend,
        slot: &SlotId,
        tracks: &mut Vec<Track>,
    ) -> Result<()> {
        let frame = self.frame;
        let new_from = self.targets.len();
        for target in &mut self.targets {
            target.lose_if_too_large(frame);
        }
        self.ask(backend, slot, |target| target.nearby_query(frame))?;
        self.answered(Target::nearby_answer);
        self.ask(backend, slot, |target| target.anywhere_query(frame))?;
        self.answered(Target::anywhere_answer);
        self.ask(backend, slot, |target| target.refresh_query(frame))?;
        self.answered(Target::refresh_answer);

        self.start(meta, backend, slot)?;
        tracks.extend(self.targets[..new_from].iter().map(Target::track));
        tracks.extend(self.targets[new_from..].iter().map(Target::first_track));
        tracks.sort_by_key(|track| track.id);
        Ok(())
    }

    /// One round: at most one question of each track.
    fn ask(
        &mut self,
        backend: &mut dyn Backend,
        slot: &SlotId,
        question: impl Fn(&Target) -> Option<Query>,
    ) -> Result<()> {
        self.queries.clear();
        self.asked_by.clear();
        for (index, target) in self.targets.iter().enumerate() {
            if let Some(query) = question(target) {
                self.queries.push(query);
                self.asked_by.push(index);
            }
        }
        if self.queries.is_empty() {
            Ok(())
        } else {
            backend.search(slot, &self.queries, &mut self.responses)
        }
    }

    fn answered(&mut self, hear: impl Fn(&mut Target, &Response)) {
        for (&index, response) in self.asked_by.iter().zip(&self.responses) {
            hear(&mut self.targets[index], response);
        }
    }

    /// Starts the boxes whose frame this is. After a drop it may be a later frame than was asked for.
    fn start(&mut self, meta: FrameMeta, backend: &mut dyn Backend, slot: &SlotId) -> Result<()> {
        if self.waiting.iter().all(|(_, spec)| spec.frame > meta.index) {
            return Ok(());
        }
        let starts = |(_, spec): &(u32, TrackSpec)| spec.frame <= meta.index;
        let starting = || self.waiting.iter().filter(|waiting| starts(waiting));
        let queries: Vec<_> = starting().map(|(_, spec)| Query::Patch(spec.rect)).collect();
        backend.search(slot, &queries, &mut self.responses)?;
        for ((id, spec), response) in starting().zip(&self.responses) {
            let patch = response.patch.clone().expect("a patch was asked for");
            self.targets.push(Target::new(*id, spec.rect, patch)?);
        }
        // Only now that nothing can fail any more.
        self.waiting.retain(|waiting| !starts(waiting));
        Ok(())
    }
}

/// The box of `size` around (`cx`, `cy`), pushed inside a frame that is at least as large, without changing its size: a
/// window that keeps its size can be searched with what was planned for the last one.
fn pushed_inside(cx: f64, cy: f64, size: Size, frame: Size) -> Rect {
    let start = |centre: f64, length: usize, end: usize| {
        // Casts saturate, so a prediction far outside ends at the border.
        (libm::round(centre - length as f64 / 2.0) as usize).min(end - length)
    };
    Rect::new(
        start(cx, size.width, frame.width),
        start(cy, size.height, frame.height),
        size.width,
        size.height,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_keep_their_size_at_the_border() {
        let (size, frame) = (Size::new(20, 10), Size::new(100, 50));
        assert_eq!(pushed_inside(50.0, 25.0, size, frame), Rect::new(40, 20, 20, 10));
        assert_eq!(pushed_inside(-500.0, 1e9, size, frame), Rect::new(0, 40, 20, 10));
        assert_eq!(pushed_inside(99.0, 1.0, size, frame), Rect::new(80, 0, 20, 10));
    }
}
