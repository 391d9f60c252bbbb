//! Where the time goes: latency percentiles and time per stage.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// The stages of a frame's path. They overlap: decoding runs ahead, the device works while the tracker and
/// sinks do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Waiting for the source, which decodes in threads of its own.
    Source,
    /// Copying the luma plane into a slot.
    Upload,
    /// The device's work on every frame: template bank, threshold.
    Standing,
    /// The tracker's work.
    Tracker,
    /// Handing results to the sinks, waiting included.
    Sinks,
}

impl Stage {
    /// All stages in a frame's order.
    pub const ALL: [Self; 5] = [Self::Source, Self::Upload, Self::Standing, Self::Tracker, Self::Sinks];

    /// Its name in the summary.
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Upload => "upload",
            Self::Standing => "standing",
            Self::Tracker => "tracker",
            Self::Sinks => "sinks",
        }
    }
}

/// Durations in microseconds, within 0.1 %, in constant memory.
#[derive(Debug)]
pub struct Durations(Histogram<u64>);

impl Default for Durations {
    fn default() -> Self {
        // One minute is the longest time that is measured; longer times count as a minute.
        Self(
            Histogram::new_with_max(60_000_000, 3).expect("three digits up to a minute is a valid histogram"),
        )
    }
}

impl Durations {
    /// Counts one duration.
    pub fn record(&mut self, microseconds: u64) {
        self.0.saturating_record(microseconds);
    }

    /// The value that this share of the durations does not exceed, 0 if there are none.
    pub fn percentile(&self, percent: f64) -> u64 {
        self.0.value_at_percentile(percent)
    }

    /// The longest, 0 if there are none.
    pub fn max(&self) -> u64 {
        self.0.max()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their mean, 0 if there are none.
    pub fn mean(&self) -> f64 {
        self.0.mean()
    }
}

/// Counts and times of a run.
#[derive(Debug, Default)]
pub struct Stats {
    /// Frames whose results were delivered to every sink that had not failed.
    pub frames: u64,
    /// Arrival of a frame to its results being final.
    pub latency: Durations,
    /// Capture of a live frame to its results being final.
    pub capture: Durations,
    stages: [Durations; Stage::ALL.len()],
    first_arrival: Option<Instant>,
    last_result: Option<Instant>,
}

impl Stats {
    /// Counts the time that one frame spent in a stage.
    pub fn stage(&mut self, stage: Stage, microseconds: u64) {
        self.stages[stage as usize].record(microseconds);
    }

    /// The times of one stage.
    pub fn of(&self, stage: Stage) -> &Durations {
        &self.stages[stage as usize]
    }

    /// Notes that a frame's results are final now, and gives its latency in microseconds.
    pub fn result(&mut self, arrived: Instant) -> u64 {
        let now = Instant::now();
        let latency_us = now.saturating_duration_since(arrived).as_micros() as u64;
        self.latency.record(latency_us);
        self.first_arrival.get_or_insert(arrived);
        self.last_result = Some(now);
        latency_us
    }

    /// From the first frame's arrival to the last result.
    pub fn elapsed(&self) -> Duration {
        match (self.first_arrival, self.last_result) {
            (Some(first), Some(last)) => last.saturating_duration_since(first),
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_known_durations() {
        let mut durations = Durations::default();
        (1..=1000).for_each(|us| durations.record(us));
        assert_eq!(
            [durations.percentile(50.0), durations.percentile(99.0), durations.max()],
            [500, 990, 1000]
        );
        durations.record(u64::MAX);
        assert!(durations.max() >= 60_000_000);
    }

    #[test]
    fn an_empty_run_has_no_times() {
        let stats = Stats::default();
        assert_eq!(
            (stats.elapsed(), stats.latency.percentile(99.0), stats.of(Stage::Sinks).mean()),
            (Duration::ZERO, 0, 0.0)
        );
    }
}
