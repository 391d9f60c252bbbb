//! The tracker on scenes whose truth is known, on every backend. Bounds are as tight as needed to distinguish
//! a scene from a failure: a box that is off by a third of the target's size still overlaps it by half.

use lockon::frame::{Plane, Rect, Size};
use lockon::orders::Order;
use lockon::ports::Follow as _;
use lockon::recent_frames::RecentFrames;
use lockon::results::{FrameRecord, Track, TrackState};
use lockon::tracker::Tracker;

use crate::util::{Job, MemorySink, MemorySource, Random, backends, frame, noise, on_device, smooth};

const FRAME: Size = Size::new(323, 241);
const TARGET: Size = Size::new(44, 36);

/// How a target lies in a frame: its middle, its size relative to its picture, its direction in degrees.
#[derive(Clone, Copy)]
struct Pose {
    x: f64,
    y: f64,
    scale: f64,
    angle: f64,
}

fn at(x: f64, y: f64) -> Pose {
    Pose { x, y, scale: 1.0, angle: 0.0 }
}

/// Draws `target` into `picture`, bilinear; `gain` makes it darker or brighter.
fn draw(picture: &mut Plane, target: &Plane, pose: Pose, gain: f64) {
    let (sin, cos) = (libm::sin(pose.angle.to_radians()), libm::cos(pose.angle.to_radians()));
    let (size, pixels) = (picture.size(), target.size());
    for y in 0..size.height {
        for x in 0..size.width {
            let (dx, dy) = ((x as f64 + 0.5 - pose.x) / pose.scale, (y as f64 + 0.5 - pose.y) / pose.scale);
            let u = cos * dx + sin * dy + pixels.width as f64 / 2.0 - 0.5;
            let v = cos * dy - sin * dx + pixels.height as f64 / 2.0 - 0.5;
            if u < -0.5 || v < -0.5 || u > pixels.width as f64 - 0.5 || v > pixels.height as f64 - 0.5 {
                continue;
            }
            let value = |x: f64, y: f64| {
                let inside = |v: f64, end: usize| (v.max(0.0) as usize).min(end - 1);
                let at = inside(y, pixels.height) * pixels.width + inside(x, pixels.width);
                f64::from(target.data()[at])
            };
            let (fu, fv) = (u - u.floor(), v - v.floor());
            let (u, v) = (u.floor(), v.floor());
            let mixed = (1.0 - fv) * ((1.0 - fu) * value(u, v) + fu * value(u + 1.0, v))
                + fv * ((1.0 - fu) * value(u, v + 1.0) + fu * value(u + 1.0, v + 1.0));
            picture.data_mut()[y * size.width + x] = (gain * mixed).round().clamp(0.0, 255.0) as u8;
        }
    }
}

fn target() -> Plane {
    smooth(99, TARGET)
}

/// The mean of two pictures of one size, each with its weight.
fn mixed((a, a_weight): (&Plane, u16), (b, b_weight): (&Plane, u16)) -> Plane {
    let mean = |(&a, &b): (&u8, &u8)| {
        ((a_weight * u16::from(a) + b_weight * u16::from(b)) / (a_weight + b_weight)) as u8
    };
    Plane::from_vec(a.data().iter().zip(b.data()).map(mean).collect(), a.size())
}

/// The target over a background in each of these poses; absent where there is none.
fn video(poses: impl IntoIterator<Item = Option<Pose>>) -> Vec<Plane> {
    let (background, target) = (smooth(7, FRAME), target());
    let picture = |pose: Option<Pose>| {
        let mut picture = background.clone();
        if let Some(pose) = pose {
            draw(&mut picture, &target, pose, 1.0);
        }
        picture
    };
    poses.into_iter().map(picture).collect()
}

fn tracks_of(records: Vec<FrameRecord>) -> Vec<Vec<Track>> {
    records.into_iter().map(|record| record.tracks).collect()
}

fn follow(pictures: &[Plane], tracks: &[String]) -> Vec<Vec<Track>> {
    let tracks = tracks.iter().map(|text| text.parse().unwrap()).collect();
    tracks_of(Job { tracks, ..Job::default() }.records_of_all(pictures))
}

/// The box of a pose whose direction is 0, as it is typed.
fn typed(pose: Pose) -> String {
    let (w, h) = (TARGET.width as f64 * pose.scale, TARGET.height as f64 * pose.scale);
    format!("{},{},{w},{h}", (pose.x - w / 2.0).round(), (pose.y - h / 2.0).round())
}

/// Follows one target through its poses, which it must do in each frame with a box that overlaps the truth by
/// `least_iou` and whose middle is at most `most_off` pixels off.
fn assert_followed(name: &str, pictures: &[Plane], poses: &[Pose], least_iou: f64, most_off: f64) {
    let tracks = follow(pictures, &[typed(poses[0])]);
    assert_eq!(tracks.len(), poses.len());
    for (index, (tracks, pose)) in tracks.iter().zip(poses).enumerate() {
        let (iou, off) = errors(&tracks[0], *pose);
        assert!(
            iou >= least_iou && off <= most_off,
            "{name}, frame {index}: overlap {iou:.3}, {off:.2} pixels off: {:?}",
            tracks[0]
        );
    }
}

/// Intersection over union with the true box, and the distance of the middles. A turned target's box bounds
/// the ellipse in it.
fn errors(track: &Track, pose: Pose) -> (f64, f64) {
    let (sin, cos) = (libm::sin(pose.angle.to_radians()), libm::cos(pose.angle.to_radians()));
    let (w, h) = (TARGET.width as f64 * pose.scale, TARGET.height as f64 * pose.scale);
    let (w, h) = ((cos * w).hypot(sin * h), (sin * w).hypot(cos * h));
    let overlap =
        |a: f64, a_length: f64, b: f64, b_length: f64| ((a + a_length).min(b + b_length) - a.max(b)).max(0.0);
    let both =
        overlap(track.x, track.w, pose.x - w / 2.0, w) * overlap(track.y, track.h, pose.y - h / 2.0, h);
    let off = (track.x + track.w / 2.0 - pose.x).hypot(track.y + track.h / 2.0 - pose.y);
    (both / (track.w * track.h + w * h - both), off)
}

#[test]
fn constant_speed_is_followed() {
    let poses: Vec<_> = (0..50).map(|i| at(40.0 + 5.0 * f64::from(i), 60.0 + 2.3 * f64::from(i))).collect();
    assert_followed("5.5 pixels a frame", &video(poses.iter().copied().map(Some)), &poses, 0.8, 3.0);
}

#[test]
fn acceleration_is_followed() {
    // From rest to 18 pixels a frame, 0.4 of the target's size.
    let poses: Vec<_> = (0..30).map(|i| at(35.0 + 0.3 * f64::from(i * i), 120.0)).collect();
    assert_followed("0.6 pixels a frame more", &video(poses.iter().copied().map(Some)), &poses, 0.7, 5.0);
}

#[test]
fn scale_from_one_to_two_and_to_a_half_is_followed() {
    for end in [2.0_f64, 0.5] {
        let poses: Vec<_> = (0..=100)
            .map(|i| Pose { scale: end.powf(f64::from(i) / 100.0), ..at(150.0 + 0.3 * f64::from(i), 120.0) })
            .collect();
        let pictures = video(poses.iter().copied().map(Some));
        assert_followed(&format!("scale to {end}"), &pictures, &poses, 0.6, 5.0);
    }
}

#[test]
fn noise_and_a_ramp_of_light_are_followed_through() {
    let poses: Vec<_> = (0..60).map(|i| at(60.0 + 3.0 * f64::from(i), 120.0 + 0.5 * f64::from(i))).collect();
    let (background, target) = (smooth(7, FRAME), target());
    let mut random = Random::new(5);
    let mut noisy = video(poses.iter().copied().map(Some));
    for pixel in noisy.iter_mut().flat_map(Plane::data_mut) {
        // Triangular noise of a standard deviation of 20 grey levels.
        let noise = (i32::from(random.byte()) + i32::from(random.byte()) - 255) / 5;
        *pixel = (i32::from(*pixel) + noise).clamp(0, 255) as u8;
    }
    assert_followed("noise", &noisy, &poses, 0.7, 4.0);

    let ramp: Vec<_> = poses
        .iter()
        .enumerate()
        .map(|(i, &pose)| {
            let mut picture = background.clone();
            draw(&mut picture, &target, pose, 1.0 - 0.01 * i as f64);
            picture
        })
        .collect();
    assert_followed("light", &ramp, &poses, 0.7, 4.0);
}

#[test]
fn blur_is_followed_through() {
    let poses: Vec<_> = (0..50).map(|i| at(60.0 + 3.0 * f64::from(i), 100.0 + f64::from(i))).collect();
    let mut pictures = video(poses.iter().copied().map(Some));
    for (index, picture) in pictures.iter_mut().enumerate() {
        // The mean of up to 9 pixels in a row, as motion of the camera makes it.
        let reach = (index / 10).min(4);
        let sharp = picture.clone();
        for (y, row) in sharp.as_ref().rows().enumerate() {
            for x in 0..FRAME.width {
                let (from, to) = (x.saturating_sub(reach), (x + reach + 1).min(FRAME.width));
                let sum: usize = row[from..to].iter().map(|&v| usize::from(v)).sum();
                picture.data_mut()[y * FRAME.width + x] = (sum / (to - from)) as u8;
            }
        }
    }
    assert_followed("blur", &pictures, &poses, 0.6, 6.0);
}

#[test]
fn a_target_behind_a_board_for_30_frames_is_not_forgotten() {
    let pose = at(160.0, 120.0);
    let mut pictures = video([Some(pose); 100]);
    let board = Plane::from_vec(vec![120; 70 * 60], Size::new(70, 60));
    for picture in &mut pictures[40..70] {
        draw(picture, &board, pose, 1.0);
    }
    let tracks = follow(&pictures, &[typed(pose)]);
    let states: Vec<_> = tracks.iter().map(|t| t[0].state).collect();
    assert!(states[..40].iter().all(|s| *s == TrackState::Tracked), "{states:?}");
    // Uncertain at once, lost when it lasts, found again at most half a second after the board is gone.
    assert!(states[40..70].iter().all(|s| *s != TrackState::Tracked), "{states:?}");
    assert!(states[46..70].iter().all(|s| *s == TrackState::Lost), "{states:?}");
    for (index, tracks) in tracks.iter().enumerate().skip(83) {
        let (iou, off) = errors(&tracks[0], pose);
        assert!(iou >= 0.7, "frame {index}: overlap {iou:.3}, {off:.2} pixels off, {states:?}");
    }
}

#[test]
fn a_target_that_is_gone_is_lost_and_found_again_elsewhere() {
    let mut poses = vec![Some(at(60.0, 60.0)); 20];
    poses.extend([None; 40]);
    poses.extend([Some(at(250.0, 180.0)); 30]);
    let tracks = follow(&video(poses.iter().copied()), &[typed(at(60.0, 60.0))]);
    let states: Vec<_> = tracks.iter().map(|t| t[0].state).collect();
    assert!(states[..20].iter().all(|s| *s == TrackState::Tracked), "{states:?}");
    assert!(states[26..60].iter().all(|s| *s == TrackState::Lost), "{states:?}");
    assert_eq!(states.iter().filter(|s| **s == TrackState::Reacquired).count(), 1, "{states:?}");
    let (iou, off) = errors(&tracks[75][0], at(250.0, 180.0));
    assert!(iou >= 0.7, "overlap {iou:.3}, {off:.2} pixels off, {states:?}");
}

#[test]
fn a_target_that_is_slowly_covered_is_lost_until_it_is_back() {
    // A board with a pattern of its own slides over the target in 30 frames, stands before it for 40, and
    // slides on.
    let pose = at(160.0, 120.0);
    let size = Size::new(66, 60);
    let board = smooth(5, size);
    let mut pictures = video([Some(pose); 190]);
    for (index, picture) in pictures.iter_mut().enumerate() {
        let covered = match index {
            0..40 => continue,
            40..70 => (index - 40) as f64 / 30.0,
            70..110 => 1.0,
            _ => 1.0 + (index - 110) as f64 / 30.0,
        };
        draw(picture, &board, at(pose.x + 60.0 * (covered - 1.0), pose.y), 1.0);
    }
    let tracks = follow(&pictures, &[typed(pose)]);
    let states: Vec<_> = tracks.iter().map(|t| t[0].state).collect();
    assert!(states[..40].iter().all(|s| *s == TrackState::Tracked), "{states:?}");
    // Hidden by three quarters from frame 62 on.
    assert!(states[70..110].iter().all(|s| *s == TrackState::Lost), "{states:?}");
    for (index, tracks) in tracks.iter().enumerate().skip(150) {
        let (iou, off) = errors(&tracks[0], pose);
        assert!(iou >= 0.7, "frame {index}: overlap {iou:.3}, {off:.2} pixels off, {states:?}");
        assert_eq!(states[index], TrackState::Tracked, "{states:?}");
    }
}

#[test]
fn a_target_that_waits_behind_a_still_board_is_lost_until_it_comes_out() {
    // Behind a board that stands there all the time, 40 frames of waiting, then out on the other side or
    // where it went in. It touches the board in frame 20 and is hidden from frame 35 on.
    let board = smooth(6, Size::new(76, 80));
    for speed in [3.0, -3.0] {
        let x = |index: usize| match index {
            0..40 => 60.0 + 3.0 * index as f64,
            40..80 => 180.0,
            _ => 180.0 + speed * (index - 80).min(36) as f64,
        };
        let poses: Vec<_> = (0..140).map(|index| at(x(index), 120.0)).collect();
        let mut pictures = video(poses.iter().copied().map(Some));
        for picture in &mut pictures {
            draw(picture, &board, at(180.0, 120.0), 1.0);
        }
        let tracks = follow(&pictures, &[typed(poses[0])]);
        let states: Vec<_> = tracks.iter().map(|t| t[0].state).collect();
        assert!(states[..20].iter().all(|s| *s == TrackState::Tracked), "{states:?}");
        assert!(states[40..80].iter().all(|s| *s == TrackState::Lost), "{states:?}");
        for (index, (tracks, pose)) in tracks.iter().zip(&poses).enumerate().skip(120) {
            let (iou, off) = errors(&tracks[0], *pose);
            assert!(iou >= 0.7, "frame {index}: overlap {iou:.3}, {off:.2} pixels off, {states:?}");
        }
    }
}

#[test]
fn a_target_that_goes_on_and_comes_to_look_different_is_followed_but_not_for_sure() {
    // Within 20 frames it becomes another picture, as a turning object does.
    let (before, after) = (target(), smooth(55, TARGET));
    let background = smooth(7, FRAME);
    let poses: Vec<_> = (0..95).map(|i| at(40.0 + 2.5 * f64::from(i), 80.0 + 0.6 * f64::from(i))).collect();
    let picture = |(index, pose): (usize, &Pose)| {
        let share = (index.saturating_sub(50) as f64 / 20.0).min(1.0);
        let mixed = before.data().iter().zip(after.data());
        let mixed = mixed.map(|(a, b)| (f64::from(*a) * (1.0 - share) + f64::from(*b) * share) as u8);
        let mut picture = background.clone();
        draw(&mut picture, &Plane::from_vec(mixed.collect(), TARGET), *pose, 1.0);
        picture
    };
    let pictures: Vec<_> = poses.iter().enumerate().map(picture).collect();
    let tracks = follow(&pictures, &[typed(poses[0])]);
    let states: Vec<_> = tracks.iter().map(|t| t[0].state).collect();
    assert!(states[..50].iter().all(|s| *s == TrackState::Tracked), "{states:?}");
    assert!(states[50..].contains(&TrackState::Uncertain), "{states:?}");
    assert!(!states.contains(&TrackState::Lost), "{states:?}");
    // It looks like no picture that was given, so only its motion shows that it is the target.
    assert_eq!(states.last(), Some(&TrackState::Uncertain), "{states:?}");
    for (index, (tracks, pose)) in tracks.iter().zip(&poses).enumerate() {
        let (iou, off) = errors(&tracks[0], *pose);
        assert!(iou >= 0.6, "frame {index}: overlap {iou:.3}, {off:.2} pixels off, {states:?}");
    }
}

#[test]
fn a_target_that_moved_and_stops_by_itself_stays_tracked() {
    let poses: Vec<_> = (0..140).map(|i| at(50.0 + 3.0 * f64::from(i.min(60)), 120.0)).collect();
    let pictures = video(poses.iter().copied().map(Some));
    let tracks = follow(&pictures, &[typed(poses[0])]);
    for (index, (tracks, pose)) in tracks.iter().zip(&poses).enumerate() {
        let (iou, off) = errors(&tracks[0], *pose);
        assert!(iou >= 0.7, "frame {index}: overlap {iou:.3}, {off:.2} pixels off");
        assert_eq!(tracks[0].state, TrackState::Tracked, "frame {index}");
    }
}

#[test]
fn the_box_of_a_target_that_stands_still_in_noise_keeps_its_size() {
    let pose = at(160.0, 120.0);
    let mut random = Random::new(3);
    let mut pictures = video([Some(pose); 200]);
    for picture in &mut pictures {
        for pixel in picture.data_mut() {
            *pixel = pixel.saturating_add(random.byte() % 17).saturating_sub(8);
        }
    }
    let tracks = follow(&pictures, &[typed(pose)]);
    for (index, tracks) in tracks.iter().enumerate() {
        let share = tracks[0].w / TARGET.width as f64;
        assert!((share - 1.0).abs() < 0.08, "frame {index}: {:?}", tracks[0]);
    }
}

#[test]
fn a_target_that_leaves_the_frame_is_lost_and_found_where_it_comes_back() {
    // Out to the left at 4 pixels a frame, away for 30 frames, back from the right.
    let out = (0..50).map(|i| at(150.0 - 4.0 * f64::from(i), 120.0));
    let back = (0..50).map(|i| at(345.0 - 3.0 * f64::from(i), 80.0));
    let poses: Vec<_> = out.map(Some).chain([None; 30]).chain(back.map(Some)).collect();
    let tracks = follow(&video(poses.iter().copied()), &[typed(at(150.0, 120.0))]);
    let states: Vec<_> = tracks.iter().map(|t| t[0].state).collect();
    // A third of it is outside in frame 35, all of it in frame 43.
    assert!(states[..34].iter().all(|s| *s == TrackState::Tracked), "{states:?}");
    assert!(states[50..80].iter().all(|s| *s == TrackState::Lost), "{states:?}");
    for (index, (tracks, pose)) in tracks.iter().zip(&poses).enumerate().skip(115) {
        let (iou, off) = errors(&tracks[0], pose.unwrap());
        assert!(iou >= 0.6, "frame {index}: overlap {iou:.3}, {off:.2} pixels off, {states:?}");
    }
}

#[test]
fn a_target_that_comes_back_larger_and_turned_is_found() {
    // Gone for 20 frames; then elsewhere, up to 2.4 times as large, in another direction.
    for (scale, angle) in [(2.0, 0.0), (1.0, 90.0), (2.4, 45.0)] {
        let again = Pose { scale, angle, ..at(210.0, 150.0) };
        let poses = [Some(at(70.0, 60.0)); 20].into_iter().chain([None; 20]).chain([Some(again); 60]);
        let tracks = follow(&video(poses), &[typed(at(70.0, 60.0))]);
        let states: Vec<_> = tracks.iter().map(|t| t[0].state).collect();
        assert!(states[26..40].iter().all(|s| *s == TrackState::Lost), "{scale}, {angle}: {states:?}");
        let (iou, off) = errors(&tracks[99][0], again);
        assert!(iou >= 0.6, "{scale}, {angle} degrees: overlap {iou:.3}, {off:.2} pixels off, {states:?}");
    }
}

#[test]
fn what_was_seen_beside_a_target_is_not_found_in_its_place() {
    // A thing that is seven tenths of it stands near; the target is gone for 60 frames.
    let alike = mixed((&target(), 7), (&smooth(31, TARGET), 3));
    let pose = |i: u32| match i {
        0..40 => Some(at(100.0 + f64::from(i), 120.0)),
        40..100 => None,
        _ => Some(at(240.0, 60.0)),
    };
    let pictures: Vec<_> = video((0..160).map(pose))
        .into_iter()
        .map(|mut picture| {
            draw(&mut picture, &alike, at(120.0, 165.0), 1.0);
            picture
        })
        .collect();
    let tracks = follow(&pictures, &[typed(at(100.0, 120.0))]);
    let states: Vec<_> = tracks.iter().map(|t| t[0].state).collect();
    assert!(states[50..100].iter().all(|s| *s == TrackState::Lost), "{states:?}");
    let (iou, off) = errors(&tracks[159][0], at(240.0, 60.0));
    assert!(iou >= 0.6, "overlap {iou:.3}, {off:.2} pixels off, {states:?}");
}

#[test]
fn a_target_that_leaves_over_plain_ground_soon_after_it_began_is_lost() {
    // Ground with a little grain. The middle of the box is outside after 15 frames.
    let target = target();
    let pictures: Vec<_> = (0..60_u32)
        .map(|i| {
            let grain = noise(u64::from(i), FRAME).into_vec().into_iter().map(|value| 120 + value / 50);
            let mut picture = Plane::from_vec(grain.collect(), FRAME);
            draw(&mut picture, &target, at(200.0 + 8.0 * f64::from(i), 120.0), 1.0);
            picture
        })
        .collect();
    let states: Vec<_> =
        follow(&pictures, &[typed(at(200.0, 120.0))]).iter().map(|tracks| tracks[0].state).collect();
    // All of it is outside in frame 19.
    assert!(states[..12].iter().all(|s| *s == TrackState::Tracked), "{states:?}");
    assert!(states[26..].iter().all(|s| *s == TrackState::Lost), "{states:?}");
}

#[test]
fn a_target_that_rocks_by_20_degrees_is_followed() {
    let poses: Vec<_> = (0..100)
        .map(|i| Pose {
            angle: 20.0 * libm::sin(f64::from(i) / 12.0),
            ..at(60.0 + 2.0 * f64::from(i), 120.0)
        })
        .collect();
    assert_followed("rocking", &video(poses.iter().copied().map(Some)), &poses, 0.6, 5.0);
}

#[test]
fn a_target_that_turns_by_360_degrees_is_followed() {
    // Up to 4.5 degrees a frame, either way round, on its place and along the frame.
    for (frames, sign, speed) in [(80, 1.0, 0.0), (200, -1.0, 1.0), (400, 1.0, 0.4)] {
        let poses: Vec<_> = (0..=frames)
            .map(|i| Pose {
                angle: sign * 360.0 * f64::from(i) / f64::from(frames),
                ..at(60.0 + speed * f64::from(i), 120.0)
            })
            .collect();
        let pictures = video(poses.iter().copied().map(Some));
        let tracks = follow(&pictures, &[typed(poses[0])]);
        for (index, (tracks, pose)) in tracks.iter().zip(&poses).enumerate() {
            let (iou, off) = errors(&tracks[0], *pose);
            assert!(
                iou >= 0.7 && off <= 4.0,
                "{frames} frames, frame {index}: overlap {iou:.3}, {off:.2} pixels off: {:?}",
                tracks[0]
            );
            assert_eq!(tracks[0].state, TrackState::Tracked, "{frames} frames, frame {index}");
        }
    }
}

#[test]
fn a_target_that_has_turned_is_found_again_as_it_was_and_upright() {
    // Turns by 90 degrees and is gone for 30 frames.
    for back in [90.0, 0.0] {
        let turning = (0..60).map(|i| Pose { angle: (2.0 * f64::from(i)).min(90.0), ..at(80.0, 80.0) });
        let again = Pose { angle: back, ..at(230.0, 160.0) };
        let poses: Vec<_> = turning.map(Some).chain([None; 30]).chain([Some(again); 40]).collect();
        let tracks = follow(&video(poses.iter().copied()), &[typed(at(80.0, 80.0))]);
        let states: Vec<_> = tracks.iter().map(|t| t[0].state).collect();
        assert!(states[..60].iter().all(|s| *s == TrackState::Tracked), "{states:?}");
        assert!(states[66..90].iter().all(|s| *s == TrackState::Lost), "{states:?}");
        let (iou, off) = errors(&tracks[129][0], again);
        assert!(iou >= 0.7, "back at {back} degrees: overlap {iou:.3}, {off:.2} pixels off, {states:?}");
    }
}

#[test]
fn a_named_track_that_is_lost_for_too_long_ends_and_none_does_without_a_limit() {
    let poses: Vec<_> = (0..90).map(|i| (i < 20).then(|| at(60.0 + f64::from(i), 60.0))).collect();
    let pictures = video(poses);
    let tracks = vec![format!("van={}", typed(at(60.0, 60.0))).parse().unwrap()];
    let for_ever = Job { tracks, ..Job::default() };
    let tracks = tracks_of(for_ever.records_of_all(&pictures));
    assert!(tracks.iter().all(|tracks| tracks.len() == 1 && tracks[0].name.as_deref() == Some("van")));
    let lost = tracks.iter().position(|tracks| tracks[0].state == TrackState::Lost).unwrap();
    // Frames are 40 ms apart.
    let limited = Job { lost_for: Some("1s".parse().unwrap()), ..for_ever };
    let ended = tracks_of(limited.records_of_all(&pictures));
    assert_eq!(ended[..lost + 25], tracks[..lost + 25]);
    assert!(ended[lost + 25..].iter().all(Vec::is_empty));
}

#[test]
fn a_lost_track_keeps_its_last_confirmed_box() {
    let poses = (0..30).map(|i| (i < 10).then(|| at(60.0 + f64::from(i), 60.0)));
    let tracks = follow(&video(poses), &[typed(at(60.0, 60.0))]);
    let confirmed = &tracks.iter().rfind(|t| t[0].state == TrackState::Tracked).unwrap()[0];
    let lost = &tracks[29][0];
    assert_eq!(lost.state, TrackState::Lost);
    assert_eq!((lost.x, lost.y, lost.w, lost.h), (confirmed.x, confirmed.y, confirmed.w, confirmed.h));
    assert!(lost.score < 0.6, "{lost:?}");
    let (iou, _) = errors(lost, at(69.0, 60.0));
    assert!(iou >= 0.7, "{lost:?}");
}

#[test]
fn two_that_look_alike_and_pass_each_other_keep_their_identities() {
    // One hides the lower 14 of the other's 36 rows as they pass.
    let (background, target) = (smooth(7, FRAME), target());
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for i in 0..70 {
        left.push(at(50.0 + 3.0 * f64::from(i), 108.0));
        right.push(at(260.0 - 3.0 * f64::from(i), 130.0));
    }
    let pictures: Vec<_> = left
        .iter()
        .zip(&right)
        .map(|(&left, &right)| {
            let mut picture = background.clone();
            draw(&mut picture, &target, right, 1.0);
            draw(&mut picture, &target, left, 1.0);
            picture
        })
        .collect();
    let tracks = follow(&pictures, &[typed(left[0]), typed(right[0])]);
    for (name, id, pose) in [("left", 0, left[69]), ("right", 1, right[69])] {
        let (iou, off) = errors(&tracks[69][id], pose);
        let way: Vec<_> = tracks.iter().map(|t| t[id].x.round()).collect();
        assert!(iou >= 0.6, "from the {name}: overlap {iou:.3}, {off:.2} pixels off: {way:?}");
    }
}

/// Three alike, in each frame from behind to the front: two of them at random change places, again and again,
/// along half ellipses. One of the two leads in front of the other. Each pair is the target's number and
/// pose.
fn shuffled(swaps: u32, frames: u32) -> Vec<[(usize, Pose); 3]> {
    let mut random = Random::new(11);
    let places = [55.0, 160.0, 265.0];
    let mut at_place = [0, 1, 2];
    let mut scenes = Vec::new();
    let scene = |poses: [Pose; 3]| {
        let mut scene = [0, 1, 2].map(|target| (target, poses[target]));
        scene.sort_by(|(_, a), (_, b)| a.y.total_cmp(&b.y));
        scene
    };
    for _ in 0..swaps {
        let stays = usize::from(random.byte()) % 3;
        let [a, b] = [(stays + 1) % 3, (stays + 2) % 3];
        let depth = 5.0 + f64::from(random.byte() % 8);
        for frame in 1..=frames {
            let way = f64::from(frame) / f64::from(frames);
            let way = way * way * (3.0 - 2.0 * way);
            let mut poses = at_place.map(|place| at(places[place], 120.0));
            let (from, to) = (places[at_place[a]], places[at_place[b]]);
            let off = depth * libm::sin(std::f64::consts::PI * way);
            poses[a] = at(from + way * (to - from), 120.0 + off);
            poses[b] = at(to + way * (from - to), 120.0 - off);
            scenes.push(scene(poses));
        }
        at_place.swap(a, b);
        // And rest for a moment.
        scenes.extend([scene(at_place.map(|place| at(places[place], 120.0))); 3]);
    }
    scenes
}

#[test]
fn three_that_look_alike_and_are_shuffled_keep_their_identities() {
    let (background, target) = (smooth(7, FRAME), target());
    let scenes = shuffled(6, 24);
    let pictures: Vec<_> = scenes
        .iter()
        .map(|scene| {
            let mut picture = background.clone();
            for (_, pose) in scene {
                draw(&mut picture, &target, *pose, 1.0);
            }
            picture
        })
        .collect();
    let pose = |scene: &[(usize, Pose); 3], id| scene.iter().find(|(target, _)| *target == id).unwrap().1;
    let tracks = follow(&pictures, &[0, 1, 2].map(|id| typed(pose(&scenes[0], id))));
    let (mut right, mut double, mut longest) = (0, 0, 0);
    for (tracks, scene) in tracks.iter().zip(&scenes) {
        let is_seen = |track: &Track| track.state != TrackState::Lost;
        right +=
            (0..3).filter(|&id| is_seen(&tracks[id]) && errors(&tracks[id], pose(scene, id)).0 > 0.3).count();
        let is_double =
            |a: &Track, b: &Track| is_seen(a) && is_seen(b) && (a.x - b.x).hypot(a.y - b.y) < 10.0;
        let pairs = [(0, 1), (0, 2), (1, 2)];
        double = if pairs.iter().any(|&(a, b)| is_double(&tracks[a], &tracks[b])) { double + 1 } else { 0 };
        longest = longest.max(double);
    }
    let share = right as f64 / (3 * scenes.len()) as f64;
    assert!(share >= 0.9, "{share:.3} have the right number");
    assert!(longest <= 8, "two tracks are on one object for {longest} frames");
}

/// Two come from the left and from the right, lie on one another for 12 frames, and part again: each goes on,
/// or back where it came from. The first of these pictures is in front.
fn meeting(pictures: [&Plane; 2], goes_on: bool) -> (Vec<Plane>, Vec<[Pose; 2]>) {
    let background = smooth(7, FRAME);
    let way = |i: u32| match i {
        0..40 => f64::from(i) * 2.0,
        40..52 => 80.0,
        _ if goes_on => 80.0 + f64::from(i - 52) * 2.0,
        _ => 80.0 - f64::from(i - 52) * 2.0,
    };
    let poses = |i: u32| [at(80.0 + way(i), 124.0), at(240.0 - way(i), 116.0)];
    let picture = |[front, back]: [Pose; 2]| {
        let mut picture = background.clone();
        draw(&mut picture, pictures[1], back, 1.0);
        draw(&mut picture, pictures[0], front, 1.0);
        picture
    };
    let poses: Vec<_> = (0..90).map(poses).collect();
    (poses.iter().copied().map(picture).collect(), poses)
}

#[test]
fn two_alike_that_met_for_long_are_uncertain_since_nobody_can_know_who_is_who() {
    let target = target();
    for goes_on in [true, false] {
        let (pictures, poses) = meeting([&target, &target], goes_on);
        let tracks = follow(&pictures, &poses[0].map(typed));
        let states: Vec<_> = tracks.iter().map(|t| [t[0].state, t[1].state]).collect();
        assert!(states[..30].iter().flatten().all(|s| *s == TrackState::Tracked), "{states:?}");
        assert!(states[76..].iter().flatten().all(|s| *s == TrackState::Uncertain), "{goes_on}: {states:?}");
        let mut seen = [0, 1].map(|id| tracks[89][id].x);
        let mut there = poses[89].map(|pose| pose.x - TARGET.width as f64 / 2.0);
        seen.sort_by(f64::total_cmp);
        there.sort_by(f64::total_cmp);
        let is_near = seen.iter().zip(there).all(|(seen, there)| (seen - there).abs() < 8.0);
        assert!(is_near, "{goes_on}: {seen:?}, {there:?}");
    }
}

#[test]
fn two_that_differ_have_their_own_numbers_after_they_met_for_long() {
    // Three quarters of what they show is the same.
    let (target, other) = (target(), smooth(31, TARGET));
    let alike = mixed((&target, 3), (&other, 1));
    for goes_on in [true, false] {
        for pair in [[&target, &alike], [&alike, &target]] {
            let (pictures, poses) = meeting(pair, goes_on);
            let tracks = follow(&pictures, &poses[0].map(typed));
            let states: Vec<_> = tracks.iter().map(|t| [t[0].state, t[1].state]).collect();
            assert!(states[80..].iter().flatten().all(|s| *s == TrackState::Tracked), "{states:?}");
            for id in [0, 1] {
                let (iou, off) = errors(&tracks[89][id], poses[89][id]);
                assert!(iou >= 0.6, "{goes_on}, {id}: overlap {iou:.3}, {off:.2} pixels off, {states:?}");
            }
        }
    }
}

#[test]
fn a_target_that_hides_behind_one_that_looks_like_it_is_lost_until_it_comes_out() {
    let (background, target) = (smooth(7, FRAME), target());
    let front = |i: u32| at(150.0 + 0.5 * f64::from(i), 122.0);
    let behind = |i: u32| match i {
        0..40 => at(50.0 + 3.0 * f64::from(i), 118.0),
        40..90 => at(front(i).x, 118.0),
        _ => at(front(90).x + 3.0 * f64::from(i - 90), 118.0),
    };
    let pictures: Vec<_> = (0..130)
        .map(|i| {
            let mut picture = background.clone();
            draw(&mut picture, &target, behind(i), 1.0);
            draw(&mut picture, &target, front(i), 1.0);
            picture
        })
        .collect();
    let tracks = follow(&pictures, &[typed(behind(0)), typed(front(0))]);
    let states: Vec<_> = tracks.iter().map(|t| t.iter().map(|t| t.state).collect::<Vec<_>>()).collect();
    for (index, tracks) in tracks.iter().enumerate() {
        if (50..90).contains(&index) {
            assert_eq!(tracks[0].state, TrackState::Lost, "frame {index}: {states:?}");
        }
        assert!(errors(&tracks[1], front(index as u32)).0 > 0.6, "frame {index}: {states:?}");
    }
    let (iou, off) = errors(&tracks[129][0], behind(129));
    assert!(iou >= 0.6, "overlap {iou:.3}, {off:.2} pixels off: {states:?}");
}

#[test]
fn a_target_that_is_gone_is_not_found_where_another_one_like_it_is_followed() {
    let (background, target) = (smooth(7, FRAME), target());
    let other = |i: u32| at(80.0 + f64::from(i), 60.0);
    let pictures: Vec<_> = (0..140)
        .map(|i| {
            let mut picture = background.clone();
            draw(&mut picture, &target, other(i), 1.0);
            if i < 40 {
                draw(&mut picture, &target, at(200.0, 180.0 - f64::from(i)), 1.0);
            }
            picture
        })
        .collect();
    let tracks = follow(&pictures, &[typed(at(200.0, 180.0)), typed(other(0))]);
    for (index, tracks) in tracks.iter().enumerate().skip(60) {
        assert_eq!(tracks[0].state, TrackState::Lost, "frame {index}: {tracks:?}");
        assert!(errors(&tracks[1], other(index as u32)).0 > 0.6, "frame {index}: {tracks:?}");
    }
}

#[test]
fn a_small_target_inside_a_larger_one_that_is_followed_is_found_again() {
    // As a number plate on a car, which is hidden for a while.
    let (background, car) = (smooth(7, FRAME), smooth(3, Size::new(150, 120)));
    let (plate, cover) = (target(), smooth(71, TARGET));
    let place = |i: u32| at(120.0 + 0.8 * f64::from(i), 120.0);
    let pictures: Vec<_> = (0..100)
        .map(|i| {
            let mut picture = background.clone();
            draw(&mut picture, &car, place(i), 1.0);
            draw(&mut picture, if (30..60).contains(&i) { &cover } else { &plate }, place(i), 1.0);
            picture
        })
        .collect();
    let tracks = follow(&pictures, &["45,60,150,120".into(), typed(place(0))]);
    assert!(tracks[30..60].iter().any(|tracks| tracks[1].state == TrackState::Lost));
    let (iou, off) = errors(&tracks[99][1], place(99));
    assert!(iou >= 0.6, "overlap {iou:.3}, {off:.2} pixels off: {:?}", tracks[99]);
}

#[test]
fn one_that_comes_back_is_not_found_by_two() {
    // Two alike leave, one of them comes back.
    let (background, target) = (smooth(7, FRAME), target());
    let pictures: Vec<_> = (0..120)
        .map(|i| {
            let mut picture = background.clone();
            if i < 30 {
                draw(&mut picture, &target, at(80.0, 60.0), 1.0);
            }
            if !(30..50).contains(&i) {
                draw(&mut picture, &target, at(240.0 - 0.2 * f64::from(i), 180.0), 1.0);
            }
            picture
        })
        .collect();
    let tracks = follow(&pictures, &[typed(at(80.0, 60.0)), typed(at(240.0, 180.0))]);
    for (index, tracks) in tracks.iter().enumerate().skip(50) {
        let seen = tracks.iter().filter(|track| track.state != TrackState::Lost).count();
        assert!(seen <= 1 && (index < 80 || seen == 1), "frame {index}: {tracks:?}");
    }
}

#[test]
fn one_box_that_is_given_twice_is_followed_twice() {
    let poses: Vec<_> = (0..60).map(|i| at(60.0 + 3.0 * f64::from(i), 120.0)).collect();
    let pictures = video(poses.iter().copied().map(Some));
    let tracks = follow(&pictures, &[typed(poses[0]), typed(at(61.0, 120.0))]);
    for (tracks, pose) in tracks.iter().zip(&poses) {
        for track in tracks {
            assert!(track.state == TrackState::Tracked && errors(track, *pose).0 > 0.8, "{track:?}");
        }
    }
}

#[test]
fn what_slowly_takes_a_targets_place_gets_a_low_score_and_is_not_tracked() {
    let (background, target, other) = (smooth(7, FRAME), target(), smooth(31, TARGET));
    let pose = |i: u32| at(50.0 + 1.5 * f64::from(i), 120.0);
    let pictures: Vec<_> = (0..140)
        .map(|i| {
            let share = f64::from(i.clamp(30, 110) - 30) / 80.0;
            let mix =
                |(a, b): (&u8, &u8)| ((1.0 - share) * f64::from(*a) + share * f64::from(*b)).round() as u8;
            let mixed = target.data().iter().zip(other.data()).map(mix).collect();
            let mut picture = background.clone();
            draw(&mut picture, &Plane::from_vec(mixed, TARGET), pose(i), 1.0);
            picture
        })
        .collect();
    let tracks = follow(&pictures, &[typed(pose(0))]);
    let mean = |tracks: &[Vec<Track>]| tracks.iter().map(|t| t[0].score).sum::<f64>() / tracks.len() as f64;
    let sure = |tracks: &[Vec<Track>]| tracks.iter().filter(|t| t[0].state == TrackState::Tracked).count();
    let (own, others) = (&tracks[..30], &tracks[110..]);
    assert!(sure(own) == 30 && mean(own) > 0.9, "{own:?}");
    assert!(
        4 * sure(others) <= others.len() && mean(others) < 0.5,
        "{} of 30 sure, mean {:.2}",
        sure(others),
        mean(others)
    );
}

#[test]
fn targets_are_followed_alike_on_any_number_of_threads() {
    // Three that move and one that turns; one of them is hidden for a while: threads end at different times.
    let (background, target, board) = (smooth(7, FRAME), target(), smooth(5, Size::new(60, 50)));
    let poses = |i: u32| {
        let i = f64::from(i);
        let turning = Pose { angle: 4.0 * i, ..at(250.0, 60.0) };
        [at(40.0 + 2.0 * i, 50.0), at(60.0, 190.0 - i), at(260.0 - 2.0 * i, 190.0), turning]
    };
    let pictures: Vec<_> = (0..60)
        .map(|i| {
            let mut picture = background.clone();
            for pose in poses(i) {
                draw(&mut picture, &target, pose, 1.0);
            }
            if (20..40).contains(&i) {
                draw(&mut picture, &board, poses(i)[2], 1.0);
            }
            picture
        })
        .collect();
    let job = |threads| Job {
        tracks: poses(0).iter().map(|&pose| typed(pose).parse().unwrap()).collect(),
        threads,
        ..Job::default()
    };
    let alone = tracks_of(job(1).records_of_all(&pictures));
    assert!(alone.iter().any(|tracks| tracks[2].state == TrackState::Lost));
    for threads in [2, 3, 7] {
        assert_eq!(tracks_of(job(threads).records_of_all(&pictures)), alone, "{threads} threads");
    }
}

#[test]
fn a_lost_target_is_searched_for_alike_by_any_number_of_threads() {
    // So small that the frame has more windows than are searched at a time. One comes back elsewhere, one had
    // turned, and one is followed all the time.
    let (background, small) = (smooth(7, FRAME), |x, y| Pose { scale: 0.5, ..at(x, y) });
    let looks = [99, 98, 97].map(|seed| smooth(seed, TARGET));
    let is_hidden = |i: u32| (20..40).contains(&i);
    let poses = |i: u32| {
        let turning = Pose { angle: 3.0 * f64::from(i.min(20)), ..small(240.0, 60.0) };
        let gone = (!is_hidden(i)).then_some(if i < 20 { small(70.0, 60.0) } else { small(250.0, 190.0) });
        [gone, (!is_hidden(i)).then_some(turning), Some(small(60.0 + 2.0 * f64::from(i), 130.0))]
    };
    for followed in [&[0][..], &[0, 1, 2]] {
        let pictures: Vec<_> = (0..64)
            .map(|i| {
                let mut picture = background.clone();
                for &index in followed {
                    if let Some(pose) = poses(i)[index] {
                        draw(&mut picture, &looks[index], pose, 1.0);
                    }
                }
                picture
            })
            .collect();
        let job = |threads| Job {
            tracks: followed.iter().map(|&index| typed(poses(0)[index].unwrap()).parse().unwrap()).collect(),
            threads,
            ..Job::default()
        };
        let alone = tracks_of(job(1).records_of_all(&pictures));
        let states: Vec<_> = alone.iter().map(|tracks| tracks[0].state).collect();
        let frames_of = |state| states.iter().filter(|found| **found == state).count();
        assert!(frames_of(TrackState::Lost) > 10 && frames_of(TrackState::Reacquired) == 1, "{states:?}");
        for threads in [2, 3, 7] {
            let tracks = tracks_of(job(threads).records_of_all(&pictures));
            assert_eq!(tracks, alone, "{threads} threads, {} targets", followed.len());
        }
    }
}

#[test]
fn dropped_frames_are_made_up_for_by_their_times() {
    // 3 pixels a frame; every fourth frame is kept.
    let poses: Vec<_> = (0..80).map(|i| at(40.0 + 3.0 * f64::from(i), 120.0)).collect();
    let pictures = video(poses.iter().copied().map(Some));
    for backend in backends() {
        let kept = (0..80).filter(|index| index % 4 == 0);
        let frames = kept.clone().map(|index| Ok(frame(index as u64, &pictures[index]))).collect();
        let sink = MemorySink::default();
        let heard = sink.heard.clone();
        let job = Job { backend, tracks: vec![typed(poses[0]).parse().unwrap()], ..Job::default() };
        let mut source = MemorySource { frames, ..MemorySource::default() };
        job.run(&mut source, vec![Box::new(sink)]).1.unwrap();
        let records = &heard.lock().unwrap().records;
        assert_eq!(records.len(), kept.clone().count());
        for (record, index) in records.iter().zip(kept) {
            let (iou, off) = errors(&record.tracks[0], poses[index]);
            assert!(iou >= 0.7, "{backend:?}, frame {index}: overlap {iou:.3}, {off:.2} pixels off");
        }
    }
}

#[test]
fn two_frames_at_nearly_the_same_time_are_no_fast_motion() {
    let poses: Vec<_> = (0..60).map(|i| at(40.0 + 4.0 * f64::from(i), 120.0)).collect();
    let pictures = video(poses.iter().copied().map(Some));
    let at_time = |index: usize| {
        let mut frame = self::frame(index as u64, &pictures[index]);
        // Frame 30 comes a microsecond after the one before.
        if index == 30 {
            frame.meta.pts_ns = self::frame(29, &pictures[29]).meta.pts_ns.map(|pts| pts + 1_000);
        }
        Ok(frame)
    };
    let sink = MemorySink::default();
    let heard = sink.heard.clone();
    let job = Job { tracks: vec![typed(poses[0]).parse().unwrap()], ..Job::default() };
    let mut source = MemorySource { frames: (0..60).map(at_time).collect(), ..MemorySource::default() };
    job.run(&mut source, vec![Box::new(sink)]).1.unwrap();
    let records = &heard.lock().unwrap().records;
    assert_eq!(records.len(), poses.len());
    for (index, (record, pose)) in records.iter().zip(&poses).enumerate() {
        let (iou, off) = errors(&record.tracks[0], *pose);
        assert!(iou >= 0.7, "frame {index}: overlap {iou:.3}, {off:.2} pixels off");
        assert_eq!(record.tracks[0].state, TrackState::Tracked, "frame {index}");
    }
}

#[test]
fn a_target_partly_outside_the_frame_is_followed() {
    // Until half of it is outside.
    let poses: Vec<_> = (0..50).map(|i| at(100.0 - 2.0 * f64::from(i), 120.0)).collect();
    assert_followed("over the edge", &video(poses.iter().copied().map(Some)), &poses, 0.6, 8.0);
}

#[test]
fn the_first_frame_reports_the_box_as_given() {
    let tracks = follow(&video([Some(at(72.0, 78.0))]), &["50,60,44,36".into()]);
    let first = &tracks[0][0];
    assert_eq!((first.id, first.state, first.score), (1, TrackState::Tracked, 1.0));
    assert_eq!((first.x, first.y, first.w, first.h), (50.0, 60.0, 44.0, 36.0));
}

#[test]
fn a_box_starts_at_its_frame() {
    let pictures = video([Some(at(72.0, 78.0)); 4]);
    let tracks = follow(&pictures, &["50,60,44,36@2".into(), "100,100,19,19".into()]);
    let ids: Vec<Vec<u32>> = tracks.iter().map(|t| t.iter().map(|t| t.id).collect()).collect();
    assert_eq!(ids, [vec![2], vec![2], vec![1, 2], vec![1, 2]]);
}

#[test]
fn a_box_on_something_flat_waits_until_there_is_something() {
    let black = Plane::from_vec(vec![16; FRAME.area()], FRAME);
    // As flat, but for how it was rounded.
    let mut rounded = black.clone();
    rounded.data_mut().iter_mut().step_by(7).for_each(|pixel| *pixel += 1);
    let mut pictures = vec![black.clone(), rounded, black.clone()];
    pictures.extend(video([Some(at(72.0, 78.0)); 3]));
    // Once it is followed, a black picture is one in which it is lost.
    pictures.push(black.clone());
    let tracks = follow(&pictures, &["50,60,44,36".into(), "20,20,30,30@4".into()]);
    let ids: Vec<Vec<u32>> = tracks.iter().map(|t| t.iter().map(|t| t.id).collect()).collect();
    assert_eq!(ids, [vec![], vec![], vec![], vec![1], vec![1, 2], vec![1, 2], vec![1, 2]]);
    let first = &tracks[3][0];
    assert_eq!((first.state, first.x, first.y), (TrackState::Tracked, 50.0, 60.0));
    assert_eq!(follow(&[black.clone(), black], &["50,60,44,36".into()]), [vec![], vec![]]);
}

#[test]
fn a_box_of_one_pixel_does_not_break_anything() {
    let pictures = video((0..5).map(|i| Some(at(72.0 + f64::from(i), 78.0))));
    let tracks = follow(&pictures, &["60,70,2,1".into()]);
    let is_finite =
        |t: &Track| [t.x, t.y, t.w, t.h, t.score, t.second_peak_ratio].iter().all(|v| v.is_finite());
    assert!(tracks.iter().all(|t| is_finite(&t[0])), "{tracks:?}");
}

/// Twice as small, by the mean of four pixels.
fn halved(picture: &Plane) -> Plane {
    let Size { width, height } = picture.size();
    let at = |x: usize, y: usize| u32::from(picture.data()[y * width + x]);
    let size = Size::new(width / 2, height / 2);
    let mean =
        |x: usize, y: usize| (at(x, y) + at(x + 1, y) + at(x, y + 1) + at(x + 1, y + 1)).div_ceil(4) as u8;
    Plane::from_vec((0..size.area()).map(|i| mean(i % size.width * 2, i / size.width * 2)).collect(), size)
}

#[test]
fn boxes_are_scaled_with_the_frames() {
    let large = smooth(1, Size::new(320, 240));
    let small = halved(&large);
    let pictures = [large.clone(), large, small.clone(), small];
    let tracks = follow(&pictures, &["200,150,40,40@3".into(), "100,80,60,50".into()]);
    let waited = &tracks[3][0];
    assert_eq!((waited.x, waited.y, waited.w, waited.h), (100.0, 75.0, 20.0, 20.0));
    let followed = &tracks[3][1];
    assert_eq!(followed.state, TrackState::Tracked);
    // The matching place in the smaller picture, to two of its pixels.
    assert!((followed.x - 50.0).abs() <= 2.0 && (followed.y - 40.0).abs() <= 2.0, "{followed:?}");
    assert!((followed.w - 30.0).abs() <= 2.0 && (followed.h - 25.0).abs() <= 2.0, "{followed:?}");
}

#[test]
fn boxes_that_wait_stay_inside_frames_that_become_smaller() {
    // At the very edge, where half a pixel is rounded up.
    let pictures =
        [smooth(1, Size::new(321, 241)), smooth(1, Size::new(107, 79)), smooth(1, Size::new(21, 15))];
    let tracks = follow(&pictures, &["319,239,2,2@1".into(), "320,240,1,1@2".into(), "0,0,321,241@2".into()]);
    assert!(tracks[2].iter().any(|track| track.id == 3), "{tracks:?}");
}

#[test]
fn frames_that_lie_on_a_device_are_followed_alike_and_never_fetched_whole() {
    let pose = |index: usize| {
        let at = at(60.0 + 5.0 * index as f64, 90.0 + 20.0 * libm::sin(index as f64 / 7.0));
        // It turns, is hidden for a while, and comes back.
        let pose = Pose { angle: 3.0 * index as f64, ..at };
        (!(18..30).contains(&index)).then_some(pose)
    };
    let pictures = video((0..45).map(pose));
    let job = |threads| Job {
        tracks: vec![typed(pose(0).unwrap()).parse().unwrap(), "200,150,40,40".parse().unwrap()],
        threads,
        ..Job::default()
    };
    let records = |source: &mut MemorySource, threads| -> Vec<Vec<Track>> {
        let sink = MemorySink::default();
        let heard = sink.heard.clone();
        job(threads).run(source, vec![Box::new(sink)]).1.unwrap();
        heard.lock().unwrap().records.iter().map(|record| record.tracks.clone()).collect()
    };
    let expected = records(&mut MemorySource::new(&pictures), 1);
    for threads in [1, 2] {
        let mut source = MemorySource::new(&pictures);
        let there = on_device(&mut source);
        assert!(records(&mut source, threads) == expected, "{threads} threads");
        let whole: usize = there.iter().map(|picture| picture.whole_planes()).sum();
        assert_eq!(whole, 0, "planes that were fetched whole");
    }
}

#[test]
fn of_two_that_nobody_can_tell_apart_one_that_is_corrected_changes_places_with_the_other() {
    let target = target();
    let (pictures, poses) = meeting([&target, &target], true);
    for is_exchanged in [false, true] {
        let specs: Vec<_> = poses[0].iter().map(|pose| typed(*pose).parse().unwrap()).collect();
        let mut tracker = Tracker::new(&specs);
        let step = |tracker: &mut Tracker, index: usize| {
            let mut tracks = Vec::new();
            tracker.step(&frame(index as u64, &pictures[index]), &[], &mut tracks);
            tracks
        };
        let mut tracks = Vec::new();
        for index in 0..82 {
            tracks = step(&mut tracker, index);
        }
        assert!(tracks.iter().all(|track| track.state == TrackState::Uncertain), "{tracks:?}");
        // The first one is said to be where it is, or where the other one is.
        let [here, there] = if is_exchanged { [1, 0] } else { [0, 1] }.map(|id| tracks[id].clone());
        let rect = Rect::new(here.x.round() as usize, here.y.round() as usize, TARGET.width, TARGET.height);
        let order = Order::Correct { id: 1, rect, at: None };
        tracker.obey(&order, &frame(82, &pictures[82]), &RecentFrames::default()).unwrap();
        for index in 82..90 {
            tracks = step(&mut tracker, index);
        }
        let near = |track: &Track, to: &Track| (track.x - to.x).abs() < 30.0;
        assert!(near(&tracks[0], &here) && near(&tracks[1], &there), "{is_exchanged}: {tracks:?}");
        assert!(tracks.iter().all(|track| track.state == TrackState::Tracked), "{is_exchanged}: {tracks:?}");
    }
}
