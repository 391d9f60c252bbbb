//! The drawn pixels, one by one, in every format.

use super::*;
use crate::frame::{Chroma, PixelFormat, Plane, PlaneMut};

const PADDING: usize = 11;
const POISON: u8 = 0xFA;

/// A grey picture with poisoned padding behind every row.
struct Picture {
    format: PixelFormat,
    size: Size,
    planes: Vec<Vec<u8>>,
}

impl Picture {
    fn grey(format: PixelFormat, size: Size) -> Self {
        let planes = (0..format.planes())
            .map(|index| {
                let Size { width, height } = format.plane_size(index, size);
                let mut data = vec![POISON; (width + PADDING) * height];
                for row in data.chunks_mut(width + PADDING) {
                    row[..width].fill(if index == 0 { 100 } else { 128 });
                }
                data
            })
            .collect();
        Self { format, size, planes }
    }

    fn draw(&mut self, draw: impl FnOnce(&mut Canvas<'_>)) {
        let (format, size) = (self.format, self.size);
        let planes = self
            .planes
            .iter_mut()
            .enumerate()
            .map(|(index, data)| {
                let plane = format.plane_size(index, size);
                PlaneMut::new(data, plane, plane.width + PADDING)
            })
            .collect();
        draw(&mut Canvas::new(planes, format, size));
        for (index, data) in self.planes.iter().enumerate() {
            let width = format.plane_size(index, size).width;
            for row in data.chunks(width + PADDING) {
                assert_eq!(row[width..], [POISON; PADDING], "padding of plane {index} of {}", format.name);
            }
        }
    }

    fn luma(&self, x: usize, y: usize) -> u8 {
        self.planes[0][y * (self.size.width + PADDING) + x]
    }

    /// Luma, Cb, Cr; grey chroma where the format has none.
    fn colour(&self, x: usize, y: usize) -> Colour {
        let (cx, cy) = (x >> self.format.x_shift, y >> self.format.y_shift);
        let sample = |plane: usize, x: usize| {
            self.planes[plane][cy * (self.format.plane_size(plane, self.size).width + PADDING) + x]
        };
        let (cb, cr) = match self.format.chroma {
            Chroma::None => (128, 128),
            Chroma::Planar { u, v } => (sample(u, cx), sample(v, cx)),
            Chroma::Interleaved { u } => (sample(1, 2 * cx + u), sample(1, 2 * cx + 1 - u)),
        };
        Colour { luma: self.luma(x, y), cb, cr }
    }

    /// Number of luma pixels that are not the grey ground.
    fn drawn(&self) -> usize {
        let Size { width, height } = self.size;
        (0..width * height).filter(|i| self.luma(i % width, i / width) != 100).count()
    }
}

fn track(state: TrackState, x: f64, y: f64, w: f64, h: f64) -> FrameRecord {
    let track = Track {
        id: 1,
        name: None,
        template: None,
        state,
        x,
        y,
        w,
        h,
        score: 0.87,
        second_peak_ratio: 0.0,
        object: None,
    };
    FrameRecord { tracks: vec![track], ..FrameRecord::default() }
}

/// Draws a frame that has none before it.
fn show(canvas: &mut Canvas<'_>, record: &FrameRecord) {
    draw_results(canvas, record, &mut Trails::default());
}

fn found(name: &str, x: usize, y: usize) -> FrameRecord {
    let found = Match {
        template: name.into(),
        x,
        y,
        w: 30,
        h: 20,
        score: 0.934,
        scale: 1.0,
        angle: 0.0,
        cx: 0.0,
        cy: 0.0,
    };
    FrameRecord { matches: vec![found], ..FrameRecord::default() }
}

#[test]
fn a_box_has_its_colour_in_every_format_and_leaves_padding_and_inside_alone() {
    for format in PixelFormat::ALL {
        let mut picture = Picture::grey(format, Size::new(317, 203));
        picture.draw(|canvas| show(canvas, &track(TrackState::Tracked, 60.0, 60.0, 90.0, 80.0)));
        let green = colour_of_state(TrackState::Tracked);
        let expected =
            if format.chroma == Chroma::None { Colour { cb: 128, cr: 128, ..green } } else { green };
        for (x, y) in [(58, 100), (59, 100), (150, 100), (100, 141), (151, 141)] {
            assert_eq!(picture.colour(x, y), expected, "{} at {x}, {y}", format.name);
        }
        for (x, y) in [(64, 64), (100, 100), (145, 135), (300, 190), (4, 4)] {
            let grey = Colour { luma: 100, cb: 128, cr: 128 };
            assert_eq!(picture.colour(x, y), grey, "{} at {x}, {y}", format.name);
        }
    }
}

#[test]
fn boxes_outside_the_picture_are_clipped_and_their_labels_stay_inside() {
    let size = Size::new(251, 131);
    for format in PixelFormat::ALL {
        for x in [-1e30, -400.0, -20.5, 0.0, 120.0, 240.0, 251.0, 9000.0, 1e30] {
            for y in [-400.0, -10.0, 0.0, 60.0, 120.0, 131.0, 1e30] {
                for w in [0.0, 3.0, 50.0, 1000.0, 1e30] {
                    let mut picture = Picture::grey(format, size);
                    picture.draw(|canvas| show(canvas, &track(TrackState::Lost, x, y, w, w)));
                    assert!(picture.drawn() > 800, "no label for a box at {x}, {y}");
                }
            }
        }
    }
}

#[test]
fn a_box_along_the_border_keeps_its_lines() {
    let mut picture = Picture::grey(PixelFormat::GRAY8, Size::new(97, 61));
    picture.draw(|canvas| show(canvas, &track(TrackState::Uncertain, 0.0, 0.0, 97.0, 61.0)));
    let amber = colour_of_state(TrackState::Uncertain).luma;
    for (x, y) in [(0, 50), (1, 50), (96, 50), (95, 50), (50, 60), (50, 59)] {
        assert_eq!(picture.luma(x, y), amber, "at {x}, {y}");
    }
    assert_eq!(picture.luma(50, 50), 100);
}

#[test]
fn lost_tracks_are_dashed_with_all_four_corners() {
    let mut picture = Picture::grey(PixelFormat::GRAY8, Size::new(317, 203));
    picture.draw(|canvas| show(canvas, &track(TrackState::Lost, 60.0, 60.0, 120.0, 80.0)));
    let red = colour_of_state(TrackState::Lost).luma;
    let row: Vec<u8> = (58..182).map(|x| picture.luma(x, 141)).collect();
    let gaps = row.windows(2).filter(|pair| pair[0] == red && pair[1] != red).count();
    assert!(gaps > 3, "{gaps} gaps in the line");
    for (x, y) in [(58, 58), (181, 58), (58, 141), (181, 141)] {
        assert_eq!(picture.luma(x, y), red, "corner at {x}, {y}");
    }
}

/// Draws tracks whose middles are at these places, 40 ms apart, and returns the last picture.
fn after(places: &[(TrackState, f64, f64)]) -> Picture {
    let mut trails = Trails::default();
    let mut picture = Picture::grey(PixelFormat::ALL[0], Size::new(640, 360));
    for (index, (state, x, y)) in (0..).zip(places) {
        picture = Picture::grey(PixelFormat::ALL[0], Size::new(640, 360));
        let mut record = track(*state, x - 20.0, y - 20.0, 40.0, 40.0);
        (record.frame, record.pts_ns) = (index, Some(index * 40_000_000));
        picture.draw(|canvas| draw_results(canvas, &record, &mut trails));
    }
    picture
}

/// Pixels of a row that are as bright as a state's dots, which fade, or at least not grey any more.
fn dots(picture: &Picture, row: usize, columns: std::ops::Range<usize>) -> usize {
    columns.filter(|&x| picture.luma(x, row) > 105).count()
}

#[test]
fn a_trail_is_dotted_fades_and_is_two_seconds_long() {
    // 5 pixels a frame for 80 frames: 400 pixels. 250 of them are two seconds.
    let places: Vec<_> = (0..=80).map(|i| (TrackState::Tracked, 100.0 + 5.0 * f64::from(i), 200.0)).collect();
    let picture = after(&places);
    let (old, young) = (dots(&picture, 200, 255..310), dots(&picture, 200, 420..475));
    assert!(old > 5 && young > 5 && young < 40, "{old} old and {young} young pixels");
    assert_eq!(dots(&picture, 200, 80..244), 0, "what is older than two seconds is gone");
    let brightest = |columns: std::ops::Range<usize>| columns.map(|x| picture.luma(x, 200)).max().unwrap();
    assert!(brightest(420..475) > brightest(255..310));
    assert_eq!(dots(&picture, 204, 80..470), 0, "it is a thin line");
}

#[test]
fn a_trail_does_not_lead_through_what_was_not_seen() {
    let place = |i: i32| match i {
        0..20 => (TrackState::Tracked, 60.0 + 4.0 * f64::from(i), 100.0),
        20..30 => (TrackState::Lost, 136.0, 100.0),
        30 => (TrackState::Reacquired, 400.0, 100.0),
        _ => (TrackState::Tracked, 400.0 + 4.0 * f64::from(i - 30), 100.0),
    };
    let picture = after(&(0..35).map(place).collect::<Vec<_>>());
    assert!(dots(&picture, 100, 60..134) > 5, "where it was before it was lost");
    assert_eq!(dots(&picture, 100, 140..390), 0);
    // Found is said for half a second, by the colour of the box's left line.
    assert_eq!(picture.colour(395, 105), colour_of_state(TrackState::Reacquired));
    let picture = after(&(0..45).map(place).collect::<Vec<_>>());
    assert_eq!(picture.colour(435, 105), colour_of_state(TrackState::Tracked));
}

#[test]
fn a_trail_has_a_bounded_length_and_goes_with_its_track() {
    let mut trails = Trails::default();
    let mut record = track(TrackState::Tracked, 0.0, 0.0, 9.0, 9.0);
    for frame in 0..5000 {
        // 1000 frames a second.
        record.pts_ns = Some(frame * 1_000_000);
        trails.note(&record, Size::new(64, 64));
    }
    assert!((100..=140).contains(&trails.of_tracks[0].places.len()), "{}", trails.of_tracks[0].places.len());
    trails.note(&FrameRecord { pts_ns: record.pts_ns, ..FrameRecord::default() }, Size::new(64, 64));
    assert!(trails.of_tracks.is_empty());
}

#[test]
fn a_match_that_is_followed_is_shown_by_its_track_alone() {
    let mut record = found("logo", 100, 100);
    record.tracks = track(TrackState::Tracked, 102.0, 99.0, 30.0, 20.0).tracks;
    assert!(!is_followed(&record.matches[0], &record), "a box that was given is not of that template");
    record.tracks[0].template = Some("logo".into());
    assert!(is_followed(&record.matches[0], &record));
    record.tracks[0].state = TrackState::Lost;
    assert!(!is_followed(&record.matches[0], &record));
}

#[test]
fn pictures_too_small_for_text_get_their_box() {
    for (w, h) in [(1, 1), (7, 5), (40, 9), (9, 40)] {
        for format in PixelFormat::ALL {
            let mut picture = Picture::grey(format, Size::new(w, h));
            picture.draw(|canvas| show(canvas, &found("a long name", 0, 0)));
            assert!(picture.drawn() > 0);
        }
    }
}

#[test]
fn letters_that_the_font_lacks_become_question_marks() {
    let draw = |name: &str| {
        let mut picture = Picture::grey(PixelFormat::GRAY8, Size::new(640, 360));
        picture.draw(|canvas| show(canvas, &found(name, 100, 100)));
        // Right of the bar, which has the name's colour.
        (100..140).map(|x| picture.luma(x, 90)).collect::<Vec<_>>()
    };
    assert_eq!(draw("??"), draw("\u{4f60}\u{1f600}"));
    assert_ne!(draw("??"), draw("\u{e4}\u{142}"), "umlauts and Latin Extended-A are in the font");
}

fn match_label(m: &Match) -> String {
    let mut words = String::new();
    add_match_label(&mut words, m);
    words
}

fn track_label(t: &Track, state: TrackState) -> String {
    let mut words = String::new();
    add_track_label(&mut words, t, state);
    words
}

#[test]
fn labels_say_scale_and_angle_only_where_they_differ() {
    let mut record = found("logo", 0, 0);
    assert_eq!(match_label(&record.matches[0]), "logo 0.93");
    (record.matches[0].scale, record.matches[0].angle) = (1.1025, -12.5);
    assert_eq!(match_label(&record.matches[0]), "logo 0.93 \u{d7}1.10 -12.5\u{b0}");
    let label = |state| track_label(&track(state, 0.0, 0.0, 1.0, 1.0).tracks[0], state);
    assert_eq!(label(TrackState::Reacquired), "#1 found 0.87");
    let mut record = track(TrackState::Tracked, 0.0, 0.0, 1.0, 1.0);
    record.tracks[0].template = Some("logo".into());
    assert_eq!(track_label(&record.tracks[0], TrackState::Tracked), "logo #1 tracked 0.87");
}

#[test]
fn labels_of_one_place_do_not_cover_each_other() {
    let style = Style::for_height(360);
    let mut drawing = Drawing::default();
    drawing.start(Size::new(640, 360));
    let mut taken = Vec::new();
    let area = Area { left: 300, top: 150, right: 380, bottom: 260 };
    for _ in 0..6 {
        style.draw_label(&mut drawing, area, WHITE, "#1 tracked 0.87", &mut taken);
    }
    for (i, a) in taken.iter().enumerate() {
        assert!(taken[..i].iter().all(|b| !a.touches(*b)), "plate {i} covers another");
    }
}

#[test]
fn text_and_lines_grow_with_the_picture() {
    let sizes = |height| {
        let style = Style::for_height(height);
        (style.line, style.font.val() as i64 * style.zoom)
    };
    assert_eq!([360, 720, 1080, 2160, 4320].map(sizes), [(2, 16), (2, 20), (3, 32), (6, 64), (12, 128)]);
}

#[test]
fn a_lost_track_shows_no_score() {
    let lost = track(TrackState::Lost, 0.0, 0.0, 1.0, 1.0);
    assert_eq!(track_label(&lost.tracks[0], TrackState::Lost), "#1 lost");
}

#[test]
fn a_mask_replaces_the_picture_in_every_format() {
    let size = Size::new(37, 23);
    let mask = Plane::from_vec((0..37 * 23).map(|i| if i % 3 == 0 { 255 } else { 0 }).collect(), size);
    for format in PixelFormat::ALL {
        let mut picture = Picture::grey(format, size);
        picture.planes.iter_mut().skip(1).for_each(|data| data.iter_mut().for_each(|v| *v = *v / 250 * *v));
        picture.draw(|canvas| draw_mask(canvas, mask.as_ref()));
        for y in 0..23 {
            for x in 0..37 {
                let expected = Colour { luma: mask.data()[y * 37 + x], cb: 128, cr: 128 };
                assert_eq!(picture.colour(x, y), expected, "{} at {x}, {y}", format.name);
            }
        }
    }
}

#[test]
fn a_split_has_the_picture_left_and_the_mask_right() {
    let size = Size::new(41, 23);
    let mask = Plane::from_vec(vec![255; 41 * 23], size);
    for format in PixelFormat::ALL {
        let mut picture = Picture::grey(format, size);
        picture.draw(|canvas| draw_split(canvas, mask.as_ref()));
        let row: Vec<u8> = (0..41).map(|x| picture.luma(x, 11)).collect();
        assert_eq!((&row[..19], &row[19..21], &row[21..]), (&[100; 19][..], &[235; 2][..], &[255; 20][..]));
    }
}

/// Tracks of all states and matches on their way over a picture and out of it, after `frames` frames.
fn crowd(size: Size, frames: u64, canvas_of: &mut dyn FnMut(&FrameRecord, &mut Trails)) {
    let (width, height) = (size.width as f64, size.height as f64);
    let mut trails = Trails::default();
    for frame in 0..frames {
        let step = frame as f64 / frames as f64;
        let tracks = (0..5_u32).map(|id| {
            let state = match (u64::from(id) + frame / 9) % 5 {
                0 | 1 => TrackState::Tracked,
                2 => TrackState::Uncertain,
                3 => TrackState::Reacquired,
                _ => TrackState::Lost,
            };
            let (x, y) = (width * (1.3 * step - 0.2 + 0.07 * f64::from(id)), height * f64::from(id) / 5.3);
            let template = (id % 2 == 1).then(|| format!("t\u{e4}{id}").into());
            let score = 0.5 + 0.09 * f64::from(id);
            Track {
                id,
                name: None,
                template,
                state,
                x,
                y,
                w: width / 7.0,
                h: 31.4,
                score,
                second_peak_ratio: 0.0,
                object: None,
            }
        });
        let tracks = tracks.collect();
        let matches = (0..4_u32).map(|index| Match {
            scale: 1.0 + 0.1 * f64::from(index),
            angle: -7.3 * f64::from(index),
            ..found(&format!("cam{index}"), 23 * (index * index) as usize, 17 * index as usize).matches[0]
                .clone()
        });
        let matches = matches.collect();
        let pts_ns = Some(frame * 40_000_000);
        canvas_of(&FrameRecord { frame, pts_ns, matches, tracks, ..FrameRecord::default() }, &mut trails);
    }
}

/// A picture whose bytes all differ from their neighbours, padding apart.
fn uneven(format: PixelFormat, size: Size) -> Picture {
    let mut picture = Picture::grey(format, size);
    for (index, data) in picture.planes.iter_mut().enumerate() {
        let width = format.plane_size(index, size).width;
        for (y, row) in data.chunks_mut(width + PADDING).enumerate() {
            for (x, sample) in row[..width].iter_mut().enumerate() {
                *sample = (x * 7 + y * 13 + index * 50) as u8;
            }
        }
    }
    picture
}

/// Draws into pictures of a format and returns a hash (FNV-1a) of every byte.
fn hash_of_all(format: PixelFormat) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut take = |picture: &Picture| {
        for byte in picture.planes.iter().flatten() {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for (width, height) in [(1, 1), (7, 5), (97, 61), (251, 131), (641, 363), (1283, 1103)] {
        let size = Size::new(width, height);
        let frames = if width > 1000 { 20 } else { 50 };
        crowd(size, frames, &mut |record, trails| {
            let mut picture = uneven(format, size);
            picture.draw(|canvas| draw_results(canvas, record, trails));
            if record.frame % 7 == 5 {
                take(&picture);
            }
        });
        let kept = [
            (1, Rect::new(0, 0, width.min(40), height.min(30))),
            (2, Rect::new(width / 2, height / 2, 9, 7)),
        ];
        for current in [None, Some(Rect::new(width / 3, height / 3, width / 4, height / 5))] {
            let mut picture = uneven(format, size);
            picture.draw(|canvas| {
                draw_selection(canvas, &kept, current);
                // The first versions wrote a hint along the lower edge.
                draw(canvas, |drawing, size| {
                    drawing.start(size);
                    let style = Style::for_height(size.height);
                    style.write_at(drawing, (0, size.height), "Enter: done, Esc: stop");
                });
            });
            take(&picture);
        }
        let mut picture = uneven(format, size);
        picture.draw(draw_grid);
        take(&picture);
        let mask = Plane::from_vec((0..size.area()).map(|i| (i % 5 / 4 * 255) as u8).collect(), size);
        picture.draw(|canvas| draw_split(canvas, mask.as_ref()));
        take(&picture);
    }
    hash
}

#[test]
fn pictures_are_those_of_the_first_versions_to_the_byte() {
    // Written down before there were lists of steps, when each thing was drawn as it came up.
    const EXPECTED: [&str; 12] = [
        "I420 414a66225a06a349",
        "NV12 50a5016825602e2f",
        "GRAY8 0459ffe823d1d380",
        "YV12 c11c0f9f4dd50821",
        "NV21 3e4910ae124be4fe",
        "Y42B 1b5b93b6434006b3",
        "Y444 8e48097bc0170a8f",
        "NV16 88955d8b1970d3bd",
        "NV61 f79191af03b2264d",
        "NV24 09c4791c7142b407",
        "Y41B 6bea9cf213f633eb",
        "YUV9 60d46160e6e3168f",
    ];
    let hashes = PixelFormat::ALL.map(|format| format!("{} {:016x}", format.name, hash_of_all(format)));
    assert_eq!(hashes, EXPECTED);
}

#[test]
fn a_drawing_that_is_used_again_keeps_its_memory() {
    let (size, mut drawing) = (Size::new(641, 363), Drawing::default());
    let mut round = || {
        let mut at = Vec::new();
        crowd(size, 60, &mut |record, trails| {
            drawing.results(record, trails, size);
            at.push((drawing.steps().as_ptr(), drawing.coverage().as_ptr(), drawing.notes.words.as_ptr()));
        });
        at
    };
    let first = round();
    assert_eq!(round(), vec![first[first.len() - 1]; 60]);
}

#[test]
fn steps_lie_in_the_picture_and_letters_in_the_coverage() {
    for (width, height) in [(1, 1), (41, 23), (251, 131), (641, 363)] {
        let (size, mut drawing) = (Size::new(width, height), Drawing::default());
        crowd(size, 60, &mut |record, trails| {
            drawing.results(record, trails, size);
            for step in drawing.steps() {
                assert!(step.area.is_inside(size), "{step:?} of {size}");
                if let Ink::Letter { first, zoom, .. } = step.ink {
                    assert!(step.area.w % zoom == 0 && step.area.h % zoom == 0, "{step:?}");
                    let opacities = step.area.size().area() / (zoom * zoom);
                    assert!(first + opacities <= drawing.coverage().len(), "{step:?}");
                }
            }
        });
    }
}

/// Lays layers over a picture of full chroma, by rounding once for each.
fn lay(picture: &mut Picture, layers: &[Layer]) {
    let stride = picture.size.width + PADDING;
    for Layer { area, pixels } in layers {
        for (n, pixel) in pixels.chunks_exact(4).enumerate() {
            let at = (area.y + n / area.w) * stride + area.x + n % area.w;
            for (plane, over) in picture.planes.iter_mut().zip(&pixel[1..]) {
                plane[at] = super::canvas::mix(plane[at], *over, pixel[0]);
            }
        }
    }
}

#[test]
fn layers_show_what_a_painter_paints_on_a_grey_picture() {
    let size = Size::new(411, 293);
    let y444 = PixelFormat::Y444;
    let mut trails = Trails::default();
    let mut drawing = Drawing::default();
    let mut most = [0; 3];
    for n in 0..40u32 {
        let at = |seed: u32| f64::from((n * 7 + seed * 131) % 400) - 20.0;
        let mut record = track(TrackState::ALL[n as usize % 4], at(1), at(2) * 0.7, 60.0, 44.0);
        record.frame = u64::from(n);
        record.pts_ns = Some(u64::from(n) * 40_000_000);
        let found = |seed: u32| Match {
            template: format!("cam{seed}").into(),
            x: (n * 13 + seed * 97) as usize % 380,
            y: (n * 5 + seed * 61) as usize % 270,
            w: 30,
            h: 21,
            score: 0.9,
            scale: 1.0,
            angle: 0.0,
            cx: 0.0,
            cy: 0.0,
        };
        record.matches = (1..4).map(found).collect();
        drawing.results(&record, &mut trails, size);
        let (mut painted, mut laid) = (Picture::grey(y444, size), Picture::grey(y444, size));
        painted.draw(|canvas| canvas.paint(&drawing));
        let layers = layers(&drawing);
        for (n, layer) in layers.iter().enumerate() {
            assert!(layer.area.is_inside(size) && layer.pixels.len() == 4 * layer.area.size().area());
            assert!(layers[..n].iter().all(|other| other.area.iou(layer.area) == 0.0), "they overlap");
        }
        lay(&mut laid, &layers);
        for (most, planes) in most.iter_mut().zip(painted.planes.iter().zip(&laid.planes)) {
            for (painted, laid) in planes.0.iter().zip(planes.1) {
                *most = (*most).max(painted.abs_diff(*laid));
            }
        }
        assert_eq!(painted.drawn() == 0, layers.is_empty());
    }
    // Overlapping drawings were rounded each time: four dots of a trail with their shadows.
    assert!(most.iter().all(|most| *most <= 3), "{most:?}");
}

#[test]
fn a_mask_is_a_layer_that_hides_the_picture() {
    let size = Size::new(7, 3);
    let mask = Plane::from_vec((0..21).map(|n| if n % 3 == 0 { 255 } else { 0 }).collect(), size);
    let mut picture = Picture::grey(PixelFormat::Y444, size);
    lay(&mut picture, &[Layer::of_mask(mask.as_ref(), 3)]);
    for (x, y) in [(0, 0), (2, 2)] {
        assert_eq!(picture.luma(x, y), 100);
    }
    for (x, y) in [(3, 0), (6, 0), (5, 2)] {
        assert_eq!(picture.colour(x, y), Colour { luma: mask.as_ref().row(y)[x], cb: 128, cr: 128 });
    }
}

#[test]
fn zones_are_drawn_as_dots_with_their_names_and_only_in_the_picture() {
    let size = Size::new(643, 361);
    let zone = |text: &str| -> Zone { text.parse().unwrap() };
    let draw_zones = |format: PixelFormat, zones: &[Zone]| {
        let mut picture = Picture::grey(format, size);
        picture.draw(|canvas| {
            let mut drawing = Drawing::default();
            drawing.results_and_zones(&FrameRecord::default(), &mut Trails::default(), zones, size);
            canvas.paint(&drawing);
        });
        picture
    };
    for format in PixelFormat::ALL {
        let picture = draw_zones(format, &[zone("gate=100.5,150,400,150,430,300,90,310")]);
        let colour = colour_of_name("gate").luma;
        // Along each edge there are bright dots, dark ones, and the picture between them.
        let edges = [[100.5, 150.0, 400.0, 150.0], [400.0, 150.0, 430.0, 300.0], [430.0, 300.0, 90.0, 310.0]];
        for [ax, ay, bx, by] in edges {
            let at = |share: f64| ((ax + share * (bx - ax)).round(), (ay + share * (by - ay)).round());
            let seen: Vec<_> = (0..=400).map(|i| at(f64::from(i) / 400.0)).collect();
            let seen: Vec<_> = seen.into_iter().map(|(x, y)| picture.luma(x as usize, y as usize)).collect();
            assert!(seen.contains(&colour), "{} {ax},{ay}", format.name);
            assert!(seen.contains(&100) && seen.iter().any(|&luma| luma < 60), "{} {ax},{ay}", format.name);
        }
        assert_eq!(picture.luma(250, 225), 100, "{}", format.name);
        // The name stands above the left end of the upper edge.
        let plate = (90..130).flat_map(|x| (125..150).map(move |y| (x, y)));
        assert!(plate.filter(|&(x, y)| picture.luma(x, y) != 100).count() > 200, "{}", format.name);
        // Outside, along the edge, and around everything there is nothing to draw.
        let nothing = [
            "far=-50,-50,700,-50,700,-20,-50,-20",
            "around=-9,-9,900,-9,900,900,-9,900",
            "whole=0,0,643,0,643,361,0,361",
        ];
        assert_eq!(draw_zones(format, &nothing.map(zone)).drawn(), 0, "{}", format.name);
    }
}
