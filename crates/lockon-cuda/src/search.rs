//! Searches on the device: a bank in its memory, and the lane that runs it.
//!
//! A lane is a stream with the memory that one search at a time needs: constant memory, column sums, a score
//! map. Results of a search go to a list of candidates. Each slot of the ring has its own list: it is read
//! back while the lane searches the next frame.

#![expect(unsafe_code, reason = "the device writes into the host's memory after a call has returned")]

use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lockon_core::backend::peaks::{Candidate, Selector, vertex};
use lockon_core::config::{Kernel, Limits, NccKernel};
use lockon_core::error::Result;
use lockon_core::frame::{Rect, Size};
use lockon_core::results::Match;
use lockon_core::template::Bank;

use super::driver::{DeviceBuffer, Gpu, Graph, Pinned, PinnedBuffer, Priority, Rows, Stream, pitch_for};
use super::mma::MmaKernels;
use super::ncc::{
    self, DeviceFrame, Found, FoundPeak, How, Member, NccKernels, Pattern, Publish, Wanted, once, positions,
};
use super::suspects::{Query, Suspicion};
use super::texture::over_rows;
use super::wgmma::map::WgmmaMapKernels;
use super::wgmma::{PreparedBank, Progress, WgmmaKernels};

/// Most candidates that come back with every search, 28 KiB of them. The rest, if there are more, costs a
/// second trip.
const FIRST_CANDIDATES: usize = 512;

/// Alignment that textures need for the address of their first row, on every device so far; it is checked.
const TEXTURE_ALIGNMENT: usize = 512;

/// Room for candidates before a search showed that it needs more.
const CAPACITY: usize = 16_384;

/// Kernels for tensor cores to try on a device of some compute capability, the fastest first: see the tables
/// of benches/results/H200.md, of one H200, and for `WgmmaMap` docs/ncc.md, of one H100. Other devices were
/// not measured; there `mma.sync` is the only one.
fn fastest(capability: (u32, u32)) -> impl Iterator<Item = NccKernel> {
    let first: &[_] = if capability == (9, 0) { &[NccKernel::Wgmma, NccKernel::WgmmaMap] } else { &[] };
    first.iter().copied().chain(std::iter::once(NccKernel::Mma))
}

/// The kernels for tensor cores that searches are planned with, each loaded when a bank is first planned for
/// it.
#[derive(Clone)]
pub(super) struct Planner {
    gpu: Gpu,
    asked: Option<NccKernel>,
    wgmma: OnceCell<Option<Arc<WgmmaKernels>>>,
    wgmma_map: OnceCell<Option<Arc<WgmmaMapKernels>>>,
    mma: OnceCell<Arc<MmaKernels>>,
}

impl Planner {
    /// For the requested kernel, if there is one.
    pub(super) fn new(gpu: &Gpu, asked: Option<NccKernel>) -> Self {
        let (wgmma, wgmma_map, mma) = Default::default();
        Self { gpu: gpu.clone(), asked, wgmma, wgmma_map, mma }
    }

    /// As [`Self::new`], with kernels that were compiled for a generation, launched as on a device of so many
    /// multiprocessors.
    #[cfg(test)]
    pub(super) fn imitating(
        gpu: &Gpu,
        asked: Option<NccKernel>,
        generation: super::mma::Generation,
        multiprocessors: usize,
    ) -> Result<Self> {
        Ok(Self {
            wgmma: WgmmaKernels::load_for(gpu, multiprocessors)?.into(),
            wgmma_map: WgmmaMapKernels::load_for(gpu, multiprocessors)?.into(),
            mma: MmaKernels::load_for(gpu, generation, multiprocessors)?.into(),
            ..Self::new(gpu, asked)
        })
    }

    fn wgmma(&self) -> Result<Option<&Arc<WgmmaKernels>>> {
        once(&self.wgmma, || WgmmaKernels::load(&self.gpu)).map(Option::as_ref)
    }

    fn wgmma_map(&self) -> Result<Option<&Arc<WgmmaMapKernels>>> {
        once(&self.wgmma_map, || WgmmaMapKernels::load(&self.gpu)).map(Option::as_ref)
    }

    fn mma(&self) -> Result<&Arc<MmaKernels>> {
        once(&self.mma, || MmaKernels::load(&self.gpu))
    }

    /// Chooses how a template is searched for: by the requested kernel, if that can search for it; if none
    /// was requested, or there are no such tensor cores, or the template does not suit them, by the fastest.
    fn choose(&self, stream: &Stream, member: &Member, region: Size, best_only: bool) -> Result<How> {
        let plain = || {
            let max_shared_bytes = self.gpu.max_shared_bytes()?;
            Ok(How::Plain(ncc::choose(self.asked, member, max_shared_bytes)))
        };
        let capability = self.gpu.info().capability;
        let by_speed = fastest((capability.major, capability.minor));
        match self.asked {
            Some(NccKernel::Texture | NccKernel::Constant | NccKernel::Shared) => plain(),
            asked => asked
                .into_iter()
                .chain(by_speed)
                .find_map(|kernel| self.prepare(kernel, stream, member, region, best_only).transpose())
                .unwrap_or_else(plain),
        }
    }

    /// Prepares the data of a template that a kernel for tensor cores needs; `None` if the kernel does not
    /// suit the template.
    fn prepare(
        &self,
        kernel: NccKernel,
        stream: &Stream,
        member: &Member,
        region: Size,
        best_only: bool,
    ) -> Result<Option<How>> {
        Ok(match kernel {
            NccKernel::Wgmma => {
                let Some(kernels) = self.wgmma()? else { return Ok(None) };
                kernels.prepare(stream, member, region, best_only)?.map(How::Wgmma)
            }
            NccKernel::WgmmaMap => {
                let Some(kernels) = self.wgmma_map()? else { return Ok(None) };
                kernels.prepare(stream, member)?.map(How::WgmmaMap)
            }
            NccKernel::Mma => self.mma()?.prepare(stream, member)?.map(How::Mma),
            NccKernel::MmaMap => self.mma()?.prepare_for_map(stream, member)?.map(How::MmaMap),
            NccKernel::Texture | NccKernel::Constant | NccKernel::Shared => None,
        })
    }
}

/// A bank on the device, ready to be searched in regions of one size, for the best of each name or for all
/// peaks.
pub(super) struct PlannedSearch {
    bank: Arc<Bank>,
    region: Size,
    /// Only the best match of each name is wanted.
    best_only: bool,
    members: Vec<Member>,
    /// The members that are for the tensor cores, and the kernels.
    wgmma: Option<(PreparedBank, Arc<WgmmaKernels>)>,
    /// Pixels, masks and statistics of all members. The members' textures read it.
    _storage: DeviceBuffer<u8>,
    selector: Selector,
}

impl PlannedSearch {
    /// Puts a bank on the device.
    ///
    /// # Panics
    /// If a member does not fit in the region, which
    /// [`Standing::check`](lockon_core::backend::Standing::check) refuses.
    pub(super) fn new(
        planner: &Planner,
        stream: &Stream,
        bank: Arc<Bank>,
        region: Size,
        limits: &Limits,
    ) -> Result<Self> {
        // The contents of a lane's constant memory belong to one plan.
        static PLANS: AtomicU64 = AtomicU64::new(0);
        for template in bank.members() {
            assert!(template.size().fits_in(region), "template {} in a region of {region}", template.size());
        }
        let id = PLANS.fetch_add(1, Ordering::Relaxed);
        let (gpu, best_only) = (&planner.gpu, limits.max_matches == 1);
        // Statistics come first, then each template's pixels and mask in rows that textures can read.
        let statistics = bank.members().len() * size_of::<Pattern>();
        let mut bytes = vec![0; statistics.next_multiple_of(TEXTURE_ALIGNMENT)];
        let mut places = Vec::with_capacity(bank.members().len());
        for (template, slot) in bank.members().iter().zip(0..) {
            let size = template.size();
            let pattern = Pattern::new(size, template.sums());
            bytes[slot * size_of::<Pattern>()..][..size_of::<Pattern>()].copy_from_slice(&pattern.to_bytes());
            // The mask's rows lie beside the pixels'.
            let planes: Vec<_> = std::iter::once(template.luma()).chain(template.mask()).collect();
            let pitch = pitch_for(gpu, planes.len() * size.width)?;
            let start = bytes.len();
            for y in 0..size.height {
                let end = bytes.len() + pitch;
                for plane in &planes {
                    bytes.extend_from_slice(plane.as_ref().row(y));
                }
                bytes.resize(end, 0);
            }
            bytes.resize(bytes.len().next_multiple_of(TEXTURE_ALIGNMENT), 0);
            places.push((pattern, size, template.mask().is_some(), start, pitch));
        }
        let mut storage = gpu.alloc("templates", bytes.len())?;
        stream.upload_now(&bytes, &mut storage)?;
        let members =
            places.into_iter().enumerate().map(|(index, (pattern, size, is_masked, start, pitch))| {
                let rows = Rows { address: storage.address_of(start), pitch };
                let planes = Size::new(size.width * if is_masked { 2 } else { 1 }, size.height);
                // SAFETY: the plan keeps `storage` beside its members, and kernels get the texture of a
                // member whose plan lives (`Lane::search`).
                let texture = unsafe { over_rows(gpu, &storage, start, pitch, planes)? };
                let statistics = storage.address_of(index * size_of::<Pattern>());
                let sums = bank.members()[index].sums();
                let mut member = Member {
                    key: (id, index),
                    sums,
                    how: How::Plain(NccKernel::Texture),
                    pattern,
                    size,
                    is_masked,
                    texture,
                    rows,
                    statistics,
                };
                member.how = planner.choose(stream, &member, region, best_only)?;
                Ok(member)
            });
        let members = members.collect::<Result<Vec<_>>>()?;
        let has = |kernel| members.iter().any(|member| member.how.kernel() == kernel);
        let wgmma = match planner.wgmma.get() {
            Some(Some(kernels)) if has(NccKernel::Wgmma) => {
                Some((kernels.prepare_bank(stream, &members)?, kernels.clone()))
            }
            _ => None,
        };
        if members.iter().any(|member| member.how.kernel().is_for_tensor_cores()) {
            // Lanes with other streams may search for templates that were prepared in this one.
            stream.wait()?;
        }
        let selector = Selector::new(&bank);
        Ok(Self { bank, region, best_only, members, wgmma, _storage: storage, selector })
    }

    /// The templates.
    pub(super) fn bank(&self) -> &Bank {
        &self.bank
    }

    /// The kernel that is taken for the first member.
    pub(super) fn kernel(&self) -> NccKernel {
        self.members[0].how.kernel()
    }

    /// True if the search of the last member leaves a score map.
    pub(super) fn makes_map(&self) -> bool {
        self.members.last().expect("a bank has members").how.makes_map()
    }

    /// Reports members that are searched for by another kernel than the requested one.
    pub(super) fn tell_replaced(&self, asked: Option<NccKernel>) {
        let Some(asked) = asked else { return };
        let taken = self.members.iter().map(|member| member.how.kernel());
        for (template, taken) in self.bank.members().iter().zip(taken) {
            if taken != asked {
                let (name, size) = (template.name(), template.size());
                let (asked, taken) = (Kernel::Ncc(asked), Kernel::Ncc(taken));
                tracing::info!("template {name:?} of {size} is not for {asked}: {taken} is taken");
            }
        }
    }

    /// Turns the device's candidates into matches.
    pub(super) fn select(
        &self,
        found: impl Iterator<Item = FoundPeak>,
        origin: (usize, usize),
        limits: &Limits,
        scratch: &mut Vec<Candidate>,
        matches: &mut Vec<Match>,
    ) {
        scratch.clear();
        scratch.extend(found.map(|peak| {
            let FoundPeak { tag: member, x, y, score, beside: [left, right, above, below] } = peak;
            let map = positions(self.region, self.members[member as usize].size);
            // The values that the device read beyond the map's edge mean nothing.
            let there = |is_there: bool, score: f64| is_there.then_some(score);
            let shift = [
                vertex(there(x > 0, left), score, there(x as usize + 1 < map.width, right)),
                vertex(there(y > 0, above), score, there(y as usize + 1 < map.height, below)),
            ];
            Candidate { member, x, y, score, shift }
        }));
        self.selector.select(scratch, &self.bank, origin, limits, matches);
    }
}

/// A bank that is searched in a box of a frame.
#[derive(Clone, Copy)]
pub(super) struct WindowSearch<'a> {
    plan: &'a PlannedSearch,
    window: Rect,
    min_score: f64,
}

impl<'a> WindowSearch<'a> {
    /// # Panics
    /// If the window is of another size than was planned, or the limits of another kind.
    pub(super) fn new(plan: &'a PlannedSearch, window: Rect, limits: &Limits) -> Self {
        let is_planned = (window.size(), limits.max_matches == 1) == (plan.region, plan.best_only);
        assert!(is_planned, "{window} with {limits:?} is not what was planned");
        Self { plan, window, min_score: limits.min_score }
    }

    fn wanted(&self) -> Wanted {
        // The best of a name is the best of one of its members.
        Wanted { min_score: self.min_score, best_only: self.plan.best_only }
    }
}

/// A stream, and the memory that one search at a time needs.
pub(super) struct Lane {
    pub(super) stream: Stream,
    pub(super) kernels: NccKernels,
    publish: Publish,
    columns: [DeviceBuffer<u32>; 2],
    map: DeviceBuffer<i64>,
    /// For the kernels of the tensor cores, if a search that takes them was prepared.
    progress: Option<Progress>,
    suspicion: Option<Suspicion>,
}

/// The results of searches, and how many pixels a threshold found to be foreground: on the device, and the
/// part copied back to the host.
pub(super) struct CandidateList {
    found: Found,
    /// Header and first candidates, as they came back.
    first: PinnedBuffer<u64>,
    /// All candidates, where they did not all come with the first.
    all: Option<PinnedBuffer<u64>>,
    /// A search had more suspects than room once: those into this list that leave suspects are done with
    /// score maps.
    is_with_maps: bool,
}

impl CandidateList {
    /// An empty list: for foreground pixels, or for searches too.
    pub(super) fn new(gpu: &Gpu, is_searched: bool) -> Result<Self> {
        let (capacity, first) = if is_searched { (CAPACITY, FIRST_CANDIDATES) } else { (0, 0) };
        Ok(Self {
            found: Found::new(gpu, capacity)?,
            first: gpu.alloc_pinned("candidates", Found::words(first), Pinned::Plain)?,
            all: None,
            is_with_maps: false,
        })
    }

    /// Where foreground pixels are counted until the list is published.
    pub(super) fn foreground(&mut self) -> (&mut DeviceBuffer<u64>, usize) {
        (&mut self.found.words, Found::FOREGROUND)
    }

    /// After [`Lane::publish`] is done: the number of foreground pixels.
    pub(super) fn foreground_count(&self) -> u64 {
        self.first.as_slice()[Found::FOREGROUND]
    }

    /// After [`Lane::publish`] is done: true if all candidates had room on the device. If not,
    /// [`Lane::redo`] searches again, with a list that lies elsewhere: graphs that write to this one must not
    /// run any more.
    pub(super) fn had_room(&self) -> bool {
        !self.needs_maps() && self.count() <= self.found.capacity()
    }

    /// The search had more suspects than room, and leaves them to a score map when it is done again.
    fn needs_maps(&self) -> bool {
        // The other half of the word counts how often there were more suspects than room.
        let had_too_many_suspects = self.first.as_slice()[0] >> 32 != 0;
        had_too_many_suspects && !self.is_with_maps
    }

    /// Makes room after an overflow: for as many candidates as there were, or score maps from now on.
    fn make_room(&mut self, gpu: &Gpu) -> Result<()> {
        if self.needs_maps() {
            self.is_with_maps = true;
        } else {
            let count = self.count();
            self.found = Found::new(gpu, count + count / 4)?;
        }
        Ok(())
    }

    /// After [`Lane::redo`]: bytes that come to the host of it.
    pub(super) fn bytes(&self) -> usize {
        let later = if self.count() > FIRST_CANDIDATES { self.count() } else { 0 };
        let words = Found::HEADER + (self.count().min(FIRST_CANDIDATES) + later) * Found::CANDIDATE;
        words * size_of::<u64>()
    }

    /// After [`Lane::redo`]: all candidates, in no order. Reads back by way of `stream` if they did not all
    /// come yet.
    pub(super) fn candidates(
        &mut self,
        stream: &Stream,
    ) -> Result<impl Iterator<Item = FoundPeak> + use<'_>> {
        let words = self.count() * Found::CANDIDATE;
        let words = if self.count() <= FIRST_CANDIDATES {
            &self.first.as_slice()[Found::HEADER..][..words]
        } else {
            if self.all.as_ref().is_none_or(|all| all.len() < words) {
                let room = words.next_power_of_two().min(self.found.words.len());
                self.all = Some(stream.gpu().alloc_pinned("candidates", room, Pinned::Plain)?);
            }
            let all = self.all.as_mut().expect("made above");
            // SAFETY: it is waited for in the next line, and until then `all` is borrowed.
            unsafe { stream.download(&self.found.words, Found::HEADER, all, words)? };
            stream.wait()?;
            &all.as_slice()[..words]
        };
        let (candidates, _) = words.as_chunks::<{ Found::CANDIDATE }>();
        Ok(candidates.iter().map(Found::decode))
    }

    fn count(&self) -> usize {
        self.first.as_slice()[0] as u32 as usize
    }
}

impl Lane {
    /// A lane for searches in regions of up to `area` pixels; 0 if it searches nothing.
    pub(super) fn new(gpu: &Gpu, area: usize) -> Result<Self> {
        Ok(Self {
            kernels: NccKernels::new(gpu),
            publish: Publish::load(gpu)?,
            progress: None,
            suspicion: None,
            columns: [gpu.alloc("column sums", area)?, gpu.alloc("column sums", area)?],
            map: gpu.alloc("a score map", area)?,
            stream: gpu.stream(Priority::Normal)?,
        })
    }

    /// Loads the kernels that searches with `plan` take, and has room for what they leave. To be called
    /// before the first.
    pub(super) fn prepare(&mut self, plan: &PlannedSearch) -> Result<()> {
        for member in &plan.members {
            match &member.how {
                How::Wgmma(_) => {
                    if self.progress.is_none() {
                        self.progress = Some(Progress::new(self.stream.gpu())?);
                    }
                }
                how if !how.makes_map() => {
                    if self.suspicion.is_none() {
                        self.suspicion = Some(Suspicion::new(self.stream.gpu())?);
                    }
                }
                How::WgmmaMap(_) | How::Mma(_) | How::MmaMap(_) | How::Plain(_) => {
                    self.kernels.prepare(member.how.kernel())?;
                }
            }
        }
        Ok(())
    }

    /// Starts passing to the host, through `stream`, the findings since the last time: the counts and the
    /// first candidates. The next search starts with an empty list.
    ///
    /// # Safety
    /// Until that is done (known from a wait for `stream` or for a later event in it):
    /// - `list` is not dropped,
    /// - it is not read: neither [`CandidateList::foreground_count`] nor [`CandidateList::candidates`] nor
    ///   [`CandidateList::had_room`] is called, and nor is [`Self::redo`].
    pub(super) unsafe fn publish(&self, list: &mut CandidateList, stream: &Stream) -> Result<()> {
        // SAFETY: the caller keeps the list, which keeps `first` and lets only these methods read it.
        unsafe { self.publish.run(stream, &mut list.found, &mut list.first) }
    }

    /// Searches until all candidates have room, and waits; `search` starts what is to be found. The number of
    /// times that it was done again.
    pub(super) fn run(
        &mut self,
        list: &mut CandidateList,
        search: &mut dyn FnMut(&mut Self, &mut CandidateList) -> Result<()>,
    ) -> Result<u64> {
        search(self, list)?;
        // SAFETY: it is waited for in the next line, and until then `list` is borrowed.
        unsafe { self.publish(list, &self.stream)? };
        self.stream.wait()?;
        self.redo(list, search)
    }

    /// As [`Self::run`], where it was done and published once.
    pub(super) fn redo(
        &mut self,
        list: &mut CandidateList,
        search: &mut dyn FnMut(&mut Self, &mut CandidateList) -> Result<()>,
    ) -> Result<u64> {
        if list.had_room() {
            return Ok(0);
        }
        list.make_room(self.stream.gpu())?;
        self.kernels.forget();
        Ok(1 + self.run(list, search)?)
    }

    /// Captures work on this lane, to be run as often as wanted, whatever else the lane has done.
    pub(super) fn capture(&mut self, work: &mut dyn FnMut(&mut Self) -> Result<()>) -> Result<Graph> {
        self.kernels.forget();
        let graph = self.stream.clone().capture(&mut || work(self));
        self.kernels.forget();
        graph
    }

    /// Starts a search in a frame. What it finds is appended to `list`, each tagged with its member's index.
    pub(super) fn search(
        &mut self,
        list: &mut CandidateList,
        frame: &DeviceFrame,
        search: WindowSearch<'_>,
    ) -> Result<()> {
        let Self { stream, kernels, columns, map, progress, suspicion, .. } = self;
        let CandidateList { found, is_with_maps, .. } = list;
        let WindowSearch { plan, window, .. } = search;
        let wanted = search.wanted();
        if let Some((bank, kernels)) = &plan.wgmma {
            let progress = progress.as_mut().expect("the search was prepared");
            kernels.search(stream, frame, bank, window, wanted, progress, found)?;
        }
        // Column sums serve all members of one height that follow each other.
        let mut summed = None;
        for (member, tag) in plan.members.iter().zip(0..) {
            let query = Query { member, window, tag };
            match &member.how {
                How::Wgmma(_) => continue,
                How::Mma(prepared) if prepared.is_searched_at_once() && !*is_with_maps => {
                    let suspicion = suspicion.as_mut().expect("the search was prepared");
                    prepared.search(stream, frame, query, wanted, suspicion, found)?;
                    continue;
                }
                How::WgmmaMap(prepared) => {
                    let is_summed = summed == Some(member.size.height);
                    let columns = (!is_summed).then_some(&mut *columns);
                    prepared.correlate(stream, frame, window, member, columns, map)?;
                    summed = Some(member.size.height);
                }
                How::Mma(prepared) | How::MmaMap(prepared) => {
                    prepared.correlate(stream, frame, window, member, columns, map)?;
                    // A masked template's sums lie where those of the columns were.
                    if member.is_masked {
                        summed = None;
                    }
                }
                How::Plain(kernel) => kernels.correlate(stream, *kernel, frame, window, member, map)?,
            }
            if !member.is_masked {
                if summed != Some(member.size.height) {
                    kernels.column_sums()?.sum(stream, frame, window, member.size.height, columns)?;
                    summed = Some(member.size.height);
                }
                kernels.scores(stream, window.size(), member, columns, map)?;
            }
            let map_size = positions(window.size(), member.size);
            kernels.peaks(stream, map_size, map, wanted.min_score, tag, found)?;
        }
        Ok(())
    }

    /// Has room for so many suspects only.
    #[cfg(test)]
    pub(super) fn limit_suspects(&mut self, suspects: usize) -> Result<()> {
        self.suspicion = Some(Suspicion::with_room(self.stream.gpu(), suspects)?);
        Ok(())
    }

    /// Fills the outputs of a search with values that no search leaves there.
    #[cfg(test)]
    pub(super) fn poison(&mut self) -> Result<()> {
        let Self { stream, columns: [s, ss], map, .. } = self;
        stream.fill(s, 0xA5)?;
        stream.fill(ss, 0xA5)?;
        stream.fill(map, 0xA5)
    }

    /// The score map of the last member that was searched, for tests and benches.
    pub(super) fn score_map(&self, size: Size) -> Result<Vec<f64>> {
        let mut bits = vec![0; size.area()];
        self.stream.download_now(&self.map, &mut bits)?;
        Ok(bits.into_iter().map(|bits: i64| f64::from_bits(bits as u64)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_that_is_tried_first_is_the_one_that_was_fastest() {
        let first = |capability| {
            let kernel = fastest(capability).next().expect("one is for all");
            Kernel::Ncc(kernel).to_string()
        };
        assert_eq!(first((9, 0)), "ncc-wgmma");
        for elsewhere in [(7, 5), (8, 0), (8, 9), (10, 0), (12, 0)] {
            assert_eq!(first(elsewhere), "ncc-mma");
        }
    }
}
