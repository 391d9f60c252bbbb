//! Targets whose filters lie on the device that decoded the pictures.
//!
//! The targets are divided among lanes, each with a queue of its own on the device. In a frame, the device
//! looks at the wide windows of a lane's targets together, then at the narrow ones, then samples the boxes
//! whose looks are compared, and then learns. Between these the host decides for each target, as it does with
//! its own filters. Threads take the lanes. A lost target makes its own requests, on any thread.

use super::eye::{Sight, see_on_device, tables};
use super::look::Ahead;
use super::sample::{Sampler, Window};
use super::target::{Pursuit, Scene, Target};
use super::workplaces::{Workplace, Workplaces};
use crate::frame::Frame;
use crate::frame::correlator::{Correlator, Lesson};
use crate::surface::Surface;

/// Targets of a lane before there is another one, if a thread is left for it. With few, a request has little
/// to share; with many, the device waits for one thread.
const TARGETS: usize = 4;

/// The device that has the filters of a tracker's targets, if any has them.
pub(super) struct OnDevice {
    lanes: Vec<Lane>,
    /// It had no room for a target: others are not tried.
    is_full: bool,
}

/// The filters of some targets, and what these need in a frame.
struct Lane {
    correlator: Box<dyn Correlator>,
    /// For each target that is followed, in their order.
    followed: Vec<Followed>,
    sampler: Sampler,
    /// The boxes whose looks are compared.
    ahead: Ahead,
}

/// A target's results in a frame.
struct Followed {
    /// In the wide window, and in the narrow one of another size and as it is.
    sights: [Sight; 3],
    /// The filters are to learn it.
    is_learnt: bool,
}

impl Followed {
    fn new() -> Self {
        let sights = std::array::from_fn(|_| Sight::new());
        Self { sights, is_learnt: false }
    }
}

/// A thread's work in a frame.
enum Work<'a> {
    /// Follows a lane's targets.
    Together(&'a mut Lane, Vec<(&'a mut Target, Pursuit)>),
    /// Searches for one, or follows one for which the device had no room.
    Alone(&'a mut Target),
}

impl OnDevice {
    pub(super) fn new() -> Self {
        Self { lanes: Vec::new(), is_full: false }
    }

    /// Takes in where the next frame lies: the filters go there, in lanes for up to so many threads.
    pub(super) fn move_filters(&mut self, targets: &mut [Target], frame: &Frame, threads: usize) {
        let Self { lanes, is_full } = self;
        let surface = frame.picture.surface();
        let sees = |lane: &Lane| surface.is_some_and(|surface| lane.correlator.sees(surface));
        if lanes.first().is_some_and(|lane| !sees(lane)) {
            for target in &mut *targets {
                target.leave_lane();
            }
            lanes.clear();
        }
        let Some(surface) = surface else { return };
        if lanes.is_empty() {
            lanes.extend(Lane::new(surface));
            *is_full = false;
        }
        if lanes.is_empty() || *is_full || targets.iter().all(|target| target.lane().is_some()) {
            return;
        }
        let mut counts = vec![0; lanes.len()];
        for lane in targets.iter().filter_map(Target::lane) {
            counts[lane] += 1;
        }
        for target in targets.iter_mut().filter(|target| target.lane().is_none()) {
            if lanes.len() < threads
                && counts.iter().all(|&count| count >= TARGETS)
                && let Some(lane) = Lane::new(surface)
            {
                lanes.push(lane);
                counts.push(0);
            }
            let lane = (0..lanes.len()).min_by_key(|&lane| counts[lane]).expect("there are lanes");
            if !target.enter_lane(lane, &*lanes[lane].correlator) {
                *is_full = true;
                return;
            }
            counts[lane] += 1;
        }
    }

    /// True if filters lie on a device.
    pub(super) fn is_in_use(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// Follows all targets into a frame. `gather` collects the places of a target's rivals.
    pub(super) fn step(
        &mut self,
        targets: &mut [Target],
        scene: &Scene,
        gather: impl Fn(&mut Vec<Window>, &Target) + Sync,
        workplaces: &Workplaces,
    ) {
        let Some(surface) = scene.frame.picture.surface() else { return };
        let mut lanes: Vec<_> = self.lanes.iter_mut().map(|lane| (lane, Vec::new())).collect();
        let mut alone = Vec::new();
        for target in targets {
            let begun = target.lane().and_then(|lane| Some((lane, target.begin(scene)?)));
            match begun {
                Some((lane, pursuit)) => lanes[lane].1.push((target, pursuit)),
                None => alone.push(Work::Alone(target)),
            }
        }
        let together = lanes.into_iter().filter(|(_, targets)| !targets.is_empty());
        let mut all: Vec<_> = together.map(|(lane, targets)| Work::Together(lane, targets)).collect();
        all.append(&mut alone);
        workplaces.each(&mut all, |work, place| match work {
            Work::Together(lane, targets) => lane.step(surface, targets, scene, &gather, place),
            Work::Alone(target) => {
                gather(&mut place.rivals, target);
                target.step(scene, &place.rivals, &mut place.eyes);
            }
        });
    }
}

impl Lane {
    /// None if the device cannot have filters.
    fn new(surface: &(dyn Surface + 'static)) -> Option<Self> {
        let correlator = surface.correlator(tables())?;
        let (sampler, ahead) = (Sampler::new(), Ahead::default());
        Some(Self { correlator, followed: Vec::new(), sampler, ahead })
    }

    /// Follows its targets.
    fn step(
        &mut self,
        surface: &(dyn Surface + 'static),
        targets: &mut [(&mut Target, Pursuit)],
        scene: &Scene,
        gather: impl Fn(&mut Vec<Window>, &Target),
        Workplace { eyes, rivals }: &mut Workplace,
    ) {
        let frame = scene.frame;
        let Self { correlator, followed, sampler, ahead } = self;
        followed.resize_with(followed.len().max(targets.len()), Followed::new);
        let mut all: Vec<_> = targets.iter_mut().zip(followed).collect();

        let wide = all.iter_mut().filter_map(|((target, pursuit), own)| {
            let [wide, ..] = &mut own.sights;
            target.wide_look(pursuit, wide)
        });
        see_on_device(frame, &mut wide.collect::<Vec<_>>());
        for ((target, pursuit), Followed { sights: [wide, ..], .. }) in &mut all {
            gather(rivals, target);
            target.find(frame, pursuit, rivals, wide);
        }
        let narrow = all.iter_mut().filter_map(|((target, _), own)| {
            let [_, other, same] = &mut own.sights;
            target.narrow_looks([other, same])
        });
        see_on_device(frame, &mut narrow.flatten().collect::<Vec<_>>());
        ahead.boxes.clear();
        for ((target, pursuit), Followed { sights: [wide, other, same], .. }) in &mut all {
            gather(rivals, target);
            target.sharpen(frame, pursuit, rivals, other.peak(), same);
            target.boxes_to_compare(wide, &mut ahead.boxes);
        }
        ahead.sample(frame, sampler);
        std::mem::swap(ahead, &mut eyes.looker.ahead);
        for ((target, pursuit), Followed { sights: [wide, ..], is_learnt, .. }) in &mut all {
            *is_learnt = target.decide(scene, pursuit, wide, &mut eyes.looker);
        }
        std::mem::swap(ahead, &mut eyes.looker.ahead);
        let lessons = all.iter().filter(|(_, own)| own.is_learnt).flat_map(|((target, _), own)| {
            let [wide, _, same] = &own.sights;
            target.lessons([wide, same])
        });
        correlator.learn(surface, &lessons.flatten().collect::<Vec<Lesson<'_>>>());
        for ((target, pursuit), _) in &mut all {
            gather(rivals, target);
            target.reconsider(scene, pursuit, rivals, eyes);
            target.rate();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    use crate::config::{Moment, TrackSpec};
    use crate::error::Result;
    use crate::frame::correlator::{Correlator, FilterState, Lesson, PlacedFilter, Query, Tables};
    use crate::frame::outlines::OutlineFinder;
    use crate::frame::{
        Circumstances, Frame, FrameMeta, Picture, PixelFormat, Plane, PlaneRef, Rect, Size, VideoFormat,
    };
    use crate::ports::Follow;
    use crate::reference::surface::OnDevice;
    use crate::results::{Track, TrackState};
    use crate::surface::{Grid, Surface};
    use crate::tracker::{HostCorrelator, Tracker};

    const SIZE: Size = Size { width: 200, height: 144 };

    /// A picture in memory.
    struct Planes(Vec<Plane>);

    impl Picture for Planes {
        fn plane(&self, index: usize) -> PlaneRef<'_> {
            self.0[index].as_ref()
        }
    }

    /// A picture on a device that keeps filters: so many.
    struct WithFilters(OnDevice, usize);

    thread_local! {
        /// Lessons of filters on a device.
        static LEARNT: Cell<usize> = const { Cell::new(0) };
        /// Correlators that were made.
        static MADE: Cell<usize> = const { Cell::new(0) };
    }

    /// A device with room for so many filters.
    struct Room(HostCorrelator, AtomicUsize);

    impl Correlator for Room {
        fn sees(&self, surface: &(dyn Surface + 'static)) -> bool {
            self.0.sees(surface)
        }

        fn place(&self, filter: &FilterState) -> Option<Box<dyn PlacedFilter>> {
            let left = |left: usize| left.checked_sub(1);
            self.1.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).ok()?;
            self.0.place(filter)
        }

        fn respond(&self, surface: &(dyn Surface + 'static), queries: &mut [Query<'_>]) {
            self.0.respond(surface, queries);
        }

        fn learn(&self, surface: &(dyn Surface + 'static), lessons: &[Lesson<'_>]) {
            LEARNT.with(|learnt| learnt.set(learnt.get() + lessons.len()));
            self.0.learn(surface, lessons);
        }
    }

    impl Picture for WithFilters {
        fn plane(&self, index: usize) -> PlaneRef<'_> {
            self.0.plane(index)
        }

        fn surface(&self) -> Option<&(dyn Surface + 'static)> {
            Some(self)
        }
    }

    impl Surface for WithFilters {
        fn fetch(&self, rect: Rect) -> Plane {
            self.0.fetch(rect)
        }

        fn shrink(&self, factor: usize, means: &mut [u8]) {
            self.0.shrink(factor, means);
        }

        fn sample(&self, grids: &[Grid], samples: &mut [u8]) {
            Surface::sample(&self.0, grids, samples);
        }

        fn outline_finder(&self) -> Option<&dyn OutlineFinder> {
            self.0.outline_finder()
        }

        fn correlator(&self, _: &Tables) -> Option<Box<dyn Correlator>> {
            MADE.set(MADE.get() + 1);
            Some(Box::new(Room(HostCorrelator::default(), AtomicUsize::new(self.1))))
        }

        fn check(&self) -> Result<()> {
            Ok(())
        }
    }

    /// Two squares of different texture and colour on ground with texture. The first one turns back, the
    /// second one is covered for a while.
    fn planes(index: usize) -> Vec<Plane> {
        let texture = |x: usize, y: usize, seed: usize| (x / 3 * 7919 + y / 3 * 104_729 + seed * 31) % 97;
        let back_and_forth = if index < 30 { 2 * index } else { 120 - 2 * index };
        let first = (30 + back_and_forth, 30 + index / 2);
        let second = (140 - index, 96);
        let is_covered = (24..38).contains(&index);
        let square = |x: usize, y: usize| {
            let inside =
                |(left, top): (usize, usize)| (left..left + 24).contains(&x) && (top..top + 24).contains(&y);
            let place = |(left, top): (usize, usize)| (x - left, y - top);
            if inside(first) {
                Some((place(first), 1))
            } else if inside(second) && !is_covered {
                Some((place(second), 2))
            } else {
                None
            }
        };
        let luma = |x: usize, y: usize| match square(x, y) {
            Some(((x, y), seed)) => 60 + texture(x, y, seed) as u8,
            None => 120 + texture(x, y, 0) as u8 / 2,
        };
        let chroma =
            |of: [u8; 3]| move |x: usize, y: usize| square(2 * x, 2 * y).map_or(of[0], |(_, seed)| of[seed]);
        let plane = |size: Size, value: &dyn Fn(usize, usize) -> u8| {
            Plane::from_vec((0..size.area()).map(|i| value(i % size.width, i / size.width)).collect(), size)
        };
        let half = Size::new(SIZE.width / 2, SIZE.height / 2);
        vec![plane(SIZE, &luma), plane(half, &chroma([128, 150, 110])), plane(half, &chroma([120, 100, 160]))]
    }

    /// The two squares.
    const SQUARES: [Rect; 2] = [Rect { x: 30, y: 30, w: 24, h: 24 }, Rect { x: 140, y: 96, w: 24, h: 24 }];

    /// The tracks of both squares.
    fn followed(room: usize, threads: usize, is_there: impl Fn(usize) -> bool) -> Vec<Vec<Track>> {
        followed_boxes(&SQUARES, room, threads, is_there)
    }

    /// The tracks of all frames, of so many threads. Those that `is_there` says lie on a device with room for
    /// so many filters in each lane.
    fn followed_boxes(
        boxes: &[Rect],
        room: usize,
        threads: usize,
        is_there: impl Fn(usize) -> bool,
    ) -> Vec<Vec<Track>> {
        let pixels = PixelFormat::from_name("I420").unwrap();
        let format =
            VideoFormat { size: SIZE, pixels, frame_rate: (25, 1), pixel_aspect: (1, 1), colorimetry: None };
        let specs = boxes.iter().map(|&rect| TrackSpec::new(rect, Moment::Frame(0)));
        let mut tracker = Tracker::new(&specs.collect::<Vec<_>>()).with_threads(threads);
        let frames = (0..60).map(|index| {
            let planes: Arc<dyn Picture> = Arc::new(Planes(planes(index)));
            let picture: Arc<dyn Picture> = if is_there(index) {
                Arc::new(WithFilters(OnDevice::new(planes, &format), room))
            } else {
                planes
            };
            let meta =
                FrameMeta { index: index as u64, pts_ns: None, duration_ns: None, arrived: Instant::now() };
            let frame = Frame {
                meta,
                circumstances: Circumstances::default(),
                format: Arc::new(format.clone()),
                picture,
            };
            let mut tracks = Vec::new();
            tracker.step(&frame, &[], &mut tracks);
            tracks
        });
        frames.collect()
    }

    #[test]
    fn targets_on_a_device_are_followed_as_on_the_host() {
        let on_host = followed(0, 1, |_| false);
        let states = |id: u32| {
            let of = move |tracks: &Vec<Track>| {
                tracks.iter().find(|track| track.id == id).map(|track| track.state)
            };
            on_host.iter().filter_map(of).collect::<Vec<_>>()
        };
        assert!(states(1).iter().all(|state| *state == TrackState::Tracked), "{:?}", states(1));
        assert!(states(2).contains(&TrackState::Lost), "it is covered: {:?}", states(2));
        assert_eq!(LEARNT.get(), 0);
        assert_eq!(followed(99, 1, |_| true), on_host);
        // Both filters of at least one target, in each frame.
        assert!(LEARNT.get() > 2 * 60, "{} lessons", LEARNT.get());
        assert_eq!(followed(99, 3, |_| true), on_host, "three threads");
    }

    #[test]
    fn many_targets_in_lanes_for_several_threads_are_followed_as_on_the_host() {
        let ground = (0..8).map(|i| Rect::new(6 + 47 * (i % 4), 4 + 57 * (i / 4), 20, 22));
        let boxes: Vec<_> = SQUARES.into_iter().chain(ground).collect();
        let on_host = followed_boxes(&boxes, 0, 1, |_| false);
        for (threads, lanes) in [(1, 1), (2, 2), (9, 3)] {
            MADE.set(0);
            assert_eq!(followed_boxes(&boxes, 99, threads, |_| true), on_host, "{threads} threads");
            assert_eq!(MADE.get(), lanes, "lanes for ten targets and {threads} threads");
        }
        // To the host and back, and with room for fewer.
        assert_eq!(followed_boxes(&boxes, 99, 3, |index| index % 7 < 4), on_host);
        assert_eq!(followed_boxes(&boxes, 3, 3, |_| true), on_host);
    }

    #[test]
    fn targets_for_which_a_device_has_no_room_are_followed_on_the_host() {
        let on_host = followed(0, 1, |_| false);
        // For none, for one of two filters of the second target, and for one target.
        for room in [0, 1, 2, 3] {
            assert_eq!(followed(room, 1, |_| true), on_host, "room for {room}");
        }
    }

    #[test]
    fn filters_move_with_the_pictures_and_go_on_as_they_were() {
        let on_host = followed(0, 1, |_| false);
        // Also in frames in which something is kept, or gone back to.
        assert_eq!(followed(99, 1, |index| index % 14 < 7), on_host);
        assert_eq!(followed(99, 1, |index| index % 3 > 0), on_host);
    }
}
