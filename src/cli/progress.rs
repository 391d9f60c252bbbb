//! The progress of a run: a bar on a terminal, plain lines in a log.

use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use lockon::Result;
use lockon::frame::VideoFormat;
use lockon::media::sink::Shown;
use lockon::ports::{Delivery, Sink};
use lockon::results::{FrameRecord, Percentiles, RunRecord, Summary};
use lockon::stats::Durations;
use lockon::tally::Tally;
use lockon::text;

use super::closing::in_ms;
use super::log::{self, BARS};

/// Time between two lines in a log.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum characters of a video's name.
const LONGEST_NAME: usize = 32;

/// Templates, and tracks, whose counts are shown.
const MOST_COUNTS: usize = 3;

/// A bar for the number of ended videos, on a terminal, below the bars of single runs.
pub(super) fn bar_of_all(count: usize, what: &str) -> Option<ProgressBar> {
    log::is_terminal().then(|| {
        let template = format!("{{bar:32.green/dim}} {{pos}}/{{len}} {what}  {{msg}}");
        let style = ProgressStyle::with_template(&template).expect("the template is valid");
        BARS.add(ProgressBar::new(count as u64)).with_style(style)
    })
}

/// Shows the findings so far, the frame rate, the speed against real time, and the time left.
pub(super) struct Progress {
    /// Length of the video, where it is known.
    duration_ns: Option<u64>,
    started: Instant,
    last_line: Instant,
    frames: u64,
    first_pts_ns: Option<u64>,
    tally: Tally,
    /// Capture to result, of a live source.
    capture: Durations,
    /// Capture to screen, of a live source.
    shown: Option<Arc<Shown>>,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(super) fn new(duration_ns: Option<u64>, shown: Option<Arc<Shown>>) -> Self {
        Self::named(String::new(), duration_ns, shown)
    }

    /// The progress of one of several videos: a bar on a terminal with its name, above the bar of all.
    pub(super) fn of_one(video: &str, duration_ns: Option<u64>) -> Self {
        let name = text::in_one_line(video);
        let short = name.char_indices().nth(LONGEST_NAME).map_or(&*name, |(end, _)| &name[..end]);
        Self::named(format!("{short}  "), duration_ns, None)
    }

    fn named(name: String, duration_ns: Option<u64>, shown: Option<Arc<Shown>>) -> Self {
        let now = Instant::now();
        let bar = log::is_terminal().then(|| {
            let template = if duration_ns.is_some() {
                "{bar:32.cyan/dim} {percent:>3}%  {prefix}{msg}  {eta} left"
            } else {
                "{spinner} {elapsed}  {prefix}{msg}"
            };
            let style = ProgressStyle::with_template(template).expect("the template is valid");
            let bar = ProgressBar::new(duration_ns.unwrap_or(0));
            let bar = if name.is_empty() { BARS.add(bar) } else { BARS.insert_from_back(1, bar) };
            bar.with_style(style).with_prefix(name)
        });
        let capture = Durations::default();
        let tally = Tally::default();
        Self {
            duration_ns,
            started: now,
            last_line: now,
            frames: 0,
            first_pts_ns: None,
            tally,
            capture,
            shown,
            bar,
        }
    }

    /// `car 15/60, #1 tracked`: frames with a match of each template, and the state of each track.
    fn counts(&self, record: &FrameRecord) -> String {
        let found = self.tally.found();
        let mut parts: Vec<_> = found
            .iter()
            .take(MOST_COUNTS)
            .map(|found| format!("{} {}/{}", found.template, found.frames, self.frames))
            .collect();
        parts.extend(found.len().checked_sub(MOST_COUNTS + 1).map(|more| format!("+{}", more + 1)));
        let tracks = &record.tracks;
        parts.extend(
            tracks.iter().take(MOST_COUNTS).map(|track| format!("#{} {}", track.id, track.state.name())),
        );
        parts.extend(tracks.len().checked_sub(MOST_COUNTS + 1).map(|more| format!("+{}", more + 1)));
        parts.join(", ")
    }

    /// `1234 frames, 98.7 fps, 3.3x real time, car 15/60`, where `played_ns` of video have been processed.
    fn status(&self, played_ns: Option<u64>, record: &FrameRecord) -> String {
        let seconds = self.started.elapsed().as_secs_f64().max(1e-9);
        let speed = played_ns.filter(|ns| *ns > 0).map_or(String::new(), |played_ns| {
            format!(", {:.1}x real time", played_ns as f64 / 1e9 / seconds)
        });
        let mut parts =
            vec![format!("{} frames, {:.1} fps{speed}", self.frames, self.frames as f64 / seconds)];
        if !self.capture.is_empty() {
            parts.push(format!("{} to result", in_ms(Percentiles::of(&self.capture))));
        }
        if let Some(shown) = self.shown.as_ref().map(|shown| shown.latency()).filter(|us| us.max > 0) {
            parts.push(format!("{} to display", in_ms(shown)));
        }
        parts.extend(Some(self.counts(record)).filter(|counts| !counts.is_empty()));
        parts.join(", ")
    }
}

/// Returns `, 3:05 left` after a share of the work took so long; nothing if the estimate would be poor.
fn left(elapsed: Duration, share: f64) -> String {
    if !(0.001..1.0).contains(&share) {
        return String::new();
    }
    let seconds = (elapsed.as_secs_f64() * (1.0 - share) / share) as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, minutes, seconds) => format!(", {minutes}:{seconds:02} left"),
        (hours, minutes, seconds) => format!(", {hours}:{minutes:02}:{seconds:02} left"),
    }
}

impl Sink for Progress {
    fn name(&self) -> &'static str {
        "progress"
    }

    fn is_output(&self) -> bool {
        false
    }

    fn begin(&mut self, run: &RunRecord, _: &VideoFormat) -> Result<()> {
        self.tally.begin(run);
        self.started = Instant::now();
        self.last_line = self.started;
        Ok(())
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        self.frames += 1;
        self.tally.count(delivery.record);
        if let Some(capture_us) = delivery.record.capture_us {
            self.capture.record(capture_us);
        }
        let pts_ns = delivery.frame.meta.pts_ns;
        self.first_pts_ns = self.first_pts_ns.or(pts_ns);
        let played_ns = pts_ns.zip(self.first_pts_ns).map(|(now, first)| now.saturating_sub(first));
        match &self.bar {
            // The bar limits its own rate of drawing, but not the work of wording.
            Some(bar) if self.last_line.elapsed() >= Duration::from_millis(100) => {
                bar.set_message(self.status(played_ns, delivery.record));
                if self.duration_ns.is_some() {
                    bar.set_position(played_ns.unwrap_or(0));
                } else {
                    bar.tick();
                }
                self.last_line = Instant::now();
            }
            None if self.last_line.elapsed() >= LINE_INTERVAL => {
                let share = self.duration_ns.zip(played_ns).filter(|(whole, _)| *whole > 0);
                let share = share.map_or(String::new(), |(whole, now)| {
                    let share = now as f64 / whole as f64;
                    format!(", {:.0} %{}", 100.0 * share, left(self.started.elapsed(), share))
                });
                log::say(&format!("{}{share}", self.status(played_ns, delivery.record)));
                self.last_line = Instant::now();
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, _: &Summary) -> Result<()> {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_what_the_rest_takes_at_the_same_speed() {
        let left = |seconds, share| left(Duration::from_secs(seconds), share);
        assert_eq!(left(30, 0.25), ", 1:30 left");
        assert_eq!(left(3600, 0.5), ", 1:00:00 left");
        assert_eq!(left(10, 0.9), ", 0:01 left");
        assert_eq!((left(9, 0.0), left(9, 1.0)), (String::new(), String::new()));
    }
}
