//! Tracks of matches on scenes whose truth is known: which begin, under which number, and when they end.

use lockon::config::Limits;
use lockon::frame::{Plane, Size, iou};
use lockon::results::{FrameRecord, Track, TrackState};
use lockon::template::Template;

use crate::util::{Job, paste, smooth};

const FRAME: Size = Size::new(323, 241);
const PART: Size = Size::new(44, 36);

fn part() -> Plane {
    smooth(99, PART)
}

/// `patch` with its corner at (`x`, `y`), as far as it lies in the picture.
fn show(picture: &mut Plane, patch: &Plane, (x, y): (i64, i64)) {
    let (size, inner) = (picture.size(), patch.size());
    for row in 0..inner.height {
        for column in 0..inner.width {
            let (x, y) = (x + column as i64, y + row as i64);
            if (0..size.width as i64).contains(&x) && (0..size.height as i64).contains(&y) {
                picture.data_mut()[y as usize * size.width + x as usize] =
                    patch.data()[row * inner.width + column];
            }
        }
    }
}

/// Pictures in which parts lie at these corners.
fn video(frames: impl IntoIterator<Item = Vec<(i64, i64)>>) -> Vec<Plane> {
    let (background, part) = (smooth(7, FRAME), part());
    let picture = |places: Vec<(i64, i64)>| {
        let mut picture = background.clone();
        for place in places {
            show(&mut picture, &part, place);
        }
        picture
    };
    frames.into_iter().map(picture).collect()
}

fn job() -> Job {
    Job {
        templates: vec![Template::new("part", part(), None).unwrap()],
        track_matches: true,
        limits: Limits { max_matches: 4, ..Limits::default() },
        ..Job::default()
    }
}

fn tracks_of(records: Vec<FrameRecord>) -> Vec<Vec<Track>> {
    records.into_iter().map(|record| record.tracks).collect()
}

fn follow(pictures: &[Plane]) -> Vec<Vec<Track>> {
    tracks_of(job().records_of_all(pictures))
}

fn ids(tracks: &[Track]) -> Vec<u32> {
    tracks.iter().map(|track| track.id).collect()
}

/// All numbers that were given, in order.
fn all_ids(tracks: &[Vec<Track>]) -> Vec<u32> {
    let mut all: Vec<_> = tracks.iter().flatten().map(|track| track.id).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn overlap(track: &Track, (x, y): (i64, i64)) -> f64 {
    iou(track.bounds(), [x as f64, y as f64, PART.width as f64, PART.height as f64])
}

#[test]
fn a_match_that_lasts_becomes_one_track_in_its_third_frame() {
    let places: Vec<_> = (0..60).map(|i| (20 + 4 * i, 30 + 2 * i)).collect();
    let tracks = follow(&video(places.iter().map(|&place| vec![place])));
    assert_eq!(tracks[..2], [vec![], vec![]], "a match is no track before it is confirmed");
    for (index, (tracks, &place)) in tracks.iter().zip(&places).enumerate().skip(2) {
        assert_eq!(ids(tracks), [1], "frame {index}");
        assert_eq!(tracks[0].template.as_deref(), Some("part"));
        assert_eq!(tracks[0].state, TrackState::Tracked, "frame {index}");
        assert!(overlap(&tracks[0], place) > 0.8, "frame {index}: {:?} is not at {place:?}", tracks[0]);
    }
    assert_eq!(tracks[2][0].bounds(), [28.0, 34.0, 44.0, 36.0], "it begins with the match's box");
}

#[test]
fn matches_that_do_not_last_become_nothing() {
    // Two frames, then one without: a candidate starts again each time.
    let pictures = video((0..24).map(|i| if i % 3 == 2 { vec![] } else { vec![(150, 100)] }));
    let records = job().records_of_all(&pictures);
    assert_eq!(records.iter().filter(|record| !record.matches.is_empty()).count(), 16);
    assert_eq!(all_ids(&tracks_of(records)), [0; 0]);
}

#[test]
fn a_track_ends_soon_after_it_left_the_frame_and_what_comes_next_has_a_new_number() {
    // One leaves on the right by frame 45. Another comes in on the left 8 frames later.
    let place = |i: i64| vec![(60 + 6 * i, 60)].into_iter().chain((i > 52).then(|| (6 * (i - 53), 150)));
    let pictures = video((0..80).map(|i| place(i).collect()));
    let tracks = follow(&pictures);
    assert!(tracks[2..40].iter().all(|tracks| ids(tracks) == [1]));
    // Some frames until it is lost, then half a second.
    let last = tracks.iter().rposition(|tracks| ids(tracks).contains(&1)).unwrap();
    let states: Vec<_> = tracks.iter().flatten().filter(|t| t.id == 1).map(|t| (t.state, t.x)).collect();
    assert!((40..65).contains(&last), "track 1 ends with frame {last}: {:?}", &states[33..]);
    for (index, tracks) in tracks.iter().enumerate().skip(58) {
        let second = tracks.iter().find(|track| track.id == 2).unwrap_or_else(|| panic!("frame {index}"));
        let place = (6 * (index as i64 - 53), 150);
        assert!(overlap(second, place) > 0.7, "frame {index}: {second:?} is not at {place:?}");
    }
    assert_eq!(all_ids(&tracks), [1, 2]);
}

#[test]
fn a_track_that_vanishes_is_lost_for_two_seconds_and_then_ends() {
    let pictures = video((0..120).map(|i| if i < 30 { vec![(150, 100)] } else { vec![] }));
    let tracks = follow(&pictures);
    let last = tracks.iter().rposition(|tracks| !tracks.is_empty()).unwrap();
    // It is not held from its first doubtful frame on, at most a few after it vanished: 50 frames are two
    // seconds.
    assert!((28 + 50..28 + 60).contains(&last), "it ends with frame {last}");
    assert!(tracks[40..last].iter().all(|tracks| tracks[0].state == TrackState::Lost));
}

#[test]
fn numbers_are_not_used_again() {
    // It vanishes, and comes back far away when its track has ended.
    let place = |i: i64| match i {
        0..=29 => vec![(20, 20)],
        30..=109 => vec![],
        _ => vec![(250, 180)],
    };
    let tracks = follow(&video((0..125).map(place)));
    assert_eq!(ids(&tracks[29]), [1]);
    assert_eq!(ids(&tracks[111]), [0; 0]);
    assert!(tracks[112..].iter().all(|tracks| ids(tracks) == [2]));
}

#[test]
fn what_was_hidden_for_a_while_keeps_its_number() {
    // Hidden behind something for 20 frames, while it moves on by 30 pixels.
    let place = |i: i64| if (30..50).contains(&i) { vec![] } else { vec![(60 + 3 * i / 2, 100)] };
    let tracks = follow(&video((0..80).map(place)));
    assert!(tracks[2..].iter().all(|tracks| ids(tracks) == [1]));
    assert!(tracks[38..50].iter().all(|tracks| tracks[0].state == TrackState::Lost));
    let found = tracks[50..].iter().position(|tracks| tracks[0].state == TrackState::Reacquired);
    assert!(found.is_some_and(|frames| frames < 4), "found again after {found:?} frames");
    for (index, tracks) in tracks.iter().enumerate().skip(54) {
        let place = (60 + 3 * index as i64 / 2, 100);
        assert!(overlap(&tracks[0], place) > 0.7, "frame {index}: {:?} is not at {place:?}", tracks[0]);
    }
}

#[test]
fn two_objects_of_one_template_have_two_numbers_which_they_keep_when_they_pass_each_other() {
    // In opposite directions; where they meet one covers half of the other.
    for rows in [70, 20] {
        let places = |i: i64| [(20 + 4 * i, 90), (260 - 4 * i, 90 + rows)];
        let tracks = follow(&video((0..60).map(|i| places(i).to_vec())));
        for (index, tracks) in tracks.iter().enumerate().skip(2) {
            assert_eq!(ids(tracks), [1, 2], "{rows} rows, frame {index}");
        }
        assert_eq!(all_ids(&tracks), [1, 2]);
        let (first, last) = (places(2), places(59));
        let is_left_first = overlap(&tracks[2][0], first[0]) > 0.9;
        for (track, place) in tracks[59].iter().zip([usize::from(!is_left_first), usize::from(is_left_first)])
        {
            assert!(overlap(track, last[place]) > 0.7, "{rows} rows: {track:?} is not at {:?}", last[place]);
        }
    }
}

#[test]
fn tracks_say_of_which_template_they_are_and_two_templates_of_one_object_make_one() {
    let (background, part) = (smooth(7, FRAME), part());
    let other = smooth(55, Size::new(31, 47));
    let inner = part.as_ref().crop(lockon::frame::Rect::new(2, 2, 40, 32)).to_plane();
    let pictures: Vec<_> = (0..30)
        .map(|i| {
            let mut picture = background.clone();
            paste(&mut picture, &part, 30 + 3 * i, 40);
            paste(&mut picture, &other, 250 - 2 * i, 150);
            picture
        })
        .collect();
    let templates = [("part", &part), ("inner", &inner), ("other", &other)];
    let templates =
        templates.map(|(name, pixels)| Template::new(name, pixels.clone(), None).unwrap()).to_vec();
    let records = Job { templates, ..job() }.records_of_all(&pictures);
    for record in &records[2..] {
        assert_eq!(record.matches.len(), 3);
        let names: Vec<_> = record.tracks.iter().map(|track| (track.id, track.template.as_deref())).collect();
        assert_eq!(names, [(1, Some("part")), (2, Some("other"))], "frame {}", record.frame);
    }
}

#[test]
fn a_box_that_was_given_explains_the_match_under_it() {
    let places: Vec<_> = (0..30).map(|i| vec![(20 + 4 * i, 40), (260 - 3 * i, 150)]).collect();
    let tracks = vec!["20,40,44,36".parse().unwrap()];
    let tracks = tracks_of(Job { tracks, ..job() }.records_of_all(&video(places)));
    assert_eq!(ids(&tracks[0]), [1]);
    for tracks in &tracks[2..] {
        let templates: Vec<_> = tracks.iter().map(|track| (track.id, track.template.as_deref())).collect();
        assert_eq!(templates, [(1, None), (2, Some("part"))]);
    }
}

#[test]
fn a_track_of_a_match_ends_after_the_time_that_was_asked_for() {
    let places: Vec<_> = (0..120).map(|i| if i < 20 { vec![(60 + 2 * i, 40)] } else { vec![] }).collect();
    let pictures = video(places);
    let last = |lost_for: Option<&str>| {
        let lost_for = lost_for.map(|text| text.parse().unwrap());
        let tracks = tracks_of(Job { lost_for, ..job() }.records_of_all(&pictures));
        tracks.iter().rposition(|tracks| !tracks.is_empty()).unwrap()
    };
    let usual = last(None);
    // 2 s by default, in frames of 40 ms.
    assert_eq!(last(Some("2s")), usual);
    assert_eq!(last(Some("1s")), usual - 25);
    assert_eq!(last(Some("3s")), usual + 25);
}

#[test]
fn sixteen_matches_are_followed_at_once_and_the_next_when_one_ends() {
    let size = Size::new(401, 301);
    let (mut all, part) = (smooth(7, size), smooth(99, Size::new(31, 27)));
    let places: Vec<_> = (0..20).map(|i| (10 + i % 5 * 78, 10 + i / 5 * 72)).collect();
    let background = all.clone();
    for &(x, y) in &places {
        paste(&mut all, &part, x, y);
    }
    let mut fewer = background;
    for &(x, y) in &places[6..] {
        paste(&mut fewer, &part, x, y);
    }
    let pictures = [vec![all; 6], vec![fewer; 60]].concat();
    let templates = vec![Template::new("part", part, None).unwrap()];
    let limits = Limits { max_matches: 20, ..Limits::default() };
    let tracks = tracks_of(Job { templates, limits, ..job() }.records(&pictures));
    assert_eq!(ids(&tracks[5]), (1..=16).collect::<Vec<_>>());
    // Six are gone: the four that waited follow them.
    let followed = tracks.last().unwrap();
    assert_eq!(followed.len(), 14, "{followed:?}");
    assert_eq!(all_ids(&tracks), (1..=20).collect::<Vec<_>>());
    assert!(followed.iter().all(|track| track.state == TrackState::Tracked));
}

#[test]
fn a_surface_without_texture_is_never_followed() {
    // With a minimum score of 0 every place of it is a match.
    let flat = Plane::from_vec(vec![90; FRAME.area()], FRAME);
    let limits = Limits { min_score: -1.0, max_matches: 5, max_overlap: 0.3 };
    let tracks = tracks_of(Job { limits, ..job() }.records_of_all(&vec![flat; 6]));
    assert_eq!(all_ids(&tracks), [0; 0]);
}
