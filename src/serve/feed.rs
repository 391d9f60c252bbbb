//! Pictures of a video in one size, made once for all who look at it, as long as somebody does.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use axum::body::Bytes;
use serde::Serialize;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{sleep_until, timeout};

use crate::error::catch_panic;
use crate::frame::Frame;
use crate::results::FrameRecord;

use super::picture::Painter;
use super::video::{Newest, Video};

/// Widths in which pictures are made; what is asked for is rounded up to one of them.
const WIDTHS: [usize; 5] = [320, 640, 960, 1280, 1920];

/// From one picture to the next.
const INTERVAL: Duration = Duration::from_nanos(1_000_000_000 / 15);

/// Pictures are made for so long after the last one who looks has gone: who asks for one after the other gets
/// them at the page's rate.
const LINGER: Duration = Duration::from_secs(2);

/// What is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Look {
    /// Most columns; `None` for as many as the video has.
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

/// A picture with what was found in it.
pub(super) struct Shot {
    pub(super) frame: u64,
    made: Instant,
    pub(super) jpeg: Bytes,
    /// As a browser gets it: the length of what follows, 32 bits, least significant byte first; an object, in
    /// JSON; the JPEG.
    pub(super) message: Bytes,
}

/// What is told of a picture: `Shot` in `openapi.json`.
#[derive(Serialize)]
struct Head<'a> {
    width: usize,
    height: usize,
    /// Width of a pixel over its height.
    aspect: f64,
    /// When the frame was captured, or else came, in milliseconds since 1970 by this machine's clock.
    captured_ms: f64,
    record: &'a FrameRecord,
}

impl Shot {
    fn of(
        Newest { frame, record, mask }: &Newest,
        look: Look,
        painter: &mut Painter,
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
        let message = [length.to_le_bytes().as_slice(), &head, &jpeg].concat();
        Ok(Self { frame: record.frame, made: Instant::now(), jpeg: jpeg.into(), message: message.into() })
    }
}

fn captured_ms(frame: &Frame) -> f64 {
    let age = frame.circumstances.captured.unwrap_or(frame.meta.arrived).elapsed();
    let captured = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
    captured.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1e3
}

/// The newest picture of one kind.
pub(super) struct Feed {
    newest: watch::Sender<Option<Arc<Shot>>>,
    /// Somebody is ready for the next one.
    wanted: Notify,
}

/// The newest pictures of one kind, as one sees them who looks.
pub(super) struct Pictures {
    video: Arc<Video>,
    feed: Arc<Feed>,
    newest: watch::Receiver<Option<Arc<Shot>>>,
}

impl Pictures {
    /// The next one that this one has not seen, which is then the newest. None is made unless somebody waits
    /// for it.
    pub(super) async fn next(&mut self) -> Option<Arc<Shot>> {
        // One may lie here already: made for somebody else, or not waited for to its end.
        if self.newest.has_changed().ok()? {
            let shot = self.newest.borrow_and_update().clone();
            if let Some(shot) = shot.filter(|shot| self.is_new(shot)) {
                return Some(shot);
            }
        }
        loop {
            self.feed.wanted.notify_one();
            self.newest.changed().await.ok()?;
            if let Some(shot) = self.newest.borrow_and_update().clone() {
                return Some(shot);
            }
        }
    }

    /// True unless a newer one can be had.
    fn is_new(&self, shot: &Shot) -> bool {
        let has_passed = |newest: &Newest| newest.record.frame != shot.frame;
        shot.made.elapsed() < INTERVAL || !self.video.newest().as_ref().is_some_and(has_passed)
    }
}

/// The newest pictures of a video: those who look at the same share them.
pub(super) fn subscribe(video: &Arc<Video>, look: Look, painters: &Arc<Semaphore>) -> Pictures {
    let mut feeds = video.feeds.lock().unwrap_or_else(PoisonError::into_inner);
    let feed = feeds.entry(look).or_insert_with(|| {
        let feed = Arc::new(Feed { newest: watch::Sender::new(None), wanted: Notify::new() });
        if look.is_mask {
            video.masks.fetch_add(1, Ordering::Relaxed);
        }
        tokio::spawn(paint(video.clone(), look, feed.clone(), painters.clone()));
        feed
    });
    let mut newest = feed.newest.subscribe();
    // The one that is there is new to whoever comes.
    newest.mark_changed();
    Pictures { video: video.clone(), feed: feed.clone(), newest }
}

/// Makes a picture of the newest frame whenever somebody waits for one, until nobody looks any more.
async fn paint(video: Arc<Video>, look: Look, feed: Arc<Feed>, painters: Arc<Semaphore>) {
    let mut frames = video.frames();
    frames.mark_changed();
    let (mut last, mut looked_at) = (tokio::time::Instant::now(), Instant::now());
    let mut painter = None;
    loop {
        let is_wanted = timeout(LINGER / 2, feed.wanted.notified()).await.is_ok();
        if feed.newest.receiver_count() > 0 {
            looked_at = Instant::now();
        } else if looked_at.elapsed() >= LINGER {
            let mut feeds = video.feeds.lock().unwrap_or_else(PoisonError::into_inner);
            // Whoever came while the lock was waited for is not left alone.
            if feed.newest.receiver_count() == 0 {
                feeds.remove(&look);
                if look.is_mask {
                    video.masks.fetch_sub(1, Ordering::Relaxed);
                }
                return;
            }
        }
        if !is_wanted {
            continue;
        }
        sleep_until(last + INTERVAL).await;
        if timeout(LINGER, frames.changed()).await.is_err() {
            // None comes: whoever waits goes on waiting.
            feed.wanted.notify_one();
            continue;
        }
        let Ok(_one_at_a_time) = painters.acquire().await else { return };
        frames.mark_unchanged();
        let Some(newest) = video.newest() else { continue };
        last = tokio::time::Instant::now();
        let before = painter.take();
        let shot = move || {
            let mut painter = match before {
                Some(painter) => painter,
                None => Painter::new().map_err(|error| error.to_string())?,
            };
            let shot = catch_panic(|| Shot::of(&newest, look, &mut painter)).and_then(|shot| shot)?;
            Ok::<_, String>((shot, painter))
        };
        match tokio::task::spawn_blocking(shot).await {
            Ok(Ok((shot, used))) => {
                painter = Some(used);
                feed.newest.send_replace(Some(Arc::new(shot)));
            }
            // With another one next time.
            Ok(Err(error)) => tracing::debug!("page: no picture: {error}"),
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_few_sizes() {
        let widths = [1, 320, 321, 1280, 1920, 1921, usize::MAX].map(|w| Look::new(Some(w), false).width);
        assert_eq!(widths, [Some(320), Some(320), Some(640), Some(1280), Some(1920), None, None]);
        assert_eq!(Look::new(None, true), Look { width: None, is_mask: true });
    }
}
