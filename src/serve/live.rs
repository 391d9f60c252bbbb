//! A browser that looks at a video: pictures go out as fast as it shows them, never faster, and what it
//! missed is not sent later.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::feed::Pictures;
use super::video::{Video, Viewer};

/// Pictures on their way that were not shown yet: one is shown while the next one comes.
const MOST_UNSHOWN: u32 = 2;

/// From one report to the next.
const REPORT: Duration = Duration::from_millis(500);

/// From one question whether anybody is there to the next.
const PING: Duration = Duration::from_secs(10);

/// Whoever says nothing for so long, not even that he is there, has gone.
const SILENCE: Duration = Duration::from_secs(30);

/// Whoever takes nothing for so long has gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// Most messages from one report to the next.
const MOST_HEARD: u32 = 200;

/// Most bytes of a reason to close (RFC 6455, section 5.5, less its code).
const MOST_REASON: usize = 123;

/// Most bytes of a message that is heard.
pub(super) const MOST_BYTES: usize = 1024;

/// What a browser says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
struct Said {
    /// It has shown so many pictures since it said so last.
    #[serde(default)]
    shown: u32,
    /// A box is being drawn, on a picture that stands still; or no more.
    drawing: Option<bool>,
}

/// Shows a video until either side has enough.
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

/// As much of a reason as a message that closes may have.
fn first_bytes(why: &str) -> &str {
    &why[..why.floor_char_boundary(MOST_REASON)]
}

fn report(video: &Video) -> Message {
    // Plain data, whose keys are text, cannot fail to be written.
    Message::Text(serde_json::to_string(&video.status()).unwrap_or_default().into())
}

/// Who looks.
struct Browser {
    viewer: Viewer,
    /// Pictures that were sent, and of which it has not said that they were shown.
    unshown: u32,
    /// Messages since the last report.
    heard: u32,
    heard_at: Instant,
}

impl Browser {
    /// False for what no page of ours says: then it is left.
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
