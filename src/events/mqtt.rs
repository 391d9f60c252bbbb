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
//! is missing. What is retained is told anew too, for a broker that has forgotten it, and tracks of a run
//! that died are removed.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rumqttc::{
    AsyncClient, ConnectReturnCode, ConnectionError, Event, EventLoop, LastWill, MqttOptions, Packet, QoS,
    TlsConfiguration, Transport,
};
use serde_json::json;
use tokio::sync::mpsc;

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

/// Connections in a row that may end before the same message is acknowledged: it may be why they end.
const MOST_TRIES: u32 = 5;

/// A message.
#[derive(Debug, Clone)]
struct Message {
    topic: String,
    payload: Bytes,
    is_retained: bool,
    /// It completes an event.
    is_event: bool,
}

/// What is known of a broker.
struct Post<'a> {
    broker: &'a Broker,
    options: MqttOptions,
    /// Not acknowledged yet, oldest first.
    waiting: VecDeque<Message>,
    /// What the broker retains.
    retained: BTreeMap<String, Bytes>,
    sent: &'a AtomicU64,
}

/// Publishes what comes out of a queue until it is closed and all is acknowledged. `zones` are announced to
/// Home Assistant, if that is wanted.
pub(super) async fn publish(
    broker: Broker,
    home_assistant: Option<Home>,
    queue: &Queue<Arc<Letter>>,
    sent: &AtomicU64,
) {
    let mut outage = Outage::new(&broker.name);
    let mut post = Post::new(&broker, sent);
    post.retain(post.topic("status"), "online");
    for (topic, payload) in home_assistant.iter().flat_map(|home| home.announcements(&broker.topic)) {
        post.retain(topic, payload);
    }
    let (mut is_over, mut tries) = (false, 0);
    while !is_over {
        let before = post.acknowledged();
        let mut is_connected = false;
        let error = match post.connect(queue, &mut is_connected, &mut outage).await {
            Ok(()) => {
                is_over = true;
                continue;
            }
            Err(error) => error,
        };
        tries = if is_connected && post.acknowledged() == before { tries + 1 } else { 0 };
        if tries == MOST_TRIES {
            tracing::warn!("events: {}: it does not take an event, which is left out", broker.name);
            post.waiting.pop_front();
            tries = 0;
        }
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

impl<'a> Post<'a> {
    fn new(broker: &'a Broker, sent: &'a AtomicU64) -> Self {
        let id = format!("lockon-{:016x}", RandomState::new().build_hasher().finish());
        let mut options = MqttOptions::new(id, broker.host.clone(), broker.port);
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
        Self { broker, options, waiting: VecDeque::new(), retained: BTreeMap::new(), sent }
    }

    fn topic(&self, name: &str) -> String {
        format!("{}/{name}", self.broker.topic)
    }

    fn retain(&mut self, topic: String, payload: impl Into<Bytes>) {
        self.retained.insert(topic, payload.into());
    }

    /// The messages of an event.
    fn take(&mut self, letter: &Letter) {
        let message = |name: &str, payload: &Bytes, is_retained| Message {
            topic: self.topic(name),
            payload: payload.clone(),
            is_retained,
            is_event: false,
        };
        let mut messages = [
            message("events", &letter.event, false),
            message(&format!("tracks/{}", letter.track), &letter.track_state, true),
            message("state", &letter.state, true),
        ];
        messages[2].is_event = true;
        self.waiting.extend(messages);
    }

    fn acknowledged(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Connects, and goes on until the queue is closed and all is acknowledged.
    async fn connect(
        &mut self,
        queue: &Queue<Arc<Letter>>,
        is_connected: &mut bool,
        outage: &mut Outage,
    ) -> Result<(), ConnectionError> {
        let (client, events) = AsyncClient::new(self.options.clone(), HANDED_OVER);
        let mut line = Line::open(events);
        while !matches!(line.next().await?, Packet::ConnAck(_)) {}
        *is_connected = true;
        outage.over();
        // As it was before what waits; each counts as acknowledged where it was once.
        let mut unanswered = VecDeque::new();
        for (topic, payload) in &self.retained {
            hand_over(&client, topic, payload, true).await?;
            unanswered.push_back(false);
        }
        for message in &self.waiting {
            hand_over(&client, &message.topic, &message.payload, message.is_retained).await?;
            unanswered.push_back(true);
        }
        // What a run of before could not take back comes as retained.
        let _ = client.subscribe(self.topic("tracks/+"), QoS::AtLeastOnce).await;
        let mut is_closed = false;
        while !(is_closed && unanswered.is_empty()) {
            tokio::select! {
                letter = queue.next(), if !is_closed && unanswered.len() < ON_THE_WAY => {
                    let Some(letter) = letter else {
                        is_closed = true;
                        continue;
                    };
                    let first = self.waiting.len();
                    self.take(&letter);
                    for message in self.waiting.range(first..) {
                        hand_over(&client, &message.topic, &message.payload, message.is_retained).await?;
                        unanswered.push_back(true);
                    }
                }
                packet = line.next() => match packet? {
                    // Brokers acknowledge in the order in which they were told: MQTT 3.1.1, section 4.6.
                    Packet::PubAck(_) => self.acknowledge(unanswered.pop_front()),
                    Packet::Publish(found) if found.retain && !self.knows(&found.topic) => {
                        hand_over(&client, &found.topic, &Bytes::new(), true).await?;
                        unanswered.push_back(false);
                    }
                    _ => {}
                },
            }
        }
        // Whoever takes his leave has no last will.
        hand_over(&client, &self.topic("status"), &Bytes::from_static(b"offline"), true).await?;
        while !matches!(line.next().await?, Packet::PubAck(_)) {}
        if client.disconnect().await.is_ok() {
            while line.next().await.is_ok() {}
        }
        Ok(())
    }

    /// True if something of this run is retained there, or will be.
    fn knows(&self, topic: &str) -> bool {
        self.retained.contains_key(topic) || self.waiting.iter().any(|message| message.topic == topic)
    }

    /// Something has come to the broker: the oldest that waits, or what was told again.
    fn acknowledge(&mut self, is_waiting: Option<bool>) {
        if is_waiting != Some(true) {
            return;
        }
        let Some(Message { topic, payload, is_retained, is_event }) = self.waiting.pop_front() else {
            return;
        };
        if is_event {
            self.sent.fetch_add(1, Ordering::Relaxed);
        }
        if payload.is_empty() {
            self.retained.remove(&topic);
        } else if is_retained {
            self.retained.insert(topic, payload);
        }
    }
}

async fn hand_over(
    client: &AsyncClient,
    topic: &str,
    payload: &Bytes,
    is_retained: bool,
) -> Result<(), ConnectionError> {
    let handed = client.publish_bytes(topic, QoS::AtLeastOnce, is_retained, payload.clone()).await;
    // The connection is gone: why, it has said.
    handed.map_err(|_| ConnectionError::RequestsDone)
}

/// A connection, which is worked on by a task of its own: what it is at must not be given up half done.
struct Line {
    packets: mpsc::UnboundedReceiver<Packet>,
    task: tokio::task::JoinHandle<ConnectionError>,
}

impl Line {
    fn open(mut events: EventLoop) -> Self {
        let (sender, packets) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            let mut has_connected = false;
            loop {
                match events.poll().await {
                    // It would connect anew by itself.
                    Ok(Event::Incoming(Packet::ConnAck(_))) if has_connected => {
                        return ConnectionError::RequestsDone;
                    }
                    Ok(Event::Incoming(packet)) => {
                        has_connected = true;
                        if sender.send(packet).is_err() {
                            return ConnectionError::RequestsDone;
                        }
                    }
                    Ok(Event::Outgoing(rumqttc::Outgoing::Disconnect)) => {
                        return ConnectionError::RequestsDone;
                    }
                    Ok(Event::Outgoing(_)) => {}
                    Err(error) => return error,
                }
            }
        });
        Self { packets, task }
    }

    /// What the broker says next.
    async fn next(&mut self) -> Result<Packet, ConnectionError> {
        match self.packets.recv().await {
            Some(packet) => Ok(packet),
            None => Err((&mut self.task).await.unwrap_or(ConnectionError::RequestsDone)),
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
        let node = format!("lockon_{}", plain(topic));
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

/// What a part of a topic can be for Home Assistant: letters, digits, `_` and `-`.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_assistant_is_told_of_topics_that_there_are() {
        let home = Home {
            source: "yard".into(),
            zones: vec!["front \"door\"".into()],
            kinds: vec!["appeared", "gone"],
        };
        let told = home.announcements("cams/yard 1");
        let topics: Vec<_> = told.iter().map(|(topic, _)| &**topic).collect();
        assert_eq!(
            topics,
            [
                "homeassistant/sensor/lockon_cams_yard_1/tracks/config",
                "homeassistant/event/lockon_cams_yard_1/events/config",
                "homeassistant/binary_sensor/lockon_cams_yard_1/zone_1_front__door_/config",
            ]
        );
        let configs: Vec<serde_json::Value> =
            told.iter().map(|(_, config)| serde_json::from_str(config).unwrap()).collect();
        for config in &configs {
            assert_eq!(config["availability_topic"], "cams/yard 1/status");
            assert_eq!(config["device"]["identifiers"][0], "lockon_cams_yard_1");
        }
        assert_eq!(configs[1]["event_types"], json!(["appeared", "gone"]));
        assert_eq!(
            configs[2]["value_template"],
            "{{ 'ON' if value_json.zones[\"front \\\"door\\\"\"] > 0 else 'OFF' }}"
        );
    }
}
