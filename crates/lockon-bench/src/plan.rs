//! The requested benchmarks, and the measurements planned for them.

use std::str::FromStr;

use lockon_core::Error;
use lockon_core::config::{BackendChoice, Block, Kernel, ThresholdMethod, ThresholdSpec};
use lockon_core::frame::{Rect, Size};

use super::peers::Peers;
use super::table::Row;

/// A subject that can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Subject {
    /// Time from the creation of a context to the first result
    Start,
    /// Template matching
    Ncc,
    /// Adaptive thresholds
    Threshold,
    /// Objects of masks
    Objects,
    /// Uploads, downloads, and turning a picture
    Copies,
    /// Frames through the ring
    Ring,
}

/// The measurements to make.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct BenchRequest {
    /// The device: auto, cpu, cuda, cuda:N
    #[arg(long, default_value = "auto", value_parser = read::<BackendChoice>)]
    pub(super) backend: BackendChoice,
    /// Only frames of this size, instead of 1920x1080 and 3840x2160
    #[arg(long, value_name = "WxH", value_parser = read::<Size>)]
    pub(super) frame: Option<Size>,
    /// Only templates of this size, instead of all sizes and the thresholds
    #[arg(long, value_name = "WxH", value_parser = read::<Size>)]
    pub(super) template: Option<Size>,
    /// Number of templates in one pass
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = |s: &str| s.parse().ok().filter(|&n: &usize| n > 0).ok_or("not a number of 1 or more"))]
    pub(super) bank: usize,
    /// Only thresholds of this block, instead of all blocks and the templates
    #[arg(long, value_name = "N", value_parser = |s: &str| s.parse().ok().filter(|n: &usize| n % 2 == 1 && (3..=255).contains(n)).ok_or("not an odd number from 3 to 255"))]
    pub(super) block: Option<usize>,
    /// Only this kernel, beside the default one; may be given several times
    #[arg(long, value_name = "NAME", value_parser = read::<Kernel>)]
    pub(super) kernel: Vec<Kernel>,
    /// Measure only this; may be given several times
    #[arg(long, value_name = "WHAT")]
    pub(super) only: Vec<Subject>,
    /// Also time NPP and cuFFT, if they are installed
    #[arg(long)]
    pub(super) peers: bool,
    /// Threads of the CPU backend [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// One JSON object instead of a table
    #[arg(long)]
    pub(super) json: bool,
}

/// Reads a value of the library's. The error does not contain the value, which clap names before it.
fn read<T: FromStr<Err = Error>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error| match error {
        Error::Value { expected, .. } => expected,
        other => other.to_string(),
    })
}

impl BenchRequest {
    pub(super) fn threads(&self) -> usize {
        self.threads.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from)
    }
}

/// Frame sizes that are measured by default.
pub(super) const FRAMES: [Size; 2] = [Size::new(1920, 1080), Size::new(3840, 2160)];

const TEMPLATES: [usize; 7] = [8, 16, 32, 48, 64, 128, 256];

const BLOCKS: [usize; 6] = [3, 11, 31, 51, 127, 255];

/// A window of the kind that tracks ask for.
pub(super) const WINDOW: Rect = Rect { x: 840, y: 444, w: 192, h: 192 };

/// The work on frames that go through the ring.
pub(super) const RING_TEMPLATE: Size = Size::new(64, 64);

pub(super) const RING_THRESHOLD: ThresholdSpec = ThresholdSpec {
    method: ThresholdMethod::Mean { c: 5.0 },
    block: Block::square(31),
    second: None,
    inverse: false,
};

/// Frames that go through the ring for one measurement, and seconds after which fewer suffice.
pub(super) const RING_FRAMES: u64 = 4_000;

pub(super) const RING_SECONDS: f64 = 1.0;

/// Refuses what cannot mean anything.
pub(super) fn check_request(args: &BenchRequest) -> lockon_core::Result<()> {
    let usage = |text: String| Err(Error::Usage(text));
    if let (Some(template), Some(frame)) = (args.template, args.frame)
        && !template.fits_in(frame)
    {
        return usage(format!("--template {template} does not fit in --frame {frame}"));
    }
    if args.bank > 1 && args.template.is_none() && args.block.is_some() {
        return usage("--bank is for templates, and --block measures thresholds only".into());
    }
    let on_both = [Subject::Ncc, Subject::Threshold];
    let nothing = |subject: &Subject| match subject {
        Subject::Ncc => args.block.is_some() && args.template.is_none(),
        Subject::Threshold => args.template.is_some() && args.block.is_none(),
        _ => args.backend == BackendChoice::Cpu,
    };
    if !args.only.is_empty() && args.only.iter().all(nothing) {
        return usage(
            "nothing to measure: --only, --template, --block and --backend exclude each other".into(),
        );
    }
    match args.backend {
        BackendChoice::Cpu if !args.kernel.is_empty() => {
            usage("--kernel chooses among the CUDA backend's: it needs --backend cuda".into())
        }
        BackendChoice::Cpu if args.peers => usage("--peers are the GPU's: it needs --backend cuda".into()),
        BackendChoice::Cpu if args.only.iter().any(|subject| !on_both.contains(subject)) => {
            usage("--backend cpu measures ncc and threshold only".into())
        }
        BackendChoice::Cuda(_) | BackendChoice::CudaOf(_) if args.threads.is_some() => {
            usage("--threads is for the CPU backend".into())
        }
        _ => Ok(()),
    }
}

/// The measurements to make, and the results so far.
pub(super) struct Work {
    pub(super) frames: Vec<Size>,
    pub(super) templates: Vec<Size>,
    pub(super) blocks: Vec<usize>,
    pub(super) bank: usize,
    pub(super) kernels: Vec<Kernel>,
    pub(super) only: Vec<Subject>,
    pub(super) peers: Option<Peers>,
    /// Everything is measured, not one thing only.
    pub(super) is_all: bool,
    pub(super) threads: usize,
    pub(super) prints_table: bool,
    pub(super) rows: Vec<Row>,
}

impl Work {
    pub(super) fn new(args: &BenchRequest) -> Self {
        let is_all = args.template.is_none() && args.block.is_none();
        let square = |side: &usize| Size::new(*side, *side);
        Self {
            frames: args.frame.map_or(FRAMES.to_vec(), |frame| vec![frame]),
            templates: match args.template {
                Some(size) => vec![size],
                None if is_all => TEMPLATES.iter().map(square).collect(),
                None => Vec::new(),
            },
            blocks: match args.block {
                Some(block) => vec![block],
                None if is_all => BLOCKS.to_vec(),
                None => Vec::new(),
            },
            bank: args.bank,
            kernels: args.kernel.clone(),
            only: args.only.clone(),
            peers: args.peers.then(Peers::load),
            is_all,
            threads: args.threads(),
            prints_table: !args.json,
            rows: Vec::new(),
        }
    }

    pub(super) fn wants_kernel(&self, kernel: Kernel) -> bool {
        self.kernels.is_empty() || self.kernels.contains(&kernel)
    }

    /// True if the subject was named. If none was named: everything, or only the requested templates and
    /// thresholds.
    pub(super) fn wants_subject(&self, subject: Subject) -> bool {
        let belongs = self.is_all || matches!(subject, Subject::Ncc | Subject::Threshold);
        if self.only.is_empty() { belongs } else { self.only.contains(&subject) }
    }
}
