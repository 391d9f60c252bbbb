//! CSV after RFC 4180: a header, then a row for every match and every track of every frame. Names that a
//! spreadsheet would calculate have an apostrophe in front.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::frame::VideoFormat;
use crate::output::Target;
use crate::ports::{Delivery, Sink};
use crate::results::{Match, RunRecord, Summary, Track};

/// Column names, in the order of [`Row`]'s fields.
///
/// The header may have one more column behind them, [`PICTURE`].
pub(super) const HEADER: &str = "frame,pts_ns,kind,name_or_id,state,x,y,w,h,score,scale,angle,cx,cy,template";

/// The last column, where frames are pictures in files.
const PICTURE: &str = ",picture";

/// Rows of matches and tracks; a frame without either has none.
pub(super) struct Csv {
    target: Target,
    rows: Vec<u8>,
    has_pictures: bool,
}

/// One row. Columns that a match or a track does not have are empty. [`crate::results`] explains the values.
#[derive(Serialize)]
struct Row<'a, Name, Pixels> {
    frame: u64,
    pts_ns: Option<u64>,
    /// `match` or `track`.
    kind: &'static str,
    /// A match's template, a track's name or else its number.
    name_or_id: Name,
    state: Option<&'static str>,
    x: Pixels,
    y: Pixels,
    w: Pixels,
    h: Pixels,
    score: f64,
    scale: Option<f64>,
    angle: Option<f64>,
    /// Centre of the box; a match's is interpolated between pixels.
    cx: f64,
    cy: f64,
    /// The template that a track began as a match of.
    template: Option<Cow<'a, str>>,
    /// The picture file that the frame came from; no column where frames are no pictures.
    #[serde(skip_serializing_if = "Option::is_none")]
    picture: Option<Cow<'a, str>>,
}

/// A name that a spreadsheet does not take for a formula: one that begins with `=`, `+`, `-`, `@`, a tab or a
/// carriage return gets an apostrophe in front, as OWASP advises against CSV injection.
pub(super) fn plain(name: &str) -> Cow<'_, str> {
    if name.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{name}").into() } else { name.into() }
}

impl Csv {
    pub(super) fn new(target: Target) -> Self {
        Self { target, rows: Vec::new(), has_pictures: false }
    }

    fn write_header(&mut self) -> Result<()> {
        let picture = if self.has_pictures { PICTURE } else { "" };
        self.target.write(format!("{HEADER}{picture}\n").as_bytes())
    }

    fn failure(&self, error: impl Into<io::Error>) -> Error {
        self.target.failure(&error.into().to_string())
    }
}

impl Sink for Csv {
    fn name(&self) -> &str {
        &self.target.name
    }

    fn files(&self) -> Vec<PathBuf> {
        self.target.files()
    }

    fn begin(&mut self, run: &RunRecord, _: &VideoFormat) -> Result<()> {
        self.has_pictures = run.pictures;
        if self.target.is_empty()? { self.write_header() } else { Ok(()) }
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        let record = delivery.record;
        if record.matches.is_empty() && record.tracks.is_empty() {
            return Ok(());
        }
        if self.target.roll()? {
            self.write_header()?;
        }
        self.rows.clear();
        let picture = || self.has_pictures.then(|| plain(record.picture.as_deref().unwrap_or_default()));
        let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(&mut self.rows);
        let matches = record.matches.iter().try_for_each(|m| {
            let Match { x, y, w, h, score, cx, cy, .. } = *m;
            writer.serialize(Row {
                frame: record.frame,
                pts_ns: record.pts_ns,
                kind: "match",
                name_or_id: plain(&m.template),
                state: None,
                x,
                y,
                w,
                h,
                score,
                scale: Some(m.scale),
                angle: Some(m.angle),
                cx,
                cy,
                template: None,
                picture: picture(),
            })
        });
        let tracks = record.tracks.iter().try_for_each(|t| {
            let Track { x, y, w, h, score, .. } = *t;
            writer.serialize(Row {
                frame: record.frame,
                pts_ns: record.pts_ns,
                kind: "track",
                name_or_id: t.name.as_deref().map_or_else(|| t.id.to_string().into(), plain),
                state: Some(t.state.name()),
                x,
                y,
                w,
                h,
                score,
                scale: None,
                angle: None,
                cx: x + w / 2.0,
                cy: y + h / 2.0,
                template: t.template.as_deref().map(plain),
                picture: picture(),
            })
        });
        let flushed = writer.flush();
        drop(writer);
        matches.and(tracks).map_err(|error| self.failure(error))?;
        flushed.map_err(|error| self.failure(error))?;
        self.target.write(&self.rows)
    }

    fn finish(&mut self, _: &Summary) -> Result<()> {
        self.target.finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::output::samples;

    #[test]
    fn names_that_would_be_formulas_are_text() {
        for (name, expected) in [
            ("=1+1", "'=1+1"),
            ("+a", "'+a"),
            ("-a", "'-a"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\t=1", "'\t=1"),
            ("a=1", "a=1"),
            ("'=1", "'=1"),
            ("", ""),
        ] {
            assert_eq!(super::plain(name), expected);
        }
    }

    #[test]
    fn matches_and_tracks_are_rows_under_one_header() {
        assert_eq!(
            samples::written(".csv", &["1,2,3,4@0"]).lines().collect::<Vec<_>>(),
            [
                "frame,pts_ns,kind,name_or_id,state,x,y,w,h,score,scale,angle,cx,cy,template",
                "0,0,match,logo,,1,2,4,3,0.875,1.1,-5.0,3.004,3.5,",
                r#"0,0,match,"a, ""b""",,1,2,4,3,0.875,1.1,-5.0,3.004,3.5,"#,
                "0,0,track,1,tracked,-0.5,2.25,4.0,3.0,0.5,,,1.5,3.75,",
                "0,0,track,2,lost,-0.5,2.25,4.0,3.0,0.5,,,1.5,3.75,",
                "0,0,track,3,uncertain,-0.5,2.25,4.0,3.0,0.5,,,1.5,3.75,",
            ]
        );
    }

    #[test]
    fn a_row_has_the_headers_columns() {
        let text = samples::written(".csv", &[]);
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let names: Vec<String> = reader.records().take(2).map(|row| row.unwrap()[3].to_owned()).collect();
        assert_eq!(names, ["logo", "a, \"b\""], "names survive their quotes");
    }
}
