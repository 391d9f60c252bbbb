//! The input of searches and thresholds: pictures, and templates that are cut out of them.

use std::sync::Arc;

use anyhow::Result;

use lockon_core::backend::{Standing, cpu};
use lockon_core::config::{Block, Limits, ThresholdMethod, ThresholdSpec};
use lockon_core::frame::{Plane, Rect, Size};
use lockon_core::reference;
use lockon_core::template::{Bank, Template};

use super::plan::{RING_TEMPLATE, RING_THRESHOLD};

/// Bytes of frames that a kernel is timed over: twice the L2 cache of an H100 or H200, and 64 frames of
/// 1080p.
const SET_BYTES: usize = 64 * 1920 * 1080;

/// The content of pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scene {
    /// Noise on every scale, the coarser the stronger, as nature has it: a template is like few places.
    Natural,
    /// Waves, and noise: a template is like many places.
    Repeating,
}

impl Scene {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Natural => "natural",
            Self::Repeating => "repeating",
        }
    }

    pub(super) fn picture(self, frame: Size) -> Plane {
        match self {
            Self::Natural => reference::natural(frame),
            Self::Repeating => reference::picture(frame),
        }
    }
}

/// Masks of the size of a picture, by name: the picture's own, and what takes long.
pub(super) fn masks(picture: &Plane) -> Vec<(&'static str, Plane)> {
    let Size { width, height } = picture.size();
    let of = |is_white: &dyn Fn(usize, usize) -> bool| {
        let data = (0..width * height).map(|i| if is_white(i % width, i / width) { 255 } else { 0 });
        Plane::from_vec(data.collect(), picture.size())
    };
    let spec = spec_of(ThresholdMethod::Mean { c: 5.0 }, 31);
    let mut of_picture = Plane::new(picture.size());
    cpu::threshold::Thresholder::new(&spec, picture.size()).run(picture.as_ref(), &mut of_picture);
    vec![
        ("threshold", of_picture),
        ("letters", of(&|x, y| x * y % 97 < 13 && x % 16 < 11 && y % 24 < 15)),
        ("noise", of(&|x, y| scattered(x as u32, y as u32) & 1 == 1)),
        ("rings", of(&|x, y| x.abs_diff(width / 2).max(y.abs_diff(height / 2)).is_multiple_of(2))),
        ("spiral", spiral(picture.size())),
        ("checkerboard", of(&|x, y| (x + y).is_multiple_of(2))),
    ]
}

/// A line of one pixel that turns inwards, three pixels away from itself.
fn spiral(size: Size) -> Plane {
    let mut plane = Plane::new(size);
    let (mut left, mut top, mut right, mut bottom) = (0, 0, size.width, size.height);
    while right > left + 4 && bottom > top + 4 {
        // Across, down, back, and up to where the next turn begins.
        for x in left.saturating_sub(4)..right {
            plane.data_mut()[top * size.width + x] = 255;
        }
        for y in top..bottom {
            plane.data_mut()[y * size.width + right - 1] = 255;
        }
        for x in left..right {
            plane.data_mut()[(bottom - 1) * size.width + x] = 255;
        }
        for y in top + 4..bottom {
            plane.data_mut()[y * size.width + left] = 255;
        }
        (left, top, right, bottom) = (left + 4, top + 4, right - 4, bottom - 4);
    }
    plane
}

/// A number of a pixel that says nothing of its neighbours'.
fn scattered(x: u32, y: u32) -> u32 {
    let mut hash = x.wrapping_mul(0x9E37_79B1) ^ y.wrapping_mul(0x85EB_CA77);
    for _ in 0..2 {
        hash = (hash ^ hash >> 15).wrapping_mul(0x2C1B_3C6D);
    }
    hash ^ hash >> 16
}

/// One search that is measured.
pub(super) struct SearchCase {
    pub(super) scene: Scene,
    pub(super) window: Rect,
    pub(super) limits: Limits,
    pub(super) bank: Arc<Bank>,
    /// Where the bank's first member was cut out of the first picture.
    pub(super) place: Rect,
}

impl SearchCase {
    /// A search for templates that are cut out of the window.
    pub(super) fn new(
        (scene, picture): (Scene, &Plane),
        window: Rect,
        template: Size,
        members: usize,
        limits: Limits,
    ) -> Result<Self> {
        let (bank, place) = bank(picture, window, template, members)?;
        Ok(Self { scene, window, limits, bank, place })
    }
}

pub(super) fn methods() -> [ThresholdMethod; 4] {
    [
        ThresholdMethod::Mean { c: 5.0 },
        ThresholdMethod::Gaussian { c: 5.0 },
        ThresholdMethod::Sauvola { k: 0.2 },
        ThresholdMethod::Niblack { k: -0.2 },
    ]
}

/// A method with a square block.
pub(super) fn spec_of(method: ThresholdMethod, side: usize) -> ThresholdSpec {
    ThresholdSpec { method, block: Block::square(side), second: None, inverse: false }
}

/// A search and a threshold, for frames that go through the ring.
pub(super) fn ring_standing(picture: &Plane, mask: bool) -> Result<Standing> {
    let frame = picture.size();
    let (bank, _) = bank(picture, Rect::whole(frame), RING_TEMPLATE, 1)?;
    Ok(Standing::new(frame).thresholding(Some(RING_THRESHOLD), mask).searching(
        &bank,
        None,
        Limits::default(),
    )?)
}

/// A picture, and others of its size that show the same shifted, so that no two are equal: together more than
/// a cache holds.
pub(super) fn pictures(scene: Scene, frame: Size) -> Vec<Plane> {
    let first = scene.picture(frame);
    let Size { width, height } = frame;
    let shifted = |index: usize| {
        let (left, top) = (53 * index % width, 37 * index % height);
        let mut picture = Plane::new(frame);
        for (y, row) in picture.data_mut().chunks_mut(width).enumerate() {
            row.copy_from_slice(first.as_ref().row((y + top) % height));
            row.rotate_left(left);
        }
        picture
    };
    (0..SET_BYTES.div_ceil(frame.area().max(1)).min(64)).map(shifted).collect()
}

/// Templates cut out of a window along its diagonal, and the place of the first.
pub(super) fn bank(picture: &Plane, window: Rect, size: Size, members: usize) -> Result<(Arc<Bank>, Rect)> {
    let room = Size::new(window.w - size.width, window.h - size.height);
    let place = |index: usize| {
        let share = (index + 1) as f64 / (members + 2) as f64;
        let (x, y) = ((room.width as f64 * share) as usize, (room.height as f64 * share) as usize);
        Rect::new(window.x + x, window.y + y, size.width, size.height)
    };
    let cut = |index: usize| {
        let luma = picture.as_ref().crop(place(index)).to_plane();
        Template::new(format!("{index}"), luma, None)
    };
    let members: lockon_core::Result<Vec<_>> = (0..members).map(cut).collect();
    Ok((Arc::new(Bank::new(members?)?), place(0)))
}
