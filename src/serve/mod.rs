//! The live page: runs in a browser, as pictures with what was found, and the means to steer them.
//!
//! The engine is synchronous and knows nothing of this. Between the two stands a sink that keeps the newest
//! frame and its record, and a [`Control`] for what is asked on the page. Pictures are made outside
//! of the engine's thread, only while somebody looks, and always of the newest frame: whoever is slow gets
//! fewer, and holds nobody up.
//!
//! | file | job |
//! |---|---|
//! | `mod.rs` | a page: started, told of runs, ended |
//! | `listen.rs` | connections, how many and for how long |
//! | `guard.rs` | who may ask: token, host, origin |
//! | `api.rs` | what can be asked: addresses, JSON, answers |
//! | `orders.rs` | what is asked of a run, and what it answers |
//! | `offers.rs` | cameras and files of a folder, to be opened from the page |
//! | `folder.rs` | that folder: what is offered of it, and that nobody is told where it lies |
//! | `work.rs` | what waits or takes long, done by threads that may |
//! | `live.rs` | a browser that looks: pictures out, what it has shown in |
//! | `feed.rs` | pictures made once for all who look at the same |
//! | `picture.rs` | from a frame to a JPEG of the size that is looked at |
//! | `resize.rs` | planes in another size |
//! | `video.rs` | what is known of a run now |
//! | `searched.rs` | what it searches now, after all changes |
//! | `history.rs` | the records of the last frames |
//! | `memory.rs` | memory for frames that are kept, of all runs together |
//! | `sink.rs` | the sink |
//! | `rehearsal.rs` | a page without a network, for tests and fuzzing |
//! | `page/` | what the browser gets, and the description of the API |

mod api;
mod feed;
mod folder;
mod guard;
mod history;
mod listen;
mod live;
mod memory;
mod offers;
mod orders;
mod picture;
mod rehearsal;
mod resize;
mod searched;
mod sink;
mod video;
mod work;

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::Receiver;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, watch};

use crate::config::Limits;
use crate::control::Control;
use crate::error::{Error, Result};
use crate::frame::Rect;
use crate::media::cameras;
use crate::metrics::{Address, Registry};
use crate::surface::Traffic;

use guard::Guard;
use memory::Memory;
use offers::Offers;
use video::Video;

pub use offers::Chosen;
pub use rehearsal::Rehearsal;
pub use sink::PageSink;

/// Frames that a run keeps while somebody looks, for boxes that are drawn in one that has passed.
pub const KEPT: usize = 16;

/// How long the end of a page waits until those who look have been told of it.
const FAREWELL: Duration = Duration::from_millis(500);

/// Browsers that look at the same time, at all videos together.
const MOST_VIEWERS: usize = 64;

/// Videos that have ended, and are still shown.
const MOST_ENDED: usize = 64;

/// Kinds of pictures that are made at the same time: each video's in each size and view that somebody looks
/// at has an encoder of its own. One for each viewer, and some for those who ask for single pictures.
const MOST_FEEDS: usize = MOST_VIEWERS + 16;

/// Orders that wait for their frame at the same time.
const MOST_ORDERS: usize = 64;

/// Pictures that are sent here at the same time, to be searched.
const MOST_SENT: usize = 8;

/// A run as the page shows it.
#[derive(Debug, Clone)]
pub struct Shown {
    /// What the video is called.
    pub name: String,
    /// What steers the run.
    pub control: Control,
    /// Bytes that it moves.
    pub traffic: Traffic,
    /// True if frames come whether or not anybody takes them.
    pub is_live: bool,
    /// Each of that many frames is processed.
    pub every: u64,
    /// How much of the video is processed, in nanoseconds, as far as that is known.
    pub length_ns: Option<u64>,
    /// What counts as a match at its start.
    pub limits: Limits,
    /// The box that is searched then; none is the whole frame.
    pub roi: Option<Rect>,
    /// True if nothing is to be done until a box is drawn: it pauses at its first frame until then.
    pub waits: bool,
    /// Frames that it keeps also while nobody looks.
    pub kept: usize,
    /// Bytes of its first frame.
    pub frame_bytes: usize,
}

/// A page, served until this is dropped.
pub struct Page {
    shared: Arc<Shared>,
    url: String,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    /// Set once it ends.
    over: watch::Sender<bool>,
}

/// What all connections share.
struct Shared {
    videos: Mutex<Videos>,
    /// What can be opened.
    offers: Option<Arc<Offers>>,
    registry: Registry,
    guard: Guard,
    viewers: Arc<Semaphore>,
    feeds: Arc<Semaphore>,
    orders: Arc<Semaphore>,
    /// Pictures that are sent here.
    sent: Arc<Semaphore>,
    /// Memory for frames that are kept.
    memory: Arc<Memory>,
    /// Pictures are made one after the other: the run has the rest of the processor.
    painters: Arc<Semaphore>,
    over: watch::Receiver<bool>,
}

/// The videos that are shown, by their numbers, each of which is given once.
#[derive(Default)]
struct Videos {
    shown: BTreeMap<usize, Arc<Video>>,
    next: usize,
}

impl Videos {
    /// Shows a run, under a name that no other has.
    fn add(&mut self, mut shown: Shown, shared: &Shared) -> Arc<Video> {
        let is_free = |name: &String| self.shown.values().all(|video| video.shown.name != *name);
        if !is_free(&shown.name) {
            let mut others = (2..).map(|number| format!("{} ({number})", shown.name));
            shown.name = others.find(is_free).expect("numbers do not end");
        }
        let folder = shared.offers.as_ref().and_then(|offers| offers.folder.clone());
        let video = Arc::new(Video::new(self.next, shown, &shared.memory, folder));
        self.shown.insert(self.next, video.clone());
        self.next += 1;
        let ended: Vec<_> =
            self.shown.values().filter(|video| video.has_ended()).map(|video| video.id).collect();
        // The first are those that were there first.
        for id in ended.iter().take(ended.len().saturating_sub(MOST_ENDED)) {
            self.shown.remove(id);
        }
        video
    }
}

impl Shared {
    fn new(guard: Guard, offers: Option<Offers>, over: watch::Receiver<bool>) -> Self {
        let places = |most| Arc::new(Semaphore::new(most));
        Self {
            videos: Mutex::default(),
            offers: offers.map(Arc::new),
            registry: Registry::default(),
            guard,
            viewers: places(MOST_VIEWERS),
            feeds: places(MOST_FEEDS),
            orders: places(MOST_ORDERS),
            sent: places(MOST_SENT),
            memory: Arc::default(),
            painters: places(1),
            over,
        }
    }

    /// Shows a run. What comes back counts it for the metrics, too.
    fn watch(&self, shown: Shown) -> PageSink {
        let traffic = shown.traffic.clone();
        let video = self.videos().add(shown, self);
        video.keep_frames();
        let metrics = self.registry.watch(&video.shown.name, &traffic);
        PageSink::new(video, metrics)
    }

    fn videos(&self) -> MutexGuard<'_, Videos> {
        // It is whole at every moment.
        self.videos.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all(&self) -> Vec<Arc<Video>> {
        self.videos().shown.values().cloned().collect()
    }

    fn video(&self, id: usize) -> Option<Arc<Video>> {
        self.videos().shown.get(&id).cloned()
    }
}

impl Page {
    /// Serves from now on. At an address that others can reach, everything takes a token, which stands in
    /// [`Self::url`].
    ///
    /// # Errors
    /// `Listen` if the address is taken or is none of this machine's, or if the system gives no threads.
    pub fn start(address: &Address) -> Result<Self> {
        Self::serve(address, None)
    }

    /// The same, on which cameras of this machine and videos in `folder` can be chosen, and nothing else.
    /// What somebody has chosen comes out of the receiver.
    ///
    /// # Errors
    /// As [`Self::start`]; `File` if the folder cannot be read.
    pub fn offering(address: &Address, folder: Option<&Path>) -> Result<(Self, Receiver<Chosen>)> {
        // Each of those who choose waits for an answer, so there are few.
        let (chosen, is_chosen) = crossbeam_channel::unbounded();
        let offers = Offers::new(folder, chosen, Box::new(cameras::cameras))?;
        let page = Self::serve(address, Some(offers))?;
        Ok((page, is_chosen))
    }

    fn serve(address: &Address, offers: Option<Offers>) -> Result<Self> {
        let failed = |cause| Error::Listen { address: address.to_string(), cause };
        let listener = address.listen()?;
        listener.set_nonblocking(true).map_err(failed)?;
        let at = listener.local_addr().map_err(failed)?;
        let guard = Guard::of(address, at).map_err(failed)?;
        let url = url(at, guard.token());
        let (over, is_over) = watch::channel(false);
        let shared = Arc::new(Shared::new(guard, offers, is_over));
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            // Those who wait for an order, decode, look into the folder and for cameras, and a painter.
            .max_blocking_threads(MOST_ORDERS + MOST_SENT + 3)
            .thread_name("lockon-page")
            .enable_all()
            .build()
            .map_err(failed)?;
        let listener = {
            let _context = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(failed)?
        };
        runtime.spawn(listen::listen(listener, api::router(&shared), shared.over.clone()));
        Ok(Self { shared, url, runtime: Some(runtime), over })
    }

    /// What to open in a browser, with the token if there is one.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Shows a run, under another name if a run that is shown has its name already. What comes back is an
    /// output of the run, and is told what is found.
    pub fn watch(&self, shown: Shown) -> PageSink {
        self.shared.watch(shown)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.over.send_replace(true);
        let Some(runtime) = self.runtime.take() else { return };
        let viewers = self.shared.viewers.clone();
        let all_gone = async move { viewers.acquire_many(MOST_VIEWERS as u32).await.map(drop) };
        // Whoever does not hear of it in time is cut off.
        let _ = runtime.block_on(async { tokio::time::timeout(FAREWELL, all_gone).await });
        runtime.shutdown_background();
    }
}

/// The address of the page as this machine's user, or another, can open it.
fn url(at: SocketAddr, token: Option<&str>) -> String {
    let mut door = at;
    if at.ip().is_unspecified() {
        door.set_ip(own_address(at).unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0))).ip());
    }
    match token {
        // Not `token`, whose value is never shown: this one is there to be read.
        Some(token) => format!("http://{door}/?t={token}"),
        None => format!("http://{door}/"),
    }
}

/// The address under which others in the network know this machine. Nothing is sent.
fn own_address(at: SocketAddr) -> Option<SocketAddr> {
    // Addresses of documentation (RFC 5737, RFC 3849), for which the system tells what it would send from.
    let (from, to) = if at.is_ipv4() { ("0.0.0.0:0", "192.0.2.1:9") } else { ("[::]:0", "[2001:db8::1]:9") };
    let socket = UdpSocket::bind(from).ok()?;
    socket.connect(to).ok()?;
    socket.local_addr().ok()
}
