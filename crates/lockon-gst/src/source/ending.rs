//! Decides whether a live source that ended was meant to end.
//!
//! GStreamer has one end of stream for different events of a live source: `rtspsrc` sends it when the server
//! says goodbye, and also, without a message on the bus, when a frozen server has sent nothing for 25 s (its
//! RTP session drops the sender). The second must not end a run as the first does. They differ as follows:
//!
//! - **RTSP and RTP**: a sender that ends sends an RTCP BYE (RFC 3550, 6.6). With it the end is real; without
//!   it the sender was lost.
//! - **A camera** has no end: an end is a loss. So is the end of JPEG pictures over HTTP.
//! - **Everything else** (SRT, TCP, a user's own text such as `videotestsrc is-live=true num-buffers=50`) has
//!   no message for it. An end that comes with the last frames was intended; one that comes after [`QUIET`]
//!   of silence counts as a time-out.
//!
//! A closed connection is reported by a warning on the bus, which [`super::VideoSource`] handles before this.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gst::prelude::*;
use lockon_core::locks::lock;

/// An end this long after the last frame is a time-out, not the end of the stream. Shorter than the time-outs
/// of GStreamer's network sources, longer than a sender needs from its last frame to its goodbye.
const QUIET: Duration = Duration::from_secs(5);

/// Jitter buffers and decoders deliver their last frames at the end: frames so shortly before it do not end a
/// silence.
const DRAIN: Duration = Duration::from_secs(1);

/// Events of a pipeline's elements that show whether a source was lost or has ended.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// Something in the pipeline receives RTP by way of `rtspsrc`.
    is_rtsp: AtomicBool,
    /// It is a camera over HTTP, whose response has no end.
    is_endless: AtomicBool,
    /// The sender has said goodbye, and no sender has started since.
    said_goodbye: AtomicBool,
    last_frame: Mutex<LastFrame>,
}

/// The time of the last frame.
#[derive(Debug, Default)]
struct LastFrame {
    at: Option<Instant>,
    /// The last silence that a frame ended: when, and how long it was.
    broken: Option<(Instant, Duration)>,
    /// The time from then to the end.
    silence: Option<Duration>,
}

impl Ending {
    /// Listens to the elements that the pipeline has and to those that it will have.
    pub(super) fn watch(pipeline: &gst::Pipeline) -> Arc<Self> {
        let ending = Arc::new(Self::default());
        for element in pipeline.iterate_recurse().into_iter().flatten() {
            ending.meet(&element);
        }
        let of_later = Arc::clone(&ending);
        pipeline.connect_deep_element_added(move |_, _, element| of_later.meet(element));
        ending
    }

    fn meet(self: &Arc<Self>, element: &gst::Element) {
        let Some(factory) = element.factory() else { return };
        match factory.name().as_str() {
            "rtspsrc" => self.is_rtsp.store(true, Ordering::Relaxed),
            "rtpbin" => {
                for (signal, is_goodbye) in [("on-bye-ssrc", true), ("on-new-ssrc", false)] {
                    let ending = Arc::clone(self);
                    element.connect(signal, false, move |_| {
                        ending.said_goodbye.store(is_goodbye, Ordering::Relaxed);
                        None
                    });
                }
            }
            _ => {}
        }
    }

    /// A frame has come; on the streaming thread.
    pub(super) fn hear_frame(&self, at: Instant) {
        let mut last_frame = self.last_frame();
        let silence = last_frame.at.map_or(Duration::ZERO, |before| at.saturating_duration_since(before));
        if silence > QUIET {
            last_frame.broken = Some((at, silence));
        }
        last_frame.at = Some(at);
    }

    /// The end has come; on the streaming thread.
    pub(super) fn hear_end(&self) {
        let mut last_frame = self.last_frame();
        let drained = last_frame
            .broken
            .filter(|(at, _)| at.elapsed() < DRAIN)
            .map_or(Duration::ZERO, |(_, silence)| silence);
        last_frame.silence = last_frame.at.map(|at| drained + at.elapsed());
    }

    /// It is a camera over HTTP: an end is a connection that the server closed.
    pub(super) fn expect_no_end(&self) {
        self.is_endless.store(true, Ordering::Relaxed);
    }

    /// True for a camera over HTTP.
    pub(super) fn is_endless(&self) -> bool {
        self.is_endless.load(Ordering::Relaxed)
    }

    /// True if the sender has said that it ends.
    pub(super) fn is_goodbye(&self) -> bool {
        self.said_goodbye.load(Ordering::Relaxed)
    }

    /// Returns why the end of a live source is a loss, or `None` if it may well have been meant.
    pub(super) fn loss(&self, is_camera: bool) -> Option<String> {
        if self.is_goodbye() {
            return None;
        }
        if self.is_endless() {
            return Some("the server closed the connection".into());
        }
        let silence = self.last_frame().silence.unwrap_or_default();
        let is_rtsp = self.is_rtsp.load(Ordering::Relaxed);
        if silence > QUIET {
            let seconds = silence.as_secs();
            return Some(format!("it sent nothing for {seconds} s and was given up"));
        }
        match () {
            () if is_rtsp => Some("it ended without the goodbye (RTCP BYE) of a stream that is over".into()),
            () if is_camera => Some("the camera ended by itself".into()),
            () => None,
        }
    }

    fn last_frame(&self) -> lockon_core::locks::MutexGuard<'_, LastFrame> {
        lock(&self.last_frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_after_silence_is_a_loss_and_one_with_a_goodbye_is_not() {
        let ending = Ending::default();
        assert_eq!(ending.loss(false), None);
        assert!(ending.loss(true).is_some(), "a camera has no end");
        ending.hear_frame(Instant::now().checked_sub(Duration::from_secs(25)).unwrap());
        ending.hear_end();
        assert_eq!(ending.loss(false).unwrap(), "it sent nothing for 25 s and was given up");
        ending.said_goodbye.store(true, Ordering::Relaxed);
        assert_eq!(ending.loss(false), None);
    }

    #[test]
    fn frames_that_are_drained_at_the_end_do_not_end_a_silence() {
        let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
        let ending = Ending::default();
        ending.hear_frame(ago(25));
        ending.hear_frame(Instant::now());
        ending.hear_frame(Instant::now());
        ending.hear_end();
        assert!(ending.loss(false).unwrap().starts_with("it sent nothing for 2"));
        // A source that continued for longer was not lost.
        let ending = Ending::default();
        for seconds in [25, 3, 2, 1, 0] {
            ending.hear_frame(ago(seconds));
        }
        ending.hear_end();
        assert_eq!(ending.loss(false), None);
    }

    #[test]
    fn an_end_of_rtsp_without_a_goodbye_is_a_loss_at_any_time() {
        let ending = Ending::default();
        ending.is_rtsp.store(true, Ordering::Relaxed);
        ending.hear_frame(Instant::now());
        ending.hear_end();
        assert!(ending.loss(false).unwrap().contains("RTCP BYE"));
    }
}
