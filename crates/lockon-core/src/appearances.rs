//! Appearances: from when to when each template and each track was in sight.
//!
//! A template is in sight in a frame with a match, a track in a frame in which it is tracked or reacquired.
//! An appearance continues through a time out of sight up to the gap (`--gap`), and while the
//! track is uncertain. It ends with the last frame in which the target was surely in sight. Two processed
//! frames in a row always belong together, however far apart they are. Where matches become tracks, the
//! tracks alone have appearances.

use std::sync::Arc;

use crate::frame::USUAL_INTERVAL_NS;
pub use crate::results::Appearance;
use crate::results::{FrameRecord, FrameTime, RunRecord, TrackState};

/// Finds appearances during a run.
#[derive(Debug, Clone, Default)]
pub struct Appearances {
    gap_ns: u64,
    /// The time between two frames without times.
    interval_ns: u64,
    /// Matches become tracks.
    follows_matches: bool,
    open: Vec<Open>,
}

/// An appearance that may continue.
#[derive(Debug, Clone)]
struct Open {
    appearance: Appearance,
    /// The last time at which it was in sight, surely or not.
    until_ns: u64,
    /// It is in sight in the current frame, surely or not.
    is_in_sight: bool,
    /// It was out of sight in a frame since then.
    was_away: bool,
}

impl Open {
    fn is_of(&self, name: Option<&Arc<str>>, track: Option<u32>) -> bool {
        let Appearance { name: own, track: number, .. } = &self.appearance;
        *number == track && (track.is_some() || own.as_ref() == name)
    }
}

impl Appearances {
    /// Returns a finder for a run.
    pub fn of(run: &RunRecord) -> Self {
        let interval_ns =
            if run.frame_rate > 0.0 { (1e9 / run.frame_rate) as u64 } else { USUAL_INTERVAL_NS };
        Self { gap_ns: run.gap.ns, interval_ns, follows_matches: run.track_matches, open: Vec::new() }
    }

    /// Takes in the next frame; `ended` gets the appearances that have ended before it.
    pub fn step(&mut self, record: &FrameRecord, mut ended: impl FnMut(Appearance)) {
        let now = FrameTime { frame: record.frame, pts_ns: record.pts_ns };
        let now_ns = record.pts_ns.unwrap_or(record.frame.saturating_mul(self.interval_ns));
        self.open.iter_mut().for_each(|open| open.is_in_sight = false);
        if !self.follows_matches {
            for matches in record.matches.chunk_by(|a, b| a.template == b.template) {
                self.see(Some(&matches[0].template), None, Some(matches[0].score), now, now_ns, &mut ended);
            }
        }
        for track in &record.tracks {
            let score = match track.state {
                TrackState::Lost => continue,
                TrackState::Uncertain => None,
                TrackState::Tracked | TrackState::Reacquired => Some(track.score),
            };
            self.see(track.label(), Some(track.id), score, now, now_ns, &mut ended);
        }
        let gap_ns = self.gap_ns;
        self.open.retain_mut(|open| {
            if open.is_in_sight {
                return true;
            }
            open.was_away = true;
            let goes_on = now_ns.saturating_sub(open.until_ns) <= gap_ns;
            if !goes_on {
                ended(open.appearance.clone());
            }
            goes_on
        });
    }

    /// Ends all open appearances, in the order in which they began.
    pub fn end(&mut self, ended: impl FnMut(Appearance)) {
        self.open.drain(..).map(|open| open.appearance).for_each(ended);
    }

    /// The appearances that may continue, each with the last time at which it was in sight, surely or not, in
    /// nanoseconds.
    pub fn until(&self) -> impl Iterator<Item = (&Appearance, u64)> {
        self.open.iter().map(|open| (&open.appearance, open.until_ns))
    }

    /// Notes that a target is in sight, surely if it has a score.
    fn see(
        &mut self,
        name: Option<&Arc<str>>,
        track: Option<u32>,
        score: Option<f64>,
        now: FrameTime,
        now_ns: u64,
        ended: &mut impl FnMut(Appearance),
    ) {
        if let Some(at) = self.open.iter().position(|open| open.is_of(name, track)) {
            let open = &mut self.open[at];
            let goes_on = !open.was_away || now_ns.saturating_sub(open.until_ns) <= self.gap_ns;
            if goes_on {
                (open.until_ns, open.is_in_sight, open.was_away) = (now_ns, true, false);
                if let Some(score) = score {
                    open.appearance.end = now;
                    open.appearance.frames += 1;
                    open.appearance.best = open.appearance.best.max(score);
                }
                return;
            }
            ended(self.open.remove(at).appearance);
        }
        // A track that is uncertain from the start has not been in sight yet.
        let Some(best) = score else { return };
        self.open.push(Open {
            appearance: Appearance { name: name.cloned(), track, start: now, end: now, frames: 1, best },
            until_ns: now_ns,
            is_in_sight: true,
            was_away: false,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Match, Track};

    const MS: u64 = 1_000_000;

    /// The appearances in frames of 100 ms, each with the scores of a template's matches and a track's state,
    /// as `label start-end frames best`.
    fn seen(gap_ms: u64, follows: bool, frames: &[(u64, &[f64], Option<TrackState>)]) -> Vec<String> {
        let mut watch = Appearances {
            gap_ns: gap_ms * MS,
            interval_ns: 100 * MS,
            follows_matches: follows,
            open: Vec::new(),
        };
        let mut found = Vec::new();
        for &(frame, scores, state) in frames {
            let matches = scores.iter().map(|&score| Match {
                template: "car".into(),
                x: 1,
                y: 2,
                w: 3,
                h: 4,
                score,
                scale: 1.0,
                angle: 0.0,
                cx: 2.5,
                cy: 4.0,
            });
            let tracks = state.map(|state| Track { id: 7, state, score: 0.5, ..Track::default() });
            let record = FrameRecord {
                frame,
                pts_ns: frame.is_multiple_of(2).then_some(frame * 100 * MS),
                matches: matches.collect(),
                tracks: tracks.into_iter().collect(),
                ..FrameRecord::default()
            };
            watch.step(&record, |ended| found.push(ended));
        }
        watch.end(|ended| found.push(ended));
        let text = |a: Appearance| {
            format!("{} {}-{} {} {}", a.label(), a.start.frame, a.end.frame, a.frames, a.best)
        };
        found.into_iter().map(text).collect()
    }

    #[test]
    fn a_gap_as_long_as_allowed_is_bridged_and_a_longer_one_is_not() {
        let yes: &[f64] = &[0.9, 0.8];
        let frames = |hole: u64| {
            let mut all: Vec<(u64, &[f64], Option<TrackState>)> = vec![(0, yes, None), (1, &[0.95], None)];
            all.extend((2..2 + hole).map(|frame| (frame, &[][..], None)));
            all.push((2 + hole, yes, None));
            all
        };
        // From frame 1 to frame 5 are 400 ms.
        assert_eq!(seen(400, false, &frames(3)), ["car 0-5 3 0.95"]);
        assert_eq!(seen(399, false, &frames(3)), ["car 0-1 2 0.95", "car 5-5 1 0.9"]);
        assert_eq!(seen(0, false, &frames(0)), ["car 0-2 3 0.95"], "no frame lies between");
        assert_eq!(seen(400, true, &frames(3)), [""; 0], "tracks say it");
    }

    #[test]
    fn frames_in_a_row_belong_together_however_far_apart_they_are() {
        let yes: &[f64] = &[0.9];
        assert_eq!(seen(0, false, &[(0, yes, None), (50, yes, None), (100, yes, None)]), ["car 0-100 3 0.9"]);
        let skipped: [(u64, &[f64], _); 3] = [(0, yes, None), (50, &[], None), (100, yes, None)];
        assert_eq!(seen(0, false, &skipped), ["car 0-0 1 0.9", "car 100-100 1 0.9"]);
    }

    #[test]
    fn a_track_stays_while_it_is_uncertain_and_ends_where_it_was_sure() {
        use TrackState::{Lost, Reacquired, Tracked, Uncertain};
        let of = |states: &[TrackState]| {
            let frames: Vec<(u64, &[f64], _)> =
                (0..).zip(states).map(|(frame, &state)| (frame, &[][..], Some(state))).collect();
            seen(200, true, &frames)
        };
        let long = [vec![Tracked], vec![Uncertain; 9], vec![Tracked]].concat();
        assert_eq!(of(&long), ["track7 0-10 2 0.5"]);
        let ends = [vec![Uncertain; 2], vec![Tracked; 2], vec![Uncertain; 2], vec![Lost; 5]].concat();
        assert_eq!(of(&ends), ["track7 2-3 2 0.5"]);
        assert_eq!(
            of(&[vec![Tracked], vec![Lost; 4], vec![Reacquired]].concat()),
            ["track7 0-0 1 0.5", "track7 5-5 1 0.5"]
        );
    }
}
