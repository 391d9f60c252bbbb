//! Thresholds without a neighbourhood: `kernels/threshold_whole.cu`, planned and launched.

#![expect(unsafe_code, reason = "launching a kernel: what it reads and writes are addresses without lengths")]

use super::super::driver::{DeviceBuffer, Gpu, Kernel, Ptx, Stream, arg, fault, ptx};
use super::super::ncc::DeviceFrame;
use super::super::shared::constant;
use super::{Modules, joined};
use lockon_core::backend::threshold::{self, Background};
use lockon_core::config::ThresholdMethod;
use lockon_core::error::{DeviceFault, Result};
use lockon_core::frame::Size;

const PTX: &str = include_str!("../../ptx/threshold_whole.ptx");
pub(super) const KERNELS: Ptx = ptx!("threshold_whole");

const TILE: [usize; 2] = [constant(PTX, "WHOLE_TILE_X"), constant(PTX, "WHOLE_TILE_Y")];
const LEVELS: usize = constant(PTX, "LEVELS");
const HISTOGRAM_ROWS: usize = constant(PTX, "HISTOGRAM_ROWS");
const SURVEY_WORDS: usize = constant(PTX, "SURVEY_WORDS");
const SURVEY_LEVEL: usize = constant(PTX, "SURVEY_LEVEL");

const _: () = {
    let same = constant(PTX, "BACKGROUND_BITS") == threshold::BACKGROUND_BITS as usize
        && constant(PTX, "BACKGROUND_WEIGHT_BITS") == threshold::BACKGROUND_WEIGHT_BITS as usize;
    assert!(same, "the kernels' fixed point is not the numeric contract's");
};

/// Largest frame whose histogram gives a level: sums of products of its counts fit in 64 bits.
const LARGEST: Size = Size::new(1 << 14, 1 << 14);

/// The numbers of a whole frame, on the device.
pub(super) struct Survey {
    begin: Kernel,
    numbers: DeviceBuffer<u32>,
}

impl Survey {
    pub(super) fn new(modules: &Modules<'_>) -> Result<Self> {
        Ok(Self {
            begin: (modules.load)(KERNELS)?.kernel("begin_survey")?,
            numbers: modules.gpu.alloc("numbers of a frame", SURVEY_WORDS)?,
        })
    }

    pub(super) fn address(&self) -> u64 {
        self.numbers.address()
    }

    /// Makes it that of no pixels.
    pub(super) fn begin(&self, stream: &Stream) -> Result<()> {
        let address = self.address();
        // SAFETY: the argument of `begin_survey`, which writes the survey: `new` allocated it.
        unsafe { stream.launch(&self.begin, [1, 1, 1], [LEVELS, 1, 1], 0, &mut [arg(&address)]) }
    }
}

/// The kernels of a level, or of a background, with the memory that they keep.
pub(super) enum Whole {
    Level {
        survey: Survey,
        /// Kernels that find the level of each frame; nothing where it is fixed.
        find: Option<[Kernel; 2]>,
        compare: Kernel,
    },
    Background {
        next: Kernel,
        compare: Kernel,
        limit: i32,
        few_limit: i32,
        most: i32,
        means: DeviceBuffer<u32>,
        frames: DeviceBuffer<u32>,
    },
}

impl Whole {
    /// Plans a method without neighbourhood, and the stricter value of a background's hysteresis.
    ///
    /// # Panics
    /// If the method has a neighbourhood.
    pub(super) fn new(
        modules: &Modules<'_>,
        stream: &Stream,
        method: ThresholdMethod,
        few: Option<ThresholdMethod>,
        size: Size,
    ) -> Result<Self> {
        let gpu: &Gpu = modules.gpu;
        let module = (modules.load)(KERNELS)?;
        let level = |find: Option<&'static str>| {
            let find = match find {
                Some(_) if size.area() > LARGEST.area() => {
                    return Err(fault(DeviceFault::FrameTooLarge { frame: size, max: LARGEST }));
                }
                Some(find) => Some([module.kernel("take_histogram")?, module.kernel(find)?]),
                None => None,
            };
            Ok(Self::Level { survey: Survey::new(modules)?, find, compare: module.kernel("compare_level")? })
        };
        match method {
            ThresholdMethod::Otsu => level(Some("find_otsu")),
            ThresholdMethod::Triangle => level(Some("find_triangle")),
            ThresholdMethod::Fixed { t } => {
                let mut level = level(None)?;
                if let Self::Level { survey, .. } = &mut level {
                    let mut numbers = [0_u32; SURVEY_WORDS];
                    numbers[SURVEY_LEVEL] = threshold::fixed_level(t) as u32;
                    stream.upload_now(&numbers, &mut survey.numbers)?;
                }
                Ok(level)
            }
            ThresholdMethod::Background { frames: most, t } => Ok(Self::Background {
                next: module.kernel("next_frame")?,
                compare: module.kernel("compare_background")?,
                limit: threshold::background_limit(t),
                few_limit: few.and_then(|few| few.value()).map_or(0, threshold::background_limit),
                most: most as i32,
                means: gpu.alloc("a background", size.area())?,
                frames: gpu.alloc("the frames of a background", 1)?,
            }),
            _ => panic!("{} has a neighbourhood", method.name()),
        }
    }

    /// Waits, and gives the background of the frames so far, if there is one.
    pub(super) fn background(&self, stream: &Stream) -> Result<Option<Background>> {
        let Self::Background { means, frames, .. } = self else { return Ok(None) };
        let (mut mean, mut count) = (vec![0; means.len()], [0]);
        stream.download_now(means, &mut mean)?;
        stream.download_now(frames, &mut count)?;
        Ok((count[0] > 0).then_some(Background { frames: count[0], mean }))
    }

    /// Waits, and replaces the background, if there is one.
    ///
    /// # Panics
    /// If it is of frames of another size.
    pub(super) fn continue_from(&mut self, stream: &Stream, background: &Background) -> Result<()> {
        let Self::Background { means, frames, .. } = self else { return Ok(()) };
        assert_eq!(background.mean.len(), means.len(), "a background of another size");
        stream.upload_now(&background.mean, means)?;
        stream.upload_now(&[background.frames], frames)
    }

    /// As `Pass::run`, which has compared the sizes. `few` gets the mask of a background's stricter value.
    ///
    /// # Panics
    /// If that mask is too small.
    pub(super) fn run(
        &self,
        stream: &Stream,
        frame: &DeviceFrame,
        (mask, few): (&mut DeviceBuffer<u8>, Option<&mut DeviceBuffer<u8>>),
        (counters, index): (&mut DeviceBuffer<u64>, usize),
        inverse: i32,
    ) -> Result<()> {
        let Size { width, height } = frame.size;
        let (image, mask, counter) = (frame.rows_from(0, 0), mask.address(), counters.address_of(index));
        let int = |value: usize| i32::try_from(value).expect("a frame's sides fit in 31 bits");
        let sides = [int(image.pitch), int(width), int(height)];
        let input = [arg(&image.address), arg(&sides[0]), arg(&sides[1]), arg(&sides[2])];
        let output = [arg(&mask), arg(&counter), arg(&inverse)];
        let grid = [width.div_ceil(TILE[0]), height.div_ceil(TILE[1]), 1];
        match self {
            Self::Level { survey, find, compare } => {
                let numbers = survey.address();
                if let Some([histogram, find]) = find {
                    survey.begin(stream)?;
                    let args = &mut joined::<5>(&[&input, &[arg(&numbers)]]);
                    let blocks = [height.div_ceil(HISTOGRAM_ROWS), 1, 1];
                    // SAFETY: the arguments of `take_histogram`, which reads the image within w x h, the
                    // frame's, and writes the survey, and that of `find_otsu` or `find_triangle`, which
                    // reads and writes that alone.
                    unsafe {
                        stream.launch(histogram, blocks, [LEVELS, 1, 1], 0, args)?;
                        stream.launch(find, [1, 1, 1], [LEVELS, 1, 1], 0, &mut [arg(&numbers)])?;
                    }
                }
                let args = &mut joined::<8>(&[&input, &output, &[arg(&numbers)]]);
                // SAFETY: the arguments of `compare_level`, which reads the image within w x h, the frame's,
                // and writes w * h bytes of the mask: the caller compared the sizes.
                unsafe { stream.launch(compare, grid, [TILE[0], TILE[1], 1], 0, args) }
            }
            Self::Background { next, compare, limit, few_limit, most, means, frames } => {
                if let Some(few) = &few {
                    assert!(
                        few.len() >= frame.size.area(),
                        "a mask of {} bytes for {}",
                        few.len(),
                        frame.size
                    );
                }
                let few = few.map_or(0, |few| few.address());
                let (means, frames) = (means.address(), frames.address());
                let rest = [arg(limit), arg(&few), arg(few_limit), arg(&means), arg(&frames), arg(most)];
                let args = &mut joined::<13>(&[&input, &output, &rest]);
                // SAFETY: the arguments of `next_frame`, which writes the one number of frames, and of
                // `compare_background`, which reads the image within w x h, the frame's, and writes w * h
                // bytes of the masks, of which the caller and the assertion above compared the sizes, or of
                // none if the address is 0, and w * h means, as many as `new` allocated.
                unsafe {
                    stream.launch(next, [1, 1, 1], [1, 1, 1], 0, &mut [arg(&frames), arg(most)])?;
                    stream.launch(compare, grid, [TILE[0], TILE[1], 1], 0, args)
                }
            }
        }
    }
}
