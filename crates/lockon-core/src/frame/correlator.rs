//! Correlation filters in the memory of a device, which looks at its own pictures with them.
//!
//! A tracker's filters see windows of a picture as features, and respond to them ([`tracker`](crate::tracker)
//! says how). Where the picture lies on a device, samples of a window would come to the host, and the host
//! would do the rest. A device that can do it all keeps the filters itself: it samples, describes, transforms
//! and responds, and the host gets two numbers for each cell of a window, and the bins of its colours, by
//! which it decides.
//!
//! Everything is computed in the order of operations of the host's code, so that a device gives the same
//! bytes.

use std::any::Any;

use super::surface::{Grid, Surface};

/// Cells on a side of a window.
pub const GRID: usize = 32;

/// Frequencies kept in a row of a spectrum: a real grid's others are their conjugates.
pub const HALF: usize = GRID / 2 + 1;

/// Channels of a cell: its features.
pub const CHANNELS: usize = 32;

/// Samples on a side of a window's luma.
pub const LUMA_SIDE: usize = 4 * GRID;

/// Samples on a side of its chroma and of its colours' bins.
pub const COLOUR_SIDE: usize = LUMA_SIDE / 2;

/// Bins of colours: chroma in 12 steps of 6 about grey, beyond which hardly anything lies, by 8 steps of
/// luma; luma alone in 32 steps.
pub const BINS: usize = 8 * 12 * 12;

/// States of a filter that are kept to go back to.
pub const KEPT: usize = 3;

/// ADMM's weight of g = h in its first round of learning.
pub const PENALTY: f32 = 1.0;

/// The half spectrum of a grid: row, column in `0..HALF`, channel.
#[derive(Debug, Default, PartialEq)]
pub struct Spectrum {
    /// Real parts.
    pub re: Vec<[f32; CHANNELS]>,
    /// Imaginary parts.
    pub im: Vec<[f32; CHANNELS]>,
}

impl Clone for Spectrum {
    fn clone(&self) -> Self {
        Self { re: self.re.clone(), im: self.im.clone() }
    }

    /// In the room that is there.
    fn clone_from(&mut self, other: &Self) {
        self.re.clone_from(&other.re);
        self.im.clone_from(&other.im);
    }
}

impl Spectrum {
    /// All 0.
    pub fn zero() -> Self {
        Self { re: vec![[0.0; CHANNELS]; GRID * HALF], im: vec![[0.0; CHANNELS]; GRID * HALF] }
    }
}

/// A filter as it was learnt up to some frame.
#[derive(Debug, PartialEq)]
pub struct Learnt {
    /// The filter.
    pub filter: Spectrum,
    /// Its response to the last sample that was learnt, at that sample's own place.
    pub top: f32,
}

impl Clone for Learnt {
    fn clone(&self) -> Self {
        Self { filter: self.filter.clone(), top: self.top }
    }

    fn clone_from(&mut self, other: &Self) {
        self.filter.clone_from(&other.filter);
        self.top = other.top;
    }
}

/// The states of a filter that are kept, oldest first: at most [`KEPT`].
pub type KeptStates = Vec<Learnt>;

/// How strongly a filter is drawn to the last one, and to the first, relative to the power of a sample.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// To the last one.
    pub last: f32,
    /// To the first one.
    pub first: f32,
}

/// A filter and all that learning needs.
#[derive(Debug, Clone)]
pub struct FilterState {
    /// Its current state.
    pub learnt: Learnt,
    /// The first filter, which never changes.
    pub anchor: Spectrum,
    /// The weight of each cell: 0 in the box.
    pub outside: Vec<f32>,
    /// The half spectrum of the label: real and imaginary parts.
    pub label: (Vec<f32>, Vec<f32>),
    /// How strongly it is drawn to earlier states.
    pub memory: Memory,
    /// Mean power of the first sample's spectrum: the unit of all weights.
    pub power: f32,
    /// The states that are kept.
    pub kept: KeptStates,
}

/// Numbers that the host computes, since no two maths libraries agree on the last bit.
#[derive(Debug, Clone)]
pub struct Tables {
    /// Cosine and minus sine of the angles by which 32 divides the circle.
    pub turns: [[f32; 2]; GRID],
    /// The factor of each cell by its distance from the middle, and that of wide windows.
    pub tapers: [Vec<f32>; 2],
    /// Bells of the colour names over luma, u and v.
    pub names: [Vec<[f32; 16]>; 3],
}

/// A window that a filter is to look at.
pub struct Query<'a> {
    /// The filter.
    pub filter: &'a dyn PlacedFilter,
    /// The window's luma, and its u and v, where colours count: one after the other.
    pub grids: &'a [Grid],
    /// True for the taper of wide windows.
    pub is_wide: bool,
    /// The probability of each bin of colours to be the target's.
    pub probabilities: &'a [f32],
    /// Half of the target's width and height, in samples of colours.
    pub half: (i64, i64),
    /// The filter may learn this window, unless another one that it may learn follows. At most one of each
    /// filter in a call.
    pub is_learnt: bool,
    /// Gets the responses: of each displacement from the middle, in cells, row by row; negative ones are at
    /// the end.
    pub responses: &'a mut [f32],
    /// Gets the mean probability of the box at each displacement, if that is wanted.
    pub colours: Option<&'a mut [f32]>,
    /// Gets the bin of each sample of colours, row by row, if that is wanted.
    pub bins: Option<&'a mut [u16]>,
}

/// Something to learn: the sample that a filter looked at last, moved.
pub struct Lesson<'a> {
    /// The filter.
    pub filter: &'a dyn PlacedFilter,
    /// By what the rows and the columns of the sample's spectrum are turned: cosine and sine.
    pub rows: [(f32, f32); GRID],
    /// See `rows`.
    pub columns: [(f32, f32); HALF],
}

/// Keeps filters of one tracker, on one device.
///
/// A device that fails notes it in the picture ([`Surface::check`]), and the answers are 0.
pub trait Correlator: Any + Send + Sync {
    /// True if it can look at that picture.
    fn sees(&self, surface: &(dyn Surface + 'static)) -> bool;

    /// Takes a filter in; `None` if there is no room.
    fn place(&self, filter: &FilterState) -> Option<Box<dyn PlacedFilter>>;

    /// Looks at windows of a picture, and waits for the answers.
    fn respond(&self, surface: &(dyn Surface + 'static), queries: &mut [Query<'_>]);

    /// Learns, at the latest before the next look.
    fn learn(&self, surface: &(dyn Surface + 'static), lessons: &[Lesson<'_>]);
}

/// A filter on a device.
pub trait PlacedFilter: Any + Send + Sync {
    /// The correlator that has placed it.
    fn correlator(&self) -> &dyn Correlator;

    /// Keeps what it has learnt. At most [`KEPT`] states are kept: the oldest makes room.
    fn keep(&mut self);

    /// Goes back to the oldest state that is kept, if there is one, and forgets all of these.
    fn go_back(&mut self);

    /// The filter as it is now. Of a device that has failed it is 0, so that it finds nothing.
    fn fetch(&self) -> FilterState;
}
