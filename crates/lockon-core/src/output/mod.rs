//! Results files: JSON Lines, CSV and MOTChallenge text, tracks for CVAT, COCO; and the report of a run, for
//! people.
//!
//! Whether a file can be written is tried before the video starts, so that a folder that is read-only fails
//! at once. Lines are written as results come: every frame's reach the system whole, in one call, so that a
//! run that is killed leaves valid lines. XML and JSON that are one whole have another name until they are
//! whole, at the end of the run, also of one that was interrupted.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::files;
use crate::message::{Message, Setting};
use crate::ports::Sink;

mod coco;
mod csv;
mod cvat;
mod intervals;
mod jsonl;
mod mot;
mod regions;
#[cfg(feature = "report")]
pub mod report;
mod rolling;

pub use jsonl::write_line;
pub use rolling::{Rolling, dated, is_dated};

/// The format of a results file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Everything there is, see [`crate::results`].
    JsonLines,
    /// A row for every match, every track and every object.
    Csv,
    /// MOTChallenge columns.
    Mot,
    /// Tracks for CVAT.
    Cvat,
    /// COCO annotations.
    Coco,
    /// A line for each appearance, in JSON.
    IntervalLines,
    /// A row for each appearance.
    IntervalRows,
}

impl Format {
    /// The format that the end of a name stands for: `.jsonl`, `.csv`, `.mot.txt`, `.cvat.xml`, `.coco.json`,
    /// `.intervals.jsonl`, `.intervals.csv`; `-` is JSON Lines.
    ///
    /// # Errors
    /// `Value` if it ends otherwise.
    pub fn of(path: &str) -> Result<Self> {
        let ends_in = |ending: &str| path.to_ascii_lowercase().ends_with(ending);
        match () {
            () if ends_in(".intervals.jsonl") => Ok(Self::IntervalLines),
            () if ends_in(".intervals.csv") => Ok(Self::IntervalRows),
            () if path == "-" || ends_in(".jsonl") => Ok(Self::JsonLines),
            () if ends_in(".csv") => Ok(Self::Csv),
            () if ends_in(".mot.txt") => Ok(Self::Mot),
            () if ends_in(".cvat.xml") => Ok(Self::Cvat),
            () if ends_in(".coco.json") => Ok(Self::Coco),
            () => {
                let expected = "expected a name that ends in .jsonl, .csv, .mot.txt, .cvat.xml, .coco.json, \
                    .intervals.csv or .intervals.jsonl, or - for JSON Lines on stdout";
                Err(Error::value("results", path, expected))
            }
        }
    }
}

impl Format {
    /// The kind of lines of such files; `None` if they cannot be continued.
    fn kind(self) -> Option<rolling::LineKind> {
        match self {
            Self::JsonLines => Some(rolling::LineKind::Json("{\"type\":\"run\"")),
            Self::IntervalLines => Some(rolling::LineKind::Json("{\"type\":\"interval\"")),
            Self::Csv => Some(rolling::LineKind::Rows(csv::HEADER)),
            Self::IntervalRows => Some(rolling::LineKind::Rows(intervals::HEADER)),
            Self::Mot | Self::Cvat | Self::Coco => None,
        }
    }
}

/// Refuses results files of a kind that is not written, and standard output for several.
///
/// # Errors
/// `Usage`, `Settings`.
pub fn check(paths: &[String]) -> Result<()> {
    for path in paths {
        Format::of(path)?;
    }
    if paths.iter().filter(|path| *path == "-").count() > 1 {
        let twice = Message::new("{} is given twice", [Setting::with("results", "-")]);
        return Err(Error::Settings(twice));
    }
    Ok(())
}

/// A new results file in the [`Format`] of its name; `-` is standard output. A file of that name is
/// overwritten.
///
/// # Errors
/// `Value` if the name stands for no format, `File` if it cannot be created.
pub fn open(path: &str) -> Result<Box<dyn Sink>> {
    open_rolling(path, Rolling::default())
}

/// As [`open`], for a run that lasts.
///
/// # Errors
/// As [`open`]; `Usage` if files of that format cannot be continued.
pub fn open_rolling(path: &str, rolling: Rolling) -> Result<Box<dyn Sink>> {
    let format = Format::of(path)?;
    let target = || match format.kind() {
        _ if path == "-" => Ok(Target::stdout()),
        Some(kind) if rolling.keeps_files() => Target::rolling(path, kind, rolling),
        _ => Target::file(path),
    };
    check_rolling(path, rolling)?;
    Ok(match format {
        Format::JsonLines => Box::new(jsonl::JsonLines::new(target()?)),
        Format::Csv => Box::new(csv::Csv::new(target()?)),
        Format::IntervalLines => Box::new(intervals::Intervals::lines(target()?)),
        Format::IntervalRows => Box::new(intervals::Intervals::rows(target()?)),
        Format::Mot => Box::new(mot::Mot::new(target()?)),
        Format::Cvat => Box::new(cvat::Cvat::new(path)?),
        Format::Coco => Box::new(coco::Coco::new(path)?),
    })
}

/// Refuses to continue files that are written as a whole, or whose frames would be taken for those of another
/// run.
///
/// # Errors
/// `Usage`.
pub fn check_rolling(path: &str, rolling: Rolling) -> Result<()> {
    if rolling.keeps_files() && path != "-" && Format::of(path)?.kind().is_none() {
        return Err(Error::Usage(format!(
            "--append and --rotate are for .jsonl and .csv, and {path} is written as a whole: leave it out"
        )));
    }
    if rolling.keeps_files() && path != "-" {
        rolling::check_name(path)?;
    }
    Ok(())
}

/// The label of tracks without a name, for tools.
const OBJECT: &str = "object";

/// Standard output's name, which no results file can have.
const STDOUT: &str = "stdout";

/// The target of lines. It accepts nothing after a failure: a line behind half a line would be no line.
struct Target {
    name: String,
    writer: Box<dyn Lines>,
    has_failed: bool,
}

/// A destination for lines.
trait Lines: Write + Send {
    /// Bytes that are there before this run's first line.
    fn length(&mut self) -> io::Result<u64> {
        Ok(0)
    }

    /// The first line that is there before this run's, if there is one.
    fn first_line(&mut self) -> io::Result<String> {
        Ok(String::new())
    }

    /// Begins the next file if that is due. True if it has: then the file needs its first lines.
    fn roll(&mut self) -> io::Result<bool> {
        Ok(false)
    }

    /// The files that were written, if they have other names than the target.
    fn files(&self) -> Option<Vec<PathBuf>> {
        None
    }
}

impl Lines for NewFile {}

impl Lines for io::Stdout {}

/// A file that is created with its first line, and replaces an existing file only then: a run that cannot
/// start keeps the results of the one before.
struct NewFile {
    path: PathBuf,
    file: Option<File>,
    /// Bytes that were completely written.
    length: u64,
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let file = match self.file.take() {
            Some(file) => file,
            None => File::create(&self.path)?,
        };
        self.file.insert(file).write(bytes)
    }

    /// Writes all or nothing: a disk that is full takes a part of a line, which would be no line.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.write(rest) {
                Ok(written) if written > 0 => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => {
                    // Refused by things that are no files with an end, such as a pipe.
                    let _ = self.file.as_ref().map(|file| file.set_len(self.length));
                    return Err(result.err().unwrap_or_else(|| ErrorKind::WriteZero.into()));
                }
            }
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), File::flush)
    }
}

impl Target {
    fn file(path: &str) -> Result<Self> {
        files::check_writable(Path::new(path))?;
        let writer = NewFile { path: path.into(), file: None, length: 0 };
        Ok(Self { name: path.to_owned(), writer: Box::new(writer), has_failed: false })
    }

    /// Files of a run that lasts.
    fn rolling(path: &str, kind: rolling::LineKind, rolling: Rolling) -> Result<Self> {
        let files = rolling::Files::new(path, kind, rolling)?;
        files::check_writable(&files.first())?;
        Ok(Self { name: path.to_owned(), writer: Box::new(files), has_failed: false })
    }

    /// True if nothing is there before this run's first line.
    fn is_empty(&mut self) -> Result<bool> {
        self.writer.length().map(|length| length == 0).map_err(|error| self.failed(&error))
    }

    /// The first line that is there before this run's, if there is one.
    fn first_line(&mut self) -> Result<String> {
        self.writer.first_line().map_err(|error| self.failed(&error))
    }

    /// Begins the next file if that is due. True if it has: then the file needs its first lines.
    fn roll(&mut self) -> Result<bool> {
        if self.has_failed {
            return Ok(false);
        }
        self.writer.roll().map_err(|error| self.failed(&error))
    }

    /// The file, if it is one.
    fn files(&self) -> Vec<PathBuf> {
        if let Some(files) = self.writer.files() {
            return files;
        }
        if self.name == STDOUT { Vec::new() } else { vec![PathBuf::from(&self.name)] }
    }

    fn stdout() -> Self {
        // Rust's stdout passes on whole lines at once, so that it needs no flushing after them.
        Self { name: STDOUT.to_owned(), writer: Box::new(io::stdout()), has_failed: false }
    }

    /// Creates the file, for a format that may have no line at all.
    fn start(&mut self) -> Result<()> {
        self.writer.write(&[]).map(|_| ()).map_err(|error| self.failed(&error))
    }

    /// Writes whole lines, in one call to the system where that takes them all.
    fn write(&mut self, lines: &[u8]) -> Result<()> {
        if self.has_failed {
            return Err(self.failure("not written to any more after it failed"));
        }
        self.writer.write_all(lines).map_err(|error| self.failed(&error))
    }

    /// Hands everything to the system. Reports nothing if writing has failed, since that was reported.
    fn finish(&mut self) -> Result<()> {
        if self.has_failed { Ok(()) } else { self.writer.flush().map_err(|error| self.failed(&error)) }
    }

    fn failed(&mut self, error: &io::Error) -> Error {
        self.has_failed = true;
        if self.name == STDOUT {
            return Error::of_stdout(STDOUT, error);
        }
        match error.kind() {
            ErrorKind::BrokenPipe => self.failure("closed by its reader"),
            _ => self.failure(&error.to_string()),
        }
    }

    fn failure(&self, reason: &str) -> Error {
        Error::Output { name: self.name.clone(), reason: reason.to_owned() }
    }
}

#[cfg(test)]
mod samples {
    //! A small run for the tests of each format.

    use std::sync::Arc;
    use std::time::Instant;

    use crate::config::{ObjectSpec, TimeSpan};
    use crate::error::Result;
    use crate::frame::{
        Circumstances, Frame, FrameMeta, Picture, PixelFormat, Plane, PlaneRef, Size, VideoFormat,
    };
    use crate::ports::{Delivery, Sink};
    use crate::reference;
    use crate::results::{FrameRecord, Match, RunRecord, Summary, ThresholdResult, Track, TrackState};

    struct Grey(Plane);

    impl Picture for Grey {
        fn plane(&self, _: usize) -> PlaneRef<'_> {
            self.0.as_ref()
        }
    }

    pub(super) fn format() -> VideoFormat {
        VideoFormat {
            size: Size::new(5, 3),
            pixels: PixelFormat::GRAY8,
            frame_rate: (30, 1),
            pixel_aspect: (1, 1),
            colorimetry: None,
        }
    }

    pub(super) fn run(tracks: &[&str]) -> RunRecord {
        RunRecord {
            version: "0.0.0",
            input: "a \"quoted\" name.mp4".into(),
            width: 5,
            height: 3,
            frame_rate: 30.0,
            format: "GRAY8",
            backend: "cpu",
            device: "this".into(),
            driver: None,
            decoder: None,
            pictures: false,
            started: 0,
            templates: Vec::new(),
            search: None,
            tracks: tracks.iter().map(|&t| t.to_owned()).collect(),
            track_matches: false,
            track_objects: false,
            threshold: None,
            objects: None,
            range: None,
            settings: None,
            command: None,
            gap: TimeSpan::seconds(1),
            hides: false,
        }
    }

    pub(super) fn found(template: &str) -> Match {
        Match {
            template: template.into(),
            x: 1,
            y: 2,
            w: 4,
            h: 3,
            score: 0.875,
            scale: 1.1,
            angle: -5.0,
            cx: 3.004,
            cy: 3.5,
        }
    }

    pub(super) fn track(id: u32, state: TrackState) -> Track {
        Track {
            id,
            name: None,
            template: None,
            state,
            x: -0.5,
            y: 2.25,
            w: 4.0,
            h: 3.0,
            score: 0.5,
            second_peak_ratio: 0.25,
            object: None,
        }
    }

    /// Frame 0 with two matches and three tracks, frame 2 (a drop before it) with nothing but a threshold.
    pub(super) fn frames() -> [FrameRecord; 2] {
        let first = FrameRecord {
            pts_ns: Some(0),
            latency_us: 7,
            matches: vec![found("logo"), found("a, \"b\"")],
            tracks: vec![
                track(1, TrackState::Tracked),
                track(2, TrackState::Lost),
                track(3, TrackState::Uncertain),
            ],
            ..FrameRecord::default()
        };
        let threshold = Some(ThresholdResult { foreground: 0.25 });
        [first, FrameRecord { frame: 2, threshold, ..FrameRecord::default() }]
    }

    /// A whole run into `sink`, until something fails.
    pub(super) fn play(sink: &mut dyn Sink, tracks: &[&str]) -> Result<()> {
        sink.begin(&run(tracks), &format())?;
        for record in frames() {
            deliver(sink, record)?;
        }
        sink.finish(&Summary { frames: 2, dropped: 1, ..Summary::default() })
    }

    /// A frame with a match, a track and two objects: a ring, and a pixel.
    pub(super) fn play_with_objects(sink: &mut dyn Sink, spec: Option<ObjectSpec>) -> Result<()> {
        sink.begin(&RunRecord { objects: spec, ..run(&["1,2,3,4@0"]) }, &format())?;
        let rows = ["###..", "#.#..", "###.#"];
        let pixels = rows.iter().flat_map(|row| row.bytes()).map(|c| if c == b'#' { 255 } else { 0 });
        let mask = Plane::from_vec(pixels.collect(), Size::new(5, 3));
        let luma = Plane::from_vec((0..15).map(|at| 10 * (at % 5 + 1)).collect(), Size::new(5, 3));
        let found = reference::objects::find(mask.as_ref(), luma.as_ref(), &spec.unwrap_or_default());
        let record = FrameRecord {
            pts_ns: Some(0),
            matches: vec![self::found("logo")],
            tracks: vec![track(1, TrackState::Tracked)],
            objects: Some(found.objects),
            more_objects: found.more,
            ..FrameRecord::default()
        };
        deliver_with(sink, record, Some(&(Arc::new(Grey(mask)) as Arc<dyn Picture>)))?;
        sink.finish(&Summary { frames: 1, ..Summary::default() })
    }

    pub(super) fn deliver(sink: &mut dyn Sink, record: FrameRecord) -> Result<()> {
        deliver_with(sink, record, None)
    }

    fn deliver_with(sink: &mut dyn Sink, record: FrameRecord, mask: Option<&Arc<dyn Picture>>) -> Result<()> {
        let meta =
            FrameMeta { index: record.frame, pts_ns: None, duration_ns: None, arrived: Instant::now() };
        let picture = Arc::new(Grey(Plane::new(Size::new(5, 3))));
        let frame =
            Frame { meta, circumstances: Circumstances::default(), format: Arc::new(format()), picture };
        sink.deliver(&Delivery { frame: &frame, record: &Arc::new(record), mask })
    }

    /// The text that a run with objects writes to a file that ends in `extension`.
    pub(super) fn written_with_objects(extension: &str, spec: ObjectSpec) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("results{extension}"));
        play_with_objects(&mut *super::open(path.to_str().unwrap()).unwrap(), Some(spec)).unwrap();
        std::fs::read_to_string(path).unwrap()
    }

    /// The text that a run writes to a file that ends in `extension`.
    pub(super) fn written(extension: &str, tracks: &[&str]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("results{extension}"));
        play(&mut *super::open(path.to_str().unwrap()).unwrap(), tracks).unwrap();
        std::fs::read_to_string(path).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Summary;

    #[test]
    fn an_unknown_ending_is_wrong_usage_and_names_the_known_ones() {
        for name in ["out.json", "out.txt", "mot.txt", "jsonl", ""] {
            let error = open(name).err().unwrap();
            assert!(error.is_usage());
            assert!(error.to_string().contains(".jsonl, .csv, .mot.txt, .cvat.xml, .coco.json"), "{error}");
        }
    }

    #[test]
    fn a_folder_that_is_missing_fails_before_the_video_starts() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.jsonl", "a.csv", "a.mot.txt", "a.cvat.xml", "a.coco.json"] {
            let path = folder.path().join("missing").join(name);
            let error = open(path.to_str().unwrap()).err().unwrap();
            assert!(matches!(error, Error::File { action: "write", .. }), "{error}");
        }
    }

    #[test]
    fn nothing_is_written_after_a_failure_and_finish_is_silent() {
        struct Breaks;
        impl Write for Breaks {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                panic!("flushed after a failure")
            }
        }
        impl Lines for Breaks {}
        let target = |name: &str| Target { name: name.into(), writer: Box::new(Breaks), has_failed: false };
        let sinks: [Box<dyn Sink>; 3] = [
            Box::new(jsonl::JsonLines::new(target("a pipe"))),
            Box::new(csv::Csv::new(target("a pipe"))),
            Box::new(mot::Mot::new(target("a pipe"))),
        ];
        for mut sink in sinks {
            let said = samples::play(&mut *sink, &["1,2,3,4@0"]).unwrap_err().to_string();
            assert_eq!(said, "output a pipe: closed by its reader");
            sink.finish(&Summary::default()).unwrap();
        }
        // A named pipe is a file that the user wants whole; of standard output a reader may want the start
        // only.
        let error = samples::play(&mut jsonl::JsonLines::new(target(STDOUT)), &["1,2,3,4@0"]).unwrap_err();
        assert!(matches!(error, Error::ReaderGone { name: STDOUT }), "{error}");
        assert_eq!(error.to_string(), "output stdout: closed by its reader");
    }

    #[test]
    fn what_is_one_whole_replaces_an_older_file_at_the_end_and_a_run_that_never_began_leaves_it() {
        for name in ["a.cvat.xml", "a.coco.json"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(name);
            std::fs::write(&path, "old").unwrap();
            let mut sink = open(path.to_str().unwrap()).unwrap();
            sink.finish(&Summary::default()).unwrap();
            drop(sink);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
            let mut sink = open(path.to_str().unwrap()).unwrap();
            sink.begin(&samples::run(&[]), &samples::format()).unwrap();
            samples::deliver(&mut *sink, samples::frames()[0].clone()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "old", "as it would be after a crash");
            // An interrupted run writes its results too.
            sink.finish(&Summary { interrupted: true, ..Summary::default() }).unwrap();
            assert_eq!(sink.files(), std::slice::from_ref(&path));
            drop(sink);
            assert_ne!(std::fs::read_to_string(&path).unwrap(), "old");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else stays");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_reported_in_the_systems_words() {
        let file = NewFile { path: "/dev/full".into(), file: None, length: 0 };
        let target = Target { name: "out.jsonl".into(), writer: Box::new(file), has_failed: false };
        let mut sink = jsonl::JsonLines::new(target);
        let said = samples::play(&mut sink, &[]).unwrap_err().to_string();
        assert!(said.starts_with("output out.jsonl: No space left on device"), "{said}");
        sink.finish(&Summary::default()).unwrap();
    }
}
