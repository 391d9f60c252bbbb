//! The text of the page, but for its charts.

use std::fmt::Write as _;

use super::series::{Found, Series, SeriesKind};
use super::thumbnails::Thumbnail;
use super::{MOST_APPEARANCES, MOST_LETTERS, Report};
use crate::appearances::Appearance;
use crate::frame::{Rect, Size};
use crate::overlay;
use crate::results::{FrameTime, LineSummary, RunRecord, Summary, ZoneSummary};
use crate::shell;
use crate::text::escaped;

const STYLE: &str = include_str!("report.css");

/// The text of the page.
pub(super) struct Page<'a> {
    pub(super) report: &'a Report,
    pub(super) run: &'a RunRecord,
    pub(super) summary: &'a Summary,
}

impl Page<'_> {
    pub(super) fn text(&self) -> String {
        let mut page = String::new();
        self.write(&mut page).expect("a string takes everything");
        page
    }

    fn write(&self, page: &mut String) -> std::fmt::Result {
        let input = escaped(&self.run.input);
        write!(
            page,
            "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>lockon: {input}</title>\n\
             <style>{STYLE}</style>\n</head>\n<body>\n<h1>{input}</h1>\n"
        )?;
        self.write_head(page)?;
        page.push_str("<div class=\"pair\">\n");
        self.write_paths(page)?;
        self.write_run(page)?;
        page.push_str("</div>\n");
        self.write_templates(page)?;
        self.write_lines_and_zones(page)?;
        self.write_appearances(page)?;
        self.write_series(page)?;
        self.write_objects(page)?;
        self.write_thumbnails(page)?;
        page.push_str("<div class=\"pair\">\n");
        self.write_latency(page)?;
        self.write_stages(page)?;
        page.push_str("</div>\n");
        self.write_events(page)?;
        page.push_str("</body>\n</html>\n");
        Ok(())
    }

    fn write_head(&self, page: &mut String) -> std::fmt::Result {
        let (report, summary) = (self.report, self.summary);
        let seconds = report.last - report.first;
        write!(page, "<p class=\"soft\">{} frames", summary.frames)?;
        if report.frames > 1 {
            write!(page, " over {seconds:.2} s of video")?;
        }
        writeln!(
            page,
            ", searched at {:.1} frames a second by lockon {}</p>",
            summary.fps, self.run.version
        )?;
        if summary.interrupted {
            page.push_str("<p class=\"warn\">Interrupted before the end of the input.</p>\n");
        }
        if let Some(frame) = summary.device_lost {
            writeln!(
                page,
                "<p class=\"warn\">The device was lost: another one did the work from frame {frame} on.</p>"
            )?;
        }
        if summary.dropped > 0 {
            writeln!(page, "<p>{} frames were dropped to keep up with the source.</p>", summary.dropped)?;
        }
        let seeks = !report.templates.is_empty() || !self.run.tracks.is_empty();
        if seeks && report.series.is_empty() {
            page.push_str("<p class=\"warn\">Nothing was found.</p>\n");
        }
        Ok(())
    }

    /// The ways of tracks, or of best matches, over one frame.
    fn write_paths(&self, page: &mut String) -> std::fmt::Result {
        let Some(key) = &self.report.key else { return Ok(()) };
        let title = match (self.report.series.is_empty(), self.has_tracks()) {
            (true, _) if !key.objects.is_empty() => "Objects",
            (true, _) => "First frame",
            (_, true) => "Trajectory",
            (_, false) => "Places",
        };
        writeln!(page, "<section>\n<h2>{title}</h2>")?;
        let Size { width, height } = key.size;
        // Lines and letters in pixels of the frame, which is shown some 640 pixels wide.
        let unit = width as f64 / 640.0;
        writeln!(
            page,
            "<svg class=\"key\" viewBox=\"0 0 {width} {height}\" style=\"--unit:{unit:.3}\" role=\"img\" aria-label=\"places over frame {}\">\
             <image width=\"{width}\" height=\"{height}\" href=\"{}\"/>",
            key.frame,
            key.picture.uri()
        )?;
        for Rect { x, y, w, h } in &key.objects {
            writeln!(page, "<rect class=\"object\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\"/>")?;
        }
        let mut labels = String::new();
        for series in &self.report.series {
            let colour = colour(series);
            writeln!(page, "<g><title>{}</title>", escaped(&series.name))?;
            let pieces = series.pieces(true);
            for (class, colour, line) in [("edge", "", 4.0), ("path", &*colour, 2.0)] {
                let stroke = if colour.is_empty() { String::new() } else { format!(" stroke=\"{colour}\"") };
                for piece in &pieces {
                    let places = piece.iter().filter_map(|column| column.place);
                    let mut points: Vec<_> = places.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
                    // A line of one point shows nothing: with round ends, one back to it is a dot.
                    if points.len() == 1 {
                        points.push(points[0].clone());
                    }
                    writeln!(
                        page,
                        "<polyline class=\"{class}\"{stroke} stroke-width=\"{:.2}\" stroke-linecap=\"round\" \
                         stroke-linejoin=\"round\" points=\"{}\"/>",
                        line * unit,
                        points.join(" ")
                    )?;
                }
            }
            if let Some((x, y)) = series.columns.iter().find_map(|column| column.place) {
                let r = 4.0 * unit;
                writeln!(
                    page,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r:.1}\" fill=\"{colour}\" stroke=\"#000\" stroke-opacity=\".65\" \
                     stroke-width=\"{unit:.1}\"/>"
                )?;
                let label = series.name.split(' ').next().filter(|_| series.kind != SeriesKind::Match);
                let label = shortened(label.unwrap_or(&series.name));
                let x = x.clamp(0.0, width as f64 - 15.0 * unit * label.chars().count() as f64 - 8.0 * unit);
                writeln!(
                    labels,
                    "<text class=\"name\" x=\"{:.1}\" y=\"{:.1}\" style=\"fill:{colour}\">{}</text>",
                    x.max(0.0) + 6.0 * unit,
                    (y - 6.0 * unit).max(14.0 * unit),
                    escaped(&label)
                )?;
            }
            page.push_str("</g>\n");
        }
        page.push_str(&labels);
        let what = match (self.report.series.is_empty(), self.has_tracks()) {
            (true, _) if key.all_objects > key.objects.len() => ": the boxes of the first of its objects",
            (true, _) if !key.objects.is_empty() => ": the boxes of its objects",
            (true, _) => "",
            (_, true) => {
                ": the middles of the boxes that were followed; a dot where each begins, gaps where it was not seen"
            }
            (_, false) => {
                ": the middles of each template's best matches; a dot where each begins, gaps where there was none"
            }
        };
        writeln!(page, "</svg>\n<p class=\"soft\">Over frame {}{what}.</p>\n</section>", key.frame)
    }

    /// True if boxes were followed, or matches.
    fn has_tracks(&self) -> bool {
        self.report.series.iter().any(|series| series.kind != SeriesKind::Match)
    }

    /// From when to when each template and track was in sight.
    fn write_appearances(&self, page: &mut String) -> std::fmt::Result {
        let all = &self.summary.appearances;
        if all.is_empty() {
            return Ok(());
        }
        let shown = &all[..all.len().min(MOST_APPEARANCES)];
        let more = self.summary.more_appearances + (all.len() - shown.len()) as u64;
        page.push_str("<section>\n<h2>Appearances</h2>\n<div class=\"wide\"><table>\n<tr><th>name</th>");
        let has_tracks = shown.iter().any(|row| row.track.is_some());
        if has_tracks {
            page.push_str("<th class=\"number\">track</th>");
        }
        for title in ["from", "to", "lasts", "first frame", "last frame", "frames", "best score"] {
            write!(page, "<th class=\"number\">{title}</th>")?;
        }
        page.push_str("</tr>\n");
        let mut rows: Vec<_> = shown.iter().collect();
        rows.sort_by_key(|row| (row.start.frame, row.track));
        for Appearance { name, track, start, end, frames, best } in rows {
            write!(page, "<tr><td>{}</td>", escaped(name.as_deref().unwrap_or_default()))?;
            let time = |at: &FrameTime| at.pts_ns.map(|ns| ns as f64 * 1e-9);
            let text = |seconds: Option<f64>| seconds.map_or_else(String::new, |s| format!("{s:.2} s"));
            let lasts = time(end).zip(time(start)).map(|(end, start)| end - start);
            if has_tracks {
                let id = track.map_or_else(String::new, |id| format!("#{id}"));
                write!(page, "<td class=\"number\">{id}</td>")?;
            }
            for cell in [
                text(time(start)),
                text(time(end)),
                text(lasts),
                start.frame.to_string(),
                end.frame.to_string(),
                frames.to_string(),
                format!("{best:.3}"),
            ] {
                write!(page, "<td class=\"number\">{cell}</td>")?;
            }
            page.push_str("</tr>\n");
        }
        page.push_str("</table></div>\n");
        if more > 0 {
            writeln!(page, "<p>{more} more appearances are not shown.</p>")?;
        }
        writeln!(
            page,
            "<p class=\"soft\">An appearance goes on through up to {} out of sight (--gap).</p>\n</section>",
            self.run.gap
        )
    }

    /// Writes how often each template was found, and how well; where matches are followed, tracks show that.
    fn write_templates(&self, page: &mut String) -> std::fmt::Result {
        if self.report.templates.is_empty() || self.run.track_matches {
            return Ok(());
        }
        page.push_str("<section>\n<h2>Matches</h2>\n<div class=\"wide\"><table>\n<tr><th>template</th>");
        for title in ["frames", "share", "matches", "best score", "mean", "least", "first", "last"] {
            write!(page, "<th class=\"number\">{title}</th>")?;
        }
        page.push_str("</tr>\n");
        let frames = self.report.frames;
        for template in &self.report.templates {
            write!(page, "<tr><td>{}</td>", escaped(template))?;
            let found = self.report.found.iter().find(|found| found.template == *template);
            let Some(Found { frames: count, matches, least, sum, most, first, last, .. }) = found else {
                writeln!(page, "<td class=\"number\">0 of {frames}</td><td colspan=\"7\"></td></tr>")?;
                continue;
            };
            for cell in [
                format!("{count} of {frames}"),
                format!("{:.1} %", 100.0 * *count as f64 / frames as f64),
                matches.to_string(),
                format!("{most:.3}"),
                format!("{:.3}", sum / *count as f64),
                format!("{least:.3}"),
                format!("{first:.2} s"),
                format!("{last:.2} s"),
            ] {
                write!(page, "<td class=\"number\">{cell}</td>")?;
            }
            page.push_str("</tr>\n");
        }
        page.push_str(
            "</table></div>\n<p class=\"soft\">Scores are those of the best match in each frame that has one.</p>\n</section>\n",
        );
        Ok(())
    }

    /// Writes how often lines were crossed, and what went into zones and out of them.
    fn write_lines_and_zones(&self, page: &mut String) -> std::fmt::Result {
        let Summary { lines, zones, .. } = self.summary;
        if !lines.is_empty() {
            page.push_str("<section>\n<h2>Lines</h2>\n<div class=\"wide\"><table>\n<tr><th>line</th>");
            page.push_str("<th class=\"number\">in</th><th class=\"number\">out</th></tr>\n");
            for LineSummary { line, inwards, outwards } in lines {
                write!(page, "<tr><td>{}</td><td class=\"number\">{inwards}</td>", escaped(line))?;
                writeln!(page, "<td class=\"number\">{outwards}</td></tr>")?;
            }
            page.push_str("</table></div>\n<p class=\"soft\">In: from the left side of a line to its right ");
            page.push_str("side, looking from its first end to its second.</p>\n</section>\n");
        }
        if zones.is_empty() {
            return Ok(());
        }
        page.push_str("<section>\n<h2>Zones</h2>\n<div class=\"wide\"><table>\n<tr><th>zone</th>");
        for title in ["entered", "left", "inside at the end", "most inside", "objects, mean", "most"] {
            write!(page, "<th class=\"number\">{title}</th>")?;
        }
        page.push_str("</tr>\n");
        for ZoneSummary { zone, entered, left, inside, most_inside, objects } in zones {
            write!(page, "<tr><td>{}</td>", escaped(zone))?;
            let [mean, most] = objects
                .map_or_else(Default::default, |all| [format!("{:.1}", all.mean), all.most.to_string()]);
            for cell in
                [entered, left, inside, most_inside].map(ToString::to_string).iter().chain(&[mean, most])
            {
                write!(page, "<td class=\"number\">{cell}</td>")?;
            }
            page.push_str("</tr>\n");
        }
        page.push_str("</table></div>\n</section>\n");
        Ok(())
    }

    /// Writes the section about the run: the input, the options, the device.
    fn write_run(&self, page: &mut String) -> std::fmt::Result {
        let run = self.run;
        page.push_str("<section>\n<h2>Run</h2>\n<table>\n");
        let mut row =
            |name: &str, value: &str| writeln!(page, "<tr><th>{name}</th><td>{}</td></tr>", escaped(value));
        row("input", &run.input)?;
        let rate = if run.frame_rate > 0.0 {
            format!("{:.2} frames/s", run.frame_rate)
        } else {
            "varying rate".into()
        };
        row("video", &format!("{}x{} {}, {rate}", run.width, run.height, run.format))?;
        row("backend", run.backend)?;
        row("device", &run.device)?;
        for (name, value) in
            [("driver", &run.driver), ("decoder", &run.decoder), ("threshold", &run.threshold)]
        {
            if let Some(value) = value {
                row(name, value)?;
            }
        }
        if let Some(objects) = &run.objects {
            row("objects", &objects.to_string())?;
        }
        for template in &run.templates {
            let (w, h, count) = (template.w, template.h, template.members);
            let variants = if count == 1 { "1 variant".into() } else { format!("{count} variants") };
            let digest: String = template.sha256.chars().take(12).collect();
            row("template", &format!("{}: {w}x{h}, {variants}, SHA-256 {digest}\u{2026}", template.name))?;
        }
        if let Some(search) = run.search {
            row("search", search)?;
        }
        for (id, track) in (1..).zip(&run.tracks) {
            row("box", &format!("#{id}: {track}"))?;
        }
        if run.track_matches {
            row("matches", "followed")?;
        }
        if run.track_objects {
            row("objects", "followed")?;
        }
        if let Some(settings) = &run.settings {
            row("least score", &settings.min_score.to_string())?;
            row("most matches", &format!("{} of each template", settings.max_matches))?;
            row("most overlap", &settings.max_overlap.to_string())?;
            for (name, values, unit) in
                [("scales", &settings.scales, ""), ("angles", &settings.angles, "\u{b0}")]
            {
                if let [first, .., last] = values.as_slice() {
                    row(name, &format!("{} from {first:.4}{unit} to {last:.4}{unit}", values.len()))?;
                }
            }
            row("searched", settings.roi.as_deref().unwrap_or("the whole frame"))?;
        }
        if let Some(command) = &run.command {
            row("view", command.view)?;
            row("frames", if command.live { "the newest; others may be dropped" } else { "all" })?;
            row("command", &shell::line(&command.line))?;
        }
        row("started", &date(run.started))?;
        row("lockon", run.version)?;
        page.push_str("</table>\n</section>\n");
        Ok(())
    }

    fn write_thumbnails(&self, page: &mut String) -> std::fmt::Result {
        let report = self.report;
        let all = || report.thumbnails.iter().chain(&report.late_thumbnails);
        if all().next().is_none() {
            return Ok(());
        }
        page.push_str("<section>\n<h2>Lost and found again</h2>\n");
        page.push_str("<div class=\"thumbnails\">\n");
        for Thumbnail { title, state, crop, bounds: [x, y, w, h], picture } in all() {
            let Rect { x: left, y: top, w: width, h: height } = *crop;
            let shape = format!("x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\"");
            writeln!(
                page,
                "<figure><svg viewBox=\"{left} {top} {width} {height}\" role=\"img\" aria-label=\"{state}\">\
                 <image x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" href=\"{}\"/>\
                 <rect class=\"shade\" {shape}/><rect class=\"box {state}\" {shape}/></svg>\
                 <figcaption>{}</figcaption></figure>",
                picture.uri(),
                escaped(title),
                state = state.name()
            )?;
        }
        page.push_str("</div>\n");
        if report.unshown_thumbnails > 0 {
            writeln!(
                page,
                "<p class=\"soft\">{} more in between are not shown.</p>",
                report.unshown_thumbnails
            )?;
        }
        page.push_str("</section>\n");
        Ok(())
    }

    fn write_stages(&self, page: &mut String) -> std::fmt::Result {
        if self.summary.stages.is_empty() {
            return Ok(());
        }
        page.push_str(
            "<section>\n<h2>Stages</h2>\n<table>\n<tr><th>stage</th><th class=\"number\">mean</th>\
             <th class=\"number\">99 % within</th></tr>\n",
        );
        for stage in &self.summary.stages {
            writeln!(
                page,
                "<tr><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td></tr>",
                stage.stage,
                duration(stage.mean_us as u64),
                duration(stage.p99_us)
            )?;
        }
        page.push_str("</table>\n<p class=\"soft\">Per frame; they overlap.</p>\n</section>\n");
        Ok(())
    }

    fn write_events(&self, page: &mut String) -> std::fmt::Result {
        if self.report.events.is_empty() {
            return Ok(());
        }
        page.push_str("<section>\n<h2>What happened to the source</h2>\n");
        for event in &self.report.events {
            writeln!(page, "<p>{}</p>", escaped(event))?;
        }
        if self.report.unshown_events > 0 {
            writeln!(page, "<p class=\"soft\">And {} more.</p>", self.report.unshown_events)?;
        }
        page.push_str("</section>\n");
        Ok(())
    }
}

/// The colour of a path: that of the template on frames too. None is a state's.
fn colour(series: &Series) -> String {
    let [r, g, b] = match series.kind {
        SeriesKind::Track(id) => overlay::NAMES[(id as usize + 1) % overlay::NAMES.len()],
        SeriesKind::Match => overlay::rgb_of_name(&series.name),
    };
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// A name that is as long as [`MOST_LETTERS`] at most.
fn shortened(name: &str) -> String {
    if name.chars().count() <= MOST_LETTERS {
        return name.to_owned();
    }
    name.chars().take(MOST_LETTERS - 1).chain(['\u{2026}']).collect()
}

/// Microseconds for people.
pub(super) fn duration(microseconds: u64) -> String {
    match microseconds {
        0..1_000 => format!("{microseconds} \u{b5}s"),
        1_000..10_000 => format!("{:.1} ms", microseconds as f64 * 1e-3),
        10_000..1_000_000 => format!("{:.0} ms", microseconds as f64 * 1e-3),
        _ => format!("{:.1} s", microseconds as f64 * 1e-6),
    }
}

/// Seconds since 1970 as a date and a time of day, UTC.
fn date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut year, mut day) = (1970, days);
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let months = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= months[month] {
        day -= months[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02} {:02}:{:02} UTC", month + 1, day + 1, rest / 3600, rest / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_the_calendar() {
        let dates = [0, 951_782_400, 1_709_210_096, 4_102_444_799].map(date);
        assert_eq!(
            dates,
            ["1970-01-01 00:00 UTC", "2000-02-29 00:00 UTC", "2024-02-29 12:34 UTC", "2099-12-31 23:59 UTC"]
        );
    }
}
