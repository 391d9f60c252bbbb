//! A run's options as plain data: the search, the threshold, boxes, scales, angles, the device; here the
//! kernels that have names.
//!
//! Each type parses the text that the command line documents and refuses values without a meaning, so that
//! every value can be run.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

mod codec;
mod device;
mod geometry;
mod line;
mod objects;
mod part;
mod range;
mod rolling;
mod search;
mod shot;
mod speed;
mod subject;
mod threshold;
mod typed;
mod view;
mod zone;

pub use codec::Codec;
pub use device::{BackendChoice, Gpus, OnDeviceLoss};
pub use line::{CountingLine, CountingLines, Direction};
pub use objects::{Bounds, Cleaning, Connectivity, ObjectColour, ObjectSpec, Square};
pub use part::{Moment, Part, TimeSpan, TrackSpec};
pub use range::LumaRange;
pub use rolling::Rotate;
pub use search::{Angles, Limits, Scales, SearchMethod};
pub use shot::Shot;
pub use speed::Speed;
pub use subject::Subject;
pub use threshold::{Block, ThresholdMethod, ThresholdSpec};
pub use typed::Typed;
pub use view::View;
pub use zone::{Placed, Places, Zone, ZoneLimit, Zones};

/// One hand-written kernel of the CUDA backend, as `--kernel` and the bench table name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// How the products of NCC are summed.
    Ncc(NccKernel),
    /// How the sums of the box thresholds (mean, Sauvola, Niblack, Wolf, Phansalkar, Bradley) are made.
    Box(BoxKernel),
    /// How the Gaussian threshold is convolved.
    Gaussian(GaussianKernel),
}

/// How the products of NCC are summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NccKernel {
    /// Image and template through textures: any size.
    Texture,
    /// The template in constant memory, the image through a texture.
    Constant,
    /// The image's tile in shared memory, the template in constant memory.
    Shared,
    /// Products on the tensor cores of compute capability 9.0, no score map.
    Wgmma,
    /// As `Wgmma`, but into a score map: up to about 2000x2000 pixels.
    WgmmaMap,
    /// Products on the tensor cores of compute capability 7.5 and later: any size, no score map for small
    /// templates.
    Mma,
    /// As `Mma`, but into a score map for small templates too.
    MmaMap,
}

impl NccKernel {
    /// True if it takes tensor cores.
    pub fn is_for_tensor_cores(self) -> bool {
        match self {
            Self::Wgmma | Self::WgmmaMap | Self::Mma | Self::MmaMap => true,
            Self::Texture | Self::Constant | Self::Shared => false,
        }
    }
}

/// How the sums of a box are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoxKernel {
    /// One pass: sums slide in shared memory.
    Fused,
    /// Each pixel's window is summed from a tile in shared memory.
    Tile,
    /// Sums slide down the columns and along the rows.
    Sliding,
}

/// How a picture is convolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GaussianKernel {
    /// One pass, on the tensor cores.
    Fused,
    /// The tile and its halo lie in shared memory.
    Shared,
    /// The tile lies in shared memory, the halo is left to the cache.
    Cached,
}

impl Kernel {
    /// All kernels, with their names.
    pub const ALL: [(&str, Self); 13] = [
        ("ncc-texture", Self::Ncc(NccKernel::Texture)),
        ("ncc-constant", Self::Ncc(NccKernel::Constant)),
        ("ncc-shared", Self::Ncc(NccKernel::Shared)),
        ("ncc-wgmma", Self::Ncc(NccKernel::Wgmma)),
        ("ncc-wgmma-map", Self::Ncc(NccKernel::WgmmaMap)),
        ("ncc-mma", Self::Ncc(NccKernel::Mma)),
        ("ncc-mma-map", Self::Ncc(NccKernel::MmaMap)),
        ("box-tile", Self::Box(BoxKernel::Tile)),
        ("box-sliding", Self::Box(BoxKernel::Sliding)),
        ("box-fused", Self::Box(BoxKernel::Fused)),
        ("gaussian-shared", Self::Gaussian(GaussianKernel::Shared)),
        ("gaussian-cached", Self::Gaussian(GaussianKernel::Cached)),
        ("gaussian-fused", Self::Gaussian(GaussianKernel::Fused)),
    ];

    /// Their names.
    pub const NAMES: [&str; Self::ALL.len()] = {
        let mut names = [""; Self::ALL.len()];
        let mut at = 0;
        while at < names.len() {
            names[at] = Self::ALL[at].0;
            at += 1;
        }
        names
    };

    /// True if it computes thresholds of this method.
    pub fn makes(self, method: ThresholdMethod) -> bool {
        match method {
            ThresholdMethod::Gaussian { .. } => matches!(self, Self::Gaussian(_)),
            ThresholdMethod::Mean { .. }
            | ThresholdMethod::Sauvola { .. }
            | ThresholdMethod::Niblack { .. }
            | ThresholdMethod::Wolf { .. }
            | ThresholdMethod::Phansalkar { .. }
            | ThresholdMethod::Bradley { .. } => {
                matches!(self, Self::Box(_))
            }
            ThresholdMethod::Fixed { .. }
            | ThresholdMethod::Otsu
            | ThresholdMethod::Triangle
            | ThresholdMethod::Background { .. } => false,
        }
    }
}

impl FromStr for Kernel {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = Self::ALL.iter().find(|(name, _)| *name == text);
        known.map(|(_, kernel)| *kernel).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|(name, _)| *name).collect();
            Error::value("kernel", text, format!("expected one of {}", names.join(", ")))
        })
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, _) = Self::ALL.iter().find(|(_, kernel)| kernel == self).expect("each has its name");
        f.write_str(name)
    }
}

/// The kernels that were chosen. `None` means the fastest kernel that can do the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kernels {
    /// For template matching.
    pub ncc: Option<NccKernel>,
    /// For the thresholds of sums over boxes.
    pub boxes: Option<BoxKernel>,
    /// For the Gaussian.
    pub gaussian: Option<GaussianKernel>,
}

impl FromIterator<Kernel> for Kernels {
    /// If two kernels are for the same thing, the later one counts.
    fn from_iter<I: IntoIterator<Item = Kernel>>(kernels: I) -> Self {
        let mut chosen = Self::default();
        for kernel in kernels {
            match kernel {
                Kernel::Ncc(kernel) => chosen.ncc = Some(kernel),
                Kernel::Box(kernel) => chosen.boxes = Some(kernel),
                Kernel::Gaussian(kernel) => chosen.gaussian = Some(kernel),
            }
        }
        chosen
    }
}
