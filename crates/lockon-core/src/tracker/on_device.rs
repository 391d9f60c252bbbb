//! Targets whose filters lie on the device that decoded the pictures.
//!
//! All of a frame are followed together: the device looks at the wide windows of all, then at the narrow
//! ones, then samples the boxes whose looks are compared, and then learns. Between these the host decides for
//! each target, as it does with its own filters, on all threads. A target that is searched for asks for
//! itself.

use super::eye::{Sight, see_on_device, tables};
use super::look::{Ahead, BOX};
use super::sample::{Sampler, Window};
use super::target::{Pursuit, Scene, Target};
use super::workplaces::{Workplace, Workplaces};
use crate::frame::Frame;
use crate::frame::correlator::{Correlator, Lesson, Tables};

/// The device that has the filters of a tracker's targets, if any has them.
pub(super) struct OnDevice {
    correlator: Option<Box<dyn Correlator>>,
    /// It had no room for a target: others are not tried.
    is_full: bool,
    tables: Option<Tables>,
    /// For each target, in their order.
    followed: Vec<Followed>,
    sampler: Sampler,
    /// The boxes of all.
    ahead: Ahead,
}

/// A target's results in a frame.
struct Followed {
    /// Unless it is searched for.
    pursuit: Option<Pursuit>,
    /// In the wide window, and in the narrow one of another size and as it is.
    sights: [Sight; 3],
    /// The boxes whose looks are compared.
    ahead: Ahead,
    /// The filters are to learn it.
    is_learnt: bool,
}

impl Followed {
    fn new() -> Self {
        let sights = std::array::from_fn(|_| Sight::new());
        Self { pursuit: None, sights, ahead: Ahead::default(), is_learnt: false }
    }
}

impl OnDevice {
    pub(super) fn new() -> Self {
        Self {
            correlator: None,
            is_full: false,
            tables: None,
            followed: Vec::new(),
            sampler: Sampler::new(),
            ahead: Ahead::default(),
        }
    }

    /// Takes in where the next frame lies: the filters go there.
    pub(super) fn move_filters(&mut self, targets: &mut [Target], frame: &Frame) {
        let surface = frame.picture.surface();
        let sees = |device: &dyn Correlator| surface.is_some_and(|surface| device.sees(surface));
        if self.correlator.as_deref().is_some_and(|device| !sees(device)) {
            for target in &mut *targets {
                target.move_to(None);
            }
            self.correlator = None;
        }
        if let (None, Some(surface)) = (&self.correlator, surface) {
            self.correlator = surface.correlator(self.tables.get_or_insert_with(tables));
            self.is_full = false;
        }
        if let Some(device) = &self.correlator {
            for target in targets {
                self.is_full = self.is_full || !target.move_to(Some(&**device));
            }
        }
    }

    /// True if filters lie on a device.
    pub(super) fn is_in_use(&self) -> bool {
        self.correlator.is_some()
    }

    /// Follows all targets into a frame. `gather` collects the places of a target's rivals.
    pub(super) fn step(
        &mut self,
        targets: &mut [Target],
        scene: &Scene,
        gather: impl Fn(&mut Vec<Window>, &Target) + Sync,
        workplaces: &Workplaces,
    ) {
        let Self { correlator: Some(device), followed, sampler, ahead, .. } = self else { return };
        let frame = scene.frame;
        let Some(surface) = frame.picture.surface() else { return };
        followed.resize_with(followed.len().max(targets.len()), Followed::new);
        let mut all: Vec<_> = targets.iter_mut().zip(followed).collect();

        workplaces.each(&mut all, |(target, own), Workplace { eyes, rivals }| {
            // The device may have had no room for its filters.
            own.pursuit = if target.is_on_device() { target.begin(scene) } else { None };
            if own.pursuit.is_none() {
                gather(rivals, target);
                target.step(scene, rivals, eyes);
            }
        });
        let wide = all.iter_mut().filter_map(|(target, own)| {
            let [wide, ..] = &mut own.sights;
            target.wide_look(own.pursuit.as_ref()?, wide)
        });
        see_on_device(frame, &mut wide.collect::<Vec<_>>());
        workplaces.each(&mut all, |(target, own), Workplace { rivals, .. }| {
            let Followed { pursuit: Some(pursuit), sights: [wide, ..], .. } = &mut **own else { return };
            gather(rivals, target);
            target.find(frame, pursuit, rivals, wide);
        });
        let narrow = all.iter_mut().filter(|(_, own)| own.pursuit.is_some()).filter_map(|(target, own)| {
            let [_, other, same] = &mut own.sights;
            target.narrow_looks([other, same])
        });
        see_on_device(frame, &mut narrow.flatten().collect::<Vec<_>>());
        workplaces.each(&mut all, |(target, own), Workplace { rivals, .. }| {
            let Followed { pursuit, sights: [wide, other, same], ahead, is_learnt } = &mut **own;
            *is_learnt = false;
            ahead.boxes.clear();
            let Some(pursuit) = pursuit else { return };
            gather(rivals, target);
            target.sharpen(frame, pursuit, rivals, other.peak(), same);
            target.boxes_to_compare(wide, &mut ahead.boxes);
        });
        ahead.boxes.clear();
        ahead.boxes.extend(all.iter().flat_map(|(_, own)| &own.ahead.boxes));
        ahead.sample(frame, sampler);
        let mut pixels = &ahead.pixels[..];
        for (_, own) in &mut all {
            let (here, rest) = pixels.split_at(own.ahead.boxes.len() * BOX);
            own.ahead.pixels.clear();
            own.ahead.pixels.extend_from_slice(here);
            pixels = rest;
        }
        workplaces.each(&mut all, |(target, own), Workplace { eyes, .. }| {
            let Followed { pursuit: Some(pursuit), sights: [wide, ..], ahead, is_learnt } = &mut **own else {
                return;
            };
            std::mem::swap(ahead, &mut eyes.looker.ahead);
            *is_learnt = target.decide(scene, pursuit, wide, &mut eyes.looker);
            std::mem::swap(ahead, &mut eyes.looker.ahead);
        });
        let lessons = all.iter().filter(|(_, own)| own.is_learnt).flat_map(|(target, own)| {
            let [wide, _, same] = &own.sights;
            target.lessons([wide, same])
        });
        device.learn(surface, &lessons.flatten().collect::<Vec<Lesson<'_>>>());
        workplaces.each(&mut all, |(target, own), Workplace { eyes, rivals }| {
            let Some(pursuit) = &own.pursuit else { return };
            gather(rivals, target);
            target.reconsider(scene, pursuit, rivals, eyes);
            target.rate();
        });
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

    /// The tracks of all frames, of so many threads. Those that `is_there` says lie on a device with room for
    /// so many filters.
    fn followed(room: usize, threads: usize, is_there: impl Fn(usize) -> bool) -> Vec<Vec<Track>> {
        let pixels = PixelFormat::from_name("I420").unwrap();
        let format =
            VideoFormat { size: SIZE, pixels, frame_rate: (25, 1), pixel_aspect: (1, 1), colorimetry: None };
        let boxes = [Rect::new(30, 30, 24, 24), Rect::new(140, 96, 24, 24)];
        let specs = boxes.map(|rect| TrackSpec::new(rect, Moment::Frame(0)));
        let mut tracker = Tracker::new(&specs).with_threads(threads);
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
