//! 2. Follow a box in frames of your own: a source, a tracker, no device.
//!
//! ```text
//! cargo run --release --example 2_follow_a_box
//! ```
//!
//! The frames are made here, a textured square that moves over a still ground; yours may come from a camera's
//! library. Prints where the square is.

#![allow(clippy::print_stdout, reason = "an example prints its result")]

use std::sync::Arc;
use std::time::Instant;

use lockon::frame::{Circumstances, Frame, FrameMeta, PixelFormat, Plane, Rect, Size, VideoFormat};
use lockon::ports::Follow;
use lockon::tracker::Tracker;

const SIZE: Size = Size { width: 320, height: 240 };
const SQUARE: Size = Size { width: 48, height: 40 };

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let format = Arc::new(VideoFormat {
        size: SIZE,
        pixels: PixelFormat::GRAY8,
        frame_rate: (25, 1),
        pixel_aspect: (1, 1),
        colorimetry: None,
    });
    let begin = Rect::new(40, 60, SQUARE.width, SQUARE.height);
    let mut tracker = Tracker::new(&[format!("{begin}@0").parse()?]);
    tracker.check(SIZE)?;
    for index in 0..100 {
        let meta = FrameMeta {
            index,
            pts_ns: Some(index * 40_000_000),
            duration_ns: Some(40_000_000),
            arrived: Instant::now(),
        };
        let frame = Frame {
            meta,
            circumstances: Circumstances::default(),
            format: format.clone(),
            picture: Arc::new(picture(index as usize)),
        };
        let mut tracks = Vec::new();
        tracker.step(&frame, &[], &mut tracks);
        for track in &tracks {
            let (x, y) = (track.x + track.w / 2.0, track.y + track.h / 2.0);
            println!("frame {index}: {:?} at {x:.1}, {y:.1}, score {:.2}", track.state, track.score);
        }
    }
    Ok(())
}

/// A frame: the square has gone two pixels to the right and one down since the one before.
fn picture(index: usize) -> Plane {
    let (left, top) = (40 + 2 * index, 60 + index);
    let noise = |x: usize, y: usize| (x / 4 * 7919 + y / 4 * 104_729) % 97;
    let pixel = |i: usize| {
        let (x, y) = (i % SIZE.width, i / SIZE.width);
        let is_square = (left..left + SQUARE.width).contains(&x) && (top..top + SQUARE.height).contains(&y);
        if is_square { 120 + noise(x - left + 500, y - top) as u8 } else { 40 + (noise(x, y) / 2) as u8 }
    };
    Plane::from_vec((0..SIZE.area()).map(pixel).collect(), SIZE)
}
