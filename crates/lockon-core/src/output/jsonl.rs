//! JSON Lines: one compact object a line, `"type"` first. [`crate::results`] is the schema.

use std::io::{self, Write};
use std::path::PathBuf;

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

use crate::error::Result;
use crate::frame::VideoFormat;
use crate::output::Target;
use crate::ports::{Delivery, Sink};
use crate::results::{Event, Record, RunRecord, Summary};
use crate::text;

/// A `run` record, a `frame` record for each frame with events between them, a `summary` record.
pub(super) struct JsonLines {
    target: Target,
    has_begun: bool,
    line: Vec<u8>,
    /// The first line, for the next files of a run that lasts.
    run: Vec<u8>,
}

/// Writes a record as a compact line. What a terminal would obey is escaped, since names in it come from
/// anywhere, and standard output may be a terminal.
///
/// # Errors
/// The writer's.
pub fn write_line(mut line: impl Write, record: &impl Serialize) -> io::Result<()> {
    record.serialize(&mut Serializer::with_formatter(&mut line, Harmless))?;
    line.write_all(b"\n")
}

/// JSON without space between its parts, which escapes more than it has to: programs read the same.
struct Harmless;

impl Formatter for Harmless {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, text: &str) -> io::Result<()> {
        let mut rest = text;
        while let Some(at) = rest.find(text::is_obeyed) {
            writer.write_all(&rest.as_bytes()[..at])?;
            let obeyed = rest[at..].chars().next().expect("something was found here");
            let mut units = [0; 2];
            for unit in obeyed.encode_utf16(&mut units) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = &rest[at + obeyed.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }
}

impl JsonLines {
    pub(super) fn new(target: Target) -> Self {
        Self { target, has_begun: false, line: Vec::new(), run: Vec::new() }
    }

    fn write(&mut self, record: &impl Serialize) -> Result<()> {
        self.line.clear();
        write_line(&mut self.line, record).map_err(|error| self.target.failure(&error.to_string()))?;
        self.target.write(&self.line)
    }
}

impl Sink for JsonLines {
    fn name(&self) -> &str {
        &self.target.name
    }

    fn files(&self) -> Vec<PathBuf> {
        self.target.files()
    }

    fn begin(&mut self, run: &RunRecord, _: &VideoFormat) -> Result<()> {
        self.has_begun = true;
        self.write(&Record::Run(run))?;
        self.run.clone_from(&self.line);
        Ok(())
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        if self.target.roll()? {
            self.target.write(&self.run)?;
        }
        self.write(&Record::Frame(delivery.record))
    }

    fn note(&mut self, event: &Event) -> Result<()> {
        self.write(event)
    }

    fn finish(&mut self, summary: &Summary) -> Result<()> {
        // A summary belongs to a run: without its first line, or after a failure, the file stays as it is.
        if self.has_begun && !self.target.has_failed {
            self.write(&Record::Summary(summary))?;
        }
        self.target.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::output::samples;

    #[test]
    fn every_line_is_an_object_whose_type_comes_first() {
        let text = samples::written(".jsonl", &["1,2,3,4@0"]);
        let types = ["run", "frame", "frame", "summary"];
        assert_eq!(text.lines().count(), types.len());
        for (line, kind) in text.lines().zip(types) {
            assert!(line.starts_with(&format!("{{\"type\":\"{kind}\",\"")), "{line}");
            serde_json::from_str::<serde_json::Value>(line).unwrap();
        }
        assert!(text.ends_with("}\n"));
    }

    #[test]
    fn a_frame_is_written_as_the_schema_says() {
        let text = samples::written(".jsonl", &[]);
        assert_eq!(
            text.lines().nth(2).unwrap(),
            r#"{"type":"frame","frame":2,"pts_ns":null,"latency_us":0,"matches":[],"tracks":[],"threshold":{"foreground":0.25}}"#
        );
        let first = text.lines().nth(1).unwrap();
        for part in [
            r#""pts_ns":0,"latency_us":7,"matches":[{"template":"logo","x":1,"y":2,"w":4,"h":3,"score":0.875,"#,
            r#""scale":1.1,"angle":-5.0,"cx":3.004,"cy":3.5},{"template":"a, \"b\"","#,
            r#""tracks":[{"id":1,"state":"tracked","x":-0.5,"y":2.25,"w":4.0,"h":3.0,"score":0.5,"#,
        ] {
            assert!(first.contains(part), "{part} is not in {first}");
        }
    }

    #[test]
    fn what_a_terminal_would_obey_is_escaped_and_read_as_the_same() {
        let name = "a\u{9b}31m\u{1b}[0m\u{85}\u{7f}\u{202e}b\n\"\\ü\u{1f697}";
        let mut line = Vec::new();
        write_line(&mut line, &[name]).unwrap();
        let line = String::from_utf8(line).unwrap();
        assert_eq!(line, "[\"a\\u009b31m\\u001b[0m\\u0085\\u007f\\u202eb\\n\\\"\\\\ü\u{1f697}\"]\n");
        assert_eq!(serde_json::from_str::<[String; 1]>(&line).unwrap(), [name]);
        // Every other byte is written as by `serde_json`.
        let record =
            (0.1_f64, f64::NAN, "text", [1_u8; 2], None::<u8>, serde_json::json!({"k": [], "l": {}}));
        let mut line = Vec::new();
        write_line(&mut line, &record).unwrap();
        assert_eq!(line, (serde_json::to_string(&record).unwrap() + "\n").into_bytes());
    }

    #[test]
    fn each_line_is_one_write() {
        #[derive(Clone, Default)]
        struct Calls(Arc<Mutex<Vec<Vec<u8>>>>);
        impl Write for Calls {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().unwrap().push(bytes.to_vec());
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        impl crate::output::Lines for Calls {}
        let calls = Calls::default();
        let target = Target { name: "calls".into(), writer: Box::new(calls.clone()), has_failed: false };
        samples::play(&mut JsonLines::new(target), &[]).unwrap();
        let calls = calls.0.lock().unwrap();
        assert_eq!(calls.len(), 4);
        for call in calls.iter() {
            assert_eq!(call.iter().position(|&b| b == b'\n'), Some(call.len() - 1));
        }
    }

    #[test]
    fn a_run_that_never_began_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("empty.jsonl");
        crate::output::open(path.to_str().unwrap()).unwrap().finish(&Summary::default()).unwrap();
        assert!(!path.exists());
    }
}
