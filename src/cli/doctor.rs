//! `lockon doctor`: what was found, what is missing, and the command that mends it.

use std::io::Write;

use anyhow::Result;

use lockon::media::doctor::{self, Finding};

use super::Outcome;

pub(super) fn doctor() -> Result<Outcome> {
    todo!()
}
