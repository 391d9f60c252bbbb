//! The last lines of a run: its findings, and the files written.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use lockon::appearances::Appearance;
use lockon::fleet::Ended;
use lockon::media::sink::{self, Numbered};
use lockon::memory::Bytes;
use lockon::results::{
    EventsSummary, FrameTime, LineSummary, ObjectsSummary, Percentiles, Span, Spread, Summary,
    TemplateSummary, TrackSummary, TrafficSummary, ZoneSummary,
};
use lockon::stats::Stage;
use lockon::text;
use lockon::tracker::OBJECT_LABEL;

use super::log;
use super::words::{self, counted};

/// Maximum number of tracks that get a line each, and of listed spans in which one was lost.
const MOST_TRACKS: usize = 12;
const MOST_SPANS: usize = 3;
/// Maximum listed files.
const MOST_FILES: usize = 20;

/// The remedy for a run that showed and wrote nothing.
pub(super) const NOTHING_KEPT: &str = "nothing was saved: -o FILE.mp4 writes the video with the results drawn in, --results FILE.jsonl the results,\n\
     --report FILE.html a page about them; --display shows them in a window";

/// Describes the findings, in several lines without a final line break. `min_score` is the minimum score of a
/// match.
pub(super) fn describe(summary: &Summary, min_score: f64) -> String {
    let mut lines = vec![head(summary)];
    lines.extend(summary.found.iter().map(|found| of_template(found, summary.frames, min_score)));
    lines.extend(summary.tracks.iter().take(MOST_TRACKS).map(of_track));
    lines.extend(appearances(summary));
    let unlisted = summary.tracks.len().saturating_sub(MOST_TRACKS) as u64 + summary.more_tracks;
    if unlisted > 0 {
        lines.push(format!("and {}", counted(unlisted, "more track", "more tracks")));
    }
    if let Some(births) = summary.births {
        let is_object = |track: &TrackSummary| track.template.as_deref() == Some(OBJECT_LABEL);
        let none_are_of_templates = births == 0 && summary.found.is_empty();
        let of_objects =
            summary.objects.is_some() && (none_are_of_templates || summary.tracks.iter().any(is_object));
        let what = if of_objects { "objects" } else { "matches" };
        lines.push(format!("{what} became {}", counted(births, "track", "tracks")));
    }
    if let Some(foreground) = summary.foreground {
        lines.push(format!(
            "foreground: {} of the pixels on average, minimum {}, maximum {}",
            percent(foreground.mean),
            percent(foreground.least),
            percent(foreground.most)
        ));
    }
    lines.extend(summary.objects.map(of_objects));
    lines.extend(summary.lines.iter().map(|LineSummary { line, inwards, outwards }| {
        format!("line {}: {inwards} in, {outwards} out", text::in_one_line(line))
    }));
    lines.extend(summary.zones.iter().map(of_zone));
    lines.extend(summary.events.iter().map(|EventsSummary { name, sent, lost }| {
        let lost_words = if *lost > 0 { format!(", {lost} lost") } else { String::new() };
        format!("events: {sent} of {} delivered to {}{lost_words}", sent + lost, text::in_one_line(name))
    }));
    lines.extend(short_of(summary));
    let troubles = [
        (summary.stalls, "stall", "stalls"),
        (summary.gaps, "gap", "gaps"),
        (summary.damaged, "decoder error", "decoder errors"),
        (summary.interpolated, "interpolated time", "interpolated times"),
    ];
    let troubles: Vec<_> = troubles
        .iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, one, many)| counted(*count, one, many))
        .collect();
    if !troubles.is_empty() {
        lines.push(format!("source: {}", troubles.join(", ")));
    }
    lines.join("\n")
}

/// Prints the findings in one of several videos.
pub(super) fn say(Ended { name, request, summary, .. }: &Ended) {
    if summary.frames > 0 {
        let (name, found) = (text::in_one_line(name), in_one_line(summary, request.min_score));
        log::say(&format!("{name}: {found}"));
        if log::is_verbose() {
            log::say(&describe_times(summary, None));
        }
    }
}

/// Describes the findings in one of several videos.
pub(super) fn in_one_line(summary: &Summary, min_score: f64) -> String {
    describe(summary, min_score).lines().collect::<Vec<_>>().join("; ")
}

/// Names the step that was too slow, if frames of a live source were dropped: the longest step, if it took
/// longer than the frame interval. Else frames came before the first was searched, or the decoder was slow.
fn short_of(summary: &Summary) -> Option<String> {
    let all = summary.frames + summary.dropped;
    if summary.dropped == 0 || summary.seconds <= 0.0 {
        return None;
    }
    let interval_us = summary.seconds * 1e6 / all as f64;
    let own = summary.stages.iter().filter(|stage| stage.stage != Stage::Source.name());
    let longest = own.max_by(|a, b| a.mean_us.total_cmp(&b.mean_us))?;
    Some(if longest.mean_us > interval_us {
        let (step, took, come) = (step(longest.stage), longest.mean_us / 1000.0, interval_us / 1000.0);
        format!("{step} took {took:.1} ms per frame; a frame came every {come:.1} ms")
    } else {
        "frames were dropped at the start or by a slow decoder: no step took longer than the frame interval"
            .into()
    })
}

/// Describes where the time went, in several lines without a final line break.
pub(super) fn describe_times(summary: &Summary, decoder: Option<&str>) -> String {
    let mut lines = vec![format!("latency {}", in_ms(summary.latency_us))];
    if let Some(capture_us) = summary.capture_us {
        lines.push(format!("from capture to result {}", in_ms(capture_us)));
    }
    for output in summary.outputs.iter().filter(|output| output.shown_us.max > 0) {
        let (shown, dropped) = (in_ms(output.shown_us), output.dropped);
        lines.push(format!(
            "from capture to {} {shown}, {dropped} dropped there",
            text::in_one_line(&output.name)
        ));
    }
    let steps: Vec<_> = summary
        .stages
        .iter()
        .filter(|stage| stage.mean_us > 0.0)
        .map(|stage| format!("{} {:.2}", step(stage.stage), stage.mean_us / 1000.0))
        .collect();
    lines.push(format!("mean ms per frame: {}", steps.join(", ")));
    let TrafficSummary { to_device, from_device, on_host } = summary.traffic;
    let moved = [(to_device, "to the GPU"), (from_device, "from the GPU"), (on_host, "copied on the host")];
    let moved = moved.iter().filter(|(bytes, _)| *bytes > 0);
    let moved: Vec<_> =
        moved.map(|(bytes, how)| format!("{} {how}", Bytes(bytes / summary.frames.max(1)))).collect();
    if !moved.is_empty() {
        lines.push(format!("per frame: {}", moved.join(", ")));
    }
    if let Some(decoder) = decoder {
        lines.push(format!("decoded by {decoder}"));
    }
    lines.join("\n")
}

/// Lists the files that were written, with their sizes; `None` if there are none.
pub(super) fn describe_files(summary: &Summary) -> Option<String> {
    let size = |path: &Path| path.metadata().ok().filter(std::fs::Metadata::is_file).map(|found| found.len());
    let describe = |path: &PathBuf| {
        let sizes: Vec<_> = sink::written(path).iter().filter_map(|path| size(path)).collect();
        let (count, bytes) = (sizes.len() as u64, Bytes(sizes.iter().sum()));
        let pictures = Numbered::of(path).map(|_| counted(count, "picture", "pictures") + ", ");
        (count > 0).then(|| format!("{} ({}{bytes})", text::path(path), pictures.unwrap_or_default()))
    };
    let mut files: Vec<_> = summary.files.iter().filter_map(describe).collect();
    let more = files.len().saturating_sub(MOST_FILES);
    files.truncate(MOST_FILES);
    let mut line = (!files.is_empty()).then(|| format!("written: {}", files.join(", ")))?;
    if more > 0 {
        let _ = write!(line, ", and {}", counted(more as u64, "more file", "more files"));
    }
    Some(line)
}

/// The name of a stage for people.
fn step(stage: &str) -> &'static str {
    match Stage::ALL.into_iter().find(|known| known.name() == stage) {
        Some(Stage::Source) => "waiting for the source",
        Some(Stage::Upload) => "copying",
        Some(Stage::Standing) => "searching and thresholding",
        Some(Stage::Tracker) => "following tracks",
        Some(Stage::Sinks) | None => "drawing and writing",
    }
}

fn head(summary: &Summary) -> String {
    let mut head = format!(
        "{} in {:.2} s, {:.1} fps",
        counted(summary.frames, "frame", "frames"),
        summary.seconds,
        summary.fps
    );
    if summary.dropped > 0 {
        let _ = write!(head, ", {} dropped", summary.dropped);
    }
    if let Some(frame) = summary.device_lost {
        let _ = write!(head, ", on another device since frame {frame}");
    }
    if summary.interrupted {
        head.push_str(", interrupted");
    }
    head
}

/// A line for each template and track that appeared more than once: the lines above have the first and last
/// frame of the others.
fn appearances(summary: &Summary) -> Vec<String> {
    let mut all: Vec<(&Appearance, Vec<&Appearance>)> = Vec::new();
    for one in &summary.appearances {
        let is_it =
            |first: &Appearance| first.track == one.track && (one.track.is_some() || first.name == one.name);
        match all.iter_mut().find(|(first, _)| is_it(first)) {
            Some((_, others)) => others.push(one),
            None => all.push((one, vec![one])),
        }
    }
    let several = all.iter().filter(|(_, times)| times.len() > 1).take(MOST_TRACKS);
    let line = |(first, times): &(&Appearance, Vec<&Appearance>)| {
        let name = first.name.as_deref().map(text::in_one_line);
        let name = match (first.track, name) {
            (Some(id), Some(name)) => format!("#{id} ({name})"),
            (Some(id), None) => format!("#{id}"),
            (None, name) => name.unwrap_or_default().into_owned(),
        };
        let spans = times.iter().take(MOST_SPANS).map(|one| span(&Span { from: one.start, to: one.end }));
        let mut line = format!(
            "{name} appeared {}: {}",
            counted(times.len() as u64, "time", "times"),
            spans.collect::<Vec<_>>().join(", ")
        );
        if let Some(more) = times.len().checked_sub(MOST_SPANS).filter(|more| *more > 0) {
            let _ = write!(line, ", and {more} more");
        }
        line
    };
    several.map(line).collect()
}

/// How many objects frames had, and how many of them `--object-max` left out.
fn of_objects(all: ObjectsSummary) -> String {
    let ObjectsSummary { frames, total, least, mean, most, cut_off_frames, more_objects } = all;
    let mut line = format!(
        "objects: {mean:.1} in a frame on average, minimum {least}, maximum {most}, {total} in {}",
        counted(frames, "frame", "frames")
    );
    if more_objects > 0 {
        let in_frames = counted(cut_off_frames, "frame", "frames");
        let _ = write!(line, "; --object-max left out {more_objects} in {in_frames}");
    }
    line
}

/// What went into a zone and out of it, and how many objects were in it.
fn of_zone(zone: &ZoneSummary) -> String {
    let ZoneSummary { zone, entered, left, inside, most_inside, objects } = zone;
    let mut line = format!(
        "zone {}: {entered} entered, {left} left, {inside} inside at the end, {most_inside} at most",
        text::in_one_line(zone)
    );
    if let Some(Spread { least, mean, most }) = objects {
        let _ = write!(line, "; {mean:.1} objects in it on average, minimum {least}, maximum {most}");
    }
    line
}

fn of_template(found: &TemplateSummary, frames: u64, min_score: f64) -> String {
    let name = text::in_one_line(&found.template);
    let of_all = counted(frames, "frame", "frames");
    let (Some(first), Some(last), Some(best), Some(worst)) =
        (found.first, found.last, found.best, found.worst)
    else {
        return format!(
            "{name}: no match in {of_all}: no score reached {min_score} (lower it with --min-score)"
        );
    };
    let mut line = format!("{name}: found in {} of {of_all}", found.frames);
    if found.matches > found.frames {
        let _ = write!(line, ", {} matches", found.matches);
    }
    let _ = if found.matches == 1 {
        write!(line, ", score {best:.3}, in {}", moment(first))
    } else {
        write!(line, ", scores {worst:.3} to {best:.3}, first in {}, last in {}", moment(first), moment(last))
    };
    line
}

fn of_track(track: &TrackSummary) -> String {
    let share = |count: u64| percent(count as f64 / track.frames.max(1) as f64);
    let mut line = format!("#{}", track.id);
    if let Some(label) = track.name.as_ref().or(track.template.as_ref()) {
        let _ = write!(line, " ({})", text::in_one_line(label));
    }
    let _ = write!(
        line,
        ": tracked in {} of {} from {} on, uncertain in {}, lost in {}",
        share(track.tracked + track.reacquired),
        counted(track.frames, "frame", "frames"),
        moment(track.first),
        share(track.uncertain),
        share(track.lost)
    );
    if !track.lost_spans.is_empty() {
        let spans: Vec<_> = track.lost_spans.iter().take(MOST_SPANS).map(span).collect();
        let _ = write!(line, ": {}", spans.join(", "));
        let more = track.losses - spans.len() as u64;
        if more > 0 {
            let _ = write!(line, ", and {}", counted(more, "more time", "more times"));
        }
    }
    line
}

fn moment(FrameTime { frame, pts_ns }: FrameTime) -> String {
    pts_ns.map_or_else(|| format!("frame {frame}"), |ns| format!("frame {frame} ({})", words::time(ns)))
}

fn span(Span { from, to }: &Span) -> String {
    if from.frame == to.frame {
        return moment(*from);
    }
    let frames = format!("frames {} to {}", from.frame, to.frame);
    match (from.pts_ns, to.pts_ns) {
        (Some(start), Some(end)) => format!("{frames} ({} to {})", words::time(start), words::time(end)),
        _ => frames,
    }
}

/// `p50 1.2, p95 3.4, p99 5.6 ms`
pub(super) fn in_ms(Percentiles { p50, p95, p99, .. }: Percentiles) -> String {
    let [p50, p95, p99] = [p50, p95, p99].map(|us| us as f64 / 1000.0);
    format!("p50 {p50:.1}, p95 {p95:.1}, p99 {p99:.1} ms")
}

/// A share in per cent; 0 and 100 only if it is exactly that.
fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if share > 0.0 && percent < 0.05 {
        "under 0.1 %".into()
    } else if share < 1.0 && percent >= 99.95 {
        "over 99.9 %".into()
    } else {
        let text = format!("{percent:.1}");
        format!("{} %", text.strip_suffix(".0").unwrap_or(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(frame: u64) -> FrameTime {
        FrameTime { frame, pts_ns: Some(frame * 40_000_000) }
    }

    fn found(template: &str, frames: u64, matches: u64) -> TemplateSummary {
        let is_found = matches > 0;
        TemplateSummary {
            template: template.into(),
            frames,
            matches,
            best: is_found.then_some(0.9441),
            worst: is_found.then_some(0.81),
            first: is_found.then(|| at(12)),
            last: is_found.then(|| at(40)),
        }
    }

    fn track(id: u32) -> TrackSummary {
        TrackSummary {
            id,
            name: None,
            template: None,
            first: at(18),
            last: at(59),
            frames: 42,
            tracked: 38,
            uncertain: 0,
            reacquired: 1,
            lost: 3,
            losses: 1,
            lost_spans: vec![Span { from: at(30), to: at(32) }],
        }
    }

    #[test]
    fn each_template_is_answered_for() {
        let summary = Summary {
            frames: 60,
            found: vec![found("car", 15, 15), found("bus", 15, 32), found("cat", 0, 0), found("dog", 1, 1)],
            ..Summary::default()
        };
        let said = describe(&summary, 0.8);
        assert_eq!(
            said.lines().skip(1).collect::<Vec<_>>(),
            [
                "car: found in 15 of 60 frames, scores 0.810 to 0.944, first in frame 12 (0.48 s), last in frame 40 (1.60 s)",
                "bus: found in 15 of 60 frames, 32 matches, scores 0.810 to 0.944, first in frame 12 (0.48 s), last in frame 40 (1.60 s)",
                "cat: no match in 60 frames: no score reached 0.8 (lower it with --min-score)",
                "dog: found in 1 of 60 frames, score 0.944, in frame 12 (0.48 s)",
            ]
        );
    }

    #[test]
    fn a_track_is_told_with_shares_and_when_it_was_lost() {
        let often = TrackSummary {
            template: Some("car".into()),
            losses: 20,
            lost_spans: vec![Span { from: at(30), to: at(30) }; 10],
            ..track(2)
        };
        let summary = Summary {
            frames: 60,
            tracks: [track(1), often].into_iter().chain((3..=20).map(track)).collect(),
            more_tracks: 7,
            births: Some(26),
            foreground: Some(Spread { least: 0.0, mean: 0.1234, most: 0.99999 }),
            ..Summary::default()
        };
        let said = describe(&summary, 0.8);
        let lines: Vec<_> = said.lines().skip(1).collect();
        assert_eq!(
            lines[0],
            "#1: tracked in 92.9 % of 42 frames from frame 18 (0.72 s) on, uncertain in 0 %, lost in 7.1 %: frames 30 to 32 (1.20 s to 1.28 s)"
        );
        assert!(lines[1].starts_with("#2 (car): "), "{}", lines[1]);
        assert!(lines[1].ends_with("frame 30 (1.20 s), and 17 more times"), "{}", lines[1]);
        assert_eq!(
            lines[12..],
            [
                "and 15 more tracks",
                "matches became 26 tracks",
                "foreground: 12.3 % of the pixels on average, minimum 0 %, maximum over 99.9 %"
            ]
        );
    }

    #[test]
    fn objects_are_told_with_those_that_the_maximum_left_out() {
        let all = ObjectsSummary {
            frames: 3,
            total: 8,
            least: 1,
            mean: 8.0 / 3.0,
            most: 5,
            ..ObjectsSummary::default()
        };
        let said = |objects| describe(&Summary { objects: Some(objects), ..Summary::default() }, 0.8);
        let line = "objects: 2.7 in a frame on average, minimum 1, maximum 5, 8 in 3 frames";
        assert_eq!(said(all).lines().nth(1), Some(line));
        let cut_off = ObjectsSummary { cut_off_frames: 1, more_objects: 9, ..all };
        let line = format!("{line}; --object-max left out 9 in 1 frame");
        assert_eq!(said(cut_off).lines().nth(1), Some(&*line));
    }

    #[test]
    fn events_are_counted_as_delivered_and_lost() {
        let events =
            [(0, 6), (6, 0)].map(|(sent, lost)| EventsSummary { name: "mqtt://b/yard".into(), sent, lost });
        let said = describe(&Summary { events: events.into(), ..Summary::default() }, 0.8);
        let lines: Vec<_> = said.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "events: 0 of 6 delivered to mqtt://b/yard, 6 lost",
                "events: 6 of 6 delivered to mqtt://b/yard"
            ]
        );
    }

    #[test]
    fn files_are_told_with_their_sizes_and_what_is_not_there_is_not() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.csv"), "12345").unwrap();
        let files = vec![dir.path().join("a.csv"), dir.path().join("gone.mp4"), "/dev/null".into()];
        let said = describe_files(&Summary { files, ..Summary::default() }).unwrap();
        assert!(said.ends_with("a.csv (5 bytes)") && said.starts_with("written: "), "{said}");
        assert_eq!(describe_files(&Summary::default()), None);
    }
}
