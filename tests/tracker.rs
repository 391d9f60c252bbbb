//! The tracker on scenes whose truth is known, on every backend.

use lockon::frame::{Plane, Size};
use lockon::results::{Track, TrackState};

use crate::util::{Job, MemorySource, backends, noise, paste};

const FRAME: Size = Size::new(211, 157);
const TARGET: Size = Size::new(24, 20);

/// A smooth picture, as cameras make them: blurred noise. Plain noise has no slope to follow.
fn smooth(seed: u64, size: Size) -> Plane {
    let noise = noise(seed, size);
    let at = |x: usize, y: usize| u32::from(noise.data()[y % size.height * size.width + x % size.width]);
    let mean = |i: usize| {
        let (x, y) = (i % size.width, i / size.width);
        (0..25).map(|k| at(x + k % 5, y + k / 5)).sum::<u32>() / 25
    };
    Plane::from_vec((0..size.area()).map(|i| ((mean(i) - 60) * 2).min(255) as u8).collect(), size)
}

/// The target over a background, at each of these places; absent where there is none.
fn video(places: &[Option<(usize, usize)>]) -> Vec<Plane> {
    let (background, target) = (smooth(7, FRAME), smooth(99, TARGET));
    places
        .iter()
        .map(|place| {
            let mut picture = background.clone();
            if let Some((x, y)) = *place {
                paste(&mut picture, &target, x, y);
            }
            picture
        })
        .collect()
}

fn follow(places: &[Option<(usize, usize)>], tracks: &[&str]) -> Vec<Vec<Track>> {
    let tracks = tracks.iter().map(|text| text.parse().unwrap()).collect();
    let records = Job { tracks, ..Job::default() }.records_of_all(&video(places));
    records.into_iter().map(|record| record.tracks).collect()
}

#[test]
fn a_moving_target_is_followed_to_the_pixel() {
    let places: Vec<_> = (0..30).map(|i| Some((20 + 5 * i, 30 + 2 * i))).collect();
    for (index, (tracks, place)) in follow(&places, &["20,30,24,20"]).iter().zip(&places).enumerate() {
        let (track, (x, y)) = (&tracks[0], place.unwrap());
        assert_eq!(track.state, TrackState::Tracked, "frame {index}");
        let off = (track.x - x as f64).abs().max((track.y - y as f64).abs());
        assert!(off <= 0.5, "frame {index}: {off} pixels off");
    }
}

#[test]
fn the_first_frame_reports_the_box_as_given() {
    let tracks = follow(&[Some((50, 60))], &["50,60,24,20"]);
    let first = &tracks[0][0];
    assert_eq!((first.id, first.state, first.score), (1, TrackState::Tracked, 1.0));
    assert_eq!((first.x, first.y, first.w, first.h), (50.0, 60.0, 24.0, 20.0));
}

#[test]
fn a_target_that_leaves_is_lost_and_found_again_elsewhere() {
    let mut places = vec![Some((20, 20)); 5];
    places.extend([None; 6]);
    places.extend([Some((150, 110)); 5]);
    let states: Vec<_> = follow(&places, &["20,20,24,20"]).iter().map(|t| t[0].state).collect();
    assert!(states[..5].iter().all(|s| *s == TrackState::Tracked), "{states:?}");
    assert!(states[5..11].iter().all(|s| *s == TrackState::Lost), "{states:?}");
    assert_eq!(states[11], TrackState::Reacquired);
    assert!(states[12..].iter().all(|s| *s == TrackState::Tracked), "{states:?}");
}

#[test]
fn a_lost_track_keeps_its_last_confirmed_box() {
    let tracks = follow(&[Some((20, 20)), Some((22, 21)), None, None], &["20,20,24,20"]);
    let lost = &tracks[3][0];
    assert_eq!(lost.state, TrackState::Lost);
    assert_eq!((lost.x.round(), lost.y.round()), (22.0, 21.0));
    assert!(lost.score < 0.75);
}

#[test]
fn a_box_starts_at_its_frame() {
    let tracks = follow(&[Some((40, 40)); 4], &["40,40,24,20@2", "100,100,9,9"]);
    let ids: Vec<Vec<u32>> = tracks.iter().map(|t| t.iter().map(|t| t.id).collect()).collect();
    assert_eq!(ids, [vec![2], vec![2], vec![1, 2], vec![1, 2]]);
}

#[test]
fn a_box_on_something_flat_is_refused() {
    let pictures = vec![Plane::from_vec(vec![9; FRAME.area()], FRAME)];
    for backend in backends() {
        let job = Job { backend, tracks: vec!["5,5,10,10".parse().unwrap()], ..Job::default() };
        let said = job.run(&mut MemorySource::new(&pictures), vec![]).1.unwrap_err().to_string();
        assert!(said.starts_with("template \"track 1\" is flat"), "{backend:?}: {said}");
    }
}

/// Records of a run over frames that change their size.
fn follow_sizes(pictures: &[Plane], track: &str) -> Vec<Vec<Track>> {
    let job = Job { tracks: vec![track.parse().unwrap()], ..Job::default() };
    job.records_of_all(pictures).into_iter().map(|record| record.tracks).collect()
}

#[test]
fn a_box_that_waits_is_scaled_with_the_frames() {
    let (large, small) = (smooth(1, Size::new(320, 240)), smooth(1, Size::new(160, 120)));
    let tracks = follow_sizes(&[large.clone(), large, small.clone(), small], "200,150,40,40@3");
    let track = &tracks[3][0];
    assert_eq!((track.x, track.y, track.w, track.h), (100.0, 75.0, 20.0, 20.0));
}

#[test]
fn a_target_larger_than_the_frame_is_lost() {
    let (large, small) = (smooth(1, Size::new(320, 240)), smooth(1, Size::new(160, 120)));
    let tracks = follow_sizes(&[large.clone(), large, small.clone(), small], "20,20,200,200");
    let states: Vec<_> = tracks.iter().map(|t| (t[0].state, t[0].score)).collect();
    assert_eq!(states[2..], [(TrackState::Lost, 0.0), (TrackState::Lost, 0.0)]);
    assert_eq!(states[1].0, TrackState::Tracked);
}

#[test]
fn uncertain_frames_do_not_move_the_last_confirmed_box() {
    // The target moves on while something half-transparent passes in front of it, and then it is gone.
    let (background, target, veil) = (smooth(7, FRAME), smooth(99, TARGET), smooth(55, TARGET));
    let mut veiled = target.clone();
    for (pixel, &veil) in veiled.data_mut().iter_mut().zip(veil.data()) {
        *pixel = ((u32::from(*pixel) * 4 + u32::from(veil) * 12) / 16) as u8;
    }
    let pictures: Vec<_> = (0..12)
        .map(|index| {
            let mut picture = background.clone();
            match index {
                0..5 => paste(&mut picture, &target, 20 + 2 * index, 30),
                5..8 => paste(&mut picture, &veiled, 20 + 2 * index, 30),
                _ => {}
            }
            picture
        })
        .collect();
    let tracks = follow_sizes(&pictures, "20,30,24,20");
    let confirmed = tracks.iter().rfind(|t| t[0].state == TrackState::Tracked).unwrap()[0].clone();
    assert!(tracks.iter().any(|t| t[0].state == TrackState::Uncertain), "{tracks:?}");
    let lost = tracks.iter().find(|t| t[0].state == TrackState::Lost).unwrap()[0].clone();
    assert_eq!((lost.x, lost.y), (confirmed.x, confirmed.y), "{tracks:?}");
}
