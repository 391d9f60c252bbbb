//! The memory limit for kept frames, over all videos of a page.

use lockon_core::locks::Ranked;
use std::sync::Arc;

/// Bytes for all videos together.
const BYTES: usize = 512 << 20;

/// The bytes that are left.
pub(super) struct MemoryBudget(Ranked<usize, 30>);

impl Default for MemoryBudget {
    fn default() -> Self {
        Self(Ranked::new(BYTES))
    }
}

/// The bytes of one video, returned when this is dropped.
pub(super) struct Reservation {
    memory: Arc<MemoryBudget>,
    bytes: usize,
}

impl Reservation {
    pub(super) fn none_of(memory: &Arc<MemoryBudget>) -> Self {
        Self { memory: memory.clone(), bytes: 0 }
    }

    /// Replaces the video's share by one for up to `frames` frames of `bytes` bytes; returns how many fit. A
    /// video gets at most half of the free memory, so that the next one gets some too, and at least one frame
    /// if it asks for any: the first box is drawn on it.
    pub(super) fn take(&mut self, frames: usize, bytes: usize) -> usize {
        let mut left = self.memory.0.lock();
        *left += self.bytes;
        // A video never has to give back what it has.
        let most = (*left / 2).max(self.bytes);
        let granted = frames.min(most / bytes.max(1));
        self.bytes = granted * bytes;
        *left -= self.bytes;
        granted.max(frames.min(1))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.take(0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_videos_together_get_no_more_than_there_is_and_each_gets_something() {
        let memory = Arc::new(MemoryBudget::default());
        let mut parts: Vec<_> = (0..500).map(|_| Reservation::none_of(&memory)).collect();
        // A frame of 2160p.
        let frame = 12 << 20;
        let granted: Vec<_> = parts.iter_mut().map(|part| part.take(240, frame)).collect();
        assert_eq!(granted[..5], [21, 10, 5, 3, 1]);
        assert!(granted[5..].iter().all(|&granted| granted == 1));
        assert!(parts.iter().map(|part| part.bytes).sum::<usize>() <= BYTES);
        // A second request gives the same, or more if others need less.
        assert_eq!(parts[1].take(240, frame), 10);
        assert_eq!((parts[0].take(0, frame), parts[1].take(240, frame)), (0, 16));
        // Small frames get all that they request.
        assert_eq!(parts[2].take(16, 640 * 480 * 3 / 2), 16);
        drop(parts);
        assert_eq!(*memory.0.lock(), BYTES);
    }
}
