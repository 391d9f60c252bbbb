//! What can be typed.

use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args as ClapArgs, Parser, Subcommand, ValueHint};

use lockon::config::{
    Angles, BackendChoice, Kernel, Limits, Moment, OnDeviceLoss, Part, Scales, SearchMethod, ThresholdSpec,
    TrackSpec, View,
};
use lockon::control::Control;
use lockon::frame::{Rect, Size};
use lockon::job::{NamedTemplate, Sought};
use lockon::media::source::{Decoder, Input};
use lockon::memory::Bytes;
use lockon::metrics::Address;
use lockon::text;

use super::log::LogFormat;
use super::overwrite::OverwriteArgs;
use super::values::{offering, read};

/// Finds and follows known patterns in live or recorded video.
#[derive(Parser)]
#[command(version, propagate_version = true, max_term_width = 110)]
pub(super) struct Args {
    /// Say more: -v for what is decided and where a run's time went, -vv for state changes and GStreamer's
    /// warnings, -vvv for every frame; the variable `RUST_LOG` sets levels by target over that:
    /// `lockon::media=trace,gst=info,gst:qtdemux=debug`
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub(super) verbose: u8,
    /// Print errors only: no warnings, no progress, no summary
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(super) quiet: bool,
    /// What messages on standard error look like: text, or json (an object a line)
    #[arg(long, value_name = "FORMAT", global = true, default_value = "text", hide_possible_values = true)]
    pub(super) log_format: LogFormat,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Subcommand)]
pub(super) enum Command {
    /// Search, follow and threshold a video or a camera
    Run(Box<RunArgs>),
    /// Find templates in a still picture; prints one `frame` record, best match first; ends with 1 if nothing
    /// matches
    #[command(after_help = MATCH_EXAMPLES)]
    Match(MatchArgs),
    /// Draw a box on a frame with the mouse; prints the command that follows it, saves it as a template
    Pick(PickArgs),
    /// Threshold a still picture
    Threshold(ThresholdArgs),
    /// Measure this machine: frames a second of the usual sizes, in one sentence
    Bench(BenchArgs),
    /// Tell what is installed, what is missing, and the command that mends it
    Doctor,
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print a man page, or write all of them
    Man(ManArgs),
}

const RUN_EXAMPLES: &str = "\
Examples:
  Follow a box, see it in a window:
    lockon run match.mp4 --track 310,120,64,128 --display
  Find a logo in every frame; keep the video, its sound and the results:
    lockon run show.mkv --template logo=logo.png -o found.mp4 --results found.jsonl
  A pattern in any direction, at several sizes, three of them at most:
    lockon run belt.mp4 --template clip.png --angles -180..180/5 --scales 0.8..1.25/1.05 --max-matches 3 --results -
  Binarise a camera's picture:
    lockon run camera --threshold sauvola:31:0.2 --view mask --display
  Any GStreamer source and sink:
    lockon run --source 'videotestsrc ! appsink name=frames' --track 10,10,40,40 --sink 'appsrc name=results ! fakesink'

At its end a run says what was found. With -v it also says where the time went, per frame, in steps that overlap: waiting for
the source, which decodes; copying to the device; searching and thresholding; following tracks; drawing and writing outputs.
Latency is the time from a frame's arrival to its results.

Exit codes: 0 done, 1 an error at run time, 2 wrong usage, 130 interrupted by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP
(outputs are closed properly, a second signal ends at once).";

const MATCH_EXAMPLES: &str = "\
Examples:
  Every place that scores 0.7 or more, five at most, and a picture that shows them:
    lockon match scene.png part.png --min-score 0.7 --max-matches 5 -o found.png
  Which --min-score tells the right places from the wrong ones:
    lockon match scene.png part.png --explain >places.json
  In a script:
    lockon match screen.png button=ok.png >/dev/null && echo there

Exit codes, as grep's: 0 a template was found, 1 none was, 2 an error.";

#[derive(ClapArgs)]
#[command(after_help = RUN_EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch that can be typed")]
pub(super) struct RunArgs {
    /// A file, a URI, `camera[:/dev/videoN]`, pictures (`seq/%04d.jpg`, a folder, a quoted glob), or - for
    /// standard input
    #[arg(required_unless_present = "source", conflicts_with = "source", value_parser = OsStringValueParser::new().try_map(|typed| input(&typed)))]
    pub(super) input: Option<Input>,
    /// A source of your own: gst-launch text that ends in `appsink name=frames`, which may be left out, or
    /// @FILE with such text
    #[arg(long, value_name = "TEXT|@FILE")]
    pub(super) source: Option<String>,

    /// Search for a picture (PNG, JPEG, BMP; its alpha channel is the mask); may be given several times
    #[arg(short, long, value_name = "[NAME=]PATH", help_heading = "What to do")]
    pub(super) template: Vec<String>,
    /// Follow the object in this box (0,0 is the top left pixel), from this frame or time on: 18, 12.5s,
    /// 1:02.5 (the first frame if not given); may be given several times
    #[arg(long, value_name = "X,Y,W,H[@WHEN]", allow_hyphen_values = true, value_parser = read::<TrackSpec>, help_heading = "What to do")]
    pub(super) track: Vec<TrackSpec>,
    /// Draw the box to follow in a window, on the first frame (that of --start if it is given; a camera's
    /// newest): drag a box, arrows move it by a pixel, Shift+arrows resize it, Enter or space takes it, A
    /// adds another, Backspace takes the last one back, Esc, q and c cancel. Where there is no screen the
    /// frame is written as a picture with a grid to read boxes off
    #[arg(long, conflicts_with = "print_pipeline", help_heading = "What to do")]
    pub(super) pick: bool,
    /// Follow what --template finds: each match that lasts becomes a track with a number of its own, until it
    /// is lost for long. --max-matches says how many of each template are looked for
    #[arg(long, requires = "template", help_heading = "What to do")]
    pub(super) track_matches: bool,
    /// Binarise: `mean:BLOCK:C`, `gaussian:BLOCK:C`, `sauvola:BLOCK:K`, `niblack:BLOCK:K`; `:inv` inverts
    #[arg(long, value_name = "METHOD:BLOCK:VALUE[:inv]", value_parser = read::<ThresholdSpec>, help_heading = "What to do")]
    pub(super) threshold: Option<ThresholdSpec>,

    #[command(flatten)]
    pub(super) search: SearchArgs,

    /// Write the video with what was found drawn into it: .mp4, .mkv, .avi or .webm; may be given several
    /// times. What of it plays if lockon is killed: an .mp4 up to its last half second, nothing in its first
    /// second; an .mkv all that was written
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub(super) output: Vec<PathBuf>,
    /// Leave the input's sound out of -o
    #[arg(long, requires = "output", help_heading = "Output")]
    pub(super) no_audio: bool,
    /// Show it in a window. There space pauses and goes on, `.` goes on by one frame, q and Esc end the run
    /// as if the video had ended, and so does closing the window; a camera's frames are dropped while it
    /// pauses
    #[arg(long, help_heading = "Output")]
    pub(super) display: bool,
    /// Send it into a pipeline of your own: gst-launch text that begins with `appsrc name=results`, which may
    /// be left out, or @FILE with such text
    #[arg(long, value_name = "TEXT|@FILE", help_heading = "Output")]
    pub(super) sink: Vec<String>,
    /// What -o, --display and --sink show: `overlay` (boxes over the picture), `mask` (the thresholded
    /// picture) or `split` (half of each)
    #[arg(long, default_value = "overlay", value_parser = offering::<View>(View::ALL.map(View::name)), hide_possible_values = true, help_heading = "Output")]
    pub(super) view: View,
    /// Write what was found: .jsonl, .csv, .mot.txt, or - for JSON Lines on standard output; may be given
    /// several times
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub(super) results: Vec<String>,
    /// Write a page about the run when it ends: trajectories, score and state over time, latency
    #[arg(long, value_name = "FILE.html", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub(super) report: Option<String>,
    #[command(flatten, next_help_heading = "Output")]
    pub(super) overwrite: OverwriteArgs,

    /// The device that does the work: auto, cpu, cuda, cuda:N
    #[arg(long, default_value = "auto", value_parser = offering::<BackendChoice>(BACKENDS), hide_possible_values = true, help_heading = "How")]
    pub(super) backend: BackendChoice,
    /// Threads of the CPU backend, and for several tracks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = "How")]
    pub(super) threads: Option<u16>,
    #[arg(long, value_name = "NAME", value_parser = offering::<Kernel>(kernels()), hide_possible_values = true, help = kernel_help(), help_heading = "How")]
    pub(super) kernel: Vec<Kernel>,
    /// Memory that the search may take on the CPU: 2G, 500M; with less it takes longer [default: half of what
    /// is free]
    #[arg(long, value_name = "SIZE", value_parser = read::<Bytes>, help_heading = "How")]
    pub(super) memory: Option<Bytes>,
    /// Frames in flight on the device; 2 is a double buffer
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=32), help_heading = "How")]
    pub(super) depth: u8,
    /// When the GPU fails in the middle of a run: end (with an error, what was written is kept), or cpu (it
    /// does the rest)
    #[arg(long, value_name = "WHAT", default_value = "end", value_parser = offering::<OnDeviceLoss>(OnDeviceLoss::ALL.map(OnDeviceLoss::name)), hide_possible_values = true, help_heading = "How")]
    pub(super) on_device_loss: OnDeviceLoss,
    /// Which decoders may be used: auto, software, hardware; auto takes hardware only with --backend cuda
    #[arg(long, default_value = "auto", value_parser = offering::<Decoder>(Decoder::ALL.map(Decoder::name)), hide_possible_values = true, help_heading = "How")]
    pub(super) decoder: Decoder,
    /// Keep up with the source: newest frame first, older ones are dropped and counted (default for live
    /// sources)
    #[arg(long, conflicts_with = "lossless", help_heading = "How")]
    pub(super) live: bool,
    /// Process every frame, however long it takes (default for files)
    #[arg(long, help_heading = "How")]
    pub(super) lossless: bool,
    /// When a camera or stream is lost, or is not there yet, wait and connect anew until it is; without this
    /// the run ends with an error
    #[arg(long, help_heading = "How")]
    pub(super) reconnect: bool,
    /// Size of the camera's pictures
    #[arg(long, value_name = "WxH", value_parser = read::<Size>, help_heading = "How")]
    pub(super) size: Option<Size>,
    /// The camera's frames a second: 30, 30000/1001; of pictures, how many make a second (25 if not given)
    #[arg(long, value_name = "N[/D]", value_parser = fraction, help_heading = "How")]
    pub(super) fps: Option<(i32, i32)>,
    /// User and password for the server of an rtsp://, http:// or srt:// address: a file with one line,
    /// `user:password`, instead of the address, which others can see in the list of processes; the variable
    /// `LOCKON_CREDENTIALS` may have the same line
    #[arg(long, value_name = "FILE", help_heading = "How")]
    pub(super) credentials: Option<PathBuf>,
    /// Even out the jitter of rtsp:// and srt:// over so many milliseconds: less is sooner, more is smoother
    /// [default: 200]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(0..=60_000), help_heading = "How")]
    pub(super) jitter: Option<u32>,
    /// Begin with this frame, or with the first that is not before this time: 120, 12.5s, 1:02.5, 1:02:03.5.
    /// What comes before is decoded only; numbers and times stay those of the whole video
    #[arg(long, value_name = "WHEN", default_value = "0", allow_hyphen_values = true, value_parser = read::<Moment>, hide_default_value = true, help_heading = "How")]
    pub(super) start: Moment,
    /// End before this frame, or before the first that is not before this time; of a camera or stream,
    /// counted from its start
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true, value_parser = read::<Moment>, help_heading = "How")]
    pub(super) end: Option<Moment>,
    /// Process each Nth frame only, from the first on; videos that are written play at the same speed
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true,
          value_parser = clap::value_parser!(u64).range(1..), help_heading = "How")]
    pub(super) every: u64,
    /// End after so many frames that were processed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "How")]
    pub(super) max_frames: Option<u64>,
    /// Print the GStreamer pipelines instead of running them
    #[arg(long, help_heading = "How")]
    pub(super) print_pipeline: bool,
    /// With --print-pipeline: one gst-launch-1.0 command that does the same by the GStreamer element `lockon`
    #[arg(long, requires = "print_pipeline", help_heading = "How")]
    pub(super) as_element: bool,
    /// Tell Prometheus how the run goes: serve /metrics over HTTP there; a PORT alone is 127.0.0.1's
    #[arg(long, value_name = "[HOST:]PORT", value_parser = read::<Address>, help_heading = "How")]
    pub(super) metrics: Option<Address>,
    /// No progress bar, no progress lines
    #[arg(long, help_heading = "How")]
    pub(super) no_progress: bool,
}

impl RunArgs {
    /// Which frames are processed.
    pub(super) fn part(&self) -> Part {
        Part { start: self.start, end: self.end, every: self.every }
    }
}

/// What counts as a match, for video and stills.
#[derive(ClapArgs)]
#[command(next_help_heading = "Search of templates (tracks have their own)")]
pub(super) struct SearchArgs {
    /// Least score of a match, from -1 to 1
    #[arg(long, value_name = "SCORE", default_value_t = Limits::default().min_score, allow_hyphen_values = true,
          value_parser = |s: &str| number_between(s, -1.0, 1.0))]
    pub(super) min_score: f64,
    /// Most matches of each template in a frame
    #[arg(long, value_name = "N", default_value_t = Limits::default().max_matches as u32, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) max_matches: u32,
    /// Most overlap of two matches of one template: intersection over union, from 0 to 1
    #[arg(long, value_name = "IOU", default_value_t = Limits::default().max_overlap,
          value_parser = |s: &str| number_between(s, 0.0, 1.0))]
    pub(super) max_overlap: f64,
    /// Sizes: every power of FACTOR in the range, and 1; without /FACTOR of 1.05; one number is that size
    /// alone
    #[arg(long, value_name = "FROM..TO[/FACTOR]", default_value = NO_SCALES, hide_default_value = true, value_parser = read::<Typed<Scales>>)]
    pub(super) scales: Typed<Scales>,
    /// Directions in degrees, counter-clockwise positive; without /STEP every 5; one number is that direction
    /// alone
    #[arg(
        long,
        value_name = "FROM..TO[/STEP]",
        default_value = NO_ANGLES,
        hide_default_value = true,
        allow_hyphen_values = true,
        value_parser = read::<Typed<Angles>>
    )]
    pub(super) angles: Typed<Angles>,
    /// How: exhaustive (every place, size and direction), pyramid (from coarse to fine on the CPU: much
    /// faster with many sizes and directions; scores are exact, but a match can be missed) or auto (pyramid
    /// where exhaustive takes long on the CPU)
    #[arg(long, value_name = "HOW", default_value = SearchMethod::default().name(), value_parser = offering::<SearchMethod>(SEARCHES), hide_possible_values = true)]
    pub(super) search: SearchMethod,
    /// Search for templates inside this box only; 0,0 is the top left pixel
    #[arg(long, value_name = "X,Y,W,H", allow_hyphen_values = true, value_parser = read::<Rect>)]
    pub(super) roi: Option<Rect>,
}

/// What `--backend` and `--search` offer.
const BACKENDS: [&str; 3] = ["auto", "cpu", "cuda"];
const SEARCHES: [&str; 3] = ["auto", "exhaustive", "pyramid"];

fn kernels() -> [&'static str; Kernel::ALL.len()] {
    Kernel::ALL.map(|(name, _)| name)
}

/// Templates in their own size and direction alone.
pub(super) const NO_SCALES: &str = "1..1/2";
pub(super) const NO_ANGLES: &str = "0..0/1";

/// A value with the text that it was typed as, where that cannot be told from the value.
#[derive(Clone)]
pub(super) struct Typed<T> {
    pub(super) text: String,
    pub(super) value: T,
}

impl<T: FromStr> FromStr for Typed<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        Ok(Self { text: text.to_owned(), value: text.parse()? })
    }
}

impl SearchArgs {
    pub(super) fn limits(&self) -> Limits {
        Limits {
            min_score: self.min_score,
            max_matches: self.max_matches as usize,
            max_overlap: self.max_overlap,
        }
    }

    /// What is searched for, or `None` if there are no templates.
    pub(super) fn sought(
        &self,
        templates: &[NamedTemplate],
        control: &Control,
    ) -> lockon::Result<Option<Sought>> {
        Sought::new_under(templates, self.search, &self.scales.value, &self.angles.value, control)
    }
}

#[derive(ClapArgs)]
pub(super) struct MatchArgs {
    /// The picture to search in: PNG, JPEG or BMP
    pub(super) scene: PathBuf,
    /// The pictures to search for; an alpha channel is the mask
    #[arg(required = true, value_name = "[NAME=]PATH")]
    pub(super) templates: Vec<String>,
    #[command(flatten)]
    pub(super) search: SearchArgs,
    /// Also draw the matches into the picture, in its colours: .png, .jpg or .bmp
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) output: Option<PathBuf>,
    #[command(flatten)]
    pub(super) overwrite: OverwriteArgs,
    /// Memory that the search may take on the CPU: 2G, 500M; with less it takes longer [default: half of what
    /// is free]
    #[arg(long, value_name = "SIZE", value_parser = read::<Bytes>)]
    pub(super) memory: Option<Bytes>,
    /// Also tell people on standard error how well each template is told from the rest of the picture: the
    /// best right places, the best wrong ones, and a --min-score between
    #[arg(long)]
    pub(super) explain: bool,
    /// Threads of the CPU backend
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) threads: Option<u16>,
    /// The device that does the work: auto, cpu, cuda, cuda:N
    #[arg(long, default_value = "auto", value_parser = offering::<BackendChoice>(BACKENDS), hide_possible_values = true)]
    pub(super) backend: BackendChoice,
    #[arg(long, value_name = "NAME", value_parser = offering::<Kernel>(kernels()), hide_possible_values = true, help = kernel_help())]
    pub(super) kernel: Vec<Kernel>,
}

const PICK_KEYS: &str = "\
In the window:
  drag the mouse          draw a box
  arrows                  move it by a pixel
  Shift+arrows            resize it by a pixel, at its right and lower edge
  Enter, space            take it, and be done
  A                       take it, and draw another
  Backspace               take back the box, or the last one that was taken
  Esc, q, c               cancel, as does closing the window: exit code 1

Where there is no screen the frame is written as a PNG file with a grid of coordinates, to read a box off for --box; the exit
code is 1, as nothing was picked.

Examples:
  lockon pick match.mp4 --at 12.5s -o player.png
  lockon pick match.mp4 --frame 312 --box 310,120,64,128 -o player.png";

#[derive(ClapArgs)]
#[command(after_help = PICK_KEYS)]
pub(super) struct PickArgs {
    /// A file, a URI, or `camera[:/dev/videoN]`
    #[arg(value_parser = read::<Input>)]
    pub(super) input: Input,
    /// On this frame, counted from 0, instead of the first
    #[arg(long, value_name = "N", conflicts_with = "at")]
    pub(super) frame: Option<u64>,
    /// On the first frame that is not before this time: 12.5s, 1:02.5, 1:02:03.5
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true, value_parser = read::<Moment>)]
    pub(super) at: Option<Moment>,
    /// This box, without a window; 0,0 is the top left pixel; may be given several times
    #[arg(long = "box", value_name = "X,Y,W,H", allow_hyphen_values = true, value_parser = read::<Rect>)]
    pub(super) boxes: Vec<Rect>,
    /// Save what is in the box as a picture, in the video's colours, for --template; of several boxes the
    /// second goes to FILE-2.png
    #[arg(short, long, value_name = "FILE.png", value_hint = ValueHint::FilePath)]
    pub(super) output: Option<PathBuf>,
    #[command(flatten)]
    pub(super) overwrite: OverwriteArgs,
}

#[derive(ClapArgs)]
pub(super) struct ThresholdArgs {
    /// The picture: PNG, JPEG or BMP
    pub(super) image: PathBuf,
    /// Where the black and white picture goes: .png, .jpg or .bmp
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) output: PathBuf,
    #[command(flatten)]
    pub(super) overwrite: OverwriteArgs,
    /// `mean:BLOCK:C`, `gaussian:BLOCK:C`, `sauvola:BLOCK:K`, `niblack:BLOCK:K`; `:inv` inverts
    #[arg(long, value_name = "METHOD:BLOCK:VALUE[:inv]", value_parser = read::<ThresholdSpec>)]
    pub(super) method: ThresholdSpec,
    /// The device that does the work: auto, cpu, cuda, cuda:N
    #[arg(long, default_value = "auto", value_parser = offering::<BackendChoice>(BACKENDS), hide_possible_values = true)]
    pub(super) backend: BackendChoice,
    #[arg(long, value_name = "NAME", value_parser = offering::<Kernel>(kernels()), hide_possible_values = true, help = kernel_help())]
    pub(super) kernel: Vec<Kernel>,
}

#[derive(ClapArgs)]
pub(super) struct ManArgs {
    /// The command whose page is printed, such as `run` or `bench kernels`; without it the program's
    #[arg(value_name = "COMMAND")]
    pub(super) command: Vec<String>,
    /// Write all pages into this folder instead, where `man -M` and packages look for them: lockon.1,
    /// lockon-run.1, ...; pages that are there are replaced
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "command")]
    pub(super) dir: Option<PathBuf>,
}

#[derive(ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct BenchArgs {
    /// What else to measure
    #[command(subcommand)]
    pub(super) command: Option<BenchCommand>,
    /// The device: auto, cpu, cuda, cuda:N
    #[arg(long, default_value = "auto", value_parser = offering::<BackendChoice>(BACKENDS), hide_possible_values = true)]
    pub(super) backend: BackendChoice,
    /// Threads of the CPU backend
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) threads: Option<u16>,
}

#[derive(Subcommand)]
pub(super) enum BenchCommand {
    /// Time every kernel, after checking its answer against the definition
    Kernels(BenchKernelsArgs),
}

#[derive(ClapArgs)]
pub(super) struct BenchKernelsArgs {
    /// The device: auto, cpu, cuda, cuda:N
    #[arg(long, default_value = "auto", value_parser = offering::<BackendChoice>(BACKENDS), hide_possible_values = true)]
    pub(super) backend: BackendChoice,
    /// Frames of this size only, instead of 1920x1080 and 3840x2160
    #[arg(long, value_name = "WxH", value_parser = read::<Size>)]
    pub(super) frame: Option<Size>,
    /// Templates of this size only, instead of all sizes and the thresholds
    #[arg(long, value_name = "WxH", value_parser = read::<Size>)]
    pub(super) template: Option<Size>,
    /// So many templates in one pass
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = |s: &str| s.parse().ok().filter(|&n: &usize| n > 0).ok_or("not a number of 1 or more"))]
    pub(super) bank: usize,
    /// Thresholds of this block only, instead of all blocks and the templates
    #[arg(long, value_name = "N", value_parser = |s: &str| s.parse().ok().filter(|n: &usize| n % 2 == 1 && (3..=255).contains(n)).ok_or("not an odd number from 3 to 255"))]
    pub(super) block: Option<usize>,
    /// This kernel only, beside what is taken by itself; may be given several times
    #[arg(long, value_name = "NAME", value_parser = offering::<Kernel>(kernels()))]
    pub(super) kernel: Vec<Kernel>,
    /// These things only; may be given several times
    #[arg(long, value_name = "WHAT")]
    pub(super) only: Vec<BenchSubject>,
    /// Also time NPP and cuFFT, if they are installed
    #[arg(long)]
    pub(super) peers: bool,
    /// Threads of the CPU backend
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) threads: Option<u16>,
    /// One JSON object instead of a table
    #[arg(long)]
    pub(super) json: bool,
}

impl BenchKernelsArgs {
    /// True if a table of everything was asked for, rather than something certain.
    pub(super) fn is_everything(&self) -> bool {
        let is_chosen = !self.kernel.is_empty() || !self.only.is_empty() || self.peers || self.json;
        !is_chosen
            && self.frame.is_none()
            && self.template.is_none()
            && self.block.is_none()
            && self.bank == 1
    }
}

/// What `bench kernels` measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum BenchSubject {
    /// From the creation of a context to the first result
    Start,
    /// Template matching
    Ncc,
    /// Adaptive thresholds
    Threshold,
    /// Uploads, downloads, and turning a picture
    Copies,
    /// Frames through the ring
    Ring,
}

fn kernel_help() -> String {
    let names: Vec<_> = Kernel::ALL.iter().map(|(name, _)| *name).collect();
    format!(
        "A kernel of the CUDA backend instead of what it takes by itself: {}; may be given several times",
        names.join(", ")
    )
}

fn fraction(text: &str) -> Result<(i32, i32), String> {
    let (n, d) = text.split_once('/').unwrap_or((text, "1"));
    let part = |text: &str| text.parse::<i32>().ok().filter(|n| *n > 0);
    part(n).zip(part(d)).ok_or_else(|| "expected frames a second, such as 30 or 30000/1001".to_owned())
}

fn number_between(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let number = text.parse::<f64>().map_err(|error| error.to_string())?;
    if (least..=most).contains(&number) { Ok(number) } else { Err(format!("not between {least} and {most}")) }
}

/// INPUT, whose name need be no text. What is wrong with it is said without it, which clap names before.
fn input(typed: &std::ffi::OsStr) -> Result<Input, String> {
    Input::typed(typed).map_err(|error| match error {
        lockon::Error::Value { expected, .. } => expected,
        other => other.to_string(),
    })
}

/// Says what is wrong with what was typed, or what was asked for (help, the version), and ends.
pub(super) fn refuse(error: &clap::Error) -> ! {
    let mut plain = error.render().to_string();
    if error.kind() == clap::error::ErrorKind::InvalidUtf8
        && let Some(which) = no_text()
    {
        // clap does not say which of the words it is.
        plain = format!("error: {which}\n");
    }
    // What was typed is repeated: a glob may have typed a name that a terminal would obey, and an address has
    // a password.
    let harmless = text::for_people(&plain);
    if error.kind() != clap::error::ErrorKind::InvalidUtf8 && plain == harmless {
        error.exit();
    }
    // Nobody may be listening: that changes nothing.
    let _ = std::io::stderr().write_all(harmless.as_bytes());
    std::process::exit(error.exit_code())
}

/// The word of the command line that is not UTF-8, with the option that it was typed after.
fn no_text() -> Option<String> {
    let words: Vec<_> = std::env::args_os().collect();
    let mut found = (1..words.len()).filter(|at| words[*at].to_str().is_none());
    let option = |at: usize| Some(words[at - 1].to_string_lossy()).filter(|word| word.starts_with('-'));
    // The video's own name may be anything, and stands after no option mostly.
    let at = found.clone().find(|at| option(*at).is_some()).or_else(|| found.next())?;
    let place = option(at).map_or_else(String::new, |option| format!("{option} "));
    Some(format!(
        "{place}{:?}: a name that is not UTF-8 is taken for the video alone",
        words[at].to_string_lossy()
    ))
}
