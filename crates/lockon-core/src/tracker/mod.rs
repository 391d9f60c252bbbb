//! Follows boxes from frame to frame.
//!
//! A correlation filter over gradients, luma and colours finds a target's place and size (`filter.rs`,
//! `hog.rs`, `colour.rs`). Its earlier looks show how it is turned (`turn.rs`) and whether it is the target
//! at all (`target/`). The camera's motion (`camera.rs`) shows whether a box follows the ground
//! (`ground.rs`). A lost target is looked for by its outlines (`outlines.rs`), by its colours
//! (`backprojection.rs`), and among what moves (`movers.rs`). `score.rs` estimates how likely a box is right,
//! `doubles.rs` decides which of two tracks has left its object for another's,
//! `crossings.rs` which is which after two have crossed. Where matches of templates are
//! followed, `births.rs` decides which of them become tracks and when these end. Objects of the mask are
//! followed by their boxes alone (`blobs.rs`). Threads share the targets of a frame (`workplaces.rs`).
//!
//! All pixels come from `sample.rs`: windows resampled in integers. Everything after that is f32 and f64 in a
//! written order, with the crate's own transforms (`fft.rs`) and `libm`. So the same frames give the same
//! tracks on every machine. Where pictures lie on a device that keeps filters, these respond and learn there,
//! for all targets together (`on_device.rs`); `host_correlator.rs` defines what such a device does.

mod backprojection;
mod births;
mod blobs;
mod camera;
mod colour;
mod crossings;
mod doubles;
mod eye;
mod fft;
mod filter;
mod ground;
mod hog;
mod host_correlator;
mod look;
mod movers;
mod names;
mod on_device;
mod outlines;
mod sample;
mod score;
mod target;
mod turn;
mod usual;
mod workplaces;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::config::{Moment, TimeSpan, TrackSpec, Zones};
use crate::error::{Error, Result};
use crate::frame::{Frame, FrameMeta, Rect, Size, USUAL_INTERVAL_NS};
use crate::orders::{Numbers, Order};
use crate::ports::{Follow, Found};
use crate::recent_frames::RecentFrames;
use crate::results::{Match, Track, TrackState};

use backprojection::FrameColours;
use births::{Births, Evidence};
use blobs::Blobs;
use camera::Camera;
use crossings::Crossings;
use doubles::Doubles;
use movers::Movers;
use on_device::OnDevice;
use outlines::Outlines;
use sample::Window;
use target::{Cues, Scene, Target};
use workplaces::{Workplace, Workplaces};

pub use blobs::OBJECT_LABEL;
pub use eye::tables;
pub use host_correlator::HostCorrelator;
pub use score::RELIABILITY;

/// Seconds between frames, if the source does not specify them.
const USUAL_INTERVAL: f64 = USUAL_INTERVAL_NS as f64 / 1e9;

/// Motion is not foretold over more seconds than this, however long the source stood still.
const LONGEST_INTERVAL: f64 = 1.0;
/// And at least so much: times that jitter must not make a small motion a fast one.
const SHORTEST_INTERVAL: f64 = 1.0 / 240.0;

/// A box whose pixels differ by less shows a flat place, such as a black picture, and how it was rounded.
const LEAST_CONTRAST: u8 = 2;

/// Boxes whose luma has a smaller standard deviation show little but noise.
const LITTLE_STRUCTURE: f64 = 3.0;

/// Maximum tracks that orders may add up to: as many as zones.
const MOST_ORDERED: usize = Zones::MOST;

/// Everything that is followed in one video.
pub struct Tracker {
    targets: Vec<Target>,
    waiting: Vec<Waiting>,
    /// The boxes that were given before the first frame.
    given: u32,
    /// The numbers of the tracks that orders began.
    ordered: BTreeSet<u32>,
    numbers: Numbers,
    /// The names that boxes were given, by their numbers.
    names: Vec<(u32, Arc<str>)>,
    /// A track that is lost for longer ends; where it is none, boxes that were given never do.
    lost_for: Option<TimeSpan>,
    /// The given boxes that are lost, by their numbers, each with the time since which it is.
    lost: Vec<(u32, f64)>,
    /// Seconds of video so far.
    passed: f64,
    /// Makes tracks of matches, if requested.
    births: Option<Births>,
    /// Makes tracks of objects, if requested.
    blobs: Option<Blobs>,
    /// The frame before.
    last: Option<FrameMeta>,
    workplaces: Workplaces,
    device: OnDevice,
    camera: Camera,
    movers: Movers,
    outlines: Outlines,
    colours: FrameColours,
    /// Frames in which a target was searched for.
    searched: u64,
    doubles: Doubles,
    crossings: Crossings,
    /// The targets' boxes in the frame before.
    boxes: Vec<[f64; 4]>,
    /// The forecasts of the followed targets, by their numbers.
    forecasts: Vec<(u32, Window)>,
}

/// A box that is not followed yet: its moment has not come, or there is nothing in it that could be learnt.
struct Waiting {
    /// One-based.
    id: u32,
    rect: Rect,
    from: Moment,
    /// The first frame that showed nothing in it, from its moment on.
    flat_since: Option<u64>,
}

impl Waiting {
    /// True if the tracker follows the box from this frame on. If the box has to wait, this is reported once.
    fn is_ready(&mut self, frame: &Frame) -> bool {
        let Self { id, rect, from, flat_since } = self;
        if !from.is_reached(&frame.meta) {
            return false;
        }
        let index = frame.meta.index;
        let contrast = contrast(*rect, frame);
        if contrast < LEAST_CONTRAST {
            if flat_since.is_none() {
                tracing::warn!(
                    "track {id} waits: its box {rect} is flat in frame {index} (brightest and darkest pixel differ by \
                     {contrast}), so nothing can be recognised"
                );
                *flat_since = Some(index);
            }
            return false;
        }
        if let Some(since) = flat_since {
            tracing::warn!("track {id} starts in frame {index}: its box was flat from frame {since} on");
        }
        let deviation = deviation(*rect, frame);
        if deviation < LITTLE_STRUCTURE {
            tracing::warn!(
                "track {id}: its box {rect} is nearly flat in frame {index} (standard deviation of luma {deviation:.1}), so it \
                 is likely to be lost: draw the box around something with edges"
            );
        }
        true
    }

    /// The reason why it was never followed, for messages.
    fn reason(&self) -> String {
        match self.flat_since {
            Some(since) => format!("its box {} was flat from frame {since} on", self.rect),
            None => format!("the video ended before {}", self.from.in_words()),
        }
    }
}

impl Tracker {
    /// A tracker that starts each box at its frame or time. It does its work on the thread that calls it.
    pub fn new(specs: &[TrackSpec]) -> Self {
        Self {
            targets: Vec::new(),
            waiting: (1..)
                .zip(specs)
                .map(|(id, spec)| Waiting { id, rect: spec.rect, from: spec.from, flat_since: None })
                .collect(),
            names: (1..).zip(specs).filter_map(|(id, spec)| Some((id, spec.name.clone()?))).collect(),
            lost_for: None,
            lost: Vec::new(),
            passed: 0.0,
            given: specs.len() as u32,
            ordered: BTreeSet::new(),
            numbers: Numbers::after(specs.len() as u32),
            births: None,
            blobs: None,
            last: None,
            workplaces: Workplaces::new(1),
            device: OnDevice::new(),
            camera: Camera::new(),
            movers: Movers::new(),
            outlines: Outlines::new(),
            colours: FrameColours::new(),
            searched: 0,
            doubles: Doubles::default(),
            crossings: Crossings::default(),
            boxes: Vec::new(),
            forecasts: Vec::new(),
        }
    }

    /// Uses so many threads where there are several targets. Their number does not change the results.
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.workplaces = Workplaces::new(threads);
        self
    }

    /// Makes matches become tracks too. These are numbered on from the boxes.
    pub fn following_matches(mut self) -> Self {
        self.births = Some(Births::of(Evidence::Matches));
        self
    }

    /// Makes detections become tracks too, of a detector that runs before the tracker.
    pub fn following_detections(mut self) -> Self {
        self.births = Some(Births::of(Evidence::Detections));
        self
    }

    /// Makes objects of the mask become tracks too.
    pub fn following_objects(mut self) -> Self {
        self.blobs = Some(Blobs::new());
        self
    }

    /// Ends a track that has been lost for longer than that. Without it given boxes never end.
    #[must_use]
    pub fn ending_lost(mut self, lost_for: Option<TimeSpan>) -> Self {
        self.lost_for = lost_for;
        if let (Some(births), Some(limit)) = (&mut self.births, lost_for) {
            births.end_lost_after(limit);
        }
        if let (Some(blobs), Some(limit)) = (&mut self.blobs, lost_for) {
            blobs.end_hidden_after(limit);
        }
        self
    }

    /// Follows the content of a frame's box, from `next` on.
    fn follow(&mut self, id: u32, rect: Rect, from: Moment, next: &Frame, recent: &RecentFrames) {
        let waiting = Waiting { id, rect, from, flat_since: None };
        let at = match from {
            Moment::Frame(at) if at < next.meta.index => at,
            _ => {
                self.waiting.push(waiting);
                return;
            }
        };
        // Alone through the frames that have passed: where the others were then is not kept.
        let mut alone = Self::new(&[]);
        alone.waiting.push(waiting);
        for frame in recent.since(at) {
            alone.step(&frame, &[], &mut Vec::new());
        }
        // As long as no target was followed, the camera was not watched.
        if self.targets.is_empty() {
            self.camera = alone.camera;
        }
        self.waiting.append(&mut alone.waiting);
        for target in alone.targets {
            self.doubles.begin(&target, &self.targets);
            self.targets.push(target);
        }
        self.targets.sort_by_key(Target::id);
    }

    /// The moment from which the box of an order is followed, if that can be done.
    fn moment(rect: Rect, at: Option<u64>, next: &Frame, recent: &RecentFrames) -> Result<Moment, Obstacle> {
        let size = next.format.size;
        if !rect.is_inside(size) {
            return Err(Obstacle::Outside(rect, size));
        }
        let at = at.unwrap_or(next.meta.index);
        if at > next.meta.index {
            return Err(Obstacle::Other(format!(
                "frame {at} has not come: the next one is {}",
                next.meta.index
            )));
        }
        if at < next.meta.index {
            match recent.oldest() {
                Some(oldest) if oldest <= at => {}
                Some(oldest) => {
                    return Err(Obstacle::Other(format!(
                        "frame {at} has passed, and of those that have the first that is kept is {oldest}: keep more"
                    )));
                }
                None => {
                    return Err(Obstacle::Other(format!(
                        "frame {at} has passed, the next one is {}, and none are kept",
                        next.meta.index
                    )));
                }
            }
        }
        Ok(Moment::Frame(at))
    }

    /// Lets go of a track.
    fn let_go(&mut self, is_meant: impl Fn(u32) -> bool) {
        self.waiting.retain(|waiting| !is_meant(waiting.id));
        self.targets.retain(|target| !is_meant(target.id()));
        self.lost.retain(|(id, _)| !is_meant(*id));
        self.crossings.forget(&is_meant);
        if let Some(blobs) = &mut self.blobs {
            blobs.forget(&is_meant);
        }
        self.doubles.forget(is_meant);
    }

    /// Ends given boxes that are lost for too long, and removes them from a frame's records, which begin at
    /// `before`.
    fn end_lost(&mut self, before: usize, tracks: &mut Vec<Track>) {
        let Some(limit) = self.lost_for else { return };
        let Self { lost, passed, .. } = self;
        lost.retain(|(id, _)| tracks[before..].iter().any(|t| t.id == *id && t.state == TrackState::Lost));
        let mut ended = Vec::new();
        for track in &tracks[before..] {
            // Tracks of matches and detections end by rules of their own.
            if track.state != TrackState::Lost || track.template.is_some() {
                continue;
            }
            match lost.iter().find(|(id, _)| *id == track.id) {
                Some((id, since)) if *passed - since >= limit.ns as f64 * 1e-9 => ended.push(*id),
                Some(_) => {}
                None => lost.push((track.id, *passed)),
            }
        }
        if ended.is_empty() {
            return;
        }
        for id in &ended {
            tracing::info!("track {id} ends: it was lost for {limit}");
        }
        let mut at = 0;
        tracks.retain(|track| {
            at += 1;
            at <= before || !ended.contains(&track.id)
        });
        self.let_go(|id| ended.contains(&id));
    }

    /// The numbers of the followed tracks, and of boxes that wait for their frame.
    fn ids(&self) -> impl Iterator<Item = u32> {
        let of_boxes =
            self.waiting.iter().map(|waiting| waiting.id).chain(self.targets.iter().map(Target::id));
        of_boxes.chain(self.blobs.iter().flat_map(Blobs::ids))
    }

    /// Refuses the number of another track, also of one that has ended: records of both would be taken for
    /// those of one. Numbers that a program assigns are unused, those in a results file may be anything.
    fn check_unused(&self, id: u32) -> Result<(), Obstacle> {
        if id > self.given
            && !self.ordered.contains(&id)
            && !self.targets.iter().any(|target| target.id() == id)
            && !self.blobs.iter().flat_map(Blobs::ids).any(|other| other == id)
        {
            return Ok(());
        }
        let reason = format!("there is or was a track {id} already: each track has a number of its own");
        Err(Obstacle::Other(reason))
    }

    /// Refuses a number that no track has.
    fn check_known(&self, id: u32) -> Result<(), Obstacle> {
        let mut known: Vec<u32> = self.ids().collect();
        known.sort_unstable();
        if known.contains(&id) {
            return Ok(());
        }
        let known: Vec<_> = known.iter().map(ToString::to_string).collect();
        let there = if known.is_empty() {
            "none is followed".into()
        } else {
            format!("there are {}", known.join(", "))
        };
        Err(Obstacle::Other(format!("there is no such track: {there}")))
    }
}

/// The error of an order that cannot be carried out.
enum Obstacle {
    Outside(Rect, Size),
    Other(String),
}

impl Obstacle {
    fn of(self, order: &Order) -> Error {
        match self {
            Self::Outside(rect, frame) => Error::Outside { what: "track box", rect, frame },
            Self::Other(reason) => Error::Order { order: order.to_string(), reason },
        }
    }
}

impl Follow for Tracker {
    /// Learns the frames' size.
    ///
    /// # Errors
    /// `Outside` if a box does not lie in frames of this size.
    fn check(&mut self, frame: Size) -> Result<()> {
        for &Waiting { rect, .. } in &self.waiting {
            if !rect.is_inside(frame) {
                return Err(Error::Outside { what: "track box", rect, frame });
            }
        }
        Ok(())
    }

    /// Frames have another size from now on: boxes are scaled with them, also those that have not started.
    fn rescale(&mut self, before: Size, after: Size) {
        let (x_factor, y_factor) =
            (after.width as f64 / before.width as f64, after.height as f64 / before.height as f64);
        for target in &mut self.targets {
            target.rescale(x_factor, y_factor);
        }
        self.doubles.rescale();
        self.crossings.rescale();
        if let Some(births) = &mut self.births {
            births.rescale(x_factor, y_factor);
        }
        if let Some(blobs) = &mut self.blobs {
            blobs.rescale(x_factor, y_factor);
        }
        let scaled = |length: usize, factor: f64| libm::round(length as f64 * factor) as usize;
        for Waiting { rect, .. } in &mut self.waiting {
            // Rounded up, a box at the edge would begin behind it.
            rect.x = scaled(rect.x, x_factor).min(after.width - 1);
            rect.y = scaled(rect.y, y_factor).min(after.height - 1);
            rect.w = scaled(rect.w, x_factor).clamp(1, after.width - rect.x);
            rect.h = scaled(rect.h, y_factor).clamp(1, after.height - rect.y);
        }
    }

    fn given(&self) -> u32 {
        self.given
    }

    fn number_by(&mut self, numbers: Numbers) {
        self.numbers = numbers;
    }

    fn obey(&mut self, order: &Order, next: &Frame, recent: &RecentFrames) -> Result<()> {
        let refuse = |obstacle: Obstacle| obstacle.of(order);
        match *order {
            Order::Follow { id, rect, at } => {
                self.check_unused(id).map_err(refuse)?;
                if self.ids().filter(|id| self.ordered.contains(id)).count() >= MOST_ORDERED {
                    return Err(refuse(Obstacle::Other(format!("there are {MOST_ORDERED} tracks already"))));
                }
                let from = Self::moment(rect, at, next, recent).map_err(refuse)?;
                self.follow(id, rect, from, next, recent);
                self.ordered.insert(id);
            }
            Order::Correct { id, rect, at } => {
                self.check_known(id).map_err(refuse)?;
                let from = Self::moment(rect, at, next, recent).map_err(refuse)?;
                self.crossings.correct(id, rect, &mut self.targets);
                self.let_go(|other| other == id);
                self.follow(id, rect, from, next, recent);
            }
            Order::Forget { id } => {
                self.check_known(id).map_err(refuse)?;
                self.let_go(|other| other == id);
                if let Some(births) = &mut self.births {
                    births.forget(|other| other == id);
                }
            }
            Order::Clear => {
                self.let_go(|_| true);
                if let Some(births) = &mut self.births {
                    births.forget(|_| true);
                }
            }
            Order::Change(_)
            | Order::Zone { .. }
            | Order::RemoveZone { .. }
            | Order::Line { .. }
            | Order::RemoveLine { .. } => {
                return Err(refuse(Obstacle::Other("this order is not about tracks".into())));
            }
        }
        Ok(())
    }

    /// The boxes that are not followed yet, by their one-based ids, and why that is so if the video has
    /// ended.
    fn not_started(&self) -> Vec<(u32, String)> {
        self.waiting.iter().map(|waiting| (waiting.id, waiting.reason())).collect()
    }

    /// Follows every track into a frame, in which `matches` were found, and appends the results to `tracks`,
    /// in the order of ids.
    ///
    /// A box begins with the first frame from its moment on in which it is not flat; there is no record of it
    /// before.
    fn step(&mut self, frame: &Frame, matches: &[Match], tracks: &mut Vec<Track>) {
        self.step_with(frame, &Found { matches, ..Found::default() }, tracks);
    }

    fn step_with(&mut self, frame: &Frame, found: &Found<'_>, tracks: &mut Vec<Track>) {
        let seconds = self.last.map_or(USUAL_INTERVAL, |last| interval(last, frame.meta));
        self.passed += self.last.map_or(0.0, |last| elapsed(last, frame.meta));
        self.last = Some(frame.meta);
        let before = tracks.len();
        self.step_targets(frame, found, seconds, tracks);
        if let Some(blobs) = &mut self.blobs {
            let size = frame.format.size;
            blobs.step(found.objects.unwrap_or_default(), size, seconds, &self.numbers, before, tracks);
            tracks[before..].sort_unstable_by_key(|track| track.id);
        }
    }
}

impl Tracker {
    /// Follows the boxes, and what matches and detections have become.
    fn step_targets(&mut self, frame: &Frame, found: &Found<'_>, seconds: f64, tracks: &mut Vec<Track>) {
        let (matches, detections) = (found.matches, found.detections);
        let begun: Vec<_> = self.waiting.extract_if(.., |waiting| waiting.is_ready(frame)).collect();
        let is_idle = self.births.as_mut().is_none_or(|births| births.see(matches, detections));
        if is_idle && self.targets.is_empty() && begun.is_empty() {
            return;
        }
        let Self { targets, births, workplaces, camera, doubles, crossings, boxes, forecasts, .. } = self;
        let Self { movers, outlines, colours, searched, device, .. } = self;
        device.move_filters(targets, frame, workplaces.threads.count());
        boxes.clear();
        boxes.extend(targets.iter().map(Target::bounds));
        let is_searching = targets.iter().any(Target::is_searched_for);
        let motion = workplaces.run(targets.len() > 1, |workplaces| {
            let motion = camera.step(frame, boxes, &workplaces.threads);
            *searched += u64::from(is_searching);
            let cues = if !is_searching {
                None
            } else if searched.is_multiple_of(2) {
                movers.see(camera.pictures(), &workplaces.threads);
                let searched_for = || targets.iter().filter(|target| target.is_searched_for());
                let any = |coloured: bool| searched_for().any(|target| target.is_coloured() == coloured);
                colours.see(frame, [any(true), any(false)]);
                Some(Cues::Colours { colours, movers })
            } else {
                let (picture, factor) = camera.picture();
                let finder = frame.picture.surface().and_then(|surface| surface.outline_finder());
                outlines.see(picture, factor, finder.is_some());
                Some(Cues::Outlines(outlines, finder))
            };
            // Made before any of them moves, so that their order does not matter.
            forecasts.clear();
            let forecast = |target: &Target| Some((target.id(), target.forecast(seconds, motion)?));
            forecasts.extend(targets.iter().filter_map(forecast));
            let scene = Scene { frame, seconds, camera: motion, cues };
            let gather = |rivals: &mut Vec<Window>, target: &Target| {
                rivals.clear();
                let others = forecasts.iter().filter(|(id, _)| doubles.are_two(target.id(), *id));
                rivals.extend(others.map(|(_, forecast)| *forecast));
            };
            if device.is_in_use() {
                device.step(targets, &scene, gather, workplaces);
            } else {
                workplaces.each(targets, |target, Workplace { eyes, rivals }| {
                    gather(rivals, target);
                    target.step(&scene, rivals, eyes);
                });
            }
            motion
        });
        doubles.part(targets, frame);
        if targets.len() > 1 {
            workplaces.with_one(|own| {
                crossings.step(targets, doubles, (frame, seconds, motion), &mut own.eyes.looker);
            });
        }
        let begin = |id, rect| workplaces.with_one(|own| Target::new(id, rect, frame, &mut own.eyes));
        // After a drop it may be a later frame than the requested one.
        for Waiting { id, rect, .. } in &begun {
            let target = begin(*id, *rect);
            doubles.begin(&target, targets);
            targets.push(target);
        }
        targets.sort_by_key(Target::id);
        let before = tracks.len();
        tracks.extend(targets.iter().map(Target::track));
        if let Some(births) = births {
            births.decide(frame, seconds, &tracks[before..], &self.numbers);
            targets.retain(|target| !births.is_replaced(target.id()));
            doubles.forget(|id| births.is_replaced(id));
            crossings.forget(|id| births.is_replaced(id));
            targets.extend(births.begun().map(|(id, rect)| begin(id, rect)));
            for (id, rect) in births.corrected() {
                targets
                    .iter_mut()
                    .filter(|target| target.id() == *id)
                    .for_each(|target| target.correct(*rect));
            }
            targets.sort_by_key(Target::id);
            tracks.truncate(before);
            tracks.extend(targets.iter().map(Target::track));
            births.label(&mut tracks[before..]);
        }
        self.end_lost(before, tracks);
        for track in &mut tracks[before..] {
            let name = self.names.iter().find(|(id, _)| *id == track.id);
            track.name = name.map(|(_, name)| name.clone());
        }
        for track in &mut tracks[before..] {
            let is_sure = matches!(track.state, TrackState::Tracked | TrackState::Reacquired);
            let is_unlikely = track.state == TrackState::Tracked && track.score < score::LIKELY;
            if is_unlikely || is_sure && self.crossings.is_unknown(track.id) {
                track.state = TrackState::Uncertain;
            }
        }
    }
}

/// Seconds from one frame to another, limited to the range for which motion is computed.
fn interval(last: FrameMeta, now: FrameMeta) -> f64 {
    elapsed(last, now).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL)
}

/// Seconds from one frame to another.
fn elapsed(last: FrameMeta, now: FrameMeta) -> f64 {
    let frames = now.index.saturating_sub(last.index).max(1);
    match (last.pts_ns, now.pts_ns) {
        (Some(last), Some(now)) if now > last => (now - last) as f64 * 1e-9,
        _ => frames as f64 * USUAL_INTERVAL,
    }
}

/// By how much the brightest and the darkest pixel of a box differ.
fn contrast(rect: Rect, frame: &Frame) -> u8 {
    frame.with_luma_of(rect, |pixels| {
        let pixels = pixels.rows().flatten();
        let (least, most) =
            pixels.fold((u8::MAX, u8::MIN), |(least, most), &pixel| (least.min(pixel), most.max(pixel)));
        most - least
    })
}

/// The standard deviation of the pixels of a box.
fn deviation(rect: Rect, frame: &Frame) -> f64 {
    frame.with_luma_of(rect, |pixels| {
        let (sum, squares) = pixels.rows().flatten().fold((0_u64, 0_u64), |(sum, squares), &pixel| {
            (sum + u64::from(pixel), squares + u64::from(pixel).pow(2))
        });
        let n = rect.size().area() as f64;
        ((n * squares as f64 - (sum as f64).powi(2)).max(0.0)).sqrt() / n
    })
}

/// The common value of all pixels of a box, if there is one.
fn flat(rect: Rect, frame: &Frame) -> Option<u8> {
    frame.with_luma_of(rect, |pixels| {
        let first = pixels.row(0)[0];
        pixels.rows().flatten().all(|&pixel| pixel == first).then_some(first)
    })
}
