//! Reports events of tracks to other programs: as lines, to a web server, to an MQTT broker.
//!
//! The engine is synchronous and never waits for any of these. A sink between them finds the events
//! ([`lockon_core::track_events`]) and puts them into a queue for each receiver. Each receiver has a thread.
//! If a receiver is away or slow, its queue fills; then the oldest events are lost and counted. A receiver
//! that fails gets no more events, and the others continue. The end of a run waits for the rest, at most
//! [`FAREWELL`].
//!
//! | file | job |
//! |---|---|
//! | `lib.rs` | the sink: events as JSON, receivers started and ended |
//! | `queue.rs` | the events that wait for a receiver |
//! | `outage.rs` | retries of a receiver that does not answer |
//! | `webhook.rs`, `mqtt/`, `tls.rs` | the receivers in the network |

mod mqtt;
mod outage;
mod queue;
mod tls;
mod webhook;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use serde::Serialize;
use tokio::runtime::Builder;
use tokio::sync::watch as signal;

use lockon_core::colour;
use lockon_core::config::{CountingLine, Direction};
use lockon_core::control::Control;
use lockon_core::error::{Error, Result};
use lockon_core::frame::Frame;
use lockon_core::output;
use lockon_core::ports::{Delivery, Sink};
use lockon_core::results::{self, EventsSummary, FrameRecord, Summary, Track, ZoneCount};
use lockon_core::still;
use lockon_core::surface::Surface;
use lockon_core::{text, track_events};
use lockon_run::request::{ReceiverAddress, Request};
use lockon_run::run::{Opening, Outlet};

pub use mqtt::Forgotten;
use mqtt::Home;
use queue::Queue;
use track_events::{TrackEvent, TrackEventKind, TrackWatcher, ZoneEvent, ZoneEventKind, ZoneLimits};

/// Maximum time that the end of a run waits for delivery; the second if the run was stopped.
pub const FAREWELL: Duration = Duration::from_secs(5);
const SHORT_FAREWELL: Duration = Duration::from_secs(2);

/// How often a run that waits for its end checks whether it was stopped.
const GLANCE: Duration = Duration::from_millis(50);

/// Maximum side of a thumbnail, in pixels.
const THUMBNAIL_SIDE: usize = 160;

/// A thumbnail that would make an event longer than this, in bytes, is left out.
const MOST_BYTES: usize = 128 << 10;

/// Removes lockon's retained messages at a broker under a topic: tracks, state, status and announcements to
/// Home Assistant. `typed` is an address as for `--events`. If a run is online there, only if `is_forced`.
///
/// # Errors
/// `Value`, `Usage` or `File` if it is no address of a broker; `Output` if not all could be removed.
pub fn forget(typed: &str, is_forced: bool) -> Result<Forgotten> {
    let ReceiverAddress::Mqtt(broker) = ReceiverAddress::of(&typed.into())? else {
        return Err(Error::Usage("only a broker retains something: give mqtt://HOST/TOPIC".into()));
    };
    let failure = |reason: String| Error::Output { name: broker.name.clone(), reason };
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failure(error.to_string()))?;
    let result = runtime.block_on(mqtt::forget(&broker, is_forced));
    // A thread that looks up a name cannot be stopped.
    runtime.shutdown_background();
    result.map_err(failure)
}

/// The messages about an event.
struct Notice {
    /// The event.
    event: Bytes,
    /// The track's number; none for an event of a zone.
    track: Option<u32>,
    /// The track from now on; empty if it is gone.
    track_state: Bytes,
    /// The number of tracks, and their zones.
    state: Bytes,
    /// The existing tracks, ascending.
    live: Arc<[u32]>,
}

impl Notice {
    /// The size without the tracks, which all letters of a frame share.
    fn bytes(&self) -> usize {
        self.event.len() + self.track_state.len() + self.state.len()
    }
}

/// An event in the form of a message: a record of its own, with the keys of a track in the records of frames.
#[derive(Serialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    when: &'a When,
    seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<&'a str>,
    zones: &'a [Arc<str>],
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    direction: Option<Direction>,
    #[serde(flatten)]
    track: &'a Track,
    #[serde(skip_serializing_if = "Option::is_none")]
    thumbnail: Option<&'a str>,
}

/// An event of a zone.
#[derive(Serialize)]
struct OfZone<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    when: &'a When,
    seq: u64,
    zone: &'a str,
    count: u64,
    limit: u32,
}

#[derive(Serialize)]
struct TrackNow<'a> {
    #[serde(flatten)]
    when: &'a When,
    zones: &'a [Arc<str>],
    #[serde(flatten)]
    track: &'a Track,
}

#[derive(Serialize)]
struct AllNow<'a> {
    #[serde(flatten)]
    when: &'a When,
    tracks: usize,
    lost: usize,
    zones: BTreeMap<&'a str, usize>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    lines: BTreeMap<&'a str, Crossed>,
}

/// How often a line was crossed so far.
#[derive(Serialize)]
struct Crossed {
    #[serde(rename = "in")]
    inwards: u64,
    #[serde(rename = "out")]
    outwards: u64,
}

impl<'a> AllNow<'a> {
    fn of(watcher: &'a TrackWatcher, when: &'a When) -> Self {
        let (tracks, lost) = watcher.counts();
        let zones = watcher.occupied().map(|(zone, inside)| (&**zone, inside)).collect();
        let crossed = |(line, [inwards, outwards]): (&'a CountingLine, [u64; 2])| {
            (&**line.name(), Crossed { inwards, outwards })
        };
        let lines = watcher.lines_crossed().map(crossed).collect();
        Self { when, tracks, lost, zones, lines }
    }
}

/// The video and the time of an event.
#[derive(Debug, Clone, Default, Serialize)]
struct When {
    source: String,
    frame: u64,
    pts_ns: Option<u64>,
    /// Since 1970: the time when the frame of a live source was captured, or the frame of a file was
    /// processed.
    time_ms: u64,
}

impl When {
    /// Sets the time to so long ago.
    fn set_time(&mut self, ago: Duration) {
        let since = SystemTime::now().checked_sub(ago).and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        self.time_ms = since.map_or(0, |since| since.as_millis() as u64);
    }
}

/// Adds the receivers that a request names to its run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Receivers;

impl Outlet for Receivers {
    fn option(&self) -> &'static str {
        "events"
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn Sink>> {
        Ok(Box::new(EventsSink::open(opening.request, opening.name)?))
    }
}

/// Sends the events of a run's tracks to receivers.
pub struct EventsSink {
    watcher: TrackWatcher,
    happened: Vec<TrackEvent>,
    limits: ZoneLimits,
    receivers: Vec<Receiving>,
    when: When,
    has_thumbnails: bool,
    told: u64,
    run: Control,
}

impl EventsSink {
    /// Starts the receivers that a request names, for a video of that name. They need not be reachable.
    ///
    /// # Errors
    /// As [`Request::receivers`]; `Output` if the system gives no thread.
    pub fn open(request: &Request, source: &str) -> Result<Self> {
        let source = text::for_people(source);
        let home = || {
            request.home_assistant.then(|| Home {
                source: source.clone(),
                zones: request.zone.iter().map(|zone| zone.name().clone()).collect(),
                lines: request.line.iter().map(|line| line.name().clone()).collect(),
                kinds: (TrackEventKind::ALL.iter().map(|kind| kind.name()))
                    .chain(ZoneEventKind::ALL.iter().map(|kind| kind.name()))
                    .collect(),
            })
        };
        let watcher = TrackWatcher::new(request.zone.clone()).with_lines(request.line.clone());
        let mut when = When { source: source.clone(), ..When::default() };
        when.set_time(Duration::ZERO);
        let state = json(&AllNow::of(&watcher, &when))?;
        let addresses = request.receivers()?;
        let receivers = addresses.into_iter().map(|address| Receiving::start(address, home(), state.clone()));
        Ok(Self {
            receivers: receivers.collect::<Result<_>>()?,
            watcher,
            happened: Vec::new(),
            limits: ZoneLimits::new(request.zone_limit.clone(), request.objects && !request.follows()),
            when,
            has_thumbnails: request.event_thumbnails,
            told: 0,
            run: Control::new(),
        })
    }

    /// Puts the events of `frame` into the queues.
    fn tell(&mut self, frame: Option<&Frame>) -> Result<()> {
        if self.happened.is_empty() {
            return Ok(());
        }
        let captured = frame.and_then(|frame| frame.circumstances.captured);
        self.when.set_time(captured.map(|at| at.elapsed()).unwrap_or_default());
        let state = json(&AllNow::of(&self.watcher, &self.when))?;
        let live: Arc<[u32]> = self.watcher.ids().collect();
        // All events of a track in a frame follow each other, and share one picture.
        let mut pictured: Option<(u32, Option<String>)> = None;
        for TrackEvent { kind, track, zone, zones, line } in self.happened.drain(..) {
            self.told += 1;
            let is_gone = kind == TrackEventKind::Gone;
            let to_picture = frame.filter(|_| self.has_thumbnails && !is_gone);
            if let Some(frame) = to_picture
                && pictured.as_ref().is_none_or(|(id, _)| *id != track.id)
            {
                pictured = Some((track.id, thumbnail(frame, &track)));
            }
            let picture = pictured.as_ref().filter(|_| to_picture.is_some());
            let mut event = Event {
                kind: kind.name(),
                when: &self.when,
                seq: self.told,
                zone: zone.as_deref(),
                zones: &zones,
                line: line.as_ref().map(|(line, _)| &**line),
                direction: line.as_ref().map(|(_, direction)| *direction),
                track: &track,
                thumbnail: picture.and_then(|(_, jpeg)| jpeg.as_deref()),
            };
            let mut text = json(&event)?;
            if text.len() > MOST_BYTES {
                event.thumbnail = None;
                text = json(&event)?;
            }
            let now = TrackNow { when: &self.when, zones: &zones, track: &track };
            let track_state = if is_gone { Bytes::new() } else { json(&now)? };
            let (state, live) = (state.clone(), live.clone());
            let notice = Arc::new(Notice { event: text, track: Some(track.id), track_state, state, live });
            for receiver in &mut self.receivers {
                receiver.push(&notice);
            }
        }
        Ok(())
    }

    /// Puts the events of a frame's zones into the queues.
    fn tell_of_zones(&mut self, frame: &Frame, zones: &[ZoneCount]) -> Result<()> {
        let mut happened = Vec::new();
        self.limits.step(zones, &mut happened);
        if happened.is_empty() {
            return Ok(());
        }
        self.when.set_time(frame.circumstances.captured.map(|at| at.elapsed()).unwrap_or_default());
        let state = json(&AllNow::of(&self.watcher, &self.when))?;
        let live: Arc<[u32]> = self.watcher.ids().collect();
        for ZoneEvent { kind, zone, count, limit } in happened {
            self.told += 1;
            let (kind, when, seq) = (kind.name(), &self.when, self.told);
            let event = json(&OfZone { kind, when, seq, zone: &zone, count, limit })?;
            let (state, live) = (state.clone(), live.clone());
            let notice = Arc::new(Notice { event, track: None, track_state: Bytes::new(), state, live });
            for receiver in &mut self.receivers {
                receiver.push(&notice);
            }
        }
        Ok(())
    }

    /// Warns once of each receiver that has failed.
    ///
    /// # Errors
    /// The first failure, if no receiver is left.
    fn check(&mut self) -> Result<()> {
        if self.receivers.iter().all(|receiver| receiver.failure.get().is_some()) {
            return self.first_failure();
        }
        self.receivers.iter_mut().for_each(Receiving::tell_failure);
        Ok(())
    }

    fn first_failure(&self) -> Result<()> {
        self.receivers.iter().find_map(Receiving::error).map_or(Ok(()), Err)
    }
}

/// Returns JSON without control characters, in one line without its end.
fn json(value: &impl Serialize) -> Result<Bytes> {
    let mut line = Vec::new();
    output::write_line(&mut line, value)
        .map_err(|error| Error::Output { name: NAME.into(), reason: error.to_string() })?;
    line.pop();
    Ok(line.into())
}

/// A JPEG file of a box and its surroundings, in base64.
fn thumbnail(frame: &Frame, track: &Track) -> Option<String> {
    let area = still::around(track.bounds(), frame.format.size);
    let (rgb, size) = colour::shrunk(frame, area, THUMBNAIL_SIDE);
    // A picture that could not be fetched from a device would be black.
    frame.picture.surface().map_or(Ok(()), Surface::check).ok()?;
    still::jpeg(&rgb, size).ok().map(|jpeg| BASE64_STANDARD.encode(jpeg))
}

/// The sink's name in messages.
const NAME: &str = "events";

impl Sink for EventsSink {
    fn name(&self) -> &str {
        NAME
    }

    fn belong_to(&mut self, run: &Control) {
        self.run = run.clone();
    }

    /// Never waits.
    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        let (frame, record) = (delivery.frame, delivery.record);
        let FrameRecord { frame: number, pts_ns, .. } = **record;
        (self.when.frame, self.when.pts_ns) = (number, pts_ns);
        self.watcher.step(record, frame.format.size, &mut self.happened);
        self.tell(Some(frame))?;
        self.tell_of_zones(frame, &record.zones)?;
        self.check()
    }

    /// Zones and lines that orders add or remove count from the next frame on.
    fn note(&mut self, event: &results::Event) -> Result<()> {
        if let results::Event::Control { order, refused: None, .. } = event {
            self.watcher.obey(order, &mut self.happened);
            self.tell(None)?;
        }
        Ok(())
    }

    /// Waits at most [`FAREWELL`].
    fn finish(&mut self, _: &Summary) -> Result<()> {
        self.watcher.end(&mut self.happened);
        self.tell(None)?;
        self.receivers.iter().for_each(|receiver| receiver.queue.close());
        let start = Instant::now();
        let is_in_time = || start.elapsed() < if self.run.is_stopped() { SHORT_FAREWELL } else { FAREWELL };
        self.receivers.iter().for_each(|receiver| receiver.end_while(is_in_time));
        self.first_failure()
    }

    fn events(&self) -> Vec<EventsSummary> {
        self.receivers.iter().map(Receiving::summary).collect()
    }
}

/// A receiver, its queue and its thread. A thread that does not end is left behind.
struct Receiving {
    name: String,
    queue: Arc<Queue<Arc<Notice>>>,
    pushed: u64,
    sent: Arc<AtomicU64>,
    /// The reason why nothing can be delivered any more: only for standard output, as the others are retried.
    failure: Arc<OnceLock<std::io::Error>>,
    /// True if a warning has reported that.
    is_failure_told: bool,
    /// Closed when the thread ends.
    ended: Receiver<()>,
    gives_up: signal::Sender<bool>,
}

impl Receiving {
    /// Starts to deliver pushed events. `state` is the state before the first.
    fn start(address: ReceiverAddress, home: Option<Home>, state: Bytes) -> Result<Self> {
        let name = address.name().to_owned();
        if matches!(&address, ReceiverAddress::Mqtt(broker) if broker.is_replaced) {
            tracing::warn!(
                "events: {name}: MQTT does not allow the topic as it was typed; _ replaces what it does not allow"
            );
        }
        let no_thread = |error: std::io::Error| Error::Output {
            name: format!("{NAME} to {name}"),
            reason: format!("no thread can be started: {error}"),
        };
        let (queue, sent, failure) = (Arc::new(Queue::new()), Arc::default(), Arc::default());
        let (gives_up, mut is_given_up) = signal::channel(false);
        let (ends, ended) = crossbeam_channel::bounded::<()>(0);
        let runtime = Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
        let thread = std::thread::Builder::new().name("lockon-events".to_owned());
        let (waiting, count, fault) = (Arc::clone(&queue), Arc::clone(&sent), Arc::clone(&failure));
        let work = move || {
            let work = async {
                match address {
                    ReceiverAddress::Stdout => print(&waiting, &count, &fault).await,
                    ReceiverAddress::Webhook(webhook) => webhook::post(webhook, &waiting, &count).await,
                    ReceiverAddress::Mqtt(broker) => {
                        mqtt::publish(broker, home, state, &waiting, &count).await;
                    }
                }
            };
            runtime.block_on(async {
                tokio::select! {
                    () = work => {}
                    _ = is_given_up.wait_for(|is_given_up| *is_given_up) => {}
                }
            });
            // A thread that looks up a name cannot be stopped.
            runtime.shutdown_background();
            drop(ends);
        };
        thread.spawn(work).map_err(no_thread)?;
        Ok(Self { name, queue, pushed: 0, sent, failure, is_failure_told: false, ended, gives_up })
    }

    fn push(&mut self, notice: &Arc<Notice>) {
        self.pushed += 1;
        if self.failure.get().is_none() {
            self.queue.push(notice.clone(), notice.bytes());
        }
    }

    fn tell_failure(&mut self) {
        if self.is_failure_told || self.is_reader_gone() {
            return;
        }
        if let Some(reason) = self.failure.get() {
            self.is_failure_told = true;
            tracing::warn!("events: {}: {reason}; no more events are sent there", self.name);
        }
    }

    /// True for standard output that was closed by its reader, which needs no warning.
    fn is_reader_gone(&self) -> bool {
        self.failure.get().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
    }

    fn error(&self) -> Option<Error> {
        Some(Error::of_stdout("events to stdout", self.failure.get()?))
    }

    /// Waits until all is delivered, and drops the rest after the time limit.
    fn end_while(&self, is_in_time: impl Fn() -> bool) {
        // The channel is closed at the end; nothing is sent.
        while is_in_time() && self.ended.recv_timeout(GLANCE) == Err(RecvTimeoutError::Timeout) {}
        let EventsSummary { name, lost, .. } = self.summary();
        if lost > 0 && !self.is_reader_gone() {
            // Data is lost: --quiet does not hide that. The run itself has not failed.
            tracing::error!("events: {lost} of {} were not delivered to {name}", self.pushed);
        }
        self.gives_up.send_replace(true);
    }

    fn summary(&self) -> EventsSummary {
        let sent = self.sent.load(Ordering::Relaxed);
        EventsSummary { name: self.name.clone(), sent, lost: self.pushed.saturating_sub(sent) }
    }
}

impl Drop for Receiving {
    /// Ends the thread of a run that failed before it began, too.
    fn drop(&mut self) {
        self.gives_up.send_replace(true);
    }
}

/// Writes whole lines to standard output until the queue is closed or the reader is gone.
async fn print(queue: &Queue<Arc<Notice>>, sent: &AtomicU64, failure: &OnceLock<std::io::Error>) {
    let mut stdout = match stdout() {
        Ok(stdout) => stdout,
        Err(error) => return drop(failure.set(error)),
    };
    while let Some(notice) = queue.next().await {
        let line = [&notice.event[..], b"\n"].concat();
        // This thread has no other work.
        match stdout.write_all(&line) {
            Ok(()) => sent.fetch_add(1, Ordering::Relaxed),
            Err(error) => return drop(failure.set(error)),
        };
    }
}

/// Returns standard output without Rust's lock: a thread that holds it while nothing reads would keep the
/// program from ending.
#[cfg(unix)]
fn stdout() -> std::io::Result<std::fs::File> {
    use std::os::fd::AsFd;
    std::io::stdout().as_fd().try_clone_to_owned().map(Into::into)
}

#[cfg(not(unix))]
fn stdout() -> std::io::Result<std::io::Stdout> {
    Ok(std::io::stdout())
}
