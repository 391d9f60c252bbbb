//! Checks whether the results of a run are there already, so that an interrupted batch can continue.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::request::Request;
use crate::setup;
use lockon_core::error::{Error, Result};
use lockon_core::output::Format;
use lockon_gst::sink;

/// How complete the results of an earlier run are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completion {
    /// No results exist.
    None,
    /// A stopped or failed run of the same request left a part: these files.
    Part(Vec<PathBuf>),
    /// All results are complete.
    Done,
    /// The files belong to another request, or are no results of lockon.
    Other,
}

/// Returns how far a run has come, by its JSON Lines: they end with a summary when all other outputs are
/// complete, and their first line has the digest of the request ([`Request::digest`]).
///
/// # Errors
/// `Usage` if it writes no JSON Lines to a file; `File` if a file cannot be read; those of
/// [`setup::load_templates`].
pub fn completion(request: &Request) -> Result<Completion> {
    let is_lines =
        |path: &&String| *path != "-" && Format::of(path).is_ok_and(|format| format == Format::JsonLines);
    let Some(lines) = request.results.iter().find(is_lines) else {
        return Err(Error::Usage(
            "--skip-done needs --results FILE.jsonl, whose last line shows whether a run is complete".into(),
        ));
    };
    let lines = Path::new(lines);
    let file = match lines.metadata() {
        // A pipe keeps nothing, and opening one waits for its writer.
        Ok(found) if !found.is_file() => return Ok(Completion::None),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Completion::None),
        found => found.and_then(|_| File::open(lines)).map_err(Error::file("read", lines))?,
    };
    let (first, last) = ends(&file).map_err(Error::file("read", lines))?;
    if first.is_null() && file.metadata().is_ok_and(|file| file.len() == 0) {
        // The run that wrote it was stopped before the first frame: it contains nothing to lose. The other
        // files may be anyone's.
        return Ok(Completion::Part(vec![lines.into()]));
    }
    let asked = request.digest(&setup::load_templates(&request.template)?);
    if first["type"] != "run" || first["command"]["job"] != asked {
        return Ok(Completion::Other);
    }
    let is_complete = last["type"] == "summary" && last["interrupted"] == false && last["error"].is_null();
    let (outputs, written) = (request.output_files(), &first["command"]["outputs"]);
    let is_foreign = |path: &Path| is_complete && path.exists() && !may_be_whole(path);
    let is_there =
        |path: &PathBuf| sink::written(path).first().is_some_and(|path| path.exists() && !is_foreign(path));
    if is_complete && outputs.iter().all(is_there) {
        return Ok(Completion::Done);
    }
    let has_written = |path: &PathBuf| {
        let is_named = |name: &Value| name.as_str().is_some_and(|name| Path::new(name) == path);
        path == lines || written.as_array().is_some_and(|names| names.iter().any(is_named))
    };
    let files = outputs.into_iter().filter(has_written).flat_map(|path| sink::written(&path));
    Ok(Completion::Part(files.filter(|path| !is_foreign(path)).collect()))
}

/// False for a file that cannot be a whole output, by its name's format: it is empty, or begins with other
/// bytes, so another program wrote it. Files of other formats may always be whole.
fn may_be_whole(path: &Path) -> bool {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(64).read_to_end(&mut bytes));
    // Pipes and devices keep nothing, and a file that cannot be read is reported when it is written.
    if read.is_err() || !path.is_file() {
        return true;
    }
    let extension =
        path.extension().map(|end| end.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
    match &*extension {
        "mkv" => bytes.starts_with(&[0x1a, 0x45, 0xdf, 0xa3]),
        "mp4" => bytes.get(4..8) == Some(b"ftyp"),
        "json" => text.starts_with(['{', '[']),
        // There are no lines of intervals if nothing was found.
        "jsonl" => bytes.is_empty() || text.starts_with('{'),
        "html" => text.starts_with("<!doctype html"),
        "xml" => text.starts_with("<?xml"),
        "csv" => !bytes.is_empty(),
        // MOT files have no header, and may be empty.
        _ => true,
    }
}

/// The first record of a file and the last one, if that has its line break; null where there is none.
fn ends(mut file: &File) -> std::io::Result<(Value, Value)> {
    /// A summary of very many tracks and templates.
    const LONGEST: u64 = 16 << 20;
    let parsed = |line: &[u8]| serde_json::from_slice(line).unwrap_or(Value::Null);
    let mut first = Vec::new();
    BufReader::new(file).take(LONGEST).read_until(b'\n', &mut first)?;
    let length = file.metadata()?.len();
    let mut size = 4096;
    loop {
        let start = length.saturating_sub(size);
        file.seek(SeekFrom::Start(start))?;
        let mut end = Vec::new();
        file.take(length - start).read_to_end(&mut end)?;
        let Some((b'\n', line)) = end.split_last() else { return Ok((parsed(&first), Value::Null)) };
        let begin = line.iter().rposition(|&byte| byte == b'\n').map(|at| at + 1);
        match begin {
            Some(begin) => return Ok((parsed(&first), parsed(&line[begin..]))),
            None if start == 0 => return Ok((parsed(&first), parsed(line))),
            None if size > LONGEST => return Ok((parsed(&first), Value::Null)),
            None => size *= 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use lockon_core::config::View;

    #[test]
    fn results_are_done_if_they_end_with_the_summary_of_a_whole_run_of_the_same_request() {
        let folder = tempfile::tempdir().unwrap();
        let [lines, video] = ["a.jsonl", "a.mkv"].map(|name| folder.path().join(name));
        let mut request = Request::new("a.mp4").unwrap();
        request.track.push("1,2,30,40".parse().unwrap());
        assert!(completion(&request).unwrap_err().to_string().contains("needs --results FILE.jsonl"));
        request.results = vec![lines.to_str().unwrap().into()];
        assert_eq!(completion(&request).unwrap(), Completion::None);
        let run_of = |request: &Request| {
            let command = json!({ "job": request.digest(&[]), "outputs": request.output_files() });
            format!("{}\n", json!({ "type": "run", "command": command }))
        };
        let part = || Completion::Part(vec![lines.clone()]);
        let run = run_of(&request);
        // Longer than the part that is read first.
        let frame = format!("{{\"type\":\"frame\",\"n\":\"{}\"}}\n", "x".repeat(9000));
        let summary = "{\"type\":\"summary\",\"interrupted\":false,\"frames\":1}\n";
        let whole_of = |request: &Request| format!("{}{frame}{summary}", run_of(request));
        let whole = whole_of(&request);
        let stopped = whole.replace("false", "true");
        let failed = whole.replace("\"frames\":1", "\"error\":\"no\"");
        let torn = whole.trim_end();
        let long =
            format!("{run}{}", summary.replace("\"frames\":1", &format!("\"n\":\"{}\"", "x".repeat(9000))));
        for (text, expected) in [
            (&*whole, Completion::Done),
            (&long, Completion::Done),
            (&stopped, part()),
            (&failed, part()),
            (torn, part()),
            (&format!("{run}{frame}"), part()),
            ("no JSON\n", Completion::Other),
            ("{\"type\":\"run\"}\n", Completion::Other),
        ] {
            std::fs::write(&lines, text).unwrap();
            assert_eq!(completion(&request).unwrap(), expected, "{text:.200}");
        }
        // An empty file belongs to no request, and says nothing about the others.
        std::fs::write(&lines, "").unwrap();
        let with_video = Request { output: vec![video.clone()], ..request.clone() };
        assert_eq!(completion(&with_video).unwrap(), part());
        #[cfg(unix)]
        {
            // A pipe keeps nothing, and is not opened: that would wait for a writer.
            let pipe = folder.path().join("pipe.jsonl");
            assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
            let piped = Request { results: vec![pipe.to_str().unwrap().into()], ..request.clone() };
            assert_eq!(completion(&piped).unwrap(), Completion::None);
        }
        std::fs::write(&lines, &whole).unwrap();
        let other = Request { min_score: 0.5, ..request.clone() };
        assert_eq!(completion(&other).unwrap(), Completion::Other);
        // The number of threads and the depth change nothing.
        let same = Request { threads: Some(3), depth: Some(7), ..request.clone() };
        assert_eq!(completion(&same).unwrap(), Completion::Done);
        // Files that the run did not write do not belong to it.
        request.output = vec![video.clone()];
        assert_eq!(completion(&request).unwrap(), part());
        std::fs::write(&lines, whole_of(&request).replace("false", "true")).unwrap();
        let both = Completion::Part(vec![video.clone(), lines.clone()]);
        assert_eq!(completion(&request).unwrap(), both);
        let masked = Request { view: Some(View::Split), ..request.clone() };
        assert_eq!(completion(&masked).unwrap(), Completion::Other, "the picture would be another one");
        std::fs::write(&lines, whole_of(&request)).unwrap();
        std::fs::write(video, [0x1a, 0x45, 0xdf, 0xa3, 1]).unwrap();
        assert_eq!(completion(&request).unwrap(), Completion::Done);
        // A file of another program is neither a complete output nor a part that may be replaced.
        let others =
            [("a.mkv", ""), ("a.mkv", "FOREIGN"), ("a.mp4", "FOREIGN"), ("a.csv", ""), ("a.html", "mine")];
        for (name, text) in others.into_iter().chain([("a.cvat.xml", "mine"), ("a.coco.json", "mine")]) {
            let foreign = folder.path().join(name);
            let path = foreign.to_str().unwrap().to_owned();
            let (output, results) = match name {
                "a.mkv" | "a.mp4" => (vec![foreign.clone()], vec![lines.to_str().unwrap().into()]),
                _ => (Vec::new(), vec![lines.to_str().unwrap().into(), path]),
            };
            let request = Request { output, results, ..request.clone() };
            std::fs::write(&lines, whole_of(&request)).unwrap();
            std::fs::write(&foreign, text).unwrap();
            assert_eq!(completion(&request).unwrap(), part(), "{name} {text}");
        }
    }
}
