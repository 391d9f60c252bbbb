//! All options of a run, as plain data.
//!
//! Each option is declared once, below: its type, which has the text form, its default, its range, its help,
//! and the other places where it can be set. The command line, `--help`, the element's properties,
//! `--as-element` and job files are made from these declarations, through [`FIELDS`].
//!
//! ```
//! use lockon_run::request::Request;
//!
//! let mut request = Request::new("match.mp4")?;
//! request.track.push("310,120,64,128@12.5s".parse()?);
//! request.results.push("found.jsonl".into());
//! request.check()?;
//! let job = request.to_toml()?;
//! assert_eq!(Request::from_toml(&job)?, request);
//! # Ok::<(), lockon_core::Error>(())
//! ```
//!
//! [`crate::run::Run::start`] does what a request asks for.

mod change;
mod check;
mod control;
mod element;
mod field;
mod job_file;
mod listen_address;
mod login;
mod names;
mod receiver;
mod share;

pub use field::{Decides, Field, FrameRate, InElement, InputText, Number, Secret, Shape, Spec, Text};
pub use listen_address::ListenAddress;
pub use login::login;
pub use names::{expand, name_of};
pub(crate) use names::{has_words, stem};
pub(crate) use receiver::shown as shown_receiver;
pub use receiver::{Broker, Login, ReceiverAddress, ReceiverText, Webhook, decoded};
pub use share::Share;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use crate::backend::{self, Options};
use crate::setup::{self, NamedTemplate, Setup};
use field::{SPEC, request};
use lockon_core::config::{
    Angles, BackendChoice, Bounds, Cleaning, Codec, Connectivity, CountingLine, Kernel, Limits, LumaRange,
    Moment, ObjectColour, ObjectSpec, OnDeviceLoss, Part, Rotate, Scales, SearchMethod, Shot, Speed, Square,
    Subject, ThresholdSpec, TimeSpan, TrackSpec, Typed, View, Zone, ZoneLimit,
};
use lockon_core::control::Control;
use lockon_core::error::{Bytes, Result};
use lockon_core::frame::{Rect, Size};
use lockon_core::output::{self, Rolling};
use lockon_core::overlay::{Hiding, Way};
use lockon_core::search::Search;
use lockon_core::text;
use lockon_gst::detections::DetectionFilter;
use lockon_gst::source::Decoder;

const TO_DO: Spec = Spec { group: "What to do", decides: Decides::Found, ..SPEC };
const SEARCH: Spec =
    Spec { group: "Search of templates (tracks have their own)", decides: Decides::Found, ..SPEC };
const OBJECTS: Spec = Spec {
    group: "Objects of the thresholded picture",
    element: InElement::Playing,
    decides: Decides::IfSet,
    of_masks: true,
    ..SPEC
};
const OUTPUT: Spec = Spec { group: "Output", ..SPEC };
const HOW: Spec = Spec { group: "How", ..SPEC };

/// Maximum threads.
const MOST_THREADS: f64 = 1024.0;

request! {
    /// A file, a URI, `camera[:/dev/videoN]`, pictures (`seq/%04d.jpg`, a folder, a quoted glob), - for
    /// standard input, or @JOB: a file with the options of a run, as --print-job writes it; several inputs
    /// are processed at once, each as a run of its own
    input: Option<InputText> = None, Spec { value: "INPUT", is_positional: true, decides: Decides::Found, secret: Some(Secret::Login), is_of_one: true, ..SPEC };
    /// A source of your own: gst-launch text that ends in `appsink name=frames` (optional), or @FILE with
    /// such text
    source: Option<String> = None, Spec { value: "TEXT|@FILE", excludes: &["input"], decides: Decides::Found, secret: Some(Secret::Login), is_of_one: true, ..SPEC };

    /// Search for a picture (PNG, JPEG, WebP, TIFF, GIF, BMP, PNM; an alpha channel is the mask); may be
    /// given several times
    template: Vec<String> = Vec::new(),
        Spec { value: "[NAME=]PATH", short: Some('t'), element: InElement::Playing, ..TO_DO };
    /// Follow the object in this box (0,0 is the top left pixel), from this frame or time on: 18, 12.5s,
    /// 1:02.5 (default: the first frame). All results have the NAME beside the track's number; may be given
    /// several times
    track: Vec<TrackSpec> = Vec::new(),
        Spec { value: "[NAME=]X,Y,W,H[@WHEN]", takes_hyphens: true, element: InElement::Ready, is_of_one: true, ..TO_DO };
    /// Draw the box to follow in a window, on the first frame (of --start if given; the newest of a camera):
    /// drag a box, arrows move it by a pixel, Shift+arrows resize it, Enter or space accepts it, A adds
    /// another, Backspace removes the last one, Esc, q and c cancel. Without a screen the frame is written as
    /// a picture with a grid to read boxes from
    pick: bool = false, TO_DO;
    /// Follow the matches of --template: each match that lasts becomes a track with its own number, until it
    /// is lost for long. --max-matches limits the matches of each template
    track_matches: bool = false,
        Spec { element: InElement::Ready, ..TO_DO };
    /// Follow the objects of a detector upstream: regions of interest (`GstVideoRegionOfInterestMeta`) that
    /// an element of --source puts on some or all frames; each object becomes a track with its own number,
    /// until it is lost for long
    track_detections: bool = false,
        Spec { excludes: &["track-matches"], element: InElement::Ready, ..TO_DO };
    /// Follow only detections of this class, as the detector names it; may be given several times
    detection_type: Vec<String> = Vec::new(),
        Spec { is_rare: true, value: "CLASS", needs: &["track-detections"], element: InElement::Ready, ..TO_DO };
    /// Minimum score of a detection, from 0 to 1: the field `confidence` of a region's parameters
    min_detection_score: f64 = 0.0,
        Spec { is_rare: true, value: "SCORE", needs: &["track-detections"], range: Some((0.0, 1.0)), element: InElement::Ready, ..TO_DO };
    /// Follow the --objects of the mask: one that is seen in three frames in a row becomes a track with its
    /// own number, until it is hidden for a second (--lost-for). --line counts the tracks that cross it
    track_objects: bool = false,
        Spec { needs: &["objects"], excludes: &["track-matches", "track-detections"], element: InElement::Ready, decides: Decides::IfSet, ..TO_DO };
    /// End a track that has been lost for this long: 10s, 500ms, 1:30 [default: boxes of --track are searched
    /// for until the video ends; tracks of matches and detections end after 2 s, of objects after 1 s]
    lost_for: Option<TimeSpan> = None,
        Spec { value: "TIME", element: InElement::Ready, ..TO_DO };
    /// Replay the interactive changes stored in an earlier results file (JSON Lines), at the same frames
    control: Option<PathBuf> = None,
        Spec { value: "FILE.jsonl", element: InElement::Ready, is_of_one: true, ..TO_DO };
    /// Binarise. Each pixel by its neighbourhood: `mean:BLOCK:C`, `gaussian:BLOCK:C`,
    /// `bradley:BLOCK:PERCENT`, `sauvola:BLOCK:K`, `niblack:BLOCK:K`, `wolf:BLOCK:K`, `phansalkar:BLOCK:K`,
    /// with BLOCK a side or `WxH`; all by one level: `fixed:LEVEL`, `otsu`, `triangle`; by the frames
    /// before: `background:FRAMES:DIFFERENCE`. `A..B` in place of the last number is hysteresis; `:inv`
    /// inverts
    threshold: Option<ThresholdSpec> = None,
        Spec { value: "METHOD:BLOCK:VALUE[:inv]", element: InElement::Playing, ..TO_DO };
    /// Luma that is searched and thresholded: as-is (as decoded) or full (limited-range video, 16 to 235, is
    /// expanded to 0 to 255, so that it gives the results of full-range video and pictures)
    range: LumaRange = LumaRange::default(),
        Spec { value: "RANGE", offers: &["as-is", "full"], element: InElement::Ready, decides: Decides::IfSet, ..TO_DO };

    /// Minimum score of a match, from -1 to 1
    min_score: f64 = Limits::default().min_score,
        Spec { value: "SCORE", takes_hyphens: true, range: Some((-1.0, 1.0)), element: InElement::Playing, in_still: true, ..SEARCH };
    /// Maximum matches of each template in a frame
    max_matches: u32 = Limits::default().max_matches as u32,
        Spec { value: "N", range: Some((1.0, f64::INFINITY)), element: InElement::Playing, in_still: true, ..SEARCH };
    /// Maximum overlap of two matches of one template: intersection over union, from 0 to 1
    max_overlap: f64 = Limits::default().max_overlap,
        Spec { value: "IOU", range: Some((0.0, 1.0)), element: InElement::Playing, in_still: true, ..SEARCH };
    /// Search at every power of FACTOR (default 1.05) in the range, and at 1; a single number is that scale
    /// alone
    scales: Typed<Scales> = Typed::of("1..1/2"),
        Spec { value: "FROM..TO[/FACTOR]", hides_default: true, element: InElement::Playing, in_still: true, ..SEARCH };
    /// Search at angles in degrees, counter-clockwise positive, every STEP (default 5); a single number is
    /// that angle alone
    angles: Typed<Angles> = Typed::of("0..0/1"),
        Spec { value: "FROM..TO[/STEP]", takes_hyphens: true, hides_default: true, element: InElement::Playing, in_still: true, ..SEARCH };
    /// Search method: exhaustive (every position, scale and angle), pyramid (coarse to fine on the CPU: much
    /// faster with many scales and angles; scores are exact, but a match can be missed) or auto (pyramid
    /// where exhaustive takes long on the CPU, by the counted work; also from a later frame on)
    search: SearchMethod = SearchMethod::default(),
        Spec { value: "METHOD", offers: &["auto", "exhaustive", "pyramid"], element: InElement::Playing, in_still: true, ..SEARCH };
    /// Search for templates only inside this box; 0,0 is the top left pixel
    roi: Option<Rect> = None,
        Spec { value: "X,Y,W,H", takes_hyphens: true, element: InElement::Playing, in_still: true, ..SEARCH };

    /// Report the objects of the thresholded picture (connected components): box, centre, area, length,
    /// width, direction, perimeter, holes and luma of each
    objects: bool = false, OBJECTS;
    /// Colour of the objects: white, or black (ink on paper)
    object_colour: ObjectColour = ObjectColour::default(),
        Spec { value: "COLOUR", offers: &["white", "black"], ..OBJECTS };
    /// Neighbours of a pixel that belong to its object: 8 (also across corners) or 4
    connect: Connectivity = Connectivity::default(),
        Spec { value: "N", offers: &["4", "8"], ..OBJECTS };
    /// Report only objects of so many pixels: 20..500, 20.. or ..500
    object_area: Option<Bounds<usize>> = None,
        Spec { value: "MIN..MAX", needs: &["objects"], ..OBJECTS };
    /// Report only objects with boxes of such sizes: 5x8..40x60, 5x8.. or ..40x60
    object_size: Option<Bounds<Size>> = None,
        Spec { value: "WxH..WxH", needs: &["objects"], ..OBJECTS };
    /// Report only the N largest objects of a picture, largest first; results have the number of the others
    object_max: Option<u32> = None,
        Spec { value: "N", range: Some((1.0, f64::INFINITY)), needs: &["objects"], ..OBJECTS };
    /// First remove parts of objects that no square of N x N pixels fits into (opening); N is odd, 3 to 255.
    /// The mask in outputs changes too
    open: Option<Square> = None, Spec { value: "N", range: Some((3.0, 255.0)), ..OBJECTS };
    /// Then fill gaps that no square of N x N pixels fits into (closing); N is odd, 3 to 255
    close: Option<Square> = None, Spec { value: "N", range: Some((3.0, 255.0)), ..OBJECTS };
    /// Then fill the holes of objects
    fill_holes: bool = false, OBJECTS;

    /// Write the video with the results drawn into it: .mp4, .mkv, .avi or .webm; a picture of each frame
    /// (masks/%06d.png, numbered as in --results); or - for Matroska on standard output. May be given several
    /// times. If lockon is killed, .mkv keeps everything; .mp4 loses at most the last half second (all of it
    /// in the first second). Through a named pipe: .mkv or .webm
    output: Vec<PathBuf> = Vec::new(),
        Spec { value: "FILE", short: Some('o'), is_file: true, expands: true, ..OUTPUT };
    /// Codec of videos in -o: auto (H.264; VP9 in .webm) or ffv1 (lossless, only in .mkv and on standard
    /// output). With ffv1 and in .png a thresholded picture is grey, with values of exactly 0 and 255
    codec: Codec = Codec::default(),
        Spec { is_rare: true, value: "CODEC", offers: &["auto", "ffv1"], needs: &["output"], decides: Decides::Shown, ..OUTPUT };
    /// Crop -o to this size and pan smoothly to keep a track in view; no boxes drawn. Follows the first track
    /// that is found, or the one with that number; stands still while the track is lost
    follow: Option<Shot> = None,
        Spec { value: "WxH[@TRACK]", needs: &["output"], excludes: &["view"], decides: Decides::Shown, ..OUTPUT };
    /// Magnify the crop of --follow, from 1 to 16 times
    follow_zoom: f64 = 1.0,
        Spec { is_rare: true, value: "TIMES", needs: &["follow"], range: Some((1.0, 16.0)), hides_default: true, decides: Decides::Shown, ..OUTPUT };
    /// Blur these in -o, --cut, --sink and --display: all, the number of a track, or the name of a track,
    /// template or class. They stay hidden while they are uncertain or lost; a report has no pictures then;
    /// may be given several times
    blur: Vec<Subject> = Vec::new(),
        Spec { value: "all|NAME|NUMBER", excludes: &["serve", "event-thumbnails"], decides: Decides::Shown, ..OUTPUT };
    /// As --blur, with large squares
    pixelate: Vec<Subject> = Vec::new(),
        Spec { value: "all|NAME|NUMBER", excludes: &["serve", "event-thumbnails"], decides: Decides::Shown, ..OUTPUT };
    /// Write a clip for each appearance (see --gap), without boxes: in the file's name n in braces is the
    /// clip's number, and {name} the track or template. Copied from a file, beginning at a key frame; encoded
    /// from everything else
    cut: Option<String> = None, Spec { value: "{name}-{n}.mp4", is_file: true, decides: Decides::IfSet, ..OUTPUT };
    /// Time before and after each appearance in the clips of --cut
    cut_padding: TimeSpan = TimeSpan::seconds(1),
        Spec { is_rare: true, value: "TIME", decides: Decides::IfSet, ..OUTPUT };
    /// Encode the clips of --cut, so that they begin and end at the exact frame
    cut_exact: bool = false, Spec { needs: &["cut"], decides: Decides::IfSet, ..OUTPUT };
    /// Do not copy the input's sound into -o and --cut
    no_audio: bool = false, Spec { decides: Decides::Shown, ..OUTPUT };
    /// Show the results in a window. Drag a box to follow an object, click a track to forget it; space pauses
    /// and resumes, `.` steps by one frame; q, Esc and closing the window end the run as if the video had
    /// ended. A camera's frames are dropped while paused
    display: bool = false, OUTPUT;
    /// Send the results into a pipeline of your own: gst-launch text that begins with `appsrc name=results`
    /// (optional), or @FILE with such text
    sink: Vec<String> = Vec::new(), Spec { value: "TEXT|@FILE", expands: true, decides: Decides::IfSet, secret: Some(Secret::Login), ..OUTPUT };
    /// Picture of -o, --display and --sink: `overlay` (boxes over the picture), `mask` (the thresholded
    /// picture) or `split` (half of each) [default: overlay; mask if only --threshold is given, without
    /// --objects]
    view: Option<View> = None,
        Spec { value: "VIEW", offers: &["overlay", "mask", "split"], decides: Decides::Shown, ..OUTPUT };
    /// Write results: .jsonl, .csv, .mot.txt (MOTChallenge), .cvat.xml (tracks for CVAT), .coco.json (COCO),
    /// .intervals.csv or .intervals.jsonl (from when to when each template and track was in sight), or - for
    /// JSON Lines on standard output; may be given several times
    results: Vec<String> = Vec::new(),
        Spec { value: "FILE", is_file: true, element: InElement::Ready, expands: true, ..OUTPUT };
    /// Continue --results files that exist (.jsonl and .csv) instead of overwriting them: with another `run`
    /// record, no second header, and a last line that was cut off repaired
    append: bool = false, Spec { needs: &["results"], ..OUTPUT };
    /// Begin the next --results file (.jsonl and .csv) at this size, or when the hour or the day ends (UTC):
    /// 100M, hour, day. {date} and {time} in the name are those of its beginning, and names that exist get a
    /// number: nothing is overwritten
    rotate: Option<Rotate> = None,
        Spec { value: "SIZE|hour|day", needs: &["results"], offers: &["hour", "day"], ..OUTPUT };
    /// Keep the newest N files of each --results with --rotate, and remove older ones
    keep: Option<u32> = None,
        Spec { value: "N", needs: &["rotate"], range: Some((1.0, f64::INFINITY)), ..OUTPUT };
    /// Longest time out of sight within one appearance of --results NAME.intervals.csv and .jsonl, the report
    /// and the summary; after a longer one a new appearance begins
    gap: TimeSpan = TimeSpan::seconds(1),
        Spec { is_rare: true, value: "TIME", element: InElement::Ready, decides: Decides::IfSet, ..OUTPUT };
    /// Report events of tracks (appeared, uncertain, lost, found, gone; entered or left a --zone; crossed a
    /// --line): as lines
    /// of JSON on standard output (-), posted to an http:// or https:// address, or published to an MQTT
    /// broker at mqtt://HOST:PORT/TOPIC or mqtts://HOST:PORT/TOPIC, with USER:PASSWORD@ before the host if
    /// needed; @FILE reads the address from a file, which hides it from the list of processes; may be given
    /// several times. The run never waits for a receiver
    events: Vec<ReceiverText> = Vec::new(), Spec { value: "-|URL|@FILE", needs_outlet: true, expands: true, decides: Decides::IfSet, secret: Some(Secret::Receiver), ..OUTPUT };
    /// A polygon in the picture that tracks can enter and leave, corners in pixels; a track is inside if the
    /// middle of its box's lower edge is. Drawn in -o, --display and --sink and on the page of --serve; may
    /// be given several times
    zone: Vec<Zone> = Vec::new(),
        Spec { value: "NAME=X,Y,X,Y,X,Y", takes_hyphens: true, element: InElement::Ready, decides: Decides::IfSet, ..OUTPUT };
    /// A line across which tracks are counted, by the centres of their boxes: `in` from its left to its right
    /// side, looking from its first end to its second, `out` the other way. Totals are in results, in the
    /// report and at the end of the run; drawn like zones; may be given several times
    line: Vec<CountingLine> = Vec::new(),
        Spec { value: "NAME=X,Y,X,Y", takes_hyphens: true, element: InElement::Ready, decides: Decides::IfSet, ..OUTPUT };
    /// Report an event when more than N tracks are in this --zone for five frames (`crowded`), and when no
    /// longer (`cleared`); N objects where nothing is followed; may be given several times
    zone_limit: Vec<ZoneLimit> = Vec::new(),
        Spec { value: "NAME=N", needs: &["zone", "events"], decides: Decides::IfSet, ..OUTPUT };
    /// Put a small picture of the track into each event: JPEG, in base64
    event_thumbnails: bool = false, Spec { is_rare: true, needs: &["events"], decides: Decides::IfSet, ..OUTPUT };
    /// Announce the run to Home Assistant through the MQTT broker: a count of tracks, the state of each
    /// --zone, and the events
    home_assistant: bool = false, Spec { is_rare: true, needs: &["events"], decides: Decides::IfSet, ..OUTPUT };
    /// Write a page about the run when it ends: trajectories, score and state over time, latency
    report: Option<String> = None, Spec { value: "FILE.html", is_file: true, expands: true, ..OUTPUT };

    /// Device that does the work: auto, cpu, cuda, cuda:N; of several GPUs (`cuda:0,1`, `cuda:all`) each run
    /// uses the one with the fewest runs
    backend: BackendChoice = BackendChoice::default(),
        Spec { value: "BACKEND", offers: &["auto", "cpu", "cuda"], element: InElement::Ready, in_still: true, ..HOW };
    /// Threads of the CPU backend, and for several tracks
    threads: Option<u16> = None,
        Spec { value: "N", range: Some((1.0, MOST_THREADS)), element: InElement::Ready, in_still: true, ..HOW };
    /// Use this kernel of the CUDA backend instead of the one chosen automatically; may be given several
    /// times
    kernel: Vec<Kernel> = Vec::new(),
        Spec { is_rare: true, value: "NAME", offers: &Kernel::NAMES, lists_offers: true, element: InElement::Ready, in_still: true, ..HOW };
    /// Memory limit of the search on the CPU: 2G, 500M; less is slower [default: half of the free memory]
    memory: Option<Typed<Bytes>> = None,
        Spec { is_rare: true, value: "SIZE", element: InElement::Ready, in_still: true, ..HOW };
    /// Frames in flight on the device; 2 is a double buffer [default: 4, for a live source 2]
    depth: Option<u8> = None,
        Spec { is_rare: true, value: "N", range: Some((1.0, 32.0)), element: InElement::Ready, ..HOW };
    /// If the GPU fails during a run: end (with an error; written results are kept), gpu (continue on another
    /// GPU, or the CPU), or cpu (continue there)
    on_device_loss: OnDeviceLoss = OnDeviceLoss::default(),
        Spec { is_rare: true, value: "WHAT", offers: &["end", "gpu", "cpu"], element: InElement::Ready, ..HOW };
    /// Allowed decoders: auto, software, hardware; auto uses hardware where a GPU searches, unless the video
    /// is a file and 12 cores or more decode it faster
    decoder: Decoder = Decoder::Auto,
        Spec { is_rare: true, value: "DECODER", offers: &["auto", "software", "hardware"], ..HOW };
    /// Keep up with the source: newest frame first, older ones are dropped and counted (default for live
    /// sources)
    live: bool = false, Spec { excludes: &["lossless"], decides: Decides::Found, ..HOW };
    /// Process every frame, however long it takes (default for files)
    lossless: bool = false, Spec { decides: Decides::Found, ..HOW };
    /// Wait and reconnect when a camera or stream is lost or not available yet; without this the run ends
    /// with an error
    reconnect: bool = false, HOW;
    /// Use this video stream of several, counted from 0 [default: the one flagged as default, or the first]
    video_stream: Option<u32> = None, Spec { is_rare: true, value: "N", decides: Decides::Found, ..HOW };
    /// Frame size of the camera
    size: Option<Size> = None, Spec { value: "WxH", decides: Decides::Found, is_of_one: true, ..HOW };
    /// Frame rate of the camera: 30, 30000/1001; of pictures, how many make a second (default 25)
    fps: Option<FrameRate> = None, Spec { value: "N[/D]", decides: Decides::Found, is_of_one: true, ..HOW };
    /// File with one line `user:password` for the server of an rtsp://, http:// or srt:// address, which
    /// hides it from the list of processes; the variable `LOCKON_CREDENTIALS` can hold the same line
    credentials: Option<PathBuf> = None, Spec { value: "FILE", is_of_one: true, ..HOW };
    /// Jitter buffer of rtsp:// and srt:// in milliseconds: less is sooner, more is smoother [default: 200]
    jitter: Option<u32> = None, Spec { is_rare: true, value: "MS", range: Some((0.0, 60_000.0)), is_of_one: true, ..HOW };
    /// Start at this frame, or at the first frame at or after this time: 120, 12.5s, 1:02.5, 1:02:03.5.
    /// Earlier frames are not searched; numbers and times stay those of the whole video
    start: Moment = Moment::default(), Spec { value: "WHEN", takes_hyphens: true, hides_default: true, decides: Decides::Found, is_of_one: true, ..HOW };
    /// End before this frame, or before the first frame at or after this time; of a camera or stream, counted
    /// from its start
    end: Option<Moment> = None, Spec { value: "WHEN", takes_hyphens: true, decides: Decides::Found, is_of_one: true, ..HOW };
    /// Process only every Nth frame, starting with the first; written videos play at the same speed
    every: u64 = 1,
        Spec { value: "N", range: Some((1.0, f64::INFINITY)), hides_default: true, decides: Decides::Found, ..HOW };
    /// End after N processed frames
    max_frames: Option<u64> = None,
        Spec { value: "N", range: Some((1.0, f64::INFINITY)), element: InElement::Ready, decides: Decides::Found, ..HOW };
    /// Serve metrics for Prometheus over HTTP at /metrics; a PORT alone is on 127.0.0.1
    metrics: Option<ListenAddress> = None,
        Spec { value: "[HOST:]PORT", needs_outlet: true, ..HOW };
    /// Show and control the run in a browser: the address to open is printed. A PORT alone is on 127.0.0.1;
    /// with a HOST that others can reach, the address contains a token. If nothing is to be searched or
    /// followed, a file waits at its first frame until a box is drawn
    serve: Option<ListenAddress> = None, Spec { value: "[HOST:]PORT", ..OUTPUT };
    /// Speed of files with --serve: 1 as recorded, 0.5 half, 4 four times, or max; can be changed on the
    /// page. It changes no results
    speed: Speed = Speed::default(),
        Spec { value: "TIMES|max", needs: &["serve"], ..OUTPUT };
}

impl Request {
    /// The detections to follow.
    pub fn detections(&self) -> Option<DetectionFilter> {
        self.track_detections.then(|| DetectionFilter {
            labels: self.detection_type.clone(),
            min_score: self.min_detection_score,
        })
    }

    /// A run of `input` with default options.
    ///
    /// # Errors
    /// `Value` if it is no input.
    pub fn new(input: impl AsRef<std::ffi::OsStr>) -> Result<Self> {
        Ok(Self { input: Some(InputText::new(input.as_ref())?), ..Self::default() })
    }

    /// The words of it after `lockon run`.
    pub fn words(&self) -> Vec<OsString> {
        let mut words = Vec::new();
        for field in FIELDS.iter().filter(|field| field.is_set(self)) {
            for text in field.texts(self) {
                let mut word = OsString::from(field.option());
                match (field.shape, field.spec.is_positional) {
                    (Shape::Switch, _) => {}
                    (_, true) => word = text,
                    (_, false) => {
                        word.push("=");
                        word.push(text);
                    }
                }
                words.push(word);
            }
        }
        words
    }

    /// The command line of it, for records.
    pub fn command_line(&self) -> Vec<String> {
        let words = self.words().into_iter().map(|word| word.to_string_lossy().into_owned());
        ["lockon", "run"].map(str::to_owned).into_iter().chain(words).collect()
    }

    /// Returns a SHA-256 of the request, in hexadecimal digits. Requests with the same digest get the same
    /// results from a source that has not changed. `templates` are those that were read for the request.
    /// Names of outputs, the device that does the work and passwords are not part of it.
    pub fn digest(&self, templates: &[NamedTemplate]) -> String {
        let (open, _) = self.without_secrets();
        let mut hash = Sha256::new();
        let shows = !self.output.is_empty() || !self.sink.is_empty() || self.cut.is_some();
        let decides = |field: &&Field| match field.spec.decides {
            Decides::Nothing => false,
            Decides::Found => true,
            Decides::IfSet => field.is_set(&open),
            Decides::Shown => shows && field.is_set(&open),
        };
        for field in FIELDS.iter().filter(decides) {
            match (field.name, &self.control) {
                ("template", _) => {}
                // The file's content counts, not its name. A pipe was read already, for the run.
                ("control", Some(path)) if path.is_file() => {
                    let orders = std::fs::read(path).map(Sha256::digest).unwrap_or_default();
                    hash.update(format!("control={}\0", text::hexadecimal(&orders)));
                }
                _ => {
                    for text in field.texts(&open) {
                        hash.update(format!("{}={}\0", field.name, text.display()));
                    }
                }
            }
        }
        for NamedTemplate { template, sha256 } in templates {
            hash.update(format!("template={}={sha256}\0", template.name()));
        }
        text::hexadecimal(&hash.finalize())
    }

    /// The view of outputs: if nothing is searched, followed or reported, the picture itself would show no
    /// results.
    pub fn shown_view(&self) -> View {
        let finds = !self.template.is_empty() || !self.track.is_empty() || self.pick || self.objects;
        let thresholds_only = self.threshold.is_some() && !finds;
        self.view.unwrap_or(if thresholds_only { View::Mask } else { View::default() })
    }

    /// True if colours of the frames are used: they are shown, or something is followed, now or by an order.
    pub(crate) fn uses_colours(&self) -> bool {
        let shows = !self.output.is_empty() || !self.sink.is_empty() || self.display || self.serve.is_some();
        let keeps = self.cut.is_some() || self.report.is_some() || self.event_thumbnails;
        let follows = !self.track.is_empty() || self.track_matches || self.track_detections || self.pick;
        shows || keeps || follows || self.control.is_some()
    }

    /// Returns how results files of a long run are written.
    pub fn rolling(&self) -> Rolling {
        Rolling { append: self.append, rotate: self.rotate, keep: self.keep }
    }

    /// The request with `{date}` and `{time}` in names of outputs replaced by a time, in UTC. Names of files
    /// that [`rotate`](Self::rotate) begins keep them: each file has its own time. Names that cannot be
    /// continued keep them too, so that [`check`](Self::check) refuses them as they were typed.
    #[must_use]
    pub fn dated(&self, now: SystemTime) -> Self {
        let mut request = self.clone();
        let text = |text: &mut String| *text = output::dated(text, now);
        if request.rotate.is_none() {
            let can_last = |name: &&mut String| output::check_rolling(name, self.rolling()).is_ok();
            request.results.iter_mut().filter(can_last).for_each(text);
        }
        request.report.iter_mut().chain(&mut request.cut).for_each(text);
        for path in &mut request.output {
            if let Some(name) = path.to_str().filter(|name| output::is_dated(name)) {
                *path = output::dated(name, now).into();
            }
        }
        request
    }

    /// The tracks and matches that outputs hide.
    pub fn hiding(&self) -> Hiding {
        let blurred = self.blur.iter().map(|subject| (subject.clone(), Way::Blur));
        let coarse = self.pixelate.iter().map(|subject| (subject.clone(), Way::Pixelate));
        Hiding::new(blurred.chain(coarse).collect())
    }

    /// True if outputs hide something.
    pub fn hides(&self) -> bool {
        !self.blur.is_empty() || !self.pixelate.is_empty()
    }

    /// The limits of a match.
    pub fn limits(&self) -> Limits {
        Limits {
            min_score: self.min_score,
            max_matches: self.max_matches as usize,
            max_overlap: self.max_overlap,
        }
    }

    /// True if something is followed from the start, by an option.
    pub fn follows(&self) -> bool {
        !self.track.is_empty()
            || self.pick
            || self.track_matches
            || self.track_detections
            || self.track_objects
    }

    /// Warns of zones that no track can enter, and lines that none can cross. The picture's edge may cut
    /// them: that is no error.
    pub fn warn_of_places_outside(&self, picture: Size) {
        for zone in self.zone.iter().filter(|zone| zone.is_outside(picture)) {
            let name = text::in_one_line(zone.name());
            tracing::warn!("zone {name} lies outside of the {picture} picture: no track can enter it");
        }
        for line in self.line.iter().filter(|line| line.is_outside(picture)) {
            let name = text::in_one_line(line.name());
            tracing::warn!("line {name} lies outside of the {picture} picture: no track can cross it");
        }
    }

    /// The cleaning of masks and their objects; `None` if masks stay as they are and nothing is reported.
    pub fn object_spec(&self) -> Option<ObjectSpec> {
        let cleaning = Cleaning { open: self.open, close: self.close, fill_holes: self.fill_holes };
        let spec = ObjectSpec {
            reports: self.objects,
            colour: self.object_colour,
            connectivity: self.connect,
            cleaning,
            area: self.object_area.unwrap_or_default(),
            size: self.object_size.unwrap_or_default(),
            max: self.object_max.map(|max| max as usize),
        };
        (self.objects || !cleaning.is_none()).then_some(spec)
    }

    /// True if nothing is to be searched, followed or thresholded, so that only boxes that a user draws later
    /// can be followed.
    pub fn is_idle(&self) -> bool {
        let follows = !self.track.is_empty() || self.pick || self.control.is_some() || self.track_detections;
        self.template.is_empty() && !follows && self.threshold.is_none()
    }

    /// The part of the video that is processed.
    pub fn part(&self) -> Part {
        Part { start: self.start, end: self.end, every: self.every }
    }

    /// Frames in flight on the device, of a source that is live or not.
    pub fn depth_for(&self, is_live: bool) -> usize {
        self.depth.map_or_else(|| backend::usual_depth(is_live), usize::from)
    }

    /// Returns the options to open a device for it, in a run that `control` stops. Its source is not live.
    pub fn options(&self, control: &Control) -> Options {
        Options {
            choice: self.backend,
            depth: self.depth_for(false),
            threads: setup::threads(self.threads),
            kernels: self.kernel.iter().copied().collect(),
            control: control.clone(),
            memory: self.memory.as_ref().map(|memory| **memory),
            ..Options::default()
        }
    }

    /// Returns the setup with which a run begins. `templates` are the request's own, once they were read.
    ///
    /// # Errors
    /// As [`Search::new`] and [`setup::check_device`]; `Settings` for work on masks without a threshold.
    pub fn setup(&self, templates: Vec<NamedTemplate>, control: &Control) -> Result<Setup> {
        setup::check_device(
            &self.kernel,
            self.backend,
            (!templates.is_empty()).then_some(self.search),
            self.threshold,
        )?;
        self.check_work_on_masks()?;
        self.checked_setup(templates, control)
    }

    /// As [`Self::setup`], for a request that was checked.
    pub(crate) fn checked_setup(&self, templates: Vec<NamedTemplate>, control: &Control) -> Result<Setup> {
        let sought = templates.iter().map(|named| named.template.clone()).collect();
        let mut search = Search::new(sought, self.search, &self.scales, &self.angles, control)?;
        (search.roi, search.limits, search.threshold) = (self.roi, self.limits(), self.threshold);
        (search.range, search.objects) = (self.range, self.object_spec());
        Ok(Setup {
            templates,
            search: search.into(),
            tracks: self.track.clone(),
            track_matches: self.track_matches,
            track_detections: self.track_detections,
            track_objects: self.track_objects,
            lost_for: self.lost_for,
            gap: self.gap,
            zones: self.zone.clone(),
            lines: self.line.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_repeated_is_told_by_what_its_file_says() {
        let folder = tempfile::tempdir().unwrap();
        let digest = |name: &str, orders: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, orders).unwrap();
            Request { control: Some(path), ..Request::new("a.mp4").unwrap() }.digest(&[])
        };
        let one = digest("a.jsonl", "one");
        assert_eq!(digest("b.jsonl", "one"), one);
        assert_ne!(digest("a.jsonl", "other"), one);
    }

    #[test]
    fn requests_that_write_something_else_have_another_digest() {
        let request = || Request::new("a.mp4").unwrap();
        let shown = || Request { blur: vec!["all".parse().unwrap()], ..request() };
        let sink = |text: &str| vec![format!("filesink location={text}")];
        let others = [
            Request { gap: TimeSpan::seconds(9), ..request() },
            Request { sink: sink("one.mkv"), ..request() },
            Request { sink: sink("two.mkv"), ..request() },
            Request { sink: sink("one.mkv"), ..shown() },
            Request { cut: Some("{n}.mp4".into()), ..request() },
            Request { cut: Some("{n}.mp4".into()), ..shown() },
            Request { events: vec!["https://one.example/".into()], ..request() },
            Request { events: vec!["https://two.example/".into()], ..request() },
            Request { zone: vec!["door=0,0,9,0,9,9".parse().unwrap()], ..request() },
            Request { line: vec!["door=0,0,9,9".parse().unwrap()], ..request() },
            Request { objects: true, ..request() },
            Request { objects: true, track_objects: true, ..request() },
            Request { open: Some("3".parse().unwrap()), ..request() },
        ];
        let digests: std::collections::BTreeSet<_> =
            others.iter().chain([&request()]).map(|request| request.digest(&[])).collect();
        assert_eq!(digests.len(), others.len() + 1);
        // Nothing is shown anywhere.
        assert_eq!(shown().digest(&[]), request().digest(&[]));
    }
}
