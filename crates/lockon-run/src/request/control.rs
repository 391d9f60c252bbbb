//! Reads the orders of an earlier run from its results file.

use std::io::{BufRead as _, Read};
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::Request;
use lockon_core::control::Control;
use lockon_core::error::{Error, Result};
use lockon_core::files;
use lockon_core::message::{Message, Setting};
use lockon_core::orders::Repeated;

/// Maximum bytes of a line, which is held in memory. An order may add several templates of millions of
/// pixels, each of up to 11 MB as text.
const MAX_LINE: u64 = if cfg!(test) { 1 << 20 } else { 256 << 20 };

/// The keys that decide the meaning of a line.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    kind: Option<String>,
    order: Option<IgnoredAny>,
    started: Option<IgnoredAny>,
}

/// A line of a results file.
enum Found {
    /// The `run` record, and whether it has the start time.
    Run {
        is_timed: bool,
    },
    Order(Repeated),
    Other,
}

impl Request {
    /// The orders that `--control` repeats: the `control` records of the last run in a results file.
    ///
    /// Where several runs wrote the file (`--append`), a warning says how many, and the orders of the earlier
    /// ones are left out: frames are counted from 0 in each. Equal `run` records with a time are one run,
    /// whose files (`--rotate`) were put together.
    ///
    /// Any JSON writer may have written the file: the order of keys, spaces, line ends, empty lines and a
    /// byte order mark do not matter.
    ///
    /// # Errors
    /// `File` if the file cannot be read; `Usage` with the number of the line if the file is no results file
    /// or a line is longer than 256 MiB or cannot be understood.
    pub fn orders(&self) -> Result<Vec<Repeated>> {
        self.orders_until_stopped(&Control::new())
    }

    /// As [`Self::orders`], for a run that may be stopped while it waits for the writer of a pipe.
    ///
    /// # Errors
    /// As [`Self::orders`]; `Stopped` if `control` was.
    pub(crate) fn orders_until_stopped(&self, control: &Control) -> Result<Vec<Repeated>> {
        let Some(path) = &self.control else { return Ok(Vec::new()) };
        let read =
            files::open_until_stopped(path, control)?.ok_or(Error::Stopped).and_then(|file| read(file, path));
        // If the run was stopped, that is the error to report, not its consequences.
        control.check()?;
        read
    }
}

fn read(from: impl Read, path: &Path) -> Result<Vec<Repeated>> {
    let file = |cause| Error::File { action: "read", path: path.into(), cause };
    let mut reader = files::text_of(from).map_err(file)?;
    let (mut orders, mut runs, mut of_earlier) = (Vec::new(), 0_u64, 0);
    // The `run` record of the last run.
    let mut run = Vec::new();
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        if reader.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut line).map_err(file)? == 0 {
            break;
        }
        let usage = |what: &str| of_file(path, &format!("line {number} {what}"));
        if line.len() as u64 > MAX_LINE {
            return Err(usage(&format!("is longer than {} MiB", MAX_LINE >> 20)));
        }
        let is_whole = line.ends_with(b"\n");
        let text = line.trim_ascii();
        if text.is_empty() {
            continue;
        }
        if runs == 0 {
            let kind = serde_json::from_slice::<Line>(text).ok().and_then(|line| line.kind);
            if kind.as_deref() != Some("run") {
                return Err(usage("is no `run` record: give a results file of an earlier run, JSON Lines"));
            }
        }
        match found(text) {
            Ok(Found::Run { is_timed }) => {
                if !is_timed || run != text {
                    runs += 1;
                    of_earlier += orders.len();
                    orders.clear();
                    run = text.to_vec();
                }
            }
            Ok(Found::Order(order)) => orders.push(order),
            Ok(Found::Other) => {}
            // A run that was killed leaves such a line. It may hold an order, so it is reported.
            Err(_) if !is_whole && !text.ends_with(b"}") => {
                tracing::warn!(
                    "--control {}: line {number}, the last one, is cut off: ignored",
                    path.display()
                );
            }
            Err(what) => return Err(usage(&what)),
        }
    }
    if runs == 0 {
        return Err(of_file(path, "the file is empty"));
    }
    if runs > 1 {
        tracing::warn!(
            "--control {}: {runs} runs are in this file: the orders of the last one are repeated ({}), those of \
             the earlier ones are ignored ({of_earlier})",
            path.display(),
            orders.len()
        );
    }
    Ok(orders)
}

/// The error of a file of orders.
fn of_file(path: &Path, what: &str) -> Error {
    let file = Setting::of("control", &path.display());
    Error::Settings(Message::new("{}: ", [file]).followed_by(what))
}

/// Reads a line of a results file. The error describes the line.
fn found(text: &[u8]) -> std::result::Result<Found, String> {
    if !(text.starts_with(b"{") && text.ends_with(b"}")) {
        return Err("is no JSON object".into());
    }
    let text = str::from_utf8(text).map_err(|_| "is not UTF-8")?;
    if !may_matter(text) {
        return Ok(Found::Other);
    }
    let line: Line = serde_json::from_str(text).map_err(|error| format!("is no record: {error}"))?;
    match (line.kind.as_deref(), line.order) {
        (Some("control"), _) => {
            let order: Repeated =
                serde_json::from_str(text).map_err(|error| format!("is no order: {error}"))?;
            match unknown_key(text, &order) {
                Some(key) => Err(format!("has a key that this order has not: {key:?}")),
                None => Ok(Found::Order(order)),
            }
        }
        (Some(kind), Some(_)) => Err(format!("has an `order`, but its `type` is {kind:?}, not \"control\"")),
        (None, Some(_)) => Err("has an `order`, but no `type`: \"control\"".into()),
        (Some("run"), None) => Ok(Found::Run { is_timed: line.started.is_some() }),
        (_, None) => Ok(Found::Other),
    }
}

/// A key of a `control` record that says nothing about its order, such as one that is misspelt.
fn unknown_key(text: &str, order: &Repeated) -> Option<String> {
    let given: serde_json::Map<String, Value> = serde_json::from_str(text).ok()?;
    let known = serde_json::to_value(&order.order).ok()?;
    let is_known =
        |key: &str| known.get(key).is_some() || ["type", "frame", "refused", "search"].contains(&key);
    let says_nothing = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    given.into_iter().find(|(key, value)| !is_known(key) && !says_nothing(value)).map(|(key, _)| key)
}

/// False for nearly all lines of a long file, without parsing them. True for every order and `run` record:
/// its type or its `order` is in the line, plain or with an escape.
fn may_matter(text: &str) -> bool {
    ["\"control\"", "\"order\"", "\"run\"", "\\u"].into_iter().any(|mark| text.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockon_core::orders::Order;

    fn orders(text: &str) -> Result<Vec<Repeated>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        std::fs::write(&path, text).unwrap();
        Request { control: Some(path), ..Request::default() }.orders()
    }

    #[test]
    fn orders_are_the_control_records_of_a_results_file() {
        let found = orders(concat!(
            "{\"type\":\"run\",\"version\":\"1\"}\n",
            "{\"type\":\"frame\",\"frame\":0}\n",
            "{\"type\":\"control\",\"frame\":5,\"order\":\"follow\",\"id\":2,\"box\":\"1,2,3,4\",\"at\":3}\n",
            "{\"type\":\"control\",\"frame\":6,\"order\":\"forget\",\"id\":7,\"refused\":\"there is no such track\"}\n",
            "{\"type\":\"control\",\"frame\":8,\"order\":\"clear\"}\n",
        ));
        let repeated =
            |frame, order, refused: Option<&str>| Repeated { frame, order, refused: refused.map(Into::into) };
        assert_eq!(
            found.unwrap(),
            [
                repeated(5, Order::Follow { id: 2, rect: "1,2,3,4".parse().unwrap(), at: Some(3) }, None),
                repeated(6, Order::Forget { id: 7 }, Some("there is no such track")),
                repeated(8, Order::Clear, None),
            ]
        );
    }

    #[test]
    fn a_misspelt_key_is_an_error_and_not_as_if_it_were_missing() {
        for (order, key) in [
            (r#""order":"change","min_scor":0.99"#, Some("min_scor")),
            (r#""order":"follow","id":1,"box":"1,2,3,4","att":3"#, Some("att")),
            (r#""order":"change","min_score":0.99,"roi":null,"remove":[]"#, None),
            (r#""order":"follow","id":1,"box":"1,2,3,4","at":null"#, None),
            (r#""order":"clear","refused":"no""#, None),
        ] {
            let lines = format!("{{\"type\":\"run\"}}\n{{\"type\":\"control\",\"frame\":5,{order}}}\n");
            let error = orders(&lines).err().map(|error| error.to_string());
            let expected = key.map(|key| format!("line 2 has a key that this order has not: {key:?}"));
            assert!(
                error.as_deref().unwrap_or_default().contains(expected.as_deref().unwrap_or_default()),
                "{error:?}"
            );
            assert_eq!(error.is_some(), key.is_some(), "{error:?}");
        }
    }

    #[test]
    fn orders_are_read_whatever_program_wrote_the_json() {
        let lines = [
            r#"{"type": "run", "version": "1"}"#,
            r#"{"frame": 0, "type": "frame", "matches": []}"#,
            r#"{"type": "control", "frame": 5, "order": "follow", "id": 1, "box": "100,80,40,40"}"#,
            "",
            r#"{"order" : "forget" , "refused" : null, "id" : 1 , "frame" : 6 , "type" : "control"}"#,
            "\t{ \"frame\": 7,\t\"typ\\u0065\": \"contro\\u006c\", \"ord\\u0065r\": \"clear\" }\t",
            r#"{"type":"frame","frame":8,"matches":[{"template":"control","order":"clear"}]}"#,
        ];
        let repeated = |frame, order| Repeated { frame, order, refused: None };
        let rect = "100,80,40,40".parse().unwrap();
        let expected = [
            repeated(5, Order::Follow { id: 1, rect, at: None }),
            repeated(6, Order::Forget { id: 1 }),
            repeated(7, Order::Clear),
        ];
        for (mark, end) in [("", "\n"), ("\u{feff}", "\r\n")] {
            let text = format!("{mark}{}", lines.map(|line| format!("{line}{end}")).concat());
            assert_eq!(orders(&text).unwrap(), expected, "{text:?}");
            assert_eq!(orders(text.trim_end()).unwrap(), expected, "no line end at the end");
        }
    }

    #[test]
    fn the_orders_of_the_last_run_alone_are_repeated() {
        let control =
            |frame: u64| format!("{{\"type\":\"control\",\"frame\":{frame},\"order\":\"clear\"}}\n");
        let run = |started: u64| format!("{{\"type\":\"run\",\"started\":{started}}}\n");
        let frames = |text: &str| orders(text).unwrap().iter().map(|order| order.frame).collect::<Vec<_>>();
        let (first, second) = (run(1000) + &control(5) + &control(7), run(2000) + &control(3));
        assert_eq!(frames(&format!("{first}{second}")), [3]);
        assert_eq!(frames(&format!("{first}{}", run(2000))), [0_u64; 0]);
        let torn = "{\"type\":\"torn\",\"text\":\"{\\\"type\\\":\\\"control\\\",\\\"fra\"}\n";
        assert_eq!(frames(&format!("{first}{torn}{}", second.replace(':', " : "))), [3]);
        // Files of one run, one after the other: --rotate repeats its `run` record.
        assert_eq!(frames(&format!("{first}{}{}", run(1000), control(9))), [5, 7, 9]);
        // Records of other writers may be equal although the runs differ.
        let bare = "{\"type\":\"run\"}\n";
        assert_eq!(frames(&format!("{bare}{}{bare}{}", control(5), control(2))), [2]);
    }

    #[test]
    fn a_last_line_that_a_killed_run_left_is_ignored_and_any_other_bad_line_is_named() {
        let (run, forget) =
            ("{\"type\":\"run\"}\n", "{\"type\":\"control\",\"frame\":5,\"order\":\"forget\",\"id\":1}\n");
        let torn = &forget[..40];
        assert_eq!(orders(&format!("{run}{forget}{torn}")).unwrap().len(), 1);
        let error = orders(&format!("{run}{torn}\n{forget}")).unwrap_err().to_string();
        assert!(error.contains("line 2 is no JSON object"), "{error}");
    }

    #[test]
    fn what_is_no_results_file_is_refused_with_its_line() {
        for (text, said) in [
            ("", "the file is empty"),
            ("frame,x,y\n", "line 1 is no `run` record"),
            (
                "{\"type\":\"run\"}\n{\"type\":\"control\",\"frame\":5,\"order\":\"dance\"}\n",
                "line 2 is no order",
            ),
            (
                "{\"type\":\"run\"}\n{\"type\":\"control\",\"frame\":5,\"order\":\"follow\",\"id\":1,\"box\":\"1,2,0,4\"}\n",
                "line 2 is no order",
            ),
            (
                "{\"type\": \"run\"}\n\n{\"type\": \"Control\", \"frame\": 5, \"order\": \"clear\"}\n",
                "line 3 has an `order`, but its `type` is \"Control\", not \"control\"",
            ),
            (
                "{\"type\":\"run\"}\n{\"frame\":5,\"order\":\"clear\"}\n",
                "line 2 has an `order`, but no `type`",
            ),
            ("{\"type\":\"run\"}\n{\"type\":\"control\",,}\n", "line 2 is no record"),
            (
                "{\"type\":\"run\"}\n{\"type\":\"control\",\"frame\":-5,\"order\":\"clear\"}\n",
                "line 2 is no order",
            ),
        ] {
            let error = orders(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text:?}: {error}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn a_line_without_end_is_refused_at_its_limit_and_a_long_record_is_read() {
        let zeros = std::fs::File::open("/dev/zero").unwrap();
        let error = read(zeros, Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(error.ends_with("/dev/zero: line 1 is longer than 1 MiB"), "{error}");
        let record = |length: usize| {
            let [front, back] = ["{\"type\":\"frame\",\"text\":\"", "\"}\n"];
            format!("{{\"type\":\"run\"}}\n{front}{}{back}", "x".repeat(length - front.len() - back.len()))
        };
        assert_eq!(orders(&record(MAX_LINE as usize)).unwrap(), []);
        let error = orders(&record(MAX_LINE as usize + 1)).unwrap_err().to_string();
        assert!(error.contains("line 2 is longer than 1 MiB"), "{error}");
    }
}
