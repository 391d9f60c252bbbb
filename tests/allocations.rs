//! The frame path allocates nothing per frame after its first few: a binary of its own, since it counts every
//! allocation of the process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]
#![allow(unreachable_pub, reason = "nothing outside this binary can reach anything")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

#[path = "test_log.rs"]
mod test_log;
#[path = "util.rs"]
#[allow(dead_code, reason = "this binary uses a part of what the tests share")]
mod util;

use lockon::frame::Size;
use lockon::ports::{Delivery, Sink};
use lockon::results::RunRecord;
use lockon::template::Template;

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

#[expect(unsafe_code, reason = "a global allocator can be written in no other way")]
// SAFETY: every call is passed on to the system's allocator with its arguments unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's obligations are those of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; the pointer came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts allocations between two frames.
struct Meter {
    from: u64,
    to: u64,
    start: usize,
}

static BETWEEN: AtomicUsize = AtomicUsize::new(usize::MAX);

impl Sink for Meter {
    fn name(&self) -> &'static str {
        "meter"
    }

    fn wants_mask(&self) -> bool {
        true
    }

    fn begin(&mut self, _: &RunRecord, _: &lockon::frame::VideoFormat) -> lockon::Result<()> {
        Ok(())
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> lockon::Result<()> {
        match delivery.record.frame {
            frame if frame == self.from => self.start = ALLOCATIONS.load(Ordering::Relaxed),
            frame if frame == self.to => {
                BETWEEN.store(ALLOCATIONS.load(Ordering::Relaxed) - self.start, Ordering::Relaxed);
            }
            _ => {}
        }
        Ok(())
    }
}

#[test]
fn the_frame_path_allocates_nothing_after_its_first_frames() {
    let size = Size::new(160, 120);
    let picture = util::noise(3, size);
    let patch = picture.as_ref().crop(lockon::frame::Rect::new(30, 40, 24, 16)).to_plane();
    // With the target in all of them, and with one that is lost and searched for by several threads.
    let there = vec![picture.clone(); 250];
    let mut gone = vec![picture; 15];
    gone.resize(250, util::noise(4, size));
    let objects = r#"{"open":"3","close":"3","fill_holes":true,"connect":"4","max":40}"#;
    let objects = serde_json::from_str(objects).unwrap();
    // Each with the frames per allocation. Handing work to a thread pool allocates a block of queue entries
    // now and then, and a search draws each outline of a look once. No allocation may happen every frame.
    let cases = [(&there, util::Job::default().threads, 4), (&gone, 3, 2)];
    for (backend, (pictures, threads, least)) in
        util::backends().into_iter().flat_map(|b| cases.map(|case| (b, case)))
    {
        let job = util::Job {
            backend,
            threads,
            templates: vec![Template::new("patch", patch.clone(), None).unwrap()],
            threshold: Some("mean:31:5".parse().unwrap()),
            objects: Some(objects),
            tracks: vec!["30,40,24,16".parse().unwrap()],
            track_matches: true,
            ..util::Job::default()
        };
        let (from, to) = (40, 240);
        BETWEEN.store(usize::MAX, Ordering::Relaxed);
        let mut source = util::MemorySource::new(pictures);
        job.run(&mut source, vec![Box::new(Meter { from, to, start: 0 })]).1.unwrap();
        let (allocations, frames) = (BETWEEN.load(Ordering::Relaxed), (to - from) as usize);
        assert!(
            allocations < frames / least,
            "{backend:?}, {threads} threads: {allocations} allocations in {frames} frames"
        );
    }
}
