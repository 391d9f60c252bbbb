//! The share of a machine for a run beside other runs.

use crate::setup;

/// A share of the machine's cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    videos: usize,
}

impl Share {
    /// All of it.
    pub const WHOLE: Self = Self { videos: 1 };

    /// Returns the share of one of so many videos that are processed at the same time.
    pub fn among(videos: usize) -> Self {
        Self { videos: videos.max(1) }
    }

    /// True if others are processed at the same time.
    pub fn is_one_of_several(self) -> bool {
        self.videos > 1
    }

    /// Cores for each video, rounded down.
    pub fn cores(self) -> usize {
        setup::threads(None) / self.videos
    }

    /// Threads of a software decoder: several videos at once use the cores already, and more threads for each
    /// would only take memory.
    pub fn decoder_threads(self) -> Option<u32> {
        (self.videos > 1).then(|| self.cores().max(1) as u32)
    }

    /// Threads for the work of the CPU, unless `asked` sets them. Runs share pools of threads, so that a few
    /// of them use all cores by turns; if each has hardly more than a core, its own thread does all work.
    pub fn threads(self, asked: Option<u16>) -> usize {
        match asked {
            None if self.videos > 1 && self.cores() < 2 => 1,
            asked => setup::threads(asked),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_videos_have_a_thread_each_and_few_share_all() {
        let cores = setup::threads(None);
        assert_eq!((Share::WHOLE.cores(), Share::WHOLE.threads(None)), (cores, cores));
        assert_eq!((Share::among(cores).cores(), Share::among(0)), (1, Share::WHOLE));
        assert_eq!((Share::among(2 * cores).cores(), Share::among(2 * cores).threads(None)), (0, 1));
        assert_eq!(Share::among(100 * cores).threads(Some(3)), 3);
        let decoders = [Share::WHOLE, Share::among(cores + 1)].map(Share::decoder_threads);
        assert_eq!(decoders, [None, Some(1)]);
    }
}
