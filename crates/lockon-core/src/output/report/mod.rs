//! The report: one HTML page that shows a run, for people. It needs nothing from elsewhere, neither network
//! nor script.
//!
//! Its data are collected during the run, in bounded memory: values of several frames are merged when there
//! are too many for the width of a page, pictures are few and small. The page is written at once, at the end
//! of the run, also one that was interrupted or failed, and replaces an older report only when it is
//! complete. The page is well-formed XML too, so that other tools can parse it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::colour;
use crate::error::{Error, Result};
use crate::files;
use crate::frame::{Frame, Rect, USUAL_INTERVAL_NS, VideoFormat};
use crate::orders::Order;
use crate::ports::{Delivery, Sink};
use crate::results::{Event, FrameRecord, Match, Object, RunRecord, Summary, TrackState};
use crate::still;
use crate::surface::Surface;
use crate::template::Template;

mod charts;
mod page;
mod series;
mod thumbnails;

use page::{Page, duration};
use series::{Counts, Found, Histogram, Series, SeriesKind};
use thumbnails::{Jpeg, KEY_SIDE, Key, THUMBNAIL_SIDE, Thumbnail};

/// Columns of a chart, one in 1.5 of its pixels: when a run has more, two become one.
const MOST_COLUMNS: u64 = 600;
/// Tracks and templates that have charts; the others are counted.
const MOST_SERIES: usize = 24;
/// Thumbnails from the start of a run, and as many from its end.
const MOST_THUMBNAILS: usize = 12;
/// A state that comes and goes gets no more of them than one in so many seconds.
const BETWEEN_THUMBNAILS: f64 = 0.5;
/// Boxes of objects over the key frame.
const MOST_BOXES: usize = 1000;
/// Things that happened to the source.
const MOST_EVENTS: usize = 40;
/// Rows of the table of appearances.
const MOST_APPEARANCES: usize = 200;
/// Letters of a name over the key frame; the rest of it is where the pointer rests, and below. More than 40
/// would be wider than the frame on a telephone.
const MOST_LETTERS: usize = 24;

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
    /// Names of the templates that were searched, from the start or later.
    templates: Vec<Arc<str>>,
    frames: u64,
    /// Time of the first frame and of the last, in seconds.
    first: f64,
    last: f64,
    /// Frames of one column of the charts.
    stride: u64,
    series: Vec<Series>,
    /// The results of each template that was found.
    found: Vec<Found>,
    objects: Counts,
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

impl Report {
    fn new(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            run: None,
            templates: Vec::new(),
            frames: 0,
            first: 0.0,
            last: 0.0,
            stride: 1,
            series: Vec::new(),
            found: Vec::new(),
            objects: Counts::default(),
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
    fn series(&mut self, kind: SeriesKind, name: &str) -> Option<&mut Series> {
        let is_it = |series: &Series| {
            series.kind == kind && (matches!(kind, SeriesKind::Track(_)) || series.name == name)
        };
        let index = self.series.iter().position(is_it).or_else(|| {
            (self.series.len() < MOST_SERIES).then(|| {
                self.series.push(Series::new(kind, name.to_owned()));
                self.series.len() - 1
            })
        });
        if index.is_none()
            && let SeriesKind::Track(id) = kind
            && id > self.unshown.0
        {
            self.unshown = (id, self.unshown.1 + 1);
        }
        index.map(|index| &mut self.series[index])
    }

    /// Counts the matches of one template in one frame, best first.
    fn count(&mut self, matches: &[Match], time: f64) {
        let Match { template, score, .. } = &matches[0];
        let index = self.found.iter().position(|found| found.template == *template).unwrap_or_else(|| {
            self.found.push(Found::new(template.clone(), time));
            self.found.len() - 1
        });
        self.found[index].count(matches.len(), *score, time);
    }

    /// Makes the charts coarser if a frame lies beyond them; they count the frames that were delivered.
    fn make_room(&mut self, count: u64) {
        while count / self.stride >= MOST_COLUMNS {
            self.stride *= 2;
            self.series.iter_mut().for_each(Series::halve);
            self.objects.halve();
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

    fn picture(&self, frame: &Frame, crop: Rect, side: usize) -> Result<Jpeg> {
        let (rgb, size) = colour::shrunk(frame, crop, side);
        // A picture that could not be fetched from a device would be black.
        frame.picture.surface().map_or(Ok(()), Surface::check)?;
        still::jpeg(&rgb, size).map(Jpeg).map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &dyn std::error::Error) -> Error {
        Error::Output { name: self.path.clone(), reason: error.to_string() }
    }
}

impl Sink for Report {
    fn name(&self) -> &str {
        &self.path
    }

    fn files(&self) -> Vec<PathBuf> {
        // A run that never began leaves the one of before.
        self.run.iter().map(|_| PathBuf::from(&self.path)).collect()
    }

    fn begin(&mut self, run: &RunRecord, _: &VideoFormat) -> Result<()> {
        self.run = Some(run.clone());
        self.templates = run.templates.iter().map(|template| template.name.clone()).collect();
        Ok(())
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        let (frame, record) = (delivery.frame, delivery.record);
        let time = self.time(record);
        if self.frames == 0 {
            self.first = time;
        }
        // Frames that were skipped or dropped, or that came before, have no columns: the line of a track that
        // was followed from each frame to the next delivered one is not interrupted.
        self.make_room(self.frames);
        let number = self.frames / self.stride;
        (self.frames, self.last) = (self.frames + 1, time);
        self.latency.count(record.latency_us);

        let objects = record.objects.as_deref().unwrap_or_default();
        let has_results = !(record.tracks.is_empty() && record.matches.is_empty() && objects.is_empty());
        let hides = self.run.as_ref().is_some_and(|run| run.hides);
        if !hides && self.key.as_ref().is_none_or(|key| has_results && !key.has_results) {
            let size = frame.format.size;
            let picture = self.picture(frame, Rect::whole(size), KEY_SIDE)?;
            let (all_objects, boxes) = (objects.len(), objects.iter().take(MOST_BOXES));
            let objects = boxes.map(Object::rect).collect();
            self.key = Some(Key { picture, frame: record.frame, size, has_results, objects, all_objects });
        }
        if record.objects.is_some() {
            self.objects.add(number, time, objects.len() as u64);
        }
        // The best of each template; where matches are followed their tracks say more.
        if !self.run.as_ref().is_some_and(|run| run.track_matches) {
            for matches in record.matches.chunk_by(|a, b| a.template == b.template) {
                let best = &matches[0];
                self.count(matches, time);
                if let Some(series) = self.series(SeriesKind::Match, &best.template) {
                    series.add(number, time, TrackState::Tracked, best.bounds(), best.score);
                    series.count(matches.len() as u32);
                }
            }
        }
        for track in &record.tracks {
            let name = match track.label() {
                Some(label) => format!("#{} {label}", track.id),
                None => format!("#{}", track.id),
            };
            let Some(series) = self.series(SeriesKind::Track(track.id), &name) else { continue };
            let before = series.add(number, time, track.state, track.bounds(), track.score);
            let is_lost = track.state == TrackState::Lost;
            let was_lost = before == Some(TrackState::Lost);
            let last = if is_lost { &mut series.lost_at } else { &mut series.found_at };
            if is_lost == was_lost || before.is_none() || time - *last < BETWEEN_THUMBNAILS {
                continue;
            }
            *last = time;
            let crop = still::around(track.bounds(), frame.format.size);
            let state = if is_lost { TrackState::Lost } else { TrackState::Reacquired };
            let title = if is_lost {
                format!("{name} lost at {time:.2} s, frame {}", record.frame)
            } else {
                format!("{name} found again at {time:.2} s, frame {}, score {:.2}", record.frame, track.score)
            };
            if hides {
                continue;
            }
            let picture = self.picture(frame, crop, THUMBNAIL_SIDE)?;
            self.keep_thumbnail(Thumbnail { title, state, crop, bounds: track.bounds(), picture });
        }
        Ok(())
    }

    fn note(&mut self, event: &Event) -> Result<()> {
        if let Event::Control { order: Order::Change(change), refused: None, .. } = event {
            for name in change.add.iter().map(Template::name) {
                if !self.templates.contains(name) {
                    self.templates.push(name.clone());
                }
            }
        }
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
            Event::Control { frame, order, refused, .. } => {
                let refused =
                    refused.as_ref().map_or_else(String::new, |reason| format!(" (refused: {reason})"));
                format!("frame {frame}: asked to {order}{refused}")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Change;
    use crate::config::ObjectSpec;
    use crate::frame::Size;
    use crate::output::samples;
    use crate::results::{TemplateRecord, Track};
    use crate::tally::Tally;

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
        let mut report = open(path.to_str().unwrap()).unwrap();
        report.finish(&Summary::default()).unwrap();
        assert!(!path.exists() && report.files().is_empty());
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
            "#1 lost at 1.33 s, frame 40</figcaption>",
            "#1 found again at 2.33 s, frame 70, score 0.50",
            "1,1,2,1@0",
            "a &quot;quoted&quot; name.mp4",
        ] {
            assert!(page.contains(text), "{text} is not in the page");
        }
        assert_eq!(page.matches("<figure>").count(), 2);
        assert_eq!(page.matches("data:image/jpeg;base64,/9j/").count(), 3, "key frame and thumbnails");
        // The name space is only a name and is never fetched.
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
    fn frames_that_were_skipped_or_dropped_are_no_gaps_and_do_not_make_charts_coarser() {
        // `--every 5`, a part that begins late, and a live source that drops frames.
        let drops = (0..60).map(|n| n * n / 7);
        for numbers in [(0..60).map(|n| 5 * n).collect(), (700..760).collect(), drops.collect::<Vec<u64>>()] {
            let mut report = Report::new("report.html");
            report.begin(&samples::run(&[]), &samples::format()).unwrap();
            for &frame in &numbers {
                let matches = vec![samples::found("logo")];
                let tracks = vec![track(1, TrackState::Tracked)];
                let record = FrameRecord { frame, matches, tracks, ..FrameRecord::default() };
                samples::deliver(&mut report, record).unwrap();
            }
            assert_eq!(report.stride, 1, "from {}", numbers[0]);
            for series in &report.series {
                let pieces: Vec<_> = series.pieces(true).iter().map(Vec::len).collect();
                assert_eq!(pieces, [60], "{}, from {}", series.name, numbers[0]);
            }
        }
        // A frame without the template is one.
        let at = |score| Match { score, ..samples::found("logo") };
        let page = of_matches(&[&[at(0.75)], &[], &[at(0.25)]]);
        assert_eq!(page.matches("<polyline class=\"mean\"").count(), 2);
    }

    #[test]
    fn matches_are_shown_where_nothing_is_followed() {
        let page = written(|report| {
            samples::play(report, &[]).unwrap();
        });
        assert!(page.contains("<strong>logo</strong> <span class=\"soft\">found in 1 of 2 frames"), "{page}");
        assert!(page.contains("<strong>a, &quot;b&quot;</strong>"));
    }

    /// A page about these matches of two templates. The second template is never found.
    fn of_matches(frames: &[&[Match]]) -> String {
        written(|report| {
            let mut run = samples::run(&[]);
            run.templates = ["logo", "never"]
                .map(|name| TemplateRecord {
                    name: name.into(),
                    w: 4,
                    h: 3,
                    sha256: String::new(),
                    members: 1,
                })
                .into();
            report.begin(&run, &samples::format()).unwrap();
            for (frame, matches) in (0..).zip(frames) {
                let record = FrameRecord { frame, matches: matches.to_vec(), ..FrameRecord::default() };
                samples::deliver(report, record).unwrap();
            }
            report.finish(&Summary { frames: frames.len() as u64, ..Summary::default() }).unwrap();
        })
    }

    #[test]
    fn a_page_about_templates_speaks_of_matches_and_not_of_tracks() {
        let at = |score| Match { score, ..samples::found("logo") };
        let page = of_matches(&[&[at(0.75), at(0.5)], &[], &[at(0.25)], &[]]);
        let row = "<td>logo</td><td class=\"number\">2 of 4</td><td class=\"number\">50.0 %</td><td class=\"number\">3</td>\
                   <td class=\"number\">0.750</td><td class=\"number\">0.500</td><td class=\"number\">0.250</td>\
                   <td class=\"number\">0.00 s</td><td class=\"number\">0.07 s</td>";
        for text in
            ["<h2>Matches over time</h2>", "<h2>Places</h2>", "<td>never</td>", row, "class=\"counts\""]
        {
            assert!(page.contains(text), "{text} is not in {page}");
        }
        for text in ["track", "Track", "lost", "rajector"] {
            let body = page.split("</style>").nth(1).unwrap();
            assert!(!body.contains(text), "{text} is in {body}");
        }
    }

    #[test]
    fn objects_are_counted_over_time_and_drawn_on_the_frame_that_has_some() {
        let page = written(|report| {
            let run = RunRecord { objects: Some(ObjectSpec::default()), ..samples::run(&[]) };
            report.begin(&run, &samples::format()).unwrap();
            let mut tally = Tally::default();
            tally.begin(&run);
            let object = Object { x: 1, y: 0, w: 2, h: 3, ..Object::default() };
            for (frame, count) in [(0, 0), (1, 3), (2, 1)] {
                let objects = Some(vec![object.clone(); count]);
                let more_objects = u64::from(count == 3);
                let record = FrameRecord { frame, objects, more_objects, ..FrameRecord::default() };
                tally.count(&record);
                samples::deliver(report, record).unwrap();
            }
            let mut summary = Summary { frames: 3, ..Summary::default() };
            tally.tell(&mut summary);
            report.finish(&summary).unwrap();
        });
        for text in [
            "<h2>Objects over time</h2>",
            "0 to 3 in a frame, 1.3 on average, 4 in all. 1 more in 1 frame left out by the maximum number.",
            "<span style=\"top:0%\">3</span>",
            "<tr><th>objects</th><td>white, 8 neighbours</td></tr>",
            "<p class=\"soft\">Over frame 1: the boxes of its objects.</p>",
        ] {
            assert!(page.contains(text), "{text} is not in {page}");
        }
        assert_eq!(
            page.matches("<rect class=\"object\" x=\"1\" y=\"0\" width=\"2\" height=\"3\"/>").count(),
            3
        );
        assert!(!page.contains("Nothing was found"), "{page}");
    }

    #[test]
    fn a_template_that_came_later_has_its_counts_too() {
        let page = written(|report| {
            report.begin(&samples::run(&[]), &samples::format()).unwrap();
            samples::deliver(report, FrameRecord::default()).unwrap();
            for (name, refused) in [("late", None), ("never", None), ("refused", Some("no".into()))] {
                let picture = crate::reference::picture(Size::new(9, 7));
                let change = Change::adding(Template::new(name, picture, None).unwrap());
                let order = Order::Change(change.into());
                report.note(&Event::Control { frame: 1, order, refused, search: None }).unwrap();
            }
            let matches = vec![samples::found("late")];
            samples::deliver(report, FrameRecord { frame: 1, matches, ..FrameRecord::default() }).unwrap();
            report.finish(&Summary { frames: 2, ..Summary::default() }).unwrap();
        });
        for text in [
            "<td>late</td><td class=\"number\">1 of 2</td>",
            "<td>never</td><td class=\"number\">0 of 2</td>",
            "frame 1: asked to add template &quot;late&quot; (9x7)",
        ] {
            assert!(page.contains(text), "{text} is not in {page}");
        }
        assert!(!page.contains("<td>refused</td>"));
    }

    #[test]
    fn every_template_has_its_counts_and_so_many_of_them_have_charts() {
        let names: Vec<String> = (0..MOST_SERIES + 5).map(|number| format!("t{number}")).collect();
        let page = written(|report| {
            let mut run = samples::run(&[]);
            let template = |name: &String| TemplateRecord {
                name: name.as_str().into(),
                w: 4,
                h: 3,
                sha256: String::new(),
                members: 1,
            };
            run.templates = names.iter().map(template).collect();
            report.begin(&run, &samples::format()).unwrap();
            let matches = names.iter().map(|name| samples::found(name)).collect();
            samples::deliver(report, FrameRecord { matches, ..FrameRecord::default() }).unwrap();
            report.finish(&Summary { frames: 1, ..Summary::default() }).unwrap();
        });
        for name in &names {
            let row = format!("<td>{name}</td><td class=\"number\">1 of 1</td>");
            assert!(page.contains(&row), "{row} is not in {page}");
        }
        assert_eq!(page.matches("<div class=\"series\">").count(), MOST_SERIES);
        assert!(page.contains("5 more templates have no chart"), "{page}");
    }

    #[test]
    fn cards_without_anything_in_them_are_left_out() {
        let titles = |page: &str| -> Vec<String> {
            let after = page.split("<h2>").skip(1);
            after.map(|text| text.split("</h2>").next().unwrap().to_owned()).collect()
        };
        let none = of_matches(&[&[], &[]]);
        assert_eq!(titles(&none), ["First frame", "Run", "Matches", "Latency"]);
        assert!(none.contains("Nothing was found."), "{none}");
        // Tracked throughout: nothing was lost, and there are no stages.
        let tracked = written(|report| {
            report.begin(&samples::run(&["1,1,2,1@0"]), &samples::format()).unwrap();
            let record =
                FrameRecord { tracks: vec![track(1, TrackState::Tracked)], ..FrameRecord::default() };
            let mut tally = Tally::default();
            tally.begin(&samples::run(&["1,1,2,1@0"]));
            tally.count(&record);
            samples::deliver(report, record).unwrap();
            let mut summary = Summary { frames: 1, ..Summary::default() };
            tally.tell(&mut summary);
            report.finish(&summary).unwrap();
        });
        assert_eq!(
            titles(&tracked),
            ["Trajectory", "Run", "Appearances", "Score and state over time", "Latency"]
        );
    }

    #[test]
    fn states_are_explained_by_the_colours_that_frames_show_them_in() {
        let page = written(|report| {
            samples::play(report, &["1,1,2,1@0"]).unwrap();
        });
        for state in TrackState::ALL {
            let [r, g, b] = crate::overlay::rgb_of_state(state);
            let name = state.name();
            let rule = format!("--{name}: #{r:02x}{g:02x}{b:02x}");
            assert!(page.contains(&rule), "{rule} is not in the dark page's style");
            assert!(page.contains(&format!("<i class=\"swatch {name}\"></i> <b>{name}</b>: ")));
        }
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
