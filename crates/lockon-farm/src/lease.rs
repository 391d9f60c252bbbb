//! A job that a worker holds: if the worker does not renew the lease in time, the server gives the job to
//! another one.

use std::time::Duration;

use async_nats::jetstream::message::Acker;
use async_nats::jetstream::{AckKind, Message};

use super::job::JobKind;

/// The default length of a lease. It is short for cameras, which no worker watches until it ends.
pub(super) fn usual(kind: JobKind) -> Duration {
    match kind {
        JobKind::File => Duration::from_secs(5),
        JobKind::Live => Duration::from_secs(3),
    }
}

/// A lease. If the worker says nothing, the server decides.
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
    /// Nothing is sent: another worker has the job, or the server is away and delivers it again later.
    Lapse,
}

impl Lease {
    /// Returns the lease of a message, and the message's content.
    pub(super) fn of(message: Message, length: Duration) -> (Self, bytes::Bytes) {
        let (message, acker) = message.split();
        (Self { acker, length }, message.payload)
    }

    /// Time between two renewals.
    pub(super) fn renewal(&self) -> Duration {
        self.length / 3
    }

    /// Renews it for its full length.
    pub(super) async fn renew(&self) {
        self.say(AckKind::Progress).await;
    }

    /// Renews it while `what` runs.
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

    /// Ends it. If the server does not get the message, the next worker reads the job's status from its
    /// record.
    pub(super) async fn end(&self, fate: Fate) {
        match fate {
            Fate::Close => {
                if let Err(error) = self.acker.double_ack().await {
                    tracing::debug!("farm: a lease was not closed: {error}");
                }
            }
            // The client leaves out a delay of 0, and the server would use its own.
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
