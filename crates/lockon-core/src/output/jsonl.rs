//! JSON Lines: one compact object a line, `"type"` first. [`crate::results`] is the schema.

use std::path::PathBuf;

use serde::Serialize;

use crate::error::Result;
use crate::frame::VideoFormat;
use crate::output::Target;
use crate::ports::{Delivery, Sink};
use crate::results::{Event, Record, RunRecord, Summary};

/// A `run` record, a `frame` record for each frame with events between them, a `summary` record.
pub(super) struct JsonLines {
    target: Target,
    has_begun: bool,
    line: Vec<u8>,
}

impl JsonLines {
    pub(super) fn new(target: Target) -> Self {
        Self { target, has_begun: false, line: Vec::new() }
    }

    fn write(&mut self, record: &impl Serialize) -> Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, record)
            .map_err(|error| self.target.failure(&error.to_string()))?;
        self.line.push(b'\n');
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
        self.write(&Record::Run(run))
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
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
    use std::io::{self, Write};
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
