//! Compares painting on a device with the canvas of the host; and, where there is no GPU, runs the kernel's
//! loops on the host over the packed data.

use super::*;
use crate::testing::{self, Random};
use lockon_core::frame::{PlaneMut, Size};
use lockon_core::overlay::{Area, Canvas, Colour, Trails};
use lockon_core::results::{FrameRecord, Match, Track, TrackState};

const POISON: u8 = 0xFA;

/// One row more or less than a tile, less than a sample of chroma, and sizes at which lines and letters grow.
const SIZES: [(usize, usize); 8] =
    [(1, 1), (3, 2), (33, 7), (31, 17), (97, 61), (251, 131), (643, 365), (1283, 1103)];

/// A picture of noise, in rows with poisoned padding of another length in each plane.
#[derive(Clone, PartialEq, Eq)]
struct Picture {
    format: PixelFormat,
    size: Size,
    /// Bytes and pitch.
    planes: Vec<(Vec<u8>, usize)>,
}

impl Picture {
    fn noise(format: PixelFormat, size: Size, random: &mut Random) -> Self {
        let planes = (0..format.planes()).map(|index| {
            let Size { width, height } = format.plane_size(index, size);
            let pitch = width + random.below(40);
            let mut data = vec![POISON; pitch * height];
            for row in data.chunks_mut(pitch) {
                row[..width].fill_with(|| random.next() as u8);
            }
            (data, pitch)
        });
        Self { format, size, planes: planes.collect() }
    }

    fn paint(&mut self, drawing: &Drawing) {
        let (format, size) = (self.format, self.size);
        let planes = self.planes.iter_mut().enumerate();
        let planes =
            planes.map(|(index, (data, pitch))| PlaneMut::new(data, format.plane_size(index, size), *pitch));
        Canvas::new(planes.collect(), format, size).paint(drawing);
    }

    /// As [`Self::paint`], but the way the kernel goes: tile by tile, sample by sample, over packed steps.
    fn paint_as_the_kernel(&mut self, drawing: &Drawing) {
        let steps: Vec<_> = drawing.steps().iter().map(PackedStep::of).collect();
        // A plane's number in place of its address.
        let places = self.planes.iter().enumerate();
        let places =
            places.map(|(index, (_, pitch))| DevicePlane { address: (index as u64) << 48, stride: *pitch });
        let places: Vec<_> = places.collect();
        for component in 0..3 {
            let Some(samples) = Samples::of(component, drawing.steps(), self.format, &places) else {
                continue;
            };
            let plane = &mut self.planes[(samples.origin >> 48) as usize].0;
            let [columns, rows] = samples.sides();
            for block_y in 0..rows.div_ceil(TILE[1]) {
                for block_x in 0..columns.div_ceil(TILE[0]) {
                    let left = samples.area.left + (block_x * TILE[0]) as i32;
                    let top = samples.area.top + (block_y * TILE[1]) as i32;
                    paint_tile(&samples, left, top, &steps, drawing.coverage(), plane);
                }
            }
        }
    }
}

/// A block of the kernel.
fn paint_tile(
    samples: &Samples,
    left: i32,
    top: i32,
    steps: &[PackedStep],
    coverage: &[u8],
    plane: &mut [u8],
) {
    let pixels_of = |left: i32, top: i32, right: i32, bottom: i32| PackedArea {
        left: left << samples.x_shift,
        top: top << samples.y_shift,
        right: right << samples.x_shift,
        bottom: bottom << samples.y_shift,
    };
    let touch = |a: &PackedArea, b: &PackedArea| {
        a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom
    };
    let [width, height] = TILE.map(|side| side as i32);
    let tile = pixels_of(left, top, left + width, top + height);
    let touching: Vec<_> =
        steps.iter().filter(|step| step.components > samples.component && touch(&step.area, &tile)).collect();
    for y in top..(top + height).min(samples.area.bottom) {
        for x in left..(left + width).min(samples.area.right) {
            let pixels = pixels_of(x, y, x + 1, y + 1);
            let at = (samples.origin & 0xFFFF) + y as u64 * samples.pitch + x as u64 * samples.apart as u64;
            let mut under = i32::from(plane[at as usize]);
            for step in touching.iter().filter(|step| touch(&step.area, &pixels)) {
                let PackedArea { left, top, right, .. } = step.area;
                let opacity = if step.zoom == 0 {
                    step.opacity
                } else {
                    let row = (right - left) / step.zoom;
                    let index = (y - top) / step.zoom * row + (x - left) / step.zoom;
                    coverage[step.first as usize + index as usize]
                };
                let (opacity, over) = (i32::from(opacity), i32::from(step.over[samples.component as usize]));
                under = (under * (255 - opacity) + over * opacity + 127) / 255;
            }
            plane[at as usize] = under as u8;
        }
    }
}

/// Areas anywhere, also outside, of any colour and opacity, one over the other.
fn add_areas(drawing: &mut Drawing, count: usize, random: &mut Random) {
    let Size { width, height } = drawing.size();
    for _ in 0..count {
        let mut edges = |side: usize| {
            let start = random.below(side + side / 2 + 9) as i64 - (side / 4) as i64 - 5;
            let length = random.log_uniform(1, side + 20) as i64;
            // Now and then there is nothing between them.
            (start, start + length - i64::from(random.below(9) == 0))
        };
        let ((left, right), (top, bottom)) = (edges(width), edges(height));
        let area = Area { left, top, right, bottom };
        let opacity = [0, 1, 90, 127, 254, 255, random.next() as u8][random.below(7)];
        if random.below(3) == 0 {
            drawing.shade(area, opacity);
        } else {
            let [luma, cb, cr] = std::array::from_fn(|_| random.next() as u8);
            drawing.fill(area, Colour { luma, cb, cr }, opacity);
        }
    }
}

/// Some frames of tracks that go about and leave trails, with matches among them.
fn records(size: Size, frames: u64, random: &mut Random) -> Vec<FrameRecord> {
    let (width, height) = (size.width as f64, size.height as f64);
    let speeds: Vec<_> =
        (0..4).map(|_| [random.below(40), random.below(40)].map(|v| v as f64 / 900.0)).collect();
    let mut record = |frame: u64| {
        let tracks = speeds.iter().enumerate().map(|(id, [dx, dy])| Track {
            id: id as u32,
            name: None,
            template: (id % 2 == 1).then(|| format!("t\u{e4}{id}").into()),
            state: TrackState::ALL[if random.below(8) == 0 { random.below(4) } else { 0 }],
            x: width * (dx * frame as f64 - 0.1),
            y: height * (1.0 - dy * frame as f64),
            w: width / 6.0,
            h: height / 9.0,
            score: 0.875,
            second_peak_ratio: 0.0,
            object: None,
        });
        let tracks = tracks.collect();
        let matches = (0..random.below(4)).map(|index| Match {
            template: format!("logo {index} \u{4f60}").into(),
            x: random.below(size.width),
            y: random.below(size.height),
            w: 30,
            h: 20,
            score: 0.934,
            scale: 1.1,
            angle: -12.5,
            cx: 0.0,
            cy: 0.0,
        });
        let matches = matches.collect();
        FrameRecord { frame, pts_ns: Some(frame * 40_000_000), matches, tracks, ..FrameRecord::default() }
    };
    (0..frames).map(&mut record).collect()
}

/// Every format and size, with a list of areas, one of results after some frames, and both in one.
fn each_case(check: &mut dyn FnMut(&str, &Drawing, Picture)) {
    let mut drawing = Drawing::default();
    for (seed, (width, height)) in (1..).zip(SIZES) {
        let (size, mut random) = (Size::new(width, height), Random(seed));
        for format in PixelFormat::ALL {
            drawing.start(size);
            add_areas(&mut drawing, 1 + random.below(40), &mut random);
            let picture = Picture::noise(format, size, &mut random);
            check(&format!("areas in {} {size}", format.name), &drawing, picture);

            let mut trails = Trails::default();
            let frames = 2 + random.below(40) as u64;
            for record in records(size, frames, &mut random) {
                drawing.results(&record, &mut trails, size);
            }
            let picture = Picture::noise(format, size, &mut random);
            check(&format!("results in {} {size}", format.name), &drawing, picture);

            // More steps than a block looks at at once, and than there is room for from the start.
            add_areas(&mut drawing, 1500, &mut random);
            let picture = Picture::noise(format, size, &mut random);
            check(&format!("results and areas in {} {size}", format.name), &drawing, picture);
        }
    }
}

/// Names the first byte that is not as it should be: a padding's too.
fn assert_same(case: &str, found: &Picture, expected: &Picture) {
    for (plane, ((found, pitch), (expected, _))) in found.planes.iter().zip(&expected.planes).enumerate() {
        if let Some(at) = (0..expected.len()).find(|&at| found[at] != expected[at]) {
            let (x, y, is, should) = (at % pitch, at / pitch, found[at], expected[at]);
            panic!("{case}: byte {x} of row {y} of plane {plane} is {is}, not {should}");
        }
    }
}

#[test]
fn packed_steps_make_the_pictures_of_the_hosts_painter() {
    let (mut longest, mut cases, mut changed) = (0, 0, 0);
    each_case(&mut |case, drawing, mut picture| {
        longest = longest.max(drawing.steps().len());
        let mut expected = picture.clone();
        expected.paint(drawing);
        cases += 1;
        changed += usize::from(expected != picture);
        picture.paint_as_the_kernel(drawing);
        assert_same(case, &picture, &expected);
    });
    assert!(changed > cases * 9 / 10, "{changed} of {cases} pictures were painted on");
    assert!(longest > STEPS && STEPS > TILE[0] * TILE[1], "no list is longer than {longest} steps");
}

#[test]
fn a_grey_picture_has_luma_only_and_an_empty_list_nothing_to_paint() {
    let (size, mut drawing) = (Size::new(9, 7), Drawing::default());
    let planes = [DevicePlane { address: 0, stride: 9 }; 3];
    let samples = |drawing: &Drawing, format: PixelFormat| {
        (0..3).filter(|&component| Samples::of(component, drawing.steps(), format, &planes).is_some()).count()
    };
    drawing.start(size);
    assert_eq!(samples(&drawing, PixelFormat::Y444), 0);
    drawing.shade(Area { left: 1, top: 1, right: 3, bottom: 3 }, 90);
    assert_eq!(samples(&drawing, PixelFormat::Y444), 1, "shades leave chroma alone");
    drawing.fill(Area { left: 2, top: 2, right: 5, bottom: 3 }, Colour { luma: 1, cb: 2, cr: 3 }, 90);
    assert_eq!(samples(&drawing, PixelFormat::Y444), 3);
    assert_eq!(samples(&drawing, PixelFormat::GRAY8), 1);
    let luma = Samples::of(0, drawing.steps(), PixelFormat::GRAY8, &planes).unwrap();
    assert_eq!([luma.area.left, luma.area.top, luma.area.right, luma.area.bottom], [1, 1, 5, 3]);
}

/// A picture's planes on the device.
fn upload(gpu: &Gpu, stream: &Stream, picture: &Picture) -> Vec<(DeviceBuffer<u8>, usize)> {
    let planes = picture.planes.iter().map(|(data, pitch)| {
        let mut buffer = gpu.alloc("a plane", data.len()).unwrap();
        stream.upload_now(data, &mut buffer).unwrap();
        (buffer, *pitch)
    });
    planes.collect()
}

fn download(stream: &Stream, planes: &[(DeviceBuffer<u8>, usize)], picture: &mut Picture) {
    for ((buffer, _), (data, _)) in planes.iter().zip(&mut picture.planes) {
        data.fill(!POISON);
        stream.download_now(buffer, data).unwrap();
    }
}

#[test]
fn pictures_painted_on_the_device_are_the_hosts() {
    let Some(gpu) = testing::gpu() else { return };
    let stream = gpu.stream(Priority::Normal).unwrap();
    let mut painter = DevicePainter::new(&gpu).unwrap();
    each_case(&mut |case, drawing, mut picture| {
        let mut planes = upload(&gpu, &stream, &picture);
        let mut expected = picture.clone();
        expected.paint(drawing);
        painter.paint_buffers(&stream, drawing, picture.format, &mut planes).unwrap();
        download(&stream, &planes, &mut picture);
        assert_same(case, &picture, &expected);
    });
}

#[test]
fn a_painter_takes_list_after_list_in_several_streams_without_waiting() {
    let Some(gpu) = testing::gpu() else { return };
    let streams: [Stream; 3] = std::array::from_fn(|_| gpu.stream(Priority::Normal).unwrap());
    let mut painter = DevicePainter::new(&gpu).unwrap();
    let (size, format, mut random) = (Size::new(643, 365), PixelFormat::ALL[1], Random(7));
    let mut trails = Trails::default();
    let drawings: Vec<_> = records(size, 40, &mut random)
        .iter()
        .map(|record| {
            let mut drawing = Drawing::default();
            drawing.results(record, &mut trails, size);
            // Lists that outgrow the first buffers, and short ones after them.
            add_areas(&mut drawing, [1, 30, 3000][random.below(3)], &mut random);
            drawing
        })
        .collect();
    let mut pictures: Vec<_> = drawings.iter().map(|_| Picture::noise(format, size, &mut random)).collect();
    let mut planes: Vec<_> = pictures.iter().map(|picture| upload(&gpu, &streams[0], picture)).collect();
    for (index, (drawing, planes)) in drawings.iter().zip(&mut planes).enumerate() {
        painter.paint_buffers(&streams[index % streams.len()], drawing, format, planes).unwrap();
    }
    for (index, (drawing, picture)) in drawings.iter().zip(&mut pictures).enumerate() {
        let mut expected = picture.clone();
        expected.paint(drawing);
        download(&streams[index % streams.len()], &planes[index], picture);
        assert_same(&format!("picture {index}"), picture, &expected);
    }
}
