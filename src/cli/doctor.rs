//! `lockon doctor`: what was found, what is missing, and the command that mends it.

use std::fmt::Write as _;
use std::io::Write as _;

use anyhow::Result;

use lockon::media::doctor::{self, Health};

use super::Outcome;

/// Prints one line a finding, and what to do about the bad ones. Fails (code 1) if something is missing that lockon needs.
pub(super) fn doctor() -> Result<Outcome> {
    let findings = doctor::check();
    let mut report = String::new();
    for finding in &findings {
        let mark = match finding.health {
            Health::Good => "ok     ",
            Health::Absent => "absent ",
            Health::Bad => "MISSING",
        };
        writeln!(report, "{mark}  {}: {}", finding.subject, finding.detail)?;
        if let Some(mend) = &finding.mend {
            writeln!(report, "         mend: {mend}")?;
        }
    }
    if let Some(command) = doctor::install_command(&findings) {
        writeln!(report, "\nall missing packages at once: {command}")?;
    }
    std::io::stdout().write_all(report.as_bytes())?;
    let is_bad = findings.iter().any(|finding| finding.health == Health::Bad);
    Ok(if is_bad { Outcome::Incomplete } else { Outcome::Done })
}
