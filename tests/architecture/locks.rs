//! The locks of the code beside the tables of `docs/threads.md`: names and ranks. That ranks rise is checked
//! by `lockon_core::locks` itself, at each lock that any test takes.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::{bare, is_word, production, root, word_length};

/// A lock's name, and its rank if it has one of its own.
type Lock = (String, Option<u8>);

/// The file that makes the locks that are declared elsewhere.
const HELPER: &str = "crates/lockon-core/src/locks.rs";

#[test]
fn locks_and_their_ranks_are_those_of_the_table() {
    let declared: BTreeSet<_> = production()
        .iter()
        .filter(|(path, _)| *path != HELPER)
        .flat_map(|(_, text)| declared(&bare(text)))
        .collect();
    let text = std::fs::read_to_string(root().join("docs/threads.md")).expect("docs/threads.md can be read");
    let listed = listed(&text);
    let mut broken = String::new();
    for (name, rank) in declared.difference(&listed) {
        let _ = writeln!(broken, "{name}, rank {rank:?}, is in the code and not in docs/threads.md");
    }
    for (name, rank) in listed.difference(&declared) {
        let _ = writeln!(broken, "{name}, rank {rank:?}, is in docs/threads.md and not in the code");
    }
    assert!(broken.is_empty(), "\n{broken}");
    assert!(listed.len() > 50, "only {} locks are listed", listed.len());
}

#[test]
fn locks_are_taken_through_their_one_module() {
    let mut broken = String::new();
    for (path, text) in production().iter().filter(|(path, _)| *path != HELPER) {
        for (line, text) in (1..).zip(bare(text).lines()) {
            let is_std_lock = text.contains(".lock()") && text.contains("Ok(")
                || [".lock().", ".read().", ".write()."]
                    .iter()
                    .flat_map(|take| text.split(take).skip(1))
                    .any(|then| {
                        ["ok(", "unwrap", "expect(", "is_ok"].iter().any(|word| then.starts_with(word))
                    });
            if is_std_lock || text.contains("PoisonError") || text.contains("RwLock<") {
                let _ = writeln!(broken, "{path}:{line}: use lockon_core::locks");
            }
        }
    }
    assert!(broken.is_empty(), "\n{broken}");
}

/// Locks in fields, statics, tuple structs and aliases of a text. A field's name has that of its struct in
/// front.
fn declared(bare: &str) -> Vec<Lock> {
    let lines: Vec<_> = bare.lines().collect();
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        for (kind, at) in ["Mutex<", "Ranked<", "RankedRw<"].iter().filter_map(|kind| {
            let at = line.find(kind)?;
            let is_whole = !line[..at].ends_with(is_word);
            is_whole.then_some((*kind, at))
        }) {
            let rank = (kind != "Mutex<").then(|| rank(&line[at + kind.len()..]));
            if let Some(name) = name_of(line, &lines[..number]) {
                found.push((name, rank));
            }
        }
    }
    found
}

/// The last of the arguments between `<` and `>`.
fn rank(arguments: &str) -> u8 {
    let mut depth = 0;
    let end = arguments.find(|c| {
        depth += match c {
            '<' => 1,
            '>' => -1,
            _ => 0,
        };
        depth < 0
    });
    let last = arguments[..end.expect("a type is on one line")].rsplit(',').next();
    last.and_then(|rank| rank.trim().parse().ok()).expect("the rank is a number")
}

/// The name that a line declares: of a static, an alias, a tuple struct or a field; `None` for anything else.
fn name_of(line: &str, before: &[&str]) -> Option<String> {
    let without_visibility = |line: &str| {
        let line = line.trim_start();
        let line = line.strip_prefix("pub").map_or(line, |rest| match rest.strip_prefix('(') {
            Some(scope) => scope.split_once(')').map_or(scope, |(_, rest)| rest),
            None => rest,
        });
        line.trim_start().to_owned()
    };
    let indent = |line: &str| line.len() - line.trim_start().len();
    let word = |text: &str| text[..word_length(text)].to_owned();
    let item = without_visibility(line);
    for keyword in ["static ", "type ", "struct "] {
        if let Some(name) = item.strip_prefix(keyword) {
            return Some(word(name));
        }
    }
    let field = word(&item);
    if field.is_empty() || !item[field.len()..].starts_with(": ") || !item.ends_with(',') {
        return None;
    }
    let around =
        before.iter().rev().find(|other| !other.trim().is_empty() && indent(other) < indent(line))?;
    let owner = without_visibility(around);
    Some(format!("{}::{field}", word(owner.strip_prefix("struct ")?)))
}

/// Locks in the tables of the section `Locks`: names in code font in the column `lock`, ranks in that before
/// it.
fn listed(text: &str) -> BTreeSet<Lock> {
    let section = text.split("\n## Locks\n").nth(1).expect("a section Locks");
    let section = section.split("\n## ").next().expect("it has a text");
    let mut found = BTreeSet::new();
    for row in section.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let rank = cells[1].parse().ok();
        let names = if rank.is_some() { cells[2] } else { cells[1] };
        for name in names.split('`').skip(1).step_by(2).filter(|name| !name.contains(' ')) {
            found.insert((name.to_owned(), rank));
        }
    }
    found
}

#[test]
fn declarations_of_locks_are_found_with_their_ranks() {
    let text = "pub(crate) static OPEN: Ranked<Vec<(usize, Weak<u8>)>, 110> = Ranked::new(Vec::new());\n\
                struct Numbers(Arc<Mutex<VecDeque<u64>>>);\n\
                pub struct Video<T> {\n    pub(super) state: Mutex<T>,\n    a: u8,\n    asking: Ranked<(), 50>,\n}\n\
                fn f(\n    mutex: &Mutex<u8>,\n) -> MutexGuard<'_, u8> {\n    let a: Mutex<u8> = g();\n}\n";
    let lock = |name: &str, rank| (name.to_owned(), rank);
    assert_eq!(
        declared(text),
        [
            lock("OPEN", Some(110)),
            lock("Numbers", None),
            lock("Video::state", None),
            lock("Video::asking", Some(50))
        ]
    );
}
