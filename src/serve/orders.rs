//! What is asked of a run on the page, and what the run answers.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;

use crate::change::Change;
use crate::control::Control;
use crate::error::{Error, Result};
use crate::frame::Rect;
use crate::orders::Reply;
use crate::still;
use crate::template::{self, Template};
use crate::text;

use super::Shared;
use super::video::Video;
use super::work::{place, work};

/// How long an answer waits for the frame from which an order holds.
const PATIENCE: Duration = Duration::from_secs(2);

/// The same while the run pauses and no frame is to come: what cannot be asked at all is answered at once.
const AT_ONCE: Duration = Duration::from_millis(50);

/// A box in a frame.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Drawn {
    /// `[x, y, w, h]`, in pixels.
    #[serde(rename = "box")]
    rect: [u32; 4],
    /// The frame that shows the box; the next one if there is none.
    frame: Option<u64>,
}

impl Drawn {
    fn rect(self) -> Rect {
        let [x, y, w, h] = self.rect.map(|length| length as usize);
        Rect::new(x, y, w, h)
    }
}

/// What an order comes to: `Answer` in `openapi.json`.
#[derive(Debug, Serialize)]
struct Answer {
    /// The track's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u32>,
    /// The frame from which it holds; `null` if that has not come yet.
    frame: Option<u64>,
}

/// Why something was not done, as an answer.
pub(super) struct Refused(StatusCode, String);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let Self(status, why) = self;
        (status, Json(serde_json::json!({ "error": text::for_people(&why) }))).into_response()
    }
}

pub(super) fn refuse(status: StatusCode, why: &str) -> Refused {
    Refused(status, why.to_owned())
}

/// Follows what is in a box. What waited for the first one goes on.
pub(super) async fn follow(shared: &Shared, video: &Arc<Video>, drawn: Drawn) -> Response {
    let waits = video.clone();
    let asked = move |control: &Control| {
        let reply = control.follow(drawn.rect(), drawn.frame)?;
        waits.has_work();
        Ok(reply)
    };
    let answer = ask(shared, video, asked).await;
    video.keep_frames();
    answer
}

/// A track's target is in a box.
pub(super) async fn correct(shared: &Shared, video: &Arc<Video>, id: u32, drawn: Drawn) -> Response {
    ask(shared, video, move |control| control.correct(id, drawn.rect(), drawn.frame)).await
}

/// Follows one track no more, or none.
pub(super) async fn forget(shared: &Shared, video: &Arc<Video>, id: Option<u32>) -> Response {
    ask(shared, video, move |control| id.map_or_else(|| control.clear(), |id| control.forget(id))).await
}

/// Changes what is searched: what of it is said, or nothing if something of it cannot be done.
pub(super) async fn change(shared: &Shared, video: &Arc<Video>, change: Change) -> Response {
    if change.is_empty() {
        return refuse(StatusCode::BAD_REQUEST, "nothing is to be changed").into_response();
    }
    let (waits, is_work) = (video.clone(), !change.add.is_empty() || change.threshold.is_some());
    let asked = move |control: &Control| {
        let reply = control.change(change)?;
        if is_work {
            waits.has_work();
        }
        Ok(reply)
    };
    ask(shared, video, asked).await
}

/// Searches for a picture too: a PNG, JPEG or BMP file, whose alpha channel is the mask. It is decoded in its
/// place among those that are sent.
pub(super) async fn add(
    shared: &Shared,
    video: &Arc<Video>,
    name: String,
    picture: Bytes,
    place: OwnedSemaphorePermit,
) -> Response {
    let read = move || -> Result<Template> {
        let still = still::decode(&picture, name.as_ref(), template::MAX_PIXELS)?;
        Template::new(name, still.luma, still.alpha.as_ref())
    };
    match work(place, read).await {
        Ok(Ok(template)) => change(shared, video, Change::adding(template)).await,
        Ok(Err(error)) => refuse(StatusCode::BAD_REQUEST, &error.to_string()).into_response(),
        Err(_) => refuse(StatusCode::BAD_REQUEST, "this picture cannot be read").into_response(),
    }
}

/// Searches for what is in a box too, cut from the frame as it was decoded.
pub(super) async fn cut(shared: &Shared, video: &Arc<Video>, name: String, drawn: Drawn) -> Response {
    let Some(frame) = video.frame(drawn.frame) else {
        let which = drawn.frame.map_or_else(|| "the first".into(), |frame| frame.to_string());
        let why =
            format!("frame {which} is not here: it has passed, or has not come (pause, and draw again)");
        return refuse(StatusCode::CONFLICT, &why).into_response();
    };
    let cut = move || -> Result<Template> {
        let (rect, size) = (drawn.rect(), frame.format.size);
        if !rect.is_inside(size) {
            return Err(Error::Outside { what: "template", rect, frame: size });
        }
        Template::new(name, frame.luma().crop(rect).to_plane(), None)
    };
    let Some(place) = place(&shared.orders) else { return too_many().into_response() };
    match work(place, cut).await {
        Ok(Ok(template)) => change(shared, video, Change::adding(template)).await,
        Ok(Err(error)) => refuse(StatusCode::CONFLICT, &error.to_string()).into_response(),
        Err(_) => refuse(StatusCode::CONFLICT, "this cannot be cut out").into_response(),
    }
}

fn too_many() -> Refused {
    refuse(StatusCode::SERVICE_UNAVAILABLE, "too many orders wait for their frame")
}

/// Asks a run, and waits for its answer without holding anybody up.
async fn ask(shared: &Shared, video: &Arc<Video>, order: impl FnOnce(&Control) -> Result<Reply>) -> Response {
    let Some(place) = place(&shared.orders) else { return too_many().into_response() };
    let control = &video.shown.control;
    let reply = match order(control) {
        Ok(reply) => reply,
        Err(error) => return refuse(StatusCode::CONFLICT, &error.to_string()).into_response(),
    };
    let id = reply.id();
    let patience = if control.is_paused() { AT_ONCE } else { PATIENCE };
    match work(place, move || reply.poll_for(patience)).await {
        Ok(Some(Ok(frame))) => Json(Answer { id, frame: Some(frame) }).into_response(),
        Ok(Some(Err(error))) => refuse(StatusCode::CONFLICT, &error.to_string()).into_response(),
        // It will be done before the next frame.
        Ok(None) => (StatusCode::ACCEPTED, Json(Answer { id, frame: None })).into_response(),
        Err(_) => refuse(StatusCode::SERVICE_UNAVAILABLE, "the page ends").into_response(),
    }
}
