//! The files that a worker with `--root` opens for the jobs of strangers.

use std::io::Read;
use std::sync::Mutex;

use super::*;

/// A server that gives everybody the same answer and notes what it was asked for.
struct Web {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Web {
    fn start(answer: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port());
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let (answer, noted) = (answer.to_owned(), asked.clone());
        // It ends with the test.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = [0; 4096];
                let length = stream.read(&mut request).unwrap_or(0);
                let request = String::from_utf8_lossy(&request[..length]);
                noted.lock().unwrap().push(request.lines().next().unwrap_or_default().to_owned());
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Self { address, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn playlist(names: &str) -> String {
    let head = "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:1\n#EXTINF:1.0,\n";
    format!("{head}{names}\n#EXT-X-ENDLIST\n")
}

fn answer(kind: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// A video outside of the worker's folder, and one inside.
fn folders(farm: &Farm) -> PathBuf {
    fs::create_dir(farm.path("root")).unwrap();
    fs::copy(root().join("examples/media/cars.mp4"), farm.path("root/a.mp4")).unwrap();
    let secret = farm.path("secret.ts");
    let made = Command::new("gst-launch-1.0")
        .args(["-q", "videotestsrc", "num-buffers=20", "!", "video/x-raw,width=160,height=120", "!"])
        .args(["x264enc", "!", "mpegtsmux", "!", "filesink", &format!("location={}", secret.display())])
        .status();
    assert!(made.unwrap().success());
    secret
}

#[test]
fn a_playlist_below_the_root_names_nothing_that_the_worker_opens() {
    let Some(farm) = Farm::start() else { return };
    let secret = folders(&farm);
    let web = Web::start(&answer("video/mp2t", ""));
    for (name, named) in [
        ("file.m3u8", format!("file://{}", secret.display())),
        ("file.mp4", format!("file://{}", secret.display())),
        ("web.mp4", format!("{}/x.ts", web.address)),
    ] {
        fs::write(farm.path("root").join(name), playlist(&named)).unwrap();
    }
    let sdp = format!(
        "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\na=control:{}\nm=video 9 RTP/AVP 96\na=rtpmap:96 H264/90000\n",
        web.address
    );
    fs::write(farm.path("root/sdp.mp4"), sdp).unwrap();
    let _worker = farm.worker("w", &["--root", "root"]);
    let inputs = ["root/file.m3u8", "root/file.mp4", "root/web.mp4", "root/sdp.mp4", "root/a.mp4"];
    let words = ["submit", "--threshold", "mean:31:5", "--max-frames", "3", "--results", "root/{name}.jsonl"];
    farm.said(&[&words[..], &inputs].concat());
    let jobs = farm.until("all have ended", |jobs| {
        jobs.len() == inputs.len() && jobs.iter().all(|job| ["done", "failed"].contains(&status(job)))
    });
    for job in &jobs {
        let name = job["job"]["name"].as_str().unwrap();
        if name == "a.mp4" {
            assert_eq!(status(job), "done", "{job}");
            continue;
        }
        assert_eq!(status(job), "failed", "{job}");
        let said = job["tries"][0]["error"].as_str().unwrap();
        let expected = if name == "sdp.mp4" { "application/sdp" } else { "names other videos" };
        assert!(said.contains(expected) && said.contains(name), "{said}");
        assert!(!said.contains("/proc/"), "{said}");
    }
    assert_eq!(web.asked(), [""; 0], "nothing was fetched");
    assert_eq!(farm.leftovers(), [""; 0]);
}

#[test]
fn an_address_that_is_allowed_leads_to_no_other_one() {
    let Some(farm) = Farm::start() else { return };
    let secret = folders(&farm);
    let other = Web::start(&answer("video/mp2t", ""));
    let kind = "application/vnd.apple.mpegurl";
    let sends_on = format!(
        "HTTP/1.1 302 Found\r\nLocation: {}/x.mp4\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        other.address
    );
    let webs = [
        Web::start(&answer(kind, &playlist(&format!("file://{}", secret.display())))),
        Web::start(&answer(kind, &playlist(&format!("{}/x.ts", other.address)))),
        Web::start(&sends_on),
    ];
    let _worker = farm.worker("w", &["--root", "root", "--allow", "http"]);
    let inputs: Vec<_> = webs.iter().map(|web| format!("{}/a", web.address)).collect();
    let words =
        ["submit", "--lossless", "--tries", "1", "--threshold", "mean:31:5", "--results", "root/{index}.csv"];
    let inputs: Vec<_> = inputs.iter().map(String::as_str).collect();
    farm.said(&[&words[..], &inputs].concat());
    let jobs = farm.until("all have failed", |jobs| jobs.len() == 3 && all_are(jobs, "failed"));
    assert_eq!(jobs.len(), webs.len());
    assert!(webs.iter().all(|web| !web.asked().is_empty()), "each was asked");
    assert_eq!(other.asked(), [""; 0], "nothing else was");
}

/// Each picture stays open until the job ends. A worker without descriptors took that for its own failure.
#[test]
fn more_pictures_than_a_worker_can_hold_open_are_the_jobs_error_and_the_worker_goes_on() {
    let Some(farm) = Farm::start() else { return };
    fs::create_dir_all(farm.path("root/pictures")).unwrap();
    farm.videos(1);
    fs::rename(farm.path("v0.mp4"), farm.path("root/v0.mp4")).unwrap();
    for number in 0..301 {
        let path = farm.path(&format!("root/pictures/{number:03}.png"));
        image::GrayImage::new(33, 17).save(path).unwrap();
    }
    let mut few = Command::new("sh");
    few.args(["-c", "ulimit -n 256; exec \"$@\"", "sh"]).arg(program());
    few.args(["worker", "--name", "few", "--lease", "2", "--jobs", "1", "--root", "root"]);
    few.current_dir(farm.dir.path()).env("LOCKON_FARM", &farm.address);
    let log = fs::File::create(farm.path("workers.log")).unwrap();
    let _few = Process(few.stdin(Stdio::null()).stderr(log).spawn().unwrap());
    let submit = ["submit", "--threshold", "mean:31:5", "--max-frames", "3", "--results", "root/{index}.csv"];
    farm.said(&[&submit[..], &["root/pictures"]].concat());
    let jobs = farm.until("it is given up", |jobs| all_are(jobs, "failed"));
    let error = jobs[0]["tries"][0]["error"].as_str().unwrap();
    assert!(error.contains("301 pictures") && error.contains("at most 64"), "{error}");
    assert_eq!(jobs[0]["tries"].as_array().unwrap().len(), 1, "{jobs:?}");
    farm.said(&[&submit[..], &["root/v0.mp4", "--wait"]].concat());
    assert!(!farm.log().contains("takes no jobs"), "{}", farm.log());
}

#[test]
fn without_a_root_a_worker_plays_what_a_playlist_names() {
    let Some(farm) = Farm::start() else { return };
    let secret = folders(&farm);
    fs::write(farm.path("list.mp4"), playlist(&format!("file://{}", secret.display()))).unwrap();
    let _worker = farm.worker("w", &[]);
    farm.said(&["submit", "--wait", "--threshold", "mean:31:5", "--results", "a.jsonl", "list.mp4"]);
}
