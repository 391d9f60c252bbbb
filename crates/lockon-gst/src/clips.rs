//! A clip of the video for each appearance of a template or track (`--cut`).
//!
//! From a file that can be seeked, with a codec that the container supports, packets are copied: a clip
//! begins at the last key frame that is not after its place, and nothing is encoded again. A thread does that
//! from the file's own bytes when an appearance has ended. From everything else, or if exact clips or hidden
//! parts were asked for, clips are encoded from the frames of the run. For that the last frames are kept in
//! memory, as many as the padding and the gap need.
//!
//! With `-y` clips replace files, but only files that existed when the run began and have not changed since.
//! They skip the numbers of other files. A name is reserved while its clip is written: a new file is created
//! at once, and the file is locked, so two runs of one pattern write different files.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::SystemTime;

use crossbeam_channel::Sender;

use crate::copying;
use crate::sink::{Container, VideoSink};
use lockon_core::appearances::{Appearance, Appearances};
use lockon_core::config::{Codec, TimeSpan, View};
use lockon_core::control::Control;
use lockon_core::error::{Error, Result};
use lockon_core::frame::{Frame, Picture, Plane, PlaneRef, USUAL_INTERVAL_NS, VideoFormat};
use lockon_core::locks::lock;
use lockon_core::overlay::{Hidden, Hiding};
use lockon_core::ports::{Delivery, Sink};
use lockon_core::results::{FrameRecord, RunRecord, Summary};
use lockon_core::surface::Surface;
use lockon_core::text;

/// Maximum clips encoded at once; more would leave no processor time for the search.
const MOST_AT_ONCE: usize = 8;

/// Bytes of frames kept for clips that may begin or continue.
const MOST_KEPT: usize = 1 << 30;

/// Maximum encoders that complete their files while others begin.
const MOST_ENDING: usize = 8;

/// The names and contents of clips.
#[derive(Debug, Clone)]
pub struct ClipSpec {
    /// The files' names: `{name}` is the appearance's name, `{n}` its number.
    pub pattern: String,
    /// Time before and after each appearance.
    pub padding: TimeSpan,
    /// The file to copy from; `None` if clips are encoded from frames.
    pub file: Option<PathBuf>,
    /// The file with the clips' sound.
    pub sound: Option<PathBuf>,
    /// Follows hidden parts of encoded clips through all frames.
    pub hiding: Hiding,
}

/// Refuses names that cannot belong to several clips.
///
/// # Errors
/// `Value`.
pub fn check(pattern: &str) -> Result<()> {
    let bad = |expected: &str| Err(Error::value("cut", pattern, expected));
    let file = Path::new(pattern).file_name().map_or_else(String::new, |name| name.to_string_lossy().into());
    if !file.contains("{n}") || pattern.matches("{n}").count() > 1 || pattern.matches("{name}").count() > 1 {
        return bad("expected a file's name with {n}, the number of the clip, once, such as {name}-{n}.mp4");
    }
    if let Some(unknown) = unknown_word(pattern) {
        return bad(&format!(
            "{unknown} stands for nothing: there are {{name}} and {{n}} of the clip, {{stem}} and {{index}} of the video, \
             {{date}} and {{time}}"
        ));
    }
    if pattern.contains("{name}") && !file.contains("{name}") {
        return bad("{name} must stand in the file's name, not in a folder's name");
    }
    Container::of(Path::new(pattern))?;
    crate::sink::file_launch(Path::new(pattern), Codec::Auto).map(|_| ())
}

/// The first unknown word in braces.
fn unknown_word(pattern: &str) -> Option<&str> {
    let words = pattern.match_indices('{').filter_map(|(at, _)| {
        let length = pattern[at..].find('}')?;
        Some(&pattern[at..=at + length])
    });
    let is_word = |text: &&str| {
        text.len() > 2 && text[1..text.len() - 1].bytes().all(|byte| byte.is_ascii_alphabetic())
    };
    let known = ["{name}", "{n}", "{stem}", "{index}", "{date}", "{time}"];
    words.filter(is_word).find(|word| !known.contains(word))
}

/// Existing files with names of such clips.
pub fn existing(pattern: &str) -> Vec<PathBuf> {
    let path = Path::new(pattern);
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Vec::new() };
    let Ok(entries) = lockon_core::files::folder_of(path).read_dir() else { return Vec::new() };
    let mut found: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(|file| is_of(name, file)))
        .map(|entry| path.with_file_name(entry.file_name()))
        .collect();
    found.sort();
    found
}

/// True if a name matches a pattern: any text for `{name}`, a number for `{n}`.
fn is_of(pattern: &str, name: &str) -> bool {
    let Some(at) = pattern.find('{') else { return pattern == name };
    let (front, rest) = pattern.split_at(at);
    let Some(name) = name.strip_prefix(front) else { return false };
    let digits = name.bytes().take_while(u8::is_ascii_digit).count();
    if let Some(rest) = rest.strip_prefix("{n}") {
        return (1..=digits).any(|length| is_of(rest, &name[length..]));
    }
    if let Some(rest) = rest.strip_prefix("{name}") {
        return name.char_indices().skip(1).map(|(at, _)| at).any(|at| is_of(rest, &name[at..]));
    }
    name.strip_prefix('{').is_some_and(|name| is_of(&rest[1..], name))
}

/// A name without characters that a file's name cannot have.
fn harmless(name: &str) -> String {
    let kept = |c: char| if c == '/' || c == '\\' || c.is_control() { '_' } else { c };
    let name: String = name.chars().map(kept).take(80).collect();
    if name.starts_with('.') || name.is_empty() { format!("_{name}") } else { name }
}

/// A [`Sink`] that writes clips.
pub struct Clips {
    wanted: ClipSpec,
    /// Shared with the thread that copies.
    names: Arc<Mutex<Names>>,
    watch: Appearances,
    gap_ns: u64,
    interval_ns: u64,
    format: Option<VideoFormat>,
    run: Option<RunRecord>,
    control: Control,
    copier: Option<Copier>,
    kept: VecDeque<Kept>,
    kept_bytes: usize,
    open: Vec<Clip>,
    ending: VecDeque<JoinHandle<Result<()>>>,
    left_out: u64,
    has_told_memory: bool,
    /// The first error of a clip; the other clips continue.
    failed: Option<Error>,
}

/// A frame that may belong to a clip.
struct Kept {
    ns: u64,
    frame: Frame,
    record: Arc<FrameRecord>,
    /// Determined at once: a clip that begins while a track is lost has no frame in which it was sure.
    hidden: Vec<Hidden>,
}

/// A clip that is being encoded.
struct Clip {
    appearance: Appearance,
    /// The time of its last frame, if known.
    limit_ns: u64,
    /// The number of the first frame that was not passed on yet.
    next: u64,
    is_over: bool,
    sink: VideoSink,
    reservation: Reservation,
}

/// The thread that copies.
struct Copier {
    cuts: Sender<Cut>,
    thread: JoinHandle<Result<()>>,
}

/// An appearance to copy.
struct Cut {
    label: String,
    from_ns: u64,
    to_ns: u64,
}

/// The names of a run's clips.
struct Names {
    pattern: String,
    /// Files that may be replaced, as they were when the run began.
    replaceable: HashMap<PathBuf, Option<Seen>>,
    /// The last number of each name.
    numbers: BTreeMap<String, u64>,
    written: Vec<PathBuf>,
}

/// The time of a file's (or link's) last change, and its length.
type Seen = (SystemTime, u64);

/// The file of a clip, reserved as long as this exists. Removes a file that it created and that stayed empty.
struct Reservation {
    path: PathBuf,
    is_new: bool,
    /// Its lock is the reservation.
    _file: Option<File>,
}

/// A picture in the host's memory: buffers of the decoder are not kept.
struct Copy(Vec<Plane>);

impl Picture for Copy {
    fn plane(&self, index: usize) -> PlaneRef<'_> {
        self.0[index].as_ref()
    }
}

impl Names {
    fn of(pattern: &str) -> Self {
        let replaceable = existing(pattern).into_iter().map(|path| {
            let seen = seen(&path);
            (path, seen)
        });
        let replaceable = replaceable.collect();
        Self { pattern: pattern.into(), replaceable, numbers: BTreeMap::new(), written: Vec::new() }
    }

    /// Reserves the file of the next clip of an appearance.
    fn reserve(&mut self, label: &str) -> Reservation {
        let name = harmless(label);
        let key = if self.pattern.contains("{name}") { name.clone() } else { String::new() };
        let number = self.numbers.entry(key).or_default();
        loop {
            *number += 1;
            // One by one: a name may have braces of its own.
            let (front, rest) = self.pattern.split_once("{n}").expect("checked when it was opened");
            let part = |text: &str| text.replace("{name}", &name);
            let path = PathBuf::from(format!("{}{number}{}", part(front), part(rest)));
            if self.written.contains(&path) {
                continue;
            }
            let is_as_before = self.replaceable.get(&path).is_some_and(|before| seen(&path) == *before);
            if let Some(reservation) = Reservation::take(&path, is_as_before) {
                self.written.push(path);
                return reservation;
            }
        }
    }
}

fn seen(path: &Path) -> Option<Seen> {
    let about = path.symlink_metadata().ok()?;
    Some((about.modified().ok()?, about.len()))
}

impl Reservation {
    /// Reserves a file, a new one or one that may be replaced; `None` if it belongs to another program. The
    /// writer reports other errors.
    fn take(path: &Path, may_be_replaced: bool) -> Option<Self> {
        let mut options = File::options();
        options.write(true);
        let created = options.clone().create_new(true).open(path);
        let is_new = created.is_ok();
        let file = match created {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                if !may_be_replaced {
                    return None;
                }
                // Opening a named pipe would wait for its reader.
                if path.is_file() { options.open(path).ok() } else { None }
            }
            created => created.ok(),
        };
        // Some file systems have no locks.
        let is_locked = |file: &File| matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        if file.as_ref().is_some_and(is_locked) {
            return None;
        }
        Some(Self { path: path.into(), is_new, _file: file })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.is_new && self.path.metadata().is_ok_and(|about| about.is_file() && about.len() == 0) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Clips {
    /// Prepares clips. Where packets cannot be copied, a warning has the reason, and clips are encoded.
    ///
    /// # Errors
    /// As [`check`]; `File` if the folder cannot be written to; `Stopped` if `control` was.
    pub fn open(mut wanted: ClipSpec, control: &Control) -> Result<Self> {
        check(&wanted.pattern)?;
        let probe = wanted.pattern.replace("{name}", "probe").replace("{n}", "0");
        lockon_core::files::check_writable(Path::new(&probe))?;
        if let Some(file) = &wanted.file
            && let Err(reason) =
                copying::check(file, Path::new(&wanted.pattern), wanted.sound.is_some(), control)
        {
            control.check()?;
            tracing::warn!("--cut: clips are encoded, not copied from {}: {reason}", text::path(file));
            wanted.file = None;
        }
        let names = Arc::new(Mutex::new(Names::of(&wanted.pattern)));
        Ok(Self {
            wanted,
            names,
            watch: Appearances::default(),
            gap_ns: 0,
            interval_ns: USUAL_INTERVAL_NS,
            format: None,
            run: None,
            control: control.clone(),
            copier: None,
            kept: VecDeque::new(),
            kept_bytes: 0,
            open: Vec::new(),
            ending: VecDeque::new(),
            left_out: 0,
            has_told_memory: false,
            failed: None,
        })
    }

    fn time(&self, record: &FrameRecord) -> u64 {
        record.pts_ns.unwrap_or(record.frame.saturating_mul(self.interval_ns))
    }

    /// Copies the packets of an appearance that has ended.
    fn copy(&mut self, appearance: &Appearance) -> Result<()> {
        let Some(file) = self.wanted.file.clone() else { return Ok(()) };
        let padding = self.wanted.padding.ns;
        let start = appearance.start.pts_ns.unwrap_or(appearance.start.frame * self.interval_ns);
        let end = appearance.end.pts_ns.unwrap_or(appearance.end.frame * self.interval_ns);
        let cut = Cut {
            label: appearance.label(),
            from_ns: start.saturating_sub(padding),
            to_ns: end.saturating_add(padding),
        };
        if self.copier.is_none() {
            let (cuts, waiting) = crossbeam_channel::unbounded::<Cut>();
            let (names, has_sound) = (self.names.clone(), self.wanted.sound.is_some());
            let work = move || {
                let mut outcome = Ok(());
                for Cut { label, from_ns, to_ns } in waiting {
                    // Reserved here: clips that wait keep no file open.
                    let reservation = lock(&names).reserve(&label);
                    let (file, to) = (file.clone(), reservation.path.clone());
                    let job = copying::CopyJob { file, to, from_ns, to_ns, has_sound };
                    if let Err(error) = copying::copy(&job) {
                        tracing::error!("{error}");
                        outcome = outcome.and(Err(error));
                    }
                }
                outcome
            };
            let thread = std::thread::Builder::new().name("lockon-clips".to_owned()).spawn(work);
            let thread = thread.map_err(|error| self.failure(&error.to_string()))?;
            self.copier = Some(Copier { cuts, thread });
        }
        let copier = self.copier.as_ref().expect("it was started above");
        copier.cuts.send(cut).map_err(|_| self.failure("the thread that copies has ended"))
    }

    fn failure(&self, reason: &str) -> Error {
        Error::Output { name: self.wanted.pattern.clone(), reason: reason.to_owned() }
    }

    /// Keeps a frame for clips that begin or continue later.
    fn keep(&mut self, delivery: &Delivery<'_>, ns: u64) -> Result<()> {
        let frame = delivery.frame;
        let planes = (0..frame.format.pixels.planes()).map(|i| frame.picture.plane(i).to_plane()).collect();
        // A picture that could not be fetched from a device would be black.
        frame.picture.surface().map_or(Ok(()), Surface::check)?;
        let frame = Frame { picture: Arc::new(Copy(planes)), ..frame.clone() };
        self.kept_bytes += frame.format.bytes();
        let (record, hiding) = (delivery.record.clone(), &mut self.wanted.hiding);
        let hidden = if hiding.is_idle() { Vec::new() } else { hiding.step(&record, frame.format.size) };
        self.kept.push_back(Kept { ns, frame, record, hidden });
        let needed = ns.saturating_sub(self.wanted.padding.ns.max(self.gap_ns));
        while let Some(oldest) = self.kept.front() {
            let is_too_much = self.kept_bytes > MOST_KEPT && self.kept.len() > 1;
            if oldest.ns >= needed && !is_too_much {
                break;
            }
            if oldest.ns >= needed && !std::mem::replace(&mut self.has_told_memory, true) {
                tracing::warn!(
                    "--cut: clips have less padding than asked for: 1 GiB of frames is kept at most"
                );
            }
            self.kept_bytes -= oldest.frame.format.bytes();
            self.kept.pop_front();
        }
        Ok(())
    }

    /// Begins the clips of appearances that have begun, and moves the ends of the others.
    fn follow(&mut self, now_ns: u64, ended: &[Appearance]) {
        let padding = self.wanted.padding.ns;
        let is_same =
            |a: &Appearance, b: &Appearance| a.track == b.track && a.name == b.name && a.start == b.start;
        for clip in &mut self.open {
            clip.is_over |= ended.iter().any(|appearance| is_same(appearance, &clip.appearance));
        }
        let going_on: Vec<_> = self.watch.until().map(|(one, until)| (one.clone(), until)).collect();
        for (appearance, until_ns) in going_on {
            let limit_ns = until_ns.saturating_add(padding);
            if let Some(clip) = self.open.iter_mut().find(|clip| is_same(&clip.appearance, &appearance)) {
                clip.limit_ns = limit_ns;
                continue;
            }
            // Only appearances that begin in this frame, or that found no room, have no clip yet.
            let start_ns = appearance.start.pts_ns.unwrap_or(appearance.start.frame * self.interval_ns);
            if start_ns != now_ns || appearance.frames != 1 {
                continue;
            }
            if self.open.len() >= MOST_AT_ONCE {
                self.left_out += 1;
                tracing::warn!(
                    "--cut: no clip of {}: {MOST_AT_ONCE} are encoded already",
                    text::in_one_line(&appearance.label())
                );
                continue;
            }
            let from_ns = start_ns.saturating_sub(padding);
            let first = self.kept.iter().find(|kept| kept.ns >= from_ns).map(|kept| kept.frame.meta.index);
            let (sink, reservation) = match self.start(&appearance) {
                Ok(begun) => begun,
                Err(error) => {
                    self.fail(error);
                    continue;
                }
            };
            let next = first.unwrap_or(appearance.start.frame);
            self.open.push(Clip { appearance, limit_ns, next, is_over: false, sink, reservation });
        }
    }

    /// Begins the file of a clip.
    fn start(&mut self, appearance: &Appearance) -> Result<(VideoSink, Reservation)> {
        let reservation = lock(&self.names).reserve(&appearance.label());
        let sink = VideoSink::file(&reservation.path, View::Overlay, self.wanted.sound.clone())?;
        let mut sink = sink.from_zero().plain();
        sink.belong_to(&self.control);
        if let (Some(run), Some(format)) = (&self.run, &self.format) {
            sink.begin(run, format)?;
        }
        Ok((sink, reservation))
    }

    /// Reports the error of a clip. The first one becomes the run's error.
    fn fail(&mut self, error: Error) {
        tracing::error!("{error}");
        self.failed.get_or_insert(error);
    }

    /// Passes frames to their clips, and ends clips that are over or have failed.
    fn hand_over(&mut self, now_ns: u64) {
        let mut open = Vec::with_capacity(self.open.len());
        for mut clip in std::mem::take(&mut self.open) {
            let written = clip.catch_up(&self.kept);
            let is_over = written.is_err() || clip.is_over && now_ns > clip.limit_ns;
            if let Err(error) = written {
                self.fail(error);
            }
            if is_over {
                self.end(clip);
            } else {
                open.push(clip);
            }
        }
        self.open = open;
    }

    /// Completes the file of a clip, on a thread: an encoder takes a while for its last frames.
    fn end(&mut self, clip: Clip) {
        let Clip { mut sink, reservation, .. } = clip;
        let complete = move || {
            let finished = sink.finish(&Summary::default());
            drop(reservation);
            finished
        };
        match std::thread::Builder::new().name("lockon-clip".to_owned()).spawn(complete) {
            Ok(thread) => self.ending.push_back(thread),
            Err(error) => self.fail(self.failure(&error.to_string())),
        }
        while self.ending.len() > MOST_ENDING {
            self.join_oldest();
        }
    }

    fn join_oldest(&mut self) {
        let Some(thread) = self.ending.pop_front() else { return };
        let outcome = thread.join().unwrap_or_else(|_| Err(self.failure("an encoder's thread has ended")));
        if let Err(error) = outcome {
            self.fail(error);
        }
    }
}

impl Clip {
    /// Passes the kept frames to the clip that are new to it.
    fn catch_up(&mut self, kept: &VecDeque<Kept>) -> Result<()> {
        let next = self.next;
        let new = kept.iter().filter(|kept| kept.frame.meta.index >= next);
        for Kept { frame, record, hidden, .. } in new.take_while(|kept| kept.ns <= self.limit_ns) {
            self.next = frame.meta.index + 1;
            self.sink.deliver_hiding(&Delivery { frame, record, mask: None }, hidden.clone())?;
        }
        Ok(())
    }
}

impl Sink for Clips {
    fn name(&self) -> &str {
        &self.wanted.pattern
    }

    fn belong_to(&mut self, run: &Control) {
        self.control = run.clone();
    }

    fn files(&self) -> Vec<PathBuf> {
        lock(&self.names).written.clone()
    }

    fn begin(&mut self, run: &RunRecord, format: &VideoFormat) -> Result<()> {
        self.watch = Appearances::of(run);
        self.gap_ns = run.gap.ns;
        if run.frame_rate > 0.0 {
            self.interval_ns = (1e9 / run.frame_rate) as u64;
        }
        (self.run, self.format) = (Some(run.clone()), Some(format.clone()));
        Ok(())
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        let now_ns = self.time(delivery.record);
        let mut ended = Vec::new();
        self.watch.step(delivery.record, |appearance| ended.push(appearance));
        if self.wanted.file.is_some() {
            return ended.iter().try_for_each(|appearance| self.copy(appearance));
        }
        if self.format.as_ref() != Some(&delivery.frame.format) {
            self.format = Some(delivery.frame.format.as_ref().clone());
        }
        self.keep(delivery, now_ns)?;
        self.follow(now_ns, &ended);
        self.hand_over(now_ns);
        Ok(())
    }

    fn finish(&mut self, _: &Summary) -> Result<()> {
        let mut ended = Vec::new();
        self.watch.end(|appearance| ended.push(appearance));
        let mut outcome = if self.wanted.file.is_some() {
            ended.iter().try_for_each(|appearance| self.copy(appearance))
        } else {
            self.open.iter_mut().for_each(|clip| clip.is_over = true);
            self.hand_over(u64::MAX);
            Ok(())
        };
        if let Some(Copier { cuts, thread }) = self.copier.take() {
            drop(cuts);
            let copied =
                thread.join().unwrap_or_else(|_| Err(self.failure("the thread that copies has failed")));
            outcome = outcome.and(copied);
        }
        while !self.ending.is_empty() {
            self.join_oldest();
        }
        self.kept.clear();
        outcome.and(self.failed.take().map_or(Ok(()), Err))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::tests::{contrasts, decode, format, run_record, stripes, track_in};
    use lockon_core::frame::{Rect, Size};
    use lockon_core::overlay::Way;
    use lockon_core::results::{Track, TrackState};

    /// Clips of 160x120 in that folder, encoded, without padding.
    fn clips(folder: &Path, hiding: Hiding) -> Clips {
        crate::launch::init().unwrap();
        let pattern = folder.join("{name}-{n}.mkv").to_str().unwrap().to_owned();
        let padding = TimeSpan::default();
        let mut clips =
            Clips::open(ClipSpec { pattern, padding, file: None, sound: None, hiding }, &Control::new())
                .unwrap();
        clips.begin(&run_record(), &format("I420", 160, 120, (25, 1))).unwrap();
        clips
    }

    fn named(id: u32, name: &str) -> Track {
        Track { id, name: Some(name.into()), x: 1.0, y: 1.0, w: 9.0, h: 9.0, ..Track::default() }
    }

    #[test]
    fn a_clip_that_begins_while_a_track_is_uncertain_hides_its_last_sure_box() {
        let dir = tempfile::tempdir().unwrap();
        let hiding = Hiding::new(vec![("one".parse().unwrap(), Way::Pixelate)]);
        let mut clips = clips(dir.path(), hiding);
        let format = format("I420", 160, 120, (25, 1));
        for index in 0..15 {
            let (state, place) = match index {
                0..5 => (TrackState::Tracked, [32.0, 32.0]),
                5..12 => (TrackState::Uncertain, [110.0, 70.0]),
                _ => (TrackState::Lost, [110.0, 70.0]),
            };
            let mut record = track_in(index, state, place);
            if index >= 10 {
                record.tracks.push(named(2, "two"));
            }
            let record = Arc::new(record);
            let delivery = Delivery { frame: &stripes(index, &format), record: &record, mask: None };
            clips.deliver(&delivery).unwrap();
        }
        clips.finish(&Summary::default()).unwrap();
        let sure = contrasts(&dir.path().join("two-1.mkv"), Rect::new(36, 36, 24, 24));
        assert!(sure.len() == 5 && sure.iter().all(|&contrast| contrast < 60), "{sure:?}");
        let open = contrasts(&dir.path().join("two-1.mkv"), Rect::new(4, 90, 24, 24));
        assert!(open.iter().all(|&contrast| contrast > 100), "{open:?}");
    }

    /// Makes clips of two tracks, delivers frames of noise, and returns how many frames the first clip has.
    fn frames_of_the_first_of_two_clips(folder: &Path, frames: usize) -> usize {
        let mut clips = clips(folder, Hiding::default());
        let format = format("I420", 160, 120, (25, 1));
        let mut seed = 17_u32;
        for index in 0..frames {
            let mut noise = |size: Size| {
                let bytes = (0..size.area()).map(|_| {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (seed >> 24) as u8
                });
                Plane::from_vec(bytes.collect(), size)
            };
            let planes = (0..3).map(|i| noise(format.pixels.plane_size(i, format.size))).collect();
            let frame = Frame { picture: Arc::new(Copy(planes)), ..stripes(index, &format) };
            let tracks = vec![named(2, "b"), named(1, "a")];
            let (number, pts_ns) = (index as u64, frame.meta.pts_ns);
            let record = Arc::new(FrameRecord { frame: number, pts_ns, tracks, ..FrameRecord::default() });
            clips.deliver(&Delivery { frame: &frame, record: &record, mask: None }).unwrap();
        }
        let error = clips.finish(&Summary::default()).unwrap_err().to_string();
        assert!(error.contains("b-1.mkv"), "{error}");
        decode(&folder.join("a-1.mkv")).len()
    }

    #[test]
    fn a_clip_whose_file_cannot_be_opened_leaves_the_others_whole() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("b-1.mkv")).unwrap();
        assert_eq!(frames_of_the_first_of_two_clips(dir.path(), 7), 7);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_clip_that_fails_while_it_is_written_leaves_the_others_whole() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/full", dir.path().join("b-1.mkv")).unwrap();
        assert_eq!(frames_of_the_first_of_two_clips(dir.path(), 60), 60);
    }

    #[test]
    fn two_runs_of_one_pattern_write_different_files_and_replace_what_was_there_once() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("a-1.mkv"), "old").unwrap();
        let mut both = [0; 2].map(|_| clips(dir.path(), Hiding::default()));
        let format = format("I420", 160, 120, (25, 1));
        for index in 0..7 {
            let record = FrameRecord {
                frame: index as u64,
                pts_ns: stripes(index, &format).meta.pts_ns,
                tracks: vec![named(1, "a")],
                ..FrameRecord::default()
            };
            let record = Arc::new(record);
            for clips in &mut both {
                let delivery = Delivery { frame: &stripes(index, &format), record: &record, mask: None };
                clips.deliver(&delivery).unwrap();
            }
        }
        for clips in &mut both {
            clips.finish(&Summary::default()).unwrap();
        }
        assert_eq!(both.map(|clips| clips.files()), [vec![at("a-1.mkv")], vec![at("a-2.mkv")]]);
        assert_eq!(["a-1.mkv", "a-2.mkv"].map(|name| decode(&at(name)).len()), [7, 7]);
    }

    #[test]
    fn a_name_is_reserved_by_one_run_alone_and_an_unused_one_is_free_again() {
        let dir = tempfile::tempdir().unwrap();
        let pattern = dir.path().join("{n}.mkv").to_str().unwrap().to_owned();
        let runs = [0; 4].map(|_| Names::of(&pattern));
        let places: Vec<_> = std::thread::scope(|scope| {
            let reserve = |mut names: Names| move || (0..20).map(|_| names.reserve("a")).collect::<Vec<_>>();
            let threads = runs.map(|names| scope.spawn(reserve(names)));
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let paths: std::collections::BTreeSet<_> =
            places.iter().map(|reservation| &reservation.path).collect();
        assert_eq!(paths.len(), 80);
        let mut names = Names::of(&pattern);
        // A file that has changed since the run began belongs to another program.
        std::fs::write(&places[0].path, "whole").unwrap();
        drop(places);
        assert_eq!(existing(&pattern).len(), 1);
        assert!((0..90).all(|_| names.reserve("a").path.metadata().unwrap().len() == 0));
    }

    #[test]
    fn a_pattern_has_one_number_in_the_files_name_and_a_known_extension() {
        for good in
            ["{n}.mp4", "out/{name}-{n}.mkv", "{n}-{name}.webm", "{date}/{stem}-{n}.mp4", "{1}-{n}.mp4"]
        {
            check(good).unwrap();
        }
        for bad in ["a.mp4", "{name}.mp4", "{n}/a.mp4", "{n}-{n}.mp4", "{name}/{n}.mp4", "{n}.txt", "{n}"] {
            assert!(check(bad).is_err(), "{bad}");
        }
        let unknown = check("{bogus}-{n}.mkv").unwrap_err().to_string();
        assert!(unknown.contains("{bogus} stands for nothing: there are {name} and {n}"), "{unknown}");
    }

    #[test]
    fn files_of_a_pattern_are_found_and_no_others() {
        for (pattern, name, expected) in [
            ("{name}-{n}.mp4", "car-1.mp4", true),
            ("{name}-{n}.mp4", "a-b-12.mp4", true),
            ("{name}-{n}.mp4", "-1.mp4", false),
            ("{name}-{n}.mp4", "car-x.mp4", false),
            ("{name}-{n}.mp4", "car-1.mkv", false),
            ("clip{n}.mp4", "clip03.mp4", true),
            ("clip{n}.mp4", "clip.mp4", false),
            ("{x}{n}.mp4", "{x}1.mp4", true),
            ("{name}{n}.mp4", "tr\u{e4}ck31.mp4", true),
        ] {
            assert_eq!(is_of(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn names_that_would_leave_the_folder_or_hide_are_harmless() {
        for (name, expected) in
            [("a/../b", "a_.._b"), ("..", "_.."), ("", "_"), ("a\nb", "a_b"), ("ok", "ok")]
        {
            assert_eq!(harmless(name), expected);
        }
    }
}
