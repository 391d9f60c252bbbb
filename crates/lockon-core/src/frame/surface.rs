//! Pictures in the memory of a device, and the requests that they answer.
//!
//! A hardware decoder leaves its pictures, which the video interfaces call surfaces, in the device's memory.
//! The device searches them there. Code that needs pixels on the host requests the part that it needs:
//! windows that the device resamples, a shrunken picture, a box. Only code that writes or shows frames needs
//! whole planes.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::correlator::{Correlator, Tables};
use super::outlines::OutlineFinder;
use super::{Plane, Rect};
use crate::error::Result;

/// A picture in the memory of a device.
///
/// Reading a picture cannot fail, so samples that cannot be read are 0, and [`Self::check`] returns the
/// reason.
pub trait Surface: Any + Send + Sync {
    /// Copies the part `rect` of the luma plane to the host.
    ///
    /// # Panics
    /// If `rect` is not inside the plane.
    fn fetch(&self, rect: Rect) -> Plane;

    /// Writes the means of squares of `factor` pixels of luma, rounded half up; what does not fill a square
    /// is left out.
    ///
    /// # Panics
    /// If there are not `width / factor` times `height / factor` of them.
    fn shrink(&self, factor: usize, means: &mut [u8]);

    /// Writes the samples of grids, one grid after the other, as each says.
    ///
    /// # Panics
    /// If a grid lies outside of `samples`.
    fn sample(&self, grids: &[Grid], samples: &mut [u8]);

    /// A place for a tracker's filters on this device, made of these tables; `None` if the device has none.
    fn correlator(&self, _tables: &Tables) -> Option<Box<dyn Correlator>> {
        None
    }

    /// The search for outlines in this picture on its device; `None` if the device has none.
    fn outline_finder(&self) -> Option<&dyn OutlineFinder> {
        None
    }

    /// # Errors
    /// The first error of the calls above, and of those to a [`Correlator`] and an [`OutlineFinder`].
    fn check(&self) -> Result<()>;
}

/// A grid of samples of one component of a picture. `tracker/sample.rs` says what a sample is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Grid {
    /// The plane, the byte of a row that the component begins with, and bytes from a pixel to the next.
    pub plane: usize,
    /// See `plane`.
    pub first: usize,
    /// See `plane`.
    pub step: usize,
    /// Where the samples of a row lie: the start in 1/256 pixel, and from one to the next in 1/65536 pixel.
    pub columns: (i64, i64),
    /// As `columns`, for the samples of a column.
    pub rows: (i64, i64),
    /// Samples on each side.
    pub side: usize,
    /// For a grid that is turned: it is sampled from an upright one, which `columns` and `rows` are of.
    pub turn: Option<Turn>,
    /// In a row stand first those whose index is a multiple of this, then those after them, and so on.
    pub groups: usize,
    /// It is one of so many grids that stand beside each other: its samples of a group stand behind those of
    /// the grids before it.
    pub across: usize,
    /// Its index among these grids.
    pub index: usize,
    /// The first byte of these grids.
    pub at: usize,
}

impl Grid {
    /// The byte that its last sample is written to, and one more.
    pub fn end(&self) -> usize {
        self.at + self.side * self.side * self.across
    }
}

/// How a turned grid lies in the upright one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Samples on each side of the upright grid.
    pub count: usize,
    /// From a sample to its right neighbour, along x and y, in 1/65536 of an upright sample.
    pub right: (i32, i32),
    /// And to the one below.
    pub below: (i32, i32),
}

/// Bytes that a run has moved, and how long its device worked; shared by all who count.
#[derive(Clone, Default)]
pub struct Traffic(Arc<Counts>);

#[derive(Default)]
struct Counts {
    up: AtomicU64,
    down: AtomicU64,
    copied: AtomicU64,
    device_us: AtomicU64,
}

impl Traffic {
    /// Counts bytes on their way to a device.
    pub fn add_up(&self, bytes: usize) {
        self.0.up.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes on their way from a device.
    pub fn add_down(&self, bytes: usize) {
        self.0.down.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes of frames that the host copied from one place in its memory to another.
    pub fn add_copied(&self, bytes: usize) {
        self.0.copied.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts microseconds that the device worked on a frame.
    pub fn add_device_us(&self, us: u64) {
        self.0.device_us.fetch_add(us, Ordering::Relaxed);
    }

    /// Microseconds that the device has worked so far.
    pub fn device_us(&self) -> u64 {
        self.0.device_us.load(Ordering::Relaxed)
    }

    /// All bytes so far: to devices, from devices, and copied on the host.
    pub fn so_far(&self) -> (u64, u64, u64) {
        let Counts { up, down, copied, .. } = &*self.0;
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(up), load(down), load(copied))
    }
}

impl fmt::Debug for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (up, down, copied) = self.so_far();
        f.debug_struct("Traffic").field("up", &up).field("down", &down).field("copied", &copied).finish()
    }
}
