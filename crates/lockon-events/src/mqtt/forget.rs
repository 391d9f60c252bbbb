//! Removes lockon's retained messages at a broker under a topic.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::connection::{Access, Answer, Connection, Ended, Message};
use super::{client_id, home, track_of};
use lockon_run::request::Broker;

/// Maximum number of topics that are found and removed in one connection.
const MAX_FOUND: usize = if cfg!(test) { 50 } else { 10_000 };

/// Maximum number of connections.
const MAX_ROUNDS: usize = if cfg!(test) { 8 } else { 1000 };

/// A broker that has sent nothing more for this long retains nothing more.
const QUIET: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 500 });

/// Maximum time to search in one connection.
const LOOKING: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 30 });

/// The number of topics that were removed at a broker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// The broker and the topic, without a password.
    pub name: String,
    /// Tracks.
    pub tracks: u64,
    /// The state and the status of a run.
    pub states: u64,
    /// Announcements to Home Assistant.
    pub announcements: u64,
}

/// Removes the tracks, state, status and announcements of runs with that topic, also those of a run that is
/// online if `is_forced`.
///
/// # Errors
/// The reason why not all could be removed.
pub(crate) async fn forget(broker: &Broker, is_forced: bool) -> Result<Forgotten, String> {
    let mut done = Forgotten { name: broker.name.clone(), ..Forgotten::default() };
    let access = Access::new(broker, client_id(), None);
    let mut before = BTreeSet::new();
    for _ in 0..MAX_ROUNDS {
        let mut connection = Connection::open(&access).await.map_err(|error| error.to_string())?;
        let found = find(&mut connection, broker).await?;
        if found.is_online && !is_forced {
            return Err(
                "a run publishes there now (its status is online): stop it first, or remove all the \
                        same with --force"
                    .into(),
            );
        }
        if found.topics.is_empty() {
            connection.close().await;
            return Ok(done);
        }
        if found.topics == before {
            let kept = before.len();
            return Err(format!("the broker keeps {kept} topics: may this user publish there?"));
        }
        remove(&mut connection, &found.topics).await.map_err(|error| error.to_string())?;
        connection.close().await;
        for topic in &found.topics {
            *match () {
                () if track_of(topic, broker).is_some() => &mut done.tracks,
                () if home::is_announcement(topic, &broker.topic) => &mut done.announcements,
                () => &mut done.states,
            } += 1;
        }
        before = found.topics;
    }
    Err(format!("{MAX_ROUNDS} times {MAX_FOUND} topics were removed, and the broker retains more"))
}

struct Found {
    /// [`MAX_FOUND`] at most.
    topics: BTreeSet<String>,
    is_online: bool,
}

/// Finds retained messages of runs with that topic.
async fn find(connection: &mut Connection, broker: &Broker) -> Result<Found, String> {
    let [state, status] = ["state", "status"].map(|name| broker.below(name));
    let filters = [state.clone(), status.clone(), broker.below("tracks/+"), home::filter(&broker.topic)];
    let in_words = |error: Ended| error.to_string();
    connection.subscribe(filters).and_then(|()| connection.ping()).map_err(in_words)?;
    let mut found = Found { topics: BTreeSet::new(), is_online: false };
    let (mut is_subscribed, mut has_answered) = (false, false);
    let deadline = Instant::now() + LOOKING;
    let mut quiet_at = deadline;
    while found.topics.len() < MAX_FOUND {
        let Ok(answer) = timeout_at(quiet_at.min(deadline), connection.next()).await else {
            if is_subscribed && has_answered {
                break;
            }
            return Err(in_words(Ended::Silent));
        };
        match answer.map_err(in_words)? {
            Answer::Subscribed(false) => {
                return Err("the broker does not let this user read the topic, so nothing was found".into());
            }
            Answer::Subscribed(true) => is_subscribed = true,
            Answer::Pong => has_answered = true,
            Answer::Retains(topic, payload) if !payload.is_empty() => {
                found.is_online |= topic == status && payload == "online";
                let is_ours = topic == state
                    || topic == status
                    || track_of(&topic, broker).is_some()
                    || home::is_announcement(&topic, &broker.topic);
                if is_ours {
                    found.topics.insert(topic);
                }
            }
            _ => continue,
        }
        quiet_at = if is_subscribed && has_answered { Instant::now() + QUIET } else { deadline };
    }
    Ok(found)
}

/// Removes the retained messages at these topics, and waits until the broker has acknowledged all removals.
async fn remove(connection: &mut Connection, topics: &BTreeSet<String>) -> Result<(), Ended> {
    let mut number = 0;
    let mut messages = topics.iter().map(|topic| {
        number += 1;
        Message { number, topic: topic.clone(), payload: Bytes::new(), is_retained: true, is_event: false }
    });
    let mut is_all_sent = false;
    while !(is_all_sent && connection.unanswered() == 0) {
        if !is_all_sent && connection.has_room() {
            match messages.next() {
                Some(message) => connection.send(&message)?,
                None => is_all_sent = true,
            }
            continue;
        }
        connection.next().await?;
    }
    Ok(())
}
