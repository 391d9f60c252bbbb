//! Messages on standard error, in colour on a terminal, without tearing the progress bar.

use std::io::{self, IsTerminal, Write};
use std::sync::{LazyLock, OnceLock};

use indicatif::MultiProgress;
use lockon::media::log as media_log;
use lockon::text;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Draws progress bars; messages are printed around them.
pub(super) static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// The levels of `-v`, overridden by `RUST_LOG`.
static ASKED: OnceLock<Targets> = OnceLock::new();

/// The format and the number of messages.
static STYLE: OnceLock<Style> = OnceLock::new();

/// The prefix of GStreamer's targets.
const GSTREAMER: &str = "gst";

/// The target of messages to the user, where messages are JSON.
const SAID_TO_PEOPLE: &str = "lockon::say";

/// How messages on standard error look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(super) enum LogFormat {
    /// For people
    #[default]
    Text,
    /// For programs: an object a line, with timestamp, level, message and target
    Json,
}

#[derive(Debug, Clone, Copy, Default)]
struct Style {
    verbose: u8,
    is_quiet: bool,
    format: LogFormat,
}

fn style() -> Style {
    STYLE.get().copied().unwrap_or_default()
}

/// True if `-v` was given.
pub(super) fn is_verbose() -> bool {
    style().verbose > 0
}

/// True if only errors are printed.
pub(super) fn is_quiet() -> bool {
    style().is_quiet
}

/// True if standard error is a terminal that shows text as it was written.
pub(super) fn is_terminal() -> bool {
    style().format == LogFormat::Text && io::stderr().is_terminal()
}

/// Starts logging: warnings, and more with each `-v`, or errors only. `RUST_LOG` overrides levels by target,
/// as `lockon_gst=trace,gst=info,gst:qtdemux=debug`.
pub(super) fn start(verbose: u8, is_quiet: bool, format: LogFormat) {
    let _ = STYLE.set(Style { verbose, is_quiet, format });
    let (ours, gstreamers) = match verbose {
        0 if is_quiet => (LevelFilter::ERROR, LevelFilter::OFF),
        0 => (LevelFilter::WARN, LevelFilter::OFF),
        1 => (LevelFilter::INFO, LevelFilter::OFF),
        2 => (LevelFilter::DEBUG, LevelFilter::WARN),
        _ => (LevelFilter::TRACE, LevelFilter::INFO),
    };
    let is_set = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
    // Everything that GST_DEBUG enables is shown.
    let gstreamers = if is_set("GST_DEBUG").is_some() { LevelFilter::TRACE } else { gstreamers };
    let mut targets = Targets::new().with_default(ours).with_target(GSTREAMER, gstreamers);
    let typed = is_set("RUST_LOG").map(|text| text.parse::<Targets>().map_err(|error| (text, error)));
    if let Some(Ok(typed)) = &typed {
        // A level for all does not apply to GStreamer, whose lines would drown the rest.
        targets = targets.with_default(typed.default_level().unwrap_or(ours));
        targets = targets.with_targets(typed.iter());
    }
    // Messages to the user do not depend on levels.
    targets = targets.with_target(SAID_TO_PEOPLE, LevelFilter::INFO);
    let names_targets = verbose > 0 || typed.is_some() || gstreamers != LevelFilter::OFF;
    let log = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(|| AroundBars)
        // Otherwise it would try to report on standard error that standard error cannot be written, and
        // panic.
        .log_internal_errors(false);
    let _ = match format {
        LogFormat::Text => {
            let log = log.with_ansi(is_colourful()).with_target(names_targets).without_time();
            log.finish().with(targets.clone()).try_init()
        }
        LogFormat::Json => {
            let log = log.json().flatten_event(true).with_current_span(false).with_span_list(false);
            log.finish().with(targets.clone()).try_init()
        }
    };
    if let Some(Err((text, error))) = typed {
        tracing::warn!("RUST_LOG={text} is not understood: {error}");
    }
    let _ = ASKED.set(targets);
}

/// Joins GStreamer's log to this one. GStreamer has to be started.
pub(super) fn join_gstreamer() {
    let asked = ASKED.get().into_iter().flat_map(Targets::iter);
    let mut levels: Vec<_> = asked
        .filter_map(|(target, level)| match target {
            GSTREAMER => Some(("", level)),
            _ => Some((target.strip_prefix(media_log::PREFIX)?, level)),
        })
        .collect();
    levels.sort_by_key(|(category, _)| category.len());
    media_log::join(levels);
}

/// Prints a message to the user, around the progress bar. A failure to print is ignored: it is no reason to
/// stop.
pub(super) fn say(message: &str) {
    let Style { is_quiet, format, .. } = style();
    match format {
        _ if is_quiet => {}
        LogFormat::Text => print("", message),
        LogFormat::Json => message.lines().for_each(|line| tracing::info!(target: SAID_TO_PEOPLE, "{line}")),
    }
}

/// Prints a message after a label of our own; only the label may have colours.
fn print(label: &str, message: &str) {
    let message = text::for_people(message);
    BARS.suspend(|| {
        let _ = writeln!(io::stderr(), "{label}{message}");
    });
}

/// Prints a question for the user at the terminal; the answer is typed behind it.
pub(super) fn ask(question: &str) {
    BARS.suspend(|| {
        let _ = write!(io::stderr(), "{}", text::for_people(question));
    });
}

/// Prints the error that made the program fail, once.
pub(super) fn error(message: &str) {
    if style().format == LogFormat::Json {
        tracing::error!(target: SAID_TO_PEOPLE, "{message}");
        return;
    }
    print(if is_colourful() { "\x1b[1;31merror:\x1b[0m " } else { "error: " }, message);
}

/// A line of the log without passwords and control sequences. Colours are ours: logged text has its own
/// escape sequences written out. In JSON each string is cleaned separately, since quotes and backslashes have
/// another meaning there.
fn harmless(line: &str, format: LogFormat) -> String {
    if format == LogFormat::Text {
        return text::without_controls_but_colours(&text::without_secrets(line)).into_owned();
    }
    let (mut clean, mut rest) = (String::with_capacity(line.len()), line);
    while let Some(start) = rest.find('"') {
        let (before, string) = rest.split_at(start);
        clean.push_str(before);
        let mut strings = serde_json::Deserializer::from_str(string).into_iter::<String>();
        let Some(Ok(said)) = strings.next() else { return clean + &text::for_people(string) };
        clean.push_str(&serde_json::Value::from(text::for_people(&said)).to_string());
        rest = &string[strings.byte_offset()..];
    }
    clean + rest
}

/// Colour only on a terminal, and not where <https://no-color.org> says no.
fn is_colourful() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

struct AroundBars;

impl Write for AroundBars {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Each message comes whole.
        let message = harmless(&String::from_utf8_lossy(bytes), style().format);
        BARS.suspend(|| io::stderr().write_all(message.as_bytes()))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_stays_json_without_what_is_secret_in_it() {
        let said = "user-pw=\"a\\\"b\" user-id=x\u{202e}\n http://u:p@h\u{1b}";
        let line = format!("{{\"n\":1,\"message\":{},\"target\":\"t\"}}\n", serde_json::Value::from(said));
        let clean = harmless(&line, LogFormat::Json);
        let read: serde_json::Value = serde_json::from_str(&clean).expect(&clean);
        assert_eq!(read["message"], "user-pw=*** user-id=***\n http://***@h\\u{1b}");
        assert_eq!((&read["n"], &read["target"]), (&1.into(), &"t".into()));
        assert!(!harmless("user-pw=a \"user-pw=b", LogFormat::Json).contains('b'));
    }
}
