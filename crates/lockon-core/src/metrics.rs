//! A run's counts and states for Prometheus: a sink that counts, and the text of all runs.
//!
//! The text is Prometheus' exposition format 0.0.4. Names and units follow its conventions: seconds, `_total`
//! for counts that only grow. Each series has the name of its video as a label, not its whole address, which
//! may hold a password.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::error::Result;
use crate::frame::VideoFormat;
use crate::locks::{MutexGuard, Ranked};
use crate::ports::{Delivery, Sink};
use crate::results::{Event, RunRecord, Track, TrackState};
use crate::surface::Traffic;

/// Upper ends of the latency buckets in microseconds: from half a millisecond, which a GPU needs, to a stall.
const BUCKETS_US: [u64; 14] = [
    500, 1_000, 2_000, 4_000, 8_000, 16_000, 33_000, 66_000, 125_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000,
];

/// A histogram of durations, in Prometheus' form.
#[derive(Debug, Clone, Default)]
struct Buckets {
    /// The count of each bucket, without the buckets before it; the last is for durations longer than all of
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

/// The state of a run at one moment.
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

/// The counts of a run, shared between the engine's thread, which counts, and the server's thread, which
/// reports.
#[derive(Debug, Clone, Default)]
struct Metrics(Arc<Ranked<State, 100>>);

impl Metrics {
    fn state(&self) -> MutexGuard<'_, State> {
        // Counts stay valid after a panic.
        self.0.lock()
    }
}

/// The counted runs, each with the name of its video. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Registry(Arc<Ranked<Counted, 90>>);

#[derive(Debug, Default)]
struct Counted {
    runs: Vec<(String, Metrics)>,
    more: String,
}

impl Registry {
    /// Returns a sink that counts a run, and the bytes that `traffic` counts, under the name of its video.
    /// The run is in the text as long as the sink lives.
    pub fn watch(&self, video: &str, traffic: &Traffic) -> MetricsSink {
        let metrics = Metrics::default();
        metrics.state().traffic = traffic.clone();
        self.lock().runs.push((video.to_owned(), metrics.clone()));
        MetricsSink { metrics, registry: self.clone() }
    }

    /// Sets text in the same format, which follows the text of the runs.
    pub fn set_more(&self, text: String) {
        self.lock().more = text;
    }

    /// The text of all runs, each at one moment.
    pub fn text(&self) -> String {
        // Copied, so that no engine ever waits while text is written.
        let copy = |(video, metrics): &(String, Metrics)| (quoted(video), metrics.state().clone());
        let (runs, more) = {
            let counted = self.lock();
            (counted.runs.iter().map(copy).collect::<Vec<_>>(), counted.more.clone())
        };
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _ = write_text(&mut text, &runs);
        text + &more
    }

    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock()
    }
}

/// States of runs, with the names of their videos in quotes.
type States<'a> = &'a [(String, State)];

/// A counter: its name, its value's place in the state, and its description.
type Counter = (&'static str, fn(&State) -> u64, &'static str);

fn write_text(out: &mut String, runs: States<'_>) -> std::fmt::Result {
    head(out, "lockon_videos", "gauge", "Videos that are being processed.")?;
    writeln!(out, "lockon_videos {}", runs.len())?;
    if runs.iter().any(|(_, state)| state.run.is_some()) {
        head(out, "lockon_info", "gauge", "What does the work.")?;
        for (video, run) in runs.iter().filter_map(|(video, state)| Some((video, state.run.as_ref()?))) {
            write!(out, "lockon_info{{video={video},version={}", quoted(run.version))?;
            write!(out, ",backend={},device={}", quoted(run.backend), quoted(&run.device))?;
            for (name, value) in [("driver", &run.driver), ("decoder", &run.decoder)] {
                write!(out, ",{name}={}", quoted(value.as_deref().unwrap_or("")))?;
            }
            writeln!(out, "}} 1")?;
        }
        head(out, "lockon_start_time_seconds", "gauge", "When the run started, since 1970.")?;
        for (video, run) in runs.iter().filter_map(|(video, state)| Some((video, state.run.as_ref()?))) {
            writeln!(out, "lockon_start_time_seconds{{video={video}}} {}", run.started)?;
        }
    }
    let counters: [Counter; 9] = [
        ("frames", |state| state.frames, "Frames whose results are final."),
        (
            "frames_dropped",
            |state| state.dropped,
            "Frames of a live source that were dropped because newer ones waited.",
        ),
        ("stalls", |state| state.stalls, "Times that nothing came from the source for two seconds."),
        ("gaps", |state| state.gaps, "Times that the source was lost and reconnected."),
        ("format_changes", |state| state.changes, "Times that frames changed their size, format or rate."),
        ("times_interpolated", |state| state.interpolated, "Frames whose time was interpolated."),
        ("bytes_to_device", |state| state.traffic.so_far().0, "Bytes that went from the host to the device."),
        (
            "bytes_from_device",
            |state| state.traffic.so_far().1,
            "Bytes that came from the device to the host.",
        ),
        (
            "bytes_copied_on_host",
            |state| state.traffic.so_far().2,
            "Bytes of frames that the host copied on their way to the search.",
        ),
    ];
    for (name, count, help) in counters {
        series(out, runs, (&format!("lockon_{name}_total"), "counter", help), |state| count(state) as f64)?;
    }
    let what = ("lockon_device_seconds_total", "counter", "Time that the device worked on frames.");
    series(out, runs, what, |state| state.traffic.device_us() as f64 / 1e6)?;
    let what = ("lockon_stalled", "gauge", "1 while nothing comes from the source.");
    series(out, runs, what, |state| f64::from(u8::from(state.is_stalled)))?;
    let what = ("lockon_latency_seconds", "Arrival of a frame to its results being final.");
    histograms(out, runs, what, |state| &state.latency)?;
    let what =
        ("lockon_capture_latency_seconds", "Capture of a live source's frame to its results being final.");
    histograms(out, runs, what, |state| &state.capture)?;
    if runs.iter().all(|(_, state)| state.tracks.is_empty()) {
        return Ok(());
    }
    let tracks =
        || runs.iter().flat_map(|(video, state)| state.tracks.iter().map(move |track| (video, track)));
    head(out, "lockon_track_state", "gauge", "1 for the state that a track is in.")?;
    for (video, track) in tracks() {
        for one in TrackState::ALL {
            let (id, name, is_it) = (track.id, one.name(), u8::from(one == track.state));
            writeln!(out, "lockon_track_state{{video={video},track=\"{id}\",state=\"{name}\"}} {is_it}")?;
        }
    }
    head(out, "lockon_track_score", "gauge", "How likely a track's box is on its target, from 0 to 1.")?;
    for (video, track) in tracks() {
        writeln!(out, "lockon_track_score{{video={video},track=\"{}\"}} {}", track.id, track.score)?;
    }
    Ok(())
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) -> std::fmt::Result {
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}")
}

/// A number of each run.
fn series(
    out: &mut String,
    runs: States<'_>,
    (name, kind, help): (&str, &str, &str),
    value: impl Fn(&State) -> f64,
) -> std::fmt::Result {
    head(out, name, kind, help)?;
    runs.iter().try_for_each(|(video, state)| writeln!(out, "{name}{{video={video}}} {}", value(state)))
}

/// Durations of each run.
fn histograms(
    out: &mut String,
    runs: States<'_>,
    (name, help): (&str, &str),
    buckets: impl Fn(&State) -> &Buckets,
) -> std::fmt::Result {
    head(out, name, "histogram", help)?;
    runs.iter().try_for_each(|(video, state)| histogram(out, name, video, buckets(state)))
}

fn histogram(out: &mut String, name: &str, video: &str, buckets: &Buckets) -> std::fmt::Result {
    let mut count = 0;
    for (in_bucket, end) in buckets.counts.iter().zip(BUCKETS_US.map(Some).into_iter().chain([None])) {
        count += in_bucket;
        let end = end.map_or_else(|| "+Inf".to_owned(), |us| (us as f64 / 1e6).to_string());
        writeln!(out, "{name}_bucket{{video={video},le=\"{end}\"}} {count}")?;
    }
    let sum = buckets.sum_us as f64 / 1e6;
    writeln!(out, "{name}_sum{{video={video}}} {sum}\n{name}_count{{video={video}}} {count}")
}

/// A label's value in quotes, with the characters that would end it escaped.
fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

/// Counts the engine's reports, for a [`Registry`].
#[derive(Debug)]
pub struct MetricsSink {
    metrics: Metrics,
    registry: Registry,
}

impl Drop for MetricsSink {
    fn drop(&mut self) {
        self.registry.lock().runs.retain(|(_, metrics)| !Arc::ptr_eq(&metrics.0, &self.metrics.0));
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
            Event::Control { .. } => {}
        }
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
        histogram(&mut out, "x", "\"v\"", &buckets).unwrap();
        let lines: Vec<_> = out.lines().collect();
        assert_eq!(lines[0], r#"x_bucket{video="v",le="0.0005"} 2"#);
        assert_eq!(lines[1], r#"x_bucket{video="v",le="0.001"} 3"#);
        assert_eq!(lines[5], r#"x_bucket{video="v",le="0.016"} 4"#);
        assert_eq!(lines[14], r#"x_bucket{video="v",le="+Inf"} 5"#);
        assert_eq!(lines[15..], [r#"x_sum{video="v"} 10.017002"#, r#"x_count{video="v"} 5"#]);
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
        let registry = Registry::default();
        registry.lock().runs.push(("v".into(), metrics));
        let text = registry.text();
        assert_eq!(text.matches("lockon_track_state{video=\"v\",track=\"3\"").count(), 4);
        assert!(text.contains("lockon_track_state{video=\"v\",track=\"3\",state=\"lost\"} 1\n"), "{text}");
        assert!(text.contains("lockon_track_state{video=\"v\",track=\"3\",state=\"tracked\"} 0\n"), "{text}");
        assert!(text.contains("lockon_track_score{video=\"v\",track=\"3\"} 0.25\n"), "{text}");
    }

    #[test]
    fn each_run_has_a_line_of_each_series_as_long_as_it_is_watched() {
        let registry = Registry::default();
        let sinks = ["a", "b"].map(|video| registry.watch(video, &Traffic::default()));
        sinks[1].metrics.state().frames = 7;
        let said = registry.text();
        assert!(said.contains("lockon_videos 2\n"), "{said}");
        let lines = "lockon_frames_total{video=\"a\"} 0\nlockon_frames_total{video=\"b\"} 7\n";
        assert!(said.contains(lines), "{said}");
        assert_eq!(said.matches("# TYPE lockon_frames_total counter").count(), 1);
        let [first, _second] = sinks;
        drop(first);
        let said = registry.text();
        assert!(said.contains("lockon_videos 1\n") && !said.contains("video=\"a\""), "{said}");
    }
}
