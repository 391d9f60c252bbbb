//! A connected browser: gets pictures as fast as it shows them, never faster, and none that it missed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::feed::Pictures;
use super::video::{Video, Viewer};

/// Maximum pictures sent but not shown yet: one is shown while the next one arrives.
const MOST_UNSHOWN: u32 = 2;

/// Time between two reports.
const REPORT: Duration = Duration::from_millis(500);

/// Time between two pings.
const PING: Duration = Duration::from_secs(10);

/// A browser that sends nothing for this long, not even a pong, is gone.
const SILENCE: Duration = Duration::from_secs(30);

/// A browser that receives nothing for this long is gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// Maximum messages between two reports.
const MOST_HEARD: u32 = 200;

/// Maximum bytes of the reason in a close message (RFC 6455, section 5.5, without its code).
const MOST_REASON: usize = 123;

/// Maximum bytes of a received message.
pub(super) const MOST_BYTES: usize = 1024;

/// A message of a browser.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
struct Said {
    /// Number of pictures shown since the last message.
    #[serde(default)]
    shown: u32,
    /// Drawing on a still picture has begun (`true`) or ended (`false`).
    drawing: Option<bool>,
}

/// Sends pictures and reports until either side closes the connection.
pub(super) async fn show(
    mut socket: WebSocket,
    mut over: watch::Receiver<bool>,
    video: Arc<Video>,
    mut pictures: Pictures,
) {
    let mut browser = Browser { viewer: video.look(), unshown: 0, heard: 0, heard_at: Instant::now() };
    let mut changes = video.changes();
    let [mut reports, mut pings] = [REPORT, PING].map(interval);
    reports.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let message = tokio::select! {
            said = socket.recv() => match said {
                Some(Ok(said)) if browser.hear(&said) => continue,
                _ => return,
            },
            made = pictures.next(), if browser.unshown < MOST_UNSHOWN => match made {
                Ok(shot) => {
                    browser.unshown += 1;
                    Message::Binary(shot.message.clone())
                }
                Err(why) => {
                    let close = CloseFrame { code: close_code::ERROR, reason: first_bytes(&why).into() };
                    let _ = timeout(REPORT, socket.send(Message::Close(Some(close)))).await;
                    return;
                }
            },
            _ = reports.tick() => {
                browser.heard = 0;
                report(&video)
            }
            _ = changes.changed() => report(&video),
            _ = pings.tick() => {
                if browser.heard_at.elapsed() > SILENCE {
                    return;
                }
                Message::Ping(Bytes::new())
            }
            _ = over.changed() => {
                for last in [report(&video), Message::Close(None)] {
                    let _ = timeout(REPORT, socket.send(last)).await;
                }
                return;
            }
        };
        if !matches!(timeout(PATIENCE, socket.send(message)).await, Ok(Ok(()))) {
            return;
        }
    }
}

/// The reason, shortened to fit a close message.
fn first_bytes(why: &str) -> &str {
    &why[..why.floor_char_boundary(MOST_REASON)]
}

fn report(video: &Video) -> Message {
    // Serialising plain data with text keys cannot fail.
    Message::Text(serde_json::to_string(&video.status()).unwrap_or_default().into())
}

/// The state of a connection.
struct Browser {
    viewer: Viewer,
    /// Pictures that were sent and not confirmed.
    unshown: u32,
    /// Messages since the last report.
    heard: u32,
    heard_at: Instant,
}

impl Browser {
    /// Handles a message; false, which closes the connection, if our page does not send such messages.
    fn hear(&mut self, said: &Message) -> bool {
        self.heard += 1;
        self.heard_at = Instant::now();
        if self.heard > MOST_HEARD {
            return false;
        }
        match said {
            Message::Text(text) => {
                let Ok(Said { shown, drawing }) = serde_json::from_str(text) else { return false };
                self.unshown = self.unshown.saturating_sub(shown);
                if let Some(draws) = drawing {
                    self.viewer.draw(draws);
                }
                true
            }
            Message::Ping(_) | Message::Pong(_) => true,
            Message::Binary(_) | Message::Close(_) => false,
        }
    }
}
