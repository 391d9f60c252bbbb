//! The commands of a farm: words for people.

mod args;
mod jobs;
mod submit;
mod table;
mod wait;
mod worker;

pub(super) use args::{JobsArgs, SubmitArgs, WorkerArgs, WorkersArgs};
pub(super) use jobs::{jobs, workers};
pub(super) use submit::submit;
pub(super) use worker::worker;

/// `1 job`, `2 jobs`
fn of_jobs(count: usize) -> String {
    super::words::counted(count as u64, "job", "jobs")
}
