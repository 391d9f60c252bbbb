//! The command line: commands and options.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args as ClapArgs, Parser, Subcommand, ValueHint};

use lockon::config::{BackendChoice, Moment, ThresholdSpec, View};
use lockon::frame::Rect;
use lockon::media::source::Input;
use lockon::request::{Field, ListenAddress};
use lockon::still::MaskKind;
use lockon::text;

use super::UNREAD;
use super::events::EventsArgs;
use super::farm::{JobsArgs, SubmitArgs, WorkerArgs, WorkersArgs};
use super::log::{self, LogFormat};
use super::overwrite::OverwriteArgs;
use super::request::{All, Selection, StillSearch, StillThreshold, Typed};
use super::values::{offering, read};
use super::version;

/// Finds and follows known patterns in live or recorded video.
#[derive(Parser)]
#[command(version, long_version = version::long(), propagate_version = true, max_term_width = 110)]
pub(super) struct Args {
    /// More detail: -v decisions and timings, -vv state changes and GStreamer's warnings, -vvv every frame;
    /// the variable `RUST_LOG` overrides levels by target: `lockon_gst=trace,gst=info,gst:qtdemux=debug`
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub(super) verbose: u8,
    /// Print errors only: no warnings, no progress, no summary
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(super) quiet: bool,
    /// Format of messages on standard error: text, or json (one object a line)
    #[arg(long, value_name = "FORMAT", global = true, default_value = "text", hide_possible_values = true)]
    pub(super) log_format: LogFormat,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Subcommand)]
pub(super) enum Command {
    /// Search, follow and threshold a video or a camera
    Run(Box<RunArgs>),
    /// Start a web page to open and track this machine's cameras and a folder's videos
    #[command(after_long_help = SERVE_EXAMPLES)]
    Serve(Box<ServeArgs>),
    /// Submit videos and cameras to a farm of workers
    Submit(Box<SubmitArgs>),
    /// Process jobs of a farm
    Worker(WorkerArgs),
    /// List the jobs of a farm; cancel, retry and purge them
    Jobs(JobsArgs),
    /// List the workers of a farm and their jobs
    Workers(WorkersArgs),
    /// Remove the retained messages of runs at an MQTT broker
    Events(EventsArgs),
    /// Find templates in a still picture; prints one `frame` record, best match first; exit code 1 if nothing
    /// matches
    #[command(after_long_help = MATCH_EXAMPLES)]
    Match(MatchArgs),
    /// Draw a box on a frame with the mouse; prints the command that follows it, can save it as a template
    Pick(PickArgs),
    /// Print the streams, sizes, rates and length of a video or camera
    #[command(after_long_help = INFO_EXAMPLES)]
    Info(InfoArgs),
    /// Threshold a still picture
    #[command(after_long_help = THRESHOLD_EXAMPLES)]
    Threshold(ThresholdArgs),
    /// Measure this machine: frames per second at common sizes
    #[command(after_long_help = BENCH_KERNELS)]
    Bench(BenchArgs),
    /// Check what is installed and what is missing, with the command that fixes it
    Doctor,
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print a man page, or write all of them
    Man(ManArgs),
}

impl Command {
    /// True if it processes videos, and so starts threads that libraries do not end cleanly.
    pub(super) fn may_run(&self) -> bool {
        if matches!(self, Self::Worker(_)) {
            return true;
        }
        if matches!(self, Self::Serve(_)) {
            return true;
        }
        matches!(self, Self::Run(_))
    }
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
  The same frame by frame without losses (`--codec ffv1 -o masks.mkv` as one video), or into another program:
    lockon run belt.mp4 --threshold mean:31:5 -o 'masks/%06d.png'
    lockon run belt.mp4 --threshold mean:31:5 -o - | ffplay -
  Many videos at once, results beside each other ({stem}: the video's name without its extension; {name}, {index} too):
    lockon run *.mp4 --template logo.png --results '{stem}.jsonl' --skip-done
  Any GStreamer source and sink:
    lockon run --source 'videotestsrc ! appsink name=frames' --track 10,10,40,40 --sink 'appsrc name=results ! fakesink'

At its end a run prints a summary of its results. With -v it also prints the time per frame of each step; steps overlap: \
waiting for the source, which decodes; copying to the device; searching and thresholding; following tracks; drawing and \
writing outputs. Latency is the time from a frame's arrival to its results.

Exit codes: 0 done, 1 an error at run time, 2 wrong usage, 130 interrupted by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP \
(outputs are closed properly; a second signal ends at once), 141 if the reader of standard output closed it (| head).";

const SERVE_EXAMPLES: &str = "\
Examples:
  Cameras and the videos of a folder, at http://127.0.0.1:8080/:
    lockon serve videos
  From other machines too, each run searched for a logo and its results kept:
    lockon serve videos --address 0.0.0.0:8080 --template logo.png --results 'out/{stem}.jsonl'

The page lists only plain files of that folder with a usual extension of a video: no subfolders, no symlinks. Ctrl-C ends all \
runs, completes their outputs and ends the page.";

const MATCH_EXAMPLES: &str = "\
Examples:
  Every place that scores 0.7 or more, five at most, and a picture that shows them:
    lockon match scene.png part.png --min-score 0.7 --max-matches 5 -o found.png
  Which --min-score separates the right places from the wrong ones:
    lockon match scene.png part.png --explain >places.json
  In a script:
    lockon match screen.png button=ok.png >/dev/null && echo there

Exit codes, as grep: 0 a template was found, 1 none was found, 2 an error.";

const THRESHOLD_EXAMPLES: &str = "\
Examples:
  A page of text, and the same into another program:
    lockon threshold page.jpg --method sauvola:31:0.2 -o page-bw.png
    lockon threshold page.jpg --method sauvola:31:0.2 -o - | tesseract - -
  The third page of a scan, for an archive:
    lockon threshold scan.tif --page 3 --method sauvola:31:0.2 -o page-3.tif
  The letters of a page, without specks, and a picture that shows them:
    lockon threshold page.jpg --method sauvola:31:0.2 --objects --object-colour black --object-area 20.. \
      -o letters.png --view overlay >letters.json
  A video:
    lockon run belt.mp4 --threshold mean:31:5 -o bw.mp4

Exit codes: 0 done, with --objects also where there is none; 1 an error, 2 wrong usage.";

#[derive(ClapArgs)]
#[command(after_long_help = RUN_EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "one for each flag")]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub(super) typed: Typed<All>,
    #[command(flatten, next_help_heading = "Output")]
    pub(super) overwrite: OverwriteArgs,
    /// Print the GStreamer pipelines instead of running them
    #[arg(long, conflicts_with = "pick", help_heading = "How")]
    pub(super) print_pipeline: bool,
    /// With --print-pipeline: print one gst-launch-1.0 command that does the same with the GStreamer element
    /// `lockon`
    #[arg(long, requires = "print_pipeline", help_heading = "How")]
    pub(super) as_element: bool,
    /// Print the given options as a job file instead of running: `lockon run @JOB` runs it
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true, default_missing_value = "toml", help_heading = "How")]
    pub(super) print_job: Option<JobFormat>,
    /// No progress bar, no progress lines
    #[arg(long, help_heading = "How")]
    pub(super) no_progress: bool,
    /// With --serve: end when all videos have ended. Without this the page stays, on a terminal until Ctrl-C
    /// or Close on the page, elsewhere while a browser shows it
    #[arg(long, help_heading = "How")]
    pub(super) exit_at_end: bool,
    #[command(flatten, next_help_heading = "Several videos")]
    pub(super) several: SeveralArgs,
}

#[derive(ClapArgs)]
pub(super) struct SeveralArgs {
    /// File with more videos, one per line: an INPUT, or a job as --print-job=json writes it, whose options
    /// override the typed ones; - for standard input
    #[arg(long, value_name = "LIST", value_hint = ValueHint::FilePath)]
    pub(super) inputs: Option<PathBuf>,
    /// Number of files processed at once; cameras and streams never wait [default: one per core on the CPU,
    /// two per core with a GPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(super) jobs: Option<u16>,
    /// Skip videos whose --results FILE.jsonl is complete; incomplete results are replaced
    #[arg(long)]
    pub(super) skip_done: bool,
}

/// The options of runs that are opened on a page.
pub(super) struct Opened;

impl Selection for Opened {
    fn has(field: &Field) -> bool {
        // `lockon serve` has a page of its own.
        !field.spec.is_of_one && !["pick", "display", "serve", "metrics"].contains(&field.name)
    }
}

#[derive(ClapArgs)]
pub(super) struct ServeArgs {
    /// Offer the videos in this folder; without it only cameras
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(super) folder: Option<PathBuf>,
    /// Address of the page: a PORT alone is on 127.0.0.1; with a HOST that others can reach, the printed
    /// address contains a token
    #[arg(long, value_name = "[HOST:]PORT", default_value = "8080", value_parser = read::<ListenAddress>)]
    pub(super) address: ListenAddress,
    #[command(flatten)]
    pub(super) typed: Typed<Opened>,
    #[command(flatten, next_help_heading = "Output")]
    pub(super) overwrite: OverwriteArgs,
}

/// How a job file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum JobFormat {
    Toml,
    Json,
}

const BENCH_KERNELS: &str = "\
To time each kernel, use lockon's source: cargo run -p lockon-bench --release -- kernels";

/// The values that `--backend` offers.
const BACKENDS: [&str; 3] = ["auto", "cpu", "cuda"];

#[derive(ClapArgs)]
pub(super) struct MatchArgs {
    /// The picture to search in: PNG, JPEG, WebP, TIFF, GIF, BMP or PNM
    pub(super) scene: PathBuf,
    /// Pictures to search for; an alpha channel is the mask
    #[arg(required = true, value_name = "[NAME=]PATH")]
    pub(super) templates: Vec<String>,
    #[command(flatten)]
    pub(super) typed: Typed<StillSearch>,
    /// Also write the picture with the matches drawn into it: .png, .jpg or .bmp; - writes it as PNG to
    /// standard output instead of the record
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) output: Option<PathBuf>,
    #[command(flatten)]
    pub(super) overwrite: OverwriteArgs,
    /// Also explain on standard error how well each template stands out from the rest of the picture: the
    /// best right places, the best wrong ones, a --min-score between them, and the limits that decided which
    /// places are reported
    #[arg(long)]
    pub(super) explain: bool,
}

const PICK_KEYS: &str = "\
To find the frame, in the window:
  Left, Right             one frame back or ahead
  Shift+Left, Shift+Right 1 s back or ahead
  Page Up, Page Down      10 s ahead or back; a tenth of a video shorter than 100 s
  Up, Down                1 min ahead or back
  Home, End               the first or the last frame
  bar below the picture   click or drag: that place in the video
Then draw boxes. They may be on different frames, and the printed command names the frame of each:
  drag the mouse          draw a box
  arrows                  move it by a pixel
  Shift+arrows            resize it by a pixel, at its right and lower edge
  , .                     keep the box and move by a frame, with Shift by 1 s
  Enter, space            accept it and finish
  A                       accept it and draw another
  Backspace               remove the box, or the last accepted one
  Esc, q, c               cancel, as does closing the window: exit code 1

A camera, a stream or a pipe cannot be seeked: Right moves to the next frame, Left to frames shown before. A frame whose number \
is not known after seeking is named by its time.

The first frame that is not empty is shown first: without --frame and --at, frames are skipped whose darkest and brightest pixel differ \
by less than 16 of 255 levels of luma (black, or one flat colour). At most 1500 frames are skipped, or 3 s of a camera.

Without a screen the frame is written as a PNG file with a grid of coordinates, from which to read a box for --box; the exit \
code is then 1.

Examples:
  lockon pick match.mp4 --at 12.5s -o player.png
  lockon pick match.mp4 --frame 312 --box 310,120,64,128 -o player.png";

#[derive(ClapArgs)]
#[command(after_long_help = PICK_KEYS)]
pub(super) struct PickArgs {
    /// A file, a URI, `camera[:/dev/videoN]`, pictures (`seq/%04d.jpg`, a folder, a quoted glob), or - for
    /// standard input
    #[arg(value_parser = OsStringValueParser::new().try_map(|typed| input(&typed)))]
    pub(super) input: Input,
    /// Use this frame, counted from 0 (default: the first that is not empty)
    #[arg(long, value_name = "N", conflicts_with = "at")]
    pub(super) frame: Option<u64>,
    /// Use the first frame at or after this time: 12.5s, 1:02.5, 1:02:03.5
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true, value_parser = read::<Moment>)]
    pub(super) at: Option<Moment>,
    /// Use this box and open no window; 0,0 is the top left pixel; may be given several times
    #[arg(long = "box", value_name = "X,Y,W,H", allow_hyphen_values = true, value_parser = read::<Rect>)]
    pub(super) boxes: Vec<Rect>,
    /// File with one line `user:password` for the server of an rtsp://, http:// or srt:// address; the
    /// variable `LOCKON_CREDENTIALS` can hold the same line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) credentials: Option<PathBuf>,
    /// Save the content of the box as a picture for --template, in the video's colours, and print the command
    /// that searches for it; a second box goes to FILE-2.png, or without -y to the first free number
    #[arg(short, long, value_name = "FILE.png", value_hint = ValueHint::FilePath)]
    pub(super) output: Option<PathBuf>,
    #[command(flatten)]
    pub(super) overwrite: OverwriteArgs,
}

const INFO_EXAMPLES: &str = "\
Examples:
  Streams, and which one is used:
    lockon info show.mkv
  The exact number of frames, for a script:
    lockon info clip.mp4 --count --json | jq .frames
  The streams of a camera:
    lockon info rtsp://192.168.1.20/stream

Unknown values are null in JSON. Exit codes: 0 done, 1 it cannot be read or has no video, 2 wrong usage.";

#[derive(ClapArgs)]
pub(super) struct InfoArgs {
    /// A file, a URI, `camera[:/dev/videoN]`, pictures (`seq/%04d.jpg`, a folder, a quoted glob), or - for
    /// standard input
    #[arg(value_parser = OsStringValueParser::new().try_map(|typed| input(&typed)))]
    pub(super) input: Input,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
    /// Count the frames of a file, without decoding them where that is exact
    #[arg(long)]
    pub(super) count: bool,
    /// Use this video stream of several, counted from 0
    #[arg(long, value_name = "N")]
    pub(super) video_stream: Option<u32>,
    /// File with one line `user:password` for the server of an rtsp://, http:// or srt:// address; the
    /// variable `LOCKON_CREDENTIALS` can hold the same line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) credentials: Option<PathBuf>,
}

#[derive(ClapArgs)]
pub(super) struct ThresholdArgs {
    /// The picture: PNG, JPEG, WebP, TIFF, GIF, BMP or PNM
    pub(super) image: PathBuf,
    /// Black and white picture to write: .png, .jpg, .bmp, .pbm or .tif (CCITT Group 4); - writes a PNG to
    /// standard output, with --objects instead of the record
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, required_unless_present = "objects")]
    pub(super) output: Option<PathBuf>,
    #[command(flatten)]
    pub(super) overwrite: OverwriteArgs,
    /// Each pixel by its neighbourhood: `mean:BLOCK:C`, `gaussian:BLOCK:C`, `bradley:BLOCK:PERCENT`,
    /// `sauvola:BLOCK:K`, `niblack:BLOCK:K`, `wolf:BLOCK:K`, `phansalkar:BLOCK:K`, with BLOCK a side or
    /// `WxH`; all by one level: `fixed:LEVEL`, `otsu`, `triangle`. `A..B` in place of the
    /// last number is hysteresis; `:inv` inverts
    #[arg(long, value_name = "METHOD:BLOCK:VALUE[:inv]", value_parser = read::<ThresholdSpec>)]
    pub(super) method: ThresholdSpec,
    /// Kind of -o, whatever its name: png, jpg, bmp, pbm or tiff
    #[arg(long, value_name = "KIND", requires = "output", hide_possible_values = true,
          value_parser = offering::<MaskKind>(MaskKind::NAMES))]
    pub(super) format: Option<MaskKind>,
    /// Bits of a pixel of -o as PNG: 8 (0 and 255) or 1; .pbm and .tif have 1, .jpg and .bmp 8
    #[arg(long, value_name = "N", requires = "output", hide_possible_values = true, value_parser = ["8", "1"])]
    pub(super) bits: Option<String>,
    /// Dots per inch of -o (default: those of the picture, if it says)
    #[arg(long, value_name = "N", requires = "output", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) dpi: Option<u16>,
    /// Page of a TIFF file (default: 1, with a warning if there are more)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) page: Option<u32>,
    #[command(flatten)]
    pub(super) typed: Typed<StillThreshold>,
    /// Picture of -o: mask, or overlay (the picture, with a box around each object)
    #[arg(long, value_name = "VIEW", default_value = "mask", requires_all = ["objects", "output"],
          hide_possible_values = true, value_parser = offering::<View>(["mask", "overlay"]))]
    pub(super) view: View,
}

#[derive(ClapArgs)]
pub(super) struct ManArgs {
    /// Print the page of this command, such as `run` (default: the program's own)
    #[arg(value_name = "COMMAND")]
    pub(super) command: Vec<String>,
    /// Write all pages into DIR/man1 instead, where `man -M DIR` and packages look for them: lockon.1,
    /// lockon-run.1, ...; existing pages are replaced
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "command")]
    pub(super) dir: Option<PathBuf>,
}

#[derive(ClapArgs)]
pub(super) struct BenchArgs {
    /// The device: auto, cpu, cuda, cuda:N
    #[arg(long, default_value = "auto", value_parser = offering::<BackendChoice>(BACKENDS), hide_possible_values = true)]
    pub(super) backend: BackendChoice,
    /// Threads of the CPU backend
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) threads: Option<u16>,
}

/// Parses INPUT, which need not be UTF-8. The error omits INPUT because clap already prints it.
fn input(typed: &std::ffi::OsStr) -> Result<Input, String> {
    Input::typed(typed).map_err(|error| match error {
        lockon::Error::Value { expected, .. } => expected,
        other => other.to_string(),
    })
}

/// Prints the error of the command line, or the requested help or version, and ends the program.
pub(super) fn refuse(error: &clap::Error) -> ! {
    // Help repeats no typed text, and its examples of addresses must stay readable.
    if !error.use_stderr() {
        let printed = error.print().and_then(|()| std::io::stdout().flush());
        let is_unread = printed.is_err_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe);
        std::process::exit(if is_unread { UNREAD.into() } else { error.exit_code() });
    }
    let mut plain = error.render().to_string();
    if error.kind() == clap::error::ErrorKind::InvalidUtf8
        && let Some(which) = no_text()
    {
        // clap does not name the word.
        plain = format!("error: {which}\n");
    }
    // The options were not read, since one is wrong.
    if wants_json(std::env::args_os()) {
        log::start(0, false, LogFormat::Json);
        log::error(plain.strip_prefix("error: ").unwrap_or(&plain).trim_end());
        std::process::exit(error.exit_code());
    }
    // The message repeats typed text: a glob may have given a name with control characters, and an address
    // may have a password.
    let harmless = text::for_people(&plain);
    if error.kind() != clap::error::ErrorKind::InvalidUtf8 && plain == harmless {
        error.exit();
    }
    // Standard error may be closed: the exit code stays the same.
    let _ = std::io::stderr().write_all(harmless.as_bytes());
    std::process::exit(error.exit_code())
}

/// True if the command line, which could not be parsed, asks for messages in JSON.
fn wants_json(words: impl Iterator<Item = OsString>) -> bool {
    let words: Vec<_> = words.take_while(|word| word != "--").collect();
    words.iter().any(|word| word == "--log-format=json")
        || words.windows(2).any(|pair| pair[0] == "--log-format" && pair[1] == "json")
}

/// The error for an argument that is not UTF-8, with the option before it.
fn no_text() -> Option<String> {
    let words: Vec<_> = std::env::args_os().collect();
    let mut found = (1..words.len()).filter(|at| words[*at].to_str().is_none());
    let option = |at: usize| Some(words[at - 1].to_string_lossy()).filter(|word| word.starts_with('-'));
    // The video's own name may be anything, and usually follows no option.
    let at = found.clone().find(|at| option(*at).is_some()).or_else(|| found.next())?;
    let place = option(at).map_or_else(String::new, |option| format!("{option} "));
    Some(format!(
        "{place}{:?}: not UTF-8: only the name of the video may have other bytes",
        words[at].to_string_lossy()
    ))
}
