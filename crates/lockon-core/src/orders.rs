//! Orders change a run while frames pass. Each is answered with the first frame that it applies to.
//!
//! Any thread gives them, by a [`Control`](crate::control::Control). The engine carries them out between two
//! frames, in the order in which they came, and reports each to the outputs
//! ([`Event::Control`](crate::results::Event)). A run to which the same orders are given at the same frames
//! has the same results.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use serde::{Deserialize, Serialize};

use crate::as_text;
use crate::change::Change;
use crate::config::{CountingLine, CountingLines, Placed, Places, Zone, Zones};
use crate::error::{Error, Result};
use crate::frame::{Rect, Size};
use crate::locks::{MutexGuard, Ranked, lock};

/// Maximum waiting orders: far more than any frame should have to carry out.
const MOST_WAITING: usize = 4096;

/// A change of a run while frames pass.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub enum Order {
    /// Follow the contents of a box.
    Follow {
        /// The track's number.
        id: u32,
        /// The box: `X,Y,W,H`, in pixels.
        #[serde(rename = "box", with = "as_text")]
        rect: Rect,
        /// The frame that shows the box. The one from which the order holds if it is not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<u64>,
    },
    /// Learn a track's target again from this box, under the same number.
    Correct {
        /// The track's number.
        id: u32,
        /// The box: `X,Y,W,H`, in pixels.
        #[serde(rename = "box", with = "as_text")]
        rect: Rect,
        /// The frame that shows the box. The one from which the order holds if it is not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<u64>,
    },
    /// Stop following a track.
    Forget {
        /// The track's number.
        id: u32,
    },
    /// Stop following all tracks.
    Clear,
    /// Change the search.
    Change(Box<Change>),
    /// Watch a part of the picture, or move the zone of that name there.
    Zone {
        /// The zone: `NAME=X,Y,X,Y,X,Y`, in pixels.
        #[serde(with = "as_text")]
        zone: Zone,
    },
    /// Stop watching a zone.
    RemoveZone {
        /// Its name.
        name: Arc<str>,
    },
    /// Count the tracks that cross a line, or move the line of that name there: its counts begin again.
    Line {
        /// The line: `NAME=X,Y,X,Y`, in pixels.
        #[serde(with = "as_text")]
        line: CountingLine,
    },
    /// Remove a line.
    RemoveLine {
        /// Its name.
        name: Arc<str>,
    },
}

impl Order {
    /// The number of the track that it is about, if it is about one.
    pub fn id(&self) -> Option<u32> {
        match *self {
            Self::Follow { id, .. } | Self::Correct { id, .. } | Self::Forget { id } => Some(id),
            Self::Clear
            | Self::Change(_)
            | Self::Zone { .. }
            | Self::RemoveZone { .. }
            | Self::Line { .. }
            | Self::RemoveLine { .. } => None,
        }
    }

    /// Returns how many frames before `frame` the frame is that shows its box.
    fn age(&self, frame: u64) -> u64 {
        match *self {
            Self::Follow { at: Some(at), .. } | Self::Correct { at: Some(at), .. } => {
                frame.saturating_sub(at)
            }
            _ => 0,
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Follow { id, rect, at } => {
                write!(f, "follow {rect} as track {id}")?;
                at.map_or(Ok(()), |at| write!(f, ", shown by frame {at}"))
            }
            Self::Correct { id, rect, at } => {
                write!(f, "correct track {id} to {rect}")?;
                at.map_or(Ok(()), |at| write!(f, ", shown by frame {at}"))
            }
            Self::Forget { id } => write!(f, "forget track {id}"),
            Self::Clear => write!(f, "forget all tracks"),
            Self::Change(change) => change.fmt(f),
            Self::Zone { zone } => write!(f, "watch zone {zone}"),
            Self::RemoveZone { name } => write!(f, "remove zone {name:?}"),
            Self::Line { line } => write!(f, "count across line {line}"),
            Self::RemoveLine { name } => write!(f, "remove line {name:?}"),
        }
    }
}

/// The zones and lines of a run after its orders so far. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watched(Arc<Mutex<ZonesAndLines>>);

#[derive(Debug, Default)]
pub(crate) struct ZonesAndLines {
    pub(crate) zones: Zones,
    pub(crate) lines: CountingLines,
}

impl Watched {
    /// The zones and lines.
    pub(crate) fn now(&self) -> (Vec<Zone>, Vec<CountingLine>) {
        let ZonesAndLines { zones, lines } = &*self.lock();
        (zones.now().to_vec(), lines.now().to_vec())
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ZonesAndLines> {
        lock(&self.0)
    }

    /// Frames have this size from now on.
    pub(crate) fn fit(&self, frame: Size) {
        let ZonesAndLines { zones, lines } = &mut *self.lock();
        zones.fit(frame);
        lines.fit(frame);
    }

    /// Carries out an order about zones or lines, before a frame of the size that [`Self::fit`] was told;
    /// `None` for other orders.
    pub(crate) fn obey(&self, order: &Order, frame: Size) -> Option<Result<()>> {
        let ZonesAndLines { zones, lines } = &mut *self.lock();
        let done = match order {
            Order::Zone { zone } => set(zones, zone, zone.is_outside(frame), frame, "zones"),
            Order::RemoveZone { name } => remove(zones, name, "zone"),
            Order::Line { line } => set(lines, line, line.is_outside(frame), frame, "lines"),
            Order::RemoveLine { name } => remove(lines, name, "line"),
            _ => return None,
        };
        Some(done.map_err(|reason| Error::Order { order: order.to_string(), reason }))
    }
}

/// Adds or moves a zone or a line. The error is the reason why it is refused.
fn set<T: Placed>(
    all: &mut Places<T>,
    one: &T,
    is_outside: bool,
    frame: Size,
    kind: &str,
) -> std::result::Result<(), String> {
    if is_outside {
        return Err(format!("it lies outside of the {frame} picture"));
    }
    if all.place(one.name()).is_none() && all.now().len() >= Places::<T>::MOST {
        return Err(format!("there are {} {kind} already", Places::<T>::MOST));
    }
    all.set(one);
    Ok(())
}

fn remove<T: Placed>(all: &mut Places<T>, name: &str, kind: &str) -> std::result::Result<(), String> {
    if all.remove(name).is_some() {
        return Ok(());
    }
    let names: Vec<_> = all.now().iter().map(|one| format!("{:?}", &**one.name())).collect();
    let known =
        if names.is_empty() { "there is none".into() } else { format!("there are {}", names.join(", ")) };
    Err(format!("there is no such {kind}: {known}"))
}

/// An order of an earlier run, to be given again at the same frame: a `control` record of a results file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Repeated {
    /// The frame from which it held.
    pub frame: u64,
    /// The order.
    #[serde(flatten)]
    pub order: Order,
    /// Why it was refused, if it was.
    pub refused: Option<String>,
}

/// The answer to an order: the frame from which it holds.
#[derive(Debug)]
pub struct Reply {
    id: Option<u32>,
    order: String,
    answer: Receiver<Result<u64>>,
}

impl Reply {
    /// The number of the track that the order is about.
    pub fn id(&self) -> Option<u32> {
        self.id
    }

    /// Returns the frame from which the order holds, or why it cannot be done; `None` until it is known.
    ///
    /// # Errors
    /// `Some` of the errors of [`Self::wait`].
    pub fn poll(&self) -> Option<Result<u64>> {
        self.poll_for(Duration::ZERO)
    }

    /// As [`Self::poll`], but waits; `None` if the answer is late. The order may still be carried out then.
    ///
    /// # Errors
    /// `Some` of the errors of [`Self::wait`].
    pub fn poll_for(&self, timeout: Duration) -> Option<Result<u64>> {
        match self.answer.recv_timeout(timeout) {
            Ok(answer) => Some(answer),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(self.refused("the run has ended")),
        }
    }

    /// Waits for the answer, which needs a next frame.
    ///
    /// # Errors
    /// `Outside` or `Order` if it cannot be done, or was not within this time; it still may be done then.
    pub fn wait(&self, timeout: Duration) -> Result<u64> {
        let late = || self.refused(&format!("no frame has come for {timeout:?}"));
        self.poll_for(timeout).unwrap_or_else(late)
    }

    fn refused(&self, reason: &str) -> Result<u64> {
        Err(Error::Order { order: self.order.clone(), reason: reason.to_owned() })
    }
}

/// Numbers tracks, each number once in a run. Clones share the numbers.
#[derive(Debug, Clone, Default)]
pub struct Numbers(Arc<Ranked<Numbering, 80>>);

#[derive(Debug, Default)]
struct Numbering {
    /// The last that was given.
    last: u32,
    /// Numbers in orders that will be repeated.
    taken: BTreeSet<u32>,
}

impl Numbers {
    /// Numbers from 1 on that were not given to any of the first `count` tracks.
    pub fn after(count: u32) -> Self {
        Self(Arc::new(Ranked::new(Numbering { last: count, taken: BTreeSet::new() })))
    }

    /// Restarts after the first `count` tracks.
    fn restart(&self, count: u32) {
        self.lock().last = count;
    }

    /// Gives none of the first `count` tracks.
    fn skip(&self, count: u32) {
        let mut numbering = self.lock();
        numbering.last = numbering.last.max(count);
    }

    fn take(&self, ids: impl Iterator<Item = u32>) {
        self.lock().taken = ids.collect();
    }

    /// The next one; none if all were given.
    pub(crate) fn next(&self) -> Option<u32> {
        let mut numbering = self.lock();
        loop {
            numbering.last = numbering.last.checked_add(1)?;
            if !numbering.taken.contains(&numbering.last) {
                return Some(numbering.last);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Numbering> {
        self.0.lock()
    }
}

/// The orders of a run. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Orders(Arc<Ranked<State, 70>>);

#[derive(Debug, Default)]
struct State {
    /// More frames will come.
    is_running: bool,
    /// Orders about tracks: carried out when a frame is decided.
    tracking: Queue,
    /// Orders about the search: carried out when a frame is submitted.
    searching: Queue,
    numbers: Numbers,
    /// Number of frames that are kept for boxes that are given in a frame that has passed...
    kept: usize,
    /// ...and how many of them the orders need that are given again.
    needed: usize,
}

impl State {
    fn queue(&mut self, order: &Order) -> &mut Queue {
        if matches!(order, Order::Change(_)) { &mut self.searching } else { &mut self.tracking }
    }
}

/// Orders that wait for a frame.
#[derive(Debug, Default)]
struct Queue {
    /// By the frames from which they held.
    repeated: VecDeque<Repeated>,
    waiting: VecDeque<Asked>,
}

impl Queue {
    fn due(&mut self, frame: u64) -> Vec<Asked> {
        let mut due = Vec::new();
        while self.repeated.front().is_some_and(|repeated| repeated.frame <= frame) {
            let repeated = self.repeated.pop_front();
            due.extend(repeated.map(|Repeated { order, refused, .. }| Asked {
                order,
                refused,
                answer: None,
            }));
        }
        due.extend(self.waiting.drain(..));
        due
    }
}

/// An order, and the channel for its answer.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) order: Order,
    /// The reason for its refusal in the repeated run, if it was refused.
    pub(crate) refused: Option<String>,
    answer: Option<Sender<Result<u64>>>,
}

impl Asked {
    /// An order that the run gives to itself, without an answer.
    pub(crate) fn own(order: Order) -> Self {
        Self { order, refused: None, answer: None }
    }

    /// As in the run that is repeated.
    ///
    /// # Errors
    /// Why it was refused there, if it was.
    pub(crate) fn as_before(&self) -> Result<()> {
        let order = || self.order.to_string();
        let refused = self.refused.clone();
        refused.map_or(Ok(()), |reason| Err(Error::Order { order: order(), reason }))
    }

    pub(crate) fn answer(self, answer: Result<u64>) {
        // The receiver may be gone.
        let _ = self.answer.map(|to| to.send(answer));
    }
}

impl Orders {
    /// Queues the order that `order` makes of a number.
    pub(crate) fn ask(&self, order: impl FnOnce(&Numbers) -> Option<Order>) -> Result<Reply> {
        let refused = |order: &str, reason: &str| {
            Err(Error::Order { order: order.to_owned(), reason: reason.to_owned() })
        };
        let mut state = self.lock();
        if !state.is_running {
            return refused("carry out an order", "no run is active: it has not begun, or has ended");
        }
        let waiting = [&state.tracking, &state.searching].map(|queue| queue.waiting.len());
        if waiting.into_iter().sum::<usize>() >= MOST_WAITING {
            return refused(
                "carry out an order",
                &format!("{MOST_WAITING} orders wait for the next frame already"),
            );
        }
        let Some(order) = order(&state.numbers) else {
            return refused("follow", "all numbers of tracks were given");
        };
        let (to, answer) = crossbeam_channel::bounded(1);
        let reply = Reply { id: order.id(), order: order.to_string(), answer };
        state.queue(&order).waiting.push_back(Asked { order, refused: None, answer: Some(to) });
        Ok(reply)
    }

    pub(crate) fn repeat(&self, mut orders: Vec<Repeated>) {
        orders.sort_by_key(|repeated| repeated.frame);
        let mut state = self.lock();
        let oldest = orders.iter().map(|repeated| repeated.order.age(repeated.frame)).max().unwrap_or(0);
        state.needed = oldest as usize;
        let begun = orders.iter().filter_map(|repeated| match repeated.order {
            Order::Follow { id, .. } => Some(id),
            _ => None,
        });
        state.numbers.take(begun);
        (state.tracking.repeated, state.searching.repeated) = Default::default();
        for order in orders {
            state.queue(&order.order).repeated.push_back(order);
        }
    }

    pub(crate) fn keep(&self, frames: usize) {
        self.lock().kept = frames;
    }

    pub(crate) fn kept(&self) -> usize {
        let state = self.lock();
        state.kept.max(state.needed)
    }

    /// Accepts orders for a run that begins and follows so many boxes from the start.
    pub(crate) fn begin(&self, tracks: u32) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.is_running, true) {
            state.numbers.skip(tracks);
        } else {
            state.numbers.restart(tracks);
        }
    }

    /// True between [`Self::begin`] and [`Self::end`].
    pub(crate) fn are_taken(&self) -> bool {
        self.lock().is_running
    }

    /// The numbers that the run gives to tracks.
    pub(crate) fn numbers(&self) -> Numbers {
        self.lock().numbers.clone()
    }

    /// Orders about tracks that hold from this frame on.
    pub(crate) fn due(&self, frame: u64) -> Vec<Asked> {
        self.lock().tracking.due(frame)
    }

    /// Orders about the search that hold from this frame on.
    pub(crate) fn changes_due(&self, frame: u64) -> Vec<Asked> {
        self.lock().searching.due(frame)
    }

    /// Removes and returns the repeated orders whose frames never came, by their frames.
    pub(crate) fn take_left(&self) -> Vec<Repeated> {
        let mut state = self.lock();
        let queues =
            [std::mem::take(&mut state.tracking.repeated), std::mem::take(&mut state.searching.repeated)];
        drop(state);
        let mut left: Vec<_> = queues.into_iter().flatten().collect();
        left.sort_by_key(|repeated| repeated.frame);
        left
    }

    /// Refuses waiting orders after the last frame.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.is_running = false;
        state.tracking.waiting.clear();
        state.searching.waiting.clear();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow(orders: &Orders) -> Result<Reply> {
        let rect = Rect::new(1, 2, 3, 4);
        orders.ask(|numbers| Some(Order::Follow { id: numbers.next()?, rect, at: None }))
    }

    #[test]
    fn an_order_is_refused_before_a_run_begins_and_after_it_has_ended() {
        let orders = Orders::default();
        let said = follow(&orders).unwrap_err().to_string();
        assert!(said.starts_with("cannot carry out an order: no run is active"), "{said}");
        orders.begin(0);
        let reply = follow(&orders).unwrap();
        orders.end();
        assert!(reply.wait(Duration::ZERO).unwrap_err().to_string().contains("the run has ended"));
        assert!(follow(&orders).is_err());
    }

    #[test]
    fn an_answer_that_is_late_is_none_and_one_that_refuses_is_no_late_one() {
        let orders = Orders::default();
        orders.begin(0);
        let reply = follow(&orders).unwrap();
        assert!(reply.poll_for(Duration::from_millis(1)).is_none() && reply.poll().is_none());
        assert!(reply.wait(Duration::ZERO).unwrap_err().to_string().contains("no frame has come"));
        let why = || Error::Order { order: "follow".into(), reason: "it has passed".into() };
        orders.due(7).into_iter().for_each(|asked| asked.answer(Err(why())));
        let refused = reply.poll_for(Duration::ZERO).expect("it was answered");
        assert!(refused.unwrap_err().to_string().contains("it has passed"));
    }

    #[test]
    fn no_more_orders_wait_than_may() {
        let orders = Orders::default();
        orders.begin(0);
        let replies: Vec<_> = (0..MOST_WAITING).map(|_| follow(&orders).unwrap()).collect();
        assert!(follow(&orders).unwrap_err().to_string().contains("4096 orders wait"));
        assert_eq!(orders.due(7).len(), replies.len());
        assert!(follow(&orders).is_ok());
    }

    #[test]
    fn a_number_is_given_once_and_not_to_others_than_in_the_run_that_is_repeated() {
        let numbers = Numbers::after(2);
        numbers.take([4, 5, 9].into_iter());
        assert_eq!((0..4).map(|_| numbers.next()).collect::<Vec<_>>(), [3, 6, 7, 8].map(Some));
        assert_eq!(numbers.next(), Some(10));
        assert_eq!(Numbers::after(u32::MAX).next(), None);
    }

    #[test]
    fn orders_are_repeated_at_their_frames_and_the_frames_that_they_need_are_kept() {
        let orders = Orders::default();
        let order = |id, at| Order::Follow { id, rect: Rect::new(1, 2, 3, 4), at };
        let repeated = |frame, order| Repeated { frame, order, refused: None };
        let late = repeated(12, Order::Change(Box::default()));
        orders.repeat(vec![late.clone(), repeated(11, Order::Clear)]);
        assert_eq!(orders.take_left(), [repeated(11, Order::Clear), late]);
        orders.repeat(vec![
            repeated(9, order(3, Some(2))),
            repeated(5, order(2, None)),
            repeated(9, Order::Clear),
        ]);
        assert_eq!(orders.kept(), 7);
        for (asked, kept) in [(3, 7), (9, 9), (0, 7)] {
            orders.keep(asked);
            assert_eq!(orders.kept(), kept);
        }
        assert!(orders.due(4).is_empty());
        assert_eq!(
            orders.due(6).iter().map(|asked| asked.order.clone()).collect::<Vec<_>>(),
            [order(2, None)]
        );
        assert_eq!(orders.due(9).len(), 2);
        assert!(orders.due(10).is_empty() && orders.take_left().is_empty());
    }
}
