//! Sources of video: pipes, pictures, servers that require a password, and malicious names.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::*;

const WORK: &str = "--template ball.png --max-matches 2 --no-progress -y";

/// A run whose standard input is what `cat` gives of a file.
fn through_pipe(place: &Place, file: &str, words: &str) -> Output {
    let script = format!("cat {file} | timeout 100 {} run {words}", program().display());
    Command::new("sh").args(["-c", &script]).current_dir(place.dir.path()).output().unwrap()
}

/// Returns the records of frames, without times of the clock and without the container's times.
fn found(place: &Place, name: &str) -> Vec<Value> {
    let records = timeless(&place.read(name)).into_iter().filter(|record| record["type"] == "frame");
    records.map(|record| serde_json::json!([record["frame"], record["pts_ns"], record["matches"]])).collect()
}

fn fifo(place: &Place, name: &str) {
    assert!(Command::new("mkfifo").arg(place.path(name)).status().unwrap().success());
}

fn start(place: &Place, args: &[&str]) -> Child {
    let mut program = Command::new(program());
    program.args(args).current_dir(place.dir.path()).stdin(Stdio::null());
    program.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits for a run, which must end within the limit. Returns its exit code and what it printed.
fn ends_within(mut child: Child, limit: Duration) -> (Option<i32>, String) {
    let deadline = Instant::now() + limit;
    let code = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status.code(),
            None if Instant::now() > deadline => {
                let _ = child.kill();
                panic!("it goes on and on");
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (code, said)
}

#[test]
fn a_video_through_a_pipe_gives_every_frame_of_the_file() {
    let place = Place::new();
    let picture = "videotestsrc num-buffers=30 pattern=ball motion=sweep";
    let caps = "width=160,height=120,framerate=25/1";
    for (name, video) in [
        (
            "a.ts",
            format!(
                "{picture} ! video/x-raw,format=I420,{caps} ! x264enc key-int-max=10 ! h264parse ! mpegtsmux"
            ),
        ),
        ("b.mkv", format!("{picture} ! video/x-raw,format=I420,{caps} ! x264enc ! matroskamux")),
        // Ten bits: a converter has to be put in, and what came through the pipe does not come again.
        ("c.mkv", format!("{picture} ! video/x-raw,format=I420_10LE,{caps} ! x264enc ! matroskamux")),
        ("d.avi", format!("{picture} ! video/x-raw,format=I420,{caps} ! jpegenc ! avimux")),
    ] {
        place.gst(&format!("{video} ! filesink location={name}"));
        succeeds(place.lockon(&format!("run {name} {WORK} --results file.jsonl")));
        let expected = found(&place, "file.jsonl");
        assert_eq!(expected.len(), 30, "{name}");
        for input in ["-", "/dev/stdin"] {
            succeeds(through_pipe(&place, name, &format!("{input} {WORK} --results pipe.jsonl")));
            let got = found(&place, "pipe.jsonl");
            assert_eq!(got.len(), 30, "{name} as {input}");
            // How long a stream lasts shifts its first time in some containers; what is found is the same.
            let matches = |frames: &[Value]| frames.iter().map(|frame| frame[2].clone()).collect::<Vec<_>>();
            assert_eq!(matches(&got), matches(&expected), "{name} as {input}");
        }
    }
    fifo(&place, "pipe");
    let path = place.path("pipe");
    let bytes = std::fs::read(place.path("a.ts")).unwrap();
    let writer = std::thread::spawn(move || std::fs::write(path, bytes));
    succeeds(place.lockon(&format!("run pipe {WORK} --results fifo.jsonl")));
    writer.join().unwrap().unwrap();
    assert_eq!(found(&place, "fifo.jsonl").len(), 30);
    // Results on standard output while the video comes on standard input.
    let out = succeeds(through_pipe(&place, "b.mkv", &format!("- {WORK} --results -")));
    assert_eq!(String::from_utf8(out.stdout).unwrap().matches("{\"type\":\"frame\"").count(), 30);
    fails(&place.lockon("run - --threshold mean:31:5 --reconnect"), 2, "a file is not lost");
}

#[test]
fn a_pipe_that_nobody_opens_is_given_up_at_once() {
    let place = Place::new();
    fifo(&place, "pipe.jsonl");
    for args in [
        ["run", "pipe.jsonl", "--threshold", "mean:31:5"].as_slice(),
        &["run", "ball.mp4", "--threshold", "mean:31:5", "--results", "pipe.jsonl"],
        &["run", "ball.mp4", "--threshold", "mean:31:5", "-o", "pipe.mkv"],
        &["pick", "ball.mp4", "--box", "1,1,9,9", "-o", "pipe.png"],
    ] {
        if let Some(name) = ["pipe.mkv", "pipe.png"].into_iter().find(|name| args.contains(name)) {
            fifo(&place, name);
        }
        let child = start(&place, args);
        std::thread::sleep(Duration::from_secs(2));
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let (code, said) = ends_within(child, Duration::from_secs(10));
        assert_eq!(code, Some(130), "{args:?}: {said}");
    }
}

#[test]
fn what_cannot_go_through_a_pipe_is_refused_before_the_video_starts() {
    let place = Place::new();
    for name in ["pipe.mp4", "pipe.mkv", "pipe.webm", "pipe.avi"] {
        fifo(&place, name);
        let path = place.path(name);
        let words = format!("run ball.mp4 --threshold mean:31:5 --no-progress -o {name}");
        if let Some(kind) = name.strip_prefix("pipe").filter(|kind| [".mp4", ".avi"].contains(kind)) {
            fails(&place.lockon(&words), 2, &format!("an {kind} cannot go through a pipe, an .mkv can"));
            continue;
        }
        let reader = std::thread::spawn(move || std::fs::read(path));
        succeeds(place.lockon(&words));
        std::fs::write(place.path("read"), reader.join().unwrap().unwrap()).unwrap();
        assert_eq!(place.play("read"), FRAMES, "{name}");
    }
}

#[test]
fn results_through_a_named_pipe_reach_their_reader() {
    let place = Place::new();
    fifo(&place, "pipe.jsonl");
    let path = place.path("pipe.jsonl");
    let reader = std::thread::spawn(move || std::fs::read_to_string(path));
    succeeds(place.lockon("run ball.mp4 --threshold mean:31:5 --results pipe.jsonl --no-progress"));
    let read = reader.join().unwrap().unwrap();
    assert_eq!(read.matches("{\"type\":\"frame\"").count(), FRAMES);
    assert!(read.lines().last().unwrap().starts_with("{\"type\":\"summary\""));
}

#[test]
fn pictures_are_a_video_however_they_are_named() {
    let place = Place::new();
    for folder in ["seq", "odd"] {
        std::fs::create_dir(place.path(folder)).unwrap();
    }
    for (encoder, ending) in [("pngenc", "png"), ("jpegenc", "jpg"), ("avenc_bmp", "bmp")] {
        place.gst(&format!(
            "filesrc location=ball.mp4 ! decodebin ! videoconvert ! {encoder} ! multifilesink index=1 location=seq/%04d.{ending}"
        ));
    }
    // Natural order, a gap, and a sign that printf would take: no pattern can count through these.
    for n in 1..=FRAMES {
        let (from, to) = (format!("seq/{n:04}.png"), format!("odd/50%d frame {}.png", n * 3));
        std::fs::copy(place.path(&from), place.path(&to)).unwrap();
    }
    let run = |input: &str, more: &[&str]| {
        let mut args = vec!["run", input, "--results", "out.jsonl"];
        args.extend(WORK.split(' ').chain(more.iter().copied()));
        succeeds(place.lockon_args(&args));
        found(&place, "out.jsonl")
    };
    let expected = run("seq/%04d.png", &[]);
    assert_eq!(expected.len(), FRAMES);
    assert_eq!(
        (&expected[0][1], &expected[FRAMES - 1][1]),
        (&0.into(), &(40_000_000 * (FRAMES as u64 - 1)).into())
    );
    assert!(expected.iter().all(|frame| frame[2][0]["score"].as_f64().unwrap() > 0.9), "{expected:?}");
    for input in ["seq/*.png", "odd", "odd/*.png"] {
        assert_eq!(run(input, &[]), expected, "{input}");
    }
    let faster = run("seq/00[0-1]?.png", &["--fps", "50"]);
    assert_eq!((faster.len(), &faster[10][1]), (19, &200_000_000.into()));
    for input in ["seq/%04d.jpg", "seq/*.bmp"] {
        assert_eq!(run(input, &[]).len(), FRAMES, "{input}");
    }
    let refused = |input: &str, says: &str| {
        fails(&place.lockon(&format!("run {input} --threshold mean:31:5 --no-progress")), 1, says);
    };
    refused("seq", "seq: pictures of several kinds");
    refused("seq/%05d.png", "there is no such picture");
    std::fs::remove_file(place.path("seq/0007.jpg")).unwrap();
    refused("seq/%04d.jpg", "seq/0007.jpg is missing between 1 and 40");
    fails(&place.lockon("run ball.mp4 --threshold mean:31:5 --fps 50"), 2, "--fps");
}

#[test]
fn a_broken_picture_is_an_error_that_names_it_after_the_frames_before_it() {
    let place = Place::new();
    for (encoder, ending) in [("pngenc", "png"), ("jpegenc", "jpg"), ("avenc_bmp", "bmp")] {
        for (kind, what) in [("cut", 1), ("nonsense", 2)] {
            std::fs::create_dir_all(place.path("seq")).unwrap();
            place.gst(&format!(
                "filesrc location=ball.mp4 ! decodebin ! videoconvert ! {encoder} ! multifilesink index=1 location=seq/%04d.{ending}"
            ));
            let broken = place.path(&format!("seq/0008.{ending}"));
            let bytes = std::fs::read(&broken).unwrap();
            let bytes = if what == 1 { bytes[..bytes.len() / 2].to_vec() } else { b"nonsense".repeat(50) };
            std::fs::write(&broken, bytes).unwrap();
            let words = format!(
                "120 {} run seq/%04d.{ending} --threshold mean:31:5 --results out.jsonl --no-progress -y",
                program().display()
            );
            // GStreamer 1.22's own pngdec warns about itself if a picture is cut; that is not lockon's error.
            let mut run = Command::new("timeout");
            run.args(words.split_whitespace()).env_remove("G_DEBUG").current_dir(place.dir.path());
            let out = run.stdin(Stdio::null()).output().unwrap();
            assert_eq!(out.status.code(), Some(1), "{kind} {ending}: {}", stderr(&out));
            assert!(
                stderr(&out).contains(&format!("seq/0008.{ending}")),
                "{kind} {ending}: {}",
                stderr(&out)
            );
            assert_eq!(frames(&place.records("out.jsonl")).len(), 7, "{kind} {ending}");
            std::fs::remove_dir_all(place.path("seq")).unwrap();
        }
    }
}

/// A server that sends `ball.mp4` to clients with the password, and answers others with `refusal`.
fn http_server(place: &Place, refusal: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let video = std::fs::read(place.path("ball.mp4")).unwrap();
    let serve = move |mut stream: TcpStream| -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        loop {
            let (mut is_known, mut from, mut line) = (false, 0, String::new());
            loop {
                line.clear();
                if reader.read_line(&mut line)? == 0 {
                    return Ok(());
                }
                // admin:s3cret
                is_known |= line.trim_end().ends_with("Basic YWRtaW46czNjcmV0");
                if let Some(range) = line.to_ascii_lowercase().strip_prefix("range: bytes=") {
                    from = range.split('-').next().unwrap().trim().parse().unwrap_or(0);
                }
                if line.trim_end().is_empty() {
                    break;
                }
            }
            if !is_known {
                write!(stream, "HTTP/1.1 {refusal}\r\nContent-Length: 0\r\n\r\n")?;
                continue;
            }
            let (length, rest) = (video.len(), &video[from..]);
            write!(
                stream,
                "HTTP/1.1 206 Partial Content\r\nContent-Type: video/mp4\r\nAccept-Ranges: bytes\r\n\
                 Content-Range: bytes {from}-{}/{length}\r\nContent-Length: {}\r\n\r\n",
                length - 1,
                rest.len()
            )?;
            stream.write_all(rest)?;
        }
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream));
        }
    });
    port
}

const ASKS: &str = "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"ball\"";

/// Fails if the text contains a password, or the header that is made of it.
fn has_no_secret(what: &str, text: &str) {
    for secret in ["s3cret", "YWRtaW46czNjcmV0", "admin:"] {
        assert!(!text.contains(secret), "{secret} is in {what}: {text}");
    }
}

#[test]
fn a_password_in_an_address_is_written_nowhere() {
    let place = Place::new();
    let port = http_server(&place, ASKS);
    let address = format!("http://admin:s3cret@127.0.0.1:{port}/ball.mp4");
    let out = succeeds(place.lockon(&format!(
        "-vvv run {address} {WORK} --results out.jsonl --results out.csv --report out.html -o out.mkv --no-audio"
    )));
    assert_eq!(frames(&place.records("out.jsonl")).len(), FRAMES);
    has_no_secret("the log", &stderr(&out));
    for name in ["out.jsonl", "out.csv", "out.html"] {
        has_no_secret(name, &place.read(name));
    }
    assert!(place.read("out.jsonl").contains(&format!("http://***@127.0.0.1:{port}/ball.mp4")));
    let printed = succeeds(place.lockon(&format!("run {address} {WORK} --print-pipeline")));
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.contains("***@127.0.0.1"), "{printed}");
    has_no_secret("the printed pipeline", &printed);

    // Errors: a port without a listener, wrong usage, text of one's own.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for words in [
        format!("-vv run rtsp://admin:s3cret@127.0.0.1:{free}/x {WORK}"),
        format!("run rtsp://admin:s3cret@127.0.0.1:{free}/x {WORK} --no-such-option"),
        format!("run {WORK} rtsp://admin:s3cret@127.0.0.1/x http://admin:s3cret@host"),
    ] {
        let out = place.lockon(&words);
        assert!(!out.status.success());
        has_no_secret(&words, &stderr(&out));
    }
    let source = format!(
        "souphttpsrc location=http://127.0.0.1:{port}/x user-id=admin user-pw=s3cret ! decodebin ! appsink name=frames"
    );
    let args = [
        "-vv",
        "run",
        "--source",
        &source,
        "--threshold",
        "mean:31:5",
        "--results",
        "own.jsonl",
        "--no-progress",
    ];
    let out = succeeds(place.lockon_args(&args));
    has_no_secret("the log", &stderr(&out));
    has_no_secret("the run record", &place.read("own.jsonl"));
}

#[test]
fn a_login_comes_from_a_file_or_the_environment_too() {
    let place = Place::new();
    let port = http_server(&place, ASKS);
    let words = format!("run http://127.0.0.1:{port}/ball.mp4 --threshold mean:31:5 --no-progress");
    // As some editors write it.
    std::fs::write(place.path("login"), "\u{feff}admin:s3cret\n").unwrap();
    let out = succeeds(place.lockon(&format!("{words} --credentials login")));
    assert!(
        stderr(&out).contains("login may have a password in it and is open to other users"),
        "{}",
        stderr(&out)
    );
    let by_environment = Command::new(program())
        .args(words.split(' '))
        .env("LOCKON_CREDENTIALS", "admin:s3cret")
        .current_dir(place.dir.path())
        .output();
    succeeds(by_environment.unwrap());
    let pick = |address: &str, login: Option<&str>| {
        let mut pick = Command::new(program());
        pick.args(["pick", address, "--box", "1,1,9,9"]).current_dir(place.dir.path());
        pick.envs(login.map(|login| ("LOCKON_CREDENTIALS", login))).output().unwrap()
    };
    let bare = format!("http://127.0.0.1:{port}/ball.mp4");
    let out = succeeds(pick(&bare, Some("admin:s3cret")));
    assert!(!stderr(&out).contains("--credentials"), "{}", stderr(&out));
    // The printed command has no login at all: an address with stars in it opens nothing.
    let out = succeeds(pick(&bare.replace("://", "://admin:s3cret@"), None));
    let line = String::from_utf8_lossy(&out.stdout);
    assert!(line.starts_with(&format!("lockon run {bare} --track 1,1,9,9")), "{line}");
    has_no_secret("what pick says", &stderr(&out));
    assert!(stderr(&out).contains("use --credentials FILE"), "{}", stderr(&out));

    std::fs::write(place.path("login"), "admin:wrong\n").unwrap();
    let refused = place.lockon(&format!("{words} --credentials login"));
    fails(&refused, 1, &format!("the server at 127.0.0.1 port {port} rejects this user and password"));
    assert!(
        stderr(&refused).contains("--credentials FILE") && !stderr(&refused).contains("admin"),
        "{}",
        stderr(&refused)
    );
    std::fs::write(place.path("login"), "s3cret\n").unwrap();
    fails(
        &place.lockon(&format!("{words} --credentials login")),
        2,
        "login: expected one line, user:password",
    );
    fails(
        &place.lockon("run ball.mp4 --threshold mean:31:5 --credentials login"),
        2,
        "--credentials is for an address",
    );
}

#[test]
fn a_server_that_is_not_there_is_told_with_host_and_port_and_what_to_try() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for scheme in ["rtsp", "http"] {
        let out =
            place.lockon(&format!("run {scheme}://127.0.0.1:{port}/x --threshold mean:31:5 --no-progress"));
        fails(&out, 1, &format!("connection refused by 127.0.0.1 port {port}: is the server running"));
    }
}

#[test]
fn a_camera_over_http_that_closes_the_connection_ends_the_run_with_an_error_and_whole_results() {
    let place = Place::new();
    place.gst(
        "videotestsrc num-buffers=1 ! video/x-raw,width=161,height=121 ! jpegenc ! filesink location=a.jpg",
    );
    let picture = std::fs::read(place.path("a.jpg")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let camera = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 4096];
        let _ = stream.read(&mut head).unwrap();
        let kind = "Content-Type: multipart/x-mixed-replace; boundary=frame";
        stream.write_all(format!("HTTP/1.0 200 OK\r\n{kind}\r\n\r\n").as_bytes()).unwrap();
        for _ in 0..4 {
            let part = [b"--frame\r\nContent-Type: image/jpeg\r\n\r\n", &picture[..], b"\r\n"].concat();
            stream.write_all(&part).unwrap();
            std::thread::sleep(Duration::from_millis(250));
        }
    });
    let words = format!("run http://127.0.0.1:{port}/stream --lossless --threshold mean:31:5 --no-progress");
    let out = place.lockon(&format!("{words} --results out.jsonl"));
    camera.join().unwrap();
    fails(&out, 1, "the source was lost: the server closed the connection");
    assert!(stderr(&out).contains("--reconnect waits until it is back"), "{}", stderr(&out));
    let frames = frames(&place.records("out.jsonl")).len();
    assert_eq!(frames, 4);
}

#[test]
fn frames_before_the_first_key_frame_are_skipped_with_a_warning_that_counts_them() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    place.gst(
        "videotestsrc num-buffers=25 ! video/x-raw,format=I420,width=64,height=48 ! \
         x264enc key-int-max=10 bframes=0 option-string=scenecut=0 ! h264parse config-interval=-1 ! \
         video/x-h264,stream-format=byte-stream,alignment=au ! filesink location=whole.h264",
    );
    let whole = std::fs::read(place.path("whole.h264")).unwrap();
    // Access units begin with a delimiter.
    let units: Vec<_> = (0..whole.len()).filter(|at| whole[*at..].starts_with(b"\0\0\0\x01\x09")).collect();
    std::fs::write(place.path("cut.h264"), &whole[units[1]..]).unwrap();
    // Its parameters come later, or first.
    let parameters = whole.windows(5).position(|w| w == b"\0\0\0\x01\x67").unwrap();
    let picture = whole.windows(4).position(|w| w == b"\0\0\x01\x65").unwrap();
    let with_parameters = [&whole[parameters..picture], &whole[units[1]..]].concat();
    std::fs::write(place.path("known.h264"), with_parameters).unwrap();
    for name in ["cut.h264", "known.h264"] {
        let words = format!("run {name} --threshold mean:31:5 --no-progress -y --results out.jsonl");
        let out = succeeds(place.lockon(&words));
        let said = stderr(&out);
        assert!(
            said.contains("skipped 9 frames before the first key frame, which is frame 0"),
            "{name}: {said}"
        );
        assert_eq!(frames(&place.records("out.jsonl")).len(), 15, "{name}");
    }
}

#[test]
fn what_a_terminal_would_obey_does_not_reach_it() {
    let place = Place::new();
    let evil = "evil\u{1b}]0;owned\u{7}\u{1b}[2J.mp4";
    let out = place.lockon_args(&["run", evil, "--threshold", "mean:31:5"]);
    fails(&out, 1, "evil\\u{1b}]0;owned\\u{7}\\u{1b}[2J.mp4");
    assert!(!stderr(&out).contains(['\u{1b}', '\u{7}']));
    let out = place.lockon_args(&["run", "ball.mp4", "--threshold", "mean:31:5", &format!("--{evil}")]);
    assert_eq!(out.status.code(), Some(2));
    assert!(!stderr(&out).contains(['\u{1b}', '\u{7}']), "{}", stderr(&out));
    let port = http_server(&place, "500 \u{1b}[2J\u{1b}]0;owned\u{7}Sorry");
    let out = place.lockon(&format!("-vv run http://127.0.0.1:{port}/x --threshold mean:31:5 --no-progress"));
    assert_eq!(out.status.code(), Some(1));
    assert!(
        stderr(&out).contains("Sorry") && !stderr(&out).contains(['\u{1b}', '\u{7}']),
        "{}",
        stderr(&out)
    );
}

#[test]
fn a_template_whose_name_has_line_breaks_and_colours_forges_no_line() {
    let place = Place::new();
    let evil = "e\u{1b}[8mvil\ncar: found in 60 of 60 frames";
    let template = format!("{evil}=ball.png");
    let out = succeeds(place.lockon_args(&["run", "ball.mp4", "-t", &template, "--no-progress"]));
    let said = stderr(&out);
    assert!(said.contains("e\\u{1b}[8mvil\\u{a}car: found in 60"), "{said}");
    assert!(!said.contains('\u{1b}') && !said.contains("\ncar:"), "{said}");
    let folder = format!("{evil}/out.csv");
    let file = format!("{evil}.csv");
    std::fs::create_dir(place.path(&file)).unwrap();
    for (output, code) in [(folder, 2), (file, 1)] {
        let out = place.lockon_args(&["run", "ball.mp4", "-t", "ball.png", "--results", &output]);
        fails(&out, code, "vil\\u{a}car");
        assert!(!stderr(&out).contains(['\u{1b}', '\r']), "{}", stderr(&out));
        assert!(!stderr(&out).contains("\ncar:"), "{}", stderr(&out));
    }
    let out = place.lockon_args(&["match", "ball.png", &template, "--explain"]);
    assert!(!stderr(&succeeds(out)).contains(['\u{1b}', '\r']));
}

#[test]
fn a_template_whose_name_is_a_formula_is_text_in_a_spreadsheet() {
    let place = Place::new();
    std::fs::copy(place.path("ball.png"), place.path("=1+1.png")).unwrap();
    let args = [
        "run",
        "ball.mp4",
        "--template",
        "./=1+1.png",
        "--track-matches",
        "--results",
        "out.csv",
        "--results",
        "out.jsonl",
    ];
    succeeds(place.lockon_args(&args));
    let csv = place.read("out.csv");
    assert!(csv.contains(",match,'=1+1,") && csv.trim_end().ends_with(",'=1+1"), "{csv}");
    assert!(place.read("out.jsonl").contains("\"template\":\"=1+1\""));
}

#[test]
#[cfg(target_os = "linux")]
fn a_video_whose_name_is_no_text_is_played() {
    use std::os::unix::ffi::OsStrExt;
    let place = Place::new();
    let name = std::ffi::OsStr::from_bytes(b"b\xFFll.mp4");
    std::fs::rename(place.path("ball.mp4"), place.dir.path().join(name)).unwrap();
    let mut run = Command::new(program());
    run.arg("run").arg(name).args(["--threshold", "mean:31:5", "--results", "out.jsonl", "--no-progress"]);
    succeeds(run.current_dir(place.dir.path()).output().unwrap());
    assert_eq!(frames(&place.records("out.jsonl")).len(), FRAMES);
    for option in ["--template", "-o", "--results", "--report"] {
        let mut run = Command::new(program());
        run.arg("run").arg(name).args(["--threshold", "mean:31:5", option]);
        run.arg(std::ffi::OsStr::from_bytes(b"\xFF.mkv"));
        let out = run.current_dir(place.dir.path()).output().unwrap();
        fails(&out, 2, option);
        assert!(stderr(&out).contains("UTF-8"), "{}", stderr(&out));
    }
}

/// As a shell gives what a command prints: it can be read once.
#[cfg(target_os = "linux")]
#[test]
fn a_login_that_can_be_read_once_is_enough_to_print_a_pipeline() {
    let place = Place::new();
    for how in ["--print-pipeline", "--print-pipeline --as-element", "--print-job"] {
        let script = format!(
            "exec timeout 60 \"$0\" run rtsp://127.0.0.1:1/x --track 1,1,9,9 --credentials <(echo me:hidden) {how}"
        );
        let mut shell = Command::new("bash");
        let done = shell.args(["-c", &script]).arg(program()).current_dir(place.dir.path()).output();
        let out = succeeds(done.unwrap());
        assert!(!String::from_utf8(out.stdout).unwrap().contains("hidden"), "{how}");
    }
}

#[test]
fn no_part_of_a_password_that_is_not_escaped_is_shown_and_the_remedy_is() {
    let place = Place::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for password in
        ["s3cret@s3cret:w#s3cret/s3cret%1?s3cret", "p/s3cret", "p@s3cret/s3cret", "p?s3cret", "p#s3cret"]
    {
        for scheme in ["rtsp", "http", "srt", "https"] {
            let address = format!("{scheme}://admin:{password}@127.0.0.1:{free}/cam");
            let threshold = ["--threshold", "mean:31:5", "--no-progress"];
            for words in
                [&["-vv"][..], &["--print-pipeline"], &["--print-job"], &["--results", "a.jsonl", "-y"]]
            {
                let out = place.lockon_args(&[&["run", &address], &threshold[..], words].concat());
                let said = stderr(&out) + &String::from_utf8_lossy(&out.stdout);
                assert!(!said.contains("s3cret"), "{said}");
                let is_refused = !words[0].starts_with("--print");
                assert!(!is_refused || (out.status.code() == Some(2) && said.contains("%40 %2F")), "{said}");
            }
        }
        let address = format!("admin:{password}@127.0.0.1:{free}");
        for receiver in [format!("mqtt://{address}/yard"), format!("https://{address}/hook")] {
            let words = ["run", "ball.mp4", "--track", "8,10,32,32", "--events", &receiver, "--no-progress"];
            let out = place.lockon_args(&words);
            fails(&out, 2, "%40 %2F");
            assert!(!stderr(&out).contains("s3cret"), "{}", stderr(&out));
        }
        let out = place.lockon_args(&["jobs", "--farm", &format!("nats://{address}")]);
        fails(&out, 2, "%40 %2F");
        assert!(!stderr(&out).contains("s3cret"), "{}", stderr(&out));
    }
}

#[test]
fn a_password_in_a_mistyped_address_is_not_shown() {
    let place = Place::new();
    let inputs = ["rtsp:/admin:s3cret@cam/1", "rtsp//admin:s3cret@cam/1", "admin:s3cret@cam/1"];
    let tracked = ["--track", "8,10,32,32", "--no-progress"];
    for input in inputs.into_iter().chain(["http:/cam/x&usr=a&pw=s3cret", "rtsp:///admin:s3cret@/1"]) {
        for command in [
            &["run", "-vv", input][..],
            &["run", input, "--print-job"],
            &["run", input, "ball.mp4"],
            &["run", input, "--no-such-option"],
            &["info", input],
            &["pick", input],
            &["submit", input, "--farm", "nats://127.0.0.1:1", "--results", "a.jsonl"],
        ] {
            let options = if matches!(command[0], "run" | "submit") { &tracked[..] } else { &[] };
            let out = place.lockon_args(&[command, options].concat());
            let said = stderr(&out) + &String::from_utf8_lossy(&out.stdout);
            // Another error may come first, which does not name the input.
            let is_named = command[0] != "submit" && !command.contains(&"--no-such-option");
            assert!(!said.contains("s3cret") && (!is_named || said.contains("***")), "{command:?}: {said}");
        }
    }
    for receiver in ["mqtt:/me:s3cret@h/y", "me:s3cret@h/y", "https:/hooks.example/T0/s3cret"] {
        for command in [&["run", "ball.mp4", "--events", receiver][..], &["events", "forget", receiver]] {
            let options = if command[0] == "run" { &tracked[..] } else { &[] };
            let out = place.lockon_args(&[command, options].concat());
            fails(&out, 2, "***");
            assert!(!stderr(&out).contains("s3cret"), "{}", stderr(&out));
        }
    }
    // A file keeps its name.
    std::fs::copy(place.path("ball.mp4"), place.path("cam:1@yard.mp4")).unwrap();
    let out = succeeds(place.lockon_args(&["info", "cam:1@yard.mp4"]));
    assert!(String::from_utf8_lossy(&out.stdout).contains("cam:1@yard.mp4"));
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_list_a_job_or_an_address() {
    let place = Place::new();
    let write = |name: &str, text: &str| std::fs::write(place.path(name), format!("\u{feff}{text}")).unwrap();
    let count = |name: &str| place.records(name).iter().filter(|record| record["type"] == "frame").count();
    write("list.txt", "ball.mp4\r\n");
    succeeds(
        place.lockon("run --inputs list.txt -t ball.png --max-frames 2 --results list.jsonl --no-progress"),
    );
    assert_eq!(count("list.jsonl"), 2);
    for (name, text) in [
        ("job.toml", "input = \"ball.mp4\"\r\ntemplate = \"ball.png\"\r\nmax-frames = 3\r\n"),
        ("job.json", "{\"input\": \"ball.mp4\", \"template\": \"ball.png\", \"max-frames\": 3}"),
    ] {
        write(name, text);
        succeeds(place.lockon(&format!("run @{name} --results {name}.jsonl --no-progress")));
        assert_eq!(count(&format!("{name}.jsonl")), 3);
    }
    write("source.launch", "videotestsrc num-buffers=2 ! appsink name=frames");
    succeeds(
        place.lockon("run --source @source.launch --threshold mean:31:5 --results s.jsonl --no-progress"),
    );
    assert_eq!(count("s.jsonl"), 2);
    // It is understood as an address, at which no topic is given.
    write("broker", "mqtt://127.0.0.1\r\n");
    let out = place.lockon("run ball.mp4 --track 8,10,32,32 --events @broker");
    fails(&out, 2, "expected a topic");
    let utf16: Vec<u8> = "\u{feff}ball.mp4\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    std::fs::write(place.path("utf16.txt"), utf16).unwrap();
    let out = place.lockon("run --inputs utf16.txt -t ball.png");
    fails(&out, 1, "utf16.txt: its text is UTF-16: save it as UTF-8");
}
