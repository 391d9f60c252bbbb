//! Follows the objects of the mask: which object of a frame is which track of the frame before.
//!
//! A mask shows an object in every frame, so nothing has to be searched for: objects are associated with
//! tracks by their boxes alone, as in SORT (A. Bewley et al., "Simple Online and Realtime Tracking", 2016)
//! and the IOU tracker (E. Bochinski et al., "High-Speed Tracking-by-Detection Without Using Image
//! Information", 2017). The rules, in this order:
//!
//! 1. **Expected.** A track is expected where it was, moved by its velocity times the seconds since the frame
//!    before. Its size is the last one. A velocity is learnt where the size has not jumped.
//! 2. **Associated.** An object may be a track's if their centres are at most [`REACH`] sides of the track's
//!    box apart (a side is the root of its area, as in X. Zhou et al., "Tracking Objects as Points", 2020),
//!    [`FIRST_REACH`] if its velocity is not known, and neither box has more than [`MOST_GROWTH`] times the
//!    area of the other. Of all such pairs the closest is taken, then the closest of those that are left, and
//!    so on: pairs of tracks that were seen in the frame before come first, then those of hidden ones, then
//!    those of candidates; within these the greatest [closeness] first, then the older track, then the object
//!    that comes first in the record. (SORT solves the assignment as a whole instead.)
//! 3. **Merged.** A track that has no object any more lies in the one that covers at least [`COVERED`] of it,
//!    if one does; a track that was merged before, in the one that covers most of it. If that object has at
//!    least [`GROWN`] times the area that its own track is expected to have, or is nobody's, objects have
//!    merged: its track and all that lie in it keep their sizes and go on by their velocities, within its
//!    box, as uncertain. This lasts no longer than each was seen by itself before and [`HIDDEN_SECONDS`]
//!    more: a part of an object that was taken for one does not live on in it. A track alone whose object has
//!    grown so much, away from the border of the picture, has merged with something unknown, such as a
//!    shadow: for [`HIDDEN_SECONDS`], after which that is its size. Where objects part, each track gets the
//!    one that is closest to where it is expected.
//! 4. **Hidden.** Another track without an object is lost: its record has the last box. It ends when that has
//!    lasted [`HIDDEN_SECONDS`], or [`LEFT_SECONDS`] if its object touched the border of the picture.
//! 5. **Begun.** Objects that are no track's are candidates. One that is seen in [`CONFIRMATIONS`] frames in
//!    a row becomes a track with a new number. An object that splits is continued by its closest part; the
//!    other parts begin.
//!
//! Objects that a box given by `--track` or an order lies on are that track's. All numbers are f64, computed
//! in the order that is written here. Nothing depends on a device or on threads.
//!
//! [closeness]: closeness

use std::sync::Arc;

use crate::config::TimeSpan;
use crate::frame::{Size, iou, visible};
use crate::orders::Numbers;
use crate::results::{Object, Track, TrackState};

/// Frames in a row in which an object must be seen: SORT's least hits.
const CONFIRMATIONS: u32 = 3;

/// Sides of a track's box between where it is expected and its object, and between an object that was seen
/// once and the same in the next frame.
const REACH: f64 = 1.0;
const FIRST_REACH: f64 = 2.0;

/// How much larger or smaller than its track an object may be: it grows and shrinks at borders, and when it
/// merges with others.
const MOST_GROWTH: f64 = 4.0;

/// A track lies in an object that covers so much of its box.
const COVERED: f64 = 0.5;

/// An object that has so many times the area that its track is expected to have has merged with another: one
/// that passes behind it makes it no larger, two of a size that touch make it twice as large.
const GROWN: f64 = 1.4;

/// A box that was given explains an object that overlaps it so much, as it explains matches.
const SAME: f64 = 0.3;

/// A track that is hidden for so long ends. `ByteTrack` and `NvDCF` keep one for 30 frames.
const HIDDEN_SECONDS: f64 = 1.0;

/// As [`HIDDEN_SECONDS`], if it was at the border when it was last seen: the next object there is as likely
/// another one.
const LEFT_SECONDS: f64 = 0.5;

/// Share of a new velocity in the velocity of a track: the border of a mask is never quite still.
const LEARNT: f64 = 0.5;

/// Maximum tracks, and maximum objects of a frame that are associated: the largest ones. More than that are
/// noise, or a texture.
const MOST_TRACKS: usize = 256;
const MOST_OBJECTS: usize = 1024;

/// The word by which tracks of objects are known: their [`Track::template`].
pub const OBJECT_LABEL: &str = "object";

/// The tracks of a mask's objects.
pub(super) struct Blobs {
    /// In the order in which they were first seen.
    all: Vec<Blob>,
    label: Arc<str>,
    hidden_seconds: f64,
    /// The objects that are associated, by their places in the record, ascending.
    chosen: Vec<usize>,
    /// Which of the record's objects are some track's.
    taken: Vec<bool>,
    /// Kept for their allocations.
    pairs: Vec<Pair>,
    covers: Vec<Option<usize>>,
    /// The log has a line that there are too many tracks, or objects.
    is_full: bool,
    has_too_many: bool,
}

/// A track, or a candidate for one.
#[derive(Debug, Clone)]
struct Blob {
    /// None while it is a candidate.
    id: Option<u32>,
    /// Its box when it was last seen, or where it must be in a merged object.
    at: [f64; 4],
    /// Its box when it was last seen by itself, and the seconds since then.
    seen_at: [f64; 4],
    unseen: f64,
    /// Where it is expected in this frame.
    expected: [f64; 4],
    /// Pixels a second, once it was seen twice.
    velocity: Option<[f64; 2]>,
    sightings: u32,
    /// For how long it was seen by itself, since it was last merged.
    seen: f64,
    /// For how long it has been in a merged object.
    merged: f64,
    /// For how long it has been hidden; 0 while it is not.
    hidden: f64,
    was_at_border: bool,
    state: TrackState,
    /// The place of its object in the record.
    object: Option<usize>,
    score: f64,
}

/// A track and an object that may be one, by their places.
#[derive(Debug, Clone, Copy)]
struct Pair {
    blob: usize,
    object: usize,
    /// 0 for a track that was seen, 1 for a hidden one, 2 for a candidate.
    rank: u8,
    closeness: f64,
}

impl Blobs {
    pub(super) fn new() -> Self {
        Self {
            all: Vec::new(),
            label: OBJECT_LABEL.into(),
            hidden_seconds: HIDDEN_SECONDS,
            chosen: Vec::new(),
            taken: Vec::new(),
            pairs: Vec::new(),
            covers: Vec::new(),
            is_full: false,
            has_too_many: false,
        }
    }

    /// Ends tracks that are hidden for so long, instead of [`HIDDEN_SECONDS`].
    pub(super) fn end_hidden_after(&mut self, limit: TimeSpan) {
        self.hidden_seconds = limit.ns as f64 * 1e-9;
    }

    /// The numbers of the tracks.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.all.iter().filter_map(|blob| blob.id)
    }

    /// Ends these tracks. The objects that they followed may begin new ones.
    pub(super) fn forget(&mut self, is_meant: impl Fn(u32) -> bool) {
        self.all.retain(|blob| !blob.id.is_some_and(&is_meant));
    }

    /// Frames have another size from now on.
    pub(super) fn rescale(&mut self, x: f64, y: f64) {
        for blob in &mut self.all {
            for [left, top, w, h] in [&mut blob.at, &mut blob.seen_at, &mut blob.expected] {
                (*left, *top, *w, *h) = (*left * x, *top * y, *w * x, *h * y);
            }
            blob.velocity = blob.velocity.map(|[vx, vy]| [vx * x, vy * y]);
        }
    }

    /// Follows all tracks into a frame of that size, `seconds` after the frame before, and appends their
    /// records to `tracks`, which from `given` on has those of boxes that were given.
    pub(super) fn step(
        &mut self,
        objects: &[Object],
        frame: Size,
        seconds: f64,
        numbers: &Numbers,
        given: usize,
        tracks: &mut Vec<Track>,
    ) {
        self.choose(objects, &tracks[given..]);
        for blob in &mut self.all {
            blob.expect(seconds);
        }
        self.associate(objects, seconds);
        self.merge(objects, seconds);
        let limit = self.hidden_seconds;
        self.all.retain(|blob| {
            let is_over = match blob.id {
                None => blob.object.is_none(),
                Some(_) if blob.state != TrackState::Lost => false,
                Some(_) => {
                    let has_left = blob.was_at_border || visible(blob.expected, frame) <= 0.0;
                    blob.hidden >= if has_left { LEFT_SECONDS.min(limit) } else { limit }
                }
            };
            if let (true, Some(id)) = (is_over, blob.id) {
                tracing::debug!("track {id} (object) ends");
            }
            !is_over
        });
        self.begin(objects);
        self.confirm(numbers);
        let label = &self.label;
        let record = |blob: &Blob| blob.record(label);
        tracks.extend(self.all.iter().filter_map(record));
    }

    /// Chooses the objects to associate: those that no given box lies on, the largest if they are too many.
    fn choose(&mut self, objects: &[Object], given: &[Track]) {
        let Self { chosen, taken, has_too_many, .. } = self;
        taken.clear();
        taken.resize(objects.len(), false);
        for track in given.iter().filter(|track| track.state != TrackState::Lost) {
            let overlap = |object: &Object| iou(track.bounds(), object.rect().bounds());
            let mut best: Option<(usize, f64)> = None;
            for (place, object) in objects.iter().enumerate().filter(|(place, _)| !taken[*place]) {
                let iou = overlap(object);
                if iou >= SAME && best.is_none_or(|(_, least)| iou > least) {
                    best = Some((place, iou));
                }
            }
            if let Some((place, _)) = best {
                taken[place] = true;
            }
        }
        chosen.clear();
        chosen.extend((0..objects.len()).filter(|place| !taken[*place]));
        if chosen.len() > MOST_OBJECTS {
            let by_area = |place: &usize| (std::cmp::Reverse(objects[*place].area), *place);
            chosen.select_nth_unstable_by_key(MOST_OBJECTS - 1, by_area);
            chosen.truncate(MOST_OBJECTS);
            chosen.sort_unstable();
            if !std::mem::replace(has_too_many, true) {
                let count = objects.len();
                tracing::warn!(
                    "a frame has {count} objects, of which the {MOST_OBJECTS} largest are followed: --open and --object-area leave \
                     out noise"
                );
            }
        }
    }

    /// Rule 2.
    fn associate(&mut self, objects: &[Object], seconds: f64) {
        let Self { all: blobs, chosen, taken, pairs, .. } = self;
        pairs.clear();
        for (place, blob) in blobs.iter().enumerate() {
            let rank = match blob.id {
                None => 2,
                Some(_) => u8::from(blob.state == TrackState::Lost),
            };
            let of_blob = chosen.iter().filter_map(|&object| {
                let at = objects[object].rect().bounds();
                let closeness = blob.may_be(at).then(|| closeness(blob.expected, at))?;
                Some(Pair { blob: place, object, rank, closeness })
            });
            pairs.extend(of_blob);
        }
        pairs.sort_unstable_by(|a, b| {
            let order = a.rank.cmp(&b.rank).then(b.closeness.total_cmp(&a.closeness));
            order.then((a.blob, a.object).cmp(&(b.blob, b.object)))
        });
        for blob in blobs.iter_mut() {
            blob.object = None;
        }
        for &Pair { blob, object, .. } in &*pairs {
            if blobs[blob].object.is_none() && !taken[object] {
                taken[object] = true;
                blobs[blob].object = Some(object);
            }
        }
        for blob in blobs.iter_mut() {
            blob.unseen += seconds;
        }
    }

    /// Rule 3, and the boxes and states of all tracks.
    fn merge(&mut self, objects: &[Object], seconds: f64) {
        let Self { all: blobs, chosen, taken, covers, .. } = self;
        covers.clear();
        covers.extend(blobs.iter().map(|blob| {
            if blob.object.is_some() || blob.id.is_none() || blob.state == TrackState::Lost {
                return None;
            }
            let least = if blob.merged > 0.0 { f64::MIN_POSITIVE } else { COVERED };
            let mut most: Option<(usize, f64)> = None;
            for &object in chosen.iter() {
                let share = covered(blob.expected, objects[object].rect().bounds());
                if share >= least && most.is_none_or(|(_, least)| share > least) {
                    most = Some((object, share));
                }
            }
            most.map(|(object, _)| object)
        }));
        // Whether the objects that something lies in are merged ones, before any track moves.
        let is_merged = |object: usize| {
            let at = objects[object].rect().bounds();
            let owner = blobs.iter().find(|blob| blob.object == Some(object));
            owner.is_none_or(|owner| area(at) >= GROWN * area(owner.expected))
        };
        let merged: Vec<usize> = {
            let mut merged: Vec<usize> =
                covers.iter().flatten().copied().filter(|object| is_merged(*object)).collect();
            merged.sort_unstable();
            merged.dedup();
            merged
        };
        for (blob, cover) in blobs.iter_mut().zip(&*covers) {
            let is_with_others = |object: &usize| merged.binary_search(object).is_ok();
            let has_jumped = |object: &usize| {
                let Object { touches_border, .. } = objects[*object];
                let at = objects[*object].rect().bounds();
                !touches_border && !blob.was_at_border && area(at) >= GROWN * area(blob.expected)
            };
            let (within, most) = match cover.or(blob.object) {
                Some(object) if is_with_others(&object) => (Some(object), blob.seen + HIDDEN_SECONDS),
                Some(object) if has_jumped(&object) => (blob.object, HIDDEN_SECONDS),
                _ => (None, 0.0),
            };
            let may_merge = blob.id.is_some() && blob.merged + seconds <= most;
            match (within, blob.object) {
                (Some(object), _) if may_merge => {
                    taken[object] = true;
                    blob.go_on_in(object, &objects[object], seconds);
                }
                (_, Some(object)) => blob.see(object, &objects[object], seconds),
                (_, None) => blob.hide(seconds),
            }
        }
    }

    /// The first half of rule 5.
    fn begin(&mut self, objects: &[Object]) {
        let Self { all: blobs, chosen, taken, .. } = self;
        let new = chosen.iter().filter(|object| !taken[**object]);
        blobs.extend(new.map(|&object| Blob::new(object, &objects[object])));
    }

    /// The second half of rule 5.
    fn confirm(&mut self, numbers: &Numbers) {
        let mut count = self.ids().count();
        let Self { all: blobs, is_full, .. } = self;
        for blob in blobs.iter_mut().filter(|blob| blob.id.is_none() && blob.sightings >= CONFIRMATIONS) {
            blob.id = if count < MOST_TRACKS { numbers.next() } else { None };
            if let Some(id) = blob.id {
                count += 1;
                tracing::debug!("track {id} (object) begins");
            } else if !std::mem::replace(is_full, true) {
                tracing::warn!("{MOST_TRACKS} objects are followed, others have to wait until one ends");
            }
        }
    }
}

impl Blob {
    fn new(place: usize, object: &Object) -> Self {
        let at = object.rect().bounds();
        Self {
            id: None,
            at,
            seen_at: at,
            unseen: 0.0,
            expected: at,
            velocity: None,
            sightings: 1,
            seen: 0.0,
            merged: 0.0,
            hidden: 0.0,
            was_at_border: object.touches_border,
            state: TrackState::Tracked,
            object: Some(place),
            score: 1.0,
        }
    }

    /// Rule 1.
    fn expect(&mut self, seconds: f64) {
        let [vx, vy] = self.velocity.unwrap_or_default();
        self.expected[0] += vx * seconds;
        self.expected[1] += vy * seconds;
    }

    /// True if an object's box may be its own.
    fn may_be(&self, at: [f64; 4]) -> bool {
        let reach = if self.velocity.is_none() { FIRST_REACH } else { REACH };
        let [dx, dy] = offset(self.expected, at);
        let (before, now) = (area(self.expected), area(at));
        dx * dx + dy * dy <= reach * reach * before
            && now <= MOST_GROWTH * before
            && before <= MOST_GROWTH * now
    }

    /// It is an object.
    fn see(&mut self, place: usize, object: &Object, seconds: f64) {
        let at = object.rect().bounds();
        self.score = iou(self.expected, at);
        let [dx, dy] = offset(self.seen_at, at);
        let now = [dx / self.unseen, dy / self.unseen];
        let (most, least) = (area(self.seen_at).max(area(at)), area(self.seen_at).min(area(at)));
        self.velocity = match self.velocity {
            None => Some(now),
            Some(before) if most < GROWN * least => {
                Some(std::array::from_fn(|axis| before[axis] + LEARNT * (now[axis] - before[axis])))
            }
            before => before,
        };
        (self.at, self.seen_at, self.expected) = (at, at, at);
        self.sightings = self.sightings.saturating_add(1);
        if self.merged > 0.0 {
            self.seen = 0.0;
        }
        self.seen += seconds;
        (self.merged, self.hidden, self.unseen) = (0.0, 0.0, 0.0);
        self.was_at_border = object.touches_border;
        self.state =
            if self.state == TrackState::Lost { TrackState::Reacquired } else { TrackState::Tracked };
        self.object = Some(place);
    }

    /// It is a part of a merged object.
    fn go_on_in(&mut self, place: usize, object: &Object, seconds: f64) {
        let [left, top, width, height] = object.rect().bounds();
        let [x, y, w, h] = self.expected;
        self.score = covered(self.expected, [left, top, width, height]);
        self.expected = [within(x, w, left, width), within(y, h, top, height), w, h];
        self.at = self.expected;
        self.merged += seconds;
        self.hidden = 0.0;
        self.was_at_border = object.touches_border;
        self.state = TrackState::Uncertain;
        self.object = Some(place);
    }

    /// It is nowhere.
    fn hide(&mut self, seconds: f64) {
        self.hidden += seconds;
        (self.state, self.object, self.score) = (TrackState::Lost, None, 0.0);
    }

    /// Its record; none for a candidate.
    fn record(&self, label: &Arc<str>) -> Option<Track> {
        let [x, y, w, h] = self.at.map(|v| libm::round(v * 1000.0) / 1000.0);
        Some(Track {
            id: self.id?,
            name: None,
            template: Some(label.clone()),
            state: self.state,
            x,
            y,
            w,
            h,
            score: self.score,
            second_peak_ratio: 0.0,
            object: self.object.map(|place| place as u32 + 1),
        })
    }
}

/// How close two boxes are, in [-1, 1]: their intersection over union, less the square of the distance of
/// their centres over the square of the diagonal of the box around both (Z. Zheng et al., "Distance-IoU
/// Loss", 2020). It also orders boxes that do not overlap.
fn closeness(a: [f64; 4], b: [f64; 4]) -> f64 {
    let ([ax, ay, aw, ah], [bx, by, bw, bh]) = (a, b);
    let (w, h) = ((ax + aw).max(bx + bw) - ax.min(bx), (ay + ah).max(by + bh) - ay.min(by));
    let [dx, dy] = offset(a, b);
    iou(a, b) - (dx * dx + dy * dy) / (w * w + h * h)
}

/// From the centre of one box to that of another.
fn offset([ax, ay, aw, ah]: [f64; 4], [bx, by, bw, bh]: [f64; 4]) -> [f64; 2] {
    [bx + bw / 2.0 - (ax + aw / 2.0), by + bh / 2.0 - (ay + ah / 2.0)]
}

fn area([_, _, w, h]: [f64; 4]) -> f64 {
    w * h
}

/// The share of one box that lies in another.
fn covered(a: [f64; 4], b: [f64; 4]) -> f64 {
    let overlap = |axis: usize| {
        let length = (a[axis] + a[axis + 2]).min(b[axis] + b[axis + 2]) - a[axis].max(b[axis]);
        length.max(0.0)
    };
    overlap(0) * overlap(1) / area(a)
}

/// Where a length begins that is moved into another, or to the middle of a shorter one.
fn within(at: f64, length: f64, from: f64, room: f64) -> f64 {
    if length >= room { from + (room - length) / 2.0 } else { at.max(from).min(from + room - length) }
}

#[cfg(test)]
mod tests;
