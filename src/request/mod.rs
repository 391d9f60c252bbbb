//! Everything that can be asked of a run, as plain data.
//!
//! Each thing that can be asked for is declared once, below: its type, which has the text form, its default,
//! its range, its help, and where else it can be set. The command line, `--help`, the element's properties,
//! `--as-element` and job files are made from these declarations; [`FIELDS`] is what they read.
//!
//! ```
//! use lockon::request::Request;
//!
//! let mut request = Request::new("match.mp4")?;
//! request.track.push("310,120,64,128@12.5s".parse()?);
//! request.results.push("found.jsonl".into());
//! request.check()?;
//! let job = request.to_toml()?;
//! assert_eq!(Request::from_toml(&job)?, request);
//! # Ok::<(), lockon::Error>(())
//! ```
//!
//! [`crate::run::Run::start`] does what a request asks for.

mod change;
mod check;
mod control;
mod element;
mod field;
mod job_file;
mod login;
mod receiver;
mod share;

pub use field::{Field, FrameRate, InElement, InputText, Number, Shape, Spec, Text};
pub use login::login;
pub use receiver::ReceiverText;
pub(crate) use receiver::shown as shown_receiver;
pub use share::Share;

use std::ffi::OsString;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::backend::{self, Options};
use crate::config::{
    Angles, BackendChoice, Kernel, Limits, Moment, OnDeviceLoss, Part, Scales, SearchMethod, Shot,
    ThresholdSpec, TrackSpec, Typed, View, Zone,
};
use crate::control::Control;
use crate::error::{Bytes, Result};
use crate::frame::{Rect, Size};
use crate::job::{self, Job, NamedTemplate};
use crate::media::detections::Wanted;
use crate::media::source::Decoder;
use crate::metrics::Address;
use crate::search::Search;
use field::{SPEC, request};

const TO_DO: &str = "What to do";
const SEARCH: &str = "Search of templates (tracks have their own)";
const OUTPUT: &str = "Output";
const HOW: &str = "How";

/// Fields besides what to do and how to search that decide what is found.
const DECISIVE: [&str; 10] =
    ["input", "source", "live", "lossless", "size", "fps", "start", "end", "every", "max-frames"];

/// Fields that decide what an encoded output shows.
const SHOWN: [&str; 4] = ["view", "follow", "follow-zoom", "no-audio"];

/// Most threads.
const MOST_THREADS: f64 = 1024.0;

request! {
    /// A file, a URI, `camera[:/dev/videoN]`, pictures (`seq/%04d.jpg`, a folder, a quoted glob), - for
    /// standard input, or @JOB: a file with the options of a run, as --print-job writes it; several are
    /// processed at once, each as a run of its own
    input: Option<InputText> = None, Spec { value: "INPUT", is_positional: true, ..SPEC };
    /// A source of your own: gst-launch text that ends in `appsink name=frames`, which may be left out, or
    /// @FILE with such text
    source: Option<String> = None, Spec { value: "TEXT|@FILE", excludes: &["input"], ..SPEC };

    /// Search for a picture (PNG, JPEG, BMP; its alpha channel is the mask); may be given several times
    template: Vec<String> = Vec::new(),
        Spec { value: "[NAME=]PATH", short: Some('t'), group: TO_DO, element: InElement::Playing, ..SPEC };
    /// Follow the object in this box (0,0 is the top left pixel), from this frame or time on: 18, 12.5s,
    /// 1:02.5 (the first frame if not given); may be given several times
    track: Vec<TrackSpec> = Vec::new(),
        Spec { value: "X,Y,W,H[@WHEN]", group: TO_DO, takes_hyphens: true, element: InElement::Ready, ..SPEC };
    /// Draw the box to follow in a window, on the first frame (that of --start if it is given; a camera's
    /// newest): drag a box, arrows move it by a pixel, Shift+arrows resize it, Enter or space takes it, A
    /// adds another, Backspace takes the last one back, Esc, q and c cancel. Where there is no screen the
    /// frame is written as a picture with a grid to read boxes off
    pick: bool = false, Spec { group: TO_DO, ..SPEC };
    /// Follow what --template finds: each match that lasts becomes a track with a number of its own, until it
    /// is lost for long. --max-matches says how many of each template are looked for
    track_matches: bool = false,
        Spec { group: TO_DO, element: InElement::Ready, ..SPEC };
    /// Follow what a detector in front finds: regions of interest (`GstVideoRegionOfInterestMeta`) that an
    /// element of --source has put on frames, in some of them or in each; every object becomes a track with a
    /// number of its own, until it is lost for long
    track_detections: bool = false,
        Spec { group: TO_DO, excludes: &["track-matches"], element: InElement::Ready, ..SPEC };
    /// Follow detections of this class only, as the detector names it; may be given several times
    detection_type: Vec<String> = Vec::new(),
        Spec { value: "CLASS", group: TO_DO, needs: &["track-detections"], element: InElement::Ready, ..SPEC };
    /// Least score of a detection, from 0 to 1: the field `confidence` of a region's parameters
    min_detection_score: f64 = 0.0,
        Spec { value: "SCORE", group: TO_DO, needs: &["track-detections"], range: Some((0.0, 1.0)), element: InElement::Ready, ..SPEC };
    /// Do again what an earlier run was asked for while it went on, at the same frames: its results file,
    /// JSON Lines
    control: Option<PathBuf> = None,
        Spec { value: "FILE.jsonl", group: TO_DO, element: InElement::Ready, ..SPEC };
    /// Binarise: `mean:BLOCK:C`, `gaussian:BLOCK:C`, `sauvola:BLOCK:K`, `niblack:BLOCK:K`; `:inv` inverts
    threshold: Option<ThresholdSpec> = None,
        Spec { value: "METHOD:BLOCK:VALUE[:inv]", group: TO_DO, element: InElement::Playing, ..SPEC };

    /// Least score of a match, from -1 to 1
    min_score: f64 = Limits::default().min_score,
        Spec { value: "SCORE", group: SEARCH, takes_hyphens: true, range: Some((-1.0, 1.0)), element: InElement::Playing, ..SPEC };
    /// Most matches of each template in a frame
    max_matches: u32 = Limits::default().max_matches as u32,
        Spec { value: "N", group: SEARCH, range: Some((1.0, f64::INFINITY)), element: InElement::Playing, ..SPEC };
    /// Most overlap of two matches of one template: intersection over union, from 0 to 1
    max_overlap: f64 = Limits::default().max_overlap,
        Spec { value: "IOU", group: SEARCH, range: Some((0.0, 1.0)), element: InElement::Playing, ..SPEC };
    /// Sizes: every power of FACTOR in the range, and 1; without /FACTOR of 1.05; one number is that size
    /// alone
    scales: Typed<Scales> = Typed::of("1..1/2"),
        Spec { value: "FROM..TO[/FACTOR]", group: SEARCH, hides_default: true, element: InElement::Playing, ..SPEC };
    /// Directions in degrees, counter-clockwise positive; without /STEP every 5; one number is that direction
    /// alone
    angles: Typed<Angles> = Typed::of("0..0/1"),
        Spec { value: "FROM..TO[/STEP]", group: SEARCH, takes_hyphens: true, hides_default: true, element: InElement::Playing, ..SPEC };
    /// How: exhaustive (every place, size and direction), pyramid (from coarse to fine on the CPU: much
    /// faster with many sizes and directions; scores are exact, but a match can be missed) or auto (pyramid
    /// where exhaustive takes long on the CPU)
    search: SearchMethod = SearchMethod::default(),
        Spec { value: "HOW", group: SEARCH, offers: &["auto", "exhaustive", "pyramid"], element: InElement::Playing, ..SPEC };
    /// Search for templates inside this box only; 0,0 is the top left pixel
    roi: Option<Rect> = None,
        Spec { value: "X,Y,W,H", group: SEARCH, takes_hyphens: true, element: InElement::Playing, ..SPEC };

    /// Write the video with what was found drawn into it: .mp4, .mkv, .avi or .webm; may be given several
    /// times. What of it plays if lockon is killed: an .mp4 up to its last half second, nothing in its first
    /// second; an .mkv all that was written. Through a named pipe: .mkv or .webm
    output: Vec<PathBuf> = Vec::new(),
        Spec { value: "FILE", short: Some('o'), group: OUTPUT, is_file: true, ..SPEC };
    /// Let -o show a part of the picture of that size that follows a track, smoothly and with nothing drawn
    /// on it: the first that is found, or the one with that number. While the track is lost it stays where it
    /// is
    follow: Option<Shot> = None,
        Spec { value: "WxH[@TRACK]", group: OUTPUT, needs: &["output"], excludes: &["view"], ..SPEC };
    /// Show what --follow shows so many times as large, from 1 to 16
    follow_zoom: f64 = 1.0,
        Spec { value: "TIMES", group: OUTPUT, needs: &["follow"], range: Some((1.0, 16.0)), hides_default: true, ..SPEC };
    /// Leave the input's sound out of -o
    no_audio: bool = false, Spec { group: OUTPUT, needs: &["output"], ..SPEC };
    /// Show it in a window. Drag a box there to follow what is in it, click a track to forget it; space
    /// pauses and goes on, `.` goes on by one frame, q and Esc end the run as if the video had ended, and so
    /// does closing the window; a camera's frames are dropped while it pauses
    display: bool = false, Spec { group: OUTPUT, ..SPEC };
    /// Send it into a pipeline of your own: gst-launch text that begins with `appsrc name=results`, which may
    /// be left out, or @FILE with such text
    sink: Vec<String> = Vec::new(), Spec { value: "TEXT|@FILE", group: OUTPUT, ..SPEC };
    /// What -o, --display and --sink show: `overlay` (boxes over the picture), `mask` (the thresholded
    /// picture) or `split` (half of each) [default: overlay; mask if nothing but --threshold is asked for]
    view: Option<View> = None,
        Spec { value: "VIEW", group: OUTPUT, offers: &["overlay", "mask", "split"], ..SPEC };
    /// Write what was found: .jsonl, .csv, .mot.txt (MOTChallenge), .cvat.xml (tracks for CVAT), .coco.json
    /// (COCO), or - for JSON Lines on standard output; may be given several times
    results: Vec<String> = Vec::new(),
        Spec { value: "FILE", group: OUTPUT, is_file: true, element: InElement::Ready, ..SPEC };
    /// Tell what happens to tracks (appeared, uncertain, lost, found, gone; entered or left a --zone): lines
    /// of JSON on standard output (-), each posted to an http:// or https:// address, or published to an MQTT
    /// broker at mqtt://HOST:PORT/TOPIC or mqtts://HOST:PORT/TOPIC, with USER:PASSWORD@ in front of the host
    /// if it asks for that; @FILE has such an address in it, which then nobody sees in the list of processes;
    /// may be given several times. The run never waits for any of these
    events: Vec<ReceiverText> = Vec::new(), Spec { value: "-|URL|@FILE", group: OUTPUT, ..SPEC };
    /// A polygon in the picture that tracks can enter and leave, corners in pixels; a track is in it when the
    /// middle of its box's lower edge is; may be given several times
    zone: Vec<Zone> = Vec::new(),
        Spec { value: "NAME=X,Y,X,Y,X,Y", group: OUTPUT, needs: &["events"], ..SPEC };
    /// Put a small picture of the track into each event: JPEG, in base64
    event_thumbnails: bool = false, Spec { group: OUTPUT, needs: &["events"], ..SPEC };
    /// Let Home Assistant find the run at the MQTT broker by itself: a count of tracks, whether something is
    /// in each --zone, and the events
    home_assistant: bool = false, Spec { group: OUTPUT, needs: &["events"], ..SPEC };
    /// Write a page about the run when it ends: trajectories, score and state over time, latency
    report: Option<String> = None, Spec { value: "FILE.html", group: OUTPUT, is_file: true, ..SPEC };

    /// The device that does the work: auto, cpu, cuda, cuda:N; of several GPUs (`cuda:0,1`, `cuda:all`)
    /// each run takes the one with the fewest runs
    backend: BackendChoice = BackendChoice::default(),
        Spec { value: "BACKEND", group: HOW, offers: &["auto", "cpu", "cuda"], element: InElement::Ready, ..SPEC };
    /// Threads of the CPU backend, and for several tracks
    threads: Option<u16> = None,
        Spec { value: "N", group: HOW, range: Some((1.0, MOST_THREADS)), element: InElement::Ready, ..SPEC };
    /// A kernel of the CUDA backend instead of what it takes by itself; may be given several times
    kernel: Vec<Kernel> = Vec::new(),
        Spec { value: "NAME", group: HOW, offers: &Kernel::NAMES, lists_offers: true, element: InElement::Ready, ..SPEC };
    /// Memory that the search may take on the CPU: 2G, 500M; with less it takes longer [default: half of what
    /// is free]
    memory: Option<Typed<Bytes>> = None,
        Spec { value: "SIZE", group: HOW, element: InElement::Ready, ..SPEC };
    /// Frames in flight on the device; 2 is a double buffer [default: 4, of a live source 2]
    depth: Option<u8> = None,
        Spec { value: "N", group: HOW, range: Some((1.0, 32.0)), element: InElement::Ready, ..SPEC };
    /// When the GPU fails in the middle of a run: end (with an error, what was written is kept), gpu (another
    /// one does the rest, or the CPU), or cpu (it does the rest)
    on_device_loss: OnDeviceLoss = OnDeviceLoss::default(),
        Spec { value: "WHAT", group: HOW, offers: &["end", "gpu", "cpu"], element: InElement::Ready, ..SPEC };
    /// Which decoders may be used: auto, software, hardware; auto takes hardware where a GPU searches, unless
    /// the video is a file and 12 cores or more decode it faster
    decoder: Decoder = Decoder::Auto,
        Spec { value: "DECODER", group: HOW, offers: &["auto", "software", "hardware"], ..SPEC };
    /// Keep up with the source: newest frame first, older ones are dropped and counted (default for live
    /// sources)
    live: bool = false, Spec { group: HOW, excludes: &["lossless"], ..SPEC };
    /// Process every frame, however long it takes (default for files)
    lossless: bool = false, Spec { group: HOW, ..SPEC };
    /// When a camera or stream is lost, or is not there yet, wait and connect anew until it is; without this
    /// the run ends with an error
    reconnect: bool = false, Spec { group: HOW, ..SPEC };
    /// Size of the camera's pictures
    size: Option<Size> = None, Spec { value: "WxH", group: HOW, ..SPEC };
    /// The camera's frames a second: 30, 30000/1001; of pictures, how many make a second (25 if not given)
    fps: Option<FrameRate> = None, Spec { value: "N[/D]", group: HOW, ..SPEC };
    /// User and password for the server of an rtsp://, http:// or srt:// address: a file with one line,
    /// `user:password`, instead of the address, which others can see in the list of processes; the variable
    /// `LOCKON_CREDENTIALS` may have the same line
    credentials: Option<PathBuf> = None, Spec { value: "FILE", group: HOW, ..SPEC };
    /// Even out the jitter of rtsp:// and srt:// over so many milliseconds: less is sooner, more is smoother
    /// [default: 200]
    jitter: Option<u32> = None, Spec { value: "MS", group: HOW, range: Some((0.0, 60_000.0)), ..SPEC };
    /// Begin with this frame, or with the first that is not before this time: 120, 12.5s, 1:02.5, 1:02:03.5.
    /// What comes before is decoded only; numbers and times stay those of the whole video
    start: Moment = Moment::default(), Spec { value: "WHEN", group: HOW, takes_hyphens: true, hides_default: true, ..SPEC };
    /// End before this frame, or before the first that is not before this time; of a camera or stream,
    /// counted from its start
    end: Option<Moment> = None, Spec { value: "WHEN", group: HOW, takes_hyphens: true, ..SPEC };
    /// Process each Nth frame only, from the first on; videos that are written play at the same speed
    every: u64 = 1,
        Spec { value: "N", group: HOW, range: Some((1.0, f64::INFINITY)), hides_default: true, ..SPEC };
    /// End after so many frames that were processed
    max_frames: Option<u64> = None,
        Spec { value: "N", group: HOW, range: Some((1.0, f64::INFINITY)), element: InElement::Ready, ..SPEC };
    /// Tell Prometheus how the run goes: serve /metrics over HTTP there; a PORT alone is 127.0.0.1's
    metrics: Option<Address> = None, Spec { value: "[HOST:]PORT", group: HOW, ..SPEC };
    /// Show it in a browser, and steer it from there: the address to open is printed. A PORT alone is
    /// 127.0.0.1's; with a HOST that others can reach it has a token in it. Where nothing is to be searched
    /// or followed, a file waits at its first frame until a box is drawn
    serve: Option<Address> = None, Spec { value: "[HOST:]PORT", group: OUTPUT, ..SPEC };
}

impl Request {
    /// What of a detector's is followed.
    pub fn detections(&self) -> Option<Wanted> {
        self.track_detections
            .then(|| Wanted { labels: self.detection_type.clone(), min_score: self.min_detection_score })
    }

    /// A run of `input`, of which nothing else is asked yet.
    ///
    /// # Errors
    /// `Value` if it is no input.
    pub fn new(input: impl AsRef<std::ffi::OsStr>) -> Result<Self> {
        Ok(Self { input: Some(InputText::new(input.as_ref())?), ..Self::default() })
    }

    /// The words that ask for it behind `lockon run`.
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

    /// A number of what is asked, as SHA-256 in hexadecimal digits: requests that have the same, with these
    /// templates, which were read for it, get the same results, of a source that has not changed. Names of
    /// outputs are not in it, nor what does the work, and passwords are not either.
    pub fn digest(&self, templates: &[NamedTemplate]) -> String {
        let (open, _) = self.without_secrets();
        let mut hash = Sha256::new();
        for field in FIELDS.iter().filter(|field| {
            DECISIVE.contains(&field.name)
                || [TO_DO, SEARCH].contains(&field.spec.group)
                || !self.output.is_empty() && SHOWN.contains(&field.name) && field.is_set(&open)
        }) {
            match (field.name, &self.control) {
                ("template", _) => {}
                // Its name says nothing of what it asks. A pipe was read already, for the run.
                ("control", Some(path)) if path.is_file() => {
                    let orders = std::fs::read(path).map(Sha256::digest).unwrap_or_default();
                    hash.update(format!("control={}\0", in_hexadecimal(&orders)));
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
        in_hexadecimal(&hash.finalize())
    }

    /// What outputs show: where nothing is searched or followed, the picture itself would show nothing of the
    /// results.
    pub fn shown_view(&self) -> View {
        let thresholds_only =
            self.threshold.is_some() && self.template.is_empty() && self.track.is_empty() && !self.pick;
        self.view.unwrap_or(if thresholds_only { View::Mask } else { View::default() })
    }

    /// What counts as a match.
    pub fn limits(&self) -> Limits {
        Limits {
            min_score: self.min_score,
            max_matches: self.max_matches as usize,
            max_overlap: self.max_overlap,
        }
    }

    /// True if nothing is to be searched, followed or thresholded, so that only what somebody draws later
    /// can be.
    pub fn is_idle(&self) -> bool {
        let follows = !self.track.is_empty() || self.pick || self.control.is_some() || self.track_detections;
        self.template.is_empty() && !follows && self.threshold.is_none()
    }

    /// Which frames are processed.
    pub fn part(&self) -> Part {
        Part { start: self.start, end: self.end, every: self.every }
    }

    /// Frames in flight on the device, of a source that is live or not.
    pub fn depth_for(&self, is_live: bool) -> usize {
        self.depth.map_or_else(|| backend::usual_depth(is_live), usize::from)
    }

    /// How a device is opened for it, in a run that `control` stops. Its source is not live.
    pub fn options(&self, control: &Control) -> Options {
        Options {
            choice: self.backend,
            depth: self.depth_for(false),
            threads: job::threads(self.threads),
            kernels: self.kernel.iter().copied().collect(),
            control: control.clone(),
            memory: self.memory.as_ref().map(|memory| **memory),
            ..Options::default()
        }
    }

    /// What a run begins with, with these templates, which are the request's own once they were read.
    ///
    /// # Errors
    /// As [`Search::new`] and [`job::check_device`].
    pub fn job(&self, templates: Vec<NamedTemplate>, control: &Control) -> Result<Job> {
        job::check_device(
            &self.kernel,
            self.backend,
            (!templates.is_empty()).then_some(self.search),
            self.threshold,
        )?;
        self.checked_job(templates, control)
    }

    /// The same for a request that was checked.
    pub(crate) fn checked_job(&self, templates: Vec<NamedTemplate>, control: &Control) -> Result<Job> {
        let sought = templates.iter().map(|named| named.template.clone()).collect();
        let mut search = Search::new(sought, self.search, &self.scales, &self.angles, control)?;
        (search.roi, search.limits, search.threshold) = (self.roi, self.limits(), self.threshold);
        Ok(Job {
            templates,
            search: search.into(),
            tracks: self.track.clone(),
            track_matches: self.track_matches,
            track_detections: self.track_detections,
        })
    }
}

fn in_hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
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
}
