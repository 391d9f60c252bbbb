//! Suspects: possible peaks. Searches of `mma.rs` that write no score map leave suspects on the device, and
//! `settle` of `kernels/ncc_suspects.cuh` computes their exact scores and appends the peaks to the list of
//! candidates.

#![expect(unsafe_code, reason = "a kernel's arguments carry no types, device addresses no lengths")]

use lockon_core::error::Result;
use lockon_core::frame::{Rect, Size};

use super::driver::{DeviceBuffer, Gpu, Kernel, Module, Stream, arg};
use super::mma;
use super::ncc::{DeviceFrame, Found, Image, Member, Pattern, Wanted, positions};
use super::shared::{constant, pod_structure};

// Every PTX that has `settle` has these.
const SETTLE_WARPS: usize = constant(mma::PTX, "SETTLE_WARPS");
const SETTLE_BLOCKS: usize = constant(mma::PTX, "SETTLE_BLOCKS");

/// Suspects that a lane has room for: 1 MiB of them. Other numbers were not measured.
const SUSPECTS: usize = 65_536;

/// Rows of zeros before and after a template's words: `ZERO_ROWS` of `kernels/ncc_fast.cuh`, which asserts
/// this number.
const ZERO_ROWS: usize = 2;

/// A lane's room for suspects.
pub(super) struct Suspicion {
    state: DeviceBuffer<u32>,
    suspects: DeviceBuffer<u32>,
}

impl Suspicion {
    /// All zeros, as the first search wants it.
    pub(super) fn new(gpu: &Gpu) -> Result<Self> {
        Self::with_room(gpu, SUSPECTS)
    }

    /// For so many suspects.
    pub(super) fn with_room(gpu: &Gpu, suspects: usize) -> Result<Self> {
        Ok(Self { state: gpu.alloc("suspicion", 4)?, suspects: gpu.alloc("suspects", 4 * suspects)? })
    }

    /// For the kernels that fill and empty it.
    pub(super) fn suspects(&mut self) -> Suspects {
        Suspects {
            state: self.state.address(),
            list: self.suspects.address(),
            capacity: (self.suspects.len() / 4) as u32,
            unused: 0,
        }
    }
}

/// `Suspects` of `kernels/ncc_suspects.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Suspects {
    state: u64,
    list: u64,
    capacity: u32,
    unused: u32,
}

pod_structure!(Suspects, 24 bytes { state: u64, list: u64 = 8, capacity: u32 = 16, unused: u32 });

/// A template, and where to look for it.
#[derive(Clone, Copy)]
pub(super) struct Query<'a> {
    pub(super) member: &'a Member,
    pub(super) window: Rect,
    /// Identifies its candidates.
    pub(super) tag: u32,
}

/// `Sought` of `kernels/ncc_suspects.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Sought {
    frame: Image,
    left: i32,
    top: i32,
    width: i32,
    height: i32,
    pattern: Pattern,
    suspects: Suspects,
}

pod_structure!(Sought, 96 bytes {
    frame: Image,
    left: i32 = 24,
    top: i32,
    width: i32,
    height: i32,
    pattern: Pattern = 40,
    suspects: Suspects = 72,
});

impl Sought {
    /// # Panics
    /// If the window does not lie in the frame.
    pub(super) fn new(
        frame: &DeviceFrame,
        Query { member, window, .. }: Query<'_>,
        suspicion: &mut Suspicion,
    ) -> Self {
        assert!(window.is_inside(frame.size), "{window} of a {} frame", frame.size);
        let map = positions(window.size(), member.size);
        Self {
            frame: frame.image(Rect::whole(frame.size)),
            left: window.x as i32,
            top: window.y as i32,
            width: map.width as i32,
            height: map.height as i32,
            pattern: member.pattern,
            suspects: suspicion.suspects(),
        }
    }
}

/// A template's rows, of four pixels a word, as exact scores are computed from them.
pub(super) struct Words {
    template: Size,
    with_zeros: DeviceBuffer<u32>,
    /// Index of the template's first word.
    first: usize,
}

impl Words {
    /// Where its first row begins.
    pub(super) fn address(&self) -> u64 {
        self.with_zeros.address_of(self.first)
    }
}

/// The kernel that packs templates, of one of the modules that have it.
pub(super) struct Packer {
    gpu: Gpu,
    pack: Kernel,
}

impl Packer {
    pub(super) fn new(gpu: &Gpu, module: &Module) -> Result<Self> {
        Ok(Self { gpu: gpu.clone(), pack: module.kernel("pack_template")? })
    }

    /// Packs a template's pixels, by way of `stream`.
    pub(super) fn pack(&self, stream: &Stream, member: &Member) -> Result<Words> {
        let (columns, rows) = (member.size.width.div_ceil(4), member.size.height + 2 * ZERO_ROWS);
        let words = Words {
            template: member.size,
            with_zeros: self.gpu.alloc("words of a template", columns * rows)?,
            first: ZERO_ROWS * columns,
        };
        let (pixels, pitch, to) = (member.rows.address, member.rows.pitch as i32, words.address());
        let (w, h) = (member.size.width as i32, member.size.height as i32);
        let mut args = [arg(&pixels), arg(&pitch), arg(&w), arg(&h), arg(&to)];
        // SAFETY: the arguments of `pack_template`. A `Member`'s rows lie in its bank's buffer
        // (`PlannedSearch::new`); the kernel writes the template's rows and ZERO_ROWS on each side, as were
        // allocated above.
        unsafe {
            stream.launch(&self.pack, [(columns * rows).div_ceil(256), 1, 1], [256, 1, 1], 0, &mut args)?;
        };
        Ok(words)
    }
}

/// The kernel that settles.
pub(super) struct Settler {
    settle: Kernel,
    multiprocessors: usize,
}

impl Settler {
    /// To be launched as on a device of so many multiprocessors.
    pub(super) fn new(module: &Module, multiprocessors: usize) -> Result<Self> {
        Ok(Self { settle: module.kernel("settle")?, multiprocessors })
    }

    /// Scores the suspects of a search in this stream exactly, and appends the peaks to `found`, without
    /// waiting.
    ///
    /// # Panics
    /// If the words are those of a template of another size.
    pub(super) fn settle(
        &self,
        stream: &Stream,
        sought: &Sought,
        words: &Words,
        tag: u32,
        wanted: Wanted,
        found: &mut Found,
    ) -> Result<()> {
        assert_eq!(words.template, sought.pattern.size(), "the words of another template");
        let words = words.address();
        let (candidates, capacity) = (found.words.address_of(Found::HEADER), found.capacity() as u32);
        let counts = found.words.address();
        let mut args = [
            arg(sought),
            arg(&words),
            arg(&wanted.min_score),
            arg(&tag),
            arg(&candidates),
            arg(&capacity),
            arg(&counts),
        ];
        // Where only the best is wanted, there are a handful.
        let blocks = if wanted.best_only { 16 } else { SETTLE_BLOCKS * self.multiprocessors };
        // SAFETY: the arguments of `settle`. The window lies in the frame, as `Sought::new` asserts; the
        // words are those of a template of the size that is sought, as asserted above; the list of suspects
        // has the room that `Suspicion::suspects` states, that of candidates room for `capacity` behind its
        // header (`Found::new`), whose first word holds the two counts.
        unsafe { stream.launch(&self.settle, [blocks, 1, 1], [SETTLE_WARPS * 32, 1, 1], 0, &mut args) }
    }
}
