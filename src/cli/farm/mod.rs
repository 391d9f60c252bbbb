//! The commands of a farm: messages for the user.

mod args;
mod jobs;
mod submit;
mod table;
mod wait;
mod worker;

use lockon::farm::Unreadable;
use lockon::text;

pub(super) use args::{JobsArgs, SubmitArgs, WorkerArgs, WorkersArgs};
pub(super) use jobs::{jobs, workers};
pub(super) use submit::submit;
pub(super) use worker::worker;

/// A line about a record that cannot be read.
fn said_of(bad: &Unreadable) -> String {
    let Unreadable { id, reason, .. } = bad;
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "the farm's record of job {id} cannot be read by lockon {version} ({reason}): it is skipped; `lockon jobs purge {id}` \
         removes it"
    )
}

/// Text of a stranger, or of an error that quotes it, for people: in one line, without passwords.
fn line(said: &str) -> String {
    text::in_one_line(&text::without_secrets(said)).into_owned()
}

/// `1 job`, `2 jobs`
fn of_jobs(count: usize) -> String {
    super::words::counted(count as u64, "job", "jobs")
}
