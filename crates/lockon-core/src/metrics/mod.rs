//! A run's counts and states as Prometheus reads them: a sink that counts, and a small server that tells.
//!
//! The text is Prometheus' exposition format 0.0.4. Names and units follow its conventions: seconds, `_total`
//! for what only grows. The input is not among the labels: a URI may hold a password.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::frame::VideoFormat;
use crate::ports::{Delivery, Sink};
use crate::results::{Event, RunRecord, Summary, Track, TrackState};
use crate::surface::Traffic;

mod http;

pub use http::{Address, Server, status_of};

/// Upper ends of the latency buckets in microseconds: from half a millisecond, which a GPU needs, to a stall.
const BUCKETS_US: [u64; 14] = [
    500, 1_000, 2_000, 4_000, 8_000, 16_000, 33_000, 66_000, 125_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000,
];

/// Durations by size, as Prometheus has them.
#[derive(Debug, Clone, Default)]
struct Buckets {
    /// How many fell into each bucket and not into the one before; the last is what is longer than all of
    /// them.
    counts: [u64; BUCKETS_US.len() + 1],
    sum_us: u64,
}

impl Buckets {
    fn record(&mut self, us: u64) {
        self.counts[BUCKETS_US.partition_point(|&end| end < us)] += 1;
        self.sum_us = self.sum_us.saturating_add(us);
    }
}

/// What is known of a run at one moment.
#[derive(Debug, Clone, Default)]
struct State {
    run: Option<Arc<RunRecord>>,
    frames: u64,
    dropped: u64,
    stalls: u64,
    gaps: u64,
    changes: u64,
    interpolated: u64,
    is_stalled: bool,
    latency: Buckets,
    capture: Buckets,
    tracks: Vec<Track>,
    traffic: Traffic,
}

/// The counts of a run, shared between the engine's thread, which counts, and the server's, which tells.
#[derive(Debug, Clone, Default)]
struct Metrics(Arc<Mutex<State>>);

impl Metrics {
    fn state(&self) -> MutexGuard<'_, State> {
        // Counts that a panic left behind are still counts.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The text, of one moment.
    fn text(&self) -> String {
        // Copied, so that the engine never waits while text is written.
        let state = self.state().clone();
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _ = write_text(&mut text, &state);
        text
    }
}

fn write_text(out: &mut String, state: &State) -> std::fmt::Result {
    if let Some(run) = &state.run {
        head(out, "lockon_info", "gauge", "What does the work.")?;
        write!(out, "lockon_info{{version={}", quoted(run.version))?;
        write!(out, ",backend={},device={}", quoted(run.backend), quoted(&run.device))?;
        for (name, value) in [("driver", &run.driver), ("decoder", &run.decoder)] {
            write!(out, ",{name}={}", quoted(value.as_deref().unwrap_or("")))?;
        }
        writeln!(out, "}} 1")?;
        head(out, "lockon_start_time_seconds", "gauge", "When the run started, since 1970.")?;
        writeln!(out, "lockon_start_time_seconds {}", run.started)?;
    }
    for (name, value, help) in [
        ("frames", state.frames, "Frames whose results are final."),
        (
            "frames_dropped",
            state.dropped,
            "Frames of a live source that were dropped because newer ones waited.",
        ),
        ("stalls", state.stalls, "Times that nothing came from the source for two seconds."),
        ("gaps", state.gaps, "Times that the source was gone and was connected anew."),
        ("format_changes", state.changes, "Times that frames changed their size, format or rate."),
        ("times_interpolated", state.interpolated, "Frames whose time was interpolated."),
    ] {
        head(out, &format!("lockon_{name}_total"), "counter", help)?;
        writeln!(out, "lockon_{name}_total {value}")?;
    }
    let (to_device, from_device, on_host) = state.traffic.so_far();
    for (name, value, help) in [
        ("to_device", to_device, "Bytes that went from the host to the device."),
        ("from_device", from_device, "Bytes that came from the device to the host."),
        ("copied_on_host", on_host, "Bytes of frames that the host copied on their way to the search."),
    ] {
        head(out, &format!("lockon_bytes_{name}_total"), "counter", help)?;
        writeln!(out, "lockon_bytes_{name}_total {value}")?;
    }
    head(out, "lockon_device_seconds_total", "counter", "Time that the device worked on frames.")?;
    writeln!(out, "lockon_device_seconds_total {}", state.traffic.device_us() as f64 / 1e6)?;
    head(out, "lockon_stalled", "gauge", "1 while nothing comes from the source.")?;
    writeln!(out, "lockon_stalled {}", u8::from(state.is_stalled))?;
    histogram(
        out,
        "lockon_latency_seconds",
        "Arrival of a frame to its results being final.",
        &state.latency,
    )?;
    histogram(
        out,
        "lockon_capture_latency_seconds",
        "Capture of a live source's frame to its results being final.",
        &state.capture,
    )?;
    if state.tracks.is_empty() {
        return Ok(());
    }
    head(out, "lockon_track_state", "gauge", "1 for the state that a track is in.")?;
    for track in &state.tracks {
        for one in TrackState::ALL {
            let (id, name, is_it) = (track.id, one.name(), u8::from(one == track.state));
            writeln!(out, "lockon_track_state{{track=\"{id}\",state=\"{name}\"}} {is_it}")?;
        }
    }
    head(out, "lockon_track_score", "gauge", "How likely a track's box is on its target, from 0 to 1.")?;
    for track in &state.tracks {
        writeln!(out, "lockon_track_score{{track=\"{}\"}} {}", track.id, track.score)?;
    }
    Ok(())
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) -> std::fmt::Result {
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}")
}

fn histogram(out: &mut String, name: &str, help: &str, buckets: &Buckets) -> std::fmt::Result {
    head(out, name, "histogram", help)?;
    let mut count = 0;
    for (in_bucket, end) in buckets.counts.iter().zip(BUCKETS_US.map(Some).into_iter().chain([None])) {
        count += in_bucket;
        let end = end.map_or_else(|| "+Inf".to_owned(), |us| (us as f64 / 1e6).to_string());
        writeln!(out, "{name}_bucket{{le=\"{end}\"}} {count}")?;
    }
    writeln!(out, "{name}_sum {}\n{name}_count {count}", buckets.sum_us as f64 / 1e6)
}

/// A label's value in quotes, with what would end it escaped.
fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

/// Counts what the engine tells, for a [`Server`].
#[derive(Debug)]
pub struct MetricsSink {
    metrics: Metrics,
    /// Serves until the run has ended.
    server: Option<Server>,
}

impl MetricsSink {
    /// Counts, and serves what it counts at an address, and the bytes that `traffic` counts.
    ///
    /// # Errors
    /// `Listen` if the address is taken, or is none of this machine's.
    pub fn serve(address: &Address, traffic: &Traffic) -> Result<Self> {
        let metrics = Metrics::default();
        metrics.state().traffic = traffic.clone();
        let told = metrics.clone();
        let server = Server::start(address, move || told.text())?;
        Ok(Self { metrics, server: Some(server) })
    }

    /// Where it serves: with the port that was chosen, if 0 was asked for.
    pub fn url(&self) -> String {
        self.server.as_ref().map_or_else(String::new, Server::url)
    }
}

impl Sink for MetricsSink {
    fn name(&self) -> &'static str {
        "metrics"
    }

    fn is_output(&self) -> bool {
        false
    }

    fn begin(&mut self, run: &RunRecord, _: &VideoFormat) -> Result<()> {
        self.metrics.state().run = Some(Arc::new(run.clone()));
        Ok(())
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        let record = delivery.record;
        let mut state = self.metrics.state();
        state.frames += 1;
        // Numbers count dropped frames too.
        state.dropped = (record.frame + 1).saturating_sub(state.frames);
        state.interpolated += u64::from(record.pts_interpolated);
        state.is_stalled = false;
        state.latency.record(record.latency_us);
        if let Some(us) = record.capture_us {
            state.capture.record(us);
        }
        state.tracks.clone_from(&record.tracks);
        Ok(())
    }

    fn note(&mut self, event: &Event) -> Result<()> {
        let mut state = self.metrics.state();
        match event {
            Event::Stalled { .. } => {
                state.stalls += 1;
                state.is_stalled = true;
            }
            Event::Resumed { .. } => state.is_stalled = false,
            Event::Gap { .. } => state.gaps += 1,
            Event::Caps { .. } => state.changes += 1,
        }
        Ok(())
    }

    fn finish(&mut self, _: &Summary) -> Result<()> {
        self.server = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_upwards_and_its_bounds_belong_to_it() {
        let mut buckets = Buckets::default();
        for us in [0, 500, 501, 16_000, 10_000_001] {
            buckets.record(us);
        }
        let mut out = String::new();
        histogram(&mut out, "x", "Help.", &buckets).unwrap();
        let lines: Vec<_> = out.lines().collect();
        assert_eq!(lines[..2], ["# HELP x Help.", "# TYPE x histogram"]);
        assert_eq!(
            lines[2..5],
            [r#"x_bucket{le="0.0005"} 2"#, r#"x_bucket{le="0.001"} 3"#, r#"x_bucket{le="0.002"} 3"#]
        );
        assert_eq!(lines[7], r#"x_bucket{le="0.016"} 4"#);
        assert_eq!(lines[16..], [r#"x_bucket{le="+Inf"} 5"#, "x_sum 10.017002", "x_count 5"]);
    }

    #[test]
    fn labels_cannot_be_broken_out_of() {
        assert_eq!(quoted("a\"} 1\nb\\"), r#""a\"} 1\nb\\""#);
    }

    #[test]
    fn each_track_has_one_state_and_a_score() {
        let track = Track { id: 3, state: TrackState::Lost, score: 0.25, ..Track::default() };
        let metrics = Metrics::default();
        metrics.state().tracks.push(track);
        let text = metrics.text();
        assert_eq!(text.matches("lockon_track_state{track=\"3\"").count(), 4);
        assert!(text.contains("lockon_track_state{track=\"3\",state=\"lost\"} 1\n"), "{text}");
        assert!(text.contains("lockon_track_state{track=\"3\",state=\"tracked\"} 0\n"), "{text}");
        assert!(text.contains("lockon_track_score{track=\"3\"} 0.25\n"), "{text}");
    }
}
