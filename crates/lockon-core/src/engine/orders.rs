//! Carries out orders.
//!
//! Orders about the search are carried out when a frame is submitted, those about tracks when its results are
//! decided; outputs get both before that frame's results.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::relay::Work;
use super::{Engine, Run, in_words};
use crate::change::Change;
use crate::error::{Error, Result};
use crate::frame::{Frame, Size};
use crate::orders::{Asked, Order};
use crate::results::{Event, SearchRecord};
use crate::search::Search;
use crate::text;

/// Repeated orders that are reported one by one if their frames never came.
const MOST_REPORTED: usize = 8;

/// An order about the search, and its outcome at a frame.
pub(super) struct Carried {
    frame: u64,
    asked: Asked,
    outcome: Outcome,
}

/// The search after an order, if the order changed it; the error of an order that was not carried out.
type Outcome = Result<Option<Arc<SearchRecord>>>;

impl Carried {
    pub(super) fn new(frame: u64, asked: Asked) -> Self {
        let outcome = asked.as_before().map(|()| None);
        Self { frame, asked, outcome }
    }

    /// True if it was carried out, or will be.
    pub(super) fn is_done(&self) -> bool {
        self.outcome.is_ok()
    }

    /// The change, unless it was refused in the run that is repeated.
    fn change(&self) -> Option<&Change> {
        match &self.asked.order {
            Order::Change(change) if self.asked.refused.is_none() => Some(change),
            _ => None,
        }
    }
}

impl Engine<'_> {
    /// Carries out orders about the search, before a frame is submitted.
    pub(super) fn change_search(&mut self, run: &mut Run, frame: &Frame) -> Result<()> {
        let mut due = std::mem::take(&mut run.due);
        due.extend(self.due(frame));
        self.carry_out(run, &mut due, frame.meta.index)?;
        run.carried.extend(due);
        Ok(())
    }

    pub(super) fn due(&self, frame: &Frame) -> Vec<Carried> {
        let index = frame.meta.index;
        self.control.orders.changes_due(index).into_iter().map(|asked| Carried::new(index, asked)).collect()
    }

    /// Opens one device for all of them; if that fails, one for each half, so that only impossible orders are
    /// refused.
    pub(super) fn carry_out(&mut self, run: &mut Run, due: &mut [Carried], frame: u64) -> Result<()> {
        let size = run.open.as_ref().expect("a frame is about to be submitted").format.size;
        let Some(search) = changed(&run.search, due, size) else { return Ok(()) };
        let may_cut = may_cut(run, &search, due);
        match self.retune(run, search, may_cut, frame)? {
            Err(error @ Error::Stopped) => Err(error),
            Err(error) if due.len() == 1 => {
                due[0].outcome = Err(error);
                Ok(())
            }
            Err(_) => {
                let (first, second) = due.split_at_mut(due.len() / 2);
                self.carry_out(run, first, frame)?;
                self.carry_out(run, second, frame)
            }
            Ok(()) => Ok(()),
        }
    }

    /// Changes the search from `frame`, the next one, on, if a device can be opened for it; otherwise returns
    /// the reason.
    fn retune(&mut self, run: &mut Run, search: Search, may_cut: bool, frame: u64) -> Result<Result<()>> {
        let work = Work { search: search.into(), ..self.work(run) };
        match self.open_next(run, &work, may_cut, frame)? {
            Ok(leg) => {
                self.hand_over(run, leg)?;
                run.search = work.search;
                Ok(Ok(()))
            }
            Err(error) => Ok(Err(error)),
        }
    }

    /// Carries out orders about tracks before the oldest frame in flight, and reports all orders that hold
    /// from there on.
    pub(super) fn obey(&mut self, run: &mut Run) -> Result<()> {
        let next = run.in_flight.front().expect("called with a frame in flight").frame.clone();
        let frame = next.meta.index;
        // Orders and what they change are in pixels of this frame.
        self.control.watched.fit(next.format.size);
        run.watcher.fit(next.format.size);
        while run.carried.front().is_some_and(|carried| carried.frame <= frame) {
            let Some(Carried { frame, asked, outcome }) = run.carried.pop_front() else { break };
            if let (Order::Change(change), Ok(_)) = (&asked.order, &outcome) {
                change.add.iter().for_each(|template| run.tally.expect(template.name()));
            }
            self.tell_order(run, frame, asked, outcome)?;
        }
        for asked in self.control.orders.due(frame) {
            let done = asked.as_before().and_then(|()| {
                if let Some(done) = self.control.watched.obey(&asked.order, next.format.size) {
                    if done.is_ok() {
                        run.watcher.obey(&asked.order, &mut run.happened);
                    }
                    return done;
                }
                // A clone: readers of kept frames do not wait for the tracker.
                let recent = self.control.recent_frames().clone();
                self.tracker.obey(&asked.order, &next, &recent)
            });
            self.tell_order(run, frame, asked, done.map(|()| None))?;
        }
        Ok(())
    }

    /// Reports the repeated orders whose frames never came.
    pub(super) fn report_left(&self, run: &Run) {
        let left = self.control.orders.take_left();
        let (frames, last) = (run.stats.frames, run.next_index.saturating_sub(1));
        let many = if frames == 1 {
            "the only frame was".into()
        } else {
            format!("the last of {frames} frames was")
        };
        for repeated in left.iter().take(MOST_REPORTED) {
            tracing::warn!(
                "order for frame {} not carried out ({}): {many} {last}",
                repeated.frame,
                repeated.order
            );
        }
        let rest = left.len().saturating_sub(MOST_REPORTED);
        if rest > 0 {
            tracing::warn!("{rest} more orders for later frames not carried out");
        }
    }

    /// Answers an order and reports it.
    fn tell_order(&mut self, run: &mut Run, frame: u64, asked: Asked, outcome: Outcome) -> Result<()> {
        let refused = outcome.as_ref().err().map(|error| match error {
            Error::Order { reason, .. } => text::for_people(reason),
            error => in_words(error),
        });
        if let Err(error) = &outcome {
            run.refusals.warn(Instant::now(), || format!("frame {frame}: {error}"));
        }
        let order = asked.order.clone();
        let search = outcome.as_ref().ok().cloned().flatten();
        asked.answer(outcome.map(|_| frame));
        let event = Event::Control { frame, order, refused, search };
        self.tell(run, |sink| sink.note(&event))
    }
}

/// Warnings about refused orders: a program that sends many must not fill the log.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// The time of the first one logged in this interval.
    since: Option<Instant>,
    /// Refusals in this interval.
    count: u64,
}

impl Refusals {
    /// Maximum warnings in each interval. The next one reports that more are not logged.
    const MOST: u64 = 5;
    const INTERVAL: Duration = Duration::from_secs(10);

    fn warn(&mut self, now: Instant, text: impl FnOnce() -> String) {
        if let Some(line) = self.line(now, text) {
            tracing::warn!("{line}");
        }
    }

    /// Returns the line to log for a refusal at this time, if any.
    fn line(&mut self, now: Instant, text: impl FnOnce() -> String) -> Option<String> {
        let mut unlogged = 0;
        if self.since.is_none_or(|since| now.duration_since(since) >= Self::INTERVAL) {
            unlogged = self.count.saturating_sub(Self::MOST);
            (self.since, self.count) = (Some(now), 0);
        }
        self.count += 1;
        match self.count {
            count if count > Self::MOST + 1 => None,
            count if count > Self::MOST => {
                Some(format!("{}; more refused orders are not logged for a while", text()))
            }
            _ if unlogged > 1 => {
                Some(format!("{} ({} more orders were refused before)", text(), unlogged - 1))
            }
            _ => Some(text()),
        }
    }
}

/// Returns the search after the orders that can be carried out; `None` if none can. The others get their
/// outcome.
pub(super) fn changed(search: &Search, due: &mut [Carried], frame: Size) -> Option<Search> {
    let mut after = None;
    for carried in due {
        let change = carried.change().map(|change| {
            let changed = after.as_ref().unwrap_or(search).changed(change)?;
            changed.check_added(change, frame)?;
            Ok(changed)
        });
        if let Some(changed) = change {
            carried.outcome = changed.map(|changed| Some(after.insert(changed).record().into()));
        }
    }
    after
}

/// True if frames may be too small for a part of the search after these orders. Where frames were too small
/// before, a change of something else is accepted. A change of the region is refused, unless all of the
/// region lies inside. A change of templates or sizes is refused if it leaves nothing to search.
fn may_cut(run: &Run, after: &Search, due: &[Carried]) -> bool {
    let open = run.open.as_ref().expect("a frame is about to be submitted");
    let changes = || due.iter().filter_map(Carried::change);
    let asks_for_box = changes().any(|change| matches!(change.roi, Some(Some(_))));
    let asks_for_sizes =
        changes().any(|change| !change.add.is_empty() || change.scales.is_some() || change.angles.is_some());
    let is_any_left = || after.cut_to(open.format.size).sought().is_some();
    open.relay.last().is_cut && !asks_for_box && (!asks_for_sizes || is_any_left())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_that_come_one_after_the_other_are_counted_instead_of_logged() {
        let (begun, mut refusals) = (Instant::now(), Refusals::default());
        let mut lines = |at: f64| {
            let logged = (0..1000).filter_map(|n| {
                refusals.line(begun + Duration::from_secs_f64(at), || format!("refused {n}"))
            });
            logged.collect::<Vec<_>>()
        };
        let first = lines(0.0);
        assert_eq!(first.len(), 6);
        assert_eq!((&*first[0], &*first[4]), ("refused 0", "refused 4"));
        assert_eq!(first[5], "refused 5; more refused orders are not logged for a while");
        assert!(lines(9.9).is_empty());
        let later = lines(10.0);
        assert_eq!((later.len(), &*later[0]), (6, "refused 0 (1994 more orders were refused before)"));
        // A few are logged unchanged.
        let mut refusals = Refusals::default();
        for second in (0..100).step_by(2) {
            let at = begun + Duration::from_secs(second);
            assert_eq!(refusals.line(at, || "refused".into()).as_deref(), Some("refused"));
        }
    }
}
