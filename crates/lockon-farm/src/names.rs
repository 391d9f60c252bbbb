//! Names of a farm's streams, subjects and consumers on its server.
//!
//! | stream | holds | a subject for each |
//! |---|---|---|
//! | `lockon-NS-queue` | jobs that are not done, each until it is acknowledged | job, below its kind and version |
//! | `lockon-NS-state` | the newest record of every job | job |
//! | `lockon-NS-workers` | the last report of each worker; it expires if no newer one comes | worker |
//! | `lockon-NS-results` | results files that come back through the farm, in pieces | piece |

use super::access::Namespace;
use super::job::{Job, JobKind};

#[derive(Debug, Clone)]
pub(super) struct Names {
    namespace: Namespace,
}

impl Names {
    pub(super) fn new(namespace: &Namespace) -> Self {
        Self { namespace: namespace.clone() }
    }

    /// `queue`, `state`, `workers` or `results`.
    pub(super) fn stream(&self, what: &str) -> String {
        format!("lockon-{}-{what}", self.namespace)
    }

    pub(super) fn all(&self, what: &str) -> String {
        format!("{}.>", self.prefix(what))
    }

    pub(super) fn queued(&self, job: &Job) -> String {
        format!("{}.{}", self.queue(job.kind(), &job.version), job.id)
    }

    /// The messages of a job in the queues of all kinds and versions.
    pub(super) fn queued_anywhere(&self, id: &str) -> String {
        format!("{}.*.*.{id}", self.prefix("queue"))
    }

    /// The subjects of the consumer of a kind and version.
    pub(super) fn queue_of(&self, kind: JobKind, version: &str) -> String {
        format!("{}.*", self.queue(kind, version))
    }

    pub(super) fn consumer(kind: JobKind, version: &str) -> String {
        format!("{}-{}", kind.name(), in_subject(version))
    }

    /// The kind and version of a consumer's jobs.
    pub(super) fn of_consumer(name: &str) -> Option<(JobKind, String)> {
        let (kind, version) = name.split_once('-')?;
        let kind = [JobKind::File, JobKind::Live].into_iter().find(|known| known.name() == kind)?;
        // Any client can make a consumer, and its name is shown.
        let is_ours = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if !version.chars().all(is_ours) {
            return None;
        }
        Some((kind, version.replace('_', ".")))
    }

    pub(super) fn state(&self, id: &str) -> String {
        format!("{}.{id}", self.prefix("state"))
    }

    pub(super) fn worker(&self, instance: &str) -> String {
        format!("{}.{instance}", self.prefix("workers"))
    }

    pub(super) fn piece(&self, id: &str, by: u64, (file, piece): (usize, usize)) -> String {
        format!("{}.{id}.{by}.{file}.{piece}", self.prefix("results"))
    }

    /// The job of a piece of results.
    pub(super) fn job_of_piece<'a>(&self, subject: &'a str) -> Option<&'a str> {
        let prefix = self.prefix("results");
        subject.strip_prefix(&prefix)?.strip_prefix('.')?.split('.').next()
    }

    /// The pieces of a try.
    pub(super) fn pieces_by(&self, id: &str, by: u64) -> String {
        format!("{}.{id}.{by}.>", self.prefix("results"))
    }

    /// The pieces of all tries.
    pub(super) fn pieces(&self, id: &str) -> String {
        format!("{}.{id}.>", self.prefix("results"))
    }

    fn prefix(&self, what: &str) -> String {
        format!("lockon.{}.{what}", self.namespace)
    }

    fn queue(&self, kind: JobKind, version: &str) -> String {
        format!("{}.{}.{}", self.prefix("queue"), kind.name(), in_subject(version))
    }
}

/// A version as one word of a subject: a dot would end the word, and some signs match any word.
fn in_subject(version: &str) -> String {
    version.replace(|c: char| !(c.is_ascii_alphanumeric() || c == '-'), "_")
}
