//! Charts of a page: scores, states and matches over time, and the histogram of latencies.
//!
//! A chart is as wide as its card, on a telephone as on a screen: lines are stretched, letters are not. So
//! what is written beside a chart is text of the page, placed by percentages, and the chart itself has lines
//! only.

use std::fmt::Write as _;

use super::page::{Page, duration};
use super::series::{Column, CountColumn, Histogram, Series, SeriesKind};
use crate::results::{ObjectsSummary, Percentiles, TrackState};
use crate::text::escaped;
use crate::tracker::RELIABILITY;

/// Width and height of a chart in its own units, whatever its size on the page.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 100.0;

/// The meaning of each state, for the legend.
fn meaning(state: TrackState) -> &'static str {
    match state {
        TrackState::Tracked => "the target was found, likelier than not",
        TrackState::Uncertain => "something was found, perhaps not the target",
        TrackState::Reacquired => "found again after it was lost",
        TrackState::Lost => "not found: its box is where it was seen last",
    }
}

/// A chart of lines from 0 to 1, with its scale, as far as its lines.
fn begin_plot(page: &mut String, label: &str) -> std::fmt::Result {
    begin_plot_up_to(page, 1.0, &[1.0, 0.5, 0.0], label)
}

/// A chart of lines from 0 to `most`, with these values on its scale, as far as its lines.
fn begin_plot_up_to(page: &mut String, most: f64, values: &[f64], label: &str) -> std::fmt::Result {
    page.push_str("<div class=\"plot\">\n<div class=\"scale\">");
    for value in values {
        write!(page, "<span style=\"top:{}%\">{value}</span>", 100.0 * (1.0 - value / most))?;
    }
    writeln!(
        page,
        "</div>\n<svg class=\"lines\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"{label}\">"
    )
}

impl Page<'_> {
    /// Score and state over time of each track, and of each template's best matches.
    pub(super) fn write_series(&self, page: &mut String) -> std::fmt::Result {
        let is_track = |series: &&Series| series.kind != SeriesKind::Match;
        if self.report.series.iter().any(|series| series.kind == SeriesKind::Match) {
            page.push_str("<section>\n<h2>Matches over time</h2>\n<p class=\"legend soft\">");
            match self.report.stride {
                1 => page.push_str("Line: score of the best match."),
                stride => write!(
                    page,
                    "Line: mean score of the best match in {stride} frames, area: minimum to maximum."
                )?,
            }
            page.push_str(" Below, where there was one.</p>\n");
            for series in self.report.series.iter().filter(|series| !is_track(series)) {
                self.write_one(page, series)?;
            }
            let charts = self.report.series.iter().filter(|series| series.kind == SeriesKind::Match).count();
            if let more @ 1.. = self.report.found.len().saturating_sub(charts) {
                writeln!(page, "<p class=\"soft\">{more} more templates have no chart.</p>")?;
            }
            page.push_str("</section>\n");
        }
        if self.report.series.iter().any(|series| is_track(&series)) {
            page.push_str("<section>\n<h2>Score and state over time</h2>\n<p class=\"legend soft\">");
            for state in TrackState::ALL {
                let name = state.name();
                write!(
                    page,
                    "<span><i class=\"swatch {name}\"></i> <b>{name}</b>: {}</span> ",
                    meaning(state)
                )?;
            }
            match self.report.stride {
                1 => page.push_str("<span>line: score"),
                stride => {
                    write!(page, "<span>line: mean score of {stride} frames, area: minimum to maximum")?;
                }
            }
            page.push_str("; none while it is lost</span></p>\n");
            for series in self.report.series.iter().filter(is_track) {
                self.write_one(page, series)?;
            }
            if self.report.unshown.1 > 0 {
                let more = self.report.unshown.1;
                writeln!(page, "<p class=\"soft\">{more} more tracks are in results files only.</p>")?;
            }
            Self::write_reliability(page)?;
            page.push_str("</section>\n");
        }
        Ok(())
    }

    /// Writes how reliable the scores of tracks were where the truth is known.
    fn write_reliability(page: &mut String) -> std::fmt::Result {
        page.push_str(
            "<details><summary>Meaning of the score</summary>\n<p class=\"soft\">A score says how likely the box is on its \
             target, overlapping it by more than a half. Bars: of the frames with such a score, the share that were, in public \
             videos whose truth is known; line: the share that the score promises.</p>\n",
        );
        begin_plot(page, "share of frames on target by score")?;
        let step = WIDTH / RELIABILITY.len() as f64;
        for (bar, share) in RELIABILITY.iter().enumerate() {
            let (x, tall) = (bar as f64 * step, share * HEIGHT);
            writeln!(
                page,
                "<rect class=\"bar\" x=\"{x}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{tall:.1}\"/>",
                HEIGHT - tall,
                0.92 * step
            )?;
        }
        writeln!(page, "<polyline class=\"mean\" points=\"0,{HEIGHT} {WIDTH},0\"/></svg>")?;
        page.push_str("<div class=\"times\">");
        for tenth in 0..=10 {
            write!(page, "<span style=\"left:{}%\">{}</span>", 10 * tenth, f64::from(tenth) / 10.0)?;
        }
        page.push_str("</div>\n</div></details>\n");
        Ok(())
    }

    fn write_one(&self, page: &mut String, series: &Series) -> std::fmt::Result {
        let frames: u64 = series.states.iter().sum();
        write!(
            page,
            "<div class=\"series\"><strong>{}</strong> <span class=\"soft\">",
            escaped(&series.name)
        )?;
        if series.kind == SeriesKind::Match {
            write!(page, "found in {frames} of {} frames", self.report.frames)?;
        } else {
            write!(page, "{frames} frames")?;
            let percent = |count: u64| 100.0 * count as f64 / frames as f64;
            for (state, count) in TrackState::ALL.iter().zip(series.states).filter(|(_, count)| *count > 0) {
                write!(page, ", {} {:.1} %", state.name(), percent(count))?;
            }
            write!(page, "; by its scores on the target in {:.0} %", 100.0 * series.scores / frames as f64)?;
        }
        page.push_str("</span>\n");
        begin_plot(page, "score")?;
        self.write_grid(page, &[0.0, 0.5 * HEIGHT, HEIGHT])?;
        let y = |score: f64| HEIGHT * (1.0 - score.clamp(0.0, 1.0));
        for piece in series.pieces(true) {
            let heights = |column: &Column| [column.least, column.mean(), column.most].map(y);
            let columns: Vec<_> = piece.into_iter().map(|column| (column.time, heights(column))).collect();
            self.write_piece(page, &columns)?;
        }
        page.push_str("</svg>\n");
        self.write_ribbon(page, series)?;
        if series.kind == SeriesKind::Match {
            self.write_counts(page, series)?;
        }
        self.write_times(page)?;
        page.push_str("</div></div>\n");
        Ok(())
    }

    /// The state over time, as a band of colours.
    fn write_ribbon(&self, page: &mut String, series: &Series) -> std::fmt::Result {
        writeln!(
            page,
            "<svg class=\"ribbon\" viewBox=\"0 0 {WIDTH} 1\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"state\">"
        )?;
        let width = self.column_width();
        for piece in series.pieces(false) {
            // Neighbours in one state are one rectangle.
            let mut rest = &piece[..];
            while let Some(first) = rest.first() {
                let state = first.state();
                let count = rest.iter().take_while(|column| column.state() == state).count();
                let (from, to) = (self.x(first.time), self.x(rest[count - 1].time) + width);
                let class = if series.kind == SeriesKind::Match { "found" } else { state.name() };
                writeln!(
                    page,
                    "<rect class=\"{class}\" x=\"{from:.1}\" y=\"0\" width=\"{:.1}\" height=\"1\"/>",
                    (to - from).max(1.0)
                )?;
                rest = &rest[count..];
            }
        }
        page.push_str("</svg>\n");
        Ok(())
    }

    /// The number of matches of a template, if some frame has several.
    fn write_counts(&self, page: &mut String, series: &Series) -> std::fmt::Result {
        let most = series.columns.iter().map(|column| column.most_matches).max().unwrap_or(0);
        if most < 2 {
            return Ok(());
        }
        writeln!(
            page,
            "<div class=\"scale\"><span style=\"top:0%\">{most}</span><span style=\"top:100%\">0</span></div>\n<svg class=\"counts\" \
             viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"matches in a frame, {most} at most\">"
        )?;
        let width = self.column_width();
        for column in &series.columns {
            let tall = HEIGHT * f64::from(column.most_matches) / f64::from(most);
            writeln!(
                page,
                "<rect class=\"found\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.2}\" height=\"{tall:.1}\"/>",
                self.x(column.time),
                HEIGHT - tall,
                width.max(1.0)
            )?;
        }
        page.push_str("</svg>\n");
        Ok(())
    }

    /// The number of objects over time.
    pub(super) fn write_objects(&self, page: &mut String) -> std::fmt::Result {
        let (counts, Some(all)) = (&self.report.objects, self.summary.objects) else { return Ok(()) };
        let ObjectsSummary { total, least, mean, most, cut_off_frames, more_objects, .. } = all;
        write!(
            page,
            "<section>\n<h2>Objects over time</h2>\n<p>{least} to {most} in a frame, {mean:.1} on average, {total} in all."
        )?;
        if more_objects > 0 {
            let frames = if cut_off_frames == 1 { "frame" } else { "frames" };
            write!(
                page,
                " {more_objects} more in {cut_off_frames} {frames} left out by the maximum number."
            )?;
        }
        page.push_str("</p>\n<p class=\"legend soft\">");
        match self.report.stride {
            1 => page.push_str("Line: objects in a frame.</p>\n"),
            stride => {
                writeln!(page, "Line: mean of {stride} frames, area: minimum to maximum.</p>")?;
            }
        }
        let most = counts.most().max(1) as f64;
        begin_plot_up_to(page, most, &[most, 0.0], "objects in a frame")?;
        self.write_grid(page, &[0.0, HEIGHT])?;
        let y = |count: f64| HEIGHT * (1.0 - count / most);
        for piece in counts.pieces() {
            let heights =
                |column: &CountColumn| [column.least as f64, column.mean(), column.most as f64].map(y);
            let columns: Vec<_> = piece.iter().map(|column| (column.time, heights(column))).collect();
            self.write_piece(page, &columns)?;
        }
        page.push_str("</svg>\n");
        self.write_times(page)?;
        page.push_str("</div>\n</section>\n");
        Ok(())
    }

    /// Draws columns without a gap between them: a line through their means, over the area from least to most
    /// where a column has several frames. Each column has its time, and the heights of least, mean and most.
    fn write_piece(&self, page: &mut String, columns: &[(f64, [f64; 3])]) -> std::fmt::Result {
        let middle = self.column_width() / 2.0;
        let [least, mut mean, most] = [0, 1, 2].map(|which| -> Vec<_> {
            let point = |(time, heights): &(f64, [f64; 3])| {
                format!("{:.1},{:.1}", self.x(*time) + middle, heights[which])
            };
            columns.iter().map(point).collect()
        });
        // With round ends, a line to where it begins is a dot.
        if mean.len() == 1 {
            mean.push(mean[0].clone());
        }
        if self.report.stride > 1 {
            let area: Vec<_> = most.into_iter().chain(least.into_iter().rev()).collect();
            writeln!(page, "<polygon class=\"range\" points=\"{}\"/>", area.join(" "))?;
        }
        writeln!(page, "<polyline class=\"mean\" stroke-linecap=\"round\" points=\"{}\"/>", mean.join(" "))
    }

    /// Lines at round times, and at these heights.
    fn write_grid(&self, page: &mut String, heights: &[f64]) -> std::fmt::Result {
        page.push_str("<g class=\"grid\">");
        for y in heights {
            write!(page, "<line x1=\"0\" x2=\"{WIDTH}\" y1=\"{y}\" y2=\"{y}\"/>")?;
        }
        for (time, _) in self.ticks() {
            let x = self.x(time);
            write!(page, "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"0\" y2=\"{HEIGHT}\"/>")?;
        }
        page.push_str("</g>\n");
        Ok(())
    }

    fn write_times(&self, page: &mut String) -> std::fmt::Result {
        page.push_str("<div class=\"times\">");
        for (time, label) in self.ticks() {
            write!(page, "<span style=\"left:{:.2}%\">{label}</span>", 100.0 * self.x(time) / WIDTH)?;
        }
        page.push_str("</div>\n");
        Ok(())
    }

    pub(super) fn write_latency(&self, page: &mut String) -> std::fmt::Result {
        let counts = &self.report.latency.counts;
        let Some(first) = counts.iter().position(|count| *count > 0) else { return Ok(()) };
        let most = *counts.iter().max().expect("one is not zero") as f64;
        let bars = counts.len() - first;
        let step = WIDTH / bars as f64;
        writeln!(
            page,
            "<section>\n<h2>Latency</h2>\n<div class=\"plot\">\n<div class=\"scale\"><span style=\"top:0%\">{most}</span><span \
             style=\"top:100%\">0</span></div>\n<svg class=\"bars\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" \
             role=\"img\" aria-label=\"histogram of latencies\">"
        )?;
        write!(
            page,
            "<g class=\"grid\"><line x1=\"0\" x2=\"{WIDTH}\" y1=\"{HEIGHT}\" y2=\"{HEIGHT}\"/></g>"
        )?;
        let mut times = String::new();
        let every = bars.div_ceil(6);
        for (bar, &count) in counts[first..].iter().enumerate() {
            let x = bar as f64 * step;
            let start = Histogram::start(first + bar);
            let tall = HEIGHT * count as f64 / most;
            if count > 0 {
                writeln!(
                    page,
                    "<rect class=\"bar\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{tall:.1}\"><title>{count} frames from {}</title></rect>",
                    HEIGHT - tall,
                    0.92 * step,
                    duration(start)
                )?;
            }
            if bar % every == 0 {
                // Its left edge is where the bar begins.
                write!(times, "<span style=\"left:{:.2}%\">{}</span>", 100.0 * x / WIDTH, duration(start))?;
            }
        }
        write!(page, "</svg>\n<div class=\"times edges\">{times}</div>\n</div>\n")?;
        page.push_str("<p class=\"soft\">Frames by the time from a frame's arrival to its results. ");
        let Percentiles { p50, p95, p99, max } = self.summary.latency_us;
        writeln!(
            page,
            "Half within {}, 95 % within {}, 99 % within {}, the longest {}.</p>\n</section>",
            duration(p50),
            duration(p95),
            duration(p99),
            duration(max)
        )
    }

    /// Width of a column in a chart.
    fn column_width(&self) -> f64 {
        let columns = (self.report.frames as f64 / self.report.stride as f64).max(1.0);
        WIDTH / (columns + 1.0)
    }

    /// The position of a time in a chart; the last column ends at its border.
    fn x(&self, time: f64) -> f64 {
        let (first, last) = (self.report.first, self.report.last);
        let share = if last > first { (time - first) / (last - first) } else { 0.0 };
        share.clamp(0.0, 1.0) * (WIDTH - self.column_width())
    }

    /// Some seven round times.
    fn ticks(&self) -> Vec<(f64, String)> {
        let (first, last) = (self.report.first, self.report.last);
        let wanted = (last - first) / 7.0;
        let steps =
            [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0, 600.0, 1800.0];
        let step =
            steps.into_iter().find(|step| *step >= wanted).unwrap_or(libm::ceil(wanted / 3600.0) * 3600.0);
        let begin = libm::ceil(first / step) as u64;
        let times = (begin..).map(|n| n as f64 * step).take_while(|time| *time <= last);
        let digits = if step < 0.1 { 2 } else { usize::from(step < 1.0) };
        times.take(20).map(|time| (time, format!("{time:.digits$} s"))).collect()
    }
}
