//! Receivers that fail beside others, that require authentication, and whose addresses are secrets.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::{Broker, lockon, said, wait_for};
use crate::util::root;

/// A web server that accepts everything that is posted to it.
struct Hook {
    port: u16,
    /// Paths and bodies.
    taken: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Hook {
    /// With a certificate it accepts only TLS.
    fn start(tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, taken) = (listener.local_addr().unwrap().port(), Arc::default());
        let hook = Self { port, taken: Arc::clone(&taken) };
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (tls, taken) = (tls.clone(), taken.clone());
                std::thread::spawn(move || match tls {
                    None => serve(stream, &taken),
                    Some(tls) => serve(StreamOwned::new(ServerConnection::new(tls).unwrap(), stream), &taken),
                });
            }
        });
        hook
    }

    fn taken(&self) -> Vec<(String, Value)> {
        self.taken.lock().unwrap().clone()
    }
}

/// Reads everything from a connection, until it ends.
fn serve(stream: impl Read + Write, taken: &Mutex<Vec<(String, Value)>>) {
    let mut stream = BufReader::new(stream);
    let (mut path, mut length, mut line) = (String::new(), 0, String::new());
    while stream.read_line(&mut line).is_ok_and(|length| length > 0) {
        let lower = line.to_ascii_lowercase();
        if let Some(asked) = line.strip_prefix("POST ") {
            asked.split(' ').next().unwrap().clone_into(&mut path);
        } else if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        } else if line == "\r\n" {
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            taken.lock().unwrap().push((path.clone(), serde_json::from_slice(&body).unwrap()));
            stream.get_mut().write_all(b"HTTP/1.1 204 x\r\n\r\n").unwrap();
        }
        line.clear();
    }
}

/// A run of the clip of cars in which a box is followed, with these further arguments.
fn run(dir: &Path, words: &[&str]) -> Command {
    let clip = root().join("examples/media/cars.mp4");
    let mut command =
        lockon(dir, &[&[clip.to_str().unwrap(), "--track", "140,150,40,40"][..], words].concat());
    command.env_remove("SSL_CERT_FILE").env_remove("SSL_CERT_DIR");
    command
}

/// The records of a results file.
fn records(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_receiver_that_fails_is_told_of_once_and_ends_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let hook = Hook::start(None);
    let address = format!("http://127.0.0.1:{}/hook", hook.port);
    let words = ["--end", "60", "--events", "-", "--events", &address, "--results", "a.jsonl"];
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = run(dir.path(), &words).stdout(full).stderr(Stdio::piped()).output().unwrap();
    let said = said(&output);
    // The failed receiver makes the run end with an error, and does not end it early.
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("events to stdout: No space left on device"), "{said}");
    assert!(said.matches("no more events are sent there").count() <= 1, "{said}");
    let records = records(&dir.path().join("a.jsonl"));
    assert_eq!(records.iter().filter(|record| record["type"] == "frame").count(), 60, "{said}");
    let summary = records.last().unwrap();
    let numbers: Vec<_> = hook.taken().iter().map(|(_, event)| event["seq"].as_u64().unwrap()).collect();
    let told = numbers.len() as u64;
    assert!(told > 0);
    assert_eq!(numbers, (1..=told).collect::<Vec<_>>());
    let of = |key: &str| [&summary["events"][0][key], &summary["events"][1][key]].map(Value::as_u64);
    assert_eq!((of("sent"), of("lost")), ([Some(0), Some(told)], [Some(told), Some(0)]));
}

#[test]
fn standard_output_that_takes_nothing_at_the_end_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let words = ["--max-frames", "1", "--events", "-", "--results", "a.jsonl"];
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = run(dir.path(), &words).stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let records = records(&dir.path().join("a.jsonl"));
    let summary = records.last().unwrap();
    assert!(summary["error"].is_string(), "{}", said(&output));
    // It appeared and is gone.
    assert_eq!((&summary["events"][0]["sent"], &summary["events"][0]["lost"]), (&0.into(), &2.into()));
}

#[test]
fn standard_output_that_nobody_reads_does_not_keep_a_run_from_ending() {
    let dir = tempfile::tempdir().unwrap();
    let (mut full, _reader) = UnixStream::pair().unwrap();
    full.set_nonblocking(true).unwrap();
    while full.write(&[b'\n'; 1024]).is_ok() {}
    full.set_nonblocking(false).unwrap();
    let words = ["--max-frames", "2", "--events", "-", "--results", "a.jsonl"];
    let mut run = run(dir.path(), &words);
    let output = run.stdout(OwnedFd::from(full)).stderr(Stdio::piped()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let records = records(&dir.path().join("a.jsonl"));
    let told = &records.last().unwrap()["events"][0];
    assert_eq!((&told["sent"], &told["lost"]), (&0.into(), &2.into()), "{}", said(&output));
}

#[test]
fn a_track_is_gone_before_a_video_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    let hook = Hook::start(None);
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (goes_on, go_on) = std::sync::mpsc::channel();
    // A frame is larger than a pipe's buffer: the output cannot end before the pipe is read.
    let reader = std::thread::spawn(move || {
        let mut pipe = File::open(pipe).unwrap();
        go_on.recv().unwrap();
        std::io::copy(&mut pipe, &mut std::io::sink()).unwrap()
    });
    let address = format!("http://127.0.0.1:{}/", hook.port);
    let words = ["--max-frames", "1", "--events", &address, "--sink", "filesink location=pipe"];
    let child = run(dir.path(), &words).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the track is not gone", || hook.taken().iter().any(|(_, event)| event["type"] == "gone"));
    goes_on.send(()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(reader.join().unwrap() > 64 << 10);
}

#[test]
fn no_secret_of_an_address_is_noted_however_it_was_typed() {
    let dir = tempfile::tempdir().unwrap();
    let hook = Hook::start(None);
    let start = format!("me:s3cret@127.0.0.1:{}", hook.port);
    // One is the beginning of the other.
    let (one, other) =
        (format!("http://{start}/{{stem}}"), format!("http://{start}/{{stem}}/s3cret?k=s3cret"));
    let joined = format!("--events={other}");
    let second = root().join("examples/media/cars.mp4");
    let second = second.to_str().unwrap();
    for (words, names) in [
        (&["--results", "a.jsonl"][..], &["a.jsonl"][..]),
        (&["--results", "{index}.jsonl", second], &["1.jsonl", "2.jsonl"]),
    ] {
        let words = [&["--max-frames", "2", "--events", &one, &joined][..], words].concat();
        let output = run(dir.path(), &words).output().unwrap();
        assert!(output.status.success() && !said(&output).contains("s3cret"), "{}", said(&output));
        for name in names {
            let text = std::fs::read_to_string(dir.path().join(name)).unwrap();
            assert!(!text.contains("s3cret"), "{text}");
            let shown = format!("http://***@127.0.0.1:{}/***", hook.port);
            assert_eq!(text.matches(&shown).count(), 2, "{text}");
        }
    }
    let paths: Vec<_> = hook.taken().into_iter().map(|(path, _)| path).collect();
    assert!(paths.iter().any(|path| path == "/cars/s3cret?k=s3cret"), "{paths:?}");
    // A printed job cannot be run with the part of the address that is left in it.
    let job = run(dir.path(), &["--events", &other, "--print-job"]).output().unwrap();
    let text = String::from_utf8(job.stdout.clone()).unwrap();
    assert!(job.status.success() && !text.contains("s3cret") && said(&job).contains("@FILE"), "{text}");
    std::fs::write(dir.path().join("job.toml"), text).unwrap();
    let again = lockon(dir.path(), &["@job.toml"]).output().unwrap();
    assert_eq!(again.status.code(), Some(2), "{}", said(&again));
    assert!(said(&again).contains("was replaced by"), "{}", said(&again));
}

#[test]
fn an_address_can_come_from_a_pipe_and_is_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let hook = Hook::start(None);
    let path = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let child =
        run(dir.path(), &["--max-frames", "2", "--events", "@pipe"]).stderr(Stdio::piped()).spawn().unwrap();
    // The pipe gives the address once, to its first reader.
    std::fs::write(&path, format!("http://127.0.0.1:{}/s3cret\n", hook.port)).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(!hook.taken().is_empty() && !said(&output).contains("s3cret"), "{}", said(&output));
    std::fs::write(dir.path().join("two"), "http://127.0.0.1:1/s3cret\nhttp://127.0.0.1:2/\n").unwrap();
    let output = run(dir.path(), &["--events", "@two"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    let words = said(&output);
    assert!(words.contains("expected one line") && !words.contains("s3cret"), "{words}");
}

/// Runs openssl in a folder.
fn openssl(dir: &Path, words: &str) {
    let output = Command::new("openssl").args(words.split_whitespace()).current_dir(dir).output();
    let output = output.expect("openssl is installed (scripts/setup --to-test)");
    assert!(output.status.success(), "openssl {words}: {}", said(&output));
}

#[test]
fn events_go_by_tls_to_those_whom_an_authority_vouches_for_and_to_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for name in ["ca", "other"] {
        let words = format!("req -x509 {key} -keyout {name}.key -out {name}.pem -days 2 -subj /CN={name}");
        openssl(dir.path(), &words);
    }
    std::fs::write(path("names"), "subjectAltName=IP:127.0.0.1").unwrap();
    openssl(dir.path(), &format!("req {key} -keyout server.key -out server.csr -subj /CN=server"));
    openssl(
        dir.path(),
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out server.pem -extfile names",
    );
    let (certificate, private) = (path("server.pem"), path("server.key"));
    let config = ServerConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_file(&certificate).unwrap()],
            PrivateKeyDer::from_pem_file(&private).unwrap(),
        );
    let hook = Hook::start(Some(config.unwrap().into()));
    let more = format!("certfile {}\nkeyfile {}\n", certificate.display(), private.display());
    let broker = Broker::with(more);
    let mut addresses = vec![format!("https://127.0.0.1:{}/hook", hook.port)];
    addresses.extend(broker.as_ref().map(|broker| format!("mqtts://127.0.0.1:{}/cars", broker.port)));
    let events: Vec<_> = addresses.iter().flat_map(|address| ["--events", address]).collect();
    let start = |authority: &str| {
        let results = format!("{authority}.jsonl");
        let words = [&["--max-frames", "2", "--results", &results][..], &events].concat();
        let mut command = run(dir.path(), &words);
        command
            .env("SSL_CERT_FILE", path(&format!("{authority}.pem")))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let (known, unknown) = (start("ca"), start("other"));
    let output = known.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let told = hook.taken().len() as u64;
    let counts = |authority: &str| {
        let summary = records(&path(&format!("{authority}.jsonl"))).pop().unwrap();
        let events = summary["events"].as_array().unwrap().clone();
        events
            .iter()
            .map(|event| [&event["sent"], &event["lost"]].map(|n| n.as_u64().unwrap()))
            .collect::<Vec<_>>()
    };
    assert!(told > 0);
    assert_eq!(counts("ca"), vec![[told, 0]; addresses.len()], "{}", said(&output));
    let output = unknown.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(counts("other"), vec![[0, told]; addresses.len()], "{}", said(&output));
    assert_eq!(said(&output).matches("UnknownIssuer").count(), addresses.len(), "{}", said(&output));
    assert_eq!(hook.taken().len() as u64, told, "nothing was told to whom nobody knows");
}
