//! Publishes events to an MQTT broker (3.1.1), and the current state as retained messages.
//!
//! | topic | content | retained |
//! |---|---|---|
//! | `TOPIC/events` | each event | no |
//! | `TOPIC/tracks/ID` | the track after its last event; empty once it is gone | yes |
//! | `TOPIC/state` | how many tracks there are, and how many in each zone | yes |
//! | `TOPIC/status` | `online`, `offline`; the broker publishes `offline` if the run dies | yes |
//!
//! Every message has quality of service 1, and waits here until the broker has acknowledged it. A new
//! connection repeats unacknowledged messages in their order: an event may come twice, but none is missing.
//! It also repeats the retained ones, for a broker that has lost them.
//!
//! An earlier run that died may have left tracks, or announcements to Home Assistant that this run does not
//! make. The run removes [`MAX_STALE`] of them at most, and only while no event waits: a broker can retain
//! more than fits into memory.
//!
//! A broker closes the connection on a message that it does not accept (3.1.1 has no other answer), and also
//! when it is restarted or overloaded. A message is dropped only if several connections in a row stood
//! without it and ended as soon as it was sent alone.

mod connection;
mod forget;
mod home;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::Notice;
use super::outage::Outage;
use super::queue::Queue;
use connection::{Access, Answer, Connection, Ended, Message};
use lockon_run::request::Broker;

pub use forget::Forgotten;
pub(super) use forget::forget;
pub(super) use home::Home;

/// Maximum number of topics of earlier runs that a run removes.
const MAX_STALE: usize = if cfg!(test) { 100 } else { 10_000 };

/// These are removed while fewer messages than this are unanswered, so that an event need not wait for them.
const MAX_REMOVING: usize = 25;

/// A connection that lasted, or was quiet, for this long is stable.
const STEADY: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 5000 });

/// After this many connections that ended at the same message, the next ones have to be quiet before it is
/// sent, alone...
const SUSPICIOUS: u32 = 2;
/// ...and after this many it is dropped.
const MAX_TRIES: u32 = 5;

/// The messages to a broker, and its known state.
struct Outbox<'a> {
    broker: &'a Broker,
    access: Access,
    /// Messages that are not acknowledged, by their numbers.
    waiting: VecDeque<Message>,
    /// How many of these were sent in this connection.
    sent_here: usize,
    /// The broker's retained messages, by topic. Empty messages stay as long as older ones wait.
    retained: BTreeMap<String, Message>,
    /// The topics of these empty messages, by their numbers.
    emptied: BTreeMap<u64, String>,
    /// Tracks that are published there, or will be.
    tracks: BTreeSet<u32>,
    /// Announcements to Home Assistant that this run makes; `None` if it makes none.
    announced: Option<BTreeSet<String>>,
    stale: Stale,
    /// The number of the newest message.
    newest: u64,
    /// The message at which connections ended, and their number in a row.
    suspect: Option<(u64, u32)>,
    /// True if the broker has acknowledged something in this connection.
    has_answered: bool,
    delivered: &'a AtomicU64,
}

/// Leftover topics of earlier runs.
#[derive(Default)]
struct Stale {
    /// Topics that are not removed yet.
    topics: BTreeSet<String>,
    /// The number of found topics.
    found: usize,
    /// True if there are more than [`MAX_STALE`].
    is_full: bool,
}

/// Publishes `state`, then the events of a queue until the queue is closed and all is acknowledged. Announces
/// the run to Home Assistant if requested.
pub(super) async fn publish(
    broker: Broker,
    home_assistant: Option<Home>,
    state: Bytes,
    queue: &Queue<Arc<Notice>>,
    delivered: &AtomicU64,
) {
    let mut outage = Outage::new(&broker.name);
    let mut outbox = Outbox::new(&broker, delivered);
    if let Some(home) = home_assistant {
        let announcements = home.announcements(&broker.topic);
        outbox.announced = Some(announcements.iter().map(|(topic, _)| topic.clone()).collect());
        for (topic, payload) in announcements {
            outbox.put(topic, payload.into(), true);
        }
    }
    outbox.put(broker.below("state"), state, true);
    while let Err(error) = outbox.connect(queue, &mut outage).await {
        outbox.judge(&error);
        outage.wait(&error.to_string()).await;
    }
}

/// A unique name of 22 letters and digits, which every broker accepts.
fn client_id() -> String {
    format!("lockon{:016x}", RandomState::new().build_hasher().finish())
}

/// The number of the track that a topic belongs to.
fn track_of(topic: &str, broker: &Broker) -> Option<u32> {
    let id = topic.strip_prefix(&*broker.topic)?.strip_prefix("/tracks/")?;
    id.parse().ok().filter(|number: &u32| number.to_string() == id)
}

impl<'a> Outbox<'a> {
    fn new(broker: &'a Broker, delivered: &'a AtomicU64) -> Self {
        Self {
            broker,
            access: Access::new(broker, client_id(), Some((broker.below("status"), "offline"))),
            waiting: VecDeque::new(),
            sent_here: 0,
            retained: BTreeMap::new(),
            emptied: BTreeMap::new(),
            tracks: BTreeSet::new(),
            announced: None,
            stale: Stale::default(),
            newest: 0,
            suspect: None,
            has_answered: false,
            delivered,
        }
    }

    fn message(&mut self, topic: String, payload: Bytes, is_retained: bool) -> Message {
        self.newest += 1;
        Message { number: self.newest, topic, payload, is_retained, is_event: false }
    }

    /// Queues a message.
    fn put(&mut self, topic: String, payload: Bytes, is_retained: bool) {
        let message = self.message(topic, payload, is_retained);
        self.waiting.push_back(message);
    }

    /// Queues the messages of an event, and messages that remove tracks whose `gone` was lost.
    fn take(&mut self, notice: &Notice) {
        let event = self.message(self.broker.below("events"), notice.event.clone(), false);
        self.waiting.push_back(Message { is_event: true, ..event });
        let is_over = |id: &u32| notice.track != Some(*id) && notice.live.binary_search(id).is_err();
        for id in self.tracks.extract_if(.., |id| is_over(id)).collect::<Vec<_>>() {
            self.put(self.broker.below(&format!("tracks/{id}")), Bytes::new(), true);
        }
        if let Some(track) = notice.track {
            let topic = self.broker.below(&format!("tracks/{track}"));
            self.stale.topics.remove(&topic);
            if notice.track_state.is_empty() {
                self.tracks.remove(&track);
            } else {
                self.tracks.insert(track);
            }
            self.put(topic, notice.track_state.clone(), true);
        }
        self.put(self.broker.below("state"), notice.state.clone(), true);
    }

    /// Connects, and continues until the queue is closed and all is acknowledged.
    async fn connect(&mut self, queue: &Queue<Arc<Notice>>, outage: &mut Outage) -> Result<(), Ended> {
        (self.has_answered, self.sent_here) = (false, 0);
        let mut connection = Connection::open(&self.access).await?;
        let steady = tokio::time::sleep(STEADY);
        tokio::pin!(steady);
        let (mut is_steady, mut has_delivered) = (false, false);
        let mut is_listening = !self.stale.is_full;
        if is_listening {
            connection.subscribe(self.filters())?;
        }
        self.publish_status(&mut connection, "online").await?;
        self.has_answered = true;
        self.emptied.clear();
        self.waiting.extend(std::mem::take(&mut self.retained).into_values());
        self.waiting.make_contiguous().sort_by_key(|message| message.number);
        let mut is_closed = false;
        while !(is_closed && self.waiting.is_empty() && self.stale.topics.is_empty()) {
            if is_listening && (self.stale.is_full || is_steady) {
                is_listening = false;
                connection.unsubscribe(self.filters())?;
            }
            if self.may_send(&connection, is_steady) {
                connection.send(&self.waiting[self.sent_here])?;
                self.sent_here += 1;
                continue;
            }
            let has_room = self.sent_here == self.waiting.len() && connection.has_room();
            if has_room && let Some(notice) = queue.try_next() {
                self.take(&notice);
                continue;
            }
            if has_room
                && connection.unanswered() < MAX_REMOVING
                && let Some(topic) = self.stale.topics.pop_first()
            {
                self.put(topic, Bytes::new(), true);
                continue;
            }
            tokio::select! {
                answer = connection.next() => match answer? {
                    Answer::Acknowledged(number) => {
                        self.acknowledge(number);
                        has_delivered = true;
                        if is_steady {
                            outage.over();
                        }
                        if self.suspected().is_some() {
                            is_steady = false;
                            steady.as_mut().reset(Instant::now() + STEADY);
                        }
                    }
                    Answer::Retains(topic, payload) => self.find(topic, &payload),
                    Answer::Subscribed(_) | Answer::Pong | Answer::Other => {}
                },
                () = &mut steady, if !is_steady => {
                    is_steady = true;
                    // A broker that accepted the connection may still accept no message.
                    if has_delivered || connection.unanswered() == 0 {
                        outage.over();
                    }
                }
                notice = queue.next(), if has_room && !is_closed => match notice {
                    Some(notice) => self.take(&notice),
                    None => is_closed = true,
                },
            }
        }
        self.publish_status(&mut connection, "offline").await?;
        connection.close().await;
        Ok(())
    }

    /// Topics at which earlier runs may have left messages.
    fn filters(&self) -> Vec<String> {
        let announcements = self.announced.is_some().then(|| home::filter(&self.broker.topic));
        [self.broker.below("tracks/+")].into_iter().chain(announcements).collect()
    }

    /// Publishes the status, and waits until the broker has acknowledged it.
    async fn publish_status(
        &mut self,
        connection: &mut Connection,
        status: &'static str,
    ) -> Result<(), Ended> {
        let message = self.message(self.broker.below("status"), Bytes::from_static(status.as_bytes()), true);
        connection.send(&message)?;
        loop {
            match connection.next().await? {
                Answer::Acknowledged(number) if number == message.number => return Ok(()),
                Answer::Retains(topic, payload) => self.find(topic, &payload),
                _ => {}
            }
        }
    }

    /// Notes a retained message that an earlier run left.
    fn find(&mut self, topic: String, payload: &Bytes) {
        let is_left = match (track_of(&topic, self.broker), &self.announced) {
            (Some(id), _) => !self.tracks.contains(&id),
            (None, Some(announced)) => {
                home::is_announcement(&topic, &self.broker.topic) && !announced.contains(&topic)
            }
            (None, None) => false,
        };
        if !is_left || payload.is_empty() || self.stale.is_full {
            return;
        }
        if self.stale.found == MAX_STALE {
            self.stale.is_full = true;
            tracing::warn!(
                "events: {0}: the broker retains more than {MAX_STALE} topics of earlier runs; this run \
                 leaves the rest (lockon events forget {0} removes all)",
                self.broker.name
            );
            return;
        }
        self.stale.found += usize::from(self.stale.topics.insert(topic));
    }

    /// The message that must be sent alone, if there is one.
    fn suspected(&self) -> Option<u64> {
        self.suspect.filter(|(_, tries)| *tries >= SUSPICIOUS).map(|(number, _)| number)
    }

    /// True if the next message may be sent in this connection.
    fn may_send(&self, connection: &Connection, is_steady: bool) -> bool {
        let Some(next) = self.waiting.get(self.sent_here) else { return false };
        match self.suspected() {
            Some(suspect) if next.number == suspect => connection.unanswered() == 0 && is_steady,
            Some(suspect) if next.number > suspect => false,
            _ => connection.has_room(),
        }
    }

    /// The broker has received a message.
    fn acknowledge(&mut self, number: u64) {
        let place = self.waiting.binary_search_by_key(&number, |message| message.number);
        let Some(message) = place.ok().and_then(|place| self.waiting.remove(place)) else { return };
        self.sent_here -= 1;
        self.suspect = self.suspect.filter(|(suspect, _)| *suspect != number);
        if message.is_event {
            self.delivered.fetch_add(1, Ordering::Relaxed);
        }
        // Brokers may acknowledge in another order than they received.
        let is_newest = self.retained.get(&message.topic).is_none_or(|other| other.number < number);
        if message.is_retained && is_newest {
            if message.payload.is_empty() {
                self.emptied.insert(number, message.topic.clone());
            }
            self.retained.insert(message.topic.clone(), message);
        }
        let oldest = self.waiting.front().map_or(u64::MAX, |message| message.number);
        while let Some(emptied) = self.emptied.first_entry().filter(|emptied| *emptied.key() < oldest) {
            let (number, topic) = emptied.remove_entry();
            if self.retained.get(&topic).is_some_and(|message| message.number == number) {
                self.retained.remove(&topic);
            }
        }
    }

    /// Handles the end of a connection, perhaps because of the oldest unacknowledged message.
    fn judge(&mut self, error: &Ended) {
        // A broker that falls silent or never answered has refused nothing.
        let has_refused = self.has_answered && !matches!(error, Ended::Silent) && self.sent_here > 0;
        let Some(oldest) = self.waiting.front().filter(|_| has_refused) else { return };
        let tries = match self.suspect {
            Some((suspect, tries)) if suspect == oldest.number => tries + 1,
            _ => 1,
        };
        self.suspect = Some((oldest.number, tries));
        if tries == MAX_TRIES {
            tracing::warn!(
                "events: {}: the broker closes the connection on a message at {}, which is dropped",
                self.broker.name,
                oldest.topic
            );
            self.waiting.pop_front();
            self.suspect = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use bytes::BytesMut;
    use rumqttc::mqttbytes::QoS;
    use rumqttc::mqttbytes::v4::{
        ConnAck, ConnectReturnCode, Packet, PubAck, Publish, SubAck, SubscribeReasonCode, UnsubAck,
    };

    use super::*;

    /// The behaviour of a broker in a connection.
    #[derive(Debug, Clone, Copy)]
    enum Does {
        /// Accepts the connection and closes it.
        LetIn,
        /// Accepts so many messages and closes the connection.
        Take(usize),
        /// Accepts messages until this one comes, and closes the connection.
        CloseAt(&'static str),
        /// Waits for so many messages, acknowledges all but so many of them, the newest first, and closes the
        /// connection.
        TakeNewest(usize, usize),
        /// Accepts so many messages and no more, and stays connected.
        Ignore(usize),
        /// Accepts everything, and sends so many retained tracks, after a message that is too long.
        Retain(u32),
        /// Accepts everything, and sends retained tracks without an end.
        Flood,
        /// Accepts everything until the client disconnects.
        Serve,
    }

    /// A message at a broker: its topic and its payload.
    type Heard = (String, String);

    /// A broker with these behaviours in successive connections, and the last one in all later ones. Sends
    /// the messages of each connection, acknowledged or not.
    fn broker(script: &[Does]) -> (Broker, Receiver<Vec<Heard>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, heard) = channel();
        let script = script.to_vec();
        std::thread::spawn(move || {
            let script = script.iter().chain(std::iter::repeat(script.last().unwrap()));
            for (stream, does) in listener.incoming().zip(script) {
                if !serve(stream.unwrap(), *does, &sender) {
                    return;
                }
            }
        });
        let (host, topic, name) = ("127.0.0.1".into(), "t".into(), "broker".into());
        (Broker { host, port, is_secure: false, login: None, topic, is_replaced: false, name }, heard)
    }

    /// Sends `count` retained messages, a tenth of them at topics of lockon's tracks.
    fn retain(to: &Mutex<TcpStream>, count: u32) {
        let mut bytes = BytesMut::new();
        let mut send = |topic: String, payload: Vec<u8>, is_last: bool| {
            let mut publish = Publish::new(topic, QoS::AtMostOnce, payload);
            publish.retain = true;
            publish.write(&mut bytes).unwrap();
            if bytes.len() < 1 << 16 && !is_last {
                return true;
            }
            let result = to.lock().unwrap().write_all(&bytes);
            bytes.clear();
            result.is_ok()
        };
        // A topic of a track that is too long, then one with a number that lockon does not write.
        send("t/tracks/1000000".into(), vec![b'x'; 3 * super::super::MOST_BYTES], true);
        send("t/tracks/007".into(), b"x".to_vec(), true);
        for number in 0..count {
            let topic = match number % 10 {
                0 => format!("t/tracks/{}", 1_000_001 + number / 10),
                _ => format!("t/tracks/{}{number}", "x".repeat(500)),
            };
            if !send(topic, b"x".to_vec(), number + 1 == count) {
                return;
            }
        }
    }

    /// Serves one connection; false if the receiver of its messages is gone.
    fn serve(mut stream: TcpStream, does: Does, told: &Sender<Vec<Heard>>) -> bool {
        let (mut bytes, mut piece) = (BytesMut::new(), [0; 4096]);
        let (mut heard, mut held) = (Vec::new(), Vec::new());
        let writer = Arc::new(Mutex::new(stream.try_clone().unwrap()));
        'connection: loop {
            while let Ok(packet) = Packet::read(&mut bytes, 1 << 20) {
                let mut answer = BytesMut::new();
                match packet {
                    Packet::Connect(_) => {
                        ConnAck::new(ConnectReturnCode::Success, false).write(&mut answer).unwrap();
                    }
                    Packet::Subscribe(subscribe) => {
                        let granted = vec![SubscribeReasonCode::Success(QoS::AtMostOnce)];
                        SubAck::new(subscribe.pkid, granted).write(&mut answer).unwrap();
                        let writer = writer.clone();
                        match does {
                            Does::Retain(count) => retain(&writer, count),
                            Does::Flood => drop(std::thread::spawn(move || retain(&writer, u32::MAX))),
                            _ => {}
                        }
                    }
                    Packet::Unsubscribe(unsubscribe) => {
                        UnsubAck::new(unsubscribe.pkid).write(&mut answer).unwrap();
                    }
                    Packet::PingReq => drop(Packet::PingResp.write(&mut answer, 9).unwrap()),
                    Packet::Publish(publish) => {
                        let said = String::from_utf8(publish.payload.to_vec()).unwrap();
                        if matches!(does, Does::CloseAt(last) if said == last) {
                            break 'connection;
                        }
                        heard.push((publish.topic.clone(), said));
                        match does {
                            // The first message is the status.
                            Does::TakeNewest(count, but) if heard.len() > 1 => {
                                held.push(publish.pkid);
                                if held.len() == count {
                                    for id in held.drain(but..).rev() {
                                        PubAck::new(id).write(&mut answer).unwrap();
                                    }
                                }
                            }
                            Does::Ignore(after) if heard.len() > after => {}
                            _ => drop(PubAck::new(publish.pkid).write(&mut answer).unwrap()),
                        }
                    }
                    Packet::Disconnect => break 'connection,
                    other => panic!("{other:?}"),
                }
                writer.lock().unwrap().write_all(&answer).unwrap();
                match does {
                    Does::LetIn => break 'connection,
                    Does::Take(most) if heard.len() == most => break 'connection,
                    Does::TakeNewest(count, but) if heard.len() == 1 + count && held.len() == but => {
                        break 'connection;
                    }
                    _ => {}
                }
            }
            match stream.read(&mut piece) {
                Ok(length @ 1..) => bytes.extend_from_slice(&piece[..length]),
                _ => break,
            }
        }
        let _ = stream.shutdown(std::net::Shutdown::Both);
        told.send(heard).is_ok()
    }

    /// An event of a track, with the tracks after it.
    fn notice(number: u64, track: u32, live: &[u32]) -> Arc<Notice> {
        let is_live = live.contains(&track);
        let state = |name: &str| Bytes::from(format!("{name} after {number}"));
        Arc::new(Notice {
            event: format!("event {number}").into(),
            track: Some(track),
            track_state: if is_live { state("track") } else { Bytes::new() },
            state: state("state"),
            live: live.into(),
        })
    }

    /// Publishes these events to such a broker. Returns its messages in each connection, and the number of
    /// delivered events.
    fn published(script: &[Does], notices: &[Arc<Notice>]) -> (Vec<Vec<Heard>>, u64) {
        let (broker, heard) = broker(script);
        let (queue, sent) = (Queue::new(), AtomicU64::new(0));
        for notice in notices {
            queue.push(notice.clone(), notice.bytes());
        }
        queue.close();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(publish(broker, None, Bytes::from_static(b"state before"), &queue, &sent));
        let mut all = vec![heard.recv().unwrap()];
        while all.last().unwrap().last().is_none_or(|(_, said)| said != "offline") {
            all.push(heard.recv().unwrap());
        }
        (all, sent.into_inner())
    }

    /// Returns the messages at a topic.
    fn at<'a>(heard: &'a [Heard], topic: &str) -> Vec<&'a str> {
        heard.iter().filter(|(at, _)| at == topic).map(|(_, said)| &**said).collect()
    }

    fn events(numbers: impl Iterator<Item = u64>) -> Vec<Arc<Notice>> {
        numbers.map(|number| notice(number, 1, &[1])).collect()
    }

    #[test]
    fn a_state_of_before_is_told_anew_before_anything_happens() {
        let (heard, sent) = published(&[Does::Serve], &[]);
        let expected = [("t/status", "online"), ("t/state", "state before"), ("t/status", "offline")];
        assert_eq!(heard, [expected.map(|(topic, said)| (topic.to_owned(), said.to_owned()))]);
        assert_eq!(sent, 0);
    }

    #[test]
    fn a_broker_that_comes_and_goes_is_told_everything_as_soon_as_it_stays() {
        let flaps = [[Does::LetIn; 8], [Does::Take(1); 8], [Does::Take(3); 8]].concat();
        let (heard, sent) = published(&[&flaps[..], &[Does::Serve]].concat(), &events(0..4));
        let mut told: Vec<_> = heard.iter().flat_map(|heard| at(heard, "t/events")).collect();
        told.dedup();
        assert_eq!((told, sent), (vec!["event 0", "event 1", "event 2", "event 3"], 4));
    }

    #[test]
    fn a_broker_that_stays_and_takes_nothing_more_is_left_and_told_again() {
        let script = [Does::Ignore(0), Does::Ignore(3), Does::Serve];
        let (heard, sent) = published(&script, &events(0..3));
        assert_eq!((heard.len(), sent), (3, 3));
        // The second connection has acknowledged three messages: the status, the state, an event.
        assert_eq!(at(&heard[2], "t/events"), ["event 1", "event 2"]);
    }

    #[test]
    fn a_message_on_which_a_broker_closes_is_left_out_and_the_rest_goes_on() {
        let (heard, sent) = published(&[Does::CloseAt("event 1")], &events(0..4));
        let mut told: Vec<_> = heard.iter().flat_map(|heard| at(heard, "t/events")).collect();
        told.dedup();
        assert_eq!((told, sent), (vec!["event 0", "event 2", "event 3"], 3));
        assert_eq!(at(heard.last().unwrap(), "t/state").last(), Some(&"state after 3"));
    }

    #[test]
    fn messages_are_acknowledged_by_their_numbers_and_not_by_their_order() {
        // The state before, the event, the track and the state after: the first two are not acknowledged.
        let (heard, sent) = published(&[Does::TakeNewest(4, 2), Does::Serve], &events(0..1));
        let [first, second] = &heard[..] else { panic!("{heard:?}") };
        assert_eq!((at(first, "t/events"), at(second, "t/events")), (vec!["event 0"], vec!["event 0"]));
        // In the order in which they were true.
        assert_eq!(at(second, "t/state"), ["state before", "state after 0"]);
        assert_eq!(sent, 1);
    }

    #[test]
    fn a_track_whose_end_was_lost_is_taken_back() {
        let notices = [notice(0, 1, &[1]), notice(1, 2, &[1, 2]), notice(9, 3, &[3])];
        let (heard, sent) = published(&[Does::Serve], &notices);
        for (topic, expected) in [
            ("t/tracks/1", &["track after 0", ""][..]),
            ("t/tracks/2", &["track after 1", ""]),
            ("t/tracks/3", &["track after 9"]),
        ] {
            assert_eq!(at(&heard[0], topic), expected, "{topic}");
        }
        assert_eq!(sent, 3);
    }

    /// The topics at which a retained message was removed.
    fn removed(heard: &[Heard]) -> Vec<&str> {
        heard.iter().filter(|(_, said)| said.is_empty()).map(|(topic, _)| &**topic).collect()
    }

    #[test]
    fn tracks_of_earlier_runs_are_removed_and_nothing_else_that_a_broker_retains() {
        let (heard, sent) = published(&[Does::Retain(200)], &events(0..3));
        let mut topics = removed(&heard[0]);
        topics.sort_unstable();
        // One in ten of them; not the message that is too long, and not `007`.
        assert_eq!(topics, (1_000_001..=1_000_020).map(|id| format!("t/tracks/{id}")).collect::<Vec<_>>());
        assert_eq!(sent, 3);
    }

    #[test]
    fn more_tracks_than_a_run_removes_are_left_and_no_event_is_lost() {
        for does in [Does::Retain(20 * MAX_STALE as u32), Does::Flood] {
            let (heard, sent) = published(&[does], &events(0..300));
            assert_eq!(sent, 300, "{does:?}");
            assert_eq!(at(&heard[0], "t/events").len(), 300, "{does:?}");
            assert!(removed(&heard[0]).len() <= MAX_STALE, "{does:?}: {}", removed(&heard[0]).len());
        }
    }

    #[test]
    fn a_broker_that_lets_in_and_is_gone_is_not_tried_more_often() {
        let (broker, _heard) = broker(&[Does::LetIn]);
        let (queue, sent) = (Queue::new(), AtomicU64::new(0));
        let (mut outbox, mut outage) = (Outbox::new(&broker, &sent), Outage::new("broker"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for _ in 0..4 {
                outbox.connect(&queue, &mut outage).await.unwrap_err();
                outage.wait("gone").await;
            }
        });
        assert!(outage.is_long());
    }

    #[test]
    fn nobody_else_has_the_name_of_a_client_and_every_broker_takes_it() {
        let (one, other) = (client_id(), client_id());
        assert_ne!(one, other);
        assert!(one.len() <= 23 && one.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{one}");
    }
}
