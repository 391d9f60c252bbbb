//! Carrying out what a run is asked for while it goes on.
//!
//! Orders about the search are carried out when a frame is submitted, those about tracks when it is decided;
//! outputs hear of both before that frame's results.

use super::relay::Work;
use super::{Engine, Run, in_words};
use crate::error::{Error, Result};
use crate::frame::Frame;
use crate::orders::{Asked, Order};
use crate::results::Event;
use crate::search::Search;
use crate::text;

/// An order about the search, and what came of it at a frame.
pub(super) struct Carried {
    frame: u64,
    asked: Asked,
    outcome: Result<()>,
}

impl Carried {
    fn new(frame: u64, asked: Asked) -> Self {
        let outcome = asked.as_before();
        Self { frame, asked, outcome }
    }

    fn is_to_be_done(&self) -> bool {
        self.asked.refused.is_none()
    }
}

impl Engine<'_> {
    /// Carries out what is asked of the search, before a frame is submitted.
    pub(super) fn change_search(&self, run: &mut Run, frame: &Frame) -> Result<()> {
        let index = frame.meta.index;
        let due = self.control.orders.changes_due(index);
        if due.is_empty() {
            return Ok(());
        }
        let mut due: Vec<_> = due.into_iter().map(|asked| Carried::new(index, asked)).collect();
        self.carry_out(run, &mut due)?;
        run.carried.extend(due);
        Ok(())
    }

    /// Opens one device for all of them; if that fails, one for each half of them, so that only those are
    /// refused for which none can be opened.
    fn carry_out(&self, run: &mut Run, due: &mut [Carried]) -> Result<()> {
        let mut search = (*run.search).clone();
        let mut has_changed = false;
        for carried in due.iter_mut().filter(|carried| carried.is_to_be_done()) {
            let Order::Change(change) = &carried.asked.order else { continue };
            carried.outcome = search.changed(change).map(|changed| {
                search = changed;
                has_changed = true;
            });
        }
        if !has_changed {
            return Ok(());
        }
        match self.retune(run, search) {
            Err(error @ Error::Stopped) => Err(error),
            Err(error) if due.len() == 1 => {
                due[0].outcome = Err(error);
                Ok(())
            }
            Err(_) => {
                let (first, second) = due.split_at_mut(due.len() / 2);
                self.carry_out(run, first)?;
                self.carry_out(run, second)
            }
            Ok(()) => Ok(()),
        }
    }

    /// Frames are searched so from the next one on.
    fn retune(&self, run: &mut Run, search: Search) -> Result<()> {
        let open = run.open.as_ref().expect("a frame is about to be submitted");
        let work = Work { search: search.into(), mask: self.wants_mask(run) };
        // Where not all fitted before, a change of something else is no reason to refuse it.
        let may_cut = open.relay.last().is_cut;
        let leg = self.open_for(run, &work, &open.format, may_cut, None)?;
        run.search = work.search;
        run.hand_over(leg);
        Ok(())
    }

    /// Carries out what is asked of the tracks before the oldest frame in flight, and tells of all orders
    /// that hold from there on.
    pub(super) fn obey(&mut self, run: &mut Run) -> Result<()> {
        let next = run.in_flight.front().expect("called with a frame in flight").frame.clone();
        let frame = next.meta.index;
        while run.carried.front().is_some_and(|carried| carried.frame <= frame) {
            let Some(Carried { frame, asked, outcome }) = run.carried.pop_front() else { break };
            if let (Order::Change(change), Ok(())) = (&asked.order, &outcome) {
                change.add.iter().for_each(|template| run.tally.expect(template.name()));
            }
            self.tell_order(run, frame, asked, outcome)?;
        }
        for asked in self.control.orders.due(frame) {
            // Nobody who looks for one of them waits for the tracker.
            let kept = self.control.kept().clone();
            let done = asked.as_before().and_then(|()| self.tracker.obey(&asked.order, &next, &kept));
            self.tell_order(run, frame, asked, done)?;
        }
        Ok(())
    }

    fn tell_order(&mut self, run: &mut Run, frame: u64, asked: Asked, outcome: Result<()>) -> Result<()> {
        let refused = outcome.as_ref().err().map(|error| match error {
            Error::Order { reason, .. } => text::for_people(reason),
            error => in_words(error),
        });
        if let Err(error) = &outcome {
            tracing::warn!("frame {frame}: {error}");
        }
        let order = asked.order.clone();
        asked.answer(outcome.map(|()| frame));
        let event = Event::Control { frame, order, refused };
        self.tell(run, |sink| sink.note(&event))
    }
}
