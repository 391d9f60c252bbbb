//! Choice of a stream, its orientation, and its first frame.

use std::path::{Path, PathBuf};

use super::tests::{all, clip, open, refused, spec};
use super::*;
use lockon_core::frame::{Plane, Size};

/// A Matroska file with two video streams of these widths.
fn two_streams(folder: &tempfile::TempDir) -> PathBuf {
    let video = "videotestsrc num-buffers=4 ! video/x-raw,height=48,framerate=10/1";
    let text =
        format!("{video},width=64 ! x264enc ! mux. {video},width=32 ! x264enc ! mux. matroskamux name=mux");
    clip(folder, "two.mkv", &text)
}

/// Takes the flag of a default track from the first track of a Matroska file, for which a shorter number of
/// the track makes room.
fn clear_default(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = bytes.windows(6).position(|w| w == b"\x83\x81\x01\x73\xC5\x88").unwrap() + 3;
    bytes[at + 2] = 0x85;
    bytes[at + 8..at + 11].copy_from_slice(b"\x88\x81\x00");
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn the_stream_that_is_flagged_as_default_is_used_and_another_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = two_streams(&folder);
    let file = |video_stream| SourceSpec { video_stream, ..spec(Input::File(path.clone())) };
    let width = |video_stream| {
        let mut source = open(&file(video_stream)).unwrap();
        let width = source.format().size.width;
        assert_eq!(all(&mut source).unwrap().len(), 4);
        // The text that is printed takes the same stream.
        let typed = spec(Input::Launch(source.launch().clone()));
        drop(source);
        assert_eq!(open(&typed).unwrap().format().size.width, width, "{typed:?}");
        width
    };
    assert_eq!([width(None), width(Some(0)), width(Some(1))], [64, 64, 32], "both are: the first");
    clear_default(&path);
    assert_eq!([width(None), width(Some(0)), width(Some(1))], [32, 64, 32]);
    let error = refused(&file(Some(2))).to_string();
    assert!(
        error.contains("there is no video stream 2: it has 2 video streams: 0 (64x48), 1 (32x48, default)"),
        "{error}"
    );
    let streams = open(&file(None)).unwrap().info().streams;
    let seen: Vec<_> = streams.iter().map(|s| (s.size.unwrap().width, s.is_default, s.is_used)).collect();
    assert_eq!(seen, [(64, false, false), (32, true, true)]);
}

/// Dark, but for a white corner at the top left and a grey one at the top right.
const CORNERS: &str = "videotestsrc num-buffers=2 pattern=white ! video/x-raw,width=16,height=16 ! mix. \
     videotestsrc num-buffers=2 pattern=solid-color foreground-color=0xff808080 ! \
     video/x-raw,width=16,height=16 ! mix. \
     videotestsrc num-buffers=2 pattern=black ! video/x-raw,width=64,height=48 ! mix. \
     compositor name=mix sink_0::zorder=2 sink_1::zorder=3 sink_1::xpos=48 sink_2::zorder=1 ! \
     video/x-raw,format=I420,width=64,height=48";

/// Where white and grey lie, -1 for left or top and 1 for right or bottom.
fn corners(frame: &Frame) -> [(i32, i32); 2] {
    let Size { width, height } = frame.format.size;
    let luma = frame.luma();
    let at = |(x, y): (i32, i32)| {
        let place = |side: usize, sign: i32| if sign < 0 { 6 } else { side - 7 };
        luma.row(place(height, y))[place(width, x)]
    };
    let all = [(-1, -1), (1, -1), (-1, 1), (1, 1)];
    let find =
        |range: std::ops::Range<u8>| *all.iter().find(|at_corner| range.contains(&at(**at_corner))).unwrap();
    [find(200..255), find(90..170)]
}

/// Matrices of all eight orientations: `x' = a x + c y, y' = b x + d y`.
const MATRICES: [[i32; 4]; 8] = [
    [1, 0, 0, 1],
    [0, 1, -1, 0],
    [-1, 0, 0, -1],
    [0, -1, 1, 0],
    [-1, 0, 0, 1],
    [1, 0, 0, -1],
    [0, 1, 1, 0],
    [0, -1, -1, 0],
];

#[test]
fn every_orientation_of_an_mp4_is_upright() {
    let folder = tempfile::tempdir().unwrap();
    let path = clip(&folder, "a.mov", &format!("{CORNERS} ! jpegenc ! qtmux"));
    let bytes = std::fs::read(&path).unwrap();
    let header = bytes.windows(4).position(|w| w == b"tkhd").unwrap();
    for [a, b, c, d] in MATRICES {
        let mut turned = bytes.clone();
        for (n, value) in [a << 16, b << 16, 0, c << 16, d << 16, 0, 0, 0, 1 << 30].into_iter().enumerate() {
            turned[header + 44 + 4 * n..][..4].copy_from_slice(&value.to_be_bytes());
        }
        std::fs::write(&path, turned).unwrap();
        let mut source = open(&spec(Input::File(path.clone()))).unwrap();
        let frames = all(&mut source).unwrap();
        let apply = |(x, y): (i32, i32)| (a * x + c * y, b * x + d * y);
        assert_eq!(corners(&frames[1]), [apply((-1, -1)), apply((1, -1))], "{a} {b} {c} {d}");
        let (width, height) = if a == 0 { (48, 64) } else { (64, 48) };
        assert_eq!(frames[1].format.size, Size::new(width, height));
    }
}

/// A raw stream, its start codes before access units' first slices, and whether a slice is one of a key
/// frame.
fn raw_stream(folder: &tempfile::TempDir, text: &str) -> Vec<u8> {
    let caps = "video/x-h264,stream-format=byte-stream,alignment=au";
    let encoder = "x264enc key-int-max=10 bframes=0 threads=1 option-string=scenecut=0";
    let path =
        clip(folder, "raw.h264", &format!("{text} ! {encoder} ! h264parse config-interval=-1 ! {caps}"));
    std::fs::read(path).unwrap()
}

/// The NAL units of a stream with their start codes.
fn units(stream: &[u8]) -> Vec<&[u8]> {
    let starts: Vec<_> = (0..stream.len() - 3)
        .filter(|at| stream[*at..].starts_with(&[0, 0, 1]))
        .map(|at| if at > 0 && stream[at - 1] == 0 { at - 1 } else { at })
        .collect();
    let ends = starts.iter().skip(1).copied().chain([stream.len()]);
    starts.iter().zip(ends).map(|(start, end)| &stream[*start..end]).collect()
}

fn kind(unit: &[u8]) -> u8 {
    unit[unit.iter().position(|byte| *byte == 1).unwrap() + 1] & 0x1F
}

#[test]
fn the_display_orientation_of_a_raw_stream_is_honoured() {
    let folder = tempfile::tempdir().unwrap();
    let stream = raw_stream(&folder, CORNERS);
    // Mirrored left to right, top to bottom, quarter turns counter-clockwise.
    for (mirrored, turns) in [(0, 0), (0, 1), (0, 2), (0, 3), (2, 0), (1, 0), (2, 1), (1, 1), (3, 2)] {
        let bits = (mirrored << 21) | ((turns * 0x4000) << 5) | 0x10;
        let [_, first, second, third] = u32::to_be_bytes(bits);
        let message = [0, 0, 0, 1, 6, 47, 4, first, second, third, 0x08, 0x80];
        let mut turned = Vec::new();
        for unit in units(&stream) {
            if kind(unit) == 5 {
                turned.extend(message);
            }
            turned.extend(unit);
        }
        let path = folder.path().join("turned.h264");
        // Once more as some programs write it, before the parameter sets.
        if turns == 1 {
            turned = [&message[..], &stream].concat();
        }
        std::fs::write(&path, turned).unwrap();
        let mut source = open(&spec(Input::File(path))).unwrap();
        let frame = all(&mut source).unwrap().pop().unwrap();
        let apply = |(mut x, mut y): (i32, i32)| {
            if mirrored & 2 != 0 {
                x = -x;
            }
            if mirrored & 1 != 0 {
                y = -y;
            }
            // Counter-clockwise, with y pointing down.
            (0..turns).for_each(|_| (x, y) = (y, -x));
            (x, y)
        };
        assert_eq!(corners(&frame), [apply((-1, -1)), apply((1, -1))], "{mirrored} {turns}");
    }
}

#[test]
fn a_stream_that_begins_in_the_middle_begins_with_its_first_key_frame() {
    let folder = tempfile::tempdir().unwrap();
    let video = "videotestsrc num-buffers=25 pattern=ball ! video/x-raw,format=I420,width=64,height=48";
    let whole = raw_stream(&folder, video);
    let path = folder.path().join("cut.h264");
    let planes = |path: &Path| -> Vec<Plane> {
        let frames = all(&mut open(&spec(Input::File(path.into()))).unwrap()).unwrap();
        assert!(frames.iter().zip(0..).all(|(frame, index)| frame.meta.index == index));
        frames.iter().map(|frame| frame.luma().to_plane()).collect()
    };
    std::fs::write(&path, &whole).unwrap();
    let expected = planes(&path);
    assert_eq!(expected.len(), 25);
    // Without the picture of the first key frame: its parameters are there, and nine frames that need it.
    let mut has_key = false;
    let kept =
        units(&whole).into_iter().filter(|unit| kind(unit) != 5 || std::mem::replace(&mut has_key, true));
    std::fs::write(&path, kept.collect::<Vec<_>>().concat()).unwrap();
    let got = planes(&path);
    assert_eq!(got.len(), 15);
    assert!(got == expected[10..]);
    // In a transport stream.
    let stream = folder.path().join("cut.ts");
    let text = format!("filesrc location={} ! h264parse ! mpegtsmux ! filesink name=file", path.display());
    crate::testing::make_clip(&stream, &text);
    assert!(planes(&stream) == expected[10..]);
    // Without any key frame.
    let kept = units(&whole).into_iter().filter(|unit| kind(unit) != 5);
    std::fs::write(&path, kept.collect::<Vec<_>>().concat()).unwrap();
    let error = refused(&spec(Input::File(path))).to_string();
    assert!(error.contains("frames is a key frame, so decoding cannot begin"), "{error}");
}

#[test]
fn a_damaged_vp9_with_alpha_ends_soon() {
    let folder = tempfile::tempdir().unwrap();
    let video = "videotestsrc num-buffers=12 pattern=ball ! video/x-raw,format=I420,width=64,height=48";
    let path = clip(&folder, "a.webm", &format!("{video} ! vp9enc keyframe-max-dist=30 ! webmmux"));
    let plain = std::fs::read(&path).unwrap();
    let (with_alpha, blocks) = with_alpha(&plain);
    std::fs::write(&path, &with_alpha).unwrap();
    let frames = all(&mut open(&spec(Input::File(path.clone()))).unwrap()).unwrap();
    assert_eq!(frames.len(), 12);
    // A picture in the middle becomes rubbish.
    let mut damaged = with_alpha.clone();
    for block in blocks.iter().skip(4).take(3) {
        damaged[block.clone()].fill(0x5A);
    }
    std::fs::write(&path, &damaged).unwrap();
    let start = Instant::now();
    let frames = open(&spec(Input::File(path))).and_then(|mut source| all(&mut source));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let frames = frames.unwrap();
    assert!(frames.len() >= 4, "{} frames", frames.len());
}

/// An EBML element with a size of eight bytes.
fn element(id: &[u8], inside: &[u8]) -> Vec<u8> {
    [id, &[1], &(inside.len() as u64).to_be_bytes()[1..], inside].concat()
}

/// A file with the pictures of a `WebM` file and an alpha channel, which has the same pictures; and where
/// each picture lies.
fn with_alpha(webm: &[u8]) -> (Vec<u8>, Vec<std::ops::Range<usize>>) {
    let mut pictures = Vec::new();
    // Simple blocks of the first track: size, track, time, flags, picture.
    let mut at = webm.windows(4).position(|w| w == b"\x1F\x43\xB6\x75").unwrap() + 4;
    while let Some(found) = webm[at..].iter().position(|byte| *byte == 0xA3) {
        at += found + 1;
        let zeros = webm[at].leading_zeros() as usize;
        let size_bytes = zeros + 1;
        if size_bytes > 8 || at + size_bytes > webm.len() {
            continue;
        }
        let mut size = usize::from(webm[at]) & (0xFF >> size_bytes);
        for byte in &webm[at + 1..at + size_bytes] {
            size = size << 8 | usize::from(*byte);
        }
        let start = at + size_bytes;
        let is_block = webm.get(start) == Some(&0x81) && size > 4 && start + size <= webm.len();
        // VP9 pictures begin with the bits 10.
        if is_block && webm[start + 4] >> 6 == 2 {
            pictures.push(webm[start + 4..start + size].to_vec());
            at = start + size;
        }
    }
    let header = element(
        b"\x1A\x45\xDF\xA3",
        &[element(b"\x42\x82", b"webm"), element(b"\x42\x87", &[4]), element(b"\x42\x85", &[2])].concat(),
    );
    let video = [element(&[0xB0], &[64]), element(&[0xBA], &[48]), element(b"\x53\xC0", &[1])].concat();
    let track = [
        element(&[0xD7], &[1]),
        element(b"\x73\xC5", &[1]),
        element(&[0x83], &[1]),
        element(&[0x86], b"V_VP9"),
        element(b"\x23\xE3\x83", &33_333_333_u32.to_be_bytes()),
        element(b"\x41\xEE", &element(b"\x41\xF0", &[1])),
        element(&[0xE0], &video),
    ]
    .concat();
    let mut file = [header, element(b"\x18\x53\x80\x67", &[])].concat();
    let size_at = file.len() - 8;
    file[size_at] = 1;
    let start = file.len();
    file.extend(element(b"\x15\x49\xA9\x66", &element(b"\x2A\xD7\xB1", &1_000_000_u32.to_be_bytes())));
    file.extend(element(b"\x16\x54\xAE\x6B", &element(&[0xAE], &track)));
    let mut cluster = element(&[0xE7], &[0]);
    let mut ranges = Vec::new();
    for (number, picture) in pictures.iter().enumerate() {
        let time = (number as u16 * 33).to_be_bytes();
        let block = [&[0x81][..], &time, &[0], picture].concat();
        let more = [element(&[0xEE], &[1]), element(&[0xA5], picture)].concat();
        let group = [
            element(&[0xA1], &block),
            element(b"\x75\xA1", &element(&[0xA6], &more)),
            if number == 0 { Vec::new() } else { element(&[0xFB], &[0xDF]) },
        ]
        .concat();
        // Group, block and their sizes come before the picture.
        let before = cluster.len() + 9 + 9 + 4;
        ranges.push(before..before + picture.len());
        cluster.extend(element(&[0xA0], &group));
    }
    let cluster_at = file.len() + 4 + 8;
    file.extend(element(b"\x1F\x43\xB6\x75", &cluster));
    let length = (file.len() - start) as u64;
    file[size_at + 1..size_at + 8].copy_from_slice(&length.to_be_bytes()[1..]);
    (file, ranges.into_iter().map(|range| range.start + cluster_at..range.end + cluster_at).collect())
}

#[test]
fn packets_are_counted_as_frames_are_decoded() {
    let folder = tempfile::tempdir().unwrap();
    let video = "videotestsrc num-buffers=37 ! video/x-raw,width=64,height=48,framerate=10/1";
    for (name, text) in [
        ("a.mp4", "x264enc bframes=3 ! h264parse ! mp4mux"),
        ("a.mkv", "x264enc ! matroskamux"),
        ("a.avi", "jpegenc ! avimux"),
        ("a.webm", "vp9enc ! webmmux"),
        ("a.ts", "x264enc ! mpegtsmux"),
        ("a.h264", "x264enc ! video/x-h264,stream-format=byte-stream"),
    ] {
        let path = clip(&folder, name, &format!("{video} ! {text}"));
        let source = open(&spec(Input::File(path.clone()))).unwrap();
        let info = source.info();
        assert_eq!(source.count_frames(&Control::new()).unwrap(), Some(37), "{name}");
        assert_eq!(all(&mut open(&spec(Input::File(path))).unwrap()).unwrap().len(), 37, "{name}");
        let stream = &info.streams[0];
        assert!(stream.is_used && stream.kind == StreamKind::Video, "{name}: {info:?}");
        assert_eq!(stream.size, Some(Size::new(64, 48)), "{name}");
        assert_eq!(stream.frame_rate.or(Some(info.format.frame_rate)), Some((10, 1)), "{name}: {info:?}");
    }
}
