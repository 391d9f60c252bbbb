//! The data kept of each track and of each template's best matches, in bounded memory; and the counting of
//! matches and latencies.

use std::sync::Arc;

use crate::results::TrackState;

/// The chart data of one track, or of the best matches of one template.
pub(super) struct Series {
    pub(super) kind: SeriesKind,
    pub(super) name: String,
    pub(super) columns: Vec<Column>,
    /// Frames in each of [`TrackState::ALL`].
    pub(super) states: [u64; 4],
    pub(super) state: Option<TrackState>,
    /// Sum of the scores of all frames in which it was not lost.
    pub(super) scores: f64,
    /// Times of the last thumbnail of a loss, and of the last thumbnail of a target that was found again.
    pub(super) lost_at: f64,
    pub(super) found_at: f64,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum SeriesKind {
    Track(u32),
    Match,
}

/// Some frames that follow each other.
pub(super) struct Column {
    pub(super) number: u64,
    pub(super) time: f64,
    /// Its last place, if it was seen.
    pub(super) place: Option<(f64, f64)>,
    /// Scores where it was seen: those of a lost track are of places that were rejected.
    pub(super) least: f64,
    pub(super) most: f64,
    pub(super) sum: f64,
    /// Matches in the frame that has most of them.
    pub(super) most_matches: u32,
    pub(super) frames: u32,
    pub(super) states: [u32; 4],
}

impl Series {
    pub(super) fn new(kind: SeriesKind, name: String) -> Self {
        Self {
            kind,
            name,
            columns: Vec::new(),
            states: [0; 4],
            state: None,
            scores: 0.0,
            lost_at: f64::MIN,
            found_at: f64::MIN,
        }
    }

    /// Counts a frame and returns the state in the one before.
    pub(super) fn add(
        &mut self,
        number: u64,
        time: f64,
        state: TrackState,
        at: [f64; 4],
        score: f64,
    ) -> Option<TrackState> {
        let index = index(state);
        self.states[index] += 1;
        if self.columns.last().is_none_or(|column| column.number != number) {
            self.columns.push(Column {
                number,
                time,
                place: None,
                least: f64::INFINITY,
                most: f64::NEG_INFINITY,
                sum: 0.0,
                most_matches: 0,
                frames: 0,
                states: [0; 4],
            });
        }
        let column = self.columns.last_mut().expect("pushed if there was none");
        let [x, y, w, h] = at;
        if state != TrackState::Lost {
            column.place = Some((x + w / 2.0, y + h / 2.0));
            (column.least, column.most) = (column.least.min(score), column.most.max(score));
            column.sum += score;
            self.scores += score;
        }
        column.frames += 1;
        column.states[index] += 1;
        self.state.replace(state)
    }

    /// Counts the matches of the frame that was added last.
    pub(super) fn count(&mut self, matches: u32) {
        if let Some(column) = self.columns.last_mut() {
            column.most_matches = column.most_matches.max(matches);
        }
    }

    /// Makes one column of each two.
    pub(super) fn halve(&mut self) {
        let mut halved: Vec<Column> = Vec::with_capacity(self.columns.len());
        for mut column in self.columns.drain(..) {
            column.number /= 2;
            match halved.last_mut() {
                Some(before) if before.number == column.number => {
                    before.place = column.place.or(before.place);
                    before.least = before.least.min(column.least);
                    before.most = before.most.max(column.most);
                    before.sum += column.sum;
                    before.frames += column.frames;
                    before.most_matches = before.most_matches.max(column.most_matches);
                    for (count, more) in before.states.iter_mut().zip(column.states) {
                        *count += more;
                    }
                }
                _ => halved.push(column),
            }
        }
        self.columns = halved;
    }

    /// Columns without a gap between them, and without one in which nothing was seen if `is_seen`.
    pub(super) fn pieces(&self, is_seen: bool) -> Vec<Vec<&Column>> {
        let mut pieces: Vec<Vec<&Column>> = Vec::new();
        let mut before = None;
        for column in self.columns.iter().filter(|column| !is_seen || column.place.is_some()) {
            match pieces.last_mut() {
                Some(piece) if before == Some(column.number - 1) => piece.push(column),
                _ => pieces.push(vec![column]),
            }
            before = Some(column.number);
        }
        pieces
    }
}

impl Column {
    pub(super) fn mean(&self) -> f64 {
        self.sum / f64::from(self.seen())
    }

    /// Frames in which it was seen.
    fn seen(&self) -> u32 {
        self.frames - self.states[index(TrackState::Lost)]
    }

    /// The state that a reader must not miss: lost, then found again, then uncertain.
    pub(super) fn state(&self) -> TrackState {
        let worst = [TrackState::Lost, TrackState::Reacquired, TrackState::Uncertain];
        worst.into_iter().find(|state| self.states[index(*state)] > 0).unwrap_or_default()
    }
}

/// The number of objects over time.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) columns: Vec<CountColumn>,
}

/// The number of objects in some frames that follow each other.
pub(super) struct CountColumn {
    pub(super) number: u64,
    pub(super) time: f64,
    pub(super) least: u64,
    pub(super) most: u64,
    sum: u64,
    frames: u64,
}

impl Counts {
    /// Counts a frame.
    pub(super) fn add(&mut self, number: u64, time: f64, count: u64) {
        self.merge(CountColumn { number, time, least: count, most: count, sum: count, frames: 1 });
    }

    fn merge(&mut self, column: CountColumn) {
        match self.columns.last_mut() {
            Some(before) if before.number == column.number => {
                (before.least, before.most) = (before.least.min(column.least), before.most.max(column.most));
                (before.sum, before.frames) = (before.sum + column.sum, before.frames + column.frames);
            }
            _ => self.columns.push(column),
        }
    }

    /// Makes one column of each two.
    pub(super) fn halve(&mut self) {
        for column in std::mem::take(&mut self.columns) {
            self.merge(CountColumn { number: column.number / 2, ..column });
        }
    }

    /// The most in a frame.
    pub(super) fn most(&self) -> u64 {
        self.columns.iter().map(|column| column.most).max().unwrap_or(0)
    }

    /// Columns without a gap between them.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &[CountColumn]> {
        self.columns.chunk_by(|a, b| a.number + 1 == b.number)
    }
}

impl CountColumn {
    pub(super) fn mean(&self) -> f64 {
        self.sum as f64 / self.frames as f64
    }
}

pub(super) fn index(state: TrackState) -> usize {
    TrackState::ALL.iter().position(|other| *other == state).expect("all states are listed")
}

/// The results of one template. They are kept for every template, whether or not there is room for a chart.
pub(super) struct Found {
    pub(super) template: Arc<str>,
    /// Frames with a match.
    pub(super) frames: u64,
    /// Matches, the best ones and the others.
    pub(super) matches: u64,
    /// Scores of the best match in each frame that has one: the least, their sum, the largest.
    pub(super) least: f64,
    pub(super) sum: f64,
    pub(super) most: f64,
    /// Times in seconds of the first and the last frame with a match.
    pub(super) first: f64,
    pub(super) last: f64,
}

impl Found {
    /// A template that is found for the first time, at this time.
    pub(super) fn new(template: Arc<str>, time: f64) -> Self {
        let (least, most) = (f64::INFINITY, f64::NEG_INFINITY);
        Self { template, frames: 0, matches: 0, least, sum: 0.0, most, first: time, last: time }
    }

    /// Counts a frame with so many matches. `score` is the score of the best one.
    pub(super) fn count(&mut self, matches: usize, score: f64, time: f64) {
        self.frames += 1;
        self.matches += matches as u64;
        (self.least, self.most) = (self.least.min(score), self.most.max(score));
        self.sum += score;
        self.last = time;
    }
}

/// Durations in steps of a quarter of an octave, in constant memory.
#[derive(Default)]
pub(super) struct Histogram {
    pub(super) counts: Vec<u64>,
}

impl Histogram {
    pub(super) fn count(&mut self, microseconds: u64) {
        let value = microseconds.max(4);
        let octave = value.ilog2();
        let bin = (4 * octave as usize) + ((value >> (octave - 2)) & 3) as usize;
        if self.counts.len() <= bin {
            self.counts.resize(bin + 1, 0);
        }
        self.counts[bin] += 1;
    }

    /// The start of a bin, in microseconds.
    pub(super) fn start(bin: usize) -> u64 {
        (4 + bin as u64 % 4) << (bin / 4 - 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_score_of_a_lost_track_is_no_score_of_its_own() {
        let mut series = Series::new(SeriesKind::Track(1), "#1".into());
        let at = [1.0, 1.0, 2.0, 2.0];
        for (time, state, score) in [
            (0.0, TrackState::Tracked, 0.75),
            (1.0, TrackState::Lost, 0.97),
            (2.0, TrackState::Tracked, 0.25),
            (3.0, TrackState::Lost, 0.98),
        ] {
            // All in one column.
            series.add(0, time, state, at, score);
        }
        let column = &series.columns[0];
        assert_eq!((column.least, column.mean(), column.most), (0.25, 0.5, 0.75));
        assert_eq!((column.frames, series.scores), (4, 1.0));
    }

    #[test]
    fn counts_of_merged_frames_keep_least_mean_and_most() {
        let mut counts = Counts::default();
        for (number, count) in [(0, 4), (1, 1), (2, 7), (5, 2)] {
            counts.add(number, number as f64, count);
        }
        assert_eq!(counts.pieces().map(<[_]>::len).collect::<Vec<_>>(), [3, 1]);
        counts.halve();
        let columns: Vec<_> =
            counts.columns.iter().map(|c| (c.number, c.time, c.least, c.mean(), c.most)).collect();
        assert_eq!(columns, [(0, 0.0, 1, 2.5, 4), (1, 2.0, 7, 7.0, 7), (2, 5.0, 2, 2.0, 2)]);
        assert_eq!(counts.most(), 7);
    }

    #[test]
    fn a_bin_of_the_histogram_begins_where_it_says() {
        let mut histogram = Histogram::default();
        for microseconds in [0, 4, 5, 7, 8, 9, 10, 100, 1000, 123_456, 60_000_000] {
            histogram.counts.clear();
            histogram.count(microseconds);
            let bin = histogram.counts.len() - 1;
            let value = microseconds.max(4);
            assert!(Histogram::start(bin) <= value && value < Histogram::start(bin + 1), "{microseconds}");
        }
    }
}
