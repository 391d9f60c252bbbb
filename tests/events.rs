//! Events: lines on standard output, and a real MQTT broker that is stopped, killed and started again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rumqttc::{Client, Event, MqttOptions, Packet, QoS, RecvTimeoutError};
use serde_json::Value;
use tempfile::TempDir;

use crate::test_log;
use crate::util::{frame, program, root, run_record};
use lockon::backend::Device;
use lockon::events::EventsSink;
use lockon::frame::{Plane, Size};
use lockon::ports::{Delivery, Sink};
use lockon::request::Request;
use lockon::results::{FrameRecord, Summary, Track, TrackState};

mod receivers;

/// A timeout for a busy machine.
const LONG: Duration = Duration::from_secs(90);

fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !is_there() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A broker at a port of its own, killed when it is dropped.
struct Broker {
    dir: TempDir,
    port: u16,
    child: Option<Child>,
    /// Lines of its configuration.
    more: String,
}

impl Broker {
    /// Starts a broker. If there is none on this machine, the test reports that it is skipped.
    fn start() -> Option<Self> {
        Self::with(String::new())
    }

    /// Starts a broker with these lines in its configuration.
    fn with(more: String) -> Option<Self> {
        let path = [Path::new("/usr/sbin/mosquitto"), Path::new("/usr/bin/mosquitto")];
        if !path.iter().any(|path| path.exists()) {
            test_log::missing("MQTT", "no MQTT broker (apt-get install mosquitto)");
            return None;
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut broker = Self { dir: tempfile::tempdir().unwrap(), port, child: None, more };
        let passwords = broker.path("passwords");
        let made = Command::new("mosquitto_passwd")
            .args(["-b", "-c"])
            .arg(&passwords)
            .args(["me", "s3cret"])
            .status();
        assert!(made.unwrap().success());
        broker.restart(true);
        Some(broker)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Sets which clients may connect: all, or `me` alone. The broker keeps everything that a slow listener
    /// has not received yet.
    fn allow(&self, everybody: bool) {
        let config = format!(
            "listener {} 127.0.0.1\nallow_anonymous {everybody}\npassword_file {}\nuser {}\n\
             max_queued_messages 0\n{}",
            self.port,
            self.path("passwords").display(),
            if is_root() { "root" } else { "mosquitto" },
            self.more,
        );
        std::fs::write(self.path("config"), config).unwrap();
    }

    /// Starts the broker without anything that it knew before.
    fn restart(&mut self, everybody: bool) {
        self.allow(everybody);
        let command =
            if Path::new("/usr/sbin/mosquitto").exists() { "/usr/sbin/mosquitto" } else { "mosquitto" };
        let child = Command::new(command)
            .arg("-c")
            .arg(self.path("config"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.child = Some(child.unwrap());
        wait_for("mosquitto does not start", || {
            std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
    }

    fn signal(&self, name: &str) {
        signal(self.child.as_ref().unwrap(), name);
    }

    fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn address(&self, topic: &str) -> String {
        format!("mqtt://127.0.0.1:{}/{topic}", self.port)
    }

    /// Connects a listener that hears everything published from now on, and everything retained.
    fn listen(&self) -> Listener {
        let mut options = MqttOptions::new(format!("test-{:p}", &raw const *self), "127.0.0.1", self.port);
        options.set_credentials("me", "s3cret").set_max_packet_size(1 << 20, 1 << 20);
        let (client, mut connection) = Client::new(options, 10);
        client.subscribe("#", QoS::AtLeastOnce).unwrap();
        loop {
            match connection.recv_timeout(LONG) {
                Ok(Ok(Event::Incoming(Packet::SubAck(_)))) => break,
                Ok(Ok(_)) => {}
                other => panic!("the broker takes no subscription: {other:?}"),
            }
        }
        Listener { client, connection, heard: Vec::new() }
    }
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap().stdout;
    id.trim_ascii() == b"0"
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

struct Listener {
    client: Client,
    connection: rumqttc::Connection,
    /// Topics and payloads.
    heard: Vec<(String, Vec<u8>)>,
}

impl Listener {
    /// Listens until what was heard is enough.
    fn until(&mut self, what: &str, is_enough: impl Fn(&[(String, Vec<u8>)]) -> bool) {
        let deadline = Instant::now() + LONG;
        while !is_enough(&self.heard) {
            assert!(Instant::now() < deadline, "{what}: {:?}", self.retained());
            match self.connection.recv_timeout(Duration::from_millis(100)) {
                Ok(Ok(Event::Incoming(Packet::Publish(publish)))) => {
                    self.heard.push((publish.topic, publish.payload.to_vec()));
                }
                Ok(Ok(_)) | Err(RecvTimeoutError::Timeout) => {}
                other => panic!("{what}: {other:?}"),
            }
        }
    }

    /// Numbers of the events, in the order in which they came.
    fn numbers(&self) -> Vec<u64> {
        events(&self.heard).iter().map(|event| event["seq"].as_u64().unwrap()).collect()
    }

    /// The last message of each topic.
    fn retained(&self) -> BTreeMap<&str, String> {
        self.heard
            .iter()
            .map(|(topic, payload)| (&**topic, String::from_utf8_lossy(payload).into_owned()))
            .collect()
    }
}

fn events(heard: &[(String, Vec<u8>)]) -> Vec<Value> {
    let events = heard.iter().filter(|(topic, _)| topic.ends_with("/events"));
    events.map(|(_, payload)| serde_json::from_slice(payload).unwrap()).collect()
}

/// True if the last that was heard is the event of that number.
fn is_at(heard: &[(String, Vec<u8>)], number: u64) -> bool {
    let last = heard.len().saturating_sub(1);
    events(&heard[last..]).iter().any(|event| event["seq"] == number)
}

/// A run with an event in each frame: a track that is lost and found by turns.
struct Turns {
    sink: EventsSink,
    frames: u64,
}

impl Turns {
    fn of(request: &Request) -> Self {
        let mut sink = EventsSink::open(request, "turns").unwrap();
        let picture = frame(0, &Plane::new(Size::new(64, 48)));
        let device = Device { backend: "cpu", name: "test".into(), driver: None };
        sink.begin(&run_record(&picture.format, &device), &picture.format).unwrap();
        Self { sink, frames: 0 }
    }

    /// Delivers so many more frames, each with an event.
    fn go_on(&mut self, frames: u64) {
        for number in self.frames..self.frames + frames {
            let state = if number.is_multiple_of(2) { TrackState::Tracked } else { TrackState::Lost };
            let track = Track { id: 1, state, x: 8.0, y: 8.0, w: 16.0, h: 16.0, ..Track::default() };
            let record = FrameRecord { frame: number, tracks: vec![track], ..FrameRecord::default() };
            let picture = frame(number, &Plane::new(Size::new(64, 48)));
            let delivery = Delivery { frame: &picture, record: &Arc::new(record), mask: None };
            self.sink.deliver(&delivery).unwrap();
        }
        self.frames += frames;
    }
}

#[test]
fn a_broker_that_is_stopped_and_killed_misses_nothing_that_the_queue_could_hold() {
    let Some(mut broker) = Broker::start() else { return };
    let mut request = Request::new("a.mp4").unwrap();
    request.events = vec![broker.address("test/turns").into()];
    let mut before = broker.listen();
    // A retained message that a run which died has left behind.
    before.client.publish("test/turns/tracks/9", QoS::AtLeastOnce, true, "{}").unwrap();
    before.until("the track of before", |heard| !heard.is_empty());
    let mut turns = Turns::of(&request);
    turns.go_on(20);
    before.until("the first events", |heard| is_at(heard, 20));
    assert_eq!(before.numbers(), (1..=20).collect::<Vec<_>>());
    before.until("the removal of the track of before", |heard| {
        heard.iter().any(|(topic, payload)| topic == "test/turns/tracks/9" && payload.is_empty())
    });
    // The broker accepts messages without acknowledging them, then it is killed and loses them. The run
    // continues.
    broker.signal("-STOP");
    turns.go_on(300);
    broker.kill();
    turns.go_on(300);
    // The broker is back. At first only the listener may connect, so that the listener misses nothing.
    broker.restart(false);
    let mut after = broker.listen();
    broker.allow(true);
    broker.signal("-HUP");
    after.until("all other events", |heard| is_at(heard, 620));
    let mut numbers = after.numbers();
    // Messages that were on their way may come twice, and keep their order.
    numbers.dedup();
    assert_eq!(numbers, (21..=620).collect::<Vec<_>>());
    after.until("the state", |heard| {
        let track = heard.iter().rev().find(|(topic, _)| topic == "test/turns/tracks/1");
        track.is_some_and(|(_, payload)| {
            let state: Value = serde_json::from_slice(payload).unwrap();
            state["state"] == "lost" && state["frame"] == 619
        })
    });
    // Retained messages of before are there too, of a broker that had forgotten all.
    assert_eq!(after.retained()["test/turns/status"], "online");
    turns.sink.finish(&Summary::default()).unwrap();
    after.until("the end", |heard| heard.last().is_some_and(|(topic, _)| topic.ends_with("/status")));
    let mut late = broker.listen();
    late.until("what is retained", |heard| heard.len() == 2);
    let retained = late.retained();
    assert_eq!(retained["test/turns/status"], "offline");
    let state: Value = serde_json::from_str(&retained["test/turns/state"]).unwrap();
    assert_eq!((&state["tracks"], &state["lost"]), (&0.into(), &0.into()), "track 1 is gone");
    let [summary] = &turns.sink.events()[..] else { panic!("one receiver") };
    assert_eq!((summary.sent, summary.lost), (621, 0));
}

/// Lets a broker retain these topics and texts.
fn retain(broker: &Broker, messages: impl IntoIterator<Item = (String, &'static str)>) {
    use rumqttc::mqttbytes::v4::{Connect, Packet, Publish};
    use std::io::{Read, Write};

    let mut stream = std::net::TcpStream::connect(("127.0.0.1", broker.port)).unwrap();
    let mut bytes = bytes::BytesMut::new();
    let mut connect = Connect::new("retain");
    connect.set_login("me", "s3cret");
    connect.write(&mut bytes).unwrap();
    for (topic, text) in messages {
        let mut publish = Publish::new(topic, QoS::AtMostOnce, text);
        publish.retain = true;
        publish.write(&mut bytes).unwrap();
    }
    Packet::PingReq.write(&mut bytes, 9).unwrap();
    stream.write_all(&bytes).unwrap();
    // It is allowed in, and has received everything that came before the ping.
    stream.read_exact(&mut [0; 4 + 2]).unwrap();
}

/// So many tracks of a run with that topic.
fn tracks(topic: &str, count: u32) -> impl Iterator<Item = (String, &'static str)> {
    (1..=count).map(move |id| (format!("{topic}/tracks/{id}"), "{}"))
}

/// How many messages a broker retains at topics that begin like this.
fn retained(broker: &Broker, start: &str) -> usize {
    let mut listener = broker.listen();
    listener.client.publish("end", QoS::AtLeastOnce, false, "").unwrap();
    listener.until("the end", |heard| heard.last().is_some_and(|(topic, _)| topic == "end"));
    listener.heard.iter().filter(|(topic, _)| topic.starts_with(start)).count()
}

#[test]
fn all_events_are_delivered_where_more_tracks_are_retained_than_a_run_removes() {
    let Some(broker) = Broker::start() else { return };
    retain(&broker, tracks("test/turns", 25_000));
    let mut request = Request::new("a.mp4").unwrap();
    request.events = vec![broker.address("test/turns").into()];
    let mut turns = Turns::of(&request);
    turns.go_on(300);
    turns.sink.finish(&Summary::default()).unwrap();
    let [summary] = &turns.sink.events()[..] else { panic!("one receiver") };
    assert_eq!((summary.sent, summary.lost), (301, 0));
    let left = retained(&broker, "test/turns/tracks/");
    // The track of this run was one of them, and is gone.
    assert!((14_999..25_000).contains(&left), "{left}");
}

#[test]
fn forget_removes_what_runs_left_at_a_broker_and_nothing_else() {
    let Some(broker) = Broker::start() else { return };
    let dir = broker.dir.path();
    // A run announces itself, and ends.
    let words = ["--source", SOURCE, "--max-frames", "3", "--track", "140,150,40,40", "--home-assistant"];
    let address = broker.address("cams/yard");
    let run = lockon(dir, &[&words[..], &["--events", &address, "--zone", "z=0,0,9,0,9,9"]].concat());
    let output = { run }.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let others = ["cams/yard/tracks/x", "cams/yard/tracks/7/more", "cams/other/state"];
    let others = others.into_iter().chain(["homeassistant/sensor/other/tracks/config"]);
    retain(&broker, others.map(|topic| (topic.into(), "other")));
    // More than it removes in one connection.
    retain(&broker, tracks("cams/yard", 12_000).chain([("cams/yard/status".into(), "online")]));
    let forget = |words: &[&str]| {
        let all = [&["events", "forget"], words].concat();
        Command::new(program()).args(all).current_dir(dir).stdin(Stdio::null()).output().unwrap()
    };
    let count = || retained(&broker, "cams/yard/") + retained(&broker, "homeassistant/");
    let before = count();
    let output = forget(&[&address]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("is online") && said(&output).contains("--force"), "{}", said(&output));
    assert_eq!(count(), before);
    let output = forget(&[&address, "--force"]);
    assert!(output.status.success(), "{}", said(&output));
    let expected = "removed 12000 tracks, state and status, 3 announcements to Home Assistant";
    assert!(said(&output).contains(expected), "{}", said(&output));
    assert_eq!((retained(&broker, "cams/"), retained(&broker, "homeassistant/")), (3, 1));
    let output = forget(&[&address]);
    assert!(output.status.success() && said(&output).contains("nothing to remove"), "{}", said(&output));
    // An address of no broker, and a broker that is not there.
    assert_eq!(forget(&["http://127.0.0.1/hook"]).status.code(), Some(2));
    let output = forget(&["mqtt://me:s3cret@127.0.0.1:1/yard"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let words = "error: cannot remove the topics of mqtt://127.0.0.1:1/yard: ";
    assert!(said(&output).starts_with(words) && !said(&output).contains("s3cret"), "{}", said(&output));
}

#[test]
fn events_that_are_lost_are_reported_with_quiet_too_and_are_no_failure_of_the_run() {
    let dir = tempfile::tempdir().unwrap();
    // A port without a listener.
    let words = ["-q", "--source", SOURCE, "--max-frames", "3", "--track", "140,150,40,40"];
    let output = lockon(dir.path(), &[&words[..], &["--events", "mqtt://127.0.0.1:1/yard"]].concat())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let lines: Vec<_> = said(&output).lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].ends_with("events: 2 of 2 were not delivered to mqtt://127.0.0.1:1/yard"), "{lines:?}");
}

#[test]
fn a_run_removes_what_it_announced_before_and_does_not_announce_now() {
    let Some(broker) = Broker::start() else { return };
    let address = broker.address("yard");
    let run = |zone: &str| {
        let words = ["--source", SOURCE, "--max-frames", "3", "--track", "140,150,40,40", "--home-assistant"];
        let zone = format!("{zone}=0,0,9,0,9,9");
        let words = [&words[..], &["--events", &address, "--zone", &zone]].concat();
        let output = lockon(broker.dir.path(), &words).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
    };
    run("gate");
    assert_eq!(retained(&broker, "homeassistant/binary_sensor/lockon_yard/zone_1_gate/"), 1);
    run("door");
    assert_eq!(retained(&broker, "homeassistant/binary_sensor/lockon_yard/zone_1_gate/"), 0);
    assert_eq!(retained(&broker, "homeassistant/"), 3);
}

#[test]
fn what_a_full_queue_loses_is_the_oldest_and_is_counted() {
    // A port without a listener.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut request = Request::new("a.mp4").unwrap();
    let addresses =
        [format!("mqtt://127.0.0.1:{port}/a"), format!("http://me:s3cret@127.0.0.1:{port}/T0/s3cret")];
    request.events = addresses.map(Into::into).into();
    let mut turns = Turns::of(&request);
    turns.go_on(3000);
    // A caller waits for the end.
    let control = lockon::control::Control::new();
    turns.sink.belong_to(&control);
    control.stop();
    turns.sink.finish(&Summary::default()).unwrap();
    for summary in turns.sink.events() {
        assert_eq!((summary.sent, summary.lost), (0, 3001));
        assert!(!summary.name.contains("s3cret"), "{}", summary.name);
    }
}

const SOURCE: &str = "videotestsrc is-live=true pattern=smpte ! \
                      video/x-raw,format=GRAY8,width=320,height=240,framerate=25/1 ! appsink name=frames";

fn lockon(dir: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command
        .args(["--foreground", "--signal=KILL", "120"])
        .arg(program())
        .args(["run", "--backend", "cpu", "--no-progress"])
        .args(words)
        .current_dir(dir)
        .stdin(Stdio::null());
    command
}

#[test]
fn home_assistant_finds_a_run_whose_last_will_is_told_if_it_dies() {
    let Some(broker) = Broker::start() else { return };
    broker.allow(false);
    broker.signal("-HUP");
    let address = format!("mqtt://me:s3cret@127.0.0.1:{}/cams/test", broker.port);
    let mut listener = broker.listen();
    // A port without a listener; the path of the address is a secret.
    let hook = "http://me:s3cret@127.0.0.1:1/T0/s3cret";
    let words = ["--source", SOURCE, "--track", "140,150,40,40", "--events", &address, "--home-assistant"];
    let words: Vec<_> = words
        .into_iter()
        .chain(["--zone", "left=0,0,200,0,200,240,0,240", "--results", "a.jsonl", "--events", hook])
        .collect();
    let mut run = lockon(broker.dir.path(), &words).stderr(Stdio::null()).spawn().unwrap();
    // Before the first event nothing is followed, and the state says so too.
    listener.until("the first event", |heard| {
        let states = heard.iter().filter(|(topic, _)| topic == "cams/test/state");
        states.map(|(_, text)| String::from_utf8_lossy(text)).any(|text| text.contains("\"tracks\":1"))
    });
    let retained = listener.retained();
    assert_eq!(retained["cams/test/status"], "online");
    let config = |topic: &str| {
        let is_it = |(at, _): &(&&str, &String)| at.starts_with("homeassistant/") && at.ends_with(topic);
        retained.iter().find(is_it).map(|(_, text)| text.clone()).unwrap()
    };
    let zone = config("/zone_1_left/config");
    assert!(zone.contains("occupancy") && zone.contains("cams/test/state"), "{zone}");
    assert!(config("/events/config").contains("appeared"));
    assert_eq!(retained.keys().filter(|topic| topic.starts_with("homeassistant/")).count(), 3);
    let state: Value = serde_json::from_str(&retained["cams/test/state"]).unwrap();
    assert_eq!(state["tracks"], 1);
    let first = &events(&listener.heard)[0];
    assert_eq!(
        (&first["type"], &first["id"], &first["source"]),
        (&"appeared".into(), &1.into(), &"source".into())
    );
    // `timeout` sends it to the run; the broker notices.
    let id = Command::new("pgrep").args(["-P", &run.id().to_string()]).output().unwrap().stdout;
    let id = String::from_utf8(id).unwrap();
    assert!(Command::new("kill").args(["-KILL", id.trim()]).status().unwrap().success());
    run.wait().unwrap();
    listener.until("the last will", |heard| {
        heard.last().is_some_and(|(topic, text)| topic == "cams/test/status" && text == b"offline")
    });
    let results = std::fs::read_to_string(broker.path("a.jsonl")).unwrap();
    let shown = format!("mqtt://***@127.0.0.1:{}/cams/test", broker.port);
    assert!(results.contains(&shown) && results.contains("http://***@127.0.0.1:1/***"), "{results}");
    assert!(!results.contains("s3cret"), "{results}");
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn events_of_a_file_are_lines_that_agree_with_its_results() {
    let dir = tempfile::tempdir().unwrap();
    let car = root().join("examples/media/car.png");
    let clip = root().join("examples/media/cars.mp4");
    let words =
        [clip.to_str().unwrap(), "--template", car.to_str().unwrap(), "--track-matches", "--end", "120"];
    let more = [
        "--events",
        "-",
        "--event-thumbnails",
        "--results",
        "a.jsonl",
        "--zone",
        "all=-9,-9,9999,-9,9999,9999,-9,9999",
    ];
    let output = lockon(dir.path(), &[&words[..], &more[..]].concat()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let lines: Vec<Value> = output
        .stdout
        .split(|&b| b == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    let results = std::fs::read_to_string(dir.path().join("a.jsonl")).unwrap();
    let results: Vec<Value> = results.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut seen = std::collections::BTreeSet::new();
    for record in results.iter().filter(|record| record["type"] == "frame") {
        seen.extend(record["tracks"].as_array().unwrap().iter().map(|track| track["id"].as_u64().unwrap()));
    }
    assert!(!seen.is_empty());
    for kind in ["appeared", "entered", "left", "gone"] {
        let told =
            lines.iter().filter(|event| event["type"] == kind).map(|event| event["id"].as_u64().unwrap());
        assert_eq!(told.collect::<std::collections::BTreeSet<_>>(), seen, "{kind}");
    }
    let numbers: Vec<_> = lines.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=lines.len() as u64).collect::<Vec<_>>());
    // An event has what the record of its frame says.
    let first = &lines[0];
    let record =
        results.iter().find(|record| record["frame"] == first["frame"] && record["type"] == "frame").unwrap();
    let track = record["tracks"].as_array().unwrap().iter().find(|track| track["id"] == first["id"]).unwrap();
    for key in ["template", "state", "x", "y", "w", "h", "score"] {
        assert_eq!(first[key], track[key], "{key}");
    }
    assert_eq!((&first["pts_ns"], &first["source"]), (&record["pts_ns"], &"cars.mp4".into()));
    // All events of a track in a frame have one picture, the track's own. `/9j/` is how a JPEG
    // begins.
    let mut pictures = BTreeMap::new();
    for event in lines.iter().filter(|event| event["type"] != "gone") {
        let key = (event["frame"].as_u64(), event["id"].as_u64());
        let picture = event["thumbnail"].as_str().unwrap();
        assert!(picture.starts_with("/9j/"), "{picture}");
        assert_eq!(*pictures.entry(key).or_insert(picture), picture, "{key:?}");
    }
    let different: std::collections::BTreeSet<_> = pictures.values().collect();
    assert_eq!(different.len(), pictures.len());
    assert!(lines.iter().all(|event| event["type"] != "gone" || event["thumbnail"].is_null()));
    let summary = results.last().unwrap();
    assert_eq!(summary["events"][0]["sent"], lines.len());
    assert!(
        said(&output).contains(&format!("events: {0} of {0} delivered to stdout", lines.len())),
        "{}",
        said(&output)
    );
}

#[test]
fn what_cannot_be_told_is_wrong_usage_without_its_secrets() {
    let dir = tempfile::tempdir().unwrap();
    for (words, expected) in [
        (&["--events", "mqtt://me:s3cret@host"][..], "expected a topic"),
        (&["--events", "-", "--results", "-"], "standard output is given twice"),
        (&["--events", "-", "--home-assistant"], "--home-assistant needs --events mqtt://"),
        (&["--line", "a=0,0,9,9", "--line", "a=0,0,5,5"], "two lines are called a"),
        (&["--events", "-", "--zone", "a=0,0,9,0,9,9", "--zone-limit", "b=3"], "there is no such --zone"),
        (&["--events", "-", "--zone", "a=0,0,1,0,1,1", "--zone", "a=0,0,2,0,2,2"], "two zones are called a"),
    ] {
        let all = [&["--source", SOURCE, "--track", "1,1,40,40"], words].concat();
        let output = lockon(dir.path(), &all).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(expected) && !said(&output).contains("s3cret"), "{}", said(&output));
    }
    let template = root().join("examples/media/car.png");
    let words = ["--source", SOURCE, "--events", "-", "--template", template.to_str().unwrap()];
    let output = lockon(dir.path(), &words).output().unwrap();
    assert!(said(&output).contains("--events needs tracks"), "{}", said(&output));
    // Two runs have no topic together.
    let words = ["a.mp4", "b.mp4", "--track", "1,1,40,40", "--events", "mqtt://127.0.0.1/a"];
    let output = lockon(dir.path(), &words).output().unwrap();
    assert!(said(&output).contains("put {stem} or {index} into it"), "{}", said(&output));
}
