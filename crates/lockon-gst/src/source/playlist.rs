//! Playlists of live streams (HLS): a playlist that its server no longer renews is a lost source.
//!
//! GStreamer requests the playlist again and again, and reports nothing while it gets the same one. So a
//! source that reads a playlist, and that gave no frame for several times the playlist's target duration, is
//! lost. Opened again it would play the same segments: [`await_renewal`] waits for others first.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gst::prelude::*;

use super::decoder::leave_out;
use super::login::{Login, give_login};
use super::open::{MOST_REDIRECTIONS, redirected};
use super::{Input, SourceSpec, Uri};
use crate::launch::{self, Redirection, Running};
use lockon_core::control::{Control, STOP_CHECK};
use lockon_core::locks::lock;

/// A playlist is renewed about once in its target duration (RFC 8216, 6.3.4). Networks and cameras are late.
const TARGETS: u32 = 4;
/// The minimum and maximum wait.
const LEAST: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 10 });
const MOST: Duration = Duration::from_mins(1);
/// The target duration if it is not known: in a playlist of playlists, or of another kind.
const USUAL_TARGET: Duration = Duration::from_secs(10);

/// Elements of one pipeline that read playlists. One reads a playlist and its variants.
const MOST_READERS: usize = 3;

/// Maximum bytes read of a playlist.
const MOST_BYTES: usize = 1 << 20;
/// How long a server may take to send a playlist.
const PATIENCE: Duration = Duration::from_secs(10);

/// The state of the playlist that a pipeline reads, if it reads one.
#[derive(Debug, Default)]
pub(super) struct Playlist {
    is_read: AtomicBool,
    /// Nested elements that read playlists.
    readers: AtomicUsize,
    /// A playlist was not opened, as it was named in too many others.
    is_too_deep: AtomicBool,
    text: Mutex<Vec<u8>>,
}

impl Playlist {
    /// Watches the elements that the pipeline has and those that it will have.
    pub(super) fn watch(pipeline: &gst::Pipeline) -> Arc<Self> {
        let playlist = Arc::new(Self::default());
        for element in pipeline.iterate_recurse().into_iter().flatten() {
            playlist.meet(&element);
        }
        let of_later = Arc::clone(&playlist);
        pipeline.connect_deep_element_added(move |_, _, element| of_later.meet(element));
        playlist
    }

    fn meet(self: &Arc<Self>, element: &gst::Element) {
        let is_adaptive = element
            .factory()
            .and_then(|factory| factory.metadata("klass").map(|class| class.contains("Adaptive")));
        let (Some(true), Some(pad)) = (is_adaptive, element.static_pad("sink")) else { return };
        self.is_read.store(true, Ordering::Relaxed);
        self.readers.fetch_add(1, Ordering::Relaxed);
        let playlist = Arc::clone(self);
        pad.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
            launch::guarded(pad, gst::PadProbeReturn::Ok, || {
                let mut text = lock(&playlist.text);
                if let Some(data) = info.buffer().and_then(|buffer| buffer.map_readable().ok()) {
                    let room = MOST_BYTES - text.len();
                    text.extend(data.iter().take(room));
                }
                gst::PadProbeReturn::Ok
            })
        });
    }

    /// Opens no playlist that is nested too deeply: one that names itself would have no end.
    pub(super) fn bound_depth(self: &Arc<Self>, pipeline: &gst::Pipeline) {
        let playlist = Arc::clone(self);
        leave_out(pipeline, move |factory| {
            let is_adaptive = factory.metadata("klass").is_some_and(|class| class.contains("Adaptive"));
            let is_too_deep = is_adaptive && playlist.readers.load(Ordering::Relaxed) >= MOST_READERS;
            playlist.is_too_deep.fetch_or(is_too_deep, Ordering::Relaxed);
            is_too_deep
        });
    }

    /// The reason why the pipeline opens no more of it, if it does not.
    pub(super) fn refusal(&self) -> Option<&'static str> {
        let refused = "its playlist names a playlist where a part of the video should be, maybe itself";
        self.is_too_deep.load(Ordering::Relaxed).then_some(refused)
    }

    /// Maximum time without a frame before the source is lost; `None` if it is no playlist, or one with an
    /// end.
    pub(super) fn bound(&self) -> Option<Duration> {
        if !self.is_read.load(Ordering::Relaxed) {
            return None;
        }
        let text = lock(&self.text);
        bound(&String::from_utf8_lossy(&text))
    }
}

fn bound(text: &str) -> Option<Duration> {
    let mut lines = text.lines().map(str::trim);
    if lines.clone().any(|line| line == "#EXT-X-ENDLIST" || line == "#EXT-X-PLAYLIST-TYPE:VOD") {
        return None;
    }
    let target = lines.find_map(|line| line.strip_prefix("#EXT-X-TARGETDURATION:")?.parse().ok());
    let target = target.map_or(USUAL_TARGET, |seconds: u32| Duration::from_secs(seconds.into()));
    Some((target * TARGETS).clamp(LEAST, MOST))
}

/// Waits until the playlist of `spec` is another one than now. Returns at once if the source is something
/// else, or cannot be read: then opening it gives the reason.
pub(super) fn await_renewal(spec: &SourceSpec, control: &Control) {
    let Input::Uri(_) = spec.input else { return };
    let Some(known) = fetch(spec, control) else { return };
    let Some(pause) = bound(&known).map(|bound| bound / TARGETS) else { return };
    while fetch(spec, control).is_some_and(|text| text == known) {
        let until = Instant::now() + pause;
        while Instant::now() < until {
            if control.is_stopped() {
                return;
            }
            std::thread::sleep(STOP_CHECK);
        }
    }
}

/// The text of the playlist with segments; the first variant if the address has several.
fn fetch(spec: &SourceSpec, control: &Control) -> Option<String> {
    let Input::Uri(typed) = &spec.input else { return None };
    let (text, address) = fetch_text(spec, spec.clone(), control)?;
    let mut lines = text.lines().map(str::trim);
    if !lines.any(|line| line.starts_with("#EXT-X-STREAM-INF")) {
        return Some(text);
    }
    let variant = lines.find(|line| !line.is_empty() && !line.starts_with('#'))?;
    let variant = Uri::from(resolved(&address, variant));
    // A playlist must not choose further files and addresses.
    let scheme = variant.scheme();
    if !matches!(scheme.as_str(), "http" | "https") && scheme != typed.scheme() {
        return None;
    }
    // It may name another server than the typed one.
    let login = typed.with_login(spec.login.clone()).ok()?.1.filter(|_| typed.lends_login_to(&variant));
    let variant = SourceSpec { input: Input::Uri(variant), login, ..spec.clone() };
    fetch_text(spec, variant, control).map(|(text, _)| text)
}

/// Resolves a name in a playlist or a redirection at `base` to an address.
pub(super) fn resolved(base: &str, named: &str) -> String {
    if named.split(['/', '?', '#']).next().is_some_and(|start| start.ends_with(':')) {
        return named.to_owned();
    }
    if let Some((scheme, _)) = base.split_once("://").filter(|_| named.starts_with("//")) {
        return format!("{scheme}:{named}");
    }
    let base = base.split(['?', '#']).next().unwrap_or(base);
    let host = base.find("://").map_or(0, |at| at + 3);
    let path = base[host..].find('/').map_or(base.len(), |at| host + at);
    let end =
        if named.starts_with('/') { path } else { base.rfind('/').filter(|&at| at > host).unwrap_or(path) };
    let slash = if named.starts_with('/') { "" } else { "/" };
    format!("{}{slash}{named}", &base[..end])
}

/// The answer of a server.
enum Fetched {
    Text(String),
    /// It redirects to this address.
    Moved(String),
}

/// Returns a playlist and the address that it is at, behind the redirections that a source may follow.
fn fetch_text(typed: &SourceSpec, mut at: SourceSpec, control: &Control) -> Option<(String, String)> {
    for _ in 0..MOST_REDIRECTIONS {
        let Input::Uri(uri) = &at.input else { return None };
        let (address, login) = uri.with_login(at.login.clone()).ok()?;
        match fetch_once(uri, &address, login, control)? {
            Fetched::Text(text) => return Some((text, address)),
            Fetched::Moved(to) => at = redirected(typed, to).ok()?,
        }
    }
    None
}

fn fetch_once(uri: &Uri, address: &str, login: Option<Login>, control: &Control) -> Option<Fetched> {
    let source = gst::Element::make_from_uri(gst::URIType::Src, address, None).ok()?;
    if source.has_property("automatic-redirect") {
        // The names in a playlist are relative to its last address.
        source.set_property("automatic-redirect", false);
    }
    let sink = gst_app::AppSink::builder().sync(false).max_buffers(8).build();
    let pipeline = gst::Pipeline::new();
    pipeline.add_many([&source, sink.upcast_ref()]).ok()?;
    source.link(&sink).ok()?;
    if let Some(login) = login {
        give_login(&pipeline, login, Some(uri));
    }
    let running = Running::new(pipeline);
    let moved = || {
        let Redirection { from, to } = running.redirection()?;
        (from == address).then(|| Fetched::Moved(resolved(&from, &to)))
    };
    if running.set_state(gst::State::Playing).is_err() {
        return moved();
    }
    let deadline = Instant::now() + PATIENCE;
    let mut text = Vec::new();
    while text.len() < MOST_BYTES {
        // An error is followed by an end of the stream.
        if running.wait(Duration::ZERO).is_err() {
            return moved();
        }
        if let Some(sample) = sink.try_pull_sample(gst::ClockTime::try_from(STOP_CHECK).ok()) {
            text.extend_from_slice(&sample.buffer()?.map_readable().ok()?);
        } else if sink.is_eos() {
            return match moved() {
                Some(moved) => Some(moved),
                None => {
                    String::from_utf8(text).ok().filter(|text| text.starts_with("#EXTM3U")).map(Fetched::Text)
                }
            };
        }
        if Instant::now() > deadline || control.is_stopped() {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::path::Path;

    use crate::source::{Decoder, VideoSource};
    use crate::testing::make_clip;
    use lockon_core::ports::{Next, Source};

    use super::*;

    #[test]
    fn several_target_durations_are_waited_where_the_playlist_has_no_end() {
        let seconds = |text: &str| bound(text).map(|bound| bound.as_secs());
        assert_eq!(seconds("#EXTM3U\n#EXT-X-TARGETDURATION:6\n#EXTINF:6,\na.ts\n"), Some(24));
        assert_eq!(seconds("#EXTM3U\r\n#EXT-X-TARGETDURATION:99\r\n"), Some(60));
        assert_eq!(seconds("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nlow.m3u8\n"), Some(40));
        assert_eq!(seconds("#EXTM3U\n#EXT-X-TARGETDURATION:6\n#EXT-X-ENDLIST\n"), None);
    }

    #[test]
    fn variants_are_found_beside_their_playlist() {
        for (named, expected) in [
            ("low.m3u8", "http://h:1/a/low.m3u8"),
            ("x/low.m3u8?y=/z", "http://h:1/a/x/low.m3u8?y=/z"),
            ("/low.m3u8", "http://h:1/low.m3u8"),
            ("https://other/low.m3u8", "https://other/low.m3u8"),
            ("//other/low.m3u8", "http://other/low.m3u8"),
            ("low?to=http://other/", "http://h:1/a/low?to=http://other/"),
        ] {
            assert_eq!(resolved("http://h:1/a/all.m3u8?token=/b", named), expected);
        }
        assert_eq!(resolved("http://h", "a"), "http://h/a");
    }

    /// A server of HTTP for a folder's files, at a port of the system's. It ends with the process.
    fn serve(folder: &Path) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, folder) = (listener.local_addr().unwrap().port(), folder.to_owned());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut request = String::new();
                let mut lines = BufReader::new(stream.try_clone().unwrap());
                let _ = lines.read_line(&mut request);
                let mut line = String::new();
                while lines.read_line(&mut line).is_ok_and(|length| length > 2) {
                    line.clear();
                }
                let name = request.split(' ').nth(1).unwrap_or("/").trim_start_matches('/');
                let body = std::fs::read(folder.join(name));
                let (status, body) = body.map_or(("404 Not Found", Vec::new()), |body| ("200 OK", body));
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all(&[head.as_bytes(), &body].concat());
            }
        });
        port
    }

    /// Segments of a second, 25 frames each.
    fn segments(folder: &Path, count: usize) {
        for index in 0..count {
            make_clip(
                &folder.join(format!("{index}.ts")),
                "videotestsrc num-buffers=25 ! video/x-raw,width=96,height=64,framerate=25/1 !
                 x264enc bframes=0 ! mpegtsmux ! filesink name=file",
            );
        }
    }

    /// Writes the playlist of these segments, which has no end.
    fn list(folder: &Path, segments: std::ops::Range<usize>) {
        let head = format!("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-MEDIA-SEQUENCE:{}\n", segments.start);
        let entries = segments.map(|index| format!("#EXT-X-DISCONTINUITY\n#EXTINF:1.0,\n{index}.ts\n"));
        let text = head + &entries.collect::<String>();
        // In one step, as a client sees it.
        std::fs::write(folder.join("next"), text).unwrap();
        std::fs::rename(folder.join("next"), folder.join("live.m3u8")).unwrap();
    }

    fn spec(port: u16) -> SourceSpec {
        let uri = format!("http://127.0.0.1:{port}/live.m3u8");
        SourceSpec::new(Input::Uri(uri.as_str().into()), Decoder::Software)
    }

    #[test]
    fn a_playlist_that_is_no_longer_renewed_is_a_lost_source() {
        let folder = tempfile::tempdir().unwrap();
        segments(folder.path(), 3);
        list(folder.path(), 0..3);
        let mut source = VideoSource::open(&spec(serve(folder.path())), &Control::new()).unwrap();
        let started = Instant::now();
        let mut frames = 0;
        let error = loop {
            match source.wait_next(Duration::from_millis(200)) {
                Ok(Next::Frame(_)) => frames += 1,
                Ok(Next::Pending) => {}
                Ok(_) => panic!("it ends after {frames} frames"),
                Err(error) => break error.to_string(),
            }
            assert!(started.elapsed() < Duration::from_secs(30), "{frames} frames and no error");
        };
        assert!(frames > 0 && error.contains("its playlist brought no frame for 4 s"), "{frames}: {error}");
        assert!(error.contains("--reconnect waits until it is back"), "{error}");
    }

    #[test]
    fn a_playlist_that_names_itself_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let text = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1.0,\nlive.m3u8\n#EXT-X-ENDLIST\n";
        std::fs::write(folder.path().join("live.m3u8"), text).unwrap();
        let by_http = spec(serve(folder.path()));
        let by_name = SourceSpec::new(Input::File(folder.path().join("live.m3u8")), Decoder::Software);
        for spec in [by_http, by_name] {
            let started = Instant::now();
            let error = VideoSource::open(&spec, &Control::new()).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains("names a playlist where a part of the video should be"), "{error}");
            assert!(started.elapsed() < Duration::from_secs(20));
        }
    }

    #[test]
    fn a_playlist_is_read_again_when_its_server_renews_it() {
        let folder = tempfile::tempdir().unwrap();
        segments(folder.path(), 6);
        list(folder.path(), 0..3);
        let spec = SourceSpec { reconnect: true, ..spec(serve(folder.path())) };
        let mut source = VideoSource::open(&spec, &Control::new()).unwrap();
        let started = Instant::now();
        let (mut times, mut lost_at, mut gap) = (Vec::new(), None, None);
        while gap.is_none() || times.len() < gap.unwrap() + 20 {
            match source.wait_next(Duration::from_millis(200)).unwrap() {
                Next::Frame(frame) => times.push((frame.meta.index, frame.meta.pts_ns.unwrap())),
                Next::Pending => {}
                Next::End => panic!("it ends after {} frames", times.len()),
                Next::Gap { away, reason } => {
                    assert!(
                        away > Duration::from_secs(4) && reason.contains("its playlist"),
                        "{away:?} {reason}"
                    );
                    gap = Some(times.len());
                }
            }
            let is_lost = matches!(source.state, super::super::SourceState::Reconnecting(_));
            if is_lost && gap.is_none() {
                let since = *lost_at.get_or_insert_with(Instant::now);
                // If it were opened meanwhile, it would play the same frames again.
                if since.elapsed() > Duration::from_secs(3) {
                    list(folder.path(), 3..6);
                }
            }
            assert!(started.elapsed() < Duration::from_mins(1), "{} frames, gap {gap:?}", times.len());
        }
        assert!(gap.unwrap() <= 75, "segments were played again");
        assert!(times.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1), "{times:?}");
    }
}
