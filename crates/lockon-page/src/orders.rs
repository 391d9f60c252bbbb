//! Orders from the page to a run, and the run's answers.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;

use lockon_core::change::Change;
use lockon_core::config::{CountingLine, Zone};
use lockon_core::control::Control;
use lockon_core::error::{Error, Result};
use lockon_core::frame::Rect;
use lockon_core::orders::Reply;
use lockon_core::template::{self, Template};
use lockon_core::text;
use lockon_gst::stills;

use super::Shared;
use super::asked::Form;
use super::video::{MOST_TEMPLATE_BYTES, Video};
use super::work::{place, work};

/// How long an answer waits for the first frame for which an order counts.
const PATIENCE: Duration = Duration::from_secs(2);

/// As `PATIENCE`, for a run that pauses: only orders that are refused at once are answered by then.
const AT_ONCE: Duration = Duration::from_millis(50);

/// The reason why a run accepts no more orders.
pub(super) const ENDED: &str = "the run has ended";

/// A box in a frame.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Drawn {
    /// `[x, y, w, h]`, in pixels.
    #[serde(rename = "box")]
    rect: [u32; 4],
    /// The frame that shows the box; `None` is the next one.
    frame: Option<u64>,
}

impl Form for Drawn {
    const FORM: &'static str =
        "{\"box\": [X, Y, W, H], \"frame\": N}, whole numbers of pixels, and the frame if wanted";
}

impl Drawn {
    fn rect(self) -> Rect {
        let [x, y, w, h] = self.rect.map(|length| length as usize);
        Rect::new(x, y, w, h)
    }
}

/// The answer to an order: `Answer` in `openapi.json`.
#[derive(Debug, Serialize)]
struct Answer {
    /// The track's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u32>,
    /// The first frame for which it counts; `null` if that has not come yet.
    frame: Option<u64>,
}

/// A refusal with its reason. Every error of the API has this form.
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

/// Follows the content of a box. A run that waited for its first box resumes.
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

/// Corrects a track: its target is in this box.
pub(super) async fn correct(shared: &Shared, video: &Arc<Video>, id: u32, drawn: Drawn) -> Response {
    ask(shared, video, move |control| control.correct(id, drawn.rect(), drawn.frame)).await
}

/// Forgets a track, or all.
pub(super) async fn forget(shared: &Shared, video: &Arc<Video>, id: Option<u32>) -> Response {
    ask(shared, video, move |control| id.map_or_else(|| control.clear(), |id| control.forget(id))).await
}

/// Watches a zone, or moves the one of its name.
pub(super) async fn set_zone(shared: &Shared, video: &Arc<Video>, zone: Zone) -> Response {
    ask(shared, video, move |control| control.set_zone(zone)).await
}

/// Stops watching a zone.
pub(super) async fn remove_zone(shared: &Shared, video: &Arc<Video>, name: String) -> Response {
    ask(shared, video, move |control| control.remove_zone(name)).await
}

/// Counts across a line, or moves the one of its name.
pub(super) async fn set_line(shared: &Shared, video: &Arc<Video>, line: CountingLine) -> Response {
    ask(shared, video, move |control| control.set_line(line)).await
}

/// Removes a line.
pub(super) async fn remove_line(shared: &Shared, video: &Arc<Video>, name: String) -> Response {
    ask(shared, video, move |control| control.remove_line(name)).await
}

/// Changes the search: all of it, or nothing if a part cannot be done.
pub(super) async fn change(shared: &Shared, video: &Arc<Video>, change: Change) -> Response {
    if change.is_empty() {
        return refuse(StatusCode::BAD_REQUEST, "the change is empty: give at least one key").into_response();
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

/// Adds a template from a picture file; its alpha channel is the mask. `place` limits how many are decoded
/// at the same time.
pub(super) async fn add(
    shared: &Shared,
    video: &Arc<Video>,
    name: String,
    picture: Bytes,
    place: OwnedSemaphorePermit,
) -> Response {
    let read = move || -> Result<Template> {
        let still = stills::decode(&picture, name.as_ref(), template::MAX_PIXELS)?;
        Template::new(name, still.luma, still.alpha.as_ref())
    };
    match work(place, measured(read)).await {
        Ok(Ok(measured)) => add_measured(shared, video, measured).await,
        Ok(Err(error)) => refuse(StatusCode::BAD_REQUEST, &error.to_string()).into_response(),
        Err(_) => refuse(StatusCode::BAD_REQUEST, "the picture cannot be read").into_response(),
    }
}

/// Adds a template that is cut from a box of the decoded frame.
pub(super) async fn cut(shared: &Shared, video: &Arc<Video>, name: String, drawn: Drawn) -> Response {
    let Some(frame) = video.frame(drawn.frame) else {
        let newest = video.newest().map(|newest| newest.record.frame);
        let why = match (drawn.frame, newest) {
            (Some(frame), Some(newest)) if frame <= newest => {
                format!("frame {frame} has passed and is not kept: pause, and draw again")
            }
            (Some(frame), Some(newest)) => format!("frame {frame} has not come: the newest is {newest}"),
            (_, None) | (None, _) => "no frame has come yet".into(),
        };
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
    match work(place, measured(cut)).await {
        Ok(Ok(measured)) => add_measured(shared, video, measured).await,
        Ok(Err(error)) => refuse(StatusCode::CONFLICT, &error.to_string()).into_response(),
        Err(_) => refuse(StatusCode::CONFLICT, "the template cannot be cut from the frame").into_response(),
    }
}

/// A template, and the bytes that it takes in a record.
type Measured = (Template, usize);

/// Makes a template and its text for records, on a thread that may wait: the engine's must not.
fn measured(make: impl FnOnce() -> Result<Template>) -> impl FnOnce() -> Result<Measured> {
    move || make().map(|template| (template.clone(), template.record_bytes()))
}

/// Adds a template, unless earlier ones fill the records already.
async fn add_measured(shared: &Shared, video: &Arc<Video>, (template, bytes): Measured) -> Response {
    if !video.has_room_for_template(bytes) {
        let why = format!(
            "templates of {} MB were added to this run already, and each stays in its results: start another run",
            MOST_TEMPLATE_BYTES >> 20
        );
        return refuse(StatusCode::CONFLICT, &why).into_response();
    }
    change(shared, video, Change::adding(template)).await
}

fn too_many() -> Refused {
    refuse(StatusCode::SERVICE_UNAVAILABLE, "too many orders wait for their frame: try again")
}

/// Gives an order to a run and waits for its answer on another thread.
async fn ask(shared: &Shared, video: &Arc<Video>, order: impl FnOnce(&Control) -> Result<Reply>) -> Response {
    if video.has_ended() {
        return refuse(StatusCode::CONFLICT, ENDED).into_response();
    }
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
        // The order waits for the next frame.
        Ok(None) => (StatusCode::ACCEPTED, Json(Answer { id, frame: None })).into_response(),
        Err(_) => refuse(StatusCode::SERVICE_UNAVAILABLE, "lockon is ending").into_response(),
    }
}
