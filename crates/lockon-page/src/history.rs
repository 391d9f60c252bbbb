//! The records of the last frames: for the plot, and for saving results during a run.

use std::collections::VecDeque;
use std::sync::Arc;

use lockon_core::results::FrameRecord;

/// Maximum frames and results together: half an hour of one track at 30 frames a second.
const MOST: usize = 100_000;

/// The last records, oldest first.
#[derive(Default)]
pub(super) struct History {
    records: VecDeque<Arc<FrameRecord>>,
    weight: usize,
}

impl History {
    /// Adds a record. After a jump back in the video, records begin again: their frames ascend.
    pub(super) fn push(&mut self, record: &Arc<FrameRecord>) {
        if self.records.back().is_some_and(|last| last.frame >= record.frame) {
            *self = Self::default();
        }
        self.weight += weight(record);
        self.records.push_back(record.clone());
        while self.weight > MOST && self.records.len() > 1 {
            self.weight -= self.records.pop_front().map_or(0, |oldest| weight(&oldest));
        }
    }

    /// Up to `most` records, from frame `frame` on.
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
    let objects = record.objects.as_ref().map_or(0, Vec::len);
    1 + record.tracks.len() + record.matches.len() + record.detections.len() + objects
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockon_core::results::Track;

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
        // A number between two frames gives the later one.
        assert_eq!(history.since(29_993, 2).iter().map(|r| r.frame).collect::<Vec<_>>(), [29_994, 29_996]);
        assert_eq!(history.last(2).map(|r| r.frame).collect::<Vec<_>>(), [29_996, 29_998]);
        let heavy =
            FrameRecord { frame: 40_000, tracks: vec![Track::default(); MOST], ..FrameRecord::default() };
        history.push(&Arc::new(heavy));
        assert_eq!(history.since(0, usize::MAX).len(), 1);
        // A jump back.
        for frame in [40_001, 7, 9] {
            history.push(&Arc::new(FrameRecord { frame, ..FrameRecord::default() }));
        }
        assert_eq!(history.since(0, 9).iter().map(|r| r.frame).collect::<Vec<_>>(), [7, 9]);
    }
}
