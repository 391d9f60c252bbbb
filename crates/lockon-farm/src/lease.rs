//! A job that a worker holds: the server gives it to another one unless it hears of it in time.

use std::time::Duration;

use async_nats::jetstream::message::Acker;
use async_nats::jetstream::{AckKind, Message};

use super::job::Kind;

/// The default length of a lease. It is short for cameras, which no worker watches until it ends.
pub(super) fn usual(kind: Kind) -> Duration {
    match kind {
        Kind::File => Duration::from_secs(5),
        Kind::Live => Duration::from_secs(3),
    }
}

/// A lease. What becomes of it without a word decides the server.
pub(super) struct Lease {
    acker: Acker,
    length: Duration,
}

/// How a lease ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nothing is left to do: the job leaves the queue.
    Close,
    /// Another worker gets the job after a while.
    GiveBack(Duration),
    /// Nothing is said: the job is another worker's, or the server is away and gives it out again later.
    Lapse,
}

impl Lease {
    /// The lease of that length that comes with a message, and what the message says.
    pub(super) fn of(message: Message, length: Duration) -> (Self, bytes::Bytes) {
        let (message, acker) = message.split();
        (Self { acker, length }, message.payload)
    }

    /// How often the server hears of it.
    pub(super) fn renewal(&self) -> Duration {
        self.length / 3
    }

    /// Holds it for its length again.
    pub(super) async fn renew(&self) {
        self.say(AckKind::Progress).await;
    }

    /// Holds it for as long as something takes.
    pub(super) async fn hold<T>(&self, what: impl Future<Output = T>) -> T {
        // It may be large, and is moved once.
        let mut what = Box::pin(what);
        let mut renewal = tokio::time::interval(self.renewal());
        loop {
            tokio::select! {
                biased;
                done = &mut what => return done,
                _ = renewal.tick() => self.renew().await,
            }
        }
    }

    /// Ends it. If the server does not hear of that, whoever takes the job next finds how far it is.
    pub(super) async fn end(&self, fate: Fate) {
        match fate {
            Fate::Close => {
                if let Err(error) = self.acker.double_ack().await {
                    tracing::debug!("farm: a lease was not closed: {error}");
                }
            }
            // A delay of nothing would be left out, and the server's own taken.
            Fate::GiveBack(delay) => {
                self.say(AckKind::Nak(Some(delay.max(Duration::from_millis(1))))).await;
            }
            Fate::Lapse => {}
        }
    }

    async fn say(&self, what: AckKind) {
        if let Err(error) = self.acker.ack_with(what).await {
            tracing::debug!("farm: the server did not hear of a lease: {error}");
        }
    }
}
