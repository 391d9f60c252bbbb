//! Lists of videos, and checks for options that several runs cannot share.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::request::{Request, has_words, stem};
use lockon_core::error::{Error, Result};
use lockon_core::files;
use lockon_core::text;
use lockon_gst::source::Input;

/// Reads a list of videos: a line each, an INPUT as it is typed, or a job as `--print-job=json` writes it;
/// options that a line does not have are those of `base`. Empty lines, and lines that begin with `#`, are
/// ignored. `-` is standard input.
///
/// # Errors
/// `File` if it cannot be read; `Usage` if a line is wrong, with its number.
pub fn read_list(path: &Path, base: &Request) -> Result<Vec<Request>> {
    let text = if path == Path::new("-") {
        files::whole_text_of(std::io::stdin()).map_err(Error::file("read", path))?
    } else {
        files::read_text(path)?
    };
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let read = |(number, line): (usize, &str)| {
        let request = match line.strip_prefix('{') {
            Some(_) => Request::from_json_over(line, base),
            None => Request::new(line).map(|typed| Request { input: typed.input, ..base.clone() }),
        };
        request.map_err(|error| {
            let reason = error.to_string();
            Error::Usage(format!("{}: line {number}: {}", path.display(), text::shortened(&reason)))
        })
    };
    lines.map(read).collect()
}

/// Refuses requests that several runs cannot do at the same time: write the same file, all write to standard
/// output, read a file that another writes, let the user draw a box on the screen.
///
/// # Errors
/// `Usage`, which names both videos and the remedy.
pub fn check(runs: &[(String, Request)]) -> Result<()> {
    let usage = |text: String| Err(Error::Usage(text));
    if runs.iter().any(|(_, request)| request.pick) {
        return usage(
            "--pick is for one video, not for several: use --track, or a job for each video in --inputs"
                .into(),
        );
    }
    let [(first, one), _, ..] = runs else { return Ok(()) };
    if runs.iter().filter(|(_, request)| request.results.iter().any(|path| path == "-")).count() > 1 {
        return usage("--results - is for one video: use --results '{stem}.jsonl'".into());
    }
    if runs.iter().filter(|(_, request)| request.output.iter().any(|path| files::is_stdout(path))).count() > 1
    {
        return usage("-o - is for one video: use -o '{stem}.mkv'".into());
    }
    if let Some((other, _)) = runs.iter().find(|(_, request)| request.metrics != one.metrics) {
        return usage(format!("--metrics of {first} and {other} are not the same: one address serves all"));
    }
    let from_stdin = |(_, request): &&(String, Request)| matches!(request.parsed_input(), Ok(Input::Stdin));
    if let [(first, _), (other, _), ..] = runs.iter().filter(from_stdin).collect::<Vec<_>>()[..] {
        return usage(format!("{first} and {other} are both read from standard input, which has one video"));
    }
    let word = |one: &str, other: &str| {
        // If two videos have the same name, only the number differs.
        if stem(one) == stem(other) { "{index}" } else { "{stem} or {index}" }
    };
    let mut writers: HashMap<PathBuf, &str> = HashMap::new();
    for (name, request) in runs {
        for path in request.written_paths() {
            if let Some(other) = writers.insert(path.clone(), name) {
                let (word, example) = match word(other, name) {
                    _ if path.to_str().is_some_and(has_words) => ("another name", "{stem}.jsonl"),
                    word @ "{index}" => (word, "{stem}-{index}.jsonl"),
                    word => (word, "{stem}.jsonl"),
                };
                return usage(format!(
                    "{other} and {name} would both be written to {}: put {word} into it, as in '{example}'",
                    text::path(&path)
                ));
            }
        }
    }
    let mut sinks: HashMap<&str, &str> = HashMap::new();
    for (name, text) in
        runs.iter().flat_map(|(name, request)| request.sink.iter().map(move |sink| (name, sink)))
    {
        let is_same = sinks.insert(text, name);
        if let Some(other) = is_same.filter(|_| text.contains("location=") || text.starts_with('@')) {
            return usage(format!(
                "--sink {text} of {other} and {name} would write the same file: put {} into it, in the text itself",
                word(other, name)
            ));
        }
    }
    let mut topics: HashMap<String, &str> = HashMap::new();
    for (name, request) in runs {
        for topic in request.topics()? {
            if let Some(other) = topics.insert(topic.clone(), name) {
                return usage(format!(
                    "{other} and {name} would both be reported at {topic}: put {} into it",
                    word(other, name)
                ));
            }
        }
    }
    let specs = runs.iter().map(|(_, request)| Ok(request.input_files(&request.parsed_input()?)));
    let inputs = specs.collect::<Result<Vec<_>>>()?.concat();
    let outputs: Vec<_> = runs.iter().flat_map(|(_, request)| request.output_files()).collect();
    files::check_distinct(&inputs, &outputs)?;
    runs.iter().try_for_each(|(_, request)| request.check_numbered(&inputs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_input_or_a_job_over_what_was_typed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        std::fs::write(&path, "a b.mp4\n\n# not this\n{\"input\":\"c.mp4\",\"track\":[\"1,2,30,40\"]}\n")
            .unwrap();
        let mut base = Request { min_score: 0.5, ..Request::default() };
        base.track = vec!["5,6,70,80".parse().unwrap()];
        let read = read_list(&path, &base).unwrap();
        let inputs: Vec<_> = read.iter().map(|request| request.parsed_input().unwrap().to_string()).collect();
        assert_eq!(inputs, ["a b.mp4", "c.mp4"]);
        assert_eq!((&read[0].track, read[0].min_score), (&base.track, 0.5));
        assert_eq!((read[1].track[0].to_string().as_str(), read[1].min_score), ("1,2,30,40@0", 0.5));
        // Options in a job always count, even when they equal the default.
        let default = Request::default().min_score;
        std::fs::write(&path, format!("{{\"input\":\"a.mp4\",\"min-score\":{default},\"track\":[]}}\n"))
            .unwrap();
        let read = read_list(&path, &base).unwrap();
        assert_eq!((read[0].min_score, read[0].track.len()), (default, 0));
        std::fs::write(&path, "a.mp4\n{\"wobble\":1}\n").unwrap();
        let error = read_list(&path, &base).unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("wobble"), "{error}");
        assert!(read_list(&folder.path().join("none"), &base).is_err());
    }

    #[test]
    fn what_two_videos_would_both_write_is_refused_with_both_names() {
        let run = |name: &str, results: &str| {
            let mut request = Request::new(format!("{name}.mp4")).unwrap();
            request.results = vec![results.into()];
            (name.to_owned(), request)
        };
        let said = |runs: &[(String, Request)]| check(runs).unwrap_err().to_string();
        let same = said(&[run("a", "x.jsonl"), run("b", "y.jsonl"), run("c", "x.jsonl")]);
        assert!(
            same.starts_with("a and c would both be written to x.jsonl") && same.contains("{stem}"),
            "{same}"
        );
        let named = said(&[run("a.mp4", "out/a.jsonl"), run("a.mp4 (2)", "out/a.jsonl")]);
        assert!(named.ends_with("put {index} into it, as in '{stem}-{index}.jsonl'"), "{named}");
        assert!(said(&[run("a", "-"), run("b", "-")]).contains("--results - is for one video"));
        let both = said(&[run("a", "x.jsonl"), run("b", "./x.jsonl")]);
        assert!(both.contains("x.jsonl is given twice"), "{both}");
        let sink = |name: &str, sink: &str| {
            let (name, request) = run(name, &format!("{name}.jsonl"));
            (name, Request { sink: vec![sink.into()], ..request })
        };
        let same = said(&[sink("a", "filesink location=x"), sink("b", "filesink location=x")]);
        assert!(same.contains("of a and b would write the same file"), "{same}");
        check(&[sink("a", "fakesink"), sink("b", "fakesink")]).unwrap();
        check(&[sink("a", "filesink location=x"), sink("b", "filesink location=y")]).unwrap();
        let (name, request) = run("a", "x.jsonl");
        let picks = check(&[(name, Request { pick: true, ..request })]).unwrap_err().to_string();
        assert!(picks.contains("--pick is for one video"), "{picks}");
        let stdin = |name: &str| {
            let (name, request) = run(name, &format!("{name}.jsonl"));
            (name, Request { input: Request::new("-").unwrap().input, ..request })
        };
        assert!(said(&[stdin("a"), stdin("b")]).contains("a and b are both read from standard input"));
        check(&[stdin("a"), run("b", "b.jsonl")]).unwrap();
        let (name, request) = run("still-007.png", "n.jsonl");
        let template = Request { template: vec![name.clone()], ..request };
        let (name, request) = run("b", "b.jsonl");
        let numbered = Request { output: vec!["still-%03d.png".into()], ..request };
        let both = said(&[("a".into(), template), (name, numbered)]);
        assert!(both.contains("still-007.png is both input and output"), "{both}");
        check(&[run("a", "-")]).unwrap();
        check(&[run("a", "x.jsonl"), run("b", "-")]).unwrap();
    }
}
