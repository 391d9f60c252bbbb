//! The device seam: all that the engine knows of a processor or a GPU.
//!
//! A backend owns a ring of `depth` slots. A slot goes round: [`Backend::submit`] fills it and starts its
//! standing work, [`Backend::wait_next`] gives the results, oldest first, and frees it. Only integers and the
//! numbers of the numeric contract cross this seam, so that every backend gives the same bytes.

use std::sync::Arc;

use crate::config::{
    Angles, BackendChoice, Kernels, Limits, ObjectSpec, Scales, SearchMethod, ThresholdSpec,
};
use crate::control::Control;
use crate::error::{Bytes, Error, Result, TemplateFault};
use crate::frame::{FrameMeta, Picture, PlaneRef, Rect, Size};
use crate::results::{Match, Object};
use crate::surface::Traffic;
use crate::template::{Bank, Template, resampled_size};

use threshold::Background;

pub mod cpu;
pub mod objects;
pub mod peaks;
pub mod ring;
pub mod score;
pub mod threshold;

/// The work on every frame.
#[derive(Debug, Clone)]
pub struct Standing {
    /// Size of the frames.
    pub frame: Size,
    /// The templates to search. All fit in `roi`: backends refuse others ([`Standing::check`]).
    pub bank: Option<Arc<Bank>>,
    /// The templates to search from coarse to fine instead, which the CPU backend can.
    pub pyramid: Option<Arc<Variants>>,
    /// The region to search, inside the frame: matches lie inside it.
    pub roi: Rect,
    /// The limits of a match.
    pub limits: Limits,
    /// The adaptive threshold of the whole frame.
    pub threshold: Option<ThresholdSpec>,
    /// The thresholded frame itself is wanted, not only its foreground share.
    pub wants_mask: bool,
    /// The cleaning and the objects of the thresholded frame, where there is one.
    pub objects: Option<ObjectSpec>,
    /// Luma is of limited range, and is expanded to full range before all else (`colour::expanded`).
    pub expands: bool,
}

/// Templates at several scales and angles, which are made where a search comes to them: for each template in
/// order, for each scale, for each angle, as the members of [`Bank::expanded`].
#[derive(Debug, Clone)]
pub struct Variants {
    /// As they were given.
    pub templates: Vec<Template>,
    /// At which sizes.
    pub scales: Scales,
    /// In which directions.
    pub angles: Angles,
}

impl Variants {
    /// Number of variants.
    pub fn count(&self) -> usize {
        self.templates.len() * self.scales.0.len() * self.angles.0.len()
    }

    /// The place of a variant's template among the templates, its scale and its angle.
    pub fn parts(&self, variant: usize) -> (usize, f64, f64) {
        let (scales, angles) = (self.scales.0.len(), self.angles.0.len());
        (
            variant / (scales * angles),
            self.scales.0[variant / angles % scales],
            self.angles.0[variant % angles],
        )
    }

    /// The template that a variant is made of.
    pub fn template(&self, variant: usize) -> &Template {
        &self.templates[self.parts(variant).0]
    }

    /// The size that a variant has once it is made.
    pub fn size(&self, variant: usize) -> Size {
        let (_, scale, angle) = self.parts(variant);
        resampled_size(self.template(variant).size(), scale, angle)
    }

    /// Degrees from one angle to the next; `None` if there is only one.
    pub fn angle_step(&self) -> Option<f64> {
        Some(self.angles.0.get(1)? - self.angles.0[0])
    }

    /// The variants that differ in one step of the angle, around a whole turn if they make one, or in one of
    /// the scale.
    pub fn next_to(&self, variant: usize) -> impl Iterator<Item = usize> + use<> {
        let (scales, angles) = (self.scales.0.len(), self.angles.0.len());
        let (angle, scale) = (variant % angles, variant / angles % scales);
        let (first, last) = (self.angles.0[0], self.angles.0[angles - 1]);
        let is_turn = self.angle_step().is_some_and(|step| last + step - first >= 360.0 - 1e-9);
        let before = if angle > 0 { Some(variant - 1) } else { is_turn.then(|| variant + angles - 1) };
        let after =
            if angle + 1 < angles { Some(variant + 1) } else { is_turn.then(|| variant + 1 - angles) };
        let smaller = (scale > 0).then(|| variant - angles);
        let larger = (scale + 1 < scales).then(|| variant + angles);
        [before, after, smaller, larger].into_iter().flatten()
    }
}

/// Results of the standing work on one frame. The mask has been cleaned where that was asked for, and
/// `foreground` is of the one before. Reused from frame to frame, so that its allocations last.
#[derive(Default)]
pub struct Findings {
    /// Accepted matches: names in bank order, best first within a name.
    pub matches: Vec<Match>,
    /// Share of the frame's pixels that are foreground.
    pub foreground: Option<f64>,
    /// The thresholded frame (255 or 0), a picture of one plane, in a buffer of its own, which may be kept.
    pub mask: Option<Arc<dyn Picture>>,
    /// Objects of the mask after its cleaning, where they are reported.
    pub objects: Option<Vec<Object>>,
    /// Objects beyond the maximum number.
    pub more_objects: u64,
    /// Searches of this frame that were done again, because there were more candidates than the device had
    /// room for.
    pub redone: u64,
    /// Time that the frame took from host memory into the slot, in microseconds.
    pub upload_us: u64,
    /// Time that the device worked on it, in microseconds.
    pub standing_us: u64,
}

/// The name of a device, for messages and the run record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// `cpu` or `cuda`.
    pub backend: &'static str,
    /// Its name and the used parts of it.
    pub name: String,
    /// Its driver, where it has one.
    pub driver: Option<String>,
}

/// A device with a ring of slots. See the module's documentation for the life of a slot.
///
/// After a call has returned an error other than `Stopped`, or has panicked, the backend cannot be used any
/// more: every later call returns that error again (`Panicked` after a panic), and the frames in flight have
/// no results. To get them, open another backend and submit the frames to it. `Stopped` abandons one frame;
/// the caller can wait for the others.
pub trait Backend: Send {
    /// The device.
    fn describe(&self) -> Device;

    /// Number of slots: 2 is a double buffer.
    fn depth(&self) -> usize;

    /// Puts a frame's luma plane into the next free slot, starts the standing work on it and returns without
    /// waiting for that. A plane that lies on this device is copied there, or used where it lies.
    ///
    /// A backend that was opened by its module's `open` copies nothing if frames need no work.
    ///
    /// # Errors
    /// `Backend` if the device fails: the frame is not in flight then. The first error, if an earlier call
    /// failed.
    ///
    /// # Panics
    /// If no slot is free, or the plane is not of the size that the backend was opened for.
    fn submit(&mut self, meta: FrameMeta, picture: &Arc<dyn Picture>) -> Result<()>;

    /// Waits for the oldest frame in flight, fills `findings`, frees its slot and returns the frame's meta;
    /// `None` if nothing is in flight.
    ///
    /// # Errors
    /// `Backend` if the device fails; `NoMemory` or `MemoryLimit` if there is too little memory; `Stopped` if
    /// the run was stopped before this frame was done. Then the frame is abandoned. The first error, if an
    /// earlier call failed with another than `Stopped`.
    fn wait_next(&mut self, findings: &mut Findings) -> Result<Option<FrameMeta>>;

    /// Ends the work, with nothing in flight, and gives the background of the frames so far, if the threshold
    /// has one and there were frames. The backend takes no more frames.
    ///
    /// # Errors
    /// `Backend` if the device fails.
    fn take_background(&mut self) -> Result<Option<Background>> {
        Ok(None)
    }

    /// Begins, before the first frame, with the background of another backend. Without such a threshold it is
    /// dropped.
    ///
    /// # Errors
    /// `Backend` if the device fails.
    ///
    /// # Panics
    /// If it is of frames of another size.
    fn continue_from(&mut self, background: Background) -> Result<()> {
        drop(background);
        Ok(())
    }
}

impl Standing {
    /// Nothing to do to frames of this size yet.
    pub fn new(frame: Size) -> Self {
        Self {
            frame,
            bank: None,
            pyramid: None,
            roi: Rect::whole(frame),
            limits: Limits::default(),
            threshold: None,
            wants_mask: false,
            objects: None,
            expands: false,
        }
    }

    /// True if there is no work on frames: the tracker reads the decoded picture.
    pub fn is_idle(&self) -> bool {
        self.bank.is_none() && self.pyramid.is_none() && self.threshold.is_none()
    }

    /// Refuses a search that no backend can do, since the fields can be filled with anything. Every backend
    /// asks this when it is opened.
    ///
    /// # Errors
    /// `Outside` if something is searched and `roi` does not lie inside the frame; `Template` if a member of
    /// `bank` does not fit in `roi`.
    pub fn check(&self) -> Result<()> {
        let Self { frame, bank, pyramid, roi, .. } = self;
        if (bank.is_some() || pyramid.is_some()) && !roi.is_inside(*frame) {
            return Err(Error::Outside { what: "region of interest", rect: *roi, frame: *frame });
        }
        let members = bank.iter().flat_map(|bank| bank.members());
        match members.into_iter().find(|member| !member.size().fits_in(roi.size())) {
            None => Ok(()),
            Some(member) => {
                let fault = TemplateFault::DoesNotFit { template: member.size(), area: roi.size() };
                Err(Error::Template { name: member.name().to_string(), fault })
            }
        }
    }

    /// Also searches the members of `bank` that fit: inside `roi`, or in the whole frame.
    ///
    /// # Errors
    /// `Outside` if `roi` does not lie inside the frame, `NothingFits` if no member fits.
    pub fn searching(self, bank: &Bank, roi: Option<Rect>, limits: Limits) -> Result<Self> {
        let roi = roi.unwrap_or(self.roi);
        if !roi.is_inside(self.frame) {
            return Err(Error::Outside { what: "region of interest", rect: roi, frame: self.frame });
        }
        let bank = Some(Arc::new(bank.clone().fitting(roi.size())?));
        Ok(Self { bank, roi, limits, ..self })
    }

    /// Also searches from coarse to fine: inside `roi`, or in the whole frame.
    ///
    /// # Errors
    /// `Outside` if `roi` does not lie inside the frame, `NothingFits` if no template does at its smallest.
    pub fn searching_coarsely(self, variants: Variants, roi: Option<Rect>, limits: Limits) -> Result<Self> {
        let roi = roi.unwrap_or(self.roi);
        if !roi.is_inside(self.frame) {
            return Err(Error::Outside { what: "region of interest", rect: roi, frame: self.frame });
        }
        let sizes = || (0..variants.count()).map(|variant| variants.size(variant));
        if !sizes().any(|size| size.fits_in(roi.size())) {
            let smallest = sizes().min_by_key(|size| size.area()).unwrap_or(Size::new(0, 0));
            return Err(Error::NothingFits { smallest, area: roi.size() });
        }
        Ok(Self { pyramid: Some(Arc::new(variants)), roi, limits, ..self })
    }

    /// Expands luma of limited range before all else, or does not.
    pub fn expanding(self, expands: bool) -> Self {
        Self { expands, ..self }
    }

    /// Also thresholds; the thresholded frame itself is given only if it is wanted.
    pub fn thresholding(self, threshold: Option<ThresholdSpec>, wants_mask: bool) -> Self {
        Self { threshold, wants_mask, ..self }
    }

    /// Also cleans the thresholded frame, and finds its objects.
    pub fn finding(self, objects: Option<ObjectSpec>) -> Self {
        Self { objects, ..self }
    }

    /// The work on thresholded frames, where it is needed: cleaning alone shows only in the mask.
    pub fn work_on_masks(&self) -> Option<ObjectSpec> {
        self.objects.filter(|spec| self.threshold.is_some() && (spec.reports || self.wants_mask))
    }
}

/// Lists of objects of a ring with so many slots: one for each, and two with the engine.
pub const fn lists_of_objects(depth: usize) -> usize {
    depth + 2
}

/// Slots of a ring, where nothing is said. With four an H200 searches 1080p at 0.97 of the rate at which it
/// uploads alone; with two, a double buffer, at 0.74. A live frame would wait for three others where there is
/// a backlog, so live sources have two.
pub const fn usual_depth(is_live: bool) -> usize {
    if is_live { 2 } else { 4 }
}

/// Options of the work.
#[derive(Debug, Clone)]
pub struct Options {
    /// On which device.
    pub choice: BackendChoice,
    /// The number of the GPU that [`BackendChoice::Auto`] takes.
    pub auto_gpu: usize,
    /// Number of slots, 1 or more: 2 is a double buffer.
    pub depth: usize,
    /// The caller waits for each frame before it brings the next, and wants no times: a GPU has one slot
    /// then, whatever `depth` says, and gives its results sooner. Not where objects are wanted.
    pub alone: bool,
    /// Threads of the CPU backend. A run's tracker has as many of its own.
    pub threads: usize,
    /// Kernels of the CUDA backend.
    pub kernels: Kernels,
    /// Stops the device.
    pub control: Control,
    /// Maximum host memory of the CPU backend; `memory::default_limit` by default.
    pub memory: Option<Bytes>,
    /// Counts the bytes that are moved.
    pub traffic: Traffic,
}

impl Default for Options {
    /// All cores, and the usual number of slots for a file.
    fn default() -> Self {
        Self {
            choice: BackendChoice::Auto,
            auto_gpu: 0,
            depth: usual_depth(false),
            alone: false,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            kernels: Kernels::default(),
            control: Control::new(),
            memory: None,
            traffic: Traffic::default(),
        }
    }
}

impl Options {
    /// These options on the CPU, as a spare for a lost device.
    #[must_use]
    pub fn on_cpu(&self) -> Self {
        Self { choice: BackendChoice::Cpu, kernels: Kernels::default(), ..self.clone() }
    }

    /// Keeps this device for later openings, whatever `auto` would choose.
    pub fn settle(&mut self, device: &Device) {
        self.choice = match self.choice {
            BackendChoice::Auto if device.backend == "cpu" => BackendChoice::Cpu,
            BackendChoice::Auto => BackendChoice::Cuda(self.auto_gpu),
            chosen => chosen,
        };
    }
}

/// An exhaustive search that takes longer is left to a pyramid by `--search auto`: seconds a frame of one
/// core, as the plan of the search estimates them with its constants. On two cores a search that is just
/// below runs at 8 frames a second, where a pyramid's few coarse tiles take about 0.1 s: below it the
/// exhaustive search is not much slower, and misses nothing.
const LONG_SEARCH_S: f64 = 0.25;

/// The way that [`SearchMethod::Auto`] takes on the CPU, in an area of that size. A GPU always searches
/// exhaustively.
///
/// With one scale and one angle it is exhaustive, whatever that takes. Otherwise the work is estimated that
/// an exhaustive search is: how large its tiles are, how many, how many transforms and scores each takes, for
/// all members that fit; in seconds of one core of the machine that the constants in `cpu/plan.rs` were
/// measured on. From `LONG_SEARCH_S` on it is a pyramid. So it depends on templates, scales, angles and the
/// area alone, not on the machine, its load or the number of threads, and the same request always gives the
/// same result.
pub fn preferred_search(variants: &Variants, area: Size) -> SearchMethod {
    let is_one = variants.scales.0.len() * variants.angles.0.len() == 1;
    if is_one || cpu::workload::exhaustive_seconds(variants, area, 1) < LONG_SEARCH_S {
        SearchMethod::Exhaustive
    } else {
        SearchMethod::Pyramid
    }
}

/// By how much longer an exhaustive search takes where estimates say nothing of any window, beside what the
/// plan estimates: three exact transforms in f64 then follow three in f32.
const UNCLEAR_COST: f64 = 3.0;

/// True if an exhaustive search takes longer in some pictures than in others of the same size.
pub fn depends_on_content(variants: &Variants) -> bool {
    cpu::workload::has_gaps(variants)
}

/// Seconds of one core that an exhaustive search takes in a picture like `region`, on the machine of the
/// constants, if that is too long for [`SearchMethod::Auto`] though its sizes alone are not.
///
/// Under masks with gaps, nearly flat pictures take several times as long as their size suggests: this counts
/// their nearly flat windows. It depends on the pixels and the templates alone, so the same video is searched
/// in the same way on every machine and at every load.
pub fn long_in(variants: &Variants, region: PlaneRef<'_>) -> Option<f64> {
    let window = variants.templates.iter().map(Template::size).max_by_key(|size| size.area())?;
    if !depends_on_content(variants) {
        return None;
    }
    let seconds = cpu::workload::exhaustive_seconds(variants, region.size(), 1);
    // Without a look at the pixels where nothing in them can make it too long.
    if seconds * (1.0 + UNCLEAR_COST) < LONG_SEARCH_S {
        return None;
    }
    let seconds = seconds * (1.0 + UNCLEAR_COST * cpu::workload::unclear_share(region, window));
    (seconds >= LONG_SEARCH_S).then_some(seconds)
}

/// Estimates the seconds that a frame takes if it is searched exhaustively for all variants, on so many
/// threads of the CPU.
pub fn exhaustive_seconds(variants: &Variants, area: Size, threads: usize) -> f64 {
    cpu::workload::exhaustive_seconds(variants, area, threads)
}

/// True if the CPU would not refuse to search exhaustively for all variants in an area of that size, beside
/// what `standing` does else: there are not too many of them, and it may take the memory that it needs at
/// least.
pub fn takes_exhaustively(variants: &Variants, area: Size, standing: &Standing, options: &Options) -> bool {
    cpu::takes_exhaustively(variants, area, standing, options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Plane;

    #[test]
    fn an_exhaustive_search_is_taken_where_that_is_said_beforehand() {
        let luma = crate::reference::picture(Size::new(40, 30));
        let templates = vec![Template::new("t", luma, None).unwrap()];
        let (scales, angles): (Scales, Angles) =
            ("0.5..2/1.3".parse().unwrap(), "-180..180/20".parse().unwrap());
        let standing = Standing::new(Size::new(640, 360));
        let bank = Bank::expanded(&templates, &scales, &angles).unwrap();
        let variants = Variants { templates, scales, angles };
        let mut said = Vec::new();
        for memory in (0..40).map(|step| Bytes(1 << 20 << (step / 4) | step << 18)) {
            let options = Options { memory: Some(memory), threads: 2, ..Options::default() };
            let is_taken = takes_exhaustively(&variants, standing.frame, &standing, &options);
            let searching = standing.clone().searching(&bank, None, Limits::default()).unwrap();
            let opened = cpu::Cpu::open(searching, &options);
            assert!(!is_taken || opened.is_ok(), "{memory}: {}", opened.err().unwrap());
            said.push((is_taken, opened.is_ok()));
        }
        let count = |answer| said.iter().filter(|said| **said == answer).count();
        assert!(
            count((false, false)) > 2 && count((true, true)) > 10 && count((false, true)) < 8,
            "{said:?}"
        );
        // Too many for any bank, whatever the memory.
        let (scales, angles) = ("4".parse().unwrap(), "-180..180/0.01".parse().unwrap());
        let many = Variants { scales, angles, ..variants };
        let options = Options { memory: Some(Bytes(u64::MAX)), ..Options::default() };
        assert!(!takes_exhaustively(&many, standing.frame, &standing, &options));
    }

    #[test]
    fn auto_takes_a_pyramid_where_an_exhaustive_search_is_long_and_never_for_one_size_and_direction() {
        let luma = crate::reference::picture(Size::new(100, 100));
        let templates = vec![Template::new("t", luma, None).unwrap(); 300];
        let preferred = |templates: &[Template], scales: &str, angles: &str, area| {
            let (scales, angles) = (scales.parse().unwrap(), angles.parse().unwrap());
            preferred_search(&Variants { templates: templates.to_vec(), scales, angles }, area)
        };
        let (large, small) = (Size::new(1920, 1080), Size::new(160, 120));
        assert_eq!(preferred(&templates, "1..1/2", "0..0/1", large), SearchMethod::Exhaustive);
        assert_eq!(preferred(&templates[..1], "1..1/2", "-180..180/5", large), SearchMethod::Pyramid);
        assert_eq!(preferred(&templates[..1], "0.8..1.25/1.05", "-180..180/5", large), SearchMethod::Pyramid);
        assert_eq!(preferred(&templates[..1], "1..1/2", "-10..10/5", small), SearchMethod::Exhaustive);
        // Nothing fits: opening reports it.
        assert_eq!(preferred(&templates[..1], "2..4/2", "0..0/1", Size::new(9, 9)), SearchMethod::Exhaustive);
    }

    #[test]
    fn auto_counts_what_is_nearly_flat_and_neither_what_is_flat_nor_what_has_structure() {
        let size = Size::new(401, 303);
        let part = crate::reference::picture(Size::new(40, 36));
        let frame = |ground: fn(usize) -> u8| {
            let mut frame = Plane::from_vec((0..size.area()).map(ground).collect(), size);
            for (y, row) in part.as_ref().rows().enumerate() {
                frame.data_mut()[(90 + y) * size.width + 70..][..40].copy_from_slice(row);
            }
            frame
        };
        // A frame: most rows have a gap.
        let mask = (0..40 * 36)
            .map(|i| if (6..34).contains(&(i % 40)) && (6..30).contains(&(i / 40)) { 0 } else { 255 });
        let mask = Plane::from_vec(mask.collect(), part.size());
        let template = |mask: Option<&Plane>| vec![Template::new("t", part.clone(), mask).unwrap()];
        let (templates, whole) = (template(Some(&mask)), template(None));
        let long = |angles: &str, frame: &Plane| {
            let (scales, angles) = ("1".parse().unwrap(), angles.parse().unwrap());
            let variants = Variants { templates: templates.clone(), scales, angles };
            assert_eq!(preferred_search(&variants, size), SearchMethod::Exhaustive);
            long_in(&variants, frame.as_ref())
        };
        let noisy = frame(|at| 126 + u8::from((at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) < 40));
        let seconds = long("-180..180/5", &noisy).expect("it takes long");
        assert!((LONG_SEARCH_S..4.0 * LONG_SEARCH_S).contains(&seconds), "{seconds}");
        let (scales, angles) = ("1".parse().unwrap(), "-180..180/5".parse().unwrap());
        let whole = Variants { templates: whole, scales, angles };
        assert_eq!(long_in(&whole, noisy.as_ref()), None, "variances under turned rectangles are known");
        let (flat, clear) =
            (frame(|_| 126), frame(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8));
        for (angles, frame) in [("-180..180/5", &flat), ("-180..180/5", &clear), ("-10..10/5", &noisy)] {
            assert_eq!(long(angles, frame), None, "{angles}");
        }
    }

    #[test]
    fn a_template_or_a_region_that_does_not_fit_is_refused() {
        let frame = Size::new(40, 30);
        let template = |size| Template::new("t", crate::reference::picture(size), None).unwrap();
        let check = |size, roi| {
            let bank = Some(Arc::new(Bank::new(vec![template(Size::new(9, 7)), template(size)]).unwrap()));
            let checked = Standing { bank, roi, ..Standing::new(frame) }.check();
            checked.map_err(|error| error.to_string())
        };
        let whole = Rect::whole(frame);
        assert_eq!(check(frame, whole), Ok(()));
        assert_eq!(check(Size::new(10, 8), Rect::new(30, 22, 10, 8)), Ok(()));
        let too_large = |size, area| {
            Err(format!(
                "template \"t\" is {size} and does not fit in the {area} that is searched; leave it out, or search \
                 a larger area"
            ))
        };
        assert_eq!(check(Size::new(41, 7), whole), too_large("41x7", "40x30"));
        assert_eq!(check(Size::new(9, 31), whole), too_large("9x31", "40x30"));
        assert_eq!(check(Size::new(10, 8), Rect::new(3, 4, 10, 7)), too_large("10x8", "10x7"));
        assert_eq!(
            check(Size::new(10, 8), Rect::new(31, 4, 10, 8)),
            Err("region of interest 31,4,10,8 does not lie inside the 40x30 frame".into())
        );
        // Where nothing is searched, nothing has to fit.
        assert!(Standing { roi: Rect::new(9, 9, 99, 9), ..Standing::new(frame) }.check().is_ok());
    }
}
