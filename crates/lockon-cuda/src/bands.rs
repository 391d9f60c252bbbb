//! Uploads of pictures that lie in ordinary memory: several threads copy bands of rows into page-locked
//! memory, past the caches, and a band is uploaded while the next ones are copied.
//!
//! One thread copies 18 GB/s, a third of what the bus of an H100 carries. What it writes must not stay in its
//! caches: the device would have to fetch it from there, at half the rate of memory. To wake a thread takes
//! longer than it would copy, so threads look for the next picture for a while before they sleep, and the
//! caller never waits for one that has not begun: it copies bands too. See docs/lab/performance.md.

#![expect(unsafe_code, reason = "threads copy from and to memory of the caller, and the device reads it")]

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lockon_core::error::Result;
use lockon_core::frame::{PlaneRef, Size};
use lockon_core::locks::lock;

use super::driver::{Gpu, Pinned, PinnedBuffer, Stream};
use super::ncc::DeviceFrame;

/// Threads that help the caller, at most: more do not copy faster than these and the bus.
const MOST_HELPERS: usize = 4;

/// Bytes of a band, about.
const BAND: usize = 1 << 16;

/// The parts of a frame after which bands are uploaded, before the last: each upload takes 2 us beside its
/// bytes, so it is the less often the more bytes there are to come meanwhile.
const TOGETHER: [(usize, usize); 2] = [(1, 8), (7, 16)];

/// How long a helper looks for the next picture before it sleeps.
const AWAKE: Duration = Duration::from_micros(300);

/// Page-locked memory for a picture, and the threads that fill it.
pub(super) struct Bands {
    pinned: PinnedBuffer<u8>,
    /// Started with the first picture that has several bands.
    helpers: Vec<JoinHandle<()>>,
    most_helpers: usize,
    shared: Arc<Copying>,
}

/// What a caller and its helpers share.
#[derive(Default)]
struct Copying {
    /// The number of the picture.
    turn: AtomicUsize,
    state: Mutex<State>,
    /// The next band that nobody copies.
    next: AtomicUsize,
    /// The turns in which bands were copied last.
    copied: Vec<AtomicUsize>,
    sleeping: AtomicUsize,
    has_ended: AtomicBool,
}

#[derive(Default)]
struct State {
    /// There while bands can be copied.
    job: Option<Job>,
    /// Helpers that copy bands of it.
    helping: usize,
}

/// A picture that is copied.
#[derive(Clone, Copy)]
struct Job {
    turn: usize,
    from: *const u8,
    stride: usize,
    to: *mut u8,
    pitch: usize,
    size: Size,
    rows: usize,
    bands: usize,
}

// SAFETY: whoever has a job copies bands of it only while the caller of `Bands::upload` keeps both ends: it
// returns when no helper has it any more.
unsafe impl Send for Job {}

impl Job {
    /// The first row of a band.
    fn top(&self, band: usize) -> usize {
        (band * self.rows).min(self.size.height)
    }

    /// Copies a band that nobody else copies.
    fn copy(&self, band: usize) {
        for y in self.top(band)..self.top(band + 1) {
            // SAFETY: `Bands::upload` made the job of a plane, which has this row, and of memory that has
            // room for it. Each band is taken by one thread.
            unsafe {
                let (from, to) = (self.from.add(y * self.stride), self.to.add(y * self.pitch));
                copy_past_caches(from, to, self.size.width);
            }
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every x86-64 has it.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }
}

/// Copies bytes, on x86-64 without keeping them in a cache.
///
/// # Safety
/// So many bytes can be read and written there, and they are apart.
unsafe fn copy_past_caches(from: *const u8, to: *mut u8, length: usize) {
    #[cfg(target_arch = "x86_64")]
    let first = {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};

        const VECTOR: usize = size_of::<__m128i>();
        let vectors = if (to as usize).is_multiple_of(VECTOR) { length / VECTOR } else { 0 };
        for at in (0..vectors * VECTOR).step_by(VECTOR) {
            // SAFETY: the bytes are the caller's, and those that are written are aligned.
            unsafe { _mm_stream_si128(to.add(at).cast(), _mm_loadu_si128(from.add(at).cast())) };
        }
        vectors * VECTOR
    };
    #[cfg(not(target_arch = "x86_64"))]
    let first = 0;
    // SAFETY: these are the rest of the caller's bytes.
    unsafe { from.add(first).copy_to_nonoverlapping(to.add(first), length - first) };
}

impl Copying {
    /// Copies bands of a job until all are taken.
    fn copy(&self, job: &Job) {
        loop {
            let band = self.next.fetch_add(1, Ordering::Relaxed);
            if band >= job.bands {
                return;
            }
            job.copy(band);
            self.copied[band].store(job.turn, Ordering::Release);
        }
    }

    /// A helper's life.
    fn help(&self) {
        let mut seen = 0;
        loop {
            let since = Instant::now();
            while self.turn.load(Ordering::SeqCst) == seen && since.elapsed() < AWAKE {
                hint::spin_loop();
            }
            if self.turn.load(Ordering::SeqCst) == seen {
                self.sleeping.fetch_add(1, Ordering::SeqCst);
                while self.turn.load(Ordering::SeqCst) == seen {
                    thread::park();
                }
                self.sleeping.fetch_sub(1, Ordering::SeqCst);
            }
            // Before `has_ended` is read: `Drop` sets that first, and the turn after it.
            seen = self.turn.load(Ordering::SeqCst);
            if self.has_ended.load(Ordering::SeqCst) {
                return;
            }
            let job = {
                let mut state = lock(&self.state);
                state.helping += usize::from(state.job.is_some());
                state.job
            };
            if let Some(job) = job {
                self.copy(&job);
                lock(&self.state).helping -= 1;
            }
        }
    }
}

/// Takes the job away, also after a panic, and waits until no helper copies any more.
struct Given<'a>(&'a Copying);

impl Drop for Given<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).job = None;
        while lock(&self.0.state).helping > 0 {
            hint::spin_loop();
        }
    }
}

impl Bands {
    /// Room for a frame, which is filled by up to so many threads.
    pub(super) fn new(gpu: &Gpu, frame: &DeviceFrame, threads: usize) -> Result<Self> {
        let bands = frame.size.height.div_ceil(rows_of_band(frame.pitch));
        let copied = (0..bands).map(|_| AtomicUsize::new(0)).collect();
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Ok(Self {
            pinned: gpu.alloc_pinned("a frame", frame.pixels.len(), Pinned::Plain)?,
            helpers: Vec::new(),
            most_helpers: (threads.min(cores) - 1).min(MOST_HELPERS).min(bands - 1),
            shared: Arc::new(Copying { copied, ..Copying::default() }),
        })
    }

    /// Copies a plane, and uploads it to a frame of its size without waiting for the device.
    ///
    /// # Safety
    /// Until the upload is done (known from a wait for this stream or for a later event in it), this is
    /// neither used again nor dropped.
    ///
    /// # Panics
    /// If the frame is not the one that it was made for, or the plane is of another size.
    pub(super) unsafe fn upload(
        &mut self,
        stream: &Stream,
        plane: PlaneRef<'_>,
        frame: &mut DeviceFrame,
    ) -> Result<()> {
        assert_eq!(plane.size(), frame.size, "frames of different size");
        assert_eq!(self.pinned.len(), frame.pixels.len(), "bytes of a frame");
        self.start_helpers();
        let Self { pinned, helpers, shared, .. } = self;
        let (rows, bands) = (rows_of_band(frame.pitch), shared.copied.len());
        let job = Job {
            turn: shared.turn.load(Ordering::Relaxed).wrapping_add(1),
            from: plane.first_byte(),
            stride: plane.stride(),
            to: pinned.as_mut_slice().as_mut_ptr(),
            pitch: frame.pitch,
            size: frame.size,
            rows,
            bands,
        };
        shared.next.store(0, Ordering::Relaxed);
        lock(&shared.state).job = Some(job);
        let given = Given(shared);
        shared.turn.store(job.turn, Ordering::SeqCst);
        if shared.sleeping.load(Ordering::SeqCst) > 0 {
            for helper in helpers.iter() {
                helper.thread().unpark();
            }
        }
        let (mut sent, mut there) = (0, 0);
        while sent < bands {
            let band = shared.next.fetch_add(1, Ordering::Relaxed);
            if band < bands {
                job.copy(band);
                shared.copied[band].store(job.turn, Ordering::Release);
            } else {
                hint::spin_loop();
            }
            while there < bands && shared.copied[there].load(Ordering::Acquire) == job.turn {
                there += 1;
            }
            let due = TOGETHER.map(|(part, of)| bands * part / of).into_iter().find(|&due| due > sent);
            if there >= due.unwrap_or(bands) {
                let byte = |band: usize| job.top(band) * job.pitch;
                // SAFETY: the bands are copied, and nothing is written there until the next picture, as the
                // caller guarantees.
                unsafe { stream.upload_range(pinned, &mut frame.pixels, byte(sent)..byte(there))? };
                sent = there;
            }
        }
        drop(given);
        Ok(())
    }

    fn start_helpers(&mut self) {
        while self.helpers.len() < self.most_helpers {
            let shared = self.shared.clone();
            let started = thread::Builder::new().name("lockon-copy".into()).spawn(move || shared.help());
            match started {
                Ok(helper) => self.helpers.push(helper),
                // The caller copies what nobody else does.
                Err(_) => self.most_helpers = self.helpers.len(),
            }
        }
    }
}

fn rows_of_band(pitch: usize) -> usize {
    (BAND / pitch).max(1)
}

impl Drop for Bands {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::SeqCst);
        self.shared.turn.fetch_add(1, Ordering::SeqCst);
        for helper in self.helpers.drain(..) {
            helper.thread().unpark();
            let _ = helper.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use lockon_core::frame::Plane;

    use super::*;
    use crate::driver::Priority;
    use crate::testing;

    #[test]
    fn pictures_of_all_sizes_arrive_whole_with_any_number_of_threads() {
        let Some(gpu) = testing::gpu() else { return };
        let stream = gpu.stream(Priority::Normal).unwrap();
        for (width, height, padding) in
            [(1, 1, 0), (1920, 1080, 0), (1917, 1079, 5), (30000, 7, 1), (63, 5000, 2)]
        {
            let size = Size::new(width, height);
            for threads in [1, 2, 16] {
                let mut frame = DeviceFrame::new(&gpu, size).unwrap();
                let mut bands = Bands::new(&gpu, &frame, threads).unwrap();
                for turn in 0..20_usize {
                    let stride = width + padding;
                    let bytes: Vec<u8> =
                        (0..stride * height).map(|i| (i * 31 + i / 977 + 7 * turn) as u8).collect();
                    let plane = PlaneRef::new(&bytes, size, stride);
                    // SAFETY: the stream is waited for before the next turn.
                    unsafe { bands.upload(&stream, plane, &mut frame).unwrap() };
                    let mut found = vec![0; frame.pixels.len()];
                    stream.download_now(&frame.pixels, &mut found).unwrap();
                    let found = PlaneRef::new(&found, size, frame.pitch).to_plane();
                    let expected: Plane = plane.to_plane();
                    assert!(found == expected, "{size} by {threads} threads, turn {turn}");
                    if turn % 7 == 3 {
                        // The helpers sleep.
                        thread::sleep(2 * AWAKE);
                    }
                }
            }
        }
    }
}
