//! Joins the results of a long video's segments to those of a run of the whole.
//!
//! Frames of a segment are numbered from where its decoder began; the last frame of the segment before it
//! gives the offset. The rest of each line stays as the worker wrote it. The summary is counted again from
//! all frames in their order, so that its sums are equal to the bit too.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use lockon_core::config::Moment;
use lockon_core::error::{Error, Result};
use lockon_core::output;
use lockon_core::results::{FrameRecord, Match, Object, Percentiles, Record, Summary, ThresholdResult};
use lockon_core::stats::Durations;
use lockon_core::tally::Tally;

/// The results of one segment.
pub(super) struct SegmentResults {
    /// The time of its first frame, in nanoseconds; `None` for the first segment.
    pub(super) from_ns: Option<u64>,
    /// JSON Lines.
    pub(super) lines: Vec<u8>,
    /// Files of rows, with the frame's number in the first column.
    pub(super) rows: Vec<Vec<u8>>,
}

/// The results of the whole.
pub(super) struct Joined {
    pub(super) lines: Vec<u8>,
    pub(super) rows: Vec<Vec<u8>>,
    pub(super) summary: Summary,
}

/// The fields of a frame's line that are counted.
#[derive(Deserialize)]
struct Frame {
    pts_ns: Option<u64>,
    latency_us: u64,
    matches: Vec<Found>,
    threshold: Option<Foreground>,
    objects: Option<Vec<IgnoredAny>>,
    #[serde(default)]
    more_objects: u64,
}

#[derive(Deserialize)]
struct Found {
    template: Arc<str>,
    score: f64,
}

#[derive(Deserialize)]
struct Foreground {
    foreground: f64,
}

/// Joins the segments of a video, in their order.
///
/// # Errors
/// `NoVideo` if they do not meet, or if frames are missing or repeated between them: `input` cannot be cut at
/// these frames.
pub(super) fn join(input: &str, parts: &[SegmentResults]) -> Result<Joined> {
    let failed = |reason: String| Error::NoVideo { input: input.into(), reason };
    let (mut lines, mut rows) =
        (Vec::new(), vec![Vec::new(); parts.first().map_or(0, |part| part.rows.len())]);
    let mut count = Count::default();
    let (mut next, mut times) = (0, Times::default());
    for (index, part) in parts.iter().enumerate() {
        let text = std::str::from_utf8(&part.lines).map_err(|error| failed(error.to_string()))?;
        let first = text.lines().find(|line| kind(line) == "frame");
        let first = first.ok_or_else(|| failed(format!("segment {} has no frame", index + 1)))?;
        let (number, _) = numbered(first).ok_or_else(|| failed("a frame has no number".into()))?;
        let off = i128::from(next) - i128::from(number);
        let begins = parsed(first).map_err(failed)?.pts_ns;
        if part.from_ns.is_some() && begins != part.from_ns {
            let (index, [begins, expected]) = (index + 1, [begins, part.from_ns].map(shown));
            let what = format!("segment {index} begins at {begins} instead of {expected}");
            return Err(failed(uncut(&what)));
        }
        for line in text.lines() {
            match kind(line) {
                "run" if index == 0 => {
                    count.begin(line);
                    lines.extend_from_slice(line.as_bytes());
                    lines.push(b'\n');
                }
                "run" => {}
                "summary" => count.end(line),
                "frame" => {
                    let (number, rest) =
                        numbered(line).ok_or_else(|| failed("a frame has no number".into()))?;
                    let number = (i128::from(number) + off) as u64;
                    next = number + 1;
                    let frame = parsed(line).map_err(failed)?;
                    times.see(frame.pts_ns, index);
                    count.frame(number, &frame);
                    push(&mut lines, number, rest);
                }
                // Lines between two frames have the next frame's number.
                _ => match numbered(line) {
                    Some((number, rest)) => push(&mut lines, (i128::from(number) + off).max(0) as u64, rest),
                    None => return Err(failed(format!("a line is not understood: {line:.80}"))),
                },
            }
        }
        for (joined, part) in rows.iter_mut().zip(&part.rows) {
            append_rows(joined, part, off);
        }
    }
    if let Some((index, what)) = times.fault() {
        return Err(failed(uncut(&format!("frames are {what} in front of segment {}", index + 1))));
    }
    let summary = count.summary();
    output::write_line(&mut lines, &Record::Summary(&summary)).expect("memory takes everything");
    Ok(Joined { lines, rows, summary })
}

fn uncut(what: &str) -> String {
    format!("{what}: this video cannot be cut; submit it without --split")
}

fn shown(ns: Option<u64>) -> String {
    ns.map_or_else(|| "no time".into(), |ns| Moment::Time(ns).to_string())
}

/// The times between frames, within segments and from one to the next.
#[derive(Default)]
struct Times {
    last: Option<(u64, usize)>,
    /// The longest time within a segment.
    longest: Option<u64>,
    /// Times between the last frame of a segment and the first of the next one, with the index of that one.
    seams: Vec<(usize, Option<u64>)>,
}

impl Times {
    fn see(&mut self, pts_ns: Option<u64>, segment: usize) {
        let Some(now) = pts_ns else { return };
        if let Some((last, before)) = self.last.replace((now, segment)) {
            let step = now.checked_sub(last).filter(|step| *step > 0);
            if before == segment {
                self.longest = self.longest.max(step);
            } else {
                self.seams.push((segment, step));
            }
        }
    }

    /// Returns the first segment that does not continue the one before it. Videos have pauses: a longer one
    /// than any within a segment is a missing frame.
    fn fault(&self) -> Option<(usize, &'static str)> {
        let longest = self.longest?;
        self.seams.iter().find_map(|(segment, step)| match step {
            None => Some((*segment, "repeated")),
            Some(step) if *step > longest.saturating_add(longest / 2) => Some((*segment, "missing")),
            Some(_) => None,
        })
    }
}

/// The `type` of a line.
fn kind(line: &str) -> &str {
    let rest = line.strip_prefix("{\"type\":\"").unwrap_or_default();
    rest.split_once('"').map_or("", |(kind, _)| kind)
}

/// Returns a line's frame number, and the text before and after it.
fn numbered(line: &str) -> Option<(u64, (&str, &str))> {
    const KEY: &str = "\"frame\":";
    let at = line.find(KEY)? + KEY.len();
    let end = at + line[at..].find(|c: char| !c.is_ascii_digit())?;
    Some((line[at..end].parse().ok()?, (&line[..at], &line[end..])))
}

/// Parses the fields of a frame's line that are counted.
fn parsed(line: &str) -> Result<Frame, String> {
    serde_json::from_str(line).map_err(|error| error.to_string())
}

fn push(lines: &mut Vec<u8>, number: u64, (before, behind): (&str, &str)) {
    for text in [before, &number.to_string(), behind, "\n"] {
        lines.extend_from_slice(text.as_bytes());
    }
}

/// Rows with corrected numbers, and one header. A quoted name may have line breaks; a line after one has no
/// number.
fn append_rows(joined: &mut Vec<u8>, rows: &[u8], off: i128) {
    let text = String::from_utf8_lossy(rows);
    let (header, mut rest) = text.split_once('\n').unwrap_or((&text, ""));
    if joined.is_empty() {
        joined.extend_from_slice(header.as_bytes());
        joined.push(b'\n');
    }
    while !rest.is_empty() {
        let mut is_quoted = false;
        let is_end = |c: char| {
            is_quoted ^= c == '"';
            c == '\n' && !is_quoted
        };
        let end = rest.find(is_end).map_or(rest.len(), |at| at + 1);
        let (row, behind) = rest.split_at(end);
        rest = behind;
        let digits = row.find(|c: char| !c.is_ascii_digit()).unwrap_or(row.len());
        let number = row[..digits].parse::<u64>().map_or(0, |number| (i128::from(number) + off) as u64);
        joined.extend_from_slice(number.to_string().as_bytes());
        joined.extend_from_slice(&row.as_bytes()[digits..]);
    }
}

/// The summary of the whole video.
#[derive(Default)]
struct Count {
    summary: Summary,
    tally: Tally,
    latency: Durations,
}

impl Count {
    /// The summary also has templates that are never found.
    fn begin(&mut self, run: &str) {
        let run: Value = serde_json::from_str(run).unwrap_or_default();
        let names = run["templates"].as_array().into_iter().flatten();
        names
            .filter_map(|template| template["name"].as_str())
            .for_each(|name| self.tally.expect(&name.into()));
    }

    fn frame(&mut self, number: u64, frame: &Frame) {
        let found = |found: &Found| Match {
            template: found.template.clone(),
            score: found.score,
            ..Match {
                template: found.template.clone(),
                x: 0,
                y: 0,
                w: 0,
                h: 0,
                score: 0.0,
                scale: 1.0,
                angle: 0.0,
                cx: 0.0,
                cy: 0.0,
            }
        };
        let record = FrameRecord {
            frame: number,
            pts_ns: frame.pts_ns,
            matches: frame.matches.iter().map(found).collect(),
            objects: frame.objects.as_ref().map(|all| vec![Object::default(); all.len()]),
            more_objects: frame.more_objects,
            threshold: frame.threshold.as_ref().map(|it| ThresholdResult { foreground: it.foreground }),
            ..FrameRecord::default()
        };
        self.tally.count(&record);
        self.latency.record(frame.latency_us);
        self.summary.frames += 1;
    }

    /// Adds a segment's end. Workers ran in parallel: the time is their sum.
    fn end(&mut self, line: &str) {
        let part: Value = serde_json::from_str(line).unwrap_or_default();
        let number = |key: &str| part[key].as_u64().unwrap_or(0);
        let summary = &mut self.summary;
        summary.seconds += part["seconds"].as_f64().unwrap_or(0.0);
        summary.stalls += number("stalls");
        summary.damaged += number("damaged");
        summary.interpolated += number("interpolated");
        summary.redone += number("redone");
        let moved = |key: &str| part["traffic"][key].as_u64().unwrap_or(0);
        summary.traffic.to_device += moved("to_device");
        summary.traffic.from_device += moved("from_device");
        summary.traffic.on_host += moved("on_host");
    }

    fn summary(self) -> Summary {
        let mut summary = self.summary;
        self.tally.tell(&mut summary);
        summary.fps = if summary.seconds > 0.0 { summary.frames as f64 / summary.seconds } else { 0.0 };
        summary.latency_us = Percentiles::of(&self.latency);
        summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(number: u64, pts: u64, found: &[f64]) -> String {
        let found: Vec<_> =
            found.iter().map(|score| format!("{{\"template\":\"a\",\"x\":1,\"score\":{score}}}")).collect();
        format!(
            "{{\"type\":\"frame\",\"frame\":{number},\"pts_ns\":{pts},\"latency_us\":5,\"matches\":[{}],\"tracks\":[]}}\n",
            found.join(",")
        )
    }

    const RUN: &str =
        "{\"type\":\"run\",\"version\":\"1\",\"templates\":[{\"name\":\"a\"},{\"name\":\"b\"}]}\n";
    const END: &str = "{\"type\":\"summary\",\"frames\":2,\"seconds\":0.5,\"damaged\":1}\n";

    fn part(from_ns: Option<u64>, frames: &[String], rows: &str) -> SegmentResults {
        let lines = format!("{RUN}{}{END}", frames.concat()).into_bytes();
        SegmentResults { from_ns, lines, rows: vec![format!("frame,name\n{rows}").into_bytes()] }
    }

    #[test]
    fn segments_become_the_lines_and_rows_of_the_whole() {
        // The second segment's decoder began one frame early.
        let joined = join(
            "a.mp4",
            &[
                part(None, &[frame(0, 0, &[0.1]), frame(1, 40, &[])], "0,x\n"),
                part(Some(80), &[frame(1, 80, &[0.3]), frame(2, 120, &[0.2])], "1,\"y\n7\"\n2,z\n"),
            ],
        );
        let joined = joined.unwrap();
        let text = String::from_utf8(joined.lines).unwrap();
        let expected = format!(
            "{RUN}{}{}{}{}",
            frame(0, 0, &[0.1]),
            frame(1, 40, &[]),
            frame(2, 80, &[0.3]),
            frame(3, 120, &[0.2])
        );
        let (frames, summary) = text.split_at(expected.len());
        assert_eq!(frames, expected);
        let summary: Value = serde_json::from_str(summary).unwrap();
        assert_eq!((&summary["frames"], &summary["damaged"]), (&4.into(), &2.into()));
        assert_eq!(summary["found"][0]["last"]["frame"], 3);
        assert_eq!(summary["found"][1]["frames"], 0);
        assert_eq!(joined.rows, [b"frame,name\n0,x\n2,\"y\n7\"\n3,z\n"]);
    }

    #[test]
    fn objects_of_segments_are_counted_as_those_of_the_whole() {
        let frame = |number: u64, pts: u64, objects: &str| {
            format!(
                "{{\"type\":\"frame\",\"frame\":{number},\"pts_ns\":{pts},\"latency_us\":5,\"matches\":[],\"tracks\":[],\
                 \"objects\":{objects}}}\n"
            )
        };
        let first = part(None, &[frame(0, 0, "[{\"x\":1},{\"x\":2}],\"more_objects\":3")], "");
        let second = part(Some(40), &[frame(0, 40, "[]")], "");
        let summary = join("a.mp4", &[first, second]).unwrap().summary.objects.unwrap();
        assert_eq!((summary.frames, summary.total, summary.mean, summary.most), (2, 2, 1.0, 2));
        assert_eq!((summary.cut_off_frames, summary.more_objects), (1, 3));
    }

    #[test]
    fn a_segment_goes_on_behind_the_last_number_of_the_one_before_whatever_is_missing_in_between() {
        let gap = "{\"type\":\"gap\",\"frame\":2,\"away_us\":1,\"reason\":\"x\"}\n";
        let mut second = part(Some(120), &[frame(2, 120, &[])], "2,x\n");
        second.lines = format!("{RUN}{gap}{}{END}", frame(2, 120, &[])).into_bytes();
        let first = part(None, &[frame(0, 0, &[]), frame(2, 80, &[])], "0,x\n2,x\n");
        let joined = join("a.mp4", &[first, second]).unwrap();
        let numbers: Vec<_> =
            std::str::from_utf8(&joined.lines).unwrap().lines().filter_map(numbered).collect();
        let numbers: Vec<_> = numbers.iter().map(|(number, _)| *number).collect();
        // Two frames, what happened in front of the third, and the third.
        assert_eq!(numbers[..4], [0, 2, 3, 3]);
        assert_eq!(joined.rows, [b"frame,name\n0,x\n2,x\n3,x\n"]);
    }

    #[test]
    fn segments_that_do_not_meet_are_told_and_not_joined() {
        let first = || part(None, &[frame(0, 0, &[])], "");
        for second in [part(Some(40), &[frame(5, 80, &[])], ""), part(Some(40), &[], "")] {
            let said = join("a.mp4", &[first(), second]).err().unwrap().to_string();
            assert!(said.starts_with("a.mp4: segment 2 ") && !said.contains("Some"), "{said}");
        }
    }

    #[test]
    fn a_frame_that_is_missing_or_repeated_where_segments_meet_is_an_error() {
        let ms = |ms: u64| ms * 1_000_000;
        let frames =
            |from: u64, to: u64| (from..to).map(|at| frame(at, ms(at * 40), &[])).collect::<Vec<_>>();
        let joined = |first: &[String], second: u64, frames: &[String]| {
            join("a.ts", &[part(None, first, ""), part(Some(ms(second * 40)), frames, "")])
        };
        joined(&frames(0, 5), 5, &frames(5, 9)).map(drop).unwrap();
        for (first, second, expected) in [(4, 5, "missing"), (6, 5, "repeated")] {
            let said = joined(&frames(0, first), second, &frames(second, 9)).err().unwrap().to_string();
            assert!(said.contains(expected) && said.contains("segment 2"), "{said}");
        }
        // A camera that pauses records no frames for a while.
        let paused = [frames(0, 3), frames(30, 33)].concat();
        joined(&paused, 50, &frames(50, 55)).map(drop).unwrap();
    }
}
