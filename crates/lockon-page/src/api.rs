//! The HTTP API. `page/openapi.json` describes it; the page in the browser uses nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{DefaultBodyLimit, FromRequest, Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE, LOCATION, SET_COOKIE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};

use lockon_core::change::{self, Change};
use lockon_core::config::{CountingLine, ObjectSpec, Speed, Zone};
use lockon_core::results::{FrameRecord, Record};
use lockon_core::text;

use super::Shared;
use super::asked::{Form, Path, Query, Sent, sent};
use super::feed::{self, Look};
use super::guard::Verdict;
use super::live;
use super::lobby::About;
use super::offers::{Offered, Offers, Wish};
use super::orders::{self, Drawn, Refused, refuse};
use super::video::{MOST_LETTERS, Status, Video};
use super::work::place;

/// Maximum bytes of a request's body.
const MOST_BODY: usize = 16 << 10;

/// Maximum bytes of a template picture.
const MOST_PICTURE: usize = 8 << 20;

/// Time limit of a request and its answer, except for streams.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long a request waits for the first picture.
const PICTURE: Duration = Duration::from_secs(5);

/// How long an answer waits until a video is open.
const OPENING: Duration = Duration::from_secs(12);
const _: () = assert!(OPENING.as_secs() < PATIENCE.as_secs());

/// Maximum time of a jump: thirty years.
const MOST_SECONDS: f64 = 1e9;

/// Records written at a time when results are saved.
const RECORDS: usize = 1000;

/// Maximum points of a track in a plot, and maximum tracks.
const MOST_POINTS: usize = 600;
const MOST_TRACKS: usize = 32;

/// The browser loads only the page's own files, and other sites cannot embed it.
const POLICY: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
];

/// The files of the page.
const FILES: [(&str, &str, &str); 5] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("page/page.js")),
    ("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
    ("/api/openapi.json", "application/json", include_str!("page/openapi.json")),
];

type Server = State<Arc<Shared>>;

/// All routes.
pub(super) fn router(shared: &Arc<Shared>) -> Router {
    let mut router = Router::new();
    for (path, kind, text) in FILES {
        router = router.route(path, get(move || async move { ([(CONTENT_TYPE, kind)], text) }));
    }
    router
        .route("/metrics", get(metrics))
        .route("/api/page", get(about))
        .route("/api/page/close", post(close))
        .route("/api/offers", get(offers))
        .route("/api/videos", get(videos).post(open))
        .route("/api/videos/{video}", get(video))
        .route("/api/videos/{video}/live", get(look))
        .route("/api/videos/{video}/picture.jpg", get(picture))
        .route("/api/videos/{video}/plot", get(plot))
        .route("/api/videos/{video}/results.jsonl", get(results))
        .route("/api/videos/{video}/tracks", post(follow).delete(clear))
        .route("/api/videos/{video}/tracks/{track}", delete(forget).put(correct))
        .route("/api/videos/{video}/tracks/{track}/name", put(rename))
        .route("/api/videos/{video}/search", put(change))
        .route(
            "/api/videos/{video}/templates/{template}",
            put(add).layer(DefaultBodyLimit::max(MOST_PICTURE)).post(cut).delete(remove),
        )
        .route("/api/videos/{video}/zones/{zone}", put(set_zone).delete(remove_zone))
        .route("/api/videos/{video}/lines/{line}", put(set_line).delete(remove_line))
        .route("/api/videos/{video}/pace", put(pace))
        .route("/api/videos/{video}/position", put(jump))
        .route("/api/videos/{video}/step", post(step))
        .route("/api/videos/{video}/stop", post(stop))
        .fallback(|| async { refuse(StatusCode::NOT_FOUND, "not found") })
        .method_not_allowed_fallback(|| async {
            refuse(StatusCode::METHOD_NOT_ALLOWED, "this method is not allowed here")
        })
        .layer(DefaultBodyLimit::max(MOST_BODY))
        .layer(middleware::from_fn_with_state(shared.clone(), admit))
        .with_state(shared.clone())
}

/// Applies the guard and the time limit, and gives every answer its headers.
async fn admit(State(shared): Server, request: Request, next: Next) -> Response {
    let response = match shared.guard.judge(request.method(), request.uri(), request.headers()) {
        Verdict::Refused(status, why) => refuse(status, why).into_response(),
        Verdict::Newcomer => {
            let cookie = shared.guard.cookie().unwrap_or_default();
            (StatusCode::SEE_OTHER, [(LOCATION, "/".to_owned()), (SET_COOKIE, cookie)]).into_response()
        }
        Verdict::Welcome => match tokio::time::timeout(PATIENCE, next.run(request)).await {
            Ok(response) => response,
            Err(_) => refuse(StatusCode::REQUEST_TIMEOUT, "the request took too long").into_response(),
        },
    };
    let mut response = as_json(response).await;
    let headers = response.headers_mut();
    for (name, value) in POLICY {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Gives every error the form `{"error": "..."}`: those of axum's extractors are plain text.
async fn as_json(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    if !(status.is_client_error() || status.is_server_error()) || kind == Some(b"application/json") {
        return response;
    }
    let text = axum::body::to_bytes(response.into_body(), MOST_BODY).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let reason = status.canonical_reason().unwrap_or("this was refused");
    let reason = if text.trim().is_empty() { reason } else { text.trim() };
    refuse(status, reason).into_response()
}

async fn metrics(State(shared): Server) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], shared.registry.text()).into_response()
}

async fn videos(State(shared): Server) -> Json<Vec<Status>> {
    Json(shared.all().iter().map(|video| video.status()).collect())
}

fn ends() -> Refused {
    refuse(StatusCode::SERVICE_UNAVAILABLE, "lockon is ending")
}

async fn about(State(shared): Server) -> Json<About> {
    Json(shared.lobby.about())
}

/// Closes the page, and with it a program that only waits for that.
async fn close(State(shared): Server) -> Result<Response, Refused> {
    if shared.lobby.close() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let why = if shared.offers.is_some() {
        "videos can be opened here at any time: Ctrl-C in the terminal ends lockon"
    } else {
        "a run has not ended: end it first"
    };
    Err(refuse(StatusCode::CONFLICT, why))
}

/// Cameras and files that can be opened; `null` where the command line named the videos.
async fn offers(State(shared): Server) -> Result<Json<Option<Offered>>, Refused> {
    let Some(offers) = &shared.offers else { return Ok(Json(None)) };
    offers.look_for_cameras();
    let offered = offers.ask(Offers::look).await;
    offered.map(|offered| Json(Some(offered))).ok_or_else(ends)
}

/// The opened video: `Opened` in `openapi.json`.
#[derive(Serialize)]
struct Opened {
    /// Its number; `null` while it is still being opened.
    id: Option<usize>,
}

async fn open(State(shared): Server, body: Sent<Wish>) -> Result<Response, Refused> {
    let wish = sent(body)?;
    let Some(offers) = shared.offers.clone() else {
        return Err(refuse(
            StatusCode::CONFLICT,
            "nothing can be opened here: start `lockon serve DIR` for that",
        ));
    };
    let place = place(&shared.orders).ok_or_else(|| {
        refuse(StatusCode::SERVICE_UNAVAILABLE, "too many videos are being opened: try again")
    })?;
    // It continues, and keeps its place, when the client disconnects.
    let opened = tokio::spawn(async move {
        let _place = place;
        let chosen = offers.ask(move |offers| offers.choose(&wish)).await.ok_or_else(ends)?;
        let chosen =
            chosen.ok_or_else(|| refuse(StatusCode::NOT_FOUND, "no such camera or file is offered"))?;
        chosen.await.map_err(|_| ends())?.map_err(|why| refuse(StatusCode::CONFLICT, &why))
    });
    let answer = |status, id| Ok((status, Json(Opened { id })).into_response());
    match tokio::time::timeout(OPENING, opened).await {
        Ok(Ok(opened)) => answer(StatusCode::CREATED, Some(opened?)),
        Ok(Err(_)) => Err(ends()),
        Err(_) => answer(StatusCode::ACCEPTED, None),
    }
}

async fn video(State(shared): Server, Path(id): Path<usize>) -> Result<Json<Status>, Refused> {
    Ok(Json(find(&shared, id)?.status()))
}

fn find(shared: &Shared, id: usize) -> Result<Arc<Video>, Refused> {
    shared.video(id).ok_or_else(|| refuse(StatusCode::NOT_FOUND, "there is no such video"))
}

/// As `find`, of a run that can still be changed.
fn active(shared: &Shared, id: usize) -> Result<Arc<Video>, Refused> {
    let video = find(shared, id)?;
    if video.has_ended() { Err(refuse(StatusCode::CONFLICT, orders::ENDED)) } else { Ok(video) }
}

#[derive(Deserialize)]
struct Wanted {
    width: Option<usize>,
    #[serde(default)]
    view: View,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum View {
    #[default]
    Overlay,
    Mask,
}

impl Form for Wanted {
    const FORM: &'static str = "width=PIXELS, view=overlay or view=mask";
}

impl Wanted {
    fn look(&self) -> Look {
        Look::new(self.width, matches!(self.view, View::Mask))
    }
}

async fn look(
    State(shared): Server,
    Path(id): Path<usize>,
    Query(wanted): Query<Wanted>,
    socket: WebSocketUpgrade,
) -> Result<Response, Refused> {
    let video = find(&shared, id)?;
    let viewers = shared.viewers.clone();
    let Ok(place) = viewers.try_acquire_owned() else {
        return Err(refuse(StatusCode::SERVICE_UNAVAILABLE, "too many browsers are connected: close one"));
    };
    let pictures = feed::subscribe(&video, wanted.look(), &shared).ok_or_else(too_many_kinds)?;
    let socket = socket.max_message_size(live::MOST_BYTES).max_frame_size(live::MOST_BYTES);
    Ok(socket.on_upgrade(async move |socket| {
        let _place = place;
        live::show(socket, shared.over.clone(), video, pictures).await;
    }))
}

fn too_many_kinds() -> Refused {
    refuse(
        StatusCode::SERVICE_UNAVAILABLE,
        "too many videos and sizes are shown already: close a browser window",
    )
}

async fn picture(
    State(shared): Server,
    Path(id): Path<usize>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Refused> {
    let video = find(&shared, id)?;
    let mut pictures = feed::subscribe(&video, wanted.look(), &shared).ok_or_else(too_many_kinds)?;
    let made = tokio::time::timeout(PICTURE, pictures.next()).await;
    let made = made.unwrap_or_else(|_| Err("no picture has come yet".into()));
    let shot = made.map_err(|why| refuse(StatusCode::SERVICE_UNAVAILABLE, &why))?;
    let number = shot.frame.to_string();
    let headers =
        [(CONTENT_TYPE, "image/jpeg"), (HeaderName::from_static("x-lockon-frame"), number.as_str())];
    Ok((headers, shot.jpeg.clone()).into_response())
}

/// Scores of the last frames, thinned for drawing: `Plot` in `openapi.json`.
#[derive(Default, Serialize)]
struct Plot {
    /// By track number: `[time in seconds, score, state]`, oldest first.
    tracks: BTreeMap<u32, Vec<(f64, f64, &'static str)>>,
}

#[derive(Deserialize)]
struct Span {
    #[serde(default = "Span::usual")]
    seconds: f64,
}

impl Form for Span {
    const FORM: &'static str = "seconds=SECONDS";
}

impl Span {
    fn usual() -> f64 {
        180.0
    }
}

/// The time of a frame in seconds, if it has one.
fn seconds(record: &FrameRecord) -> Option<f64> {
    record.pts_ns.map(|ns| ns as f64 / 1e9)
}

async fn plot(
    State(shared): Server,
    Path(id): Path<usize>,
    Query(span): Query<Span>,
) -> Result<Json<Plot>, Refused> {
    let records = find(&shared, id)?.last_records(MOST_POINTS * 20);
    let mut plot = Plot::default();
    let Some(last) = records.last().and_then(|last| seconds(last)) else { return Ok(Json(plot)) };
    let is_in = |record: &&Arc<FrameRecord>| seconds(record).is_some_and(|at| at >= last - span.seconds);
    let records: Vec<_> = records.iter().filter(is_in).collect();
    let step = records.len().div_ceil(MOST_POINTS).max(1);
    for record in records.iter().rev().step_by(step).rev() {
        for track in record.tracks.iter().take(MOST_TRACKS) {
            let at = seconds(record).unwrap_or_default();
            plot.tracks.entry(track.id).or_default().push((at, track.score, track.state.name()));
        }
    }
    Ok(Json(plot))
}

/// The kept records in the form of a results file, streamed.
async fn results(State(shared): Server, Path(id): Path<usize>) -> Result<Response, Refused> {
    let video = find(&shared, id)?;
    let head = video.run().map(|run| line(&Record::Run(&run)));
    let parts = futures_util::stream::unfold((head, video, 0), |(head, video, next)| async move {
        if let Some(head) = head {
            return Some((Ok::<_, std::convert::Infallible>(Bytes::from(head)), (None, video, next)));
        }
        let records = video.records(next, RECORDS);
        let last = records.last()?.frame;
        let lines: Vec<u8> = records.iter().flat_map(|record| line(&Record::Frame(record))).collect();
        Some((Ok(lines.into()), (None, video, last + 1)))
    });
    let headers = [
        (CONTENT_TYPE, "application/x-ndjson"),
        (CONTENT_DISPOSITION, "attachment; filename=\"results.jsonl\""),
    ];
    Ok((headers, Body::from_stream(parts)).into_response())
}

fn line(record: &Record<'_>) -> Vec<u8> {
    // Serialising plain data with text keys cannot fail.
    let mut line = serde_json::to_vec(record).unwrap_or_default();
    line.push(b'\n');
    line
}

async fn follow(
    State(shared): Server,
    Path(id): Path<usize>,
    body: Sent<Drawn>,
) -> Result<Response, Refused> {
    let video = find(&shared, id)?;
    Ok(orders::follow(&shared, &video, sent(body)?).await)
}

async fn correct(
    State(shared): Server,
    Path((id, track)): Path<(usize, u32)>,
    body: Sent<Drawn>,
) -> Result<Response, Refused> {
    let video = find(&shared, id)?;
    Ok(orders::correct(&shared, &video, track, sent(body)?).await)
}

async fn forget(State(shared): Server, Path((id, track)): Path<(usize, u32)>) -> Result<Response, Refused> {
    let video = find(&shared, id)?;
    Ok(orders::forget(&shared, &video, Some(track)).await)
}

async fn clear(State(shared): Server, Path(id): Path<usize>) -> Result<Response, Refused> {
    let video = find(&shared, id)?;
    Ok(orders::forget(&shared, &video, None).await)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Name {
    name: String,
}

impl Form for Name {
    const FORM: &'static str = "{\"name\": \"TEXT\"}";
}

async fn rename(
    State(shared): Server,
    Path((id, track)): Path<(usize, u32)>,
    body: Sent<Name>,
) -> Result<Response, Refused> {
    let video = find(&shared, id)?;
    let Name { name } = sent(body)?;
    let name = called(&name)?;
    let is_known = video.is_followed(track) || (name.is_empty() && video.has_name(track));
    if !is_known {
        return Err(refuse(StatusCode::NOT_FOUND, "there is no such track"));
    }
    video.rename(track, &name).map_err(|why| refuse(StatusCode::CONFLICT, why))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// A change of the search; keys that are not given stay as they are.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    min_score: Option<f64>,
    max_matches: Option<usize>,
    max_overlap: Option<f64>,
    /// In the form of `--roi`; empty text is the whole frame.
    roi: Option<String>,
    /// In the form of `--threshold`; empty text is none.
    threshold: Option<String>,
    /// As in records; `null` is none.
    #[serde(default, deserialize_with = "change::given")]
    #[expect(clippy::option_option, reason = "to leave it, to have none, and to have this are three things")]
    objects: Option<Option<ObjectSpec>>,
}

impl Form for Limits {
    const FORM: &'static str = "{\"min_score\": -1 to 1, \"max_matches\": 1 or more, \"max_overlap\": 0 to 1, \"roi\": \"X,Y,W,H\", \
         \"threshold\": \"METHOD:BLOCK:VALUE\", \"objects\": {\"connect\": \"8\", \"open\": \"3\", \"area\": \"MIN..MAX\", ...}}, each \
         if wanted";
}

impl Limits {
    fn change(self) -> lockon_core::Result<Change> {
        let Self { min_score, max_matches, max_overlap, roi, threshold, objects } = self;
        let typed = |text: String| (!text.is_empty()).then_some(text);
        Ok(Change {
            min_score,
            max_matches,
            max_overlap,
            roi: roi.map(|text| typed(text).map(|text| text.parse()).transpose()).transpose()?,
            threshold: threshold.map(|text| typed(text).map(|text| text.parse()).transpose()).transpose()?,
            objects,
            ..Change::default()
        })
    }
}

async fn change(
    State(shared): Server,
    Path(id): Path<usize>,
    body: Sent<Limits>,
) -> Result<Response, Refused> {
    let video = find(&shared, id)?;
    let change = sent(body)?.change().map_err(|error| refuse(StatusCode::BAD_REQUEST, &error.to_string()))?;
    Ok(orders::change(&shared, &video, change).await)
}

async fn add(
    State(shared): Server,
    Path((id, name)): Path<(usize, String)>,
    request: Request,
) -> Result<Response, Refused> {
    let video = find(&shared, id)?;
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    // A form of another site cannot send this type.
    if !kind.starts_with("image/") {
        return Err(refuse(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "a template is an image/png, image/jpeg or image/bmp",
        ));
    }
    let name = called_in_address(&name)?;
    // Taken before the body is read, which needs memory until it is decoded.
    let place = place(&shared.sent).ok_or_else(|| {
        refuse(StatusCode::SERVICE_UNAVAILABLE, "too many pictures are sent at the same time: try again")
    })?;
    let picture = Bytes::from_request(request, &()).await;
    let picture = picture.map_err(|error| refuse(error.status(), &error.body_text()))?;
    Ok(orders::add(&shared, &video, name, picture, place).await)
}

async fn cut(
    State(shared): Server,
    Path((id, name)): Path<(usize, String)>,
    body: Sent<Drawn>,
) -> Result<Response, Refused> {
    let video = find(&shared, id)?;
    Ok(orders::cut(&shared, &video, called_in_address(&name)?, sent(body)?).await)
}

async fn remove(State(shared): Server, Path((id, name)): Path<(usize, String)>) -> Result<Response, Refused> {
    let video = find(&shared, id)?;
    Ok(orders::change(&shared, &video, Change::removing(name)).await)
}

/// A name in a form that can be shown, not too long.
fn called(name: &str) -> Result<String, Refused> {
    let name = text::in_one_line(name.trim()).into_owned();
    if name.chars().count() > MOST_LETTERS {
        return Err(refuse(StatusCode::BAD_REQUEST, &format!("a name has at most {MOST_LETTERS} letters")));
    }
    Ok(name)
}

/// As `called`, for names in addresses: browsers resolve `.` and `..` there.
fn called_in_address(name: &str) -> Result<String, Refused> {
    match called(name)? {
        name if matches!(&*name, "" | "." | "..") => {
            Err(refuse(StatusCode::BAD_REQUEST, &format!("{name:?} is not a possible name here")))
        }
        name => Ok(name),
    }
}

/// A zone's corners.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Corners {
    /// x and y of each corner, in pixels of the frame.
    corners: Vec<[f64; 2]>,
}

impl Form for Corners {
    const FORM: &'static str = "{\"corners\": [[X, Y], [X, Y], [X, Y], ...]}, in pixels";
}

async fn set_zone(
    State(shared): Server,
    Path((id, name)): Path<(usize, String)>,
    body: Sent<Corners>,
) -> Result<Response, Refused> {
    let video = find(&shared, id)?;
    let zone = Zone::new(&called_in_address(&name)?, sent(body)?.corners);
    let zone = zone.map_err(|error| refuse(StatusCode::BAD_REQUEST, &error.to_string()))?;
    Ok(orders::set_zone(&shared, &video, zone).await)
}

async fn remove_zone(
    State(shared): Server,
    Path((id, name)): Path<(usize, String)>,
) -> Result<Response, Refused> {
    let video = find(&shared, id)?;
    Ok(orders::remove_zone(&shared, &video, name).await)
}

/// A line's ends.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ends {
    /// x and y of each end, in pixels of the frame.
    ends: [[f64; 2]; 2],
}

impl Form for Ends {
    const FORM: &'static str = "{\"ends\": [[X, Y], [X, Y]]}, in pixels";
}

async fn set_line(
    State(shared): Server,
    Path((id, name)): Path<(usize, String)>,
    body: Sent<Ends>,
) -> Result<Response, Refused> {
    let video = find(&shared, id)?;
    let line = CountingLine::new(&called_in_address(&name)?, sent(body)?.ends);
    let line = line.map_err(|error| refuse(StatusCode::BAD_REQUEST, &error.to_string()))?;
    Ok(orders::set_line(&shared, &video, line).await)
}

async fn remove_line(
    State(shared): Server,
    Path((id, name)): Path<(usize, String)>,
) -> Result<Response, Refused> {
    let video = find(&shared, id)?;
    Ok(orders::remove_line(&shared, &video, name).await)
}

/// The pace of a run; keys that are not given stay as they are.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pace {
    paused: Option<bool>,
    speed: Option<AskedSpeed>,
}

/// A number, or `max`.
#[derive(Deserialize)]
#[serde(untagged)]
enum AskedSpeed {
    Times(f64),
    Word(String),
}

impl Form for Pace {
    const FORM: &'static str = "{\"paused\": true or false, \"speed\": number or \"max\"}, each if wanted";
}

async fn pace(State(shared): Server, Path(id): Path<usize>, body: Sent<Pace>) -> Result<Response, Refused> {
    let video = active(&shared, id)?;
    let Pace { paused, speed } = sent(body)?;
    if paused.is_none() && speed.is_none() {
        return Err(refuse(StatusCode::BAD_REQUEST, "give `paused` or `speed`"));
    }
    if let Some(speed) = speed {
        let speed = match speed {
            AskedSpeed::Times(times) => Speed::new(Some(times)),
            AskedSpeed::Word(word) => word.parse(),
        };
        let speed = speed.map_err(|error| refuse(StatusCode::BAD_REQUEST, &error.to_string()))?;
        if video.shown.is_live {
            return Err(refuse(StatusCode::CONFLICT, "a camera or stream has its own speed"));
        }
        video.set_speed(speed.times());
    }
    if let Some(paused) = paused {
        video.pause(paused);
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// A place in a video.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Position {
    seconds: f64,
}

impl Form for Position {
    const FORM: &'static str = "{\"seconds\": number}";
}

async fn jump(
    State(shared): Server,
    Path(id): Path<usize>,
    body: Sent<Position>,
) -> Result<Response, Refused> {
    let video = find(&shared, id)?;
    let Position { seconds } = sent(body)?;
    if !(0.0..=MOST_SECONDS).contains(&seconds) {
        let why = format!("seconds: expected 0 to {MOST_SECONDS}; a time past the end is the last frame");
        return Err(refuse(StatusCode::BAD_REQUEST, &why));
    }
    if video.jump_to(seconds) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let why = if video.has_ended() {
        orders::ENDED
    } else if video.shown.is_live {
        "a camera or stream cannot jump"
    } else {
        "this run cannot jump: its outputs contain each frame of the video once, in order"
    };
    Err(refuse(StatusCode::CONFLICT, why))
}

async fn step(State(shared): Server, Path(id): Path<usize>) -> Result<Response, Refused> {
    active(&shared, id)?.step();
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn stop(State(shared): Server, Path(id): Path<usize>) -> Result<Response, Refused> {
    active(&shared, id)?.shown.control.stop();
    Ok(StatusCode::NO_CONTENT.into_response())
}
