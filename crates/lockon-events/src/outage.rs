//! Retries of a receiver that does not answer: how long to wait, and the messages about it.

use std::time::Duration;

/// The first wait, and the longest: each is twice the one before.
const FIRST: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 250 });
const LONGEST: Duration = Duration::from_millis(if cfg!(test) { 40 } else { 15_000 });

/// The retries of one receiver.
pub(super) struct Outage {
    name: String,
    wait: Option<Duration>,
}

impl Outage {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), wait: None }
    }

    /// Waits before the next try. Reports the reason once, until the outage is over.
    pub(super) async fn wait(&mut self, reason: &str) {
        let wait = self.wait.map_or(FIRST, |before| LONGEST.min(2 * before));
        if self.wait.replace(wait).is_none() {
            tracing::warn!("events: {}: {reason}; retrying", self.name);
        } else {
            tracing::debug!("events: {}: {reason}", self.name);
        }
        tokio::time::sleep(wait).await;
    }

    /// True if the longest wait is reached.
    #[cfg(test)]
    pub(super) fn is_long(&self) -> bool {
        self.wait == Some(LONGEST)
    }

    /// Notes that the receiver answers.
    pub(super) fn over(&mut self) {
        if self.wait.take().is_some() {
            tracing::info!("events: {} answers again", self.name);
        }
    }
}
