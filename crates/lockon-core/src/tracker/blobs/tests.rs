use super::*;

const FRAME: Size = Size::new(641, 479);
const SECONDS: f64 = 0.04;

use TrackState::{Lost, Reacquired, Tracked, Uncertain};

fn object(x: usize, y: usize, w: usize, h: usize) -> Object {
    let touches_border = x == 0 || y == 0 || x + w == FRAME.width || y + h == FRAME.height;
    Object { x, y, w, h, area: w * h, touches_border, ..Object::default() }
}

/// A scene: the tracks of frames one after the other.
struct Scene {
    blobs: Blobs,
    numbers: Numbers,
}

impl Scene {
    fn new() -> Self {
        Self { blobs: Blobs::new(), numbers: Numbers::after(0) }
    }

    fn step(&mut self, objects: &[Object]) -> Vec<Track> {
        let mut tracks = Vec::new();
        self.blobs.step(objects, FRAME, SECONDS, &self.numbers, 0, &mut tracks);
        tracks
    }

    /// Numbers, states and left edges.
    fn told(&mut self, objects: &[Object]) -> Vec<(u32, TrackState, i64)> {
        self.step(objects).iter().map(|t| (t.id, t.state, t.x.round() as i64)).collect()
    }
}

#[test]
fn an_object_becomes_a_track_in_the_third_frame_in_a_row_and_keeps_its_number() {
    let mut scene = Scene::new();
    assert!(scene.step(&[object(100, 50, 21, 31)]).is_empty());
    assert!(scene.step(&[object(110, 50, 21, 31)]).is_empty());
    for frame in 2..30 {
        let tracks = scene.step(&[object(100 + 10 * frame, 50, 21, 31)]);
        let [Track { id: 1, state: Tracked, x, object: Some(1), .. }] = tracks[..] else {
            panic!("{tracks:?}")
        };
        assert_eq!(x, (100 + 10 * frame) as f64);
        assert_eq!(tracks[0].template.as_deref(), Some("object"));
        // It is expected where it is, once it was seen twice.
        assert_eq!(tracks[0].score, 1.0);
    }
}

#[test]
fn what_flickers_for_less_than_three_frames_uses_no_number() {
    let mut scene = Scene::new();
    for frame in 0..30 {
        let speck = (frame % 3 < 2).then(|| object(300, 200, 9, 9));
        let objects: Vec<_> = [object(100, 50, 21, 31)].into_iter().chain(speck).collect();
        let ids: Vec<_> = scene.step(&objects).iter().map(|track| track.id).collect();
        assert_eq!(ids, if frame < 2 { vec![] } else { vec![1] });
    }
    for _ in 0..3 {
        scene.step(&[object(500, 50, 21, 31)]);
    }
    assert_eq!(scene.blobs.ids().last(), Some(2));
}

#[test]
fn objects_that_pass_each_other_apart_keep_their_numbers() {
    // Their boxes overlap while they pass, and they never touch: two objects in every frame.
    let mut scene = Scene::new();
    let mut last = Vec::new();
    for frame in 0..60 {
        last = scene.told(&[object(100 + 5 * frame, 100, 30, 40), object(400 - 5 * frame, 120, 30, 40)]);
    }
    assert_eq!(last, [(1, Tracked, 395), (2, Tracked, 105)]);
}

#[test]
fn fast_objects_whose_boxes_do_not_overlap_from_frame_to_frame_are_followed() {
    let mut scene = Scene::new();
    let mut last = Vec::new();
    // 25 pixels a frame, 20 pixels wide, in a row with gaps of 80.
    for frame in 0..12 {
        let row = (0..3).map(|n| object(10 + 100 * n + 25 * frame, 50, 20, 30));
        last = scene.told(&row.collect::<Vec<_>>());
    }
    assert_eq!(last, [(1, Tracked, 285), (2, Tracked, 385), (3, Tracked, 485)]);
}

#[test]
fn a_hidden_object_is_lost_and_found_again_under_its_number_where_it_was_expected() {
    let mut scene = Scene::new();
    for frame in 0..10 {
        scene.step(&[object(100 + 8 * frame, 50, 21, 31)]);
    }
    for _ in 10..30 {
        assert_eq!(scene.told(&[]), [(1, Lost, 172)]);
    }
    assert_eq!(scene.told(&[object(100 + 8 * 30, 50, 21, 31)]), [(1, Reacquired, 340)]);
    assert_eq!(scene.told(&[object(100 + 8 * 31, 50, 21, 31)]), [(1, Tracked, 348)]);
    // Hidden for longer than a second, it is another one.
    for _ in 0..24 {
        assert_eq!(scene.told(&[]), [(1, Lost, 348)]);
    }
    assert_eq!(scene.told(&[]), []);
    for frame in 0..3 {
        let told = scene.told(&[object(348, 50, 21, 31)]);
        assert_eq!(told, if frame < 2 { vec![] } else { vec![(2, Tracked, 348)] });
    }
}

#[test]
fn a_limit_of_the_time_that_an_object_is_hidden_is_obeyed() {
    let mut scene = Scene::new();
    scene.blobs.end_hidden_after(TimeSpan::seconds(3));
    for _ in 0..3 {
        scene.step(&[object(100, 50, 21, 31)]);
    }
    for frame in 1..=75 {
        assert_eq!(scene.step(&[]).len(), usize::from(frame < 75), "{frame}");
    }
}

#[test]
fn an_object_that_left_at_the_border_is_gone_sooner() {
    let mut scene = Scene::new();
    for frame in 0..10 {
        let x = 20 - 2 * frame;
        scene.step(&[object(x, 50, 21, 31)]);
    }
    scene.step(&[object(0, 50, 21, 31)]);
    for frame in 1..=13 {
        assert_eq!(scene.step(&[]).len(), usize::from(frame < 13), "{frame}");
    }
}

/// Two objects come together, are one for some frames, and part; each goes on as before.
fn meeting(frames: usize) -> Vec<Vec<Object>> {
    let mut all = Vec::new();
    for frame in 0..frames {
        let (a, b) = (100 + 6 * frame, 400 - 6 * frame);
        let (from, to) = (a.min(b), a.max(b) + 40);
        all.push(if to - from < 80 {
            vec![object(from, 100, to - from, 50)]
        } else {
            vec![object(a, 100, 40, 50), object(b, 100, 40, 50)]
        });
    }
    all
}

#[test]
fn objects_that_merge_stay_two_uncertain_tracks_and_part_with_their_numbers() {
    let mut scene = Scene::new();
    let mut states = Vec::new();
    let mut last = Vec::new();
    for objects in meeting(50) {
        last = scene.told(&objects);
        states.extend(last.iter().map(|(_, state, _)| *state));
        let merged = objects.len() == 1;
        assert!(last.is_empty() || last.len() == 2, "{last:?}");
        for (_, state, x) in &last {
            // While one hides the other wholly it cannot be seen that there are two.
            assert!(!merged || *state != Reacquired, "{last:?}");
            assert!(*x >= 90, "{last:?}");
        }
    }
    assert_eq!(last, [(1, Tracked, 394), (2, Tracked, 106)]);
    assert!(states.contains(&Uncertain));
}

#[test]
fn merged_objects_cross_a_line_as_two() {
    // Two that travel side by side, and touch on the way.
    let mut scene = Scene::new();
    let mut crossed = std::collections::BTreeSet::new();
    for frame in 0..40 {
        let x = 100 + 8 * frame;
        let objects = if (10..30).contains(&frame) {
            vec![object(x, 100, 80, 50)]
        } else {
            vec![object(x, 100, 38, 50), object(x + 42, 100, 38, 50)]
        };
        let tracks = scene.step(&objects);
        crossed.extend(tracks.iter().filter(|t| t.x > 300.0 && frame < 30).map(|t| t.id));
        assert!(frame < 2 || tracks.len() == 2, "{frame} {tracks:?}");
        if (10..30).contains(&frame) {
            assert!(tracks.iter().all(|t| t.state == Uncertain && t.object == Some(1)), "{tracks:?}");
            // Each within the object, and beside each other.
            assert!((tracks[1].x - tracks[0].x - 42.0).abs() <= 4.0, "{tracks:?}");
        }
    }
    assert_eq!(crossed.len(), 2);
    assert_eq!(scene.blobs.ids().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_part_of_an_object_that_was_taken_for_one_does_not_live_on_in_it() {
    let mut scene = Scene::new();
    for frame in 0..100 {
        // The head is apart for five frames.
        let objects = if frame < 5 {
            vec![object(300, 100, 30, 28), object(300, 132, 30, 40)]
        } else {
            vec![object(300, 100, 30, 72)]
        };
        scene.step(&objects);
    }
    assert_eq!(scene.step(&[object(300, 100, 30, 72)]).len(), 1);
}

#[test]
fn an_object_that_splits_is_continued_by_its_closest_part_and_the_other_begins() {
    let mut scene = Scene::new();
    for _ in 0..9 {
        scene.step(&[object(300, 100, 80, 50)]);
    }
    for n in 0..3 {
        let told = scene.told(&[object(298, 100, 50, 50), object(352 + n, 100, 28, 50)]);
        assert_eq!(told[0], (1, Tracked, 298));
        assert_eq!(told.len(), if n < 2 { 1 } else { 2 });
    }
    assert_eq!(scene.blobs.ids().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn an_object_on_which_a_given_box_lies_is_that_tracks() {
    let mut scene = Scene::new();
    for _ in 0..5 {
        let given = Track { id: 9, x: 101.0, y: 52.0, w: 21.0, h: 31.0, ..Track::default() };
        let mut tracks = vec![given];
        scene.blobs.step(&[object(100, 50, 21, 31)], FRAME, SECONDS, &scene.numbers, 0, &mut tracks);
        assert_eq!(tracks.len(), 1);
    }
}

#[test]
fn tracks_that_are_forgotten_begin_again_and_frames_of_another_size_lose_none() {
    let mut scene = Scene::new();
    for frame in 0..4 {
        scene.step(&[object(100 + 4 * frame, 50, 20, 30)]);
    }
    scene.blobs.rescale(2.0, 0.5);
    // It goes on as fast as before, in the new pixels.
    assert_eq!(scene.told(&[object(232, 25, 40, 15)]), [(1, Tracked, 232)]);
    assert_eq!(scene.told(&[object(240, 25, 40, 15)]), [(1, Tracked, 240)]);
    scene.blobs.forget(|id| id == 1);
    for _ in 0..3 {
        scene.step(&[object(248, 25, 40, 15)]);
    }
    assert_eq!(scene.blobs.ids().collect::<Vec<_>>(), [2]);
}

#[test]
fn more_objects_than_can_be_followed_are_bounded_and_the_largest_come_first() {
    let mut scene = Scene::new();
    // 3200 specks, and one that is larger, the last.
    let mut objects: Vec<_> =
        (0..3200).map(|n| Object { area: 4, ..object(n % 80 * 8, n / 80 * 8, 2, 2) }).collect();
    objects.push(object(300, 400, 40, 40));
    let mut last = Vec::new();
    for _ in 0..4 {
        last = scene.step(&objects);
    }
    assert_eq!(last.len(), MOST_TRACKS);
    assert!(scene.blobs.all.len() <= MOST_OBJECTS);
    assert!(scene.blobs.chosen.contains(&3200));
}

#[test]
fn the_order_of_objects_in_the_record_decides_nothing_but_numbers() {
    let mut seed = 7_u64;
    let mut random = |most: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % most
    };
    let walkers: Vec<_> =
        (0..12).map(|_| (random(500) as f64, random(400) as f64, random(9) as f64 - 4.0)).collect();
    let (mut one, mut other) = (Scene::new(), Scene::new());
    for frame in 0..80 {
        let at = |(x, y, v): &(f64, f64, f64)| {
            let x = (x + v * f64::from(frame)).rem_euclid(560.0);
            object(x as usize, *y as usize, 23, 37)
        };
        let objects: Vec<_> = walkers.iter().map(at).collect();
        let turned: Vec<_> = objects.iter().rev().cloned().collect();
        let places = |tracks: Vec<Track>| {
            let mut places: Vec<_> =
                tracks.iter().map(|t| (t.x as i64, t.y as i64, t.state.name())).collect();
            places.sort_unstable();
            places
        };
        assert_eq!(places(one.step(&objects)), places(other.step(&turned)), "{frame}");
    }
}
