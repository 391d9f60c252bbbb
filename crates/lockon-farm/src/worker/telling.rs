//! Reports of a worker, for people and for Prometheus.

use std::fmt::Write as _;
use std::time::Duration;

use super::super::job::Worker;
use super::super::store::Queue;
use lockon_core::error::Error;
use lockon_core::results::Summary;

/// An event on a worker.
#[derive(Debug)]
pub enum News {
    /// It accepts jobs from now on.
    Ready {
        /// Its instance, which no other worker has.
        instance: String,
    },
    /// The server does not answer; the worker waits for it.
    Away(Error),
    /// It answers again.
    Back,
    /// A job begins.
    Begun {
        /// Its name.
        name: String,
    },
    /// A job is done, and its results have their names.
    Done {
        /// Its name.
        name: String,
        /// The summary of the run.
        summary: Box<Summary>,
        /// The minimum score of a match.
        min_score: f64,
    },
    /// The results of a job existed already.
    Found {
        /// Its name.
        name: String,
    },
    /// A try failed.
    Failed {
        /// The job's name.
        name: String,
        /// The error.
        error: String,
        /// True if it is not retried.
        is_given_up: bool,
    },
    /// A job goes back into the queue, because this worker ends.
    GivenBack {
        /// Its name.
        name: String,
    },
    /// The server is away, and did not get the end of a job before this worker ends: another one takes the
    /// job.
    Unheard {
        /// Its name.
        name: String,
    },
    /// A job was cancelled, or another worker has it now.
    Taken {
        /// Its name.
        name: String,
    },
    /// No job is taken for a while, after several in a row failed here.
    Resting {
        /// For how long.
        rest: Duration,
        /// The error.
        why: String,
    },
}

/// Returns the metrics of the worker, and those of the farm's queues if the server answers.
pub(super) fn describe(worker: &Worker, queues: Option<&[Queue]>) -> String {
    let mut text = String::new();
    let mut series = |name: &str, kind: &str, help: &str, lines: &[(String, u64)]| {
        let _ = writeln!(text, "# HELP lockon_{name} {help}\n# TYPE lockon_{name} {kind}");
        for (labels, value) in lines {
            let _ = writeln!(text, "lockon_{name}{labels} {value}");
        }
    };
    let one = |value: u64| [(String::new(), value)];
    series("worker_jobs_done_total", "counter", "Jobs that this worker has done.", &one(worker.done));
    series("worker_tries_failed_total", "counter", "Tries that failed on this worker.", &one(worker.failed));
    series("worker_jobs_running", "gauge", "Jobs that this worker does.", &one(worker.running.len() as u64));
    let places = [("file", worker.jobs), ("live", worker.cameras)];
    let places = places.map(|(kind, places)| (format!("{{kind=\"{kind}\"}}"), places as u64));
    series("worker_places", "gauge", "Jobs that this worker does at a time.", &places);
    let is_resting = u64::from(worker.resting.is_some());
    series(
        "worker_resting",
        "gauge",
        "1 while it takes no jobs, after several failed here.",
        &one(is_resting),
    );
    series("farm_reachable", "gauge", "1 if the farm's server answers.", &one(u64::from(queues.is_some())));
    let queues = queues.unwrap_or_default();
    let labels = |queue: &Queue| {
        let kind = if queue.is_live { "live" } else { "file" };
        format!("{{kind=\"{kind}\",version=\"{}\"}}", queue.version)
    };
    let of = |count: fn(&Queue) -> u64| -> Vec<_> {
        queues.iter().map(|queue| (labels(queue), count(queue))).collect()
    };
    series("farm_jobs_queued", "gauge", "Jobs that wait for a worker.", &of(|queue| queue.waiting));
    series("farm_jobs_held", "gauge", "Jobs that workers hold.", &of(|queue| queue.held));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_hears_of_the_worker_and_of_each_queue() {
        let worker = Worker { done: 7, jobs: 4, resting: Some("full".into()), ..Worker::default() };
        let queue = Queue { is_live: false, version: "0.1.0".into(), waiting: 12, held: 3 };
        let text = describe(&worker, Some(&[queue]));
        for line in [
            "lockon_worker_jobs_done_total 7\n",
            "lockon_worker_places{kind=\"file\"} 4\n",
            "lockon_worker_resting 1\n",
            "lockon_farm_reachable 1\n",
            "lockon_farm_jobs_queued{kind=\"file\",version=\"0.1.0\"} 12\n",
            "lockon_farm_jobs_held{kind=\"file\",version=\"0.1.0\"} 3\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(describe(&worker, None).contains("lockon_farm_reachable 0\n"));
    }
}
