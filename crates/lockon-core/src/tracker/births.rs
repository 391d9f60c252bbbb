//! Turns matches into tracks, and ends these tracks.
//!
//! Tracking by detection: a match in one frame may be a mistake, and a missing one may be due to the
//! template, since the tracker follows the object even when it no longer looks like it. The rules are those
//! of SORT (A. Bewley et al., "Simple Online and Realtime Tracking", 2016), `ByteTrack` (Y. Zhang et al.,
//! 2022) and NVIDIA's `NvDCF` (probation, shadow tracking), in this order:
//!
//! 1. **Owned.** A match that overlaps a track is that track's. Each goes to the track that it overlaps most,
//!    one to a track; those that were held in the frame before come first.
//! 2. **Born.** A match that no track explains is a candidate. Found again in each of [`CONFIRMATIONS`]
//!    frames it becomes a track with a new number; one miss ends it.
//! 3. **Resumed.** If a track of the same template is not held (in doubt, whatever its score, lost, or lying
//!    on another track without a match of its own) and near enough, the candidate is that track, which goes
//!    on from there under its number.
//! 4. **Ended.** A track that is not held for [`LOST_SECONDS`] ends, sooner where it left the frame; so does
//!    one that the tracker found again where it cannot have gone by then, or where another is followed. What
//!    is there gets its own number.
//!
//! Boxes that were given are never ended or resumed: they only own matches.
//!
//! Detections are handled in the same way, with three differences: a detector has a threshold of its own, so
//! one sighting is enough; it need not look at every frame; and it knows the object's borders, which a
//! template's match does not:
//!
//! 5. **Corrected.** A detection that a held track owns says where that track's box should be. If it overlaps
//!    the track by less than [`AGREED`], the track has come off: it begins again there, under its number.
//!    Therefore a held track that would own nothing owns what it [touches](TOUCHED) of its class, if no other
//!    does.

use std::sync::Arc;

use super::flat;
use crate::config::TimeSpan;
use crate::frame::{Frame, Rect, Size, iou, visible};
use crate::orders::Numbers;
use crate::results::{Detection, Match, Track, TrackState};

/// Frames in succession in which a candidate must be found: SORT's least hits. A single false match is
/// common, the same one three times is not.
const CONFIRMATIONS: u32 = 3;

/// Boxes that overlap so much show one object: SORT's minimum intersection over union, and the default for
/// how much two matches of one template may overlap. It is low because the tracker's box need not have the
/// template's borders.
const SAME: f64 = 0.3;

/// A detection that overlaps its track by less than this is not merely more exact: the track has drifted.
const AGREED: f64 = 0.5;

/// A detection is looked for no farther from a track that has come off: a box that overlaps another by so
/// little may be another object beside it.
const TOUCHED: f64 = 0.1;

/// A track that is not held for so long ends. `ByteTrack` and `NvDCF` keep one for 30 frames, a second or so;
/// the tracker's own search needs up to another to have looked at the whole of a large frame.
const LOST_SECONDS: f64 = 2.0;

/// As [`LOST_SECONDS`], for a track with less than this share of its last box in the frame: it left, and the
/// next object there is as likely another one. Long enough for an object that wavers at the border.
const LEFT_SECONDS: f64 = 0.5;
const LEFT: f64 = 0.9;

/// How far an object may have moved while it was not held, in diagonals of its box: one at once, as the
/// tracker's window allows, and one more each second, which walkers and cars in most views do not exceed.
const REACH: f64 = 1.0;
const REACH_PER_SECOND: f64 = 1.0;

/// Tracks of matches at once: each takes its time in every frame, more while it is lost.
const MOST_TRACKS: usize = 16;
/// Candidates at once: more matches than that which no track explains are noise.
const MOST_CANDIDATES: usize = 4 * MOST_TRACKS;

/// The evidence in frames that tracks are made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Evidence {
    /// Matches of templates.
    Matches,
    /// Detections. The detector looks at some frames only, so a frame without any means nothing.
    Detections,
}

/// An object that was found in a frame.
struct Found {
    name: Arc<str>,
    at: Rect,
}

/// Makes tracks of matches or detections, and ends them.
pub(super) struct Births {
    evidence: Evidence,
    /// The objects found in this frame.
    found: Vec<Found>,
    lives: Vec<Life>,
    candidates: Vec<Candidate>,
    /// Tracks that ended in this frame, or continue from another place.
    replaced: Vec<u32>,
    begun: Vec<Begun>,
    /// The boxes of tracks by detections, by the tracks' numbers.
    corrected: Vec<(u32, Rect)>,
    /// Pairs that may belong together; which match or detection a track owns, by its place in the frame's
    /// record. Kept for their allocations.
    pairs: Vec<Pair>,
    owners: Vec<Option<usize>>,
    /// The log has a line that there are as many tracks as there may be.
    is_full: bool,
    /// A track that is not held for so many seconds ends.
    lost_seconds: f64,
}

/// A track of a match.
struct Life {
    id: u32,
    template: Arc<str>,
    /// Its last box while it was held.
    at: [f64; 4],
    /// For how long it has not been held, in seconds; 0 while it is.
    lost: f64,
    /// The tracker had given it up, and has not found it since.
    was_lost: bool,
}

/// A match that may become a track.
struct Candidate {
    template: Arc<str>,
    at: Rect,
    sightings: u32,
    is_seen: bool,
}

/// A match and a track that overlap, by their places in the frame's record.
struct Pair {
    found: usize,
    track: usize,
    iou: f64,
    was_held: bool,
}

struct Begun {
    id: u32,
    at: Rect,
    is_resumed: bool,
}

impl Births {
    pub(super) fn of(evidence: Evidence) -> Self {
        Self {
            evidence,
            found: Vec::new(),
            lives: Vec::new(),
            candidates: Vec::new(),
            replaced: Vec::new(),
            begun: Vec::new(),
            corrected: Vec::new(),
            pairs: Vec::new(),
            owners: Vec::new(),
            is_full: false,
            lost_seconds: LOST_SECONDS,
        }
    }

    /// Ends tracks that are not held for so long, instead of [`LOST_SECONDS`].
    pub(super) fn end_lost_after(&mut self, limit: TimeSpan) {
        self.lost_seconds = limit.ns as f64 * 1e-9;
    }

    /// True if the track ended in the last frame, or begins again elsewhere.
    pub(super) fn is_replaced(&self, id: u32) -> bool {
        self.replaced.contains(&id)
    }

    /// Numbers and boxes of the tracks that begin in the last frame, or begin again.
    pub(super) fn begun(&self) -> impl Iterator<Item = (u32, Rect)> {
        self.begun.iter().map(|begun| (begun.id, begun.at))
    }

    /// The boxes of continuing tracks by detections of the last frame, by the tracks' numbers.
    pub(super) fn corrected(&self) -> &[(u32, Rect)] {
        &self.corrected
    }

    /// Frames have another size from now on. Candidates are found again in them.
    pub(super) fn rescale(&mut self, x: f64, y: f64) {
        for life in &mut self.lives {
            let [left, top, w, h] = life.at;
            life.at = [left * x, top * y, w * x, h * y];
        }
        self.candidates.clear();
    }

    /// Removes these tracks, which the user no longer wants. The objects that they followed may begin new
    /// ones.
    pub(super) fn forget(&mut self, is_meant: impl Fn(u32) -> bool) {
        self.lives.retain(|life| !is_meant(life.id));
    }

    /// Takes in the matches of the next frame. True if there are none, as before.
    pub(super) fn see(&mut self, matches: &[Match], detections: &[Detection]) -> bool {
        self.found.clear();
        match self.evidence {
            Evidence::Matches => {
                let found = |m: &Match| Found { name: m.template.clone(), at: m.rect() };
                self.found.extend(matches.iter().map(found));
            }
            Evidence::Detections => {
                let found = |d: &Detection| Found { name: d.label.clone(), at: d.rect() };
                self.found.extend(detections.iter().map(found));
            }
        }
        self.found.is_empty() && self.candidates.is_empty() && self.lives.is_empty()
    }

    /// Decides which tracks end and begin in the frame that was last given to [`Self::see`], `seconds` after
    /// the frame before; all tracks, given ones included, are in `tracks`.
    pub(super) fn decide(&mut self, frame: &Frame, seconds: f64, tracks: &[Track], numbers: &Numbers) {
        self.replaced.clear();
        self.begun.clear();
        self.corrected.clear();
        self.pair(tracks);
        self.end(frame.format.size, seconds, tracks);
        if self.evidence == Evidence::Detections {
            self.correct(frame, tracks);
        }
        self.sight(tracks);
        self.confirm(frame, numbers);
    }

    /// Sightings after which a candidate is a track.
    fn confirmations(&self) -> u32 {
        match self.evidence {
            Evidence::Matches => CONFIRMATIONS,
            Evidence::Detections => 1,
        }
    }

    /// Writes into the records of tracks the fields that only this knows.
    pub(super) fn label(&self, tracks: &mut [Track]) {
        for track in tracks {
            if let Some(life) = self.lives.iter().find(|life| life.id == track.id) {
                track.template = Some(life.template.clone());
            }
            if self.begun.iter().any(|begun| begun.id == track.id && begun.is_resumed) {
                track.state = TrackState::Reacquired;
            }
        }
    }

    /// Rule 1, and the end of rule 5.
    fn pair(&mut self, tracks: &[Track]) {
        let Self { evidence, found, lives, pairs, owners, .. } = self;
        pairs.clear();
        for (found, Found { name, at }) in found.iter().enumerate() {
            pairs.extend(tracks.iter().enumerate().filter_map(|(track, t)| {
                let iou = iou(t.bounds(), at.bounds());
                let life = lives.iter().find(|life| life.id == t.id);
                let was_held = life.is_none_or(|life| life.lost == 0.0);
                let is_off = || {
                    let is_its_class = life.is_some_and(|life| was_held && life.template == *name);
                    *evidence == Evidence::Detections && iou >= TOUCHED && is_its_class
                };
                (iou >= SAME || is_off()).then_some(Pair { found, track, iou, was_held })
            }));
        }
        pairs.sort_unstable_by(|a, b| {
            let order = (b.iou >= SAME).cmp(&(a.iou >= SAME)).then(b.was_held.cmp(&a.was_held));
            order.then(b.iou.total_cmp(&a.iou)).then((a.found, a.track).cmp(&(b.found, b.track)))
        });
        owners.clear();
        owners.resize(tracks.len(), None);
        // Once a pair is taken, other pairs of its match and its track are of no use.
        let mut taken = 0;
        while taken < pairs.len() {
            let Pair { found, track, .. } = pairs[taken];
            owners[track] = Some(found);
            taken += 1;
            let mut place = 0;
            pairs.retain(|pair| {
                place += 1;
                place <= taken || pair.found != found && pair.track != track
            });
        }
    }

    /// True if a track shows its object: it is sure, and does not lie on another that has the match there.
    fn is_held(owners: &[Option<usize>], tracks: &[Track], index: usize) -> bool {
        let track = &tracks[index];
        let is_double = || {
            let owned = tracks.iter().zip(owners).filter(|(_, owned)| owned.is_some());
            owned.map(|(other, _)| iou(other.bounds(), track.bounds())).any(|iou| iou >= SAME)
        };
        is_sure(track.state) && (owners[index].is_some() || !is_double())
    }

    /// Rule 4.
    fn end(&mut self, frame: Size, seconds: f64, tracks: &[Track]) {
        let Self { lives, owners, replaced, lost_seconds, .. } = self;
        lives.retain_mut(|life| {
            let Some(index) = tracks.iter().position(|track| track.id == life.id) else { return false };
            let now = tracks[index].bounds();
            let state = tracks[index].state;
            // Also where it was followed elsewhere until now.
            let is_found = state == TrackState::Reacquired || life.was_lost && is_sure(state);
            life.was_lost = !is_found && (life.was_lost || state == TrackState::Lost);
            let is_held = Self::is_held(owners, tracks, index);
            let goes_on = if is_found && !(is_held && life.reaches(now)) {
                false
            } else if is_held {
                (life.at, life.lost) = (now, 0.0);
                true
            } else {
                life.lost += seconds;
                let has_left = visible(life.at, frame) < LEFT;
                let limit = if has_left { LEFT_SECONDS.min(*lost_seconds) } else { *lost_seconds };
                life.lost < limit
            };
            if !goes_on {
                tracing::debug!("track {} ({}) ends", life.id, life.template);
                replaced.push(life.id);
            }
            goes_on
        });
    }

    /// Rule 5.
    fn correct(&mut self, frame: &Frame, tracks: &[Track]) {
        let Self { found, lives, replaced, begun, corrected, owners, .. } = self;
        for (track, found) in
            tracks.iter().zip(&*owners).filter_map(|(t, owned)| Some((t, &found[(*owned)?])))
        {
            let is_its = |life: &Life| life.id == track.id && life.lost == 0.0 && life.template == found.name;
            if !lives.iter().any(is_its) || replaced.contains(&track.id) {
                continue;
            }
            if iou(track.bounds(), found.at.bounds()) >= AGREED {
                corrected.push((track.id, found.at));
            } else if flat(found.at, frame).is_none() {
                tracing::debug!("track {} ({}) is where it was detected", track.id, found.name);
                replaced.push(track.id);
                begun.push(Begun { id: track.id, at: found.at, is_resumed: false });
            }
        }
    }

    /// The first half of rule 2.
    fn sight(&mut self, tracks: &[Track]) {
        let Self { found, lives, candidates, owners, replaced, .. } = self;
        for candidate in candidates.iter_mut() {
            candidate.is_seen = false;
        }
        for Found { name, at } in found.iter() {
            // A given box explains matches on it even where it is lost: it cannot be resumed.
            let explains = |(index, track): (usize, &Track)| {
                let is_given = !lives.iter().any(|life| life.id == track.id);
                (is_given || Self::is_held(owners, tracks, index))
                    && !replaced.contains(&track.id)
                    && iou(track.bounds(), at.bounds()) >= SAME
            };
            if tracks.iter().enumerate().any(explains) {
                continue;
            }
            let near = candidates
                .iter_mut()
                .filter(|candidate| !candidate.is_seen && candidate.template == *name)
                .filter(|candidate| candidate.at.x.abs_diff(at.x) <= at.w)
                .filter(|candidate| candidate.at.y.abs_diff(at.y) <= at.h)
                .min_by_key(|candidate| candidate.at.x.abs_diff(at.x) + candidate.at.y.abs_diff(at.y));
            if let Some(candidate) = near {
                candidate.at = *at;
                candidate.sightings += 1;
                candidate.is_seen = true;
            } else if candidates.len() < MOST_CANDIDATES {
                candidates.push(Candidate { template: name.clone(), at: *at, sightings: 1, is_seen: true });
            }
        }
        candidates.retain(|candidate| candidate.is_seen);
    }

    /// The second half of rule 2, and rule 3.
    fn confirm(&mut self, frame: &Frame, numbers: &Numbers) {
        let confirmations = self.confirmations();
        let Self { lives, candidates, replaced, begun, is_full, .. } = self;
        candidates.retain(|candidate| {
            if candidate.sightings < confirmations {
                return true;
            }
            let at = candidate.at.bounds();
            // Two templates of one object, or NCC's match on a surface without texture, where any score will
            // do.
            let is_taken = begun.iter().any(|begun| iou(begun.at.bounds(), at) >= SAME);
            if is_taken || flat(candidate.at, frame).is_some() {
                return false;
            }
            let is_free = |life: &&mut Life| life.lost > 0.0 && !begun.iter().any(|b| b.id == life.id);
            let fits = |life: &&mut Life| {
                iou(life.at, at) >= SAME || life.template == candidate.template && life.reaches(at)
            };
            let distance = |life: &&mut Life| distance(life.at, at);
            let resumed = lives
                .iter_mut()
                .filter(is_free)
                .filter(fits)
                .min_by(|a, b| distance(a).total_cmp(&distance(b)));
            if let Some(life) = resumed {
                (life.at, life.lost, life.was_lost) = (at, 0.0, false);
                replaced.push(life.id);
                begun.push(Begun { id: life.id, at: candidate.at, is_resumed: true });
                tracing::debug!("track {} ({}) is resumed", life.id, life.template);
                return false;
            }
            let next = if lives.len() < MOST_TRACKS { numbers.next() } else { None };
            let Some(id) = next else {
                if !std::mem::replace(is_full, true) {
                    tracing::warn!("{MOST_TRACKS} matches are followed, others have to wait until one ends");
                }
                return true;
            };
            tracing::debug!("track {id} ({}) begins", candidate.template);
            lives.push(Life { id, template: candidate.template.clone(), at, lost: 0.0, was_lost: false });
            begun.push(Begun { id, at: candidate.at, is_resumed: false });
            false
        });
    }
}

impl Life {
    /// True if it may have got from where it was last held to `at`.
    fn reaches(&self, at: [f64; 4]) -> bool {
        let [_, _, w, h] = self.at;
        distance(self.at, at) <= (REACH + REACH_PER_SECOND * self.lost) * libm::hypot(w, h)
    }
}

/// True if the tracker is sure that the object is there.
fn is_sure(state: TrackState) -> bool {
    matches!(state, TrackState::Tracked | TrackState::Reacquired)
}

/// The distance between the middles of two boxes.
fn distance([ax, ay, aw, ah]: [f64; 4], [bx, by, bw, bh]: [f64; 4]) -> f64 {
    libm::hypot(ax + aw / 2.0 - bx - bw / 2.0, ay + ah / 2.0 - by - bh / 2.0)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::frame::{Circumstances, FrameMeta, PixelFormat, Plane, VideoFormat};

    /// A frame in which no box is flat.
    fn frame(index: u64) -> Frame {
        let size = Size::new(200, 100);
        let pixels = (0..size.area()).map(|n| (n * 97 % 251) as u8).collect();
        Frame {
            meta: FrameMeta { index, pts_ns: None, duration_ns: None, arrived: Instant::now() },
            circumstances: Circumstances::default(),
            format: Arc::new(VideoFormat {
                size,
                pixels: PixelFormat::GRAY8,
                frame_rate: (25, 1),
                pixel_aspect: (1, 1),
                colorimetry: None,
            }),
            picture: Arc::new(Plane::from_vec(pixels, size)),
        }
    }

    fn detected(label: &str, x: usize, w: usize) -> Detection {
        Detection { label: label.into(), x, y: 10, w, h: 40, score: 1.0 }
    }

    fn track(id: u32, x: f64, state: TrackState) -> Track {
        Track { id, x, y: 10.0, w: 40.0, h: 40.0, state, ..Track::default() }
    }

    /// Births with a track of a `car` at 20, its box 40 pixels wide, which was begun by a detection.
    fn with_a_track() -> (Births, Numbers) {
        let (mut births, numbers) = (Births::of(Evidence::Detections), Numbers::after(0));
        births.see(&[], &[detected("car", 20, 40)]);
        births.decide(&frame(0), 0.04, &[], &numbers);
        assert_eq!(births.begun().collect::<Vec<_>>(), [(1, Rect::new(20, 10, 40, 40))]);
        (births, numbers)
    }

    /// Tracks, and where their boxes begin.
    type Places = Vec<(u32, usize)>;

    /// Returns the changes to tracks in the next frame: those that begin or begin again, and those that are
    /// corrected.
    fn next(found: &[Detection], tracks: &[Track]) -> (Places, Places) {
        let (mut births, numbers) = with_a_track();
        births.see(&[], found);
        births.decide(&frame(1), 0.04, tracks, &numbers);
        let corrected = births.corrected().iter().map(|(id, rect)| (*id, rect.x)).collect();
        (births.begun().map(|(id, rect)| (id, rect.x)).collect(), corrected)
    }

    #[test]
    fn a_detection_on_a_track_corrects_it_and_one_that_hardly_touches_it_begins_it_again() {
        let held = [track(1, 24.0, TrackState::Tracked)];
        assert_eq!(next(&[detected("car", 20, 40)], &held), (vec![], vec![(1, 20)]));
        // 40 pixels wide, and 16, 26 and 36 of them off: they overlap by 0.43, 0.21 and 0.05.
        assert_eq!(next(&[detected("car", 40, 40)], &held), (vec![(1, 40)], vec![]));
        assert_eq!(next(&[detected("car", 50, 40)], &held), (vec![(1, 50)], vec![]));
        assert_eq!(next(&[detected("car", 60, 40)], &held), (vec![(2, 60)], vec![]));
        // Another class beside it is another object.
        assert_eq!(next(&[detected("dog", 50, 40)], &held), (vec![(2, 50)], vec![]));
        // A detection upon it may be the object that hides it, and gives no information about its place.
        for x in [20, 40] {
            assert_eq!(next(&[detected("dog", x, 40)], &held), (vec![], vec![]));
        }
    }

    #[test]
    fn a_detection_beside_a_track_that_has_its_own_is_another_object() {
        let held = [track(1, 20.0, TrackState::Tracked)];
        let both = [detected("car", 50, 40), detected("car", 21, 40)];
        assert_eq!(next(&both, &held), (vec![(2, 50)], vec![(1, 21)]));
    }

    #[test]
    fn a_track_in_doubt_is_resumed_where_it_is_detected_and_not_corrected() {
        let doubtful = [track(1, 24.0, TrackState::Uncertain)];
        assert_eq!(next(&[detected("car", 20, 40)], &doubtful), (vec![(1, 20)], vec![]));
    }

    #[test]
    fn boxes_that_were_given_own_detections_and_keep_their_place() {
        let given = [track(9, 24.0, TrackState::Tracked)];
        assert_eq!(next(&[detected("car", 20, 40)], &given), (vec![], vec![]));
    }
}
