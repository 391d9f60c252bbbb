//! Memory for the frames that runs keep for those who look: bounded for all videos of a page together.

use std::sync::{Arc, Mutex, PoisonError};

/// Bytes for all of them.
const BYTES: usize = 512 << 20;

/// What is left of it.
pub(super) struct Memory(Mutex<usize>);

impl Default for Memory {
    fn default() -> Self {
        Self(Mutex::new(BYTES))
    }
}

/// What one video has of it, until this is dropped.
pub(super) struct Part {
    memory: Arc<Memory>,
    bytes: usize,
}

impl Part {
    pub(super) fn none_of(memory: &Arc<Memory>) -> Self {
        Self { memory: memory.clone(), bytes: 0 }
    }

    /// Room for up to so many frames of so many bytes, in place of what it had; gives how many there is room
    /// for. Nobody gets more than half of what is left, so that there is something for whoever comes next;
    /// but one frame everybody gets who wants any, since that is what a first box is drawn in.
    pub(super) fn take(&mut self, frames: usize, bytes: usize) -> usize {
        let mut left = self.memory.0.lock().unwrap_or_else(PoisonError::into_inner);
        *left += self.bytes;
        // What it has it keeps.
        let most = (*left / 2).max(self.bytes);
        let granted = frames.min(most / bytes.max(1));
        self.bytes = granted * bytes;
        *left -= self.bytes;
        granted.max(frames.min(1))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.take(0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_videos_together_get_no_more_than_there_is_and_each_gets_something() {
        let memory = Arc::new(Memory::default());
        let mut parts: Vec<_> = (0..500).map(|_| Part::none_of(&memory)).collect();
        // As 2160p has them.
        let frame = 12 << 20;
        let granted: Vec<_> = parts.iter_mut().map(|part| part.take(240, frame)).collect();
        assert_eq!(granted[..5], [21, 10, 5, 3, 1]);
        assert!(granted[5..].iter().all(|&granted| granted == 1));
        assert!(parts.iter().map(|part| part.bytes).sum::<usize>() <= BYTES);
        // Asked again, each gets what it has, or more where others need less.
        assert_eq!(parts[1].take(240, frame), 10);
        assert_eq!((parts[0].take(0, frame), parts[1].take(240, frame)), (0, 16));
        // What is small gets all that it asks for.
        assert_eq!(parts[2].take(16, 640 * 480 * 3 / 2), 16);
        drop(parts);
        assert_eq!(*memory.0.lock().unwrap(), BYTES);
    }
}
