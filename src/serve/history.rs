//! The records of the last frames: what the page plots, and what can be saved of a run that goes on.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::results::FrameRecord;

/// Frames, and what was found in them, that are kept at most: of one track at 30 frames a second half an
/// hour.
const MOST: usize = 100_000;

/// The last records, oldest first.
#[derive(Default)]
pub(super) struct History {
    records: VecDeque<Arc<FrameRecord>>,
    weight: usize,
}

impl History {
    pub(super) fn push(&mut self, record: &Arc<FrameRecord>) {
        self.weight += weight(record);
        self.records.push_back(record.clone());
        while self.weight > MOST && self.records.len() > 1 {
            self.weight -= self.records.pop_front().map_or(0, |oldest| weight(&oldest));
        }
    }

    /// Up to `most` records of frames from number `frame` on.
    pub(super) fn since(&self, frame: u64, most: usize) -> Vec<Arc<FrameRecord>> {
        let first = self.records.partition_point(|record| record.frame < frame);
        self.records.range(first..).take(most).cloned().collect()
    }

    /// The last `most` records, oldest first.
    pub(super) fn last(&self, most: usize) -> impl DoubleEndedIterator<Item = &Arc<FrameRecord>> {
        self.records.range(self.records.len().saturating_sub(most)..)
    }
}

fn weight(record: &FrameRecord) -> usize {
    1 + record.tracks.len() + record.matches.len() + record.detections.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Track;

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let mut history = History::default();
        let tracks = vec![Track::default(); 9];
        for frame in (0..30_000).step_by(2) {
            history.push(&Arc::new(FrameRecord { frame, tracks: tracks.clone(), ..FrameRecord::default() }));
        }
        let kept = history.since(0, usize::MAX);
        assert_eq!(kept.len(), MOST / 10);
        assert_eq!(kept.first().map(|record| record.frame), Some(30_000 - 2 * MOST as u64 / 10));
        // Between two frames begins with the later one.
        assert_eq!(history.since(29_993, 2).iter().map(|r| r.frame).collect::<Vec<_>>(), [29_994, 29_996]);
        assert_eq!(history.last(2).map(|r| r.frame).collect::<Vec<_>>(), [29_996, 29_998]);
        let heavy =
            FrameRecord { frame: 40_000, tracks: vec![Track::default(); MOST], ..FrameRecord::default() };
        history.push(&Arc::new(heavy));
        assert_eq!(history.since(0, usize::MAX).len(), 1);
    }
}
