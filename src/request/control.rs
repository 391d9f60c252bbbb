//! The orders of an earlier run, out of its results file.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::Deserialize;

use super::Request;
use crate::error::{Error, Result};
use crate::orders::Repeated;

/// What a line of a results file is.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    kind: String,
}

impl Request {
    /// What `--control` repeats: the `control` records of a results file.
    ///
    /// # Errors
    /// `File` if it cannot be read; `Usage` if it is no results file or one of the records cannot be
    /// understood.
    pub fn orders(&self) -> Result<Vec<Repeated>> {
        self.control.as_deref().map_or_else(|| Ok(Vec::new()), read)
    }
}

fn read(path: &Path) -> Result<Vec<Repeated>> {
    let file = |cause| Error::File { action: "read", path: path.into(), cause };
    let mut orders = Vec::new();
    let mut is_results = false;
    for (number, line) in (1..).zip(BufReader::new(File::open(path).map_err(file)?).lines()) {
        let line = line.map_err(file)?;
        let usage = |what: &str| Error::Usage(format!("--control {}: line {number} {what}", path.display()));
        if !is_results {
            let is_run = serde_json::from_str::<Line>(&line).is_ok_and(|line| line.kind == "run");
            if !is_run {
                return Err(usage("is no `run` record: give a results file of an earlier run, JSON Lines"));
            }
            is_results = true;
        } else if line.contains(r#""type":"control""#) {
            orders
                .push(serde_json::from_str(&line).map_err(|error| usage(&format!("is no order: {error}")))?);
        }
    }
    if !is_results {
        return Err(Error::Usage(format!("--control {}: the file is empty", path.display())));
    }
    Ok(orders)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::orders::Order;

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
        ] {
            let error = orders(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text:?}: {error}");
        }
    }
}
