//! The components of a mask that hold a pixel of another one: kernels/hysteresis.cu, planned and launched.

#![expect(unsafe_code, reason = "launching a kernel: what it reads and writes are addresses without lengths")]

use super::super::driver::{DeviceBuffer, Kernel, Ptx, Stream, arg, ptx};
use super::super::shared::constant;
use super::Modules;
use lockon_core::error::Result;
use lockon_core::frame::Size;

const PTX: &str = include_str!("../../ptx/hysteresis.ptx");
pub(super) const KERNELS: Ptx = ptx!("hysteresis");

const TILE: [usize; 2] = [constant(PTX, "CHOICE_TILE_X"), constant(PTX, "CHOICE_TILE_Y")];

/// The choice of components in masks of one size, with its working memory: five bytes a pixel.
pub(super) struct Hysteresis {
    size: Size,
    begin: Kernel,
    join: Kernel,
    mark: Kernel,
    choose: Kernel,
    labels: DeviceBuffer<u32>,
    holds: DeviceBuffer<u8>,
}

impl Hysteresis {
    pub(super) fn new(modules: &Modules<'_>, size: Size) -> Result<Self> {
        let module = (modules.load)(KERNELS)?;
        Ok(Self {
            size,
            begin: module.kernel("begin_components")?,
            join: module.kernel("join_components")?,
            mark: module.kernel("mark_components")?,
            choose: module.kernel("choose_components")?,
            labels: modules.gpu.alloc("components of a mask", size.area())?,
            holds: modules.gpu.alloc("chosen components", size.area())?,
        })
    }

    /// Enqueues the choice without waiting: of the white pixels of `mask` those stay white whose component,
    /// by 8 neighbours, holds a white pixel of `few`. Their number is added to the counter.
    ///
    /// # Panics
    /// If a mask is too small, or there is no such counter.
    pub(super) fn run(
        &self,
        stream: &Stream,
        mask: &mut DeviceBuffer<u8>,
        few: &DeviceBuffer<u8>,
        (counters, index): (&mut DeviceBuffer<u64>, usize),
    ) -> Result<()> {
        let Size { width, height } = self.size;
        assert!(mask.len().min(few.len()) >= self.size.area(), "a mask that is too small for {}", self.size);
        assert!(index < counters.len(), "counter {index} of {}", counters.len());
        if self.size.area() == 0 {
            return Ok(());
        }
        let int = |value: usize| i32::try_from(value).expect("a frame's sides fit in 31 bits");
        let (mask, few, counter) = (mask.address(), few.address(), counters.address_of(index));
        let (labels, holds, sides) = (self.labels.address(), self.holds.address(), [int(width), int(height)]);
        let [mask, few, counter] = [arg(&mask), arg(&few), arg(&counter)];
        let [labels, holds] = [arg(&labels), arg(&holds)];
        let [width_arg, height_arg] = [arg(&sides[0]), arg(&sides[1])];
        let grid = [width.div_ceil(TILE[0]), height.div_ceil(TILE[1]), 1];
        let block = [TILE[0], TILE[1], 1];
        // SAFETY: the arguments of the four kernels, in their order. They read and write w * h bytes of the
        // masks, whose lengths are asserted, and w * h labels and marks, as many as `new` allocated. A warp
        // is one row of threads, as it must be: TILE is 32 wide.
        unsafe {
            let begin = &mut [mask, width_arg, height_arg, labels, holds];
            stream.launch(&self.begin, grid, block, 0, begin)?;
            stream.launch(&self.join, grid, block, 0, &mut [mask, width_arg, height_arg, labels])?;
            let mark = &mut [mask, few, width_arg, height_arg, labels, holds];
            stream.launch(&self.mark, grid, block, 0, mark)?;
            let choose = &mut [mask, counter, width_arg, height_arg, labels, holds];
            stream.launch(&self.choose, grid, block, 0, choose)
        }
    }
}
