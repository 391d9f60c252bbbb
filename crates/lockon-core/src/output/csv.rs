//! CSV after RFC 4180: a header, then a row for every match, every track, every object and every crossing of
//! a line of every frame.
//! Names that a spreadsheet would calculate have an apostrophe in front.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::frame::VideoFormat;
use crate::output::Target;
use crate::ports::{Delivery, Sink};
use crate::results::{Match, Object, RunRecord, Summary, Track};

/// Column names, in the order of [`Row`]'s fields.
///
/// The header may have more columns behind them: [`OBJECT`] and [`PICTURE`].
pub(super) const HEADER: &str = "frame,pts_ns,kind,name_or_id,state,x,y,w,h,score,scale,angle,cx,cy,template";

/// The columns of objects alone, where objects are reported, in the order of [`ObjectColumns`]' fields.
const OBJECT: &str = ",area,length,width,perimeter,holes,min_luma,mean_luma,max_luma,touches_border";

/// The last column, where frames are pictures in files.
const PICTURE: &str = ",picture";

/// Rows of matches, tracks and objects; a frame without any has none.
pub(super) struct Csv {
    target: Target,
    rows: Vec<u8>,
    /// The columns of the file that is written, which may be one that is continued.
    columns: Columns,
    /// The columns of this run, with which a new file begins.
    of_run: Columns,
}

/// Columns that a file may lack.
#[derive(Debug, Clone, Copy, Default)]
struct Columns {
    objects: bool,
    pictures: bool,
}

/// One row. Columns that do not apply are empty. [`crate::results`] explains the values.
#[derive(Serialize)]
struct Row<'a, Name, Pixels> {
    frame: u64,
    pts_ns: Option<u64>,
    /// `match`, `track`, `object` or `crossing`.
    kind: &'static str,
    /// A match's template, a track's name or else its number, an object's number in the frame, from 1.
    name_or_id: Name,
    /// A track's state, the direction of a crossing.
    state: Option<&'static str>,
    x: Pixels,
    y: Pixels,
    w: Pixels,
    h: Pixels,
    score: Option<f64>,
    scale: Option<f64>,
    angle: Option<f64>,
    /// Centre of the box; a match's is interpolated between pixels, an object's is its centre of mass.
    cx: f64,
    cy: f64,
    /// The template that a track began as a match of; the line that was crossed.
    template: Option<Cow<'a, str>>,
    /// No columns where objects are not reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<ObjectColumns>,
    /// The picture file that the frame came from; no column where frames are no pictures.
    #[serde(skip_serializing_if = "Option::is_none")]
    picture: Option<Cow<'a, str>>,
}

/// The columns of an object alone.
#[derive(Serialize, Default)]
struct ObjectColumns {
    area: Option<usize>,
    length: Option<f64>,
    width: Option<f64>,
    perimeter: Option<f64>,
    holes: Option<usize>,
    min_luma: Option<u8>,
    mean_luma: Option<f64>,
    max_luma: Option<u8>,
    touches_border: Option<bool>,
}

impl ObjectColumns {
    fn of(object: &Object) -> Self {
        let Object { area, length, width, perimeter, holes, .. } = *object;
        let Object { min_luma, mean_luma, max_luma, touches_border, .. } = *object;
        Self {
            area: Some(area),
            length: Some(length),
            width: Some(width),
            perimeter: Some(perimeter),
            holes: Some(holes),
            min_luma: Some(min_luma),
            mean_luma: Some(mean_luma),
            max_luma: Some(max_luma),
            touches_border: Some(touches_border),
        }
    }
}

/// A name that a spreadsheet does not take for a formula: one that begins with `=`, `+`, `-`, `@`, a tab or a
/// carriage return gets an apostrophe in front, as OWASP advises against CSV injection.
pub(super) fn plain(name: &str) -> Cow<'_, str> {
    if name.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{name}").into() } else { name.into() }
}

impl Csv {
    pub(super) fn new(target: Target) -> Self {
        Self { target, rows: Vec::new(), columns: Columns::default(), of_run: Columns::default() }
    }

    fn write_header(&mut self) -> Result<()> {
        let object = if self.columns.objects { OBJECT } else { "" };
        let picture = if self.columns.pictures { PICTURE } else { "" };
        self.target.write(format!("{HEADER}{object}{picture}\n").as_bytes())
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
        self.of_run =
            Columns { objects: run.objects.is_some_and(|spec| spec.reports), pictures: run.pictures };
        self.columns = self.of_run;
        if self.target.is_empty()? {
            return self.write_header();
        }
        // Rows have the columns of the file that they continue.
        let header = self.target.first_line()?;
        self.columns =
            Columns { objects: header.contains(OBJECT), pictures: header.trim_end().ends_with(PICTURE) };
        if self.of_run.objects && !self.columns.objects {
            tracing::warn!(
                "{}: the file that is continued has no columns for area, length and the like of objects: give another \
                 name to have them",
                self.target.name
            );
        }
        Ok(())
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        let record = delivery.record;
        let objects = record.objects.as_deref().unwrap_or_default();
        if record.matches.is_empty() && record.tracks.is_empty() && objects.is_empty() {
            return Ok(());
        }
        if self.target.roll()? {
            self.columns = self.of_run;
            self.write_header()?;
        }
        self.rows.clear();
        let picture = || self.columns.pictures.then(|| plain(record.picture.as_deref().unwrap_or_default()));
        let no_object = || self.columns.objects.then(ObjectColumns::default);
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
                score: Some(score),
                scale: Some(m.scale),
                angle: Some(m.angle),
                cx,
                cy,
                template: None,
                object: no_object(),
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
                score: Some(score),
                scale: None,
                angle: None,
                cx: x + w / 2.0,
                cy: y + h / 2.0,
                template: t.template.as_deref().map(plain),
                object: no_object(),
                picture: picture(),
            })
        });
        let objects = (1..).zip(objects).try_for_each(|(number, o): (usize, _)| {
            let Object { x, y, w, h, cx, cy, .. } = *o;
            writer.serialize(Row {
                frame: record.frame,
                pts_ns: record.pts_ns,
                kind: "object",
                name_or_id: number,
                state: None,
                x,
                y,
                w,
                h,
                score: None,
                scale: None,
                angle: Some(o.angle),
                cx,
                cy,
                template: None,
                object: self.columns.objects.then(|| ObjectColumns::of(o)),
                picture: picture(),
            })
        });
        // A row has the track's name or number and its box, and the line behind it.
        let crossings = record.crossings.iter().try_for_each(|crossing| {
            let Some(t) = record.tracks.iter().find(|track| track.id == crossing.id) else { return Ok(()) };
            let Track { x, y, w, h, .. } = *t;
            writer.serialize(Row {
                frame: record.frame,
                pts_ns: record.pts_ns,
                kind: "crossing",
                name_or_id: t.name.as_deref().map_or_else(|| t.id.to_string().into(), plain),
                state: Some(crossing.direction.name()),
                x,
                y,
                w,
                h,
                score: None,
                scale: None,
                angle: None,
                cx: x + w / 2.0,
                cy: y + h / 2.0,
                template: Some(plain(&crossing.line)),
                object: no_object(),
                picture: picture(),
            })
        });
        let flushed = writer.flush();
        drop(writer);
        matches.and(tracks).and(objects).and(crossings).map_err(|error| self.failure(error))?;
        flushed.map_err(|error| self.failure(error))?;
        self.target.write(&self.rows)
    }

    fn finish(&mut self, _: &Summary) -> Result<()> {
        self.target.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::config::ObjectSpec;
    use crate::output::{Rolling, open_rolling, samples};

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
    fn objects_have_columns_of_their_own_which_other_rows_leave_empty() {
        let text = samples::written_with_objects(".csv", ObjectSpec::default());
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "frame,pts_ns,kind,name_or_id,state,x,y,w,h,score,scale,angle,cx,cy,template,\
                 area,length,width,perimeter,holes,min_luma,mean_luma,max_luma,touches_border",
                "0,0,match,logo,,1,2,4,3,0.875,1.1,-5.0,3.004,3.5,,,,,,,,,,",
                "0,0,track,1,tracked,-0.5,2.25,4.0,3.0,0.5,,,1.5,3.75,,,,,,,,,,",
                "0,0,object,1,,0,0,3,3,,,0.0,1.5,1.5,,8,3.464,3.464,12.948,1,10,20.0,30,true",
                "0,0,object,2,,4,2,1,1,,,0.0,4.5,2.5,,1,0.0,0.0,2.682,0,50,50.0,50,true",
            ]
        );
    }

    #[test]
    fn a_file_that_is_continued_keeps_its_columns() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let play = |has_objects: bool| {
            let rolling = Rolling { append: true, ..Rolling::default() };
            let mut sink = open_rolling(path.to_str().unwrap(), rolling).unwrap();
            samples::play_with_objects(&mut *sink, has_objects.then(ObjectSpec::default)).unwrap();
        };
        for begins_with_objects in [true, false] {
            play(begins_with_objects);
            play(!begins_with_objects);
            let text = std::fs::read_to_string(&path).unwrap();
            let columns: BTreeSet<_> = text.lines().map(|line| line.split(',').count()).collect();
            assert_eq!(columns.len(), 1, "{text}");
            assert_eq!(text.lines().count(), 1 + 4 + 4, "{text}");
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_row_has_the_headers_columns() {
        let text = samples::written(".csv", &[]);
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let names: Vec<String> = reader.records().take(2).map(|row| row.unwrap()[3].to_owned()).collect();
        assert_eq!(names, ["logo", "a, \"b\""], "names survive their quotes");
    }
}
