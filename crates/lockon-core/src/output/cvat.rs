//! CVAT for video 1.1: XML with a `track` for each track, which the annotation tool CVAT imports.
//!
//! A track has boxes in key frames; between two of them CVAT interpolates each edge, by the frames' numbers.
//! Key frames are chosen so that an interpolated edge is nowhere farther than a pixel from the found one.
//! Where a track is lost, and behind its end, a key frame says `outside`. Frames have their numbers in the
//! video, as in a task of the whole video. The label is the template or class that a track began as, or
//! `object`. Matches without a track are left out: the format has tracks alone.
//!
//! From each key frame on, the next one is the farthest box to which a straight line leads that is near
//! enough to all boxes between. Key frames are kept until the end of the run, 48 bytes each. Format:
//! docs.cvat.ai, "XML annotation format".

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::files;
use crate::frame::{Size, VideoFormat};
use crate::ports::{Delivery, Sink};
use crate::results::{RunRecord, Summary, Track, TrackState};
use crate::text::escaped;

use super::OBJECT;

/// Maximum distance of an interpolated edge from the found one, in pixels: the promised pixel, less the
/// rounding to two decimals.
const TOLERANCE: f64 = 0.99;

/// Tracks, written as a whole at the end.
pub(super) struct Cvat {
    path: String,
    /// The input and the size of its frames, once the run has begun.
    run: Option<(String, Size)>,
    /// By their numbers.
    tracks: Vec<Course>,
    /// The last frame.
    last: u64,
    has_matches: bool,
}

/// The path of a track.
struct Course {
    id: u32,
    label: String,
    keys: Vec<Key>,
    /// The farthest box from the last key frame that a straight line leads to, if there is one.
    reached: Option<Key>,
    /// The boxes behind that one: none of them is such a box, and one that is may come yet.
    behind: Vec<Key>,
    /// The slopes of each edge, from the last key frame on, that come near enough to all boxes since.
    slopes: [(f64, f64); 4],
    /// False once it has ended.
    is_followed: bool,
}

/// A box in a frame: its left, upper, right and lower edge.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Key {
    frame: u64,
    edges: [f64; 4],
    is_outside: bool,
}

/// Maximum boxes after the farthest one that is reached.
const MOST_BEHIND: usize = 64;

const ANY_SLOPE: [(f64, f64); 4] = [(f64::NEG_INFINITY, f64::INFINITY); 4];

impl Course {
    fn new(track: &Track) -> Self {
        Self {
            id: track.id,
            label: track.label().map_or(OBJECT, |label| label).to_owned(),
            keys: Vec::new(),
            reached: None,
            behind: Vec::new(),
            slopes: ANY_SLOPE,
            is_followed: true,
        }
    }

    /// It was found here, perhaps again after it was missing.
    fn found(&mut self, frame: u64, [x, y, w, h]: [f64; 4]) {
        self.is_followed = true;
        self.extend(Key { frame, edges: [x, y, x + w, y + h], is_outside: false });
    }

    fn extend(&mut self, key: Key) {
        let Some(from) = self.keys.last().filter(|key| !key.is_outside).copied() else {
            self.keys.push(key);
            self.slopes = ANY_SLOPE;
            return;
        };
        let mut is_reached = true;
        for (edge, (least, most)) in self.slopes.iter_mut().enumerate() {
            is_reached &= (*least..=*most).contains(&slope(from, key, edge, 0.0));
            *least = least.max(slope(from, key, edge, -TOLERANCE));
            *most = most.min(slope(from, key, edge, TOLERANCE));
        }
        if is_reached {
            self.reached = Some(key);
            self.behind.clear();
        } else {
            self.behind.push(key);
        }
        if self.behind.len() > MOST_BEHIND || self.slopes.iter().any(|(least, most)| least > most) {
            self.turn();
        }
    }

    /// Continues from the farthest box that was reached. False if none was.
    fn turn(&mut self) -> bool {
        let Some(reached) = self.reached.take() else { return false };
        self.keys.push(reached);
        self.slopes = ANY_SLOPE;
        let behind = std::mem::take(&mut self.behind);
        for key in behind {
            self.extend(key);
        }
        true
    }

    /// Ends the line: no further box continues it.
    fn end(&mut self) {
        while self.turn() {}
    }

    /// It is out of sight from here on.
    fn lost(&mut self, frame: u64) {
        self.end();
        if let Some(last) = self.keys.last().filter(|key| !key.is_outside) {
            self.keys.push(Key { frame, is_outside: true, ..*last });
        }
    }

    fn write(&self, xml: &mut String) -> std::fmt::Result {
        writeln!(xml, "  <track id=\"{}\" label=\"{}\" source=\"auto\">", self.id, escaped(&self.label))?;
        for Key { frame, edges: [left, top, right, bottom], is_outside } in &self.keys {
            writeln!(
                xml,
                "    <box frame=\"{frame}\" keyframe=\"1\" outside=\"{}\" occluded=\"0\" xtl=\"{left:.2}\" \
                 ytl=\"{top:.2}\" xbr=\"{right:.2}\" ybr=\"{bottom:.2}\" z_order=\"0\"></box>",
                u8::from(*is_outside)
            )?;
        }
        writeln!(xml, "  </track>")
    }
}

/// Returns an edge's movement per frame from one box to another that is moved by `more`.
fn slope(from: Key, to: Key, edge: usize, more: f64) -> f64 {
    (to.edges[edge] + more - from.edges[edge]) / (to.frame - from.frame) as f64
}

impl Cvat {
    pub(super) fn new(path: &str) -> Result<Self> {
        files::check_writable(Path::new(path))?;
        Ok(Self { path: path.to_owned(), run: None, tracks: Vec::new(), last: 0, has_matches: false })
    }

    /// The file of a run of that input.
    fn xml(&self, input: &str, size: Size) -> Result<String, std::fmt::Error> {
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<annotations>\n");
        let input = escaped(input);
        write!(
            xml,
            "  <version>1.1</version>\n  <meta>\n    <task>\n      <name>{input}</name>\n      <size>{}</size>\n      \
             <mode>interpolation</mode>\n      <overlap>0</overlap>\n      <start_frame>0</start_frame>\n      \
             <stop_frame>{}</stop_frame>\n      <frame_filter></frame_filter>\n      <labels>\n",
            self.last + 1,
            self.last
        )?;
        let mut labels: Vec<&str> = self.tracks.iter().map(|track| &*track.label).collect();
        labels.sort_unstable();
        labels.dedup();
        for label in labels {
            writeln!(xml, "        <label><name>{}</name><attributes></attributes></label>", escaped(label))?;
        }
        let Size { width, height } = size;
        write!(
            xml,
            "      </labels>\n      <original_size><width>{width}</width><height>{height}</height></original_size>\n      \
             <source>{input}</source>\n    </task>\n  </meta>\n"
        )?;
        for track in self.tracks.iter().filter(|track| !track.keys.is_empty()) {
            track.write(&mut xml)?;
        }
        xml.push_str("</annotations>\n");
        Ok(xml)
    }

    fn failure(&self, error: &dyn std::fmt::Display) -> Error {
        Error::Output { name: self.path.clone(), reason: error.to_string() }
    }
}

impl Sink for Cvat {
    fn name(&self) -> &str {
        &self.path
    }

    fn files(&self) -> Vec<PathBuf> {
        // A run that never began leaves the one of before.
        self.run.iter().map(|_| PathBuf::from(&self.path)).collect()
    }

    fn begin(&mut self, run: &RunRecord, format: &VideoFormat) -> Result<()> {
        self.run = Some((run.input.clone(), format.size));
        Ok(())
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        let record = delivery.record;
        self.last = record.frame;
        self.has_matches |= !record.matches.is_empty();
        for track in &record.tracks {
            let place = self.tracks.binary_search_by_key(&track.id, |course| course.id);
            let place = place.unwrap_or_else(|place| {
                self.tracks.insert(place, Course::new(track));
                place
            });
            match track.state {
                TrackState::Lost => self.tracks[place].lost(record.frame),
                _ => self.tracks[place].found(record.frame, track.bounds()),
            }
        }
        for course in self.tracks.iter_mut().filter(|course| course.is_followed) {
            if !record.tracks.iter().any(|track| track.id == course.id) {
                course.lost(record.frame);
                course.is_followed = false;
            }
        }
        Ok(())
    }

    fn finish(&mut self, _: &Summary) -> Result<()> {
        let Some((input, size)) = self.run.clone() else { return Ok(()) };
        if self.tracks.is_empty() && self.has_matches {
            tracing::warn!(
                "{}: no track is in it: --track-matches follows what templates find, --track-objects the objects of a mask",
                self.path
            );
        }
        for course in &mut self.tracks {
            course.end();
        }
        let xml = self.xml(&input, size).map_err(|error| self.failure(&error))?;
        files::replace(Path::new(&self.path), xml.as_bytes()).map_err(|error| self.failure(&error))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::output::samples;
    use crate::results::FrameRecord;

    /// The box that CVAT shows in a frame, `None` if the track is outside or has not begun.
    fn interpolated(keys: &[Key], frame: u64) -> Option<[f64; 4]> {
        let behind = keys.partition_point(|key| key.frame <= frame);
        let from = keys[..behind].last().filter(|key| !key.is_outside)?;
        let Some(to) = keys.get(behind) else { return Some(from.edges) };
        let share = (frame - from.frame) as f64 / (to.frame - from.frame) as f64;
        Some(std::array::from_fn(|edge| from.edges[edge] + share * (to.edges[edge] - from.edges[edge])))
    }

    fn course(boxes: &[(u64, Option<[f64; 4]>)]) -> Vec<Key> {
        let mut course = Course::new(&Track { id: 1, ..Track::default() });
        for &(frame, found) in boxes {
            match found {
                Some(bounds) => course.found(frame, bounds),
                None => course.lost(frame),
            }
        }
        course.end();
        course.keys
    }

    proptest! {
        #[test]
        fn what_is_interpolated_is_within_a_pixel_of_every_box_and_nowhere_else(
            steps in prop::collection::vec(
                (1_u64..4, prop::option::weighted(0.95, prop::array::uniform4(-1.5..1.5_f64))), 1..120)
        ) {
            let (mut frame, mut bounds) = (0, [100.0, 80.0, 40.0, 30.0]);
            let mut boxes = Vec::new();
            for (step, moved) in steps {
                frame += step;
                boxes.push((frame, moved.map(|by| {
                    bounds = std::array::from_fn(|i| bounds[i] + by[i]);
                    bounds
                })));
            }
            let keys = course(&boxes);
            prop_assert!(keys.windows(2).all(|pair| pair[0].frame < pair[1].frame), "{:?}", keys);
            for (frame, found) in boxes {
                let shown = interpolated(&keys, frame);
                prop_assert_eq!(shown.is_some(), found.is_some(), "frame {}", frame);
                let (Some(shown), Some([x, y, w, h])) = (shown, found) else { continue };
                let farthest = shown.iter().zip([x, y, x + w, y + h]).map(|(a, b)| (a - b).abs());
                prop_assert!(farthest.fold(0.0, f64::max) <= TOLERANCE + 1e-9, "frame {}", frame);
            }
        }
    }

    #[test]
    fn a_target_that_moves_straight_on_has_two_key_frames_also_where_it_shakes() {
        let shaken = |frame: u64| if frame.is_multiple_of(2) { 0.4 } else { -0.4 };
        let boxes: Vec<_> = (0..500)
            .map(|frame| (frame, Some([3.0 * frame as f64 + shaken(frame), 20.0, 40.0, 30.0])))
            .collect();
        let keys = course(&boxes);
        assert!(keys.len() <= 3, "{} key frames", keys.len());
        assert_eq!((keys[0].frame, keys.last().unwrap().frame), (0, 499));
    }

    #[test]
    fn tracks_are_xml_with_what_cvat_asks_for() {
        let written = samples::written(".cvat.xml", &["1,2,3,4@0"]);
        // Track 2 was lost from its first frame on; all have ended before frame 2.
        for part in [
            "<version>1.1</version>",
            "<name>a &quot;quoted&quot; name.mp4</name>",
            "<size>3</size>",
            "<mode>interpolation</mode>",
            "<stop_frame>2</stop_frame>",
            "<label><name>object</name><attributes></attributes></label>",
            "<original_size><width>5</width><height>3</height></original_size>",
            "<track id=\"1\" label=\"object\" source=\"auto\">\n    \
             <box frame=\"0\" keyframe=\"1\" outside=\"0\" occluded=\"0\" xtl=\"-0.50\" ytl=\"2.25\" xbr=\"3.50\" \
             ybr=\"5.25\" z_order=\"0\"></box>\n    \
             <box frame=\"2\" keyframe=\"1\" outside=\"1\" occluded=\"0\" xtl=\"-0.50\" ytl=\"2.25\" xbr=\"3.50\" \
             ybr=\"5.25\" z_order=\"0\"></box>\n  </track>",
        ] {
            assert!(written.contains(part), "{part} is not in {written}");
        }
        assert!(!written.contains("<track id=\"2\""), "{written}");
        assert_eq!(written.matches("<track").count(), 2);
    }

    #[test]
    fn a_track_that_comes_back_under_its_number_ends_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.cvat.xml");
        let mut sink = Cvat::new(path.to_str().unwrap()).unwrap();
        sink.begin(&samples::run(&[]), &samples::format()).unwrap();
        for frame in 0..9 {
            let is_there = matches!(frame, 0..=1 | 4..=5);
            let tracks = if is_there { vec![samples::track(1, TrackState::Tracked)] } else { Vec::new() };
            samples::deliver(&mut sink, FrameRecord { frame, tracks, ..FrameRecord::default() }).unwrap();
        }
        sink.finish(&Summary::default()).unwrap();
        let xml = std::fs::read_to_string(path).unwrap();
        let keys: Vec<_> = xml.lines().filter_map(|line| line.trim().strip_prefix("<box frame=\"")).collect();
        let keys: Vec<_> =
            keys.iter().map(|key| (key.split('"').next().unwrap(), key.contains("outside=\"1\""))).collect();
        assert_eq!(keys, [("0", false), ("1", false), ("2", true), ("4", false), ("5", false), ("6", true)]);
    }

    #[test]
    fn a_label_is_the_name_of_a_template_whatever_is_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.cvat.xml");
        let mut sink = Cvat::new(path.to_str().unwrap()).unwrap();
        sink.begin(&samples::run(&[]), &samples::format()).unwrap();
        let template = Some("<a> & \"b\"\u{1}".into());
        let track = Track { template, ..samples::track(7, TrackState::Tracked) };
        samples::deliver(&mut sink, FrameRecord { tracks: vec![track], ..FrameRecord::default() }).unwrap();
        sink.finish(&Summary::default()).unwrap();
        let xml = std::fs::read_to_string(path).unwrap();
        assert!(xml.contains("<track id=\"7\" label=\"&lt;a&gt; &amp; &quot;b&quot;\u{fffd}\""), "{xml}");
    }
}
