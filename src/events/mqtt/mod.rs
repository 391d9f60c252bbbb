//! Events published to an MQTT broker (3.1.1), and what is true now as retained messages.
//!
//! | topic | what | retained |
//! |---|---|---|
//! | `TOPIC/events` | each event | no |
//! | `TOPIC/tracks/ID` | the track after its last event; empty once it is gone | yes |
//! | `TOPIC/state` | how many tracks there are, and how many in each zone | yes |
//! | `TOPIC/status` | `online`, `offline`; the broker says `offline` by itself if the run dies | yes |
//!
//! Everything is sent with quality of service 1, and kept here until the broker has acknowledged it. The
//! library forgets what was in flight when a broker comes back without its sessions, so each connection is a
//! new client, which is given what was not acknowledged yet, in its order: an event may come twice, and none
//! is missing. What is retained is told anew too, for a broker that has forgotten it. Tracks of a run that
//! died are removed, and those whose end was lost in a full queue.
//!
//! A broker closes the connection on a message that it will not have (3.1.1 has no other way to say so), and
//! also when it is restarted, or overloaded. A message is given up only if connections that stood without it
//! ended as soon as it alone was sent, several times in a row.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rumqttc::{
    AsyncClient, ConnectReturnCode, ConnectionError, Event, LastWill, MqttOptions, Outgoing, Packet, QoS,
    StateError, TlsConfiguration, Transport,
};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::address::Broker;
use super::outage::Outage;
use super::queue::Queue;
use super::{Letter, MOST_BYTES, tls};

/// Messages that may be on their way; the library holds 100.
const ON_THE_WAY: usize = 50;

/// Messages that wait for the connection to take them: then whoever hands them over waits.
const HANDED_OVER: usize = 10;

/// After so long without a word the broker is asked whether it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// A broker that acknowledges nothing for so long of what it was sent has left this connection, though it may
/// answer whether it is there.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 1000 } else { 30_000 });

/// A connection that has stood so long, or was so long quiet, is no matter of luck.
const STEADY: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 5000 });

/// After so many connections that ended at the same message, the next ones have to be quiet before it is
/// sent, alone...
const SUSPICIOUS: u32 = 2;
/// ...and after so many it is left out.
const MOST_TRIES: u32 = 5;

/// A message.
#[derive(Debug, Clone)]
struct Message {
    /// Later ones have higher numbers.
    number: u64,
    topic: String,
    payload: Bytes,
    is_retained: bool,
    is_event: bool,
}

/// What is known of a broker.
struct Post<'a> {
    broker: &'a Broker,
    options: MqttOptions,
    /// Not acknowledged yet, by their numbers.
    waiting: VecDeque<Message>,
    /// How many of these were handed over to the connection.
    handed_over: usize,
    /// What the broker retains, by topics. Empty messages are there as long as older ones wait.
    retained: BTreeMap<String, Message>,
    /// Tracks that are told of there, or will be.
    tracks: BTreeSet<u32>,
    /// The number of the newest message.
    newest: u64,
    /// The message at which connections ended, and how many did in a row.
    suspect: Option<(u64, u32)>,
    /// True if the broker has acknowledged something of this connection.
    has_answered: bool,
    sent: &'a AtomicU64,
}

/// Publishes what comes out of a queue until it is closed and all is acknowledged; before that, `state`. The
/// run is announced to Home Assistant, if that is wanted.
pub(super) async fn publish(
    broker: Broker,
    home_assistant: Option<Home>,
    state: Bytes,
    queue: &Queue<Arc<Letter>>,
    sent: &AtomicU64,
) {
    let mut outage = Outage::new(&broker.name);
    let mut post = Post::new(&broker, sent);
    for (topic, payload) in home_assistant.iter().flat_map(|home| home.announcements(&broker.topic)) {
        post.put(topic, payload.into(), true);
    }
    post.put(post.topic("state"), state, true);
    while let Err(error) = post.connect(queue, &mut outage).await {
        post.judge(&error);
        outage.wait(&in_words(&error)).await;
    }
}

fn in_words(error: &ConnectionError) -> String {
    match error {
        ConnectionError::ConnectionRefused(
            ConnectReturnCode::BadUserNamePassword | ConnectReturnCode::NotAuthorized,
        ) => "the broker wants another user or password".into(),
        ConnectionError::NetworkTimeout => "no answer".into(),
        ConnectionError::Io(error) => error.to_string(),
        error => error.to_string(),
    }
}

/// A name of 22 letters and digits, which every broker takes, and which nobody else has.
fn client_id() -> String {
    format!("lockon{:016x}", RandomState::new().build_hasher().finish())
}

impl<'a> Post<'a> {
    fn new(broker: &'a Broker, sent: &'a AtomicU64) -> Self {
        let mut options = MqttOptions::new(client_id(), broker.host.clone(), broker.port);
        options.set_keep_alive(KEEP_ALIVE).set_clean_session(true);
        options.set_max_packet_size(MOST_BYTES, 2 * MOST_BYTES);
        if let Some(login) = &broker.login {
            options.set_credentials(&login.user, &login.password);
        }
        if broker.is_secure {
            let config = TlsConfiguration::Rustls(Arc::new(tls::config()));
            options.set_transport(Transport::tls_with_config(config));
        }
        let status = format!("{}/status", broker.topic);
        options.set_last_will(LastWill::new(status, "offline", QoS::AtLeastOnce, true));
        Self {
            broker,
            options,
            waiting: VecDeque::new(),
            handed_over: 0,
            retained: BTreeMap::new(),
            tracks: BTreeSet::new(),
            newest: 0,
            suspect: None,
            has_answered: false,
            sent,
        }
    }

    fn topic(&self, name: &str) -> String {
        format!("{}/{name}", self.broker.topic)
    }

    fn message(&mut self, topic: String, payload: Bytes, is_retained: bool) -> Message {
        self.newest += 1;
        Message { number: self.newest, topic, payload, is_retained, is_event: false }
    }

    /// Lets a message wait.
    fn put(&mut self, topic: String, payload: Bytes, is_retained: bool) {
        let message = self.message(topic, payload, is_retained);
        self.waiting.push_back(message);
    }

    /// Lets the messages of an event wait, and those that take back tracks of whose end it was not told.
    fn take(&mut self, letter: &Letter) {
        let event = self.message(self.topic("events"), letter.event.clone(), false);
        self.waiting.push_back(Message { is_event: true, ..event });
        let is_over = |id: &u32| *id != letter.track && letter.live.binary_search(id).is_err();
        for id in self.tracks.extract_if(.., |id| is_over(id)).collect::<Vec<_>>() {
            self.put(self.topic(&format!("tracks/{id}")), Bytes::new(), true);
        }
        if letter.track_state.is_empty() {
            self.tracks.remove(&letter.track);
        } else {
            self.tracks.insert(letter.track);
        }
        self.put(self.topic(&format!("tracks/{}", letter.track)), letter.track_state.clone(), true);
        self.put(self.topic("state"), letter.state.clone(), true);
    }

    /// Connects, and goes on until the queue is closed and all is acknowledged.
    async fn connect(
        &mut self,
        queue: &Queue<Arc<Letter>>,
        outage: &mut Outage,
    ) -> Result<(), ConnectionError> {
        (self.has_answered, self.handed_over) = (false, 0);
        let mut line = Line::open(self.options.clone());
        line.is_open().await?;
        let steady = tokio::time::sleep(STEADY);
        tokio::pin!(steady);
        let (mut is_steady, mut has_taken) = (false, false);
        // What a run of before could not take back comes as retained.
        line.listen(self.topic("tracks/+")).await;
        self.tell_status(&mut line, "online").await?;
        self.has_answered = true;
        self.waiting.extend(std::mem::take(&mut self.retained).into_values());
        self.waiting.make_contiguous().sort_by_key(|message| message.number);
        let mut is_closed = false;
        while !(is_closed && self.waiting.is_empty()) {
            if self.may_go_on(line.on_the_way(), is_steady) {
                line.hand_over(&self.waiting[self.handed_over]).await;
                self.handed_over += 1;
                continue;
            }
            let is_all_out = self.handed_over == self.waiting.len() && line.on_the_way() < ON_THE_WAY;
            let takes_more = !is_closed && is_all_out;
            tokio::select! {
                biased;
                answer = line.next() => match answer? {
                    Answer::Taken(number) => {
                        self.acknowledge(number);
                        has_taken = true;
                        if is_steady {
                            outage.over();
                        }
                        if self.suspected().is_some() {
                            is_steady = false;
                            steady.as_mut().reset(Instant::now() + STEADY);
                        }
                    }
                    Answer::Retains(topic) => self.take_back(topic),
                    Answer::Other => {}
                },
                () = &mut steady, if !is_steady => {
                    is_steady = true;
                    // One that has only let in may take nothing more.
                    if has_taken || line.on_the_way() == 0 {
                        outage.over();
                    }
                }
                letter = queue.next(), if takes_more => match letter {
                    Some(letter) => self.take(&letter),
                    None => is_closed = true,
                },
            }
        }
        // Whoever takes his leave has no last will.
        self.tell_status(&mut line, "offline").await?;
        line.close().await;
        Ok(())
    }

    /// Tells it, and waits until the broker has taken it.
    async fn tell_status(&mut self, line: &mut Line, status: &'static str) -> Result<(), ConnectionError> {
        let message = self.message(self.topic("status"), Bytes::from_static(status.as_bytes()), true);
        line.hand_over(&message).await;
        loop {
            match line.next().await? {
                Answer::Taken(_) => return Ok(()),
                Answer::Retains(topic) => self.take_back(topic),
                Answer::Other => {}
            }
        }
    }

    /// Takes back what the broker retains at a topic, unless it is of this run, or will be.
    fn take_back(&mut self, topic: String) {
        let is_waiting = |message: &Message| message.topic == topic;
        if !self.retained.contains_key(&topic) && !self.waiting.iter().any(is_waiting) {
            self.put(topic, Bytes::new(), true);
        }
    }

    /// The message that is not sent beside others, if there is one.
    fn suspected(&self) -> Option<u64> {
        self.suspect.filter(|(_, tries)| *tries >= SUSPICIOUS).map(|(number, _)| number)
    }

    /// True if the next message may be sent on a connection with so many on the way.
    fn may_go_on(&self, on_the_way: usize, is_steady: bool) -> bool {
        let Some(next) = self.waiting.get(self.handed_over) else { return false };
        match self.suspected() {
            Some(suspect) if next.number == suspect => on_the_way == 0 && is_steady,
            Some(suspect) if next.number > suspect => false,
            _ => on_the_way < ON_THE_WAY,
        }
    }

    /// A message has come to the broker.
    fn acknowledge(&mut self, number: u64) {
        let place = self.waiting.binary_search_by_key(&number, |message| message.number);
        let Some(message) = place.ok().and_then(|place| self.waiting.remove(place)) else { return };
        self.handed_over -= 1;
        self.suspect = self.suspect.filter(|(suspect, _)| *suspect != number);
        if message.is_event {
            self.sent.fetch_add(1, Ordering::Relaxed);
        }
        // Brokers may acknowledge in another order than the one in which they were told.
        let is_newest = self.retained.get(&message.topic).is_none_or(|other| other.number < number);
        if message.is_retained && is_newest {
            self.retained.insert(message.topic.clone(), message);
        }
        let oldest = self.waiting.front().map_or(u64::MAX, |message| message.number);
        self.retained.retain(|_, message| !message.payload.is_empty() || message.number > oldest);
    }

    /// A connection has ended: perhaps because of the oldest message that was not acknowledged.
    fn judge(&mut self, error: &ConnectionError) {
        let is_silent = matches!(
            error,
            ConnectionError::NetworkTimeout
                | ConnectionError::FlushTimeout
                | ConnectionError::MqttState(StateError::AwaitPingResp | StateError::CollisionTimeout)
        );
        // One that falls silent has not refused anything, nor has one that has never said anything.
        let has_refused = self.has_answered && !is_silent && self.handed_over > 0;
        let Some(oldest) = self.waiting.front().filter(|_| has_refused) else { return };
        let tries = match self.suspect {
            Some((suspect, tries)) if suspect == oldest.number => tries + 1,
            _ => 1,
        };
        self.suspect = Some((oldest.number, tries));
        if tries == MOST_TRIES {
            let name = &self.broker.name;
            tracing::warn!(
                "events: {name}: it does not take a message of {}, which is left out",
                oldest.topic
            );
            self.waiting.pop_front();
            self.suspect = None;
        }
    }
}

/// What a broker says.
#[derive(Debug)]
enum Answer {
    /// It has taken the message of that number.
    Taken(u64),
    /// It retains something at that topic.
    Retains(String),
    /// Something else.
    Other,
}

/// A connection, which is worked on by a task of its own: what it is at must not be given up half done.
struct Line {
    client: AsyncClient,
    happened: mpsc::UnboundedReceiver<Event>,
    task: tokio::task::JoinHandle<ConnectionError>,
    /// Messages that have no number of the library's yet, in their order.
    handed_over: VecDeque<u64>,
    /// Messages by their numbers in the library, which are those of the broker's answers.
    unanswered: BTreeMap<u16, u64>,
    /// When something was acknowledged, or was on its way after nothing had been.
    waits_since: Instant,
}

impl Line {
    fn open(options: MqttOptions) -> Self {
        let (client, mut events) = AsyncClient::new(options, HANDED_OVER);
        let (sender, happened) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            let mut has_connected = false;
            loop {
                match events.poll().await {
                    // It would connect anew by itself.
                    Ok(Event::Incoming(Packet::ConnAck(_))) if has_connected => {
                        return ConnectionError::RequestsDone;
                    }
                    Ok(event) => {
                        has_connected = true;
                        let is_last = event == Event::Outgoing(Outgoing::Disconnect);
                        if sender.send(event).is_err() || is_last {
                            return ConnectionError::RequestsDone;
                        }
                    }
                    Err(error) => {
                        // What came just before it.
                        for event in events.state.events.drain(..) {
                            let _ = sender.send(event);
                        }
                        return error;
                    }
                }
            }
        });
        Self {
            client,
            happened,
            task,
            handed_over: VecDeque::new(),
            unanswered: BTreeMap::new(),
            waits_since: Instant::now(),
        }
    }

    /// Messages that were handed over and not acknowledged.
    fn on_the_way(&self) -> usize {
        self.handed_over.len() + self.unanswered.len()
    }

    /// Hands a message over. If the connection is gone, [`Self::next`] says why, after all that came before.
    async fn hand_over(&mut self, message: &Message) {
        let Message { topic, payload, is_retained, .. } = message;
        if self.on_the_way() == 0 {
            self.waits_since = Instant::now();
        }
        self.handed_over.push_back(message.number);
        let _ = self.client.publish_bytes(topic, QoS::AtLeastOnce, *is_retained, payload.clone()).await;
    }

    /// Asks to be told what is retained at such topics. Errors as [`Self::hand_over`].
    async fn listen(&mut self, topics: String) {
        let _ = self.client.subscribe(topics, QoS::AtLeastOnce).await;
    }

    /// Waits until the broker has let it in.
    async fn is_open(&mut self) -> Result<(), ConnectionError> {
        while !matches!(self.happens().await?, Event::Incoming(Packet::ConnAck(_))) {}
        Ok(())
    }

    /// What the broker says next.
    ///
    /// # Errors
    /// `NetworkTimeout` if it acknowledges nothing of what is on its way for [`PATIENCE`].
    async fn next(&mut self) -> Result<Answer, ConnectionError> {
        let event = if self.on_the_way() == 0 {
            self.happens().await?
        } else {
            let until = self.waits_since + PATIENCE;
            timeout_at(until, self.happens()).await.map_err(|_| ConnectionError::NetworkTimeout)??
        };
        Ok(match event {
            // The library takes one message after the other.
            Event::Outgoing(Outgoing::Publish(packet)) => {
                self.unanswered.extend(self.handed_over.pop_front().map(|number| (packet, number)));
                Answer::Other
            }
            Event::Incoming(Packet::PubAck(ack)) => {
                self.waits_since = Instant::now();
                self.unanswered.remove(&ack.pkid).map_or(Answer::Other, Answer::Taken)
            }
            Event::Incoming(Packet::Publish(found)) if found.retain => Answer::Retains(found.topic),
            _ => Answer::Other,
        })
    }

    async fn happens(&mut self) -> Result<Event, ConnectionError> {
        match self.happened.recv().await {
            Some(event) => Ok(event),
            None => Err((&mut self.task).await.unwrap_or(ConnectionError::RequestsDone)),
        }
    }

    /// Takes leave.
    async fn close(mut self) {
        if self.client.disconnect().await.is_ok() {
            while self.happens().await.is_ok() {}
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What Home Assistant is told of a run, so that it shows it by itself.
pub(super) struct Home {
    /// What the video is called.
    pub(super) source: String,
    pub(super) zones: Vec<Arc<str>>,
    pub(super) kinds: Vec<&'static str>,
}

impl Home {
    /// Topics and payloads as Home Assistant's MQTT discovery takes them: a sensor that counts tracks, one
    /// for each zone that tells whether something is in it, and an entity of the events.
    fn announcements(&self, topic: &str) -> Vec<(String, String)> {
        let node = format!("lockon_{}", named(topic));
        let device = json!({
            "identifiers": [node],
            "name": format!("lockon {}", self.source),
            "sw_version": env!("CARGO_PKG_VERSION"),
        });
        let announce = |kind: &str, object: &str, name: &str, state: &str, more: serde_json::Value| {
            let mut config = json!({
                "name": name,
                "unique_id": format!("{node}_{object}"),
                "state_topic": format!("{topic}/{state}"),
                "availability_topic": format!("{topic}/status"),
                "device": device,
            });
            if let (Some(config), serde_json::Value::Object(more)) = (config.as_object_mut(), more) {
                config.extend(more);
            }
            (format!("homeassistant/{kind}/{node}/{object}/config"), config.to_string())
        };
        let mut all = vec![
            announce(
                "sensor",
                "tracks",
                "Tracks",
                "state",
                json!({"value_template": "{{ value_json.tracks }}", "state_class": "measurement"}),
            ),
            announce(
                "event",
                "events",
                "Events",
                "events",
                json!({
                    "event_types": self.kinds,
                    "value_template": "{{ dict(value_json, event_type=value_json.type) | to_json }}",
                }),
            ),
        ];
        for (index, zone) in self.zones.iter().enumerate() {
            let place = json!(zone);
            all.push(announce(
                "binary_sensor",
                &format!("zone_{}_{}", index + 1, plain(zone)),
                zone,
                "state",
                json!({
                    "device_class": "occupancy",
                    "value_template": format!("{{{{ 'ON' if value_json.zones[{place}] > 0 else 'OFF' }}}}"),
                }),
            ));
        }
        all
    }
}

/// A topic as a part of one, which no other topic has: where characters cannot stay as they are, with eight
/// digits of a hash of all.
fn named(topic: &str) -> String {
    let plain = plain(topic);
    if plain == topic {
        return plain;
    }
    let hash = Sha256::digest(topic);
    hash.iter().take(4).fold(plain + "_", |name, byte| name + &format!("{byte:02x}"))
}

/// What a part of a topic can be for Home Assistant: letters, digits, `_` and `-`.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc::{Receiver, Sender, channel};

    use bytes::BytesMut;
    use rumqttc::{ConnAck, PubAck, SubAck, SubscribeReasonCode};

    use super::*;

    /// What a broker does in a connection.
    #[derive(Debug, Clone, Copy)]
    enum Does {
        /// Lets in, and is gone.
        LetIn,
        /// Takes so many messages, and is gone.
        Take(usize),
        /// Takes messages until this one comes, and is gone.
        CloseAt(&'static str),
        /// Waits for so many messages, takes all but so many of them, the newest first, and is gone.
        TakeNewest(usize, usize),
        /// Takes so many messages and no more, and stays.
        Ignore(usize),
        /// Takes everything until the other takes his leave.
        Serve,
    }

    /// A message that a broker has heard: its topic and what it says.
    type Heard = (String, String);

    /// A broker that does this in connections one after the other, and the last of it in all that come then.
    /// Gives what it hears in each, whether it has taken it or not.
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
        (Broker { host, port, is_secure: false, login: None, topic, name }, heard)
    }

    /// False if nobody wants to hear any more.
    fn serve(mut stream: TcpStream, does: Does, told: &Sender<Vec<Heard>>) -> bool {
        let (mut bytes, mut piece) = (BytesMut::new(), [0; 4096]);
        let (mut heard, mut held) = (Vec::new(), Vec::new());
        'connection: loop {
            while let Ok(packet) = Packet::read(&mut bytes, 1 << 20) {
                let mut answer = BytesMut::new();
                match packet {
                    Packet::Connect(_) => {
                        ConnAck::new(ConnectReturnCode::Success, false).write(&mut answer).unwrap();
                    }
                    Packet::Subscribe(subscribe) => {
                        let granted = vec![SubscribeReasonCode::Success(QoS::AtLeastOnce)];
                        SubAck::new(subscribe.pkid, granted).write(&mut answer).unwrap();
                    }
                    Packet::Publish(publish) => {
                        let said = String::from_utf8(publish.payload.to_vec()).unwrap();
                        if matches!(does, Does::CloseAt(last) if said == last) {
                            break 'connection;
                        }
                        heard.push((publish.topic.clone(), said));
                        match does {
                            // The first says that it is there.
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
                stream.write_all(&answer).unwrap();
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
        told.send(heard).is_ok()
    }

    /// An event of a track, after which these are there.
    fn letter(number: u64, track: u32, live: &[u32]) -> Arc<Letter> {
        let is_live = live.contains(&track);
        let state = |name: &str| Bytes::from(format!("{name} after {number}"));
        Arc::new(Letter {
            event: format!("event {number}").into(),
            track,
            track_state: if is_live { state("track") } else { Bytes::new() },
            state: state("state"),
            live: live.into(),
        })
    }

    /// Publishes these events to such a broker; gives what it heard in each connection, and how many it took.
    fn published(script: &[Does], letters: &[Arc<Letter>]) -> (Vec<Vec<Heard>>, u64) {
        let (broker, heard) = broker(script);
        let (queue, sent) = (Queue::new(), AtomicU64::new(0));
        for letter in letters {
            queue.push(letter.clone(), letter.bytes());
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

    /// What was said at a topic.
    fn at<'a>(heard: &'a [Heard], topic: &str) -> Vec<&'a str> {
        heard.iter().filter(|(at, _)| at == topic).map(|(_, said)| &**said).collect()
    }

    fn events(numbers: impl Iterator<Item = u64>) -> Vec<Arc<Letter>> {
        numbers.map(|number| letter(number, 1, &[1])).collect()
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
        // What the second connection was told first it has taken: that lockon is there, the state, an event.
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
        // The state before, the event, the track and the state after: the first two are not taken.
        let (heard, sent) = published(&[Does::TakeNewest(4, 2), Does::Serve], &events(0..1));
        let [first, second] = &heard[..] else { panic!("{heard:?}") };
        assert_eq!((at(first, "t/events"), at(second, "t/events")), (vec!["event 0"], vec!["event 0"]));
        // In the order in which they were true.
        assert_eq!(at(second, "t/state"), ["state before", "state after 0"]);
        assert_eq!(sent, 1);
    }

    #[test]
    fn a_track_whose_end_was_lost_is_taken_back() {
        let letters = [letter(0, 1, &[1]), letter(1, 2, &[1, 2]), letter(9, 3, &[3])];
        let (heard, sent) = published(&[Does::Serve], &letters);
        for (topic, expected) in [
            ("t/tracks/1", &["track after 0", ""][..]),
            ("t/tracks/2", &["track after 1", ""]),
            ("t/tracks/3", &["track after 9"]),
        ] {
            assert_eq!(at(&heard[0], topic), expected, "{topic}");
        }
        assert_eq!(sent, 3);
    }

    #[test]
    fn a_broker_that_lets_in_and_is_gone_is_not_tried_more_often() {
        let (broker, _heard) = broker(&[Does::LetIn]);
        let (queue, sent) = (Queue::new(), AtomicU64::new(0));
        let (mut post, mut outage) = (Post::new(&broker, &sent), Outage::new("broker"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for _ in 0..4 {
                post.connect(&queue, &mut outage).await.unwrap_err();
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

    #[test]
    fn home_assistant_is_told_of_topics_that_there_are() {
        let home = Home {
            source: "yard".into(),
            zones: vec!["front \"door\"".into()],
            kinds: vec!["appeared", "gone"],
        };
        let told = home.announcements("cams/yard 1");
        let node = format!("lockon_{}", named("cams/yard 1"));
        let topics: Vec<_> = told.iter().map(|(topic, _)| &**topic).collect();
        assert_eq!(
            topics,
            [
                format!("homeassistant/sensor/{node}/tracks/config"),
                format!("homeassistant/event/{node}/events/config"),
                format!("homeassistant/binary_sensor/{node}/zone_1_front__door_/config"),
            ]
        );
        // Topics that look the same as names are two runs.
        assert!(
            node.starts_with("lockon_cams_yard_1_") && node != format!("lockon_{}", named("cams/yard/1"))
        );
        assert_eq!(named("cams_yard_1"), "cams_yard_1");
        let configs: Vec<serde_json::Value> =
            told.iter().map(|(_, config)| serde_json::from_str(config).unwrap()).collect();
        for config in &configs {
            assert_eq!(config["availability_topic"], "cams/yard 1/status");
            assert_eq!(config["device"]["identifiers"][0], *node);
        }
        assert_eq!(configs[1]["event_types"], json!(["appeared", "gone"]));
        assert_eq!(
            configs[2]["value_template"],
            "{{ 'ON' if value_json.zones[\"front \\\"door\\\"\"] > 0 else 'OFF' }}"
        );
    }
}
