//! Opens devices: the first one, others for other work or formats, and the spare one when a device is lost.

use super::orders::changed;
use super::relay::{Leg, Relay, Work};
use super::{Engine, Flight, Open, Purpose, Run, guarded, micros};
use crate::config::SearchMethod;
use crate::error::{DeviceFault, Error, Result};
use crate::frame::{Frame, VideoFormat};
use crate::results::Event;
use crate::search::Sought;

impl Engine<'_> {
    pub(super) fn open(&mut self, run: &mut Run, frame: &Frame) -> Result<()> {
        run.open = None;
        let format = &frame.format;
        // Frames that do not fit the request are an error at the beginning, and may pass later.
        let leg = match run.size {
            None => self.open_first(run, frame)?,
            Some(_) => self.open_for(run, &self.work(run), format, true, None)?,
        };
        match run.size {
            None => {
                self.tracker.check(format.size)?;
                let mut record = (self.describe)(format, &leg.backend.describe());
                let method = leg.work.search.sought().map(Sought::method);
                record.search =
                    method.filter(|method| *method == SearchMethod::Pyramid).map(SearchMethod::name);
                run.tally.begin(&record);
                for index in 0..self.sinks.len() {
                    match guarded(&mut *self.sinks[index], |sink| sink.begin(&record, format)) {
                        Err(error @ Error::ReaderGone { .. }) => self.close_failed(run, index, error)?,
                        begun => {
                            run.has_failed[index] = begun.is_err();
                            begun?;
                        }
                    }
                }
            }
            Some(before) if before != format.size => self.tracker.rescale(before, format.size),
            Some(_) => {}
        }
        run.size = Some(format.size);
        for (away, reason) in std::mem::take(&mut run.gaps_before) {
            let frame = frame.meta.index;
            self.note(run, |_| Event::Gap { frame, away_us: micros(away), reason })?;
        }
        run.open = Some(Open { relay: Relay::new(leg), format: format.clone() });
        Ok(())
    }

    /// Opens the first device. Orders about the search that came before the first frame belong to the start
    /// of the run: no device is opened without them, unless none can be opened with them.
    fn open_first(&self, run: &mut Run, frame: &Frame) -> Result<Leg> {
        run.due = self.due(frame);
        let begun = run.search.clone();
        if let Some(search) = changed(&begun, &mut run.due, frame.format.size) {
            run.search = search.into();
            match self.open_for(run, &self.work(run), &frame.format, false, None) {
                Ok(leg) => {
                    run.carried.extend(run.due.drain(..));
                    return Ok(leg);
                }
                Err(error @ Error::Stopped) => return Err(error),
                // The possible ones are carried out one by one as soon as this device is open.
                Err(_) => run.search = begun,
            }
        }
        self.open_for(run, &self.work(run), &frame.format, false, None)
    }

    /// Opens a device for some work: the spare one if the run's device was lost before, else the run's. With
    /// `may_cut` frames that are too small are no error: templates that do not fit into them are not
    /// searched, and this is logged.
    fn open_for(
        &self,
        run: &Run,
        work: &Work,
        format: &VideoFormat,
        may_cut: bool,
        lost: Option<&Error>,
    ) -> Result<Leg> {
        let cut = match work.search.check(format.size) {
            Err(error) if may_cut => {
                let rest = work.search.cut_to(format.size);
                match rest.roi.filter(|_| rest.sought().is_some()) {
                    Some(roi) => tracing::warn!("{error}: what is left of it is searched, {roi}"),
                    None => {
                        tracing::warn!(
                            "{error}: no template is searched for while frames are {}",
                            format.size
                        );
                    }
                }
                Some(rest)
            }
            checked => checked.map(|()| None)?,
        };
        let is_cut = cut.is_some();
        let search = cut.as_ref().unwrap_or(&work.search);
        let purpose = Purpose { search, format, mask: work.mask };
        let backend = match self.open_spare {
            Some(open_spare) if run.device_lost.is_some() => open_spare(&purpose, lost)?,
            _ => (self.open_backend)(&purpose)?,
        };
        Ok(Leg::new(backend, work.clone(), is_cut))
    }

    /// Opens another device for the frames from `frame`, the next one, on, also if the open one turns out to
    /// be lost. Returns the reason if none can be opened for this work.
    ///
    /// # Errors
    /// The error that ends the run: the frames in flight could not be completed.
    pub(super) fn open_next(
        &mut self,
        run: &mut Run,
        work: &Work,
        may_cut: bool,
        frame: u64,
    ) -> Result<Result<Leg>> {
        let format = run.open.as_ref().expect("a frame is about to be submitted").format.clone();
        let error = match self.open_for(run, work, &format, may_cut, None) {
            Err(error) if error.is_device_lost() => error,
            opened => return Ok(opened),
        };
        // The spare one first gets the frames in flight, as they fail too, with the search so far.
        self.drain(run)?;
        if run.device_lost.is_none() {
            if !self.lose(run, &error, frame) {
                return Ok(Err(error));
            }
            let last =
                run.open.as_ref().expect("it was open, and no frame has failed").relay.last().work.clone();
            let leg = self.open_for(run, &last, &format, true, Some(&error))?;
            run.hand_over(leg);
        }
        Ok(self.open_for(run, work, &format, may_cut, None))
    }

    /// Frames go into this device from now on. A background goes with them, as soon as all frames before are
    /// done.
    pub(super) fn hand_over(&mut self, run: &mut Run, mut to: Leg) -> Result<()> {
        let remembers =
            |leg: &Leg| leg.work.search.threshold.is_some_and(|threshold| threshold.method.remembers());
        let last = run.open.as_ref().expect("called while a device is open").relay.last();
        if remembers(&to) && remembers(last) {
            let had_lost = run.device_lost.is_some();
            self.drain(run)?;
            if !had_lost && run.device_lost.is_some() {
                // `to` lies on the device that was lost meanwhile.
                let format = run.open.as_ref().expect("the spare one is open").format.clone();
                to = self.open_for(run, &to.work.clone(), &format, true, None)?;
            }
            let last = run.open.as_mut().expect("it is still open, or the spare one is").relay.last_mut();
            match last.backend.take_background() {
                Ok(Some(background)) => match to.backend.continue_from(background) {
                    Err(error) if error.is_device_lost() => {
                        tracing::warn!("the background begins anew: {error}");
                    }
                    continued => continued?,
                },
                Ok(None) => {}
                Err(error) => tracing::warn!("the background begins anew: {error}"),
            }
        }
        run.hand_over(to);
        Ok(())
    }

    /// The work for the next frame.
    pub(super) fn work(&self, run: &Run) -> Work {
        Work { search: run.search.clone(), mask: self.wants_mask(run) }
    }

    /// True if a sink wants to see thresholded frames.
    pub(super) fn wants_mask(&self, run: &Run) -> bool {
        self.sinks.iter().zip(&run.is_closed).any(|(sink, is_closed)| !is_closed && sink.wants_mask())
    }

    /// Opens another device when sinks begin or stop to need thresholded frames.
    pub(super) fn notice_mask(&mut self, run: &mut Run, frame: u64) -> Result<()> {
        let last = run.open.as_ref().expect("a frame is about to be submitted").relay.last();
        let (work, is_cut) = (Work { mask: self.wants_mask(run), ..last.work.clone() }, last.is_cut);
        if work.search.threshold.is_some() && work.mask != last.work.mask {
            match self.open_next(run, &work, is_cut, frame)? {
                Ok(leg) => self.hand_over(run, leg)?,
                Err(error @ Error::Stopped) => return Err(error),
                Err(error) => {
                    tracing::warn!("frames continue without their threshold: {error}");
                    // Not tried again with each frame.
                    run.open.as_mut().expect("as above").relay.last_mut().work.mask = work.mask;
                }
            }
        }
        Ok(())
    }

    /// Handles a backend's failure. If its device is lost and there is a spare one, the spare device gets the
    /// frames in flight, whose pictures are still held, and the run continues; otherwise the error is
    /// returned.
    pub(super) fn take_over(&mut self, run: &mut Run, error: Error) -> Result<()> {
        let first = run.in_flight.front().expect("backends fail while they work on a frame").frame.meta.index;
        if !self.lose(run, &error, first) {
            return Err(error);
        }
        let Open { relay: lost, format } = run.open.take().expect("it failed, so it was open");
        let next = lost.last().work.clone();
        // Frees its memory on the host before the spare one allocates its own.
        drop(lost);
        let mut relay: Option<Relay> = None;
        for Flight { frame, work } in &run.in_flight {
            // Each gets the search that it was submitted with: the search may have changed between two of
            // them.
            match &mut relay {
                Some(relay) if relay.last().work.is(work) => {}
                Some(relay) => relay.hand_over(self.open_for(run, work, &format, true, None)?),
                None => relay = Some(Relay::new(self.open_for(run, work, &format, true, Some(&error))?)),
            }
            relay.as_mut().expect("opened above").submit(frame)?;
        }
        // The search may have been changed after the last of them.
        if let Some(relay) = relay.as_mut().filter(|relay| !relay.last().work.is(&next)) {
            relay.hand_over(self.open_for(run, &next, &format, true, None)?);
        }
        run.open = relay.map(|relay| Open { relay, format });
        Ok(())
    }

    /// True if the device is lost and a spare one must do the work from frame `first` on. This is logged
    /// once.
    pub(super) fn lose(&self, run: &mut Run, error: &Error, first: u64) -> bool {
        // Before the first frame there is no run to continue.
        let has_begun = run.size.is_some();
        let is_lost =
            has_begun && self.open_spare.is_some() && error.is_device_lost() && run.device_lost.is_none();
        if is_lost {
            // A fault's own words can end with the remedy that is being applied here.
            let reason = match error {
                Error::Backend { fault: DeviceFault::Lost { reason }, .. } => reason.clone(),
                error => error.to_string(),
            };
            tracing::warn!("the device was lost, the spare device continues from frame {first} on: {reason}");
            run.device_lost = Some(first);
        }
        is_lost
    }
}
