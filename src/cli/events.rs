//! `lockon events`: messages that earlier runs left at a broker.

use anyhow::{Result, anyhow};
use clap::{Args as ClapArgs, Subcommand};

use lockon::events::{self, Forgotten};
use lockon::text;

use super::words::counted;
use super::{Outcome, log};

#[derive(ClapArgs)]
pub(super) struct EventsArgs {
    #[command(subcommand)]
    command: EventsCommand,
}

#[derive(Subcommand)]
enum EventsCommand {
    /// Remove the retained messages of runs at an MQTT broker: tracks, state, status, and what
    /// --home-assistant announced
    #[command(after_long_help = FORGET_EXAMPLES)]
    Forget(ForgetArgs),
}

#[derive(ClapArgs)]
struct ForgetArgs {
    /// The broker and the topic, as for --events: mqtt[s]://[USER:PASSWORD@]HOST[:PORT]/TOPIC, or @FILE with
    /// such an address in it
    #[arg(value_name = "URL|@FILE")]
    address: String,
    /// Remove them also while a run publishes there (its status is `online`)
    #[arg(long)]
    force: bool,
}

const FORGET_EXAMPLES: &str = "\
Examples:
  A camera that is not watched any more:
    lockon events forget mqtt://broker/lockon/yard

Only topics that lockon writes are removed: TOPIC/tracks/NUMBER, TOPIC/state, TOPIC/status, and homeassistant/*/NAME/*/config \
where NAME stands for TOPIC.";

pub(super) fn events(args: &EventsArgs) -> Result<Outcome> {
    let EventsCommand::Forget(args) = &args.command;
    let forgotten = events::forget(&args.address, args.force).map_err(|error| match error {
        lockon::Error::Output { name, reason } => {
            anyhow!("cannot remove the topics of {}: {reason}", text::in_one_line(&name))
        }
        other => other.into(),
    })?;
    log::say(&describe(&forgotten));
    Ok(Outcome::Done)
}

fn describe(Forgotten { name, tracks, states, announcements }: &Forgotten) -> String {
    let name = text::in_one_line(name);
    if (tracks, states, announcements) == (&0, &0, &0) {
        return format!("{name}: nothing to remove");
    }
    let count = |count: u64, one: &str, many: &str| (count > 0).then(|| counted(count, one, many));
    let parts = [
        count(*tracks, "track", "tracks"),
        (*states > 0).then(|| "state and status".into()),
        count(*announcements, "announcement to Home Assistant", "announcements to Home Assistant"),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    format!("{name}: removed {}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_removed_is_counted() {
        let name = "mqtt://broker/yard".to_owned();
        let said = |tracks, states, announcements| {
            describe(&Forgotten { name: name.clone(), tracks, states, announcements })
        };
        assert_eq!(said(0, 0, 0), "mqtt://broker/yard: nothing to remove");
        assert_eq!(said(1, 2, 0), "mqtt://broker/yard: removed 1 track, state and status");
        assert_eq!(
            said(12, 0, 3),
            "mqtt://broker/yard: removed 12 tracks, 3 announcements to Home Assistant"
        );
    }
}
