//! Servers that the user did not name do not get the login.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex, OnceLock};

use super::playlist::await_renewal;
use super::tests::{refused, spec};
use super::{Input, Login, SourceSpec};
use lockon_core::control::Control;

/// The heads of the requests that a server got.
type Requests = Arc<Mutex<Vec<String>>>;

/// A server on the loopback that answers each request by `answer`, which gets its head.
fn serve(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> (u16, Requests) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (answer, requests) = (Arc::new(answer), Requests::default());
    let got = Arc::clone(&requests);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let (answer, got) = (Arc::clone(&answer), Arc::clone(&got));
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                loop {
                    let mut head = String::new();
                    while reader.read_line(&mut head).is_ok_and(|read| read > 2) {}
                    if !head.ends_with("\r\n\r\n") {
                        return;
                    }
                    let answer = answer(&head);
                    got.lock().unwrap().push(head);
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (port, requests)
}

/// An answer in the protocol of the request, HTTP or RTSP.
fn answer(request: &str, status: &str, header: &str, body: &str) -> String {
    let version = if request.contains(" RTSP/1.0\r\n") { "RTSP/1.0" } else { "HTTP/1.1" };
    let number = request.lines().find(|line| line.starts_with("CSeq:")).map(|line| format!("{line}\r\n"));
    let (number, length) = (number.unwrap_or_default(), body.len());
    format!("{version} {status}\r\n{number}{header}Content-Length: {length}\r\n\r\n{body}")
}

fn asks_for_login(request: &str) -> String {
    answer(request, "401 Unauthorized", "WWW-Authenticate: Basic realm=\"camera\"\r\n", "")
}

fn options(request: &str) -> Option<String> {
    let header = "Public: OPTIONS, DESCRIBE, SETUP, PLAY\r\n";
    request.starts_with("OPTIONS ").then(|| answer(request, "200 OK", header, ""))
}

/// A server that requires a login for everything.
fn stranger() -> (u16, Requests) {
    serve(|request| options(request).unwrap_or_else(|| asks_for_login(request)))
}

fn has_login(request: &str) -> bool {
    request.to_ascii_lowercase().contains("\r\nauthorization:")
}

/// Fails if a server got no request, or got a login.
fn got_no_login(requests: &Requests) {
    let requests = requests.lock().unwrap();
    assert!(!requests.is_empty(), "it was not asked");
    assert!(!requests.iter().any(|request| has_login(request)), "{requests:?}");
}

fn with_login(input: Input) -> SourceSpec {
    SourceSpec { login: Some(Login::new("me", "s3cret")), ..spec(input) }
}

fn uri(scheme: &str, port: u16, path: &str) -> Input {
    Input::Uri(format!("{scheme}://127.0.0.1:{port}/{path}").into())
}

/// Loads the plugins of network sources, one after the other. Two threads that load them at once may wait for
/// each other.
pub(super) fn load_plugins() {
    static LOADED: OnceLock<()> = OnceLock::new();
    LOADED.get_or_init(|| {
        crate::launch::init().unwrap();
        for factory in ["rtspsrc", "souphttpsrc", "hlsdemux"] {
            gst::ElementFactory::make(factory).build().unwrap();
        }
    });
}

#[test]
fn a_login_goes_to_no_server_that_a_playlist_names() {
    load_plugins();
    let (evil, asked) = stranger();
    for (variant, is_elsewhere) in
        [(format!("http://127.0.0.1:{evil}/x.m3u8"), true), ("x.m3u8".into(), false)]
    {
        let master = format!("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n{variant}\n");
        let (port, requests) = serve(move |request| match request {
            request if !has_login(request) => asks_for_login(request),
            request if request.starts_with("GET /all.m3u8 ") => answer(request, "200 OK", "", &master),
            request => answer(request, "200 OK", "", "#EXTM3U\n#EXT-X-ENDLIST\n"),
        });
        await_renewal(&with_login(uri("http", port, "all.m3u8")), &Control::new());
        let requests = requests.lock().unwrap();
        let got = |path: &str| requests.iter().any(|head| head.starts_with(path) && has_login(head));
        assert!(got("GET /all.m3u8 "), "the server that was typed got none: {requests:?}");
        assert_eq!(got("GET /x.m3u8 "), !is_elsewhere, "{requests:?}");
    }
    got_no_login(&asked);
}

#[test]
fn a_login_goes_to_no_server_that_a_local_playlist_names() {
    load_plugins();
    let (evil, asked) = stranger();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("list.m3u8");
    let entry = format!("http://127.0.0.1:{evil}/1.ts");
    let head = "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:1\n#EXTINF:1.0,\n";
    std::fs::write(&path, format!("{head}{entry}\n#EXT-X-ENDLIST\n")).unwrap();
    refused(&with_login(Input::File(path)));
    got_no_login(&asked);
}

#[test]
fn a_login_goes_to_no_server_that_an_rtsp_server_redirects_to() {
    load_plugins();
    let (evil, asked) = stranger();
    let (port, _) = serve(move |request| {
        let to = format!("Location: rtsp://127.0.0.1:{evil}/x\r\n");
        let moved = || answer(request, "302 Moved Temporarily", &to, "");
        options(request).unwrap_or_else(moved)
    });
    refused(&with_login(uri("rtsp", port, "cam")));
    got_no_login(&asked);
}

#[test]
fn a_login_goes_to_no_server_that_an_http_server_redirects_to() {
    load_plugins();
    let (evil, asked) = stranger();
    let (port, requests) = serve(move |request| {
        let moved = |to: &str| answer(request, "302 Found", &format!("location: {to}\r\n"), "");
        match request {
            request if !has_login(request) => asks_for_login(request),
            request if request.starts_with("GET /cam ") => moved("moved?x"),
            request if request.starts_with("GET /moved?x ") => moved(&format!("http://127.0.0.1:{evil}/cam")),
            request => answer(request, "404 Not Found", "", ""),
        }
    });
    let error = refused(&with_login(uri("http", port, "cam"))).to_string();
    got_no_login(&asked);
    assert!(error.contains("it redirects to") && error.contains(&format!("127.0.0.1:{evil}/cam")), "{error}");
    // The typed server gets it again if it redirects to itself.
    let requests = requests.lock().unwrap();
    assert!(requests.iter().any(|head| head.starts_with("GET /moved?x ") && has_login(head)), "{requests:?}");
}

#[test]
fn a_playlist_behind_a_redirection_is_waited_for_with_its_login() {
    load_plugins();
    let (evil, asked) = stranger();
    let (port, requests) = serve(move |request| {
        let moved = |to: &str| answer(request, "302 Found", &format!("location: {to}\r\n"), "");
        let list = |body: &str| answer(request, "200 OK", "", &format!("#EXTM3U\n{body}\n"));
        match request {
            request if !has_login(request) => asks_for_login(request),
            request if request.starts_with("GET /cam ") => moved("there/all.m3u8"),
            // Relative to its own address, not to the typed one.
            request if request.starts_with("GET /there/all.m3u8 ") => {
                list("#EXT-X-STREAM-INF:BANDWIDTH=1\nlow.m3u8")
            }
            request if request.starts_with("GET /there/low.m3u8 ") => list("#EXT-X-TARGETDURATION:1"),
            _ => moved(&format!("http://127.0.0.1:{evil}/cam")),
        }
    });
    let control = Control::new();
    let (stop, seen) = (control.clone(), Arc::clone(&requests));
    let asked_for = move |path: &str| {
        let requests = seen.lock().unwrap();
        requests.iter().filter(|head| head.starts_with(path) && has_login(head)).count()
    };
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| await_renewal(&with_login(uri("http", port, "cam")), &control));
        let begun = std::time::Instant::now();
        while asked_for("GET /there/low.m3u8 ") < 3 {
            assert!(begun.elapsed().as_secs() < 60 && !waits.is_finished(), "{:?}", requests.lock().unwrap());
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        stop.stop();
    });
    await_renewal(&with_login(uri("http", port, "elsewhere")), &Control::new());
    got_no_login(&asked);
    // Only the address itself may be opened.
    let confined = SourceSpec { is_confined: true, ..with_login(uri("http", port, "cam")) };
    let before = asked_for("GET /there/");
    await_renewal(&confined, &Control::new());
    assert_eq!(asked_for("GET /there/"), before);
}
