//! A job that a worker holds: the server gives it to another one unless it hears of it in time.

use std::time::Duration;

use async_nats::jetstream::message::Acker;
use async_nats::jetstream::{AckKind, Message};

use super::job::Kind;

/// How long a job is held without a word where nobody says. Nobody watches a camera meanwhile.
pub(super) fn usual(kind: Kind) -> Duration {
    match kind {
        Kind::File => Duration::from_secs(5),
        Kind::Live => Duration::from_secs(3),
    }
}

/// How often the server hears of a lease of that length.
pub(super) fn renewal(lease: Duration) -> Duration {
    lease / 3
}

/// A lease. What becomes of it without a word decides the server.
pub(super) struct Lease {
    acker: Acker,
}

impl Lease {
    /// The lease that comes with a message, and what the message says.
    pub(super) fn of(message: Message) -> (Self, bytes::Bytes) {
        let (message, acker) = message.split();
        (Self { acker }, message.payload)
    }

    /// Holds it for its length again.
    pub(super) async fn renew(&self) {
        self.say(AckKind::Progress).await;
    }

    /// Gives it back, to be taken again after a while.
    pub(super) async fn give_back(&self, delay: Duration) {
        // A delay of nothing would be left out, and the server's own taken.
        self.say(AckKind::Nak(Some(delay.max(Duration::from_millis(1))))).await;
    }

    /// Takes the job out of the queue. If the server does not hear that, whoever takes the job next finds
    /// that it is done.
    pub(super) async fn close(&self) {
        if let Err(error) = self.acker.double_ack().await {
            tracing::debug!("farm: a lease was not closed: {error}");
        }
    }

    async fn say(&self, what: AckKind) {
        if let Err(error) = self.acker.ack_with(what).await {
            tracing::debug!("farm: the server did not hear of a lease: {error}");
        }
    }
}
