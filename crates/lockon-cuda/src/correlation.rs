//! The tracker's filters in the device's memory, and their looks at pictures there, done by
//! kernels/correlation.cu.
//!
//! Each tracker has a [`DeviceCorrelator`]: a stream in which its queries and its lessons run in order. A
//! call of `respond` copies the queries to the device, samples all windows in one launch, looks at them in
//! another, and waits; the answers are written into page-locked memory, 4 to 16 kB each. `learn` does not
//! wait.

#![expect(unsafe_code, reason = "launching a kernel: what it reads and writes are addresses without lengths")]

use std::any::Any;
use std::sync::Arc;

use lockon_core::error::{Error, Result};
use lockon_core::frame::correlator::{
    BINS, CHANNELS, COLOUR_SIDE, Correlator, FilterState, GRID, HALF, KEPT, LUMA_SIDE, Learnt, Lesson,
    Memory, PENALTY, PlacedFilter, Query, Spectrum, Tables,
};
use lockon_core::locks::Ranked;
use lockon_core::surface::{Grid, Surface};

use super::driver::{DeviceBuffer, Kernel, Mark, PinnedBuffer, Priority, Rows, Stream, arg, bytes_of, ptx};
use super::shared::{constant, pod_structure};
use super::staged::Staged;
use super::surface::{self, BLOCK, DevicePicture, Shared};

const PTX: &str = include_str!("../ptx/correlation.ptx");
const THREADS: usize = constant(PTX, "THREADS");
const PATCH_BYTES: usize = constant(PTX, "PATCH_BYTES");
const LOOK_SHARED_BYTES: usize = constant(PTX, "LOOK_SHARED_BYTES");
const LEARN_SHARED_BYTES: usize = constant(PTX, "LEARN_SHARED_BYTES");
const SIDE: usize = constant(PTX, "SIDE");
const TABLES: usize = constant(PTX, "TABLES");

/// A filter's parts in memory, in floats; see the kernels.
const LEARNT: usize = constant(PTX, "LEARNT");
const TOP: usize = constant(PTX, "TOP");
const ANCHOR: usize = constant(PTX, "ANCHOR");
const WEIGHTS: usize = constant(PTX, "WEIGHTS");
const LABEL: usize = constant(PTX, "LABEL");
const NUMBERS: usize = constant(PTX, "NUMBERS");
const KEPT_STATES: usize = constant(PTX, "KEPT_STATES");
const FILTER: usize = constant(PTX, "FILTER");

const FREQUENCIES: usize = GRID * HALF;
const SPECTRUM: usize = FREQUENCIES * CHANNELS;
const _: () = assert!(
    SPECTRUM == constant(PTX, "SPECTRUM")
        && COLOUR_SIDE == constant(PTX, "COLOUR_SIDE")
        && LUMA_SIDE == SIDE
        && KEPT * LEARNT == constant(PTX, "SAMPLE") - KEPT_STATES
);

/// Bytes of the answers to a look: responses, colours, bins.
const RESPONSES_BYTES: usize = 4 * GRID * GRID;
const ANSWER_BYTES: usize = 2 * RESPONSES_BYTES + 2 * COLOUR_SIDE * COLOUR_SIDE;

/// Grids of a look: luma and two of chroma.
const GRIDS: usize = 3;

/// `Look` of the kernels.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct PackedQuery {
    filter: u64,
    patch: u64,
    probabilities: u64,
    responses: u64,
    colours: u64,
    bins: u64,
    has_chroma: i32,
    is_wide: i32,
    half: [i32; 2],
    is_learnt: i32,
    unused: i32,
}

pod_structure!(PackedQuery, 72 bytes {
    filter: u64,
    patch: u64,
    probabilities: u64,
    responses: u64,
    colours: u64,
    bins: u64,
    has_chroma: i32 = 48,
    is_wide: i32,
    half: [i32; 2],
    is_learnt: i32 = 64,
    unused: i32,
});

/// `Lesson` of the kernels.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct PackedLesson {
    filter: u64,
    rows: [[f32; 2]; GRID],
    columns: [[f32; 2]; HALF],
}

pod_structure!(PackedLesson, 400 bytes {
    filter: u64,
    rows: [[f32; 2]; GRID] = 8,
    columns: [[f32; 2]; HALF] = 264,
});

/// The kernels, and the tables that they read.
pub(super) struct Correlation {
    look: Kernel,
    learn: Kernel,
    tables: DeviceBuffer<f32>,
}

impl Correlation {
    /// None if a block cannot have as much shared memory as it needs.
    fn load(device: &Shared, stream: &Stream, tables: &Tables) -> Result<Option<Self>> {
        let gpu = &device.gpu;
        let allowed = gpu.max_shared_bytes()?;
        if allowed < LOOK_SHARED_BYTES {
            tracing::info!(
                "targets are followed on the host: a block of this GPU can have {allowed} bytes of shared memory, and \
                 the tracker's filters need {LOOK_SHARED_BYTES}"
            );
            return Ok(None);
        }
        let module = gpu.share(ptx!("correlation"))?;
        let Tables { turns, tapers, names } = tables;
        let names = names.iter().map(|bells| bells.as_flattened());
        let parts = [turns.as_flattened(), &tapers[0], &tapers[1]].into_iter().chain(names);
        let numbers: Vec<f32> = parts.flatten().copied().collect();
        assert_eq!(numbers.len(), TABLES, "tables for the kernels");
        // SAFETY: it is dropped after all trackers, which have waited for their streams.
        let mut there = unsafe { gpu.alloc_piece("tables of the tracker", TABLES)? };
        stream.upload_now(&numbers, &mut there)?;
        Ok(Some(Self { look: module.kernel("look")?, learn: module.kernel("learn")?, tables: there }))
    }
}

/// The filters of one tracker.
pub(super) struct DeviceCorrelator(Arc<FilterLane>);

/// The stream and the buffers that all filters of a tracker use.
struct FilterLane {
    /// Dropped first: it waits for what reads the device's tables.
    work: Ranked<Work, 110>,
    device: Arc<Shared>,
}

/// A stream and its buffers. They grow to what is asked.
struct Work {
    stream: Stream,
    mark: Mark,
    asked: Staged,
    lessons: Staged,
    patches: Option<DeviceBuffer<u8>>,
    answers: Option<PinnedBuffer<u8>>,
    /// Lessons were begun, and nothing was waited for since.
    is_learning: bool,
    /// Filters that are placed, and room of those that are gone.
    placed: usize,
    spare: Vec<DeviceBuffer<f32>>,
    /// The first error that could not be reported.
    failure: Option<Error>,
}

impl Work {
    /// Makes room for so many queries. Returns where they will lie.
    fn reserve(&mut self, device: &Shared, count: usize) -> Result<u64> {
        let Self { asked, patches, answers, .. } = self;
        if patches.as_ref().is_none_or(|patches| patches.len() < count * PATCH_BYTES) {
            // SAFETY: `respond` waits for all that uses them.
            *patches =
                Some(unsafe { device.gpu.alloc_piece("windows", count.next_power_of_two() * PATCH_BYTES)? });
        }
        if answers.as_ref().is_none_or(|answers| answers.len() < count * ANSWER_BYTES) {
            let length = count.next_power_of_two() * ANSWER_BYTES;
            *answers = Some(device.gpu.alloc_pinned_piece("answers", length)?);
        }
        let bytes = size_of::<PackedQuery>() + GRIDS * size_of::<surface::Grid>() + 4 * BINS;
        asked.reserve(device, count * bytes)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // A lesson may still be on its way. An error has no one to go to: the device is lost then.
        let _ = self.stream.wait();
    }
}

impl DeviceCorrelator {
    /// None if the device cannot do it. That is said once.
    pub(super) fn open(device: &Arc<Shared>, tables: &Tables) -> Result<Option<Self>> {
        let stream = device.gpu.stream(Priority::High)?;
        let correlation = device.correlation.get_or_init(|| {
            let loaded = Correlation::load(device, &stream, tables);
            loaded.unwrap_or_else(|error| {
                tracing::warn!("targets are followed on the host: {error}");
                None
            })
        });
        if correlation.is_none() {
            return Ok(None);
        }
        let work = Work {
            stream,
            mark: device.gpu.mark()?,
            asked: Staged::default(),
            lessons: Staged::default(),
            patches: None,
            answers: None,
            is_learning: false,
            placed: 0,
            spare: Vec::new(),
            failure: None,
        };
        Ok(Some(Self(Arc::new(FilterLane { device: device.clone(), work: Ranked::new(work) }))))
    }
}

impl FilterLane {
    fn correlation(&self) -> &Correlation {
        self.device.correlation.get().and_then(Option::as_ref).expect("loaded before there is a lane")
    }

    fn try_respond(&self, picture: &DevicePicture, queries: &mut [Query<'_>]) -> Result<()> {
        let Self { device, work } = self;
        let mut work = work.lock();
        if let Some(error) = work.failure.take() {
            return Err(error);
        }
        let count = queries.len();
        for query in &*queries {
            assert!(
                std::ptr::eq(&raw const *DeviceFilter::of(query.filter).correlator.0, self),
                "a filter of another tracker"
            );
            assert_eq!(query.probabilities.len(), BINS, "probabilities of bins");
            let end = query.grids.iter().map(Grid::end).max().unwrap_or(0);
            assert!(end <= PATCH_BYTES, "grids of {end} bytes for a window of {PATCH_BYTES}");
        }
        let at = work.reserve(device, count)?;
        let Work { stream, mark, asked, patches, answers, is_learning, .. } = &mut *work;
        let (Some(patches), Some(answers)) = (patches, answers) else { return Ok(()) };
        let grids = queries.iter().enumerate().flat_map(|(index, query)| {
            let first = index * PATCH_BYTES;
            query.grids.iter().map(move |grid| picture.packed(grid, first + grid.at))
        });
        let grids: Vec<_> = grids.collect();
        // Queries come first, and have the addresses of probabilities, which come last.
        let listed = at + (size_of::<PackedQuery>() * count) as u64;
        let probabilities = listed + size_of_val(&*grids) as u64;
        let answered = answers.device_address();
        let pack = |(index, query): (usize, &Query<'_>)| {
            let answer = answered + (index * ANSWER_BYTES) as u64;
            let after = |wanted: bool, bytes: usize| if wanted { answer + bytes as u64 } else { 0 };
            PackedQuery {
                filter: DeviceFilter::of(query.filter).address(),
                patch: patches.address_of(index * PATCH_BYTES),
                probabilities: probabilities + (4 * BINS * index) as u64,
                responses: answer,
                colours: after(query.colours.is_some(), RESPONSES_BYTES),
                bins: after(query.bins.is_some(), 2 * RESPONSES_BYTES),
                has_chroma: i32::from(query.grids.len() == GRIDS),
                is_wide: i32::from(query.is_wide),
                half: [query.half.0 as i32, query.half.1 as i32],
                is_learnt: i32::from(query.is_learnt),
                unused: 0,
            }
        };
        let packed: Vec<_> = queries.iter().enumerate().map(pack).collect();
        let parts = [bytes_of(&packed), bytes_of(&grids)].into_iter();
        let parts = parts.chain(queries.iter().map(|query| bytes_of(query.probabilities)));
        let parts: Vec<&[u8]> = parts.collect();
        let Correlation { look, tables, .. } = self.correlation();
        let sample = &device.kernels()?.sample_listed;
        let mut ask = || {
            picture.begin(stream)?;
            // SAFETY: the last call waited for its copy and for the kernels that read it, as this one does
            // below, before anything is dropped.
            unsafe { asked.upload(device, stream, &parts)? };
            let (patches, tables) = (patches.address(), tables.address());
            let blocks = [(SIDE * SIDE).div_ceil(BLOCK), grids.len(), 1];
            // SAFETY: these are the kernel's arguments: grids that were copied, whose samples lie within
            // `PATCH_BYTES` of `patches` for each query, as checked above, of planes of the picture, which
            // the caller keeps until the wait below.
            unsafe { stream.launch(sample, blocks, [BLOCK, 1, 1], 0, &mut [arg(&listed), arg(&patches)])? };
            let arguments = &mut [arg(&at), arg(&tables)];
            // SAFETY: these are the kernel's arguments: queries that were copied. It reads the patches, as
            // many probabilities as there are bins, and filters of this lane, as checked above, all of which
            // live; and writes `ANSWER_BYTES` for each query to `answers`, which is kept and not touched
            // until the wait below.
            unsafe { stream.launch(look, [count, 1, 1], [THREADS, 1, 1], LOOK_SHARED_BYTES, arguments) }
        };
        let begun = ask();
        // Also after a failure: started work may still write.
        let waited = stream.wait_for_mark(mark);
        begun.and(waited)?;
        *is_learning = false;
        let (answers, _) = answers.as_slice().as_chunks::<ANSWER_BYTES>();
        for (query, answer) in queries.iter_mut().zip(answers) {
            let (responses, rest) = answer.split_at(RESPONSES_BYTES);
            let (colours, bins) = rest.split_at(RESPONSES_BYTES);
            read_floats(responses, query.responses);
            let mut bytes = responses.len();
            if let Some(means) = &mut query.colours {
                read_floats(colours, means);
                bytes += colours.len();
            }
            if let Some(own) = &mut query.bins {
                for (bin, &bytes) in own.iter_mut().zip(bins.as_chunks().0) {
                    *bin = u16::from_ne_bytes(bytes);
                }
                bytes += bins.len();
            }
            device.traffic.add_down(bytes);
        }
        Ok(())
    }

    fn try_learn(&self, lessons: &[Lesson<'_>]) -> Result<()> {
        let Self { device, work } = self;
        let mut work = work.lock();
        let Work { stream, lessons: asked, is_learning, .. } = &mut *work;
        if *is_learning {
            stream.wait()?;
        }
        let pack = |lesson: &Lesson<'_>| PackedLesson {
            filter: DeviceFilter::of(lesson.filter).address(),
            rows: lesson.rows.map(|(cos, sin)| [cos, sin]),
            columns: lesson.columns.map(|(cos, sin)| [cos, sin]),
        };
        let packed: Vec<_> = lessons.iter().map(pack).collect();
        let at = asked.reserve(device, size_of_val(&*packed))?;
        *is_learning = true;
        // SAFETY: the last copy and the kernel that read it were waited for, above or in `respond`; `Work`
        // waits before it is dropped.
        unsafe { asked.upload(device, stream, &[bytes_of(&packed)])? };
        let Correlation { learn, tables, .. } = self.correlation();
        let tables = tables.address();
        let arguments = &mut [arg(&at), arg(&tables)];
        // SAFETY: these are the kernel's arguments: lessons that were copied, for filters that live.
        unsafe { stream.launch(learn, [packed.len(), 1, 1], [THREADS, 1, 1], LEARN_SHARED_BYTES, arguments) }
    }

    fn try_place(self: &Arc<Self>, filter: &FilterState) -> Result<DeviceFilter> {
        let mut work = self.work.lock();
        // So that looks need no memory: each filter looks at two windows at most at a time.
        let queries = 2 * (work.placed + 1);
        work.reserve(&self.device, queries)?;
        let mut memory = match work.spare.pop() {
            Some(memory) => memory,
            // SAFETY: it is dropped after the stream that works on it was waited for: see `Work`.
            None => unsafe { self.device.gpu.alloc_piece("a filter of the tracker", FILTER)? },
        };
        let FilterState { learnt, anchor, outside, label, memory: drawn, power, kept } = filter;
        let mut numbers = vec![0.0; KEPT_STATES + kept.len() * LEARNT];
        write_learnt(learnt, &mut numbers);
        write_spectrum(anchor, &mut numbers[ANCHOR..]);
        for (weight, outside) in numbers[WEIGHTS..].iter_mut().zip(outside) {
            *weight = 1.0 / (outside + PENALTY) * (1.0 / (GRID * GRID) as f32);
        }
        numbers[LABEL..][..FREQUENCIES].copy_from_slice(&label.0);
        numbers[LABEL + FREQUENCIES..][..FREQUENCIES].copy_from_slice(&label.1);
        numbers[NUMBERS..][..3].copy_from_slice(&[drawn.last, drawn.first, *power]);
        for (state, numbers) in kept.iter().zip(numbers[KEPT_STATES..].chunks_exact_mut(LEARNT)) {
            write_learnt(state, numbers);
        }
        work.stream.upload_now(&numbers, &mut memory)?;
        work.placed += 1;
        let (outside, label, drawn) = (outside.clone(), label.clone(), *drawn);
        let kept = (0..kept.len()).collect();
        let correlator = DeviceCorrelator(self.clone());
        Ok(DeviceFilter { correlator, memory: Some(memory), kept, outside, label, drawn, power: *power })
    }
}

fn read_floats(bytes: &[u8], numbers: &mut [f32]) {
    for (number, &bytes) in numbers.iter_mut().zip(bytes.as_chunks().0) {
        *number = f32::from_ne_bytes(bytes);
    }
}

fn write_spectrum(spectrum: &Spectrum, numbers: &mut [f32]) {
    numbers[..SPECTRUM].copy_from_slice(spectrum.re.as_flattened());
    numbers[SPECTRUM..][..SPECTRUM].copy_from_slice(spectrum.im.as_flattened());
}

fn read_spectrum(numbers: &[f32]) -> Spectrum {
    let part = |from: usize| numbers[from..][..SPECTRUM].as_chunks().0.to_vec();
    Spectrum { re: part(0), im: part(SPECTRUM) }
}

fn write_learnt(learnt: &Learnt, numbers: &mut [f32]) {
    write_spectrum(&learnt.filter, numbers);
    numbers[TOP] = learnt.top;
}

fn read_learnt(numbers: &[f32]) -> Learnt {
    Learnt { filter: read_spectrum(numbers), top: numbers[TOP] }
}

impl Correlator for DeviceCorrelator {
    fn sees(&self, surface: &(dyn Surface + 'static)) -> bool {
        DevicePicture::of(&self.0.device.gpu, surface).is_some()
    }

    fn place(&self, filter: &FilterState) -> Option<Box<dyn PlacedFilter>> {
        match self.0.try_place(filter) {
            Ok(filter) => Some(Box::new(filter)),
            Err(error) => {
                tracing::warn!("a target is followed on the host: {error}");
                None
            }
        }
    }

    fn respond(&self, surface: &(dyn Surface + 'static), queries: &mut [Query<'_>]) {
        let picture = DevicePicture::of(&self.0.device.gpu, surface).expect("the picture that it sees");
        if queries.is_empty() {
            return;
        }
        if let Err(error) = self.0.try_respond(picture, queries) {
            picture.note(error);
            for Query { responses, colours, bins, .. } in queries {
                responses.fill(0.0);
                if let Some(colours) = colours {
                    colours.fill(0.0);
                }
                if let Some(bins) = bins {
                    bins.fill(0);
                }
            }
        }
    }

    fn learn(&self, surface: &(dyn Surface + 'static), lessons: &[Lesson<'_>]) {
        if lessons.is_empty() {
            return;
        }
        if let Err(error) = self.0.try_learn(lessons)
            && let Some(picture) = DevicePicture::of(&self.0.device.gpu, surface)
        {
            picture.note(error);
        }
    }
}

/// A filter in the memory of the device.
struct DeviceFilter {
    correlator: DeviceCorrelator,
    /// Until it is dropped.
    memory: Option<DeviceBuffer<f32>>,
    /// The places of the states that are kept, oldest first.
    kept: Vec<usize>,
    /// Values that the device does not change.
    outside: Vec<f32>,
    label: (Vec<f32>, Vec<f32>),
    drawn: Memory,
    power: f32,
}

impl DeviceFilter {
    fn of(filter: &dyn PlacedFilter) -> &Self {
        (filter as &dyn Any).downcast_ref().expect("a filter that this device has placed")
    }

    fn memory(&self) -> &DeviceBuffer<f32> {
        self.memory.as_ref().expect("it is not dropped")
    }

    fn address(&self) -> u64 {
        self.memory().address()
    }

    /// The place of a state that is kept.
    fn kept_at(index: usize) -> usize {
        KEPT_STATES + index * LEARNT
    }

    /// Copies a state within the filter, in its stream.
    fn copy(&self, from: usize, to: usize) {
        let mut work = self.correlator.0.work.lock();
        let rows = |at: usize| Rows { address: self.memory().address_of(at), pitch: 4 * LEARNT };
        // SAFETY: both lie in the filter's memory: `LEARNT` numbers at each of their places.
        let copied = unsafe { work.stream.copy_rows(rows(from), rows(to), 4 * LEARNT, 1) };
        if let Err(error) = copied {
            work.failure.get_or_insert(error);
        }
    }
}

impl Drop for DeviceFilter {
    fn drop(&mut self) {
        // Later work in the stream may use the memory again.
        let mut work = self.correlator.0.work.lock();
        work.placed -= 1;
        work.spare.extend(self.memory.take());
    }
}

impl PlacedFilter for DeviceFilter {
    fn correlator(&self) -> &dyn Correlator {
        &self.correlator
    }

    fn keep(&mut self) {
        let place = if self.kept.len() < KEPT { self.kept.len() } else { self.kept.remove(0) };
        self.kept.push(place);
        self.copy(0, Self::kept_at(place));
    }

    fn go_back(&mut self) {
        if let Some(&oldest) = self.kept.first() {
            self.copy(Self::kept_at(oldest), 0);
        }
        self.kept.clear();
    }

    fn fetch(&self) -> FilterState {
        let mut numbers = vec![0.0; KEPT_STATES + KEPT * LEARNT];
        let fetched = self.correlator.0.work.lock().stream.download_now(self.memory(), &mut numbers);
        if let Err(error) = fetched {
            tracing::warn!("a target's filter is lost: {error}");
            numbers.fill(0.0);
            // Responses are divided by this.
            numbers[TOP] = 1.0;
        }
        FilterState {
            learnt: read_learnt(&numbers),
            anchor: read_spectrum(&numbers[ANCHOR..]),
            outside: self.outside.clone(),
            label: self.label.clone(),
            memory: self.drawn,
            power: self.power,
            kept: self.kept.iter().map(|&place| read_learnt(&numbers[Self::kept_at(place)..])).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use lockon_core::config::{Moment, TrackSpec};
    use lockon_core::device_memory::{DeviceMemory, DevicePlane, SurfaceDevice};
    use lockon_core::frame::{
        Circumstances, Frame, FrameMeta, Picture, PixelFormat, Plane, PlaneRef, Rect, Size, VideoFormat,
    };
    use lockon_core::ports::Follow;
    use lockon_core::reference::surface::OnDevice;
    use lockon_core::results::{Track, TrackState};
    use lockon_core::surface::Turn;
    use lockon_core::tracker::{HostCorrelator, Tracker, tables};

    use super::*;
    use crate::driver::{Gpu, counted};
    use crate::surface::Opened;
    use crate::testing::{self, Random};

    /// Planes on the host.
    struct Planes(Vec<Plane>);

    impl Picture for Planes {
        fn plane(&self, index: usize) -> PlaneRef<'_> {
            self.0[index].as_ref()
        }
    }

    fn format(name: &str, size: Size) -> VideoFormat {
        let pixels = PixelFormat::from_name(name).unwrap();
        VideoFormat { size, pixels, frame_rate: (25, 1), pixel_aspect: (1, 1), colorimetry: None }
    }

    /// Copies planes to the device.
    fn upload(gpu: &Gpu, planes: &[Plane]) -> DeviceMemory {
        let stream = gpu.stream(Priority::Normal).unwrap();
        let bytes = planes.iter().flat_map(Plane::data).copied().collect::<Vec<_>>();
        let mut buffer = gpu.alloc("a picture", bytes.len()).unwrap();
        stream.upload_now(&bytes, &mut buffer).unwrap();
        let mut at = 0;
        let places = planes.iter().map(|plane| {
            let address = buffer.address_of(at);
            at += plane.size().area();
            DevicePlane { address, stride: plane.size().width }
        });
        let places = places.collect();
        // SAFETY: `buffer` has all planes, is kept, and no code writes to it.
        unsafe { DeviceMemory::new(gpu.handle() as usize, places, None, Box::new(buffer)) }
    }

    fn planes(format: &VideoFormat, mut plane: impl FnMut(usize, Size) -> Plane) -> Vec<Plane> {
        let sizes = (0..format.pixels.planes()).map(|index| format.pixels.plane_size(index, format.size));
        sizes.enumerate().map(|(index, size)| plane(index, size)).collect()
    }

    /// A place for filters; none on a GPU that is too small for them, which is said.
    fn correlator(surface: &dyn Surface) -> Option<Box<dyn Correlator>> {
        let correlator = surface.correlator(tables());
        if correlator.is_none() {
            println!("skipped: this GPU cannot keep the tracker's filters");
        }
        correlator
    }

    fn number(random: &mut Random) -> f32 {
        random.below(20_001) as f32 / 10_000.0 - 1.0
    }

    fn spectrum(random: &mut Random) -> Spectrum {
        let mut part = || {
            let cell = |random: &mut Random| std::array::from_fn(|_| number(random));
            (0..FREQUENCIES).map(|_| cell(random)).collect()
        };
        Spectrum { re: part(), im: part() }
    }

    fn filter(random: &mut Random) -> FilterState {
        let mut label = || (0..FREQUENCIES).map(|_| number(random)).collect();
        let label = (label(), label());
        FilterState {
            learnt: Learnt { filter: spectrum(random), top: 0.5 + random.below(100) as f32 / 100.0 },
            anchor: spectrum(random),
            outside: (0..GRID * GRID).map(|_| [0.0, 100.0][random.below(2)]).collect(),
            label,
            memory: Memory { last: 40.0, first: 20.0 },
            power: 3.0 + random.below(100) as f32,
            kept: Vec::new(),
        }
    }

    /// The grids of a window somewhere, also beyond the picture.
    fn grids(random: &mut Random, format: &VideoFormat, has_chroma: bool) -> Vec<Grid> {
        let turn = (random.below(2) == 0).then(|| {
            let angle = random.below(628) as f64 / 100.0;
            let fixed = |v: f64| (v * 65536.0) as i32;
            let (sin, cos) = (fixed(angle.sin()), fixed(angle.cos()));
            Turn { count: LUMA_SIDE * 3 / 2 + 2, right: (cos, sin), below: (-sin, cos) }
        });
        let step = random.log_uniform(20_000, 300_000) as i64;
        let [x, y] = [format.size.width, format.size.height].map(|side| random.below(side) as i64 * 256);
        let grid = |side: usize, groups, (plane, first, pixel): (usize, usize, usize), shift, at| {
            let turn = turn.map(|turn| Turn { count: turn.count * side / LUMA_SIDE + 2, ..turn });
            let count = turn.map_or(side, |turn| turn.count) as i64;
            let step = (step * (LUMA_SIDE / side) as i64) >> shift;
            let axis = |middle: i64| ((middle >> shift) - ((step * count) >> 9), step);
            let (columns, rows) = (axis(x), axis(y));
            Grid { plane, first, step: pixel, columns, rows, side, turn, groups, across: 1, index: 0, at }
        };
        let mut grids = vec![grid(LUMA_SIDE, 4, (0, 0, 1), 0, 0)];
        let planes = [0, 1].map(|component| format.pixels.chroma_samples(component));
        for (plane, at) in
            planes.into_iter().flatten().zip([LUMA_SIDE * LUMA_SIDE, LUMA_SIDE * LUMA_SIDE * 5 / 4])
        {
            if has_chroma {
                grids.push(grid(COLOUR_SIDE, 1, plane, format.pixels.x_shift as u32, at));
            }
        }
        grids
    }

    /// A query, without its filter.
    struct Asked {
        grids: Vec<Grid>,
        probabilities: Vec<f32>,
        is_wide: bool,
        half: (i64, i64),
        has_place: bool,
        has_bins: bool,
    }

    type Answer = (Vec<u32>, Vec<u32>, Vec<u16>);

    /// By what rows and columns are turned.
    type Shift = ([(f32, f32); GRID], [(f32, f32); HALF]);

    /// The answers to looks of filters, as bits; what was not asked for stays poisoned.
    fn answers(
        correlator: &dyn Correlator,
        surface: &(dyn Surface + 'static),
        filters: &[Box<dyn PlacedFilter>],
        asked: &[Asked],
    ) -> Vec<Answer> {
        let cells = GRID * GRID;
        let mut room: Vec<_> = asked
            .iter()
            .map(|_| (vec![7.5; cells], vec![7.5; cells], vec![7777; COLOUR_SIDE * COLOUR_SIDE]))
            .collect();
        let queries = asked.iter().zip(filters).zip(&mut room);
        let queries = queries.map(|((asked, filter), (responses, colours, bins))| Query {
            filter: &**filter,
            grids: &asked.grids,
            is_wide: asked.is_wide,
            probabilities: &asked.probabilities,
            half: asked.half,
            is_learnt: true,
            responses,
            colours: asked.has_place.then_some(colours),
            bins: asked.has_bins.then_some(bins),
        });
        correlator.respond(surface, &mut queries.collect::<Vec<_>>());
        let bits = |numbers: Vec<f32>| numbers.into_iter().map(f32::to_bits).collect();
        room.into_iter().map(|(responses, colours, bins)| (bits(responses), bits(colours), bins)).collect()
    }

    #[test]
    fn filters_on_the_device_respond_and_learn_as_the_hosts() {
        let Some(gpu) = testing::gpu() else { return };
        let device = Opened::open(0).unwrap();
        let mut random = Random(23);
        for (name, size) in
            [("NV12", Size::new(211, 157)), ("I420", Size::new(640, 361)), ("GRAY8", Size::new(97, 64))]
        {
            let format = format(name, size);
            let host = HostCorrelator::default();
            let mut there: Option<Box<dyn Correlator>> = None;
            let states: Vec<_> = (0..5).map(|_| filter(&mut random)).collect();
            let mut filters: [Vec<Box<dyn PlacedFilter>>; 2] = Default::default();
            for turn in 0..6 {
                let smooth = turn % 2 == 0;
                let planes = planes(&format, |_, size| {
                    let mut plane = random.picture(size);
                    if smooth {
                        // Some flat parts, some edges.
                        let width = size.width;
                        for (i, value) in plane.data_mut().iter_mut().enumerate() {
                            *value = ((i % width / 9 * 37 + i / width / 7 * 91) % 256) as u8;
                        }
                    }
                    plane
                });
                let picture = device.adopt(upload(&gpu, &planes), &format).unwrap();
                let definition = OnDevice::new(Arc::new(Planes(planes)), &format);
                let surface = picture.surface().unwrap();
                let there =
                    there.get_or_insert_with(|| surface.correlator(lockon_core::tracker::tables()).unwrap());
                if turn == 0 {
                    let place = |correlator: &dyn Correlator| {
                        states.iter().map(|state| correlator.place(state).unwrap()).collect()
                    };
                    filters = [place(&host), place(&**there)];
                }
                let has_chroma = name != "GRAY8";
                let asked: Vec<_> = (0..5)
                    .map(|_| Asked {
                        grids: grids(&mut random, &format, has_chroma),
                        probabilities: (0..BINS).map(|_| random.below(1000) as f32 / 999.0).collect(),
                        is_wide: random.below(2) == 0,
                        half: (1 + random.below(30) as i64, 1 + random.below(30) as i64),
                        has_place: random.below(4) > 0,
                        has_bins: random.below(2) > 0,
                    })
                    .collect();
                let wanted = answers(&host, definition.surface().unwrap(), &filters[0], &asked);
                let found = answers(&**there, surface, &filters[1], &asked);
                surface.check().unwrap();
                for (index, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
                    let what = format!("{name} {size}, turn {turn}, look {index}");
                    assert!(found.2 == wanted.2, "{what}: bins");
                    assert!(found.1 == wanted.1, "{what}: colours");
                    let off = found.0.iter().zip(&wanted.0).position(|(a, b)| a != b);
                    assert_eq!(
                        off,
                        None,
                        "{what}: responses {:?}",
                        off.map(|at| [found.0[at], wanted.0[at]].map(f32::from_bits))
                    );
                }
                let turned = |random: &mut Random| {
                    let angle = random.below(628) as f32 / 100.0;
                    (angle.cos(), angle.sin())
                };
                let shifts: Vec<Shift> = (0..5)
                    .map(|_| {
                        (
                            std::array::from_fn(|_| turned(&mut random)),
                            std::array::from_fn(|_| turned(&mut random)),
                        )
                    })
                    .collect();
                for (of_whom, correlator) in [&host as &dyn Correlator, &**there].into_iter().enumerate() {
                    // Not all learn.
                    let lessons = filters[of_whom].iter().zip(&shifts).take(4);
                    let lessons =
                        lessons.map(|(filter, &(rows, columns))| Lesson { filter: &**filter, rows, columns });
                    correlator.learn(surface, &lessons.collect::<Vec<_>>());
                    for filter in &mut filters[of_whom] {
                        filter.keep();
                    }
                    if turn == 4 {
                        filters[of_whom][1].go_back();
                    }
                }
                for (index, (there, here)) in filters[1].iter().zip(&filters[0]).enumerate() {
                    let (there, here) = (there.fetch(), here.fetch());
                    let what = format!("{name} {size}, turn {turn}, filter {index}");
                    assert!(
                        there.learnt == here.learnt,
                        "{what}: {} and {}",
                        there.learnt.top,
                        here.learnt.top
                    );
                    assert!(there.kept == here.kept && there.anchor == here.anchor, "{what}");
                }
            }
        }
    }

    /// A square with texture that moves over ground with texture, is covered for a while, and comes back.
    fn scene(format: &VideoFormat, index: usize) -> Vec<Plane> {
        let texture = |x: usize, y: usize, seed: usize| (x / 3 * 7919 + y / 3 * 104_729 + seed * 31) % 97;
        let square = (60 + 3 * index, 80 + index / 2);
        let is_covered = (30..45).contains(&index);
        let inside = move |x: usize, y: usize| {
            !is_covered && (square.0..square.0 + 32).contains(&x) && (square.1..square.1 + 40).contains(&y)
        };
        planes(format, |plane, size| {
            let value = |i: usize| {
                let (x, y) = (i % size.width, i / size.width);
                if plane > 0 {
                    let is_target = inside(x / 2 * 2, 2 * y);
                    return [[128, 120], [150, 100]][usize::from(is_target)][x % 2];
                }
                if inside(x, y) {
                    60 + texture(x - square.0, y - square.1, 1) as u8
                } else {
                    120 + texture(x, y, 0) as u8 / 2
                }
            };
            Plane::from_vec((0..size.area()).map(value).collect(), size)
        })
    }

    /// A frame of the scene, on a device or on the host.
    fn frame(on: Option<(&Gpu, &Opened)>, format: &VideoFormat, index: usize) -> Frame {
        let planes = scene(format, index);
        let picture: Arc<dyn Picture> = match on {
            Some((gpu, device)) => device.adopt(upload(gpu, &planes), format).unwrap(),
            None => Arc::new(Planes(planes)),
        };
        let meta =
            FrameMeta { index: index as u64, pts_ns: None, duration_ns: None, arrived: Instant::now() };
        let format = Arc::new(format.clone());
        Frame { meta, circumstances: Circumstances::default(), format, picture }
    }

    #[test]
    fn targets_are_followed_on_the_device_as_on_the_host() {
        let Some(gpu) = testing::gpu() else { return };
        let device = Opened::open(0).unwrap();
        let format = format("NV12", Size::new(400, 240));
        let followed = |is_there: &dyn Fn(usize) -> bool| {
            let boxes = [Rect::new(60, 80, 32, 40), Rect::new(200, 150, 48, 32), Rect::new(20, 20, 20, 20)];
            let specs = boxes.map(|rect| TrackSpec::new(rect, Moment::Frame(0)));
            let mut tracker = Tracker::new(&specs);
            let mut all: Vec<Vec<Track>> = Vec::new();
            for index in 0..90 {
                let on = is_there(index).then_some((&gpu, &device));
                let frame = frame(on, &format, index);
                let mut tracks = Vec::new();
                tracker.step(&frame, &[], &mut tracks);
                frame.picture.surface().map_or(Ok(()), Surface::check).unwrap();
                all.push(tracks);
            }
            all
        };
        let on_host = followed(&|_| false);
        let states: Vec<_> =
            on_host.iter().flatten().filter(|track| track.id == 1).map(|track| track.state).collect();
        assert!(states.contains(&TrackState::Lost) && states.contains(&TrackState::Tracked), "{states:?}");
        assert_eq!(followed(&|_| true), on_host);
        assert_eq!(followed(&|index| index % 9 < 6), on_host, "filters move");
    }

    #[test]
    fn a_device_that_is_lost_with_its_targets_is_an_error_and_the_host_goes_on() {
        testing::in_a_process_of_its_own("correlation::tests::a_device_is_lost_with_its_targets");
    }

    #[test]
    #[ignore = "run by the test above, in a process of its own"]
    fn a_device_is_lost_with_its_targets() {
        let (gpu, device) = (testing::gpu().unwrap(), Opened::open(0).unwrap());
        let format = format("NV12", Size::new(400, 240));
        // More than a lane's, some of them lost.
        let boxes = (0..12).map(|i| Rect::new(20 + i % 4 * 90, 20 + i / 4 * 70, 40, 40));
        let specs: Vec<_> = boxes.map(|rect| TrackSpec::new(rect, Moment::Frame(0))).collect();
        let mut tracker = Tracker::new(&specs);
        let mut tracks = Vec::new();
        for index in 0..35 {
            let frame = frame(Some((&gpu, &device)), &format, index);
            tracker.step(&frame, &[], &mut tracks);
            frame.picture.surface().unwrap().check().unwrap();
        }
        let next = frame(Some((&gpu, &device)), &format, 35);
        testing::lose(&gpu);
        tracker.step(&next, &[], &mut tracks);
        let error = next.picture.surface().unwrap().check().unwrap_err();
        assert!(error.is_device_lost(), "{error}");
        drop(next);
        // As it would be if the rest were decoded on the host.
        for index in 36..40 {
            tracks.clear();
            tracker.step(&frame(None, &format, index), &[], &mut tracks);
            assert_eq!(tracks.len(), specs.len());
        }
    }

    #[test]
    fn memory_of_the_device_stays_the_same_while_a_thousand_targets_come_and_go() {
        testing::in_a_process_of_its_own("correlation::tests::a_thousand_targets_come_and_go");
    }

    #[test]
    #[ignore = "run by the test above, in a process of its own"]
    fn a_thousand_targets_come_and_go() {
        let (gpu, device) = (testing::gpu().unwrap(), Opened::open(0).unwrap());
        let format = format("NV12", Size::new(400, 240));
        let frames: Vec<_> = (0..3).map(|index| frame(Some((&gpu, &device)), &format, index)).collect();
        let mut held_after = Vec::new();
        for round in 0..100 {
            let rects = (0..10).map(|i| Rect::new(10 + (i * 37 + round) % 300, 10 + i * 15, 32, 40));
            let specs: Vec<_> = rects.map(|rect| TrackSpec::new(rect, Moment::Frame(0))).collect();
            let mut tracker = Tracker::new(&specs);
            for frame in &frames {
                let mut tracks = Vec::new();
                tracker.step(frame, &[], &mut tracks);
                assert_eq!(tracks.len(), 10);
            }
            // Buffers only: what is free on the device changes with other processes.
            held_after.push(counted::held());
        }
        assert!(held_after[9] > 0, "it holds something");
        assert_eq!(held_after[9], held_after[99], "of 100 targets and of 1,000");
    }

    #[test]
    fn filters_that_come_and_go_use_the_same_memory_again() {
        let Some(gpu) = testing::gpu() else { return };
        let device = Opened::open(0).unwrap();
        let format = format("GRAY8", Size::new(64, 64));
        let planes = planes(&format, |_, size| Plane::new(size));
        let picture = device.adopt(upload(&gpu, &planes), &format).unwrap();
        let Some(correlator) = correlator(picture.surface().unwrap()) else { return };
        let state = filter(&mut Random(5));
        for _ in 0..1000 {
            let _placed = [(); 2].map(|()| correlator.place(&state).unwrap());
        }
        let correlator: &dyn Any = &*correlator;
        let lane = &correlator.downcast_ref::<DeviceCorrelator>().unwrap().0;
        assert_eq!(lane.work.lock().spare.len(), 2);
    }
}
