//! Copies of the last frames, for requests that name a place in one of them later.
//!
//! A decoder has few pictures, which are not to be held for long. So these are copies, in the host's memory;
//! the oldest one's room is used again.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::frame::{Circumstances, Frame, FrameMeta, Picture, Plane, PlaneRef, Size, VideoFormat};

/// The last frames of one size, oldest first. A clone has the same pictures.
#[derive(Default, Clone)]
pub struct RecentFrames {
    frames: VecDeque<Copied>,
}

impl fmt::Debug for RecentFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.frames.iter().map(|kept| kept.meta.index)).finish()
    }
}

/// A frame that was copied.
#[derive(Clone)]
struct Copied {
    meta: FrameMeta,
    circumstances: Circumstances,
    format: Arc<VideoFormat>,
    picture: Arc<Planes>,
}

/// The planes of a picture.
#[derive(Default)]
struct Planes(Vec<Plane>);

impl Picture for Planes {
    fn plane(&self, index: usize) -> PlaneRef<'_> {
        self.0[index].as_ref()
    }
}

impl Planes {
    /// Copies a picture into the memory that is there.
    fn copy(&mut self, frame: &Frame) {
        self.0.resize_with(frame.format.pixels.planes(), Plane::default);
        for (index, plane) in self.0.iter_mut().enumerate() {
            let source = frame.picture.plane(index);
            plane.resize(source.size());
            plane.as_mut().copy_from(source);
        }
    }
}

impl RecentFrames {
    /// Keeps a frame, and as many of the frames before as make `most` with it. Frames of another size are
    /// dropped, and all where the video continues from an earlier place.
    pub fn keep(&mut self, frame: &Frame, most: usize) {
        let is_next = |last: &Copied| size(last) == frame.format.size && last.meta.index < frame.meta.index;
        if !self.frames.back().is_none_or(is_next) {
            self.frames.clear();
        }
        let mut oldest = None;
        while self.frames.len() > most.saturating_sub(1) {
            oldest = self.frames.pop_front();
        }
        if most == 0 {
            return;
        }
        let mut picture = oldest.map(|oldest| oldest.picture).unwrap_or_default();
        if let Some(picture) = Arc::get_mut(&mut picture) {
            picture.copy(frame);
        } else {
            // The picture is still in use.
            let mut copied = Planes::default();
            copied.copy(frame);
            picture = Arc::new(copied);
        }
        let (meta, circumstances, format) = (frame.meta, frame.circumstances, frame.format.clone());
        self.frames.push_back(Copied { meta, circumstances, format, picture });
    }

    /// The number of the oldest frame.
    pub fn oldest(&self) -> Option<u64> {
        self.frames.front().map(|oldest| oldest.meta.index)
    }

    /// The frames from number `index` on, oldest first.
    pub fn since(&self, index: u64) -> impl Iterator<Item = Frame> {
        self.frames.iter().filter(move |kept| kept.meta.index >= index).map(|kept| Frame {
            meta: kept.meta,
            circumstances: kept.circumstances,
            format: kept.format.clone(),
            picture: kept.picture.clone(),
        })
    }

    /// The frame of number `index`, if it is kept.
    pub fn get(&self, index: u64) -> Option<Frame> {
        self.since(index).next().filter(|frame| frame.meta.index == index)
    }

    /// Keeps none of them any more.
    pub fn clear(&mut self) {
        self.frames.clear();
    }
}

fn size(copied: &Copied) -> Size {
    copied.format.size
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::frame::PixelFormat;

    fn frame(index: u64, size: Size) -> Frame {
        let format = VideoFormat {
            size,
            pixels: PixelFormat::GRAY8,
            frame_rate: (25, 1),
            pixel_aspect: (1, 1),
            colorimetry: None,
        };
        Frame {
            meta: FrameMeta { index, pts_ns: None, duration_ns: None, arrived: Instant::now() },
            circumstances: Circumstances::default(),
            format: Arc::new(format),
            picture: Arc::new(Plane::from_vec(vec![index as u8; size.area()], size)),
        }
    }

    #[test]
    fn the_last_frames_are_kept_as_they_were_and_no_more() {
        let size = Size::new(3, 5);
        let mut recent = RecentFrames::default();
        for index in [0, 1, 3, 4, 5] {
            recent.keep(&frame(index, size), 3);
        }
        assert_eq!(recent.oldest(), Some(3));
        let since: Vec<_> = recent.since(4).collect();
        assert_eq!(since.iter().map(|frame| frame.meta.index).collect::<Vec<_>>(), [4, 5]);
        // A frame that is still held is not overwritten.
        for index in 6..10 {
            recent.keep(&frame(index, size), 3);
        }
        assert!(
            since.iter().all(|frame| frame
                .luma()
                .rows()
                .flatten()
                .all(|&v| u64::from(v) == frame.meta.index))
        );
        assert_eq!(recent.get(8).map(|frame| frame.meta.index), Some(8));
        assert!(recent.get(6).is_none() && recent.get(10).is_none());
        recent.keep(&frame(10, size), 1);
        assert_eq!(recent.since(0).count(), 1);
        recent.clear();
        assert_eq!(recent.oldest(), None);
    }

    #[test]
    fn frames_of_another_size_and_those_that_nobody_wants_are_not_kept() {
        let mut recent = RecentFrames::default();
        recent.keep(&frame(0, Size::new(3, 5)), 4);
        recent.keep(&frame(1, Size::new(4, 5)), 4);
        assert_eq!(recent.oldest(), Some(1));
        // After a jump back in the video.
        for index in [7, 8, 3] {
            recent.keep(&frame(index, Size::new(4, 5)), 4);
        }
        assert_eq!(recent.since(0).map(|frame| frame.meta.index).collect::<Vec<_>>(), [3]);
        recent.keep(&frame(2, Size::new(4, 5)), 0);
        assert_eq!(recent.oldest(), None);
    }
}
