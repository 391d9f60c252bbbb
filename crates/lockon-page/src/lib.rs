//! The live page: shows runs in a browser, with pictures and results, and steers them.
//!
//! The engine is synchronous and does not know the page. A sink between the two keeps the newest frame and
//! its record; a [`Control`](lockon_core::control::Control) passes the page's orders to the run. Pictures are
//! made outside of the engine's thread, only while a browser shows them, and always from the newest frame. A
//! slow browser gets fewer pictures and delays nothing.
//!
//! | file | job |
//! |---|---|
//! | `lib.rs` | a page: start it, show runs on it, end it |
//! | `metrics.rs` | the server of `--metrics`, for Prometheus |
//! | `listen.rs` | connections: their number and time limits |
//! | `guard.rs` | access control: token, host, origin |
//! | `api.rs` | the HTTP API: addresses, JSON, answers |
//! | `asked.rs` | parts of a request, with errors for people |
//! | `orders.rs` | orders to a run and their answers |
//! | `lobby.rs` | the page's name, videos that wait, closing the page |
//! | `offers.rs` | cameras and files that can be opened from the page |
//! | `folder.rs` | the folder with those files, whose place is kept secret |
//! | `work.rs` | slow work on threads that may wait |
//! | `live.rs` | a connected browser: sends pictures and reports |
//! | `feed.rs` | pictures, made once for all browsers that show the same |
//! | `picture.rs` | makes a JPEG of the requested size from a frame |
//! | `resize.rs` | scales planes |
//! | `shown.rs` | a run's data for the page |
//! | `video.rs` | the current state of a run |
//! | `recent_events.rs` | the last events of its tracks |
//! | `history.rs` | the records of the last frames |
//! | `memory.rs` | the memory limit for kept frames, over all runs |
//! | `sink.rs` | the sink |
//! | `rehearsal.rs` | a page without a network, for tests and, with the feature `rehearsal`, for fuzzing |
//! | `page/` | the files for the browser, and the description of the API |

mod api;
mod asked;
mod feed;
mod folder;
mod guard;
mod history;
mod listen;
mod live;
mod lobby;
mod memory;
mod metrics;
mod offers;
mod orders;
mod picture;
mod recent_events;
#[cfg(any(test, feature = "rehearsal"))]
mod rehearsal;
mod resize;
mod shown;
mod sink;
mod video;
mod work;

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;
use tokio::sync::{Semaphore, watch};

use lockon_core::error::Result;
use lockon_core::locks::{MutexGuard, Ranked};
use lockon_core::metrics::Registry;
use lockon_gst::cameras;
use lockon_run::request::ListenAddress;

use guard::Guard;
use listen::Server;
use lobby::Lobby;
use memory::MemoryBudget;
use offers::Offers;
use sink::PageSink;
use video::Video;

pub use metrics::MetricsServer;
pub use offers::Chosen;
#[cfg(any(test, feature = "rehearsal"))]
pub use rehearsal::Rehearsal;
use shown::Shown;

/// Frames that a run keeps while a browser shows it, so that a box drawn on an earlier frame can be followed.
const KEPT: usize = 16;

/// How long the end of a page waits for its last messages to browsers.
const FAREWELL: Duration = Duration::from_millis(500);

/// Maximum browsers connected at the same time, over all videos.
const MOST_VIEWERS: usize = 64;

/// Maximum videos that have ended and are still shown.
const MOST_ENDED: usize = 64;

/// Maximum feeds. A feed is a video in one size and view, with its own encoder. Each viewer needs one, and so
/// do requests for single pictures.
const MOST_FEEDS: usize = MOST_VIEWERS + 16;

/// Maximum orders that wait for their frame at the same time.
const MOST_ORDERS: usize = 64;

/// Maximum template pictures received at the same time.
const MOST_SENT: usize = 8;

/// A page, served until this is dropped.
pub struct Page {
    shared: Arc<Shared>,
    url: String,
    server: Server,
}

/// State shared by all connections.
struct Shared {
    videos: Ranked<Videos, 10>,
    /// Cameras and files that can be opened.
    offers: Option<Arc<Offers>>,
    registry: Registry,
    guard: Guard,
    viewers: Arc<Semaphore>,
    feeds: Arc<Semaphore>,
    orders: Arc<Semaphore>,
    /// Places for template pictures on their way here.
    sent: Arc<Semaphore>,
    /// Memory for kept frames.
    memory: Arc<MemoryBudget>,
    /// One picture is made at a time: the rest of the processor belongs to the runs.
    painters: Arc<Semaphore>,
    lobby: Lobby,
    over: watch::Receiver<bool>,
}

/// The videos on the page by their numbers. A number is used once.
#[derive(Default)]
struct Videos {
    shown: BTreeMap<usize, Arc<Video>>,
    next: usize,
}

impl Videos {
    /// Adds a run. If its name is taken, a number is appended.
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
        // The oldest are first.
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
            videos: Ranked::default(),
            offers: offers.map(Arc::new),
            registry: Registry::default(),
            guard,
            viewers: places(MOST_VIEWERS),
            feeds: places(MOST_FEEDS),
            orders: places(MOST_ORDERS),
            sent: places(MOST_SENT),
            memory: Arc::default(),
            painters: places(1),
            lobby: Lobby::default(),
            over,
        }
    }

    /// Shows a run. The sink also updates the metrics.
    fn watch(&self, shown: Shown) -> PageSink {
        let traffic = shown.traffic.clone();
        let video = self.videos().add(shown, self);
        video.keep_frames();
        let metrics = self.registry.watch(&video.shown.name, &traffic);
        PageSink::new(video, metrics)
    }

    fn videos(&self) -> MutexGuard<'_, Videos> {
        self.videos.lock()
    }

    fn all(&self) -> Vec<Arc<Video>> {
        self.videos().shown.values().cloned().collect()
    }

    fn video(&self, id: usize) -> Option<Arc<Video>> {
        self.videos().shown.get(&id).cloned()
    }
}

impl Page {
    /// Starts a page. At an address that others can reach, every request needs the token in [`Self::url`].
    ///
    /// # Errors
    /// `Listen` if the address is in use or is not an address of this machine, or if the system gives no
    /// threads.
    pub fn start(address: &ListenAddress) -> Result<Self> {
        Self::serve(address, None)
    }

    /// As [`Self::start`], with a list of this machine's cameras and the videos in `folder`, which can be
    /// opened. The receiver gets the chosen cameras and files.
    ///
    /// # Errors
    /// As [`Self::start`]; `File` if the folder cannot be read.
    pub fn offering(address: &ListenAddress, folder: Option<&Path>) -> Result<(Self, Receiver<Chosen>)> {
        // Bounded by `MOST_ORDERS`: each request waits for an answer.
        let (chosen, is_chosen) = crossbeam_channel::unbounded();
        let offers = Offers::new(folder, chosen, Box::new(cameras::cameras))?;
        let page = Self::serve(address, Some(offers))?;
        Ok((page, is_chosen))
    }

    fn serve(address: &ListenAddress, offers: Option<Offers>) -> Result<Self> {
        // Waiting orders, decoded pictures, the folder, the search for cameras, and the painter.
        let blocking = MOST_ORDERS + MOST_SENT + 3;
        let (server, (shared, url)) = Server::start(address, "lockon-page", blocking, |at, over| {
            let guard = Guard::of(address, at)?;
            let url = url(at, guard.token());
            let shared = Arc::new(Shared::new(guard, offers, over));
            Ok((api::router(&shared), (shared, url)))
        })?;
        Ok(Self { shared, url, server })
    }

    /// The address to open in a browser, with the token if there is one.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Names the page in its titles.
    pub fn call(&self, name: &str) {
        self.shared.lobby.call(name);
    }

    /// Lists videos that wait until others have ended. Each is removed from the list when it is shown.
    pub fn announce(&self, names: impl IntoIterator<Item = String>) {
        self.shared.lobby.announce(names);
    }

    /// A video will not be shown: it has ended, or failed with this error, which the page shows.
    pub fn withdraw(&self, name: &str, error: Option<String>) {
        self.shared.lobby.withdraw(name, error);
    }

    /// All videos have ended: from now on the page can be closed in the browser.
    pub fn done(&self) {
        self.shared.lobby.done();
    }

    /// True once the page was closed with its button *Close lockon*.
    pub fn is_closed(&self) -> bool {
        self.shared.lobby.is_closed()
    }

    /// The number of browsers that show a video now.
    pub fn viewers(&self) -> usize {
        MOST_VIEWERS - self.shared.viewers.available_permits()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let viewers = self.shared.viewers.clone();
        // Slower browsers are disconnected.
        self.server
            .end_within(FAREWELL, async move { viewers.acquire_many(MOST_VIEWERS as u32).await.map(drop) });
    }
}

/// The address of the page, as a browser here or elsewhere can open it.
fn url(at: SocketAddr, token: Option<&str>) -> String {
    let mut door = at;
    if at.ip().is_unspecified() {
        door.set_ip(own_address(at).unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0))).ip());
    }
    match token {
        // Named `t`: values of `token` are removed from messages, and this one must be read.
        Some(token) => format!("http://{door}/?t={token}"),
        None => format!("http://{door}/"),
    }
}

/// This machine's address in the network. Sends nothing.
fn own_address(at: SocketAddr) -> Option<SocketAddr> {
    // Addresses for documentation (RFC 5737, RFC 3849): connecting a UDP socket only chooses a route.
    let (from, to) = if at.is_ipv4() { ("0.0.0.0:0", "192.0.2.1:9") } else { ("[::]:0", "[2001:db8::1]:9") };
    let socket = UdpSocket::bind(from).ok()?;
    socket.connect(to).ok()?;
    socket.local_addr().ok()
}
