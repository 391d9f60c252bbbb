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
