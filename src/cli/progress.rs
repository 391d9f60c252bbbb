//! How far a run has come: a bar on a terminal, plain lines in a log.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use lockon::Result;
use lockon::frame::VideoFormat;
use lockon::media::sink::Shown;
use lockon::ports::{Delivery, Sink};
use lockon::results::{Percentiles, RunRecord, Summary};
use lockon::stats::Durations;

use super::log::{self, BARS};

/// Between two lines in a log.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Shows the frame rate, the speed against real time, and the time left.
pub(super) struct Progress {
    /// Length of the video, where it is known.
    duration_ns: Option<u64>,
    started: Instant,
    last_line: Instant,
    frames: u64,
    first_pts_ns: Option<u64>,
    /// Capture to result, of a live source.
    capture: Durations,
    /// Capture to screen, of a live source.
    shown: Option<Arc<Shown>>,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(super) fn new(duration_ns: Option<u64>, shown: Option<Arc<Shown>>) -> Self {
        let now = Instant::now();
        let bar = std::io::stderr().is_terminal().then(|| {
            let template = if duration_ns.is_some() {
                "{bar:32.cyan/dim} {percent:>3}%  {msg}  {eta} left"
            } else {
                "{spinner} {elapsed}  {msg}"
            };
            let style = ProgressStyle::with_template(template).expect("the template is valid");
            BARS.add(ProgressBar::new(duration_ns.unwrap_or(0))).with_style(style)
        });
        let capture = Durations::default();
        Self { duration_ns, started: now, last_line: now, frames: 0, first_pts_ns: None, capture, shown, bar }
    }

    /// `1234 frames, 98.7 fps, 3.3x real time`, where `played_ns` of video have been processed.
    fn status(&self, played_ns: Option<u64>) -> String {
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
        parts.join(", ")
    }
}

impl Sink for Progress {
    fn name(&self) -> &'static str {
        "progress"
    }

    fn is_output(&self) -> bool {
        false
    }

    fn begin(&mut self, _: &RunRecord, _: &VideoFormat) -> Result<()> {
        self.started = Instant::now();
        self.last_line = self.started;
        Ok(())
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        self.frames += 1;
        if let Some(capture_us) = delivery.record.capture_us {
            self.capture.record(capture_us);
        }
        let pts_ns = delivery.frame.meta.pts_ns;
        self.first_pts_ns = self.first_pts_ns.or(pts_ns);
        let played_ns = pts_ns.zip(self.first_pts_ns).map(|(now, first)| now.saturating_sub(first));
        match &self.bar {
            // The bar limits its own rate of drawing, but not the work of wording.
            Some(bar) if self.last_line.elapsed() >= Duration::from_millis(100) => {
                bar.set_message(self.status(played_ns));
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
                    format!(", {:.0} %", 100.0 * now as f64 / whole as f64)
                });
                log::say(&format!("{}{share}", self.status(played_ns)));
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

/// `p50 1.2, p95 3.4, p99 5.6 ms`
fn in_ms(Percentiles { p50, p95, p99, .. }: Percentiles) -> String {
    let [p50, p95, p99] = [p50, p95, p99].map(|us| us as f64 / 1000.0);
    format!("p50 {p50:.1}, p95 {p95:.1}, p99 {p99:.1} ms")
}

/// The summary for people, several lines without a final line break.
pub(super) fn describe(summary: &Summary) -> String {
    let latency = summary.latency_us;
    let ms = |us: u64| us as f64 / 1000.0;
    let stages: Vec<_> = summary
        .stages
        .iter()
        .filter(|stage| stage.mean_us > 0.0)
        .map(|stage| format!("{} {:.2}", stage.stage, stage.mean_us / 1000.0))
        .collect();
    let mut lines = vec![format!(
        "{} frames in {:.2} s, {:.1} fps, {} dropped{}\n\
         latency p50 {:.2} ms, p95 {:.2} ms, p99 {:.2} ms\n\
         mean ms per frame: {}",
        summary.frames,
        summary.seconds,
        summary.fps,
        summary.dropped,
        match (summary.interrupted, summary.device_lost) {
            (false, None) => String::new(),
            (true, None) => " (interrupted)".into(),
            (false, Some(frame)) => format!(" (on the CPU from frame {frame} on)"),
            (true, Some(frame)) => format!(" (on the CPU from frame {frame} on, interrupted)"),
        },
        ms(latency.p50),
        ms(latency.p95),
        ms(latency.p99),
        stages.join(", "),
    )];
    if let Some(capture_us) = summary.capture_us {
        lines.push(format!("capture to result {}", in_ms(capture_us)));
    }
    for output in summary.outputs.iter().filter(|output| output.shown_us.max > 0) {
        let (shown, dropped) = (in_ms(output.shown_us), output.dropped);
        lines.push(format!("capture to {} {shown}, {dropped} dropped there", output.name));
    }
    let troubles = [
        (summary.stalls, "stalls"),
        (summary.gaps, "gaps"),
        (summary.damaged, "errors of the decoder"),
        (summary.interpolated, "times interpolated"),
    ];
    let troubles: Vec<_> = troubles
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if !troubles.is_empty() {
        lines.push(format!("in the source: {}", troubles.join(", ")));
    }
    lines.join("\n")
}
