//! Pictures of a video in one size and view, made once for all browsers that show them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use axum::body::Bytes;
use serde::Serialize;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep_until, timeout};

use lockon_core::error::catch_panic;
use lockon_core::frame::Frame;
use lockon_core::results::FrameRecord;
use lockon_core::text;

use super::Shared;
use super::picture::PicturePainter;
use super::video::{Newest, Video};
use super::work::{place, work};

/// Widths of pictures; requests are rounded up to one of them.
const WIDTHS: [usize; 5] = [320, 640, 960, 1280, 1920];

/// Shortest time between two pictures.
const INTERVAL: Duration = Duration::from_nanos(1_000_000_000 / 15);

/// How long a feed stays after its last browser: a client that requests single pictures gets them at the full
/// rate.
const LINGER: Duration = Duration::from_secs(2);

/// The width and view of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Look {
    /// Maximum columns; `None` is the video's own width.
    width: Option<usize>,
    /// The thresholded picture.
    is_mask: bool,
}

impl Look {
    pub(super) fn new(width: Option<usize>, is_mask: bool) -> Self {
        let width = width.and_then(|width| WIDTHS.into_iter().find(|offered| *offered >= width));
        Self { width, is_mask }
    }
}

/// A picture with the results of its frame.
pub(super) struct Shot {
    pub(super) frame: u64,
    made: Instant,
    pub(super) jpeg: Bytes,
    /// The WebSocket message: the length of the JSON object (32 bits, least significant byte first), the
    /// object, the JPEG.
    pub(super) message: Bytes,
}

/// The description of a picture: `Shot` in `openapi.json`.
#[derive(Serialize)]
struct Head<'a> {
    width: usize,
    height: usize,
    /// Width of a pixel over its height.
    aspect: f64,
    /// When the frame was captured, or arrived, in milliseconds since 1970 by this machine's clock.
    captured_ms: f64,
    record: &'a FrameRecord,
}

impl Shot {
    fn of(
        Newest { frame, record, mask }: &Newest,
        look: Look,
        painter: &mut PicturePainter,
    ) -> Result<Self, String> {
        let jpeg = match mask {
            Some(mask) if look.is_mask => painter.mask(mask.plane(0), look.width),
            _ => painter.picture(frame, look.width),
        }
        .map_err(|error| error.to_string())?;
        let size = frame.format.size;
        let (wide, high) = frame.format.pixel_aspect;
        let aspect = if wide > 0 && high > 0 { f64::from(wide) / f64::from(high) } else { 1.0 };
        let head =
            Head { width: size.width, height: size.height, aspect, captured_ms: captured_ms(frame), record };
        let head = serde_json::to_vec(&head).map_err(|error| error.to_string())?;
        let length = u32::try_from(head.len()).map_err(|error| error.to_string())?;
        let message = Bytes::from([length.to_le_bytes().as_slice(), &head, &jpeg].concat());
        let jpeg = message.slice(message.len() - jpeg.len()..);
        Ok(Self { frame: record.frame, made: Instant::now(), jpeg, message })
    }
}

fn captured_ms(frame: &Frame) -> f64 {
    let age = frame.circumstances.captured.unwrap_or(frame.meta.arrived).elapsed();
    let captured = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
    captured.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1e3
}

/// A picture, or the reason why there are no more.
type Made = Result<Arc<Shot>, Arc<str>>;

/// The newest picture of one width and view.
pub(super) struct Feed {
    newest: watch::Sender<Option<Made>>,
    /// A browser is ready for the next one.
    wanted: Notify,
}

/// A subscription to a feed.
pub(super) struct Pictures {
    video: Arc<Video>,
    feed: Arc<Feed>,
    newest: watch::Receiver<Option<Made>>,
}

impl Pictures {
    /// The newest picture, once there is one that this subscription has not seen. Pictures are made only
    /// while a subscriber waits for one.
    ///
    /// # Errors
    /// The reason why there are no more. A new subscription may work.
    pub(super) async fn next(&mut self) -> Made {
        let ends = |_| Arc::from("lockon is ending");
        // There may be one already, made for another subscriber.
        if self.newest.has_changed().map_err(ends)? {
            let made = self.newest.borrow_and_update().clone();
            if let Some(made) = made.filter(|made| made.as_ref().map_or(true, |shot| self.is_new(shot))) {
                return made;
            }
        }
        loop {
            self.feed.wanted.notify_one();
            self.newest.changed().await.map_err(ends)?;
            if let Some(made) = self.newest.borrow_and_update().clone() {
                return made;
            }
        }
    }

    /// True unless a newer frame has come.
    fn is_new(&self, shot: &Shot) -> bool {
        let has_passed = |newest: &Newest| newest.record.frame != shot.frame;
        shot.made.elapsed() < INTERVAL || !self.video.newest().as_ref().is_some_and(has_passed)
    }
}

/// Subscribes to a feed of a video, which is started if there is none. `None` if there are too many feeds.
pub(super) fn subscribe(video: &Arc<Video>, look: Look, shared: &Shared) -> Option<Pictures> {
    let mut feeds = video.feeds();
    let feed = if let Some(feed) = feeds.get(&look) {
        feed.clone()
    } else {
        let place = place(&shared.feeds)?;
        let feed = Arc::new(Feed { newest: watch::Sender::new(None), wanted: Notify::new() });
        feeds.insert(look, feed.clone());
        if look.is_mask {
            video.masks.fetch_add(1, Ordering::Relaxed);
        }
        let listed = Listed { video: video.clone(), look, feed: feed.clone(), _place: place };
        tokio::spawn(paint(listed, shared.painters.clone()));
        feed
    };
    let mut newest = feed.newest.subscribe();
    // The current picture is new to this subscriber.
    newest.mark_changed();
    Some(Pictures { video: video.clone(), feed, newest })
}

/// Keeps a feed in the list of its video until this is dropped, for whatever reason.
struct Listed {
    video: Arc<Video>,
    look: Look,
    feed: Arc<Feed>,
    _place: OwnedSemaphorePermit,
}

impl Listed {
    /// Leaves the list unless the feed has subscribers.
    fn leaves(&self) -> bool {
        let mut feeds = self.video.feeds();
        // Checked under the lock: a subscriber may have come meanwhile.
        let leaves = self.feed.newest.receiver_count() == 0;
        if leaves {
            feeds.remove(&self.look);
        }
        leaves
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.feed.newest.send_if_modified(|made| {
            let waits_on = !matches!(made, Some(Err(_)));
            if waits_on {
                *made = Some(Err("lockon is ending".into()));
            }
            waits_on
        });
        let mut feeds = self.video.feeds();
        if feeds.get(&self.look).is_some_and(|listed| Arc::ptr_eq(listed, &self.feed)) {
            feeds.remove(&self.look);
        }
        if self.look.is_mask {
            self.video.masks.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Makes pictures of the newest frame on demand, until the last subscriber is gone or a picture cannot be
/// made.
async fn paint(listed: Listed, painters: Arc<Semaphore>) {
    let Listed { video, look, feed, .. } = &listed;
    let look = *look;
    let mut frames = video.frames();
    frames.mark_changed();
    let (mut last, mut looked_at) = (tokio::time::Instant::now(), Instant::now());
    let mut painter = None;
    loop {
        let is_wanted = timeout(LINGER / 2, feed.wanted.notified()).await.is_ok();
        if feed.newest.receiver_count() > 0 {
            looked_at = Instant::now();
        } else if looked_at.elapsed() >= LINGER && listed.leaves() {
            return;
        }
        if !is_wanted {
            continue;
        }
        sleep_until(last + INTERVAL).await;
        if timeout(LINGER, frames.changed()).await.is_err() {
            // No frame has come: subscribers continue to wait.
            feed.wanted.notify_one();
            continue;
        }
        let Ok(one_at_a_time) = painters.clone().acquire_owned().await else { return };
        frames.mark_unchanged();
        let Some(newest) = video.newest() else {
            // No frame yet, or it ended with its device.
            feed.wanted.notify_one();
            continue;
        };
        last = tokio::time::Instant::now();
        let before: Option<PicturePainter> = painter.take();
        let shot = move || {
            catch_panic(|| {
                let mut painter =
                    before.map_or_else(PicturePainter::new, Ok).map_err(|error| error.to_string())?;
                Shot::of(&newest, look, &mut painter).map(|shot| (shot, painter))
            })
            .and_then(|made| made)
        };
        match work(one_at_a_time, shot).await {
            Ok(Ok((shot, used))) => {
                painter = Some(used);
                feed.newest.send_replace(Some(Ok(Arc::new(shot))));
            }
            Ok(Err(error)) => {
                tracing::debug!("page: no picture: {error}");
                let why = format!("no picture can be made: {}", text::for_people(&error));
                feed.newest.send_replace(Some(Err(why.into())));
                return;
            }
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::guard::Guard;
    use super::super::{MOST_FEEDS, rehearsal};
    use super::*;
    use lockon_core::frame::{Picture, PlaneRef};
    use lockon_gst::launch;

    #[test]
    fn there_are_few_sizes() {
        let widths = [1, 320, 321, 1280, 1920, 1921, usize::MAX].map(|w| Look::new(Some(w), false).width);
        assert_eq!(widths, [Some(320), Some(320), Some(640), Some(1280), Some(1920), None, None]);
        assert_eq!(Look::new(None, true), Look { width: None, is_mask: true });
    }

    struct Broken;

    impl Picture for Broken {
        fn plane(&self, _: usize) -> PlaneRef<'_> {
            panic!("on purpose");
        }
    }

    fn on_a_page(test: impl AsyncFnOnce(Arc<Shared>)) {
        launch::init().unwrap();
        let guard = Guard::of(&"80".parse().unwrap(), ([127, 0, 0, 1], 80).into()).unwrap();
        let (_over, is_over) = watch::channel(false);
        let shared = Arc::new(Shared::new(guard, None, is_over));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(test(shared));
    }

    #[test]
    fn after_a_picture_that_cannot_be_made_whoever_comes_next_gets_one() {
        on_a_page(async |shared| {
            let video = shared.videos().add(rehearsal::shown(), &shared);
            for look in [false, true].map(|is_mask| Look::new(None, is_mask)) {
                rehearsal::deliver(&video, 7, Arc::new(Broken));
                let mut both = [(); 2].map(|()| subscribe(&video, look, &shared).unwrap());
                for pictures in &mut both {
                    let why = pictures.next().await.err().unwrap();
                    assert_eq!(&*why, "no picture can be made: on purpose");
                }
                assert_eq!(video.masks.load(Ordering::Relaxed), 0);
                rehearsal::deliver(&video, 8, rehearsal::plane());
                let shot = subscribe(&video, look, &shared).unwrap().next().await.ok().unwrap();
                assert_eq!(shot.frame, 8);
                assert_eq!(video.masks.load(Ordering::Relaxed), usize::from(look.is_mask));
            }
        });
    }

    #[test]
    fn who_asks_before_the_first_frame_gets_it_when_it_comes() {
        on_a_page(async |shared| {
            let video = shared.videos().add(rehearsal::shown(), &shared);
            let mut pictures = subscribe(&video, Look::new(None, false), &shared).unwrap();
            let waits = tokio::spawn(async move { pictures.next().await.map(|shot| shot.frame) });
            // Lets the feed look for a frame and find none.
            tokio::time::sleep(INTERVAL * 3).await;
            rehearsal::deliver(&video, 0, rehearsal::plane());
            assert_eq!(waits.await.unwrap().ok(), Some(0));
        });
    }

    #[test]
    fn no_more_kinds_of_pictures_are_made_than_there_are_places() {
        on_a_page(async |shared| {
            let videos: Vec<_> =
                (0..MOST_FEEDS).map(|_| shared.videos().add(rehearsal::shown(), &shared)).collect();
            let small = Look::new(Some(1), false);
            let looks: Vec<_> =
                videos.iter().map(|video| subscribe(video, small, &shared).unwrap()).collect();
            assert!(subscribe(&videos[0], Look::new(Some(640), false), &shared).is_none());
            // An existing feed accepts more subscribers.
            assert!(subscribe(&videos[0], small, &shared).is_some());
            drop(looks);
        });
    }
}
