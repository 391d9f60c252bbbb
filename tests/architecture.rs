//! The rules of the tree: which module may import which, and where `unsafe`, GStreamer and CUDA may be named.
//!
//! A scan of the text, not a compiler: comments, strings and `#[cfg(test)]` items are left out, `use` groups
//! and inline paths that begin with `crate::`, `lockon::` or `super::` are followed. `super` inside an inline
//! module is taken for the file's own parent.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;

use crate::util::{program, root};

/// From the top down. A module may use the rows below its own, and its own submodules; not what is beside it,
/// not what is above. What is not named here belongs to the longest name that it begins with:
/// `backend::peaks` to `backend`.
const LAYERS: &[&[&str]] = &[
    &["main"],
    &["cli"],
    &["engine", "excerpt", "job", "media", "metrics", "output"],
    &["tracker", "backend::cpu", "backend::cuda", "overlay", "reference"],
    &["backend"],
    &["ports", "judge", "tally"],
    &["template"],
    &["results", "config", "still"],
    &["files"],
    &["control", "memory"],
    &["error", "colour"],
    &["frame", "stats", "recycle", "shell", "simd", "text"],
    // What tests tell, in the tests alone.
    &["say"],
];

/// The definition must not lean on what it is the oracle of.
const REFERENCE_MAY_USE: &[&str] = &["template", "results", "config", "frame", "error"];

/// Names that belong to one folder: the GStreamer seam and the CUDA seam.
const SEAMS: &[(&[&str], &str)] = &[
    (&["gst", "gst_app", "gst_video", "gstreamer", "gstreamer_app", "gstreamer_video", "glib"], "src/media/"),
    (&["cudarc"], "src/backend/cuda/"),
];

/// Each file here is a burden on whoever reviews it: think twice, and keep the list as short as it is.
const FILES_WITH_UNSAFE: &[&str] = &[
    "src/backend/cuda/bench.rs",
    "src/backend/cuda/driver.rs",
    "src/backend/cuda/mma.rs",
    "src/backend/cuda/mod.rs",
    "src/backend/cuda/ncc.rs",
    "src/backend/cuda/peers.rs",
    "src/backend/cuda/search.rs",
    "src/backend/cuda/shared.rs",
    "src/backend/cuda/suspects.rs",
    "src/backend/cuda/tests.rs",
    "src/backend/cuda/texture.rs",
    "src/backend/cuda/threshold.rs",
    "src/backend/cuda/wgmma.rs",
    "src/simd.rs",
];

#[test]
fn imports_go_down_only() {
    let broken: Vec<_> = sources().iter().flat_map(|(path, text)| broken_arrows(path, text)).collect();
    assert!(broken.is_empty(), "\n{}\nThe layers stand in tests/architecture.rs.", broken.join("\n"));
}

#[test]
fn gstreamer_and_cuda_are_named_behind_their_seams_only() {
    let broken: Vec<_> = sources().iter().flat_map(|(path, text)| broken_seams(path, text)).collect();
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn unsafe_is_where_the_list_says() {
    let mut broken = String::new();
    let sources = sources();
    for (path, text) in &sources {
        if let Some(word) = words(&bare(text)).find(|word| word.text == "unsafe")
            && !FILES_WITH_UNSAFE.contains(&path.as_str())
        {
            let _ = writeln!(
                broken,
                "{path}:{}: `unsafe` in a file that FILES_WITH_UNSAFE does not list",
                word.line
            );
        }
    }
    for path in FILES_WITH_UNSAFE {
        if !sources.get(*path).is_some_and(|text| words(&bare(text)).any(|word| word.text == "unsafe")) {
            let _ = writeln!(broken, "{path}:1: listed in FILES_WITH_UNSAFE, but has no `unsafe`");
        }
    }
    assert!(broken.is_empty(), "\n{broken}");
}

#[test]
fn command_lines_of_the_readme_are_understood() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("README.md can be read");
    let mut broken = String::new();
    let (mut checked, mut is_code) = (0, false);
    for (line, text) in (1..).zip(readme.lines()) {
        is_code ^= text.starts_with("```");
        if !(is_code && text.starts_with("lockon ")) {
            continue;
        }
        let typed: Vec<_> = text.split_whitespace().skip(1).collect();
        // `bench` has commands of its own.
        let command = if typed[0] == "bench" { &typed[..2] } else { &typed[..1] };
        let help = Command::new(program()).args(command).arg("--help").output();
        let help = help.expect("lockon starts");
        let known = String::from_utf8_lossy(&help.stdout);
        let known: Vec<_> = known.split(|c: char| !(c.is_alphanumeric() || c == '-')).collect();
        if !help.status.success() {
            let _ = writeln!(broken, "README.md:{line}: lockon has no command `{}`", typed[0]);
        }
        for option in typed.iter().filter(|word| word.starts_with("--") && !known.contains(*word)) {
            let _ = writeln!(broken, "README.md:{line}: `lockon {}` has no option `{option}`", typed[0]);
        }
        checked += 1;
    }
    assert!(broken.is_empty(), "\n{broken}");
    assert!(checked >= 5, "only {checked} command lines are in README.md");
}

/// Every Rust file of the program by its path from the root, as `src/media/source.rs`.
fn sources() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root().join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("src can be listed") {
            let path = entry.expect("src can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name =
                    path.strip_prefix(root()).expect("below the root").to_string_lossy().replace('\\', "/");
                found.insert(name, std::fs::read_to_string(&path).expect("sources are UTF-8"));
            }
        }
    }
    found
}

fn broken_arrows(path: &str, text: &str) -> Vec<String> {
    // Files of tests are what `#[cfg(test)]` items are: they may use everything.
    if path.ends_with("/tests.rs") {
        return Vec::new();
    }
    let here = module_of(path);
    // The crate's root declares the modules and re-exports; it has no layer.
    if here.is_empty() {
        return Vec::new();
    }
    let Some(from) = unit_of(&here) else {
        return vec![format!("{path}:1: module {} has no layer", here.join("::"))];
    };
    let mut broken = Vec::new();
    for used in imports(&bare(text), &here) {
        let named = used.path.join("::");
        let Some(to) = unit_of(&used.path) else {
            broken.push(format!("{path}:{}: {named} has no layer", used.line));
            continue;
        };
        let is_own = to == from || used.path.starts_with(&here);
        let fault = if is_own {
            None
        } else if to == "reference" && path != "src/cli/bench.rs" {
            Some("the reference is for tests and benches".to_owned())
        } else if from == "reference" && !REFERENCE_MAY_USE.contains(&to) {
            Some(format!("the reference may use only {}", REFERENCE_MAY_USE.join(", ")))
        } else {
            let (above, below) = (layer_of(from), layer_of(to));
            (below <= above).then(|| format!("{to} is not below {from}"))
        };
        broken.extend(fault.map(|fault| format!("{path}:{}: uses {named}: {fault}", used.line)));
    }
    broken
}

fn broken_seams(path: &str, text: &str) -> Vec<String> {
    let text = bare(text);
    let mut broken = Vec::new();
    for (names, folder) in SEAMS.iter().filter(|(_, folder)| !path.starts_with(folder)) {
        for word in words(&text).filter(|word| names.contains(&word.text)) {
            broken
                .push(format!("{path}:{}: names {}, which belongs to {folder} alone", word.line, word.text));
        }
    }
    broken
}

/// `src/media/source.rs` is `[media, source]`, `src/backend/mod.rs` is `[backend]`, `src/lib.rs` is empty.
fn module_of(path: &str) -> Vec<String> {
    let mut parts: Vec<_> = path.trim_start_matches("src/").trim_end_matches(".rs").split('/').collect();
    if parts.len() > 1 && parts.last() == Some(&"mod") || parts == ["lib"] {
        parts.pop();
    }
    parts.into_iter().map(str::to_owned).collect()
}

fn unit_of(module: &[String]) -> Option<&'static str> {
    let all = LAYERS.iter().flat_map(|layer| layer.iter());
    let holds = |unit: &&&str| {
        let unit: Vec<_> = unit.split("::").collect();
        module.len() >= unit.len() && unit.iter().zip(module).all(|(a, b)| a == b)
    };
    all.filter(holds).max_by_key(|unit| unit.len()).copied()
}

fn layer_of(unit: &str) -> usize {
    LAYERS.iter().position(|layer| layer.contains(&unit)).expect("units come from LAYERS")
}

/// A path that begins at the crate's root.
#[derive(Debug, PartialEq)]
struct Used {
    line: usize,
    path: Vec<String>,
}

/// Every path into the crate, from text that went through [`bare`].
fn imports(text: &str, here: &[String]) -> Vec<Used> {
    let mut found = Vec::new();
    let words: Vec<_> = words(text).collect();
    for word in &words {
        let start = match word.text {
            "crate" | "lockon" => Vec::new(),
            // The first `super` of a chain stands for all of it.
            "super" if !text[..word.at].trim_end().ends_with("::") => here[..here.len() - 1].to_vec(),
            _ => continue,
        };
        let rest = &text[word.at + word.text.len()..];
        if rest.trim_start().starts_with("::") {
            follow(rest, word.line, &start, &mut found);
        }
    }
    found
}

/// Follows one path, or one tree of a `use`, whose next token is `::`. Returns what comes after it.
fn follow<'a>(text: &'a str, line: usize, start: &[String], found: &mut Vec<Used>) -> (&'a str, usize) {
    let (mut text, mut line, mut path) = (text, line, start.to_vec());
    loop {
        let after_colons = skip_space(text, &mut line).strip_prefix("::");
        let Some(rest) = after_colons.map(|rest| skip_space(rest, &mut line)) else {
            break;
        };
        if let Some(mut group) = rest.strip_prefix('{') {
            loop {
                group = skip_space(group, &mut line);
                if let Some(rest) = group.strip_prefix('}') {
                    return (rest, line);
                }
                let length = word_length(group);
                let mut inner = path.clone();
                push(&mut inner, &group[..length]);
                (group, line) = follow(&group[length..], line, &inner, found);
                // `as name`, `*` and the comma itself.
                let Some(end) = group.find([',', '}']) else { return ("", line) };
                line += group[..end].matches('\n').count();
                group = group[end..].strip_prefix(',').unwrap_or(&group[end..]);
            }
        }
        let length = word_length(rest);
        if length == 0 {
            // `::*` or `::<`.
            text = rest;
            break;
        }
        push(&mut path, &rest[..length]);
        text = &rest[length..];
    }
    if !path.is_empty() {
        found.push(Used { line, path });
    }
    (text, line)
}

fn push(path: &mut Vec<String>, word: &str) {
    match word {
        "self" | "" => {}
        "super" => drop(path.pop()),
        // lib.rs re-exports these two from `error`.
        "Error" | "Result" if path.is_empty() => path.extend(["error".to_owned(), word.to_owned()]),
        _ => path.push(word.to_owned()),
    }
}

fn skip_space<'a>(text: &'a str, line: &mut usize) -> &'a str {
    let rest = text.trim_start();
    *line += text[..text.len() - rest.len()].matches('\n').count();
    rest
}

fn word_length(text: &str) -> usize {
    text.find(|c: char| !is_word(c)).unwrap_or(text.len())
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

struct Word<'a> {
    text: &'a str,
    /// In bytes from the start.
    at: usize,
    line: usize,
}

fn words(text: &str) -> impl Iterator<Item = Word<'_>> {
    let (mut at, mut line) = (0, 1);
    std::iter::from_fn(move || {
        let start = at + text[at..].find(is_word)?;
        line += text[at..start].matches('\n').count();
        at = start + word_length(&text[start..]);
        Some(Word { text: &text[start..at], at: start, line })
    })
}

/// The text with comments, strings, characters and test items blanked out. Lines stay where they are.
fn bare(text: &str) -> String {
    without_tests(&without_words_for_people(text))
}

fn without_words_for_people(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after_word = out.ends_with(is_word);
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment_length(rest)
        } else if !after_word && raw_string_length(rest).is_some() {
            raw_string_length(rest).expect("just asked")
        } else if c == '"' {
            quoted_length(rest, '"')
        } else if c == '\'' && is_character(rest) {
            quoted_length(rest, '\'')
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        out.extend(rest[..length].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = &rest[length..];
    }
    out
}

fn block_comment_length(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        match &text.as_bytes()[at..text.len().min(at + 2)] {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// Length of `r"..."`, `br#"..."#` and the like, if the text begins with one.
fn raw_string_length(text: &str) -> Option<usize> {
    let body = text.trim_start_matches(['b', 'c']).strip_prefix('r')?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    let inside = body[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let end = inside.find(&close).map_or(inside.len(), |end| end + close.len());
    Some(text.len() - inside.len() + end)
}

fn quoted_length(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// `'a'` and `'\n'` are characters, `'a` alone is a lifetime.
fn is_character(text: &str) -> bool {
    let mut inside = text.chars().skip(1);
    inside.next() == Some('\\') || inside.next() == Some('\'')
}

/// Blanks the item behind every `#[cfg(test)]`.
fn without_tests(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("#[cfg(test)]") {
        out.push_str(&rest[..start]);
        let item = &rest[start..];
        let body = item.find(['{', ';']).unwrap_or(item.len());
        let mut depth = 0;
        let mut end = item.len();
        for (at, c) in item.char_indices().skip_while(|(at, _)| *at < body) {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                end = at + 1;
                break;
            }
        }
        out.extend(item[..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = &item[end..];
    }
    out + rest
}

mod scanner {
    use super::*;

    fn paths(text: &str, here: &str) -> Vec<String> {
        imports(&bare(text), &module_of(here))
            .iter()
            .map(|u| format!("{} {}", u.line, u.path.join("::")))
            .collect()
    }

    #[test]
    fn groups_are_taken_apart_with_their_lines() {
        let text = "use crate::{\n    frame::{self, Size as S, sub::*},\n    results,\n};\nuse crate::error::Result;\n";
        assert_eq!(
            paths(text, "src/engine.rs"),
            ["2 frame", "2 frame::Size", "2 frame::sub", "3 results", "5 error::Result"]
        );
    }

    #[test]
    fn inline_paths_and_the_crates_own_name_count() {
        let text = "fn f() -> crate::Result<lockon::frame::Size> {\n    crate::media::init::<u8>()\n}\n";
        assert_eq!(paths(text, "src/cli/run.rs"), ["1 error::Result", "1 frame::Size", "2 media::init"]);
    }

    #[test]
    fn super_is_the_parent_of_the_file() {
        let text = "use super::cuda;\nuse super::super::engine::Engine;\npub(super) fn f() {}\n";
        assert_eq!(
            paths(text, "src/backend/cpu/ncc.rs"),
            ["1 backend::cpu::cuda", "2 backend::engine::Engine"]
        );
        assert_eq!(paths(text, "src/backend/cpu/mod.rs"), ["1 backend::cuda", "2 engine::Engine"]);
    }

    #[test]
    fn comments_strings_and_tests_do_not_count() {
        let text = "// crate::a\n/* crate::b /* crate::c */ crate::d */ \"crate::\\\"e\" r#\"crate::\"f\"# '\\'' '\"' /// x\n\
                    #[cfg(test)]\nmod tests {\n    use crate::g;\n    fn f() { }\n}\n#[cfg(test)]\nuse crate::h;\n\
                    fn f<'a>(x: &'a u8) { crate::i::j() }\n";
        assert_eq!(paths(text, "src/engine.rs"), ["10 i::j"]);
    }

    #[test]
    fn an_arrow_up_or_sideways_is_named_with_file_line_and_rule() {
        let said = |path, text| broken_arrows(path, text).join("; ");
        assert_eq!(
            said("src/tracker/mod.rs", "\nuse crate::media::source::Source;\n"),
            "src/tracker/mod.rs:2: uses media::source::Source: media is not below tracker"
        );
        assert_eq!(
            said("src/output/csv.rs", "use crate::engine::Engine;"),
            "src/output/csv.rs:1: uses engine::Engine: engine is not below output"
        );
        assert_eq!(
            said("src/backend/peaks.rs", "use super::cpu::Cpu;"),
            "src/backend/peaks.rs:1: uses backend::cpu::Cpu: backend::cpu is not below backend"
        );
        assert_eq!(said("src/novelty.rs", ""), "src/novelty.rs:1: module novelty has no layer");
        assert_eq!(
            said("src/engine.rs", "use crate::novelty::New;"),
            "src/engine.rs:1: novelty::New has no layer"
        );
    }

    #[test]
    fn arrows_down_and_to_own_submodules_are_fine() {
        let fine = |path, text| assert_eq!(broken_arrows(path, text), [""; 0]);
        fine("src/backend/mod.rs", "fn open() { cpu::Cpu::new(); crate::backend::cpu::Cpu::new() }");
        fine("src/backend/cpu/mod.rs", "use crate::backend::{Backend, peaks};\nuse super::Query;");
        fine("src/error.rs", "use crate::frame::Size;");
        fine("src/main.rs", "mod cli;\nfn main() { cli::main() }");
        fine("src/lib.rs", "pub use crate::error::Error;");
    }

    #[test]
    fn the_reference_leans_on_plain_data_and_nobody_leans_on_it() {
        assert_eq!(
            broken_arrows("src/reference/ncc.rs", "use crate::backend::peaks;").join("; "),
            "src/reference/ncc.rs:1: uses backend::peaks: the reference may use only template, results, config, frame, error"
        );
        assert_eq!(
            broken_arrows("src/cli/run.rs", "use lockon::reference::ncc;").join("; "),
            "src/cli/run.rs:1: uses reference::ncc: the reference is for tests and benches"
        );
    }

    #[test]
    fn names_behind_a_seam_are_found_outside_of_it() {
        assert_eq!(
            broken_seams("src/engine.rs", "fn f() {\n    gst::init();\n}"),
            ["src/engine.rs:2: names gst, which belongs to src/media/ alone"]
        );
        assert_eq!(broken_seams("src/media/mod.rs", "gst::init()"), [""; 0]);
        assert_eq!(
            broken_seams("src/media/mod.rs", "use cudarc::driver;"),
            ["src/media/mod.rs:1: names cudarc, which belongs to src/backend/cuda/ alone"]
        );
    }
}
