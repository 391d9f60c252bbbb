//! Charts of a page: score and state over time, and the histogram of latencies.

use std::fmt::Write as _;

use super::page::{Page, duration, escaped};
use super::series::{Column, Histogram, Kind, Series};
use crate::results::{Percentiles, TrackState};

/// Width of all charts, and the room on their left and right.
const WIDTH: f64 = 900.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 8.0;

impl Page<'_> {
    /// Score and state over time of each track.
    pub(super) fn write_series(&self, page: &mut String) -> std::fmt::Result {
        page.push_str("<section>\n<h2>Score and state over time</h2>\n");
        if self.report.series.is_empty() {
            page.push_str("<p class=\"soft\">Nothing was found or followed.</p>\n");
        } else {
            page.push_str("<p class=\"legend soft\">");
            for state in TrackState::ALL {
                let name = state.name();
                write!(
                    page,
                    "<span><svg viewBox=\"0 0 8 8\"><rect class=\"{name}\" width=\"8\" height=\"8\"/></svg> {name}</span>"
                )?;
            }
            match self.report.stride {
                1 => page.push_str("line: score</p>\n"),
                stride => writeln!(page, "line: mean score of {stride} frames, area: least to largest</p>")?,
            }
        }
        for series in &self.report.series {
            self.write_one(page, series)?;
        }
        if self.report.unshown.1 > 0 {
            writeln!(
                page,
                "<p class=\"soft\">{} more tracks are in results files only.</p>",
                self.report.unshown.1
            )?;
        }
        page.push_str("</section>\n");
        Ok(())
    }

    fn write_one(&self, page: &mut String, series: &Series) -> std::fmt::Result {
        let (top, bottom, ribbon) = (6.0, 86.0, 12.0);
        let x = |time: f64| self.x(time);
        let y = |score: f64| bottom - (bottom - top) * score.clamp(0.0, 1.0);
        let frames: u64 = series.states.iter().sum();
        write!(
            page,
            "<div class=\"series\"><strong>{}</strong> <span class=\"soft\">",
            escaped(&series.name)
        )?;
        if series.kind == Kind::Match {
            write!(page, "found in {frames} of {} frames", self.report.frames)?;
        } else {
            write!(page, "{frames} frames")?;
            for (state, count) in TrackState::ALL.iter().zip(series.states).filter(|(_, count)| *count > 0) {
                write!(page, ", {} {:.1} %", state.name(), 100.0 * count as f64 / frames as f64)?;
            }
        }
        writeln!(
            page,
            "</span>\n<svg viewBox=\"0 0 {WIDTH} 122\" role=\"img\" aria-label=\"score and state\">"
        )?;
        page.push_str("<g class=\"grid\">");
        for score in [0.0, 0.5, 1.0] {
            let y = y(score);
            write!(
                page,
                "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\"/><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{score}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0
            )?;
        }
        for (time, label) in self.ticks() {
            let x = x(time);
            write!(
                page,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\"/><text x=\"{x:.1}\" y=\"119\" \
                 text-anchor=\"middle\">{label}</text>"
            )?;
        }
        page.push_str("</g>\n");
        let width = self.column_width();
        for piece in series.pieces(false) {
            let point =
                |column: &&Column, score: f64| format!("{:.1},{:.1}", x(column.time) + width / 2.0, y(score));
            let upper = piece.iter().map(|column| point(column, column.most));
            let lower = piece.iter().rev().map(|column| point(column, column.least));
            let area: Vec<_> = upper.chain(lower).collect();
            let mean: Vec<_> = piece.iter().map(|column| point(column, column.mean())).collect();
            if self.report.stride > 1 {
                writeln!(page, "<polygon class=\"range\" points=\"{}\"/>", area.join(" "))?;
            }
            writeln!(
                page,
                "<polyline class=\"mean\" stroke-linecap=\"round\" points=\"{}\"/>",
                mean.join(" ")
            )?;
            // Neighbours in one state are one rectangle.
            let mut rest = &piece[..];
            while let Some(first) = rest.first() {
                let state = first.state();
                let count = rest.iter().take_while(|column| column.state() == state).count();
                let (from, to) = (x(first.time), x(rest[count - 1].time) + width);
                writeln!(
                    page,
                    "<rect class=\"{}\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{ribbon}\"/>",
                    state.name(),
                    bottom + 6.0,
                    (to - from).max(1.0)
                )?;
                rest = &rest[count..];
            }
        }
        page.push_str("</svg></div>\n");
        Ok(())
    }

    pub(super) fn write_latency(&self, page: &mut String) -> std::fmt::Result {
        let counts = &self.report.latency.counts;
        page.push_str("<section>\n<h2>Latency</h2>\n");
        let Some(first) = counts.iter().position(|count| *count > 0) else {
            page.push_str("<p class=\"soft\">There was no frame.</p>\n</section>\n");
            return Ok(());
        };
        let most = *counts.iter().max().expect("one is not zero") as f64;
        let (bottom, height, width) = (200.0, 184.0, 560.0);
        let bars = counts.len() - first;
        let step = (width - LEFT - RIGHT) / bars as f64;
        writeln!(
            page,
            "<svg viewBox=\"0 0 {width} 222\" role=\"img\" aria-label=\"histogram of latencies\">"
        )?;
        page.push_str("<g class=\"grid\">");
        write!(
            page,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{bottom}\" y2=\"{bottom}\"/><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{most}</text>",
            width - RIGHT,
            LEFT - 6.0,
            bottom - height + 4.0
        )?;
        page.push_str("</g>\n");
        let every = bars.div_ceil(7);
        for (bar, &count) in counts[first..].iter().enumerate() {
            let x = LEFT + bar as f64 * step;
            let start = Histogram::start(first + bar);
            let tall = height * count as f64 / most;
            if count > 0 {
                writeln!(
                    page,
                    "<rect class=\"bar\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{tall:.1}\"><title>{count} frames from {}</title></rect>",
                    bottom - tall,
                    (step - 1.0).max(0.5),
                    duration(start)
                )?;
            }
            if bar % every == 0 {
                writeln!(page, "<text x=\"{x:.1}\" y=\"217\">{}</text>", duration(start))?;
            }
        }
        page.push_str("</svg>\n<p class=\"soft\">Frames by the time from a frame's arrival to its results. ");
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

    /// Width of a column, in pixels of a chart.
    fn column_width(&self) -> f64 {
        let columns = (self.report.frames as f64 / self.report.stride as f64).max(1.0);
        (WIDTH - LEFT - RIGHT) / (columns + 1.0)
    }

    /// Where a time lies in a chart; the last column ends at its border.
    fn x(&self, time: f64) -> f64 {
        let (first, last) = (self.report.first, self.report.last);
        let share = if last > first { (time - first) / (last - first) } else { 0.0 };
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT - self.column_width())
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
