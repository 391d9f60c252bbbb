//! The report: one HTML page that shows a run, for people. It needs nothing from elsewhere, neither network nor script.
//!
//! What it shows is kept while the run goes on, in bounded memory: values of several frames are merged when there are too many for
//! the width of a page, pictures are few and small. It is written at once, at the end of the run, also one that was interrupted
//! or failed, and takes the place of an older report only when it is whole. The page is well-formed XML too, so that other tools can take it apart.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::Path;

use crate::error::{Error, Result};
use crate::files;
use crate::frame::{Chroma, Frame, Rect, Size, USUAL_INTERVAL_NS, VideoFormat};
use crate::ports::{Delivery, Sink};
use crate::results::{Event, FrameRecord, Percentiles, RunRecord, Summary, TrackState};
use crate::still;

/// Columns of a chart, one in 1.5 of its pixels: when a run has more, two become one.
const MOST_COLUMNS: u64 = 600;
/// Tracks and templates that are shown; of the others there is a count.
const MOST_SERIES: usize = 24;
/// Thumbnails from the start of a run, and as many from its end.
const MOST_THUMBNAILS: usize = 12;
/// A state that comes and goes gets no more of them than one in so many seconds.
const BETWEEN_THUMBNAILS: f64 = 0.5;
/// Things that happened to the source.
const MOST_EVENTS: usize = 40;
/// Longest side of the key frame and of a thumbnail, in pixels.
const KEY_SIDE: usize = 960;
const THUMBNAIL_SIDE: usize = 240;
/// A thumbnail shows so many times the box.
const AROUND: f64 = 3.0;
/// Letters of a name over the key frame; the rest of it is where the pointer rests, and below. More than 70 would be wider than
/// the frame.
const MOST_LETTERS: usize = 24;
/// Colours of paths, readable over pictures with a dark edge.
const COLOURS: [&str; 8] =
    ["#4cc9f0", "#ffd23f", "#ff6b9d", "#7ae582", "#c77dff", "#ff9f45", "#f1f1f1", "#6f9bff"];

/// A new report at `path`, whose name ends in `.html`. A file of that name is overwritten when the run ends.
///
/// # Errors
/// `Value` if it ends otherwise, `File` if it cannot be written.
pub fn open(path: &str) -> Result<Box<dyn Sink>> {
    check_name(path)?;
    files::check_writable(Path::new(path))?;
    Ok(Box::new(Report::new(path)))
}

/// Refuses a name that is no web page's.
///
/// # Errors
/// `Value`.
pub fn check_name(path: &str) -> Result<()> {
    let ends_in = |ending: &str| path.to_ascii_lowercase().ends_with(ending);
    if ends_in(".html") || ends_in(".htm") {
        return Ok(());
    }
    Err(Error::value("report", path, "expected a name that ends in .html"))
}

struct Report {
    path: String,
    run: Option<RunRecord>,
    frames: u64,
    /// Time of the first frame and of the last, in seconds.
    first: f64,
    last: f64,
    /// Frames of one column of the charts.
    stride: u64,
    series: Vec<Series>,
    /// The highest number of a track that is not shown, and how many there are.
    unshown: (u32, u64),
    latency: Histogram,
    key: Option<Key>,
    thumbnails: Vec<Thumbnail>,
    late_thumbnails: VecDeque<Thumbnail>,
    unshown_thumbnails: u64,
    events: Vec<String>,
    unshown_events: u64,
}

/// What is drawn of one track, or of the best matches of one template.
struct Series {
    kind: Kind,
    name: String,
    columns: Vec<Column>,
    /// Frames in each of [`TrackState::ALL`].
    states: [u64; 4],
    state: Option<TrackState>,
    /// When there was a thumbnail of a loss, and of what was found again.
    lost_at: f64,
    found_at: f64,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Track(u32),
    Match,
}

/// Some frames that follow each other.
struct Column {
    number: u64,
    time: f64,
    /// Where it was last, if it was seen.
    place: Option<(f64, f64)>,
    least: f64,
    most: f64,
    sum: f64,
    frames: u32,
    states: [u32; 4],
}

/// The frame on which paths are drawn.
struct Key {
    picture: Picture,
    frame: u64,
    size: Size,
    has_results: bool,
}

struct Thumbnail {
    title: String,
    state: TrackState,
    /// What it shows of the frame, and the track's box.
    crop: Rect,
    bounds: [f64; 4],
    picture: Picture,
}

/// A JPEG file.
struct Picture(Vec<u8>);

impl Report {
    fn new(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            run: None,
            frames: 0,
            first: 0.0,
            last: 0.0,
            stride: 1,
            series: Vec::new(),
            unshown: (0, 0),
            latency: Histogram::default(),
            key: None,
            thumbnails: Vec::new(),
            late_thumbnails: VecDeque::new(),
            unshown_thumbnails: 0,
            events: Vec::new(),
            unshown_events: 0,
        }
    }

    /// When a frame is shown, in seconds.
    fn time(&self, record: &FrameRecord) -> f64 {
        let rate = self.run.as_ref().map_or(0.0, |run| run.frame_rate);
        let interval = if rate > 0.0 { 1.0 / rate } else { USUAL_INTERVAL_NS as f64 / 1e9 };
        record.pts_ns.map_or(record.frame as f64 * interval, |pts| pts as f64 * 1e-9)
    }

    /// The series of that kind and name, begun if there is room.
    fn series(&mut self, kind: Kind, name: &str) -> Option<&mut Series> {
        let is_it =
            |series: &Series| series.kind == kind && (matches!(kind, Kind::Track(_)) || series.name == name);
        let index = self.series.iter().position(is_it).or_else(|| {
            (self.series.len() < MOST_SERIES).then(|| {
                self.series.push(Series::new(kind, name.to_owned()));
                self.series.len() - 1
            })
        });
        if index.is_none()
            && let Kind::Track(id) = kind
            && id > self.unshown.0
        {
            self.unshown = (id, self.unshown.1 + 1);
        }
        index.map(|index| &mut self.series[index])
    }

    /// Makes the charts coarser if a frame lies beyond them.
    fn make_room(&mut self, frame: u64) {
        while frame / self.stride >= MOST_COLUMNS {
            self.stride *= 2;
            self.series.iter_mut().for_each(Series::halve);
        }
    }

    fn keep_thumbnail(&mut self, thumbnail: Thumbnail) {
        if self.thumbnails.len() < MOST_THUMBNAILS {
            return self.thumbnails.push(thumbnail);
        }
        if self.late_thumbnails.len() == MOST_THUMBNAILS {
            self.late_thumbnails.pop_front();
            self.unshown_thumbnails += 1;
        }
        self.late_thumbnails.push_back(thumbnail);
    }

    fn picture(&self, frame: &Frame, crop: Rect, side: usize) -> Result<Picture> {
        let (rgb, size) = shrunk(frame, crop, side);
        still::jpeg(&rgb, size).map(Picture).map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &dyn std::error::Error) -> Error {
        Error::Output { name: self.path.clone(), reason: error.to_string() }
    }
}

impl Sink for Report {
    fn name(&self) -> &str {
        &self.path
    }

    fn begin(&mut self, run: &RunRecord, _: &VideoFormat) -> Result<()> {
        self.run = Some(run.clone());
        Ok(())
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        let (frame, record) = (delivery.frame, delivery.record);
        let time = self.time(record);
        if self.frames == 0 {
            self.first = time;
        }
        (self.frames, self.last) = (self.frames + 1, time);
        self.latency.count(record.latency_us);
        self.make_room(record.frame);
        let number = record.frame / self.stride;

        let has_results = !(record.tracks.is_empty() && record.matches.is_empty());
        if self.key.as_ref().is_none_or(|key| has_results && !key.has_results) {
            let size = frame.format.size;
            let picture = self.picture(frame, Rect::whole(size), KEY_SIDE)?;
            self.key = Some(Key { picture, frame: record.frame, size, has_results });
        }
        // The best of each template; where matches are followed their tracks say more.
        if !self.run.as_ref().is_some_and(|run| run.track_matches) {
            let mut before = None;
            for m in &record.matches {
                if before.replace(&m.template) == Some(&m.template) {
                    continue;
                }
                if let Some(series) = self.series(Kind::Match, &m.template) {
                    series.add(number, time, TrackState::Tracked, m.bounds(), m.score);
                }
            }
        }
        for track in &record.tracks {
            let name = match &track.template {
                Some(template) => format!("#{} {template}", track.id),
                None => format!("#{}", track.id),
            };
            let Some(series) = self.series(Kind::Track(track.id), &name) else { continue };
            let before = series.add(number, time, track.state, track.bounds(), track.score);
            let is_lost = track.state == TrackState::Lost;
            let was_lost = before == Some(TrackState::Lost);
            let last = if is_lost { &mut series.lost_at } else { &mut series.found_at };
            if is_lost == was_lost || before.is_none() || time - *last < BETWEEN_THUMBNAILS {
                continue;
            }
            *last = time;
            let crop = crop(track.bounds(), frame.format.size);
            let state = if is_lost { TrackState::Lost } else { TrackState::Reacquired };
            let word = if is_lost { "lost" } else { "found again" };
            let title =
                format!("{name} {word} at {time:.2} s, frame {}, score {:.2}", record.frame, track.score);
            let picture = self.picture(frame, crop, THUMBNAIL_SIDE)?;
            self.keep_thumbnail(Thumbnail { title, state, crop, bounds: track.bounds(), picture });
        }
        Ok(())
    }

    fn note(&mut self, event: &Event) -> Result<()> {
        if self.events.len() == MOST_EVENTS {
            self.unshown_events += 1;
            return Ok(());
        }
        self.events.push(match event {
            Event::Stalled { frame, .. } => {
                format!("frame {frame}: nothing came from the source for a while")
            }
            Event::Resumed { frame, waited_us } => {
                format!("frame {frame}: the source went on after {}", duration(*waited_us))
            }
            Event::Gap { frame, away_us, reason } => {
                format!("frame {frame}: the source was gone for {}: {reason}", duration(*away_us))
            }
            Event::Caps { frame, width, height, format, .. } => {
                format!("frame {frame}: frames are {width}x{height} {format} from here on")
            }
        });
        Ok(())
    }

    fn finish(&mut self, summary: &Summary) -> Result<()> {
        // A run that never began leaves the report of the one before.
        let Some(run) = &self.run else { return Ok(()) };
        let page = Page { report: self, run, summary }.text();
        files::replace(Path::new(&self.path), page.as_bytes()).map_err(|error| self.failure(&error))
    }
}

impl Series {
    fn new(kind: Kind, name: String) -> Self {
        Self {
            kind,
            name,
            columns: Vec::new(),
            states: [0; 4],
            state: None,
            lost_at: f64::MIN,
            found_at: f64::MIN,
        }
    }

    /// Counts a frame and returns the state in the one before.
    fn add(
        &mut self,
        number: u64,
        time: f64,
        state: TrackState,
        at: [f64; 4],
        score: f64,
    ) -> Option<TrackState> {
        let index = index(state);
        self.states[index] += 1;
        if self.columns.last().is_none_or(|column| column.number != number) {
            self.columns.push(Column {
                number,
                time,
                place: None,
                least: score,
                most: score,
                sum: 0.0,
                frames: 0,
                states: [0; 4],
            });
        }
        let column = self.columns.last_mut().expect("pushed if there was none");
        let [x, y, w, h] = at;
        if state != TrackState::Lost {
            column.place = Some((x + w / 2.0, y + h / 2.0));
        }
        (column.least, column.most) = (column.least.min(score), column.most.max(score));
        column.sum += score;
        column.frames += 1;
        column.states[index] += 1;
        self.state.replace(state)
    }

    /// Makes one column of each two.
    fn halve(&mut self) {
        let mut halved: Vec<Column> = Vec::with_capacity(self.columns.len());
        for mut column in self.columns.drain(..) {
            column.number /= 2;
            match halved.last_mut() {
                Some(before) if before.number == column.number => {
                    before.place = column.place.or(before.place);
                    before.least = before.least.min(column.least);
                    before.most = before.most.max(column.most);
                    before.sum += column.sum;
                    before.frames += column.frames;
                    for (count, more) in before.states.iter_mut().zip(column.states) {
                        *count += more;
                    }
                }
                _ => halved.push(column),
            }
        }
        self.columns = halved;
    }

    /// Columns without a gap between them, and without one in which nothing was seen if `is_seen`.
    fn pieces(&self, is_seen: bool) -> Vec<Vec<&Column>> {
        let mut pieces: Vec<Vec<&Column>> = Vec::new();
        let mut before = None;
        for column in self.columns.iter().filter(|column| !is_seen || column.place.is_some()) {
            match pieces.last_mut() {
                Some(piece) if before == Some(column.number - 1) => piece.push(column),
                _ => pieces.push(vec![column]),
            }
            before = Some(column.number);
        }
        pieces
    }
}

impl Column {
    fn mean(&self) -> f64 {
        self.sum / f64::from(self.frames)
    }

    /// The state that a reader must not miss: lost, then found again, then uncertain.
    fn state(&self) -> TrackState {
        let worst = [TrackState::Lost, TrackState::Reacquired, TrackState::Uncertain];
        worst.into_iter().find(|state| self.states[index(*state)] > 0).unwrap_or_default()
    }
}

fn index(state: TrackState) -> usize {
    TrackState::ALL.iter().position(|other| *other == state).expect("all states are listed")
}

/// What a thumbnail shows: the box and its surroundings, as far as they lie in the frame.
fn crop([x, y, w, h]: [f64; 4], frame: Size) -> Rect {
    let side = (AROUND * w.max(h)).max(48.0);
    let range = |middle: f64, length: usize| {
        let side = side.min(length as f64);
        let start = (middle - side / 2.0).clamp(0.0, length as f64 - side);
        (start as usize, (side as usize).max(1))
    };
    let ((x, w), (y, h)) = (range(x + w / 2.0, frame.width), range(y + h / 2.0, frame.height));
    Rect::new(x, y, w, h)
}

/// A part of a frame as RGB, made smaller by a whole number so that no side is longer than `side`.
fn shrunk(frame: &Frame, crop: Rect, side: usize) -> (Vec<u8>, Size) {
    let format = &frame.format;
    let step = crop.w.max(crop.h).div_ceil(side).max(1);
    let size = Size::new((crop.w / step).max(1), (crop.h / step).max(1));
    let convert = Conversion::of(format);
    let luma = frame.luma();
    let sample = |plane: usize, x: usize, y: usize| frame.picture.plane(plane).row(y)[x];
    let chroma = [0, 1].map(|component| {
        let samples = format.pixels.chroma_samples(component);
        move |x: usize, y: usize| {
            let (x, y) = (x >> format.pixels.x_shift, y >> format.pixels.y_shift);
            samples.map_or(128, |(plane, first, step)| sample(plane, first + step * x, y))
        }
    });
    let mut rgb = Vec::with_capacity(3 * size.area());
    for row in 0..size.height {
        for column in 0..size.width {
            let (x, y) = (crop.x + column * step, crop.y + row * step);
            let (right, bottom) = ((x + step).min(crop.x + crop.w), (y + step).min(crop.y + crop.h));
            let rows = (y..bottom).map(|y| luma.row(y)[x..right].iter().map(|&v| u32::from(v)).sum::<u32>());
            let mean = rows.sum::<u32>() / ((right - x) * (bottom - y)) as u32;
            let (x, y) = (usize::midpoint(x, right), usize::midpoint(y, bottom));
            let [cb, cr] = chroma.each_ref().map(|sample| sample(x, y));
            rgb.extend(convert.rgb(mean as u8, cb, cr));
        }
    }
    (rgb, size)
}

/// From a video's colours to those of a screen.
struct Conversion {
    is_full_range: bool,
    /// Weights of red and blue in luma.
    red: f64,
    blue: f64,
}

impl Conversion {
    /// As GStreamer's colorimetry says (`RANGE:MATRIX:..`, or a name), or as it takes what says nothing.
    fn of(format: &VideoFormat) -> Self {
        let said = format.colorimetry.as_deref().unwrap_or_default();
        let is_grey = format.pixels.chroma == Chroma::None;
        let is_full_range = said.starts_with("1:") || said.is_empty() && is_grey;
        let is_hd = match said {
            "" => format.size.height > 576,
            said => said == "bt709" || said.split(':').nth(1) == Some("3"),
        };
        let (red, blue) = if is_hd { (0.2126, 0.0722) } else { (0.299, 0.114) };
        Self { is_full_range, red, blue }
    }

    fn rgb(&self, y: u8, cb: u8, cr: u8) -> [u8; 3] {
        let (y, cb, cr) = (f64::from(y), f64::from(cb) - 128.0, f64::from(cr) - 128.0);
        let (y, cb, cr) = if self.is_full_range {
            (y, cb / 255.0, cr / 255.0)
        } else {
            ((y - 16.0) * 255.0 / 219.0, cb / 224.0, cr / 224.0)
        };
        let red = y + 255.0 * 2.0 * (1.0 - self.red) * cr;
        let blue = y + 255.0 * 2.0 * (1.0 - self.blue) * cb;
        let green = (y - self.red * red - self.blue * blue) / (1.0 - self.red - self.blue);
        [red, green, blue].map(|v| libm::round(v).clamp(0.0, 255.0) as u8)
    }
}

/// Durations in steps of a quarter of an octave, in constant memory.
#[derive(Default)]
struct Histogram {
    counts: Vec<u64>,
}

impl Histogram {
    fn count(&mut self, microseconds: u64) {
        let value = microseconds.max(4);
        let octave = value.ilog2();
        let bin = (4 * octave as usize) + ((value >> (octave - 2)) & 3) as usize;
        if self.counts.len() <= bin {
            self.counts.resize(bin + 1, 0);
        }
        self.counts[bin] += 1;
    }

    /// Where a bin begins, in microseconds.
    fn start(bin: usize) -> u64 {
        (4 + bin as u64 % 4) << (bin / 4 - 2)
    }
}

/// The text of the page.
struct Page<'a> {
    report: &'a Report,
    run: &'a RunRecord,
    summary: &'a Summary,
}

/// Width of all charts, and the room on their left and right.
const WIDTH: f64 = 900.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 8.0;

const STYLE: &str = "
:root { color-scheme: light dark; --ground: #fbfbfa; --ink: #1c1e21; --soft: #666b73; --line: #d9dbde; --card: #fff;
  --tracked: #23914a; --uncertain: #c77700; --reacquired: #0088a8; --lost: #d0312d; --area: #23914a33; --bar: #4a6fa5; }
@media (prefers-color-scheme: dark) { :root { --ground: #15171a; --ink: #e7e9ec; --soft: #a0a6ae; --line: #363a40;
  --card: #1d2024; --tracked: #3fc46f; --uncertain: #ffb020; --reacquired: #2ed0f0; --lost: #ff5c57; --area: #3fc46f33;
  --bar: #86a9dc; } }
body { margin: 0 auto; padding: 1.2rem; max-width: 1200px; background: var(--ground); color: var(--ink);
  font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.35rem; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 1.05rem; margin: 0 0 .5rem; }
p { margin: .3rem 0; } .soft { color: var(--soft); } .warn { color: var(--lost); font-weight: 600; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .9rem; margin-top: 1rem; }
.pair { display: grid; grid-template-columns: 3fr 2fr; gap: 1rem; } .pair section { min-width: 0; }
@media (max-width: 800px) { .pair { grid-template-columns: 1fr; } }
svg { display: block; width: 100%; height: auto; } svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; vertical-align: top; padding: .15rem .6rem .15rem 0;
  overflow-wrap: anywhere; } th { color: var(--soft); font-weight: 400; white-space: nowrap; }
td.number, th.number { text-align: right; } .key { max-height: 70vh; }
.grid line { stroke: var(--line); } .mean { fill: none; stroke: var(--ink); stroke-width: 1.3; } .range { fill: var(--area); }
.bar { fill: var(--bar); } .mark { stroke: var(--lost); stroke-dasharray: 4 3; }
.tracked { fill: var(--tracked); } .uncertain { fill: var(--uncertain); } .reacquired { fill: var(--reacquired); }
.lost { fill: var(--lost); } .edge { fill: none; stroke: #000; stroke-opacity: .65; } .path { fill: none; }
svg text.name { fill: #fff; stroke: #000; stroke-opacity: .8; paint-order: stroke; font-weight: 700; }
.box { fill: none; stroke-width: 2; vector-effect: non-scaling-stroke; } .box.lost { stroke: var(--lost); stroke-dasharray: 6 4; }
.box.reacquired { stroke: var(--reacquired); } .shade { fill: none; stroke: #000; stroke-opacity: .5; stroke-width: 4;
  vector-effect: non-scaling-stroke; }
.thumbnails { display: grid; grid-template-columns: repeat(auto-fill, minmax(170px, 1fr)); gap: .8rem; }
figure { margin: 0; } figure svg { border-radius: 4px; background: #000; aspect-ratio: 1; } figcaption { font-size: .82rem; }
.series { margin-bottom: .8rem; } .swatch { display: inline-block; width: .8em; height: .8em; border-radius: 2px; }
.legend span { margin-right: 1rem; white-space: nowrap; } .legend svg { display: inline-block; width: .8em; height: .8em; }
";

impl Page<'_> {
    fn text(&self) -> String {
        let mut page = String::new();
        self.write(&mut page).expect("a string takes everything");
        page
    }

    fn write(&self, page: &mut String) -> std::fmt::Result {
        let input = escaped(&self.run.input);
        write!(
            page,
            "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>lockon: {input}</title>\n\
             <style>{STYLE}</style>\n</head>\n<body>\n<h1>{input}</h1>\n"
        )?;
        self.write_head(page)?;
        page.push_str("<div class=\"pair\">\n");
        self.write_paths(page)?;
        self.write_run(page)?;
        page.push_str("</div>\n");
        self.write_series(page)?;
        self.write_thumbnails(page)?;
        page.push_str("<div class=\"pair\">\n");
        self.write_latency(page)?;
        self.write_stages(page)?;
        page.push_str("</div>\n");
        self.write_events(page)?;
        page.push_str("</body>\n</html>\n");
        Ok(())
    }

    fn write_head(&self, page: &mut String) -> std::fmt::Result {
        let (report, summary) = (self.report, self.summary);
        let seconds = report.last - report.first;
        write!(page, "<p class=\"soft\">{} frames", summary.frames)?;
        if report.frames > 1 {
            write!(page, " over {seconds:.2} s of video")?;
        }
        writeln!(
            page,
            ", searched at {:.1} frames a second by lockon {}</p>",
            summary.fps, self.run.version
        )?;
        if summary.interrupted {
            page.push_str("<p class=\"warn\">Interrupted before the end of the input.</p>\n");
        }
        if let Some(frame) = summary.device_lost {
            writeln!(
                page,
                "<p class=\"warn\">The device was lost: the CPU did the work from frame {frame} on.</p>"
            )?;
        }
        if summary.dropped > 0 {
            writeln!(page, "<p>{} frames were dropped to keep up with the source.</p>", summary.dropped)?;
        }
        Ok(())
    }

    /// The ways of tracks, or of best matches, over one frame.
    fn write_paths(&self, page: &mut String) -> std::fmt::Result {
        page.push_str("<section>\n<h2>Trajectory</h2>\n");
        let Some(key) = &self.report.key else {
            page.push_str("<p class=\"soft\">There was no frame.</p>\n</section>\n");
            return Ok(());
        };
        let Size { width, height } = key.size;
        // Lines and letters in pixels of the frame, which is shown some 640 pixels wide.
        let unit = width as f64 / 640.0;
        writeln!(
            page,
            "<svg class=\"key\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"trajectories over frame {}\">\
             <image width=\"{width}\" height=\"{height}\" href=\"{}\"/>",
            key.frame,
            key.picture.uri()
        )?;
        let mut labels = String::new();
        for (series, colour) in self.report.series.iter().zip(COLOURS.iter().cycle()) {
            writeln!(page, "<g><title>{}</title>", escaped(&series.name))?;
            let pieces = series.pieces(true);
            for (class, colour, line) in [("edge", "", 4.0), ("path", *colour, 2.0)] {
                let stroke = if colour.is_empty() { String::new() } else { format!(" stroke=\"{colour}\"") };
                for piece in &pieces {
                    let places = piece.iter().filter_map(|column| column.place);
                    let mut points: Vec<_> = places.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
                    // A line of one point shows nothing: with round ends, one back to it is a dot.
                    if points.len() == 1 {
                        points.push(points[0].clone());
                    }
                    writeln!(
                        page,
                        "<polyline class=\"{class}\"{stroke} stroke-width=\"{:.2}\" stroke-linecap=\"round\" \
                         stroke-linejoin=\"round\" points=\"{}\"/>",
                        line * unit,
                        points.join(" ")
                    )?;
                }
            }
            if let Some((x, y)) = series.columns.iter().find_map(|column| column.place) {
                let r = 4.0 * unit;
                writeln!(
                    page,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r:.1}\" fill=\"{colour}\" stroke=\"#000\" stroke-opacity=\".65\" \
                     stroke-width=\"{unit:.1}\"/>"
                )?;
                let label = series.name.split(' ').next().filter(|_| series.kind != Kind::Match);
                let label = shortened(label.unwrap_or(&series.name));
                let x = x.clamp(0.0, width as f64 - 9.0 * unit * label.chars().count() as f64 - 8.0 * unit);
                writeln!(
                    labels,
                    "<text class=\"name\" x=\"{:.1}\" y=\"{:.1}\" style=\"font-size:{:.1}px;fill:{colour};stroke-width:{:.1}\">{}</text>",
                    x.max(0.0) + 6.0 * unit,
                    (y - 6.0 * unit).max(14.0 * unit),
                    13.0 * unit,
                    3.0 * unit,
                    escaped(&label)
                )?;
            }
            page.push_str("</g>\n");
        }
        page.push_str(&labels);
        let what = if self.report.series.iter().any(|series| series.kind != Kind::Match) {
            "the middles of the boxes that were followed"
        } else {
            "the middles of each template's best matches"
        };
        writeln!(
            page,
            "</svg>\n<p class=\"soft\">Over frame {}: {what}; a dot where each begins, gaps where it was not seen.</p>\n</section>",
            key.frame
        )
    }

    /// What was run, on what.
    fn write_run(&self, page: &mut String) -> std::fmt::Result {
        let run = self.run;
        page.push_str("<section>\n<h2>Run</h2>\n<table>\n");
        let mut row =
            |name: &str, value: &str| writeln!(page, "<tr><th>{name}</th><td>{}</td></tr>", escaped(value));
        row("input", &run.input)?;
        let rate = if run.frame_rate > 0.0 {
            format!("{:.2} frames/s", run.frame_rate)
        } else {
            "varying rate".into()
        };
        row("video", &format!("{}x{} {}, {rate}", run.width, run.height, run.format))?;
        row("backend", run.backend)?;
        row("device", &run.device)?;
        for (name, value) in
            [("driver", &run.driver), ("decoder", &run.decoder), ("threshold", &run.threshold)]
        {
            if let Some(value) = value {
                row(name, value)?;
            }
        }
        for template in &run.templates {
            let (w, h, count) = (template.w, template.h, template.members);
            let variants = if count == 1 { "1 variant".into() } else { format!("{count} variants") };
            let digest: String = template.sha256.chars().take(12).collect();
            row("template", &format!("{}: {w}x{h}, {variants}, SHA-256 {digest}\u{2026}", template.name))?;
        }
        if let Some(search) = run.search {
            row("search", search)?;
        }
        for (id, track) in (1..).zip(&run.tracks) {
            row("box", &format!("#{id}: {track}"))?;
        }
        if run.track_matches {
            row("matches", "followed")?;
        }
        row("started", &date(run.started))?;
        row("lockon", run.version)?;
        page.push_str("</table>\n</section>\n");
        Ok(())
    }

    /// Score and state over time of each track.
    fn write_series(&self, page: &mut String) -> std::fmt::Result {
        page.push_str("<section>\n<h2>Score and state over time</h2>\n");
        if self.report.series.is_empty() {
            page.push_str("<p class=\"soft\">Nothing was found or followed.</p>\n");
        } else {
            page.push_str("<p class=\"legend soft\">");
            for state in TrackState::ALL {
                let name = state.name();
                write!(
                    page,
                    "<span><svg viewBox=\"0 0 8 8\"><rect class=\"{name}\" width=\"8\" height=\"8\"/></svg> {name}</span>"
                )?;
            }
            match self.report.stride {
                1 => page.push_str("line: score</p>\n"),
                stride => writeln!(page, "line: mean score of {stride} frames, area: least to largest</p>")?,
            }
        }
        for series in &self.report.series {
            self.write_one(page, series)?;
        }
        if self.report.unshown.1 > 0 {
            writeln!(
                page,
                "<p class=\"soft\">{} more tracks are in results files only.</p>",
                self.report.unshown.1
            )?;
        }
        page.push_str("</section>\n");
        Ok(())
    }

    fn write_one(&self, page: &mut String, series: &Series) -> std::fmt::Result {
        let (top, bottom, ribbon) = (6.0, 86.0, 12.0);
        let x = |time: f64| self.x(time);
        let y = |score: f64| bottom - (bottom - top) * score.clamp(0.0, 1.0);
        let frames: u64 = series.states.iter().sum();
        write!(
            page,
            "<div class=\"series\"><strong>{}</strong> <span class=\"soft\">",
            escaped(&series.name)
        )?;
        if series.kind == Kind::Match {
            write!(page, "found in {frames} of {} frames", self.report.frames)?;
        } else {
            write!(page, "{frames} frames")?;
            for (state, count) in TrackState::ALL.iter().zip(series.states).filter(|(_, count)| *count > 0) {
                write!(page, ", {} {:.1} %", state.name(), 100.0 * count as f64 / frames as f64)?;
            }
        }
        writeln!(
            page,
            "</span>\n<svg viewBox=\"0 0 {WIDTH} 122\" role=\"img\" aria-label=\"score and state\">"
        )?;
        page.push_str("<g class=\"grid\">");
        for score in [0.0, 0.5, 1.0] {
            let y = y(score);
            write!(
                page,
                "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\"/><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{score}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0
            )?;
        }
        for (time, label) in self.ticks() {
            let x = x(time);
            write!(
                page,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\"/><text x=\"{x:.1}\" y=\"119\" \
                 text-anchor=\"middle\">{label}</text>"
            )?;
        }
        page.push_str("</g>\n");
        let width = self.column_width();
        for piece in series.pieces(false) {
            let point =
                |column: &&Column, score: f64| format!("{:.1},{:.1}", x(column.time) + width / 2.0, y(score));
            let upper = piece.iter().map(|column| point(column, column.most));
            let lower = piece.iter().rev().map(|column| point(column, column.least));
            let area: Vec<_> = upper.chain(lower).collect();
            let mean: Vec<_> = piece.iter().map(|column| point(column, column.mean())).collect();
            if self.report.stride > 1 {
                writeln!(page, "<polygon class=\"range\" points=\"{}\"/>", area.join(" "))?;
            }
            writeln!(
                page,
                "<polyline class=\"mean\" stroke-linecap=\"round\" points=\"{}\"/>",
                mean.join(" ")
            )?;
            // Neighbours in one state are one rectangle.
            let mut rest = &piece[..];
            while let Some(first) = rest.first() {
                let state = first.state();
                let count = rest.iter().take_while(|column| column.state() == state).count();
                let (from, to) = (x(first.time), x(rest[count - 1].time) + width);
                writeln!(
                    page,
                    "<rect class=\"{}\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{ribbon}\"/>",
                    state.name(),
                    bottom + 6.0,
                    (to - from).max(1.0)
                )?;
                rest = &rest[count..];
            }
        }
        page.push_str("</svg></div>\n");
        Ok(())
    }

    fn write_thumbnails(&self, page: &mut String) -> std::fmt::Result {
        let report = self.report;
        let all = || report.thumbnails.iter().chain(&report.late_thumbnails);
        if !report.series.iter().any(|series| series.kind != Kind::Match) {
            return Ok(());
        }
        page.push_str("<section>\n<h2>Lost and found again</h2>\n");
        if all().next().is_none() {
            page.push_str("<p class=\"soft\">No track was lost.</p>\n");
        }
        page.push_str("<div class=\"thumbnails\">\n");
        for Thumbnail { title, state, crop, bounds: [x, y, w, h], picture } in all() {
            let Rect { x: left, y: top, w: width, h: height } = *crop;
            let shape = format!("x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\"");
            writeln!(
                page,
                "<figure><svg viewBox=\"{left} {top} {width} {height}\" role=\"img\" aria-label=\"{state}\">\
                 <image x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" href=\"{}\"/>\
                 <rect class=\"shade\" {shape}/><rect class=\"box {state}\" {shape}/></svg>\
                 <figcaption>{}</figcaption></figure>",
                picture.uri(),
                escaped(title),
                state = state.name()
            )?;
        }
        page.push_str("</div>\n");
        if report.unshown_thumbnails > 0 {
            writeln!(
                page,
                "<p class=\"soft\">{} more in between are not shown.</p>",
                report.unshown_thumbnails
            )?;
        }
        page.push_str("</section>\n");
        Ok(())
    }

    fn write_latency(&self, page: &mut String) -> std::fmt::Result {
        let counts = &self.report.latency.counts;
        page.push_str("<section>\n<h2>Latency</h2>\n");
        let Some(first) = counts.iter().position(|count| *count > 0) else {
            page.push_str("<p class=\"soft\">There was no frame.</p>\n</section>\n");
            return Ok(());
        };
        let most = *counts.iter().max().expect("one is not zero") as f64;
        let (bottom, height, width) = (200.0, 184.0, 560.0);
        let bars = counts.len() - first;
        let step = (width - LEFT - RIGHT) / bars as f64;
        writeln!(
            page,
            "<svg viewBox=\"0 0 {width} 222\" role=\"img\" aria-label=\"histogram of latencies\">"
        )?;
        page.push_str("<g class=\"grid\">");
        write!(
            page,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{bottom}\" y2=\"{bottom}\"/><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{most}</text>",
            width - RIGHT,
            LEFT - 6.0,
            bottom - height + 4.0
        )?;
        page.push_str("</g>\n");
        let every = bars.div_ceil(7);
        for (bar, &count) in counts[first..].iter().enumerate() {
            let x = LEFT + bar as f64 * step;
            let start = Histogram::start(first + bar);
            let tall = height * count as f64 / most;
            if count > 0 {
                writeln!(
                    page,
                    "<rect class=\"bar\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{tall:.1}\"><title>{count} frames from {}</title></rect>",
                    bottom - tall,
                    (step - 1.0).max(0.5),
                    duration(start)
                )?;
            }
            if bar % every == 0 {
                writeln!(page, "<text x=\"{x:.1}\" y=\"217\">{}</text>", duration(start))?;
            }
        }
        page.push_str("</svg>\n<p class=\"soft\">Frames by the time from a frame's arrival to its results. ");
        let Percentiles { p50, p95, p99, max } = self.summary.latency_us;
        writeln!(
            page,
            "Half within {}, 95 % within {}, 99 % within {}, the longest {}.</p>\n</section>",
            duration(p50),
            duration(p95),
            duration(p99),
            duration(max)
        )
    }

    fn write_stages(&self, page: &mut String) -> std::fmt::Result {
        page.push_str(
            "<section>\n<h2>Stages</h2>\n<table>\n<tr><th>stage</th><th class=\"number\">mean</th>\
             <th class=\"number\">99 % within</th></tr>\n",
        );
        for stage in &self.summary.stages {
            writeln!(
                page,
                "<tr><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td></tr>",
                stage.stage,
                duration(stage.mean_us as u64),
                duration(stage.p99_us)
            )?;
        }
        page.push_str("</table>\n<p class=\"soft\">Per frame; they overlap.</p>\n</section>\n");
        Ok(())
    }

    fn write_events(&self, page: &mut String) -> std::fmt::Result {
        if self.report.events.is_empty() {
            return Ok(());
        }
        page.push_str("<section>\n<h2>What happened to the source</h2>\n");
        for event in &self.report.events {
            writeln!(page, "<p>{}</p>", escaped(event))?;
        }
        if self.report.unshown_events > 0 {
            writeln!(page, "<p class=\"soft\">And {} more.</p>", self.report.unshown_events)?;
        }
        page.push_str("</section>\n");
        Ok(())
    }

    /// Width of a column, in pixels of a chart.
    fn column_width(&self) -> f64 {
        let columns = (self.report.frames as f64 / self.report.stride as f64).max(1.0);
        (WIDTH - LEFT - RIGHT) / (columns + 1.0)
    }

    /// Where a time lies in a chart; the last column ends at its border.
    fn x(&self, time: f64) -> f64 {
        let (first, last) = (self.report.first, self.report.last);
        let share = if last > first { (time - first) / (last - first) } else { 0.0 };
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT - self.column_width())
    }

    /// Some seven round times.
    fn ticks(&self) -> Vec<(f64, String)> {
        let (first, last) = (self.report.first, self.report.last);
        let wanted = (last - first) / 7.0;
        let steps =
            [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0, 600.0, 1800.0];
        let step =
            steps.into_iter().find(|step| *step >= wanted).unwrap_or(libm::ceil(wanted / 3600.0) * 3600.0);
        let begin = libm::ceil(first / step) as u64;
        let times = (begin..).map(|n| n as f64 * step).take_while(|time| *time <= last);
        let digits = if step < 0.1 { 2 } else { usize::from(step < 1.0) };
        times.take(20).map(|time| (time, format!("{time:.digits$} s"))).collect()
    }
}

impl Picture {
    /// The picture as part of a page.
    fn uri(&self) -> String {
        format!("data:image/jpeg;base64,{}", base64(&self.0))
    }
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits = (0..3).fold(0, |bits, i| bits << 8 | u32::from(three.get(i).copied().unwrap_or(0)));
        for letter in 0..4 {
            let value = bits >> (18 - 6 * letter) & 63;
            text.push(if letter <= three.len() { LETTERS[value as usize] as char } else { '=' });
        }
    }
    text
}

/// Text as HTML and XML have it. What XML cannot have at all becomes U+FFFD.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\t' | '\n' | '\r' => safe.push(' '),
            '\0'..='\x1f' | '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// A name that is as long as [`MOST_LETTERS`] at most.
fn shortened(name: &str) -> String {
    if name.chars().count() <= MOST_LETTERS {
        return name.to_owned();
    }
    name.chars().take(MOST_LETTERS - 1).chain(['\u{2026}']).collect()
}

/// Microseconds for people.
fn duration(microseconds: u64) -> String {
    match microseconds {
        0..1_000 => format!("{microseconds} \u{b5}s"),
        1_000..10_000 => format!("{:.1} ms", microseconds as f64 * 1e-3),
        10_000..1_000_000 => format!("{:.0} ms", microseconds as f64 * 1e-3),
        _ => format!("{:.1} s", microseconds as f64 * 1e-6),
    }
}

/// Seconds since 1970 as a date and a time of day, UTC.
fn date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut year, mut day) = (1970, days);
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let months = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= months[month] {
        day -= months[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02} {:02}:{:02} UTC", month + 1, day + 1, rest / 3600, rest / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::samples;
    use crate::results::{Match, Track};

    fn written(play: impl FnOnce(&mut dyn Sink)) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        let mut report = open(path.to_str().unwrap()).unwrap();
        play(&mut *report);
        std::fs::read_to_string(path).unwrap()
    }

    fn track(id: u32, state: TrackState) -> Track {
        Track { id, state, x: 1.0, y: 1.0, w: 2.0, h: 1.0, score: 0.5, ..Track::default() }
    }

    #[test]
    fn any_name_but_a_pages_is_wrong_usage() {
        for name in ["report", "report.jsonl", "html", "-", ""] {
            let error = open(name).err().unwrap();
            assert!(error.is_usage() && error.to_string().contains("ends in .html"), "{error}");
        }
        check_name("A.HTM").unwrap();
    }

    #[test]
    fn a_folder_that_is_missing_fails_before_the_video_starts() {
        assert!(matches!(open("no/where/report.html").err().unwrap(), Error::File { action: "write", .. }));
    }

    #[test]
    fn a_run_that_never_began_leaves_no_page() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        open(path.to_str().unwrap()).unwrap().finish(&Summary::default()).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn states_are_counted_and_a_loss_and_a_return_have_their_thumbnails() {
        let page = written(|report| {
            report.begin(&samples::run(&["1,1,2,1@0"]), &samples::format()).unwrap();
            for frame in 0..100 {
                let state = match frame {
                    40..70 => TrackState::Lost,
                    70 => TrackState::Reacquired,
                    _ => TrackState::Tracked,
                };
                let record = FrameRecord { frame, tracks: vec![track(1, state)], ..FrameRecord::default() };
                samples::deliver(report, record).unwrap();
            }
            report.finish(&Summary { frames: 100, ..Summary::default() }).unwrap();
        });
        for text in [
            "100 frames, tracked 69.0 %, reacquired 1.0 %, lost 30.0 %",
            "#1 lost at 1.33 s, frame 40, score 0.50",
            "#1 found again at 2.33 s, frame 70, score 0.50",
            "1,1,2,1@0",
            "a &quot;quoted&quot; name.mp4",
        ] {
            assert!(page.contains(text), "{text} is not in the page");
        }
        assert_eq!(page.matches("<figure>").count(), 2);
        assert_eq!(page.matches("data:image/jpeg;base64,/9j/").count(), 3, "key frame and thumbnails");
        // The name space is a name, which nobody fetches.
        let page = page.replace("xmlns=\"http://www.w3.org/1999/xhtml\"", "");
        assert!(!["<script", "http", "url(", "@import", "src="].iter().any(|text| page.contains(text)));
    }

    #[test]
    fn a_long_run_with_many_tracks_stays_small() {
        let mut report = Report::new("report.html");
        report.begin(&samples::run(&[]), &samples::format()).unwrap();
        for frame in 0..20_000 {
            // Each track lives for 200 frames and is lost every second one; two at a time.
            let tracks = [frame / 200 + 1, frame / 200 + 2].map(|id| {
                let states = [TrackState::Tracked, TrackState::Lost];
                track(id as u32, states[frame as usize % 2])
            });
            let record = FrameRecord { frame, tracks: tracks.to_vec(), ..FrameRecord::default() };
            samples::deliver(&mut report, record).unwrap();
            report.note(&Event::Resumed { frame, waited_us: 1 }).unwrap();
        }
        assert_eq!((report.series.len(), report.unshown.1), (MOST_SERIES, 101 - MOST_SERIES as u64));
        assert!(report.series.iter().all(|series| series.columns.len() as u64 <= MOST_COLUMNS));
        assert_eq!(report.stride, 64);
        // Merging loses no frame: a track is there for 400 frames, half of them lost.
        assert_eq!(report.series[3].states, [200, 0, 0, 200]);
        let columns = &report.series[3].columns;
        assert_eq!(columns.iter().map(|column| column.frames).sum::<u32>(), 400);
        assert_eq!(columns.iter().map(|column| column.states[3]).sum::<u32>(), 200);
        assert_eq!(
            (report.thumbnails.len(), report.late_thumbnails.len()),
            (MOST_THUMBNAILS, MOST_THUMBNAILS)
        );
        assert_eq!((report.events.len(), report.unshown_events), (MOST_EVENTS, 20_000 - MOST_EVENTS as u64));
        let run = report.run.clone().unwrap();
        let page = Page { report: &report, run: &run, summary: &Summary::default() }.text();
        assert!(page.len() < 500_000, "{} bytes", page.len());
    }

    #[test]
    fn matches_are_shown_where_nothing_is_followed() {
        let page = written(|report| {
            samples::play(report, &[]).unwrap();
        });
        assert!(page.contains("<strong>logo</strong> <span class=\"soft\">found in 1 of 2 frames"), "{page}");
        assert!(page.contains("<strong>a, &quot;b&quot;</strong>"));
    }

    #[test]
    fn a_full_disk_is_told() {
        let mut report = Report::new("/dev/full");
        let said = samples::play(&mut report, &[]).unwrap_err().to_string();
        assert!(said.starts_with("output /dev/full: No space left"), "{said}");
    }

    #[test]
    fn names_of_any_length_have_their_page() {
        for name in ["", "m", &"n".repeat(70), &"n".repeat(71), &"\u{e9}".repeat(5_000)] {
            let page = written(|report| {
                report.begin(&samples::run(&[]), &samples::format()).unwrap();
                let matches = vec![samples::found(name)];
                let tracks = vec![Track { template: Some(name.into()), ..track(1, TrackState::Tracked) }];
                samples::deliver(report, FrameRecord { matches, tracks, ..FrameRecord::default() }).unwrap();
                report.finish(&Summary { frames: 1, ..Summary::default() }).unwrap();
            });
            assert!(page.contains(&format!("<strong>{name}</strong>")), "{} letters", name.chars().count());
            assert!(page.contains(&format!("<strong>#1 {name}</strong>")));
        }
    }

    #[test]
    fn letters_of_base64_are_those_of_the_rfc() {
        let texts = ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|text| base64(text.as_bytes()));
        assert_eq!(texts, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }

    #[test]
    fn dates_follow_the_calendar() {
        let dates = [0, 951_782_400, 1_709_210_096, 4_102_444_799].map(date);
        assert_eq!(
            dates,
            ["1970-01-01 00:00 UTC", "2000-02-29 00:00 UTC", "2024-02-29 12:34 UTC", "2099-12-31 23:59 UTC"]
        );
    }

    #[test]
    fn a_bin_of_the_histogram_begins_where_it_says() {
        let mut histogram = Histogram::default();
        for microseconds in [0, 4, 5, 7, 8, 9, 10, 100, 1000, 123_456, 60_000_000] {
            histogram.counts.clear();
            histogram.count(microseconds);
            let bin = histogram.counts.len() - 1;
            let value = microseconds.max(4);
            assert!(Histogram::start(bin) <= value && value < Histogram::start(bin + 1), "{microseconds}");
        }
    }

    #[test]
    fn known_colours_come_back() {
        let mut format = samples::format();
        format.pixels = crate::frame::PixelFormat::ALL[0];
        // Red as BT.601 and BT.709 have it in limited range.
        assert_eq!(Conversion::of(&format).rgb(81, 90, 240), [254, 0, 0]);
        format.colorimetry = Some("bt709".into());
        assert_eq!(Conversion::of(&format).rgb(63, 102, 240), [255, 1, 0]);
        format.colorimetry = Some("1:4:0:0".into());
        assert_eq!(Conversion::of(&format).rgb(200, 128, 128), [200, 200, 200]);
    }

    #[test]
    fn crops_stay_inside_the_frame() {
        let frame = Size::new(64, 48);
        for at in
            [[-500.0, -3.0, 9.0, 9.0], [60.0, 40.0, 300.0, 2.0], [20.0, 20.0, 0.1, 0.1], [1e9, 1e9, 5.0, 5.0]]
        {
            assert!(crop(at, frame).is_inside(frame), "{at:?}: {}", crop(at, frame));
        }
        assert!(crop([1.0, 1.0, 4.0, 4.0], Size::new(1, 1)).is_inside(Size::new(1, 1)));
    }

    #[test]
    fn only_the_best_match_of_a_template_counts() {
        let mut report = Report::new("report.html");
        report.begin(&samples::run(&[]), &samples::format()).unwrap();
        let better = Match { score: 0.9, ..samples::found("logo") };
        let matches = vec![better, samples::found("logo")];
        samples::deliver(&mut report, FrameRecord { matches, ..FrameRecord::default() }).unwrap();
        assert_eq!(report.series.len(), 1);
        assert_eq!(report.series[0].columns[0].most, 0.9);
    }
}
