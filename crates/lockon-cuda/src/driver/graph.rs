//! Captures work in a stream, to run it any number of times, and makes other threads wait meanwhile.

#![expect(
    unsafe_code,
    reason = "the driver's interface is C: addresses without lengths, calls without types"
)]

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::RwLockReadGuard;

use cudarc::driver::{result, sys};

use lockon_core::error::Result;
use lockon_core::locks::{Guard, RankedRw};

use super::device::Gpu;
use super::error::failed;
use super::stream::Stream;

/// Written by who captures a stream, read by who allocates or frees: the driver refuses to free while any
/// stream of the context is capturing, and what it has to wait for spoils the capture.
static CAPTURES: RankedRw<(), 120> = RankedRw::new(());

/// The driver's error for a capture that another call has ended.
const SPOILT: sys::CUresult = sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;

/// Captures take microseconds: so many spoilt ones in a row are no coincidence.
const MOST_TRIES: u32 = 100;

thread_local! {
    /// How often this thread holds [`CAPTURES`]: it is locked once only.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// While this lives, its thread holds [`CAPTURES`].
///
/// The first of a thread has the lock, and those made after it rely on that: they are dropped before it, as
/// locals are. None is to be kept in a value that lives longer than its block.
pub struct Held<G> {
    guard: Option<G>,
}

impl<G> Held<G> {
    fn new(lock: impl FnOnce() -> G) -> Self {
        // Locked first: if that panics, nothing is held.
        let guard = (HELD.get() == 0).then(lock);
        HELD.set(HELD.get() + 1);
        Self { guard }
    }
}

impl<G> Drop for Held<G> {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
        debug_assert_eq!(self.guard.is_some(), HELD.get() == 0, "the first is dropped last");
    }
}

/// No other thread captures a stream while this is held.
pub fn hold_captures_up() -> Held<Guard<RwLockReadGuard<'static, ()>>> {
    Held::new(|| CAPTURES.read())
}

/// Returns the results of `work` and of `end`, which runs after it even if it panics. Then the panic
/// continues.
fn ended<T, E>(work: impl FnOnce() -> T, end: impl FnOnce() -> E) -> (T, E) {
    // Only `end` sees the state that a panic left half done.
    let worked = catch_unwind(AssertUnwindSafe(work));
    let ended = end();
    match worked {
        Ok(worked) => (worked, ended),
        Err(panic) => {
            drop(ended);
            resume_unwind(panic)
        }
    }
}

/// Something of the driver's that is destroyed while no stream is captured.
#[derive(Clone)]
pub(super) struct Quiet<T>(Option<T>);

impl<T> Quiet<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Some(value))
    }
}

impl<T> std::ops::Deref for Quiet<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("there until it is dropped")
    }
}

impl<T> Drop for Quiet<T> {
    fn drop(&mut self) {
        let _captures_wait = hold_captures_up();
        self.0 = None;
    }
}

impl Stream {
    /// Captures what `work` puts into the stream, instead of running it, to run it any number of times. The
    /// stream is as it was afterwards, also if `work` fails or panics.
    ///
    /// # Panics
    /// If the thread is capturing already, or allocating.
    pub fn capture(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Graph> {
        self.gpu.bind()?;
        assert_eq!(HELD.get(), 0, "a capture within a capture or an allocation");
        let _alone = Held::new(|| CAPTURES.write());
        let mut tries = 0;
        let captured = loop {
            let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
            // SAFETY: the stream lives, and `ended` ends its capture whatever `work` does.
            unsafe { result::stream::begin_capture(self.handle(), mode) }.map_err(failed("capturing"))?;
            // SAFETY: the capture was begun just above, and `work` has no way to end it.
            let end = || unsafe { result::stream::end_capture(self.handle()) }.map(Captured);
            let (outcome, captured) = ended(&mut *work, end);
            tries += 1;
            match captured {
                // Decoders of the same context do not know of the lock.
                Err(error) if error.0 == SPOILT && tries < MOST_TRIES => {
                    tracing::debug!("another thread's allocation spoilt a capture: retrying");
                }
                captured => {
                    outcome?;
                    break captured.map_err(failed("capturing"))?;
                }
            }
        };
        // SAFETY: the graph was just captured, and lives until `captured` is dropped.
        let made = unsafe { result::graph::instantiate(captured.0, sys::CUgraphInstantiate_flags_enum(0)) };
        Ok(Graph { gpu: self.gpu.clone(), graph: made.map_err(failed("making a graph"))? })
    }

    /// Starts the captured work, without waiting.
    ///
    /// # Safety
    /// Until that is done (known from a wait for this stream or for a later event in it):
    /// - all device memory, textures and events that were given to the captured work live, and stay at their
    ///   addresses,
    /// - for each captured [`Self::launch`], [`Self::upload`] and [`Self::download`], its own requirements
    ///   hold.
    pub unsafe fn run(&self, graph: &Graph) -> Result<()> {
        self.gpu.bind()?;
        // SAFETY: the graph lives, and is destroyed only after it has run; the rest is the caller's.
        unsafe { result::graph::launch(graph.graph, self.handle()) }.map_err(failed("running a graph"))
    }
}

/// A graph as it was captured.
struct Captured(sys::CUgraph);

impl Drop for Captured {
    fn drop(&mut self) {
        // SAFETY: captured by `Stream::capture`, and no other code has it. Graphs made from it do not need
        // it. The next call would report it if this failed.
        let _ = unsafe { result::graph::destroy(self.0) };
    }
}

/// Work that was captured.
pub struct Graph {
    gpu: Gpu,
    graph: sys::CUgraphExec,
}

// SAFETY: the graph is the driver's, is not bound to a thread, and is used by one at a time.
unsafe impl Send for Graph {}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: instantiated by `Stream::capture`, and no other code has it. The driver keeps it until it
        // has run.
        self.gpu.free(|| unsafe { result::graph::exec_destroy(self.graph) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockon_core::error::catch_panic;

    #[test]
    fn what_was_begun_is_ended_whether_the_work_succeeds_fails_or_panics() {
        type Work<'a> = &'a dyn Fn() -> Result<(), &'static str>;
        let works: [(&str, Work<'_>); 3] = [
            ("done", &|| Ok(())),
            ("failed", &|| Err("as it should")),
            ("panicked", &|| panic!("as it should")),
        ];
        for (what, work) in works {
            let times_ended = Cell::new(0);
            let outcome = catch_panic(|| ended(work, || times_ended.set(times_ended.get() + 1)));
            assert_eq!(times_ended.get(), 1, "{what}");
            match (what, outcome) {
                ("done", Ok((Ok(()), ()))) | ("failed", Ok((Err("as it should"), ()))) => {}
                ("panicked", Err(message)) => assert_eq!(message, "as it should"),
                (_, outcome) => panic!("{what}: {outcome:?}"),
            }
        }
    }

    #[test]
    fn captures_are_held_up_until_the_first_who_asked_for_it_has_done() {
        let others_can_capture =
            || std::thread::spawn(|| CAPTURES.try_write().is_some()).join().expect("it only tries");
        let first = hold_captures_up();
        {
            let _second = hold_captures_up();
            assert_eq!(HELD.get(), 2);
        }
        assert!(!others_can_capture());
        drop(first);
        assert_eq!(HELD.get(), 0);
        let panicked = catch_panic(|| {
            let (_first, _second) = (hold_captures_up(), hold_captures_up());
            panic!("on the way")
        });
        assert_eq!((panicked, HELD.get()), (Err::<(), _>("on the way".into()), 0));
    }

    #[test]
    fn a_capture_that_panics_leaves_the_stream_as_it_was() {
        let Some(gpu) = crate::testing::gpu() else { return };
        let stream = gpu.stream(crate::driver::Priority::Normal).unwrap();
        let mut buffer = gpu.alloc::<u8>("bytes", 4).unwrap();
        let panicked = catch_panic(|| stream.capture(&mut || panic!("while it captures")).map(drop));
        assert_eq!(panicked.unwrap_err(), "while it captures");
        assert_eq!(HELD.get(), 0);
        // Neither would be allowed while it captures.
        stream.upload_now(&[1, 2, 3, 4], &mut buffer).unwrap();
        stream.wait().unwrap();
        let graph = stream.capture(&mut || stream.clear(&mut buffer, 2)).unwrap();
        // SAFETY: the buffer lives to the end.
        unsafe { stream.run(&graph) }.unwrap();
        let mut bytes = [9; 4];
        stream.download_now(&buffer, &mut bytes).unwrap();
        assert_eq!(bytes, [0, 0, 3, 4]);
        gpu.check_dropped().unwrap();
    }
}
