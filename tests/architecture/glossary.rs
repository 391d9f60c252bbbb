//! The glossary beside the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::{bare, production, root, words};

/// Words that name a second type, with the reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("Search", "plugin/src/lockon/choices.rs", "GStreamer shows this type's name: GstLockonSearch"),
    ("Track", "crates/lockon-messages/src/lib.rs", "a track as a plain value for applications"),
    ("TrackState", "crates/lockon-messages/src/lib.rs", "a track's state as a plain value for applications"),
    ("Match", "crates/lockon-messages/src/lib.rs", "a match as a plain value for applications"),
];

fn glossary() -> String {
    std::fs::read_to_string(root().join("docs/glossary.md")).expect("docs/glossary.md can be read")
}

/// Text in code font: types, files and paths are in the code.
#[test]
fn types_and_files_of_the_glossary_are_in_the_code() {
    let (types, mut broken) = (types(false), String::new());
    let files = files();
    let mut checked = 0;
    for (line, text) in (1..).zip(glossary().lines()) {
        for name in text.split('`').skip(1).step_by(2) {
            let is_type = name.starts_with(|c: char| c.is_ascii_uppercase())
                && name.contains(|c: char| c.is_ascii_lowercase())
                && name.chars().all(|c| c.is_ascii_alphanumeric());
            let is_file = name.ends_with('/')
                || [".rs", ".cu", ".cuh"].iter().any(|end| name.ends_with(end)) && !name.contains(' ');
            let is_there = if is_type {
                types.contains_key(name)
            } else if is_file {
                files.iter().any(|file| format!("/{file}").contains(&format!("/{name}")))
            } else {
                continue;
            };
            checked += 1;
            if !is_there {
                let _ = writeln!(broken, "docs/glossary.md:{line}: `{name}` is not in the code");
            }
        }
    }
    assert!(broken.is_empty(), "\n{broken}");
    assert!(checked > 40, "only {checked} names are in code font");
}

#[test]
fn each_word_of_the_glossary_s_last_list_names_one_type() {
    let (types, text) = (types(true), glossary());
    let list = text.split("\n## One word for one thing\n").nth(1).expect("the section is there");
    let listed: BTreeSet<_> = list.split('`').skip(1).step_by(2).collect();
    let mut broken = String::new();
    for word in &listed {
        let is_allowed =
            |path: &&String| !EXCEPTIONS.iter().any(|(name, file, _)| name == word && path.as_str() == *file);
        let places: Vec<_> = types.get(*word).into_iter().flatten().filter(is_allowed).collect();
        if places.len() != 1 {
            let _ = writeln!(broken, "`{word}` names {} types: {places:?}", places.len());
        }
    }
    for (word, path, _) in EXCEPTIONS {
        let is_there = types.get(*word).is_some_and(|places| places.iter().any(|place| place == path));
        if !is_there || !listed.contains(word) {
            let _ = writeln!(broken, "the exception of `{word}` in {path} is not needed");
        }
    }
    assert!(broken.is_empty(), "\n{broken}");
    assert!(listed.len() > 20, "only {} words are listed", listed.len());
}

/// Types, or only those that other modules can name, each with the files that declare it.
fn types(are_public: bool) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in production() {
        let is_wanted = |line: &&str| !are_public || line.trim_start().starts_with("pub");
        for line in bare(&text).lines().filter(is_wanted) {
            let mut words = words(line).map(|word| word.text);
            let is_keyword = |word: &&str| ["struct", "enum", "trait", "type"].contains(word);
            // Behind `pub`, and the scope in its parentheses.
            let keyword = words.by_ref().take(4).find(is_keyword);
            if let (Some(_), Some(name)) = (keyword, words.next()) {
                found.entry(name.to_owned()).or_default().push(path.clone());
            }
        }
    }
    found
}

/// Paths of production code and of kernels.
fn files() -> Vec<String> {
    let kernels = std::fs::read_dir(root().join("kernels")).expect("kernels can be listed");
    let kernels = kernels.map(|entry| {
        format!("kernels/{}", entry.expect("kernels can be listed").file_name().to_string_lossy())
    });
    production().into_keys().chain(kernels).collect()
}
