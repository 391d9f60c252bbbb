//! COCO: one JSON object with `images`, `annotations` and `categories`, which CVAT and `pycocotools` read.
//!
//! Each frame is an image. Its `file_name` is that of the picture that the frame came from, relative to its
//! folder; a frame of a video is named `frame_000012.PNG`, as CVAT names them. Its `id` is one more than the
//! frame's number, and `frame` that number. Each track that is not lost is an annotation with its `score` and
//! its `track_id`, beside which CVAT reads the `attributes`. A run that follows nothing has its matches
//! instead, without a `track_id`. Objects of masks are annotations too, without a `score`. A category is a
//! template or a class; tracks of boxes that were given are `object`, and so are objects of masks.
//!
//! `segmentation` is empty for tracks and matches. For an object of a mask it has the object's pixels,
//! without its holes, in COCO's run-length encoding: polygons cannot have holes.
//!
//! Annotations are written as they come, so little of a run is kept. T.-Y. Lin et al., "Microsoft COCO:
//! Common Objects in Context", 2014; the format: cocodataset.org.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use crate::config::ObjectSpec;
use crate::error::{Error, Result};
use crate::files::{self, Successor};
use crate::frame::{Size, VideoFormat};
use crate::ports::{Delivery, Sink};
use crate::results::{Event, RunRecord, Summary, Track, TrackState};

use super::OBJECT;
use super::regions::Regions;

/// Tracks, or matches if nothing is followed; and objects.
pub(super) struct Coco {
    path: String,
    /// None before the run has begun, and after a failure.
    file: Option<Successor>,
    has_begun: bool,
    has_tracks: bool,
    images: Vec<Images>,
    /// Names of pictures, one for each image; empty for a video.
    names: Vec<Arc<str>>,
    categories: Vec<String>,
    annotations: u64,
    lines: Vec<u8>,
    /// How objects of the next frame are found.
    objects: Option<ObjectSpec>,
    regions: Regions,
}

/// Frames of one size whose numbers are one distance apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Images {
    first: u64,
    step: u64,
    count: u64,
    size: Size,
}

impl Images {
    /// Takes the next frame in, if it is another of these.
    fn take(&mut self, frame: u64, size: Size) -> bool {
        let step = if self.count == 1 { frame - self.first } else { self.step };
        let is_next = self.size == size && frame == self.first + self.count * step;
        if is_next {
            (self.step, self.count) = (step, self.count + 1);
        }
        is_next
    }
}

#[derive(Serialize)]
struct Info<'a> {
    description: &'a str,
    version: &'a str,
}

#[derive(Serialize)]
struct Image {
    id: u64,
    file_name: String,
    width: usize,
    height: usize,
    frame: u64,
}

#[derive(Serialize)]
struct Annotation {
    id: u64,
    image_id: u64,
    category_id: usize,
    bbox: [f64; 4],
    area: f64,
    segmentation: Segmentation,
    iscrowd: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    track_id: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attributes: Option<Attributes>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Segmentation {
    None([(); 0]),
    /// Height and width of the image, and [`Regions::encoded`].
    Runs {
        size: [usize; 2],
        counts: String,
    },
}

/// The attributes from which CVAT makes tracks.
#[derive(Serialize)]
struct Attributes {
    track_id: u32,
    keyframe: bool,
    occluded: bool,
}

impl Attributes {
    fn of(track: &Track) -> Self {
        Self { track_id: track.id, keyframe: true, occluded: false }
    }
}

#[derive(Serialize)]
struct Category<'a> {
    id: usize,
    name: &'a str,
    supercategory: &'static str,
}

impl Coco {
    pub(super) fn new(path: &str) -> Result<Self> {
        files::check_writable(Path::new(path))?;
        Ok(Self {
            path: path.to_owned(),
            file: None,
            has_begun: false,
            has_tracks: false,
            images: Vec::new(),
            names: Vec::new(),
            categories: Vec::new(),
            annotations: 0,
            lines: Vec::new(),
            objects: None,
            regions: Regions::default(),
        })
    }

    /// The number of a category, from 1 on.
    fn category(&mut self, name: &str) -> usize {
        let known = self.categories.iter().position(|known| known == name);
        1 + known.unwrap_or_else(|| {
            self.categories.push(name.to_owned());
            self.categories.len() - 1
        })
    }

    fn annotate(
        &mut self,
        frame: u64,
        name: &str,
        bbox: [f64; 4],
        score: f64,
        track: Option<&Track>,
    ) -> Result<()> {
        let annotation = Annotation {
            // Set below.
            id: 0,
            image_id: frame + 1,
            category_id: self.category(name),
            bbox,
            area: bbox[2] * bbox[3],
            segmentation: Segmentation::None([]),
            iscrowd: 0,
            score: Some(score),
            track_id: track.map(|track| track.id),
            state: track.map(|track| track.state.name()),
            attributes: track.map(Attributes::of),
        };
        self.add(annotation)
    }

    /// Annotates the objects of a frame.
    fn annotate_objects(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        let Some(objects) = &delivery.record.objects else { return Ok(()) };
        // Frames that were in flight when objects began to be reported may have no mask.
        let mask = delivery.mask.filter(|_| !objects.is_empty());
        if let Some((mask, spec)) = mask.zip(self.objects) {
            self.regions.read(mask.plane(0), &spec);
        }
        let Size { width, height } = delivery.frame.format.size;
        for (number, object) in (1..).zip(objects) {
            let mut tracks = delivery.record.tracks.iter().filter(|track| track.object == Some(number));
            // Several have merged.
            let track = tracks.next().filter(|_| tracks.next().is_none());
            let counts = mask.and_then(|_| self.regions.encoded(object.rect()));
            let runs = |counts| Segmentation::Runs { size: [height, width], counts };
            let annotation = Annotation {
                id: 0,
                image_id: delivery.record.frame + 1,
                category_id: self.category(OBJECT),
                bbox: object.rect().bounds(),
                area: object.area as f64,
                segmentation: counts.map_or(Segmentation::None([]), runs),
                iscrowd: 0,
                score: None,
                track_id: track.map(|track| track.id),
                state: track.map(|track| track.state.name()),
                attributes: track.map(Attributes::of),
            };
            self.add(annotation)?;
        }
        Ok(())
    }

    fn add(&mut self, annotation: Annotation) -> Result<()> {
        self.annotations += 1;
        let annotation = Annotation { id: self.annotations, ..annotation };
        self.lines.extend_from_slice(if self.annotations == 1 { b"\n" } else { b",\n" });
        serde_json::to_writer(&mut self.lines, &annotation).map_err(|error| self.failure(&error))
    }

    /// Returns the JSON after the annotations.
    fn end(&self) -> serde_json::Result<Vec<u8>> {
        let mut end = b"\n],\"images\":[".to_vec();
        let frames = self.images.iter().flat_map(|images| {
            (0..images.count).map(move |index| (images.first + index * images.step, images.size))
        });
        for (index, (frame, Size { width, height })) in frames.enumerate() {
            end.extend_from_slice(if index == 0 { b"\n" } else { b",\n" });
            let name = self.names.get(index);
            let file_name = name.map_or_else(|| format!("frame_{frame:06}.PNG"), ToString::to_string);
            serde_json::to_writer(&mut end, &Image { id: frame + 1, file_name, width, height, frame })?;
        }
        end.extend_from_slice(b"\n],\"categories\":");
        let category = |(index, name)| Category { id: index + 1, name, supercategory: "" };
        let categories: Vec<_> =
            self.categories.iter().map(String::as_str).enumerate().map(category).collect();
        serde_json::to_writer(&mut end, &categories)?;
        end.extend_from_slice(b"}\n");
        Ok(end)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(bytes).map_err(|error| {
            // This also drops the data that was written.
            self.file = None;
            self.failure(&error)
        })
    }

    fn failure(&self, error: &dyn std::fmt::Display) -> Error {
        Error::Output { name: self.path.clone(), reason: error.to_string() }
    }
}

impl Sink for Coco {
    fn name(&self) -> &str {
        &self.path
    }

    fn files(&self) -> Vec<PathBuf> {
        // A run that never began leaves the one of before.
        if self.has_begun { vec![PathBuf::from(&self.path)] } else { Vec::new() }
    }

    fn wants_mask(&self) -> bool {
        // Asked before it is known whether objects are reported.
        true
    }

    fn begin(&mut self, run: &RunRecord, _: &VideoFormat) -> Result<()> {
        self.objects = run.objects;
        self.has_tracks = !run.tracks.is_empty() || run.track_matches || run.track_objects;
        // Templates have the same numbers in all videos that are searched for them.
        for template in &run.templates {
            self.category(&template.name);
        }
        self.file = Some(Successor::begin(Path::new(&self.path)).map_err(|error| self.failure(&error))?);
        self.has_begun = true;
        let info = Info { description: &run.input, version: run.version };
        let info = serde_json::to_string(&info).map_err(|error| self.failure(&error))?;
        self.write(format!("{{\"info\":{info},\"licenses\":[],\"annotations\":[").as_bytes())
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        let (record, size) = (delivery.record, delivery.frame.format.size);
        if !self.images.last_mut().is_some_and(|images| images.take(record.frame, size)) {
            self.images.push(Images { first: record.frame, step: 1, count: 1, size });
        }
        self.names.extend(record.picture.clone());
        self.lines.clear();
        self.has_tracks |= !record.tracks.is_empty();
        if self.has_tracks {
            // An object's annotation has its track, unless several have merged in it.
            let shares = |track: &Track| {
                let same = record.tracks.iter().filter(|other| other.object == track.object);
                track.object.is_some() && same.count() > 1
            };
            let has_own =
                |track: &&Track| track.state != TrackState::Lost && (track.object.is_none() || shares(track));
            for track in record.tracks.iter().filter(has_own) {
                let name = track.label().map_or(OBJECT, |label| label);
                self.annotate(record.frame, name, track.bounds(), track.score, Some(track))?;
            }
        } else {
            for found in &record.matches {
                self.annotate(record.frame, &found.template, found.bounds(), found.score, None)?;
            }
        }
        self.annotate_objects(delivery)?;
        let lines = std::mem::take(&mut self.lines);
        let written = self.write(&lines);
        self.lines = lines;
        written
    }

    fn note(&mut self, event: &Event) -> Result<()> {
        if let Event::Control { search: Some(search), .. } = event {
            self.objects = search.objects;
        }
        Ok(())
    }

    fn finish(&mut self, _: &Summary) -> Result<()> {
        if self.file.is_none() {
            return Ok(());
        }
        let end = self.end().map_err(|error| self.failure(&error))?;
        self.write(&end)?;
        let file = self.file.take().expect("it was written to");
        file.finish().map_err(|error| self.failure(&error))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::output::samples;

    fn written(tracks: &[&str]) -> Value {
        serde_json::from_str(&samples::written(".coco.json", tracks)).unwrap()
    }

    #[test]
    fn tracks_are_annotations_of_frames_and_lost_ones_are_left_out() {
        let coco = written(&["1,2,3,4@0"]);
        let image = |frame: u64| {
            let file_name = format!("frame_00000{frame}.PNG");
            json!({"id": frame + 1, "file_name": file_name, "width": 5, "height": 3, "frame": frame})
        };
        assert_eq!(coco["images"], json!([image(0), image(2)]));
        assert_eq!(coco["categories"], json!([{"id": 1, "name": "object", "supercategory": ""}]));
        assert_eq!(coco["annotations"].as_array().unwrap().len(), 2);
        assert_eq!(
            coco["annotations"][1],
            json!({
                "id": 2, "image_id": 1, "category_id": 1, "bbox": [-0.5, 2.25, 4.0, 3.0], "area": 12.0,
                "segmentation": [], "iscrowd": 0, "score": 0.5, "track_id": 3, "state": "uncertain",
                "attributes": {"track_id": 3, "keyframe": true, "occluded": false},
            })
        );
        assert_eq!(coco["info"]["description"], "a \"quoted\" name.mp4");
    }

    #[test]
    fn objects_are_annotations_with_their_pixels() {
        let coco: Value =
            serde_json::from_str(&samples::written_with_objects(".coco.json", ObjectSpec::default()))
                .unwrap();
        let annotations = coco["annotations"].as_array().unwrap();
        assert_eq!(annotations.len(), 3, "a track and two objects: {annotations:?}");
        assert_eq!(
            annotations[1],
            json!({
                "id": 2, "image_id": 1, "category_id": 1, "bbox": [0.0, 0.0, 3.0, 3.0], "area": 8.0,
                "segmentation": {"size": [3, 5], "counts": "04105"}, "iscrowd": 0,
            })
        );
        assert_eq!(annotations[2]["segmentation"], json!({"size": [3, 5], "counts": ">1"}));
    }

    #[test]
    fn tracks_that_share_an_object_have_annotations_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.coco.json");
        let mut sink = Coco::new(path.to_str().unwrap()).unwrap();
        sink.begin(&samples::run(&[]), &samples::format()).unwrap();
        let object = crate::results::Object { w: 2, h: 2, area: 4, ..Default::default() };
        let of = |id, object| Track { object: Some(object), ..samples::track(id, TrackState::Uncertain) };
        let tracks = vec![of(1, 1), of(2, 1), of(3, 2)];
        let objects = Some(vec![object; 2]);
        let record = crate::results::FrameRecord { tracks, objects, ..Default::default() };
        samples::deliver(&mut sink, record).unwrap();
        sink.finish(&Summary::default()).unwrap();
        let coco: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let ids = coco["annotations"].as_array().unwrap().iter().map(|annotation| &annotation["track_id"]);
        assert_eq!(ids.collect::<Vec<_>>(), [&json!(1), &json!(2), &Value::Null, &json!(3)]);
    }

    #[test]
    fn frames_are_kept_as_runs_of_equal_steps() {
        let size = Size::new(5, 3);
        let mut images = Images { first: 10, step: 1, count: 1, size };
        assert!(images.take(13, size) && images.take(16, size));
        assert_eq!(images, Images { first: 10, step: 3, count: 3, size });
        assert!(!images.take(20, size) && !images.take(19, Size::new(6, 3)));
        assert!(images.take(19, size));
    }

    #[test]
    fn a_run_in_which_nothing_was_found_is_whole_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.coco.json");
        let mut sink = Coco::new(path.to_str().unwrap()).unwrap();
        sink.begin(&samples::run(&[]), &samples::format()).unwrap();
        sink.finish(&Summary::default()).unwrap();
        let coco: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        assert_eq!((&coco["images"], &coco["annotations"]), (&json!([]), &json!([])));
    }
}
