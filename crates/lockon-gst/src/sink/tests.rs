//! Real pipelines, from frames in memory to files that are played again.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gst::prelude::*;
use gst_video::prelude::*;

use super::containers::{CONTAINERS, Container};
use super::playing::{HURRY, LAST_CALL, PATIENCE, POLL, TO_STOP};
use super::progress::{Patience, PipelineProgress};
use super::screen::{DISPLAY, REMEDY, has_screen};
use super::timeline::{Timeline, Timestamps};
use super::worker::running_time;
use super::*;
use crate::launch::Running;
use lockon_core::frame::{
    Chroma, Circumstances, Frame, FrameMeta, Picture, PixelFormat, Plane, PlaneRef, Rect, Size,
};
use lockon_core::overlay::Way;
use lockon_core::results::{FrameRecord, Track, TrackState};

/// A picture in memory, with padding after each row, as decoders have it.
struct Still {
    planes: Vec<(Plane, Size)>,
}

const PADDING: usize = 5;

impl Picture for Still {
    fn plane(&self, index: usize) -> PlaneRef<'_> {
        let (plane, size) = &self.planes[index];
        PlaneRef::new(plane.data(), *size, size.width + PADDING)
    }
}

/// Luma of frame `index`, far enough from its neighbours' to survive an encoder.
fn level(index: usize) -> u8 {
    60 + 40 * (index % 4) as u8
}

/// Frame `index`: even grey of its level, without colour.
pub(crate) fn frame(index: usize, format: &Arc<VideoFormat>, pts_ns: Option<u64>) -> Frame {
    let planes = (0..format.pixels.planes())
        .map(|i| {
            let size = format.pixels.plane_size(i, format.size);
            let stored = Size::new(size.width + PADDING, size.height);
            let value = if i == 0 { level(index) } else { 128 };
            (Plane::from_vec(vec![value; stored.area()], stored), size)
        })
        .collect();
    let meta = FrameMeta { index: index as u64, pts_ns, duration_ns: None, arrived: Instant::now() };
    Frame {
        meta,
        circumstances: Circumstances::default(),
        format: format.clone(),
        picture: Arc::new(Still { planes }),
    }
}

pub(crate) fn format(name: &str, width: usize, height: usize, frame_rate: (i32, i32)) -> Arc<VideoFormat> {
    Arc::new(VideoFormat {
        size: Size::new(width, height),
        pixels: PixelFormat::from_name(name).unwrap(),
        frame_rate,
        pixel_aspect: (1, 1),
        colorimetry: None,
    })
}

pub(crate) fn run_record() -> RunRecord {
    RunRecord {
        version: "",
        input: String::new(),
        width: 0,
        height: 0,
        frame_rate: 0.0,
        format: "",
        backend: "",
        device: String::new(),
        driver: None,
        decoder: None,
        pictures: false,
        started: 0,
        templates: Vec::new(),
        search: None,
        tracks: Vec::new(),
        track_matches: false,
        track_objects: false,
        threshold: None,
        objects: None,
        range: None,
        settings: None,
        command: None,
        gap: lockon_core::config::TimeSpan::default(),
        hides: false,
    }
}

pub(crate) fn deliver(sink: &mut VideoSink, frame: &Frame) -> Result<()> {
    sink.deliver(&Delivery { frame, record: &Arc::default(), mask: None })
}

/// Hands over frames with these times.
pub(crate) fn begin_and_deliver(
    sink: &mut VideoSink,
    format: &Arc<VideoFormat>,
    times: &[u64],
) -> Result<()> {
    sink.begin(&run_record(), format)?;
    times.iter().enumerate().try_for_each(|(i, &t)| deliver(sink, &frame(i, format, Some(t))))
}

/// Writes frames with these times.
pub(crate) fn write(sink: &mut VideoSink, format: &Arc<VideoFormat>, times: &[u64]) -> Result<()> {
    let delivered = begin_and_deliver(sink, format, times);
    let finished = sink.finish(&Summary::default());
    delivered.and(finished)
}

pub(crate) fn constant(frames: u64, (n, d): (u64, u64)) -> Vec<u64> {
    (0..frames).map(|i| i * d * 1_000_000_000 / n).collect()
}

pub(crate) struct Decoded {
    pub(crate) pts: u64,
    size: Size,
    /// Mean luma.
    mean: f64,
    luma: Vec<u8>,
    caps: String,
}

/// A frame of stripes, 2 pixels wide each.
pub(crate) fn stripes(index: usize, format: &Arc<VideoFormat>) -> Frame {
    let planes = (0..format.pixels.planes()).map(|i| {
        let size = format.pixels.plane_size(i, format.size);
        let stored = Size::new(size.width + PADDING, size.height);
        let luma = |at: usize| if at % stored.width % 4 < 2 { 40 } else { 200 };
        let value = |at| if i == 0 { luma(at) } else { 128 };
        (Plane::from_vec((0..stored.area()).map(value).collect(), stored), size)
    });
    let picture = Arc::new(Still { planes: planes.collect() });
    Frame { picture, ..frame(index, format, Some(index as u64 * 40_000_000)) }
}

/// The difference between the brightest and the darkest pixel of a part, in each frame of a file.
pub(crate) fn contrasts(path: &Path, part: Rect) -> Vec<u8> {
    let contrast = |frame: &Decoded| {
        let rows = frame.luma.chunks(frame.size.width).skip(part.y).take(part.h);
        let pixels: Vec<u8> = rows.flat_map(|row| row[part.x..part.x + part.w].to_vec()).collect();
        pixels.iter().max().unwrap() - pixels.iter().min().unwrap()
    };
    decode(path).iter().map(contrast).collect()
}

/// Track 1 in a frame: lost, uncertain or sure at that place, 32 pixels wide and high.
pub(crate) fn track_in(index: usize, state: TrackState, [x, y]: [f64; 2]) -> FrameRecord {
    let track = Track { id: 1, name: Some("one".into()), state, x, y, w: 32.0, h: 32.0, ..Track::default() };
    let (frame, pts_ns) = (index as u64, Some(index as u64 * 40_000_000));
    FrameRecord { frame, pts_ns, tracks: vec![track], ..FrameRecord::default() }
}

#[test]
fn a_lost_track_stays_hidden_in_the_file_that_frames_of_another_size_begin() {
    launch::init().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let hiding = Hiding::new(vec![("one".parse().unwrap(), Way::Pixelate)]);
    let mut sink = VideoSink::file(&dir.path().join("a.mkv"), View::Overlay, None).unwrap();
    sink = sink.plain().hiding(hiding);
    let formats = [format("I420", 160, 120, (25, 1)), format("I420", 320, 240, (25, 1))];
    sink.begin(&run_record(), &formats[0]).unwrap();
    for (index, format) in formats.iter().enumerate() {
        let state = [TrackState::Tracked, TrackState::Lost][index];
        let record = Arc::new(track_in(index, state, [[32.0, 32.0], [200.0, 40.0]][index]));
        sink.deliver(&Delivery { frame: &stripes(index, format), record: &record, mask: None }).unwrap();
    }
    sink.finish(&Summary::default()).unwrap();
    let files = sink.files();
    assert_eq!(files.len(), 2);
    let sure = [Rect::new(36, 36, 24, 24), Rect::new(72, 72, 48, 48)];
    for (file, part) in files.iter().zip(sure) {
        let contrasts = contrasts(file, part);
        assert!(contrasts.len() == 1 && contrasts[0] < 60, "{}: {contrasts:?}", file.display());
    }
}

/// Plays a file as other programs would.
pub(crate) fn decode(path: &Path) -> Vec<Decoded> {
    let mut launch = Launch::new(
        "test",
        "filesrc name=in ! decodebin ! video/x-raw ! queue ! appsink name=out sync=false",
    );
    launch.set("in", "location", path.display());
    let pipeline = Running::new(launch.build().unwrap());
    let out = pipeline.pipeline().by_name("out").and_downcast::<gst_app::AppSink>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let mut frames = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !out.is_eos() {
        // A file without an index makes the demuxer wait for ever.
        assert!(Instant::now() < deadline, "{} does not play", path.display());
        let sample = out.try_pull_sample(gst::ClockTime::from_mseconds(100));
        // The end must be one, not a failure.
        pipeline.wait(Duration::ZERO).unwrap();
        let Some(sample) = sample else { continue };
        let info = gst_video::VideoInfo::from_caps(sample.caps().unwrap()).unwrap();
        let buffer = sample.buffer().unwrap();
        let picture = gst_video::VideoFrameRef::from_buffer_ref_readable(buffer, &info).unwrap();
        let size = Size::new(info.width() as usize, info.height() as usize);
        let luma = PlaneRef::new(picture.plane_data(0).unwrap(), size, picture.plane_stride()[0] as usize);
        let sum: u64 = luma.rows().flatten().map(|&v| u64::from(v)).sum();
        frames.push(Decoded {
            // As it is in the file: the segment would count from the first frame.
            pts: buffer.pts().unwrap().nseconds(),
            size,
            mean: sum as f64 / size.area() as f64,
            luma: luma.rows().flatten().copied().collect(),
            caps: sample.caps().unwrap().to_string(),
        });
    }
    frames
}

/// Every frame is there, with its picture, within `precision` of its time.
fn assert_frames(decoded: &[Decoded], times: &[u64], precision: u64, what: &str) {
    assert_eq!(decoded.len(), times.len(), "{what}: number of frames");
    for (i, (frame, &time)) in decoded.iter().zip(times).enumerate() {
        assert!(
            frame.pts.abs_diff(time) <= precision,
            "{what}: frame {i} at {} instead of {time}",
            frame.pts
        );
        assert!(
            (frame.mean - f64::from(level(i))).abs() < 6.0,
            "{what}: frame {i} is of grey {}",
            frame.mean
        );
    }
}

fn precision(extension: &str) -> u64 {
    match extension {
        "mp4" => 1_500,
        "mkv" => 50_000,
        "webm" => 500_000,
        // AVI's rate is a fraction of whole microseconds.
        _ => 20_000,
    }
}

#[test]
fn output_has_every_frame_at_its_pts() {
    let folder = tempfile::tempdir().unwrap();
    let format = format("I420", 128, 96, (30_000, 1001));
    let times = constant(50, (30_000, 1001));
    for Container { extension, .. } in CONTAINERS {
        let path = folder.path().join("out").with_extension(extension);
        let mut sink = VideoSink::file(&path, View::Overlay, None).unwrap();
        write(&mut sink, &format, &times).unwrap();
        let decoded = decode(&path);
        assert_frames(&decoded, &times, precision(extension), extension);
        assert!(decoded[0].caps.contains("framerate=(fraction)30000/1001"), "{}", decoded[0].caps);
    }
}

#[test]
fn variable_frame_rate_keeps_its_times() {
    let folder = tempfile::tempdir().unwrap();
    let format = format("NV12", 128, 96, (0, 1));
    // From 80 ms on, irregular, two frames 1 ms apart, one gap of 2 s.
    let times: Vec<u64> = [80, 113, 114, 180, 2180, 2190, 2300].map(|ms| ms * 1_000_000).to_vec();
    for extension in ["mp4", "mkv", "webm"] {
        let path = folder.path().join("out").with_extension(extension);
        let mut sink = VideoSink::file(&path, View::Overlay, None).unwrap();
        write(&mut sink, &format, &times).unwrap();
        // MP4 begins where its first track does.
        let begin = if extension == "mp4" { times[0] } else { 0 };
        let expected: Vec<u64> = times.iter().map(|t| t - begin).collect();
        assert_frames(&decode(&path), &expected, precision(extension), extension);
    }
    let path = folder.path().join("out.avi");
    let mut sink = VideoSink::file(&path, View::Overlay, None).unwrap();
    let error = write(&mut sink, &format, &times).unwrap_err().to_string();
    assert!(error.contains("out.avi: AVI needs a constant frame rate"), "{error}");
}

#[test]
fn odd_sizes_are_playable() {
    let folder = tempfile::tempdir().unwrap();
    let times = constant(8, (25, 1));
    for name in ["I420", "NV12", "Y444", "GRAY8"] {
        for Container { extension, needs_even_size, .. } in CONTAINERS {
            let format = format(name, 123, 33, (25, 1));
            let path = folder.path().join(name).with_extension(extension);
            let mut sink = VideoSink::file(&path, View::Overlay, None).unwrap();
            write(&mut sink, &format, &times).unwrap();
            let decoded = decode(&path);
            assert_frames(&decoded, &times, precision(extension), extension);
            let expected = if needs_even_size { Size::new(124, 34) } else { Size::new(123, 33) };
            assert_eq!(decoded[0].size, expected, "{name} {extension}");
        }
    }
}

#[test]
fn every_pixel_format_becomes_8_bit_420() {
    let folder = tempfile::tempdir().unwrap();
    let times = constant(6, (25, 1));
    for pixels in PixelFormat::ALL {
        for extension in ["mkv", "webm"] {
            let format = format(pixels.name, 64, 48, (25, 1));
            let path = folder.path().join(pixels.name).with_extension(extension);
            let mut sink = VideoSink::file(&path, View::Overlay, None).unwrap();
            write(&mut sink, &format, &times).unwrap();
            let decoded = decode(&path);
            assert_frames(&decoded, &times, precision(extension), pixels.name);
            assert!(
                ["I420", "NV12", "YV12"]
                    .iter()
                    .any(|f| decoded[0].caps.contains(&format!("format=(string){f}"))),
                "{}: {}",
                pixels.name,
                decoded[0].caps
            );
        }
    }
}

#[test]
fn what_follows_a_track_is_that_part_of_the_frame_in_every_pixel_format() {
    launch::init().unwrap();
    for pixels in PixelFormat::ALL {
        // Odd, so that chroma is not half of luma.
        let format = format(pixels.name, 201, 103, (25, 1));
        let planes: Vec<_> = (0..pixels.planes())
            .map(|index| {
                let size = pixels.plane_size(index, format.size);
                let stored = Size::new(size.width + PADDING, size.height);
                let value = |at: usize| (at * 31 % 241 + 3 * index) as u8;
                (Plane::from_vec((0..stored.area()).map(value).collect(), stored), size)
            })
            .collect();
        let picture = Arc::new(Still { planes });
        let frame = Frame { picture: picture.clone(), ..frame(0, &format, Some(0)) };
        let track = Track { id: 1, x: 90.0, y: 40.0, w: 20.0, h: 20.0, ..Track::default() };
        let record = FrameRecord { tracks: vec![track], ..FrameRecord::default() };
        // From 64, 32 on: whole samples of all chroma.
        let crop = Crop::new("72x36".parse().unwrap(), 1.0);
        let shows = painter::Shows { crop: Some(crop), ..painter::Shows::default() };
        let mut painter = Painter::with(&format, View::Overlay, true, &shows).unwrap();
        let buffer =
            painter.paint(&frame, &record, &[], &[], None, Timestamps { pts: 0, duration: 0 }).unwrap();
        let info = &painter.info;
        assert_eq!((info.width(), info.height()), (72, 36));
        let shown = gst_video::VideoFrameRef::from_buffer_ref_readable(&buffer, info).unwrap();
        for index in 0..pixels.planes() {
            let (x_shift, y_shift) = if index == 0 { (0, 0) } else { (pixels.x_shift, pixels.y_shift) };
            let bytes = if index > 0 && matches!(pixels.chroma, Chroma::Interleaved { .. }) { 2 } else { 1 };
            let size = pixels.plane_size(index, Size::new(72, 36));
            let part = Rect::new((64 >> x_shift) * bytes, 32 >> y_shift, size.width, size.height);
            let expected = picture.plane(index).crop(part);
            let stride = shown.plane_stride()[index] as usize;
            let painted = PlaneRef::new(shown.plane_data(index as u32).unwrap(), size, stride);
            assert!(painted.rows().eq(expected.rows()), "plane {index} of {}", pixels.name);
        }
    }
}

#[test]
fn zones_are_drawn_and_orders_move_and_remove_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("raw");
    let text = format!("appsrc name=results ! filesink location={}", path.display());
    let zone = |text: &str| text.parse::<Zone>().unwrap();
    let mut sink = VideoSink::user(&text, View::Overlay, false)
        .unwrap()
        .with_zones(vec![zone("a=16,80,60,80,60,100,16,100")]);
    let format = format("I420", 160, 120, (25, 1));
    let order = |order: Order, refused: Option<&str>| Event::Control {
        frame: 1,
        order,
        refused: refused.map(str::to_owned),
        search: None,
    };
    let orders = [
        None,
        Some(order(Order::Zone { zone: zone("a=96,80,140,80,140,100,96,100") }, None)),
        Some(order(Order::RemoveZone { name: "a".into() }, Some("as before"))),
        Some(order(Order::RemoveZone { name: "a".into() }, None)),
    ];
    sink.begin(&run_record(), &format).unwrap();
    for (index, order) in orders.iter().enumerate() {
        if let Some(order) = order {
            sink.note(order).unwrap();
        }
        deliver(&mut sink, &frame(index, &format, Some(index as u64 * 40_000_000))).unwrap();
    }
    sink.finish(&Summary::default()).unwrap();
    let written = std::fs::read(&path).unwrap();
    let pictures: Vec<_> = written.chunks_exact(160 * 120 * 3 / 2).collect();
    assert_eq!(pictures.len(), 4);
    // Whether something is drawn along the lower edge of the zone where it was, and where it is.
    let drawn = |index: usize, columns: std::ops::Range<usize>| {
        pictures[index][100 * 160..][columns].iter().any(|&luma| luma != level(index))
    };
    let seen: Vec<_> = (0..4).map(|index| (drawn(index, 20..56), drawn(index, 100..136))).collect();
    assert_eq!(seen, [(true, false), (false, true), (false, true), (false, false)]);
}

#[test]
fn pixel_aspect_and_colours_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut format = VideoFormat::clone(&format("I420", 96, 64, (25, 1)));
    format.pixel_aspect = (4, 3);
    format.colorimetry = Some("bt709".to_owned());
    let format = Arc::new(format);
    for extension in ["mp4", "mkv", "webm"] {
        let path = folder.path().join("out").with_extension(extension);
        let mut sink = VideoSink::file(&path, View::Overlay, None).unwrap();
        write(&mut sink, &format, &constant(5, (25, 1))).unwrap();
        let caps = decode(&path).remove(0).caps;
        assert!(caps.contains("pixel-aspect-ratio=(fraction)4/3"), "{extension}: {caps}");
        assert!(caps.contains("colorimetry=(string)bt709"), "{extension}: {caps}");
    }
}

#[test]
fn missing_times_follow_the_frame_rate() {
    let mut times = Timeline::new((25, 1), false, None);
    let meta = |pts_ns| FrameMeta { index: 0, pts_ns, duration_ns: None, arrived: Instant::now() };
    let mut pts = |given| times.next(&meta(given), || None).pts / 1_000_000;
    assert_eq!([pts(None), pts(None), pts(Some(90_000_000)), pts(None)], [0, 40, 90, 120]);
    let mut times = Timeline::new((0, 1), false, None);
    let last = [None, None].map(|given| times.next(&meta(given), || None))[1];
    assert_eq!(last, Timestamps { pts: 40_000_000, duration: 40_000_000 });
}

#[test]
fn what_is_watched_is_never_late() {
    let mut times = Timeline::new((25, 1), true, None);
    let meta = |ms: u64| FrameMeta {
        index: 0,
        pts_ns: Some(ms * 1_000_000),
        duration_ns: None,
        arrived: Instant::now(),
    };
    let mut shown = |own: u64, now: Option<u64>| {
        times.next(&meta(own), || now.map(gst::ClockTime::from_mseconds)).pts / 1_000_000
    };
    // Starts at once; keeps its pace while the clock has not passed it; a late frame moves those after it.
    assert_eq!(shown(5000, None), 0);
    assert_eq!(shown(5040, Some(10)), 40);
    assert_eq!(shown(5080, Some(100)), 100);
    assert_eq!(shown(5120, Some(110)), 140);
}

#[test]
fn unknown_extension_is_refused() {
    for name in ["out.gif", "out", "mp4", "out.mp4.part"] {
        let error = VideoSink::file(Path::new(name), View::Overlay, None).err().unwrap();
        assert!(error.is_usage() && error.to_string().contains(".mp4, .mkv, .avi, .webm"), "{error}");
    }
    assert!(file_launch(Path::new("OUT.MP4"), Codec::Auto).is_ok());
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_before_the_video_starts() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing/out.mp4");
    let error = VideoSink::file(&missing, View::Overlay, None).err().unwrap();
    assert!(matches!(&error, Error::File { path, .. } if *path == missing), "{error}");
    let taken = folder.path().join("folder.mp4");
    std::fs::create_dir(&taken).unwrap();
    assert!(VideoSink::file(&taken, View::Overlay, None).is_err());

    // Neither opening nor a run without frames leaves anything behind.
    let path = folder.path().join("out.mp4");
    let mut sink = VideoSink::file(&path, View::Overlay, None).unwrap();
    assert!(!path.exists());
    write(&mut sink, &format("I420", 64, 48, (25, 1)), &[]).unwrap();
    assert!(!path.exists());
}

#[test]
fn a_full_disk_is_an_error_not_a_hang() {
    let started = Instant::now();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full.mkv");
    if std::os::unix::fs::symlink("/dev/full", &path).is_err() || !Path::new("/dev/full").exists() {
        crate::test_log::skipped("there is no /dev/full");
        return;
    }
    let mut sink = VideoSink::file(&path, View::Overlay, None).unwrap();
    let error = write(&mut sink, &format("I420", 64, 48, (25, 1)), &constant(2000, (25, 1))).unwrap_err();
    assert!(matches!(&error, Error::Output { name, .. } if name.ends_with("full.mkv")), "{error}");
    assert!(error.to_string().to_lowercase().contains("space"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_pipeline_that_fails_while_appsrc_is_full_is_noticed() {
    // The queue of appsrc is full by the time `identity` fails, and nothing empties it any more.
    let text = "appsrc name=results ! identity sleep-time=20000 error-after=5 ! fakesink";
    let mut sink = VideoSink::user(text, View::Overlay, false).unwrap();
    let error = write(&mut sink, &format("I420", 64, 48, (25, 1)), &constant(100, (25, 1))).unwrap_err();
    assert!(error.to_string().contains("output --sink: identity"), "{error}");
}

#[test]
fn frames_that_change_go_on_in_another_file() {
    let folder = tempfile::tempdir().unwrap();
    let times = constant(30, (25, 1));
    for extension in ["mp4", "avi"] {
        let path = |name: &str| folder.path().join(name).with_extension(extension);
        // A file of the user's that the run does not name.
        std::fs::write(path("out-2"), "kept").unwrap();
        let mut sink = VideoSink::file(&path("out"), View::Overlay, None).unwrap();
        let formats = [
            format("I420", 64, 48, (25, 1)),
            format("I420", 48, 64, (25, 1)),
            format("NV12", 48, 64, (25, 1)),
        ];
        sink.begin(&run_record(), &formats[0]).unwrap();
        for (i, &t) in times.iter().enumerate() {
            deliver(&mut sink, &frame(i, &formats[i / 10], Some(t))).unwrap();
        }
        sink.finish(&Summary::default()).unwrap();
        assert_eq!(std::fs::read(path("out-2")).unwrap(), b"kept");
        for (name, size) in
            [("out", Size::new(64, 48)), ("out-3", Size::new(48, 64)), ("out-4", Size::new(48, 64))]
        {
            let decoded = decode(&path(name));
            assert_eq!((decoded.len(), decoded[0].size), (10, size), "{name}.{extension}");
        }
    }
}

#[test]
fn a_pipeline_of_the_users_is_told_of_frames_that_change() {
    let folder = tempfile::tempdir().unwrap();
    // MJPEG in Matroska does not mind its pictures' size.
    let path = folder.path().join("out.mkv");
    let text = format!(
        "appsrc name=results ! videoconvert ! video/x-raw,format=I420 ! videoscale ! video/x-raw,width=64,height=48 ! \
         jpegenc ! matroskamux ! filesink location={}",
        path.display()
    );
    let mut sink = VideoSink::user(&text, View::Overlay, false).unwrap();
    let formats = [format("I420", 64, 48, (25, 1)), format("NV12", 128, 96, (25, 1))];
    sink.begin(&run_record(), &formats[0]).unwrap();
    let times = constant(20, (25, 1));
    for (i, &t) in times.iter().enumerate() {
        deliver(&mut sink, &frame(i, &formats[i / 10], Some(t))).unwrap();
    }
    sink.finish(&Summary::default()).unwrap();
    assert_frames(&decode(&path), &times, 1_000_000, "mkv");
}

#[test]
fn frames_of_a_live_source_do_not_wait_to_be_drawn() {
    let mut sink = VideoSink::user("appsrc name=results ! fakesink", View::Overlay, true).unwrap();
    let format = format("I420", 3840, 2160, (100, 1));
    sink.begin(&run_record(), &format).unwrap();
    let frames: Vec<_> = (0..4).map(|i| frame(i, &format, Some(i as u64 * 10_000_000))).collect();
    let started = Instant::now();
    // More than can be copied in the time that it takes to hand them over.
    for frame in frames.iter().cycle().take(400) {
        deliver(&mut sink, frame).unwrap();
    }
    let took = started.elapsed();
    let dropped = sink.status().unwrap().dropped;
    assert!((200..400).contains(&dropped), "{dropped} dropped in {took:?}");
    sink.finish(&Summary::default()).unwrap();
}

#[test]
fn a_source_beside_ours_ends_with_the_frames() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mkv");
    // The way to record a microphone beside the frames.
    let text = format!(
        "appsrc name=results ! videoconvert ! x264enc tune=zerolatency ! matroskamux name=m ! filesink location={} \
         audiotestsrc is-live=true ! queue ! vorbisenc ! m.",
        path.display()
    );
    let mut sink = VideoSink::user(&text, View::Overlay, false).unwrap();
    let started = Instant::now();
    let times = constant(20, (25, 1));
    write(&mut sink, &format("I420", 64, 48, (25, 1)), &times).unwrap();
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    assert_frames(&decode(&path), &times, 1_000_000, "mkv");
}

#[test]
fn an_output_that_blocks_is_given_up_while_frames_come() {
    // It waits for a time that is far off.
    let text = "appsrc name=results ! fakesink sync=true ts-offset=1000000000000";
    let mut sink = VideoSink::user(text, View::Overlay, false).unwrap();
    let started = Instant::now();
    let error =
        write(&mut sink, &format("I420", 64, 48, (25, 1)), &constant(50, (25, 1))).unwrap_err().to_string();
    assert!(error.contains("nothing has moved in it for"), "{error}");
    assert!(started.elapsed() < PATIENCE * 3, "{:?}", started.elapsed());
}

#[test]
fn a_process_that_was_stopped_has_not_waited_for_its_output() {
    let progress = PipelineProgress::default();
    let (mut patience, start) = (Patience::new(&progress), Instant::now());
    let mut check = |now| patience.check(&progress, now, PATIENCE);
    check(start).unwrap();
    let end = start + Duration::from_hours(1);
    check(end).unwrap();
    let waited = (1..100).map(|n| n * POLL).find(|waited| check(end + *waited).is_err()).unwrap();
    assert!(waited > PATIENCE / 2 && waited <= PATIENCE + POLL, "{waited:?}");
}

#[test]
fn a_clock_that_is_turned_back_leaves_times_that_go_on() {
    let ms = |ms: u64| ms * 1_000_000;
    let mut times = Timeline::new((25, 1), false, None);
    let given: Vec<u64> = [0, 40, 80, 0, 40, 200]
        .map(ms)
        .into_iter()
        .map(|pts| {
            let meta =
                FrameMeta { index: 0, pts_ns: Some(pts), duration_ns: Some(ms(40)), arrived: Instant::now() };
            times.next(&meta, || None).pts
        })
        .collect();
    assert_eq!(given, [0, 40, 80, 120, 160, 320].map(ms));
}

#[test]
fn frames_of_one_time_are_pulled_apart_and_all_shown() {
    let ms = |ms: u64| ms * 1_000_000;
    let mut times = Timeline::new((50, 1), false, None);
    let meta = |pts| FrameMeta { index: 0, pts_ns: Some(pts), duration_ns: None, arrived: Instant::now() };
    let given = [0, 20, 20, 20, 20, 40].map(|pts| times.next(&meta(ms(pts)), || None).pts);
    assert_eq!(given, [0, 20, 21, 22, 23, 40].map(ms));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.mp4");
    let mut sink = VideoSink::file(&path, View::Overlay, None).unwrap();
    let times: Vec<_> = (0..12).map(|i| ms(20 * if i < 9 { i.min(4) } else { i })).collect();
    write(&mut sink, &format("I420", 64, 48, (50, 1)), &times).unwrap();
    assert_eq!(decode(&path).len(), times.len());
}

#[test]
fn what_a_slow_screen_drops_is_counted() {
    let text = "appsrc name=results ! identity sleep-time=50000 ! fakesink sync=false";
    let mut sink = VideoSink::user(text, View::Overlay, true).unwrap();
    let format = format("I420", 64, 48, (100, 1));
    sink.begin(&run_record(), &format).unwrap();
    for i in 0..60 {
        let mut frame = frame(i, &format, Some(i as u64 * 10_000_000));
        frame.circumstances.captured = Some(Instant::now());
        deliver(&mut sink, &frame).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    let status = sink.status().unwrap();
    // 600 ms hold about a dozen frames of 50 ms; on a busy machine the frames come slower.
    assert!((1..60).contains(&status.dropped), "{status:?}");
    assert!(status.shown_us.p50 >= 50_000, "{status:?}");
    sink.finish(&Summary::default()).unwrap();
}

/// An end of a run in the middle of frames that an output does not take: how long that took.
fn stopped_while_it_hangs(sink: &mut VideoSink) -> (Result<()>, Duration) {
    let (format, control) = (format("I420", 640, 480, (25, 1)), Control::new());
    sink.belong_to(&control);
    sink.begin(&run_record(), &format).unwrap();
    let stops = control.clone();
    let stopping = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        stops.stop();
        Instant::now()
    });
    let times = (0..).map(|index| (index, Some(index as u64 * 40_000_000)));
    let mut frames =
        times.map(|(index, time)| frame(index, &format, time)).take_while(|_| !control.is_stopped());
    let delivered = frames.try_for_each(|frame| deliver(sink, &frame));
    let finished = delivered.and(sink.finish(&Summary::default()));
    (finished, stopping.join().unwrap().elapsed())
}

#[test]
fn a_pipe_that_nobody_reads_any_more_does_not_keep_a_run_from_ending() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    // Opening both ends does not wait.
    let _reader = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    // Uncompressed, so that the first frame fills the pipe.
    let text = format!("appsrc name=results ! filesink location={}", path.display());
    let mut sink = VideoSink::user(&text, View::Overlay, false).unwrap();
    let (finished, took) = stopped_while_it_hangs(&mut sink);
    let error = finished.unwrap_err().to_string();
    assert!(error.contains("nothing has moved in it for 1 s"), "{error}");
    assert!(took < LAST_CALL + HURRY + TO_STOP + Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_slow_output_drops_the_frames_that_wait_when_the_run_ends() {
    let text = "appsrc name=results ! identity sleep-time=400000 ! fakesink";
    let mut sink = VideoSink::user(text, View::Overlay, false).unwrap();
    let format = format("I420", 64, 48, (25, 1));
    let control = Control::new();
    sink.belong_to(&control);
    sink.begin(&run_record(), &format).unwrap();
    let mut index = 0;
    let mut next = |sink: &mut VideoSink| {
        index += 1;
        deliver(sink, &frame(index, &format, Some(index as u64 * 40_000_000))).unwrap();
    };
    (0..7).for_each(|_| next(&mut sink));
    control.stop();
    let stopped = Instant::now();
    (0..30).for_each(|_| next(&mut sink));
    // Thirty frames would have taken 12 s.
    assert!(stopped.elapsed() < LAST_CALL * 3, "{:?}", stopped.elapsed());
    sink.finish(&Summary::default()).unwrap();
}

#[test]
fn a_sink_dropped_without_finish_stops() {
    let folder = tempfile::tempdir().unwrap();
    let format = format("I420", 64, 48, (25, 1));
    let mut sink = VideoSink::file(&folder.path().join("out.mp4"), View::Overlay, None).unwrap();
    sink.begin(&run_record(), &format).unwrap();
    for i in 0..10 {
        deliver(&mut sink, &frame(i, &format, Some(i as u64 * 40_000_000))).unwrap();
    }
}

fn user_text(folder: &Path) -> String {
    format!(
        "appsrc name=results ! tee name=t ! queue ! videoconvert ! x264enc tune=zerolatency ! mp4mux !
         filesink name=a location={0}/a.mp4  t. ! queue ! videoconvert ! x264enc tune=zerolatency ! matroskamux !
         filesink name=b location={0}/b.mkv",
        folder.display()
    )
}

#[test]
fn user_sink_tees_to_two_files() {
    let folder = tempfile::tempdir().unwrap();
    let mut sink = VideoSink::user(&user_text(folder.path()), View::Overlay, false).unwrap();
    let times = constant(20, (25, 1));
    write(&mut sink, &format("NV12", 64, 48, (25, 1)), &times).unwrap();
    assert_frames(&decode(&folder.path().join("a.mp4")), &times, 100_000, "mp4");
    assert_frames(&decode(&folder.path().join("b.mkv")), &times, 500_000, "mkv");
}

#[test]
fn one_of_two_outputs_that_fails_leaves_the_other_playable() {
    let folder = tempfile::tempdir().unwrap();
    let text = user_text(folder.path()).replace("matroskamux", "identity error-after=100 ! matroskamux");
    let mut sink = VideoSink::user(&text, View::Overlay, false).unwrap();
    let times = constant(3000, (25, 1));
    assert!(write(&mut sink, &format("NV12", 64, 48, (25, 1)), &times).is_err());
    let decoded = decode(&folder.path().join("a.mp4"));
    assert!(!decoded.is_empty());
    assert_frames(&decoded, &times[..decoded.len()], 100_000, "mp4");
}

/// A display that shows frames of a file, steered by `control`, and what it shows them on: no window, but the
/// same for events.
fn display(screen: &str, control: Option<Control>) -> (VideoSink, gst::Element) {
    let text = DISPLAY.replace("autovideosink", screen);
    let mut launch = Launch::new("test", &text);
    launch.set("screen", "sync", true);
    let pipeline = launch.build().unwrap();
    let screen = pipeline.by_name("screen").unwrap();
    let sink = VideoSink {
        name: String::new(),
        launch,
        view: View::Overlay,
        shows: painter::Shows::default(),
        hiding: Hiding::default(),
        target: Destination::Display { title: "clip.mp4".to_owned() },
        is_live: false,
        from_zero: false,
        ready: Some(Running::new(pipeline)),
        playing: None,
        shown: Arc::default(),
        control,
        run: Control::new(),
        zones: Zones::default(),
        drawn_zones: Arc::default(),
    };
    (sink, screen)
}

fn rendered(screen: &gst::Element) -> u64 {
    screen.property::<gst::Structure>("stats").get("rendered").unwrap()
}

/// Waits until what is shown is so much, and a little longer, so that one too much would be seen.
fn shows(screen: &gst::Element, frames: u64) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while rendered(screen) < frames && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!(rendered(screen), frames);
}

fn press(screen: &gst::Element, key: &str) {
    let event = gst::Structure::builder("application/x-gst-navigation")
        .field("event", "key-press")
        .field("key", key)
        .build();
    assert!(screen.send_event(gst::event::Navigation::new(event)), "{key}");
}

#[test]
fn a_file_is_displayed_at_its_own_pace() {
    let (mut sink, _) = display("fakesink", None);
    let started = Instant::now();
    // Its first time is that of a video cut out of the middle of another.
    let times: Vec<u64> = (0..20).map(|i| 5_000_000_000 + i * 40_000_000).collect();
    write(&mut sink, &format("NV12", 64, 48, (25, 1)), &times).unwrap();
    let took = started.elapsed();
    assert!((Duration::from_millis(700)..Duration::from_millis(2500)).contains(&took), "took {took:?}");
}

#[test]
fn frames_that_a_busy_machine_shows_late_are_shown_all_the_same() {
    let slow = "identity sleep-time=60000 ! fakesink max-lateness=20000000 qos=true";
    let (mut sink, screen) = display(slow, None);
    begin_and_deliver(&mut sink, &format("NV12", 64, 48, (25, 1)), &constant(20, (25, 1))).unwrap();
    shows(&screen, 20);
    assert_eq!(screen.property::<gst::Structure>("stats").get::<u64>("dropped"), Ok(0));
    sink.finish(&Summary::default()).unwrap();
}

#[test]
fn a_window_is_named_as_its_display_says() {
    let (mut sink, screen) = display("fakesink", None);
    begin_and_deliver(&mut sink, &format("NV12", 64, 48, (25, 1)), &constant(1, (25, 1))).unwrap();
    shows(&screen, 1);
    let tags = screen.static_pad("sink").unwrap().sticky_event::<gst::event::Tag>(0).unwrap();
    assert_eq!(tags.tag().get::<gst::tags::Title>().unwrap().get(), "clip.mp4");
    sink.finish(&Summary::default()).unwrap();
}

#[test]
fn keys_in_the_window_pause_step_and_end_the_run() {
    let control = Control::new();
    let (mut sink, screen) = display("fakesink", Some(control.clone()));
    begin_and_deliver(&mut sink, &format("NV12", 64, 48, (25, 1)), &constant(1, (25, 1))).unwrap();
    shows(&screen, 1);
    press(&screen, "space");
    assert!(control.is_paused());
    press(&screen, "space");
    assert!(!control.is_paused());
    press(&screen, "period");
    assert!(control.is_paused());
    press(&screen, "x");
    assert!(control.is_paused() && !control.is_stopped());
    press(&screen, "Escape");
    assert!(control.is_stopped());
    sink.finish(&Summary::default()).unwrap();
}

#[test]
fn a_box_that_is_dragged_is_drawn_while_it_is_also_while_no_frame_comes() {
    let control = Control::new();
    let (mut sink, screen) = display("fakesink", Some(control.clone()));
    screen.set_property("enable-last-sample", true);
    let format = format("NV12", 64, 48, (25, 1));
    begin_and_deliver(&mut sink, &format, &constant(1, (25, 1))).unwrap();
    shows(&screen, 1);
    control.pause(true);
    let mouse = |event: &str, x: f64, y: f64| {
        let event = gst::Structure::builder("application/x-gst-navigation")
            .field("event", event)
            .field("pointer_x", x)
            .field("pointer_y", y)
            .field("button", 1)
            .build();
        assert!(screen.send_event(gst::event::Navigation::new(event)));
    };
    let pixels = || {
        let sample = screen.property::<gst::Sample>("last-sample");
        sample.buffer().unwrap().map_readable().unwrap().to_vec()
    };
    let plain = pixels();
    mouse("mouse-button-press", 10.0, 10.0);
    shows(&screen, 1);
    mouse("mouse-move", 40.0, 30.0);
    shows(&screen, 2);
    let boxed = pixels();
    assert_ne!(boxed, plain);
    mouse("mouse-move", 50.0, 40.0);
    shows(&screen, 3);
    assert!(pixels() != boxed && pixels() != plain, "another box, and nothing of the one before");
    mouse("mouse-button-release", 50.0, 40.0);
    shows(&screen, 4);
    assert_eq!(pixels(), plain);
    control.pause(false);
    deliver(&mut sink, &frame(1, &format, Some(40_000_000))).unwrap();
    shows(&screen, 5);
    sink.finish(&Summary::default()).unwrap();
}

#[test]
fn what_waits_to_be_shown_waits_for_the_end_of_a_pause_however_long_that_is() {
    let control = Control::new();
    let (mut sink, screen) = display("fakesink", Some(control.clone()));
    let format = format("NV12", 64, 48, (25, 1));
    begin_and_deliver(&mut sink, &format, &constant(1, (25, 1))).unwrap();
    shows(&screen, 1);
    control.pause(true);
    let more = std::thread::spawn(move || {
        // More than can wait, so that a delivery waits for longer than an output may stand still.
        for index in 1..6 {
            deliver(&mut sink, &frame(index, &format, Some(index as u64 * 40_000_000))).unwrap();
        }
        sink.finish(&Summary::default())
    });
    std::thread::sleep(PATIENCE + Duration::from_millis(500));
    shows(&screen, 1);
    control.step();
    shows(&screen, 2);
    control.step();
    control.step();
    shows(&screen, 4);
    assert!(!more.is_finished());
    control.pause(false);
    more.join().unwrap().unwrap();
}

#[test]
fn a_window_that_is_closed_ends_the_run_and_is_no_error() {
    let control = Control::new();
    let (mut sink, screen) = display("fakesink", Some(control.clone()));
    let format = format("NV12", 64, 48, (25, 1));
    begin_and_deliver(&mut sink, &format, &constant(2, (25, 1))).unwrap();
    // Also while no thread listens.
    control.pause(true);
    gst::element_error!(screen, gst::ResourceError::NotFound, ("Output window was closed"));
    assert!(control.is_stopped());
    // Later messages of its elements are consequences.
    gst::element_error!(screen, gst::StreamError::Failed, ("Internal data stream error."));
    deliver(&mut sink, &frame(2, &format, Some(80_000_000))).unwrap();
    sink.finish(&Summary::default()).unwrap();
}

#[test]
fn a_users_window_that_is_closed_leaves_the_files_of_its_pipeline_playable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mkv");
    let text = format!(
        "appsrc name=results ! tee name=t t. ! queue ! fakesink name=screen \
         t. ! queue ! x264enc tune=zerolatency ! matroskamux ! filesink location={}",
        path.display()
    );
    let control = Control::new();
    let mut sink = VideoSink::user(&text, View::Overlay, false).unwrap().steering(&control);
    let screen = sink.ready.as_ref().unwrap().pipeline().by_name("screen").unwrap();
    let format = format("NV12", 64, 48, (25, 1));
    begin_and_deliver(&mut sink, &format, &constant(10, (25, 1))).unwrap();
    gst::element_error!(screen, gst::ResourceError::NotFound, ("Output window was closed"));
    assert!(control.is_stopped());
    sink.finish(&Summary::default()).unwrap();
    assert_eq!(decode(&path).len(), 10);
}

#[test]
fn a_clock_that_is_set_and_does_not_run_yet_tells_no_time() {
    gst::init().unwrap();
    let appsrc = gst_app::AppSrc::builder().build();
    appsrc.set_clock(Some(&gst::SystemClock::obtain())).unwrap();
    assert!(appsrc.current_running_time() > Some(gst::ClockTime::from_seconds(1)), "the clock's own time");
    assert_eq!(running_time(&appsrc), None);
}

#[test]
fn a_display_without_a_screen_is_an_error_that_says_what_to_do() {
    assert!(has_screen(|name| name == "WAYLAND_DISPLAY", REMEDY).is_ok());
    assert!(has_screen(|name| name == "DISPLAY", REMEDY).is_ok());
    if cfg!(target_os = "linux") {
        assert!(has_screen(|_| false, REMEDY).unwrap_err().to_string().contains("-o FILE"));
    }
}

#[test]
fn a_user_sink_needs_one_appsrc_named_results() {
    for (text, says) in [
        ("videotestsrc ! fakesink", "begin with `appsrc name=results`"),
        ("appsrc ! fakesink", "write `appsrc name=results`"),
        ("appsrc name=results ! fakesink  appsrc ! fakesink", "2 appsrc elements"),
    ] {
        let error = VideoSink::user(text, View::Overlay, false).err().unwrap();
        assert!(error.is_usage() && error.to_string().contains(says), "{text}: {error}");
    }
}

#[test]
fn a_user_sink_may_end_before_the_video() {
    let text = "appsrc name=results ! identity eos-after=4 ! fakesink";
    let mut sink = VideoSink::user(text, View::Overlay, false).unwrap();
    write(&mut sink, &format("I420", 64, 48, (25, 1)), &constant(60, (25, 1))).unwrap();
}

#[test]
fn a_slow_live_sink_does_not_hold_up_the_run() {
    let text = "appsrc name=results ! identity sleep-time=100000 ! fakesink sync=true";
    let mut sink = VideoSink::user(text, View::Overlay, true).unwrap();
    let started = Instant::now();
    write(&mut sink, &format("I420", 64, 48, (25, 1)), &constant(100, (1000, 1))).unwrap();
    assert!(started.elapsed() < Duration::from_secs(3), "took {:?}", started.elapsed());
}

#[test]
fn printed_pipelines_run_with_a_test_picture_in_place_of_ours() {
    let folder = tempfile::tempdir().unwrap();
    for Container { extension, .. } in CONTAINERS {
        let path = folder.path().join("out").with_extension(extension);
        let line = file_launch(&path, Codec::Auto).unwrap().to_string();
        let source = "videotestsrc num-buffers=5 ! video/x-raw,width=64,height=48";
        let line = line.replacen("appsrc name=results", source, 1);
        let output = Command::new("sh").arg("-c").arg(format!("gst-launch-1.0 -q {line}")).output().unwrap();
        assert!(output.status.success(), "{line}\n{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(decode(&path).len(), 5);
    }
}
