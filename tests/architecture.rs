//! The rules of the tree that Cargo does not enforce: where `unsafe` is, and what the definition depends on.
//! The crates' `Cargo.toml` enforce which crate may use which, and so where GStreamer and CUDA are named.
//!
//! A scan of the text, not a compiler: comments, strings and `#[cfg(test)]` items are left out.

mod glossary;
mod locks;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;

use crate::util::{program, root};

/// Folders of the sources of program and library.
const SOURCES: &[&str] = &["src", "crates", "python/src"];

/// The definition must not depend on the code that it is the oracle of.
const REFERENCE_MAY_USE: &[&str] =
    &["template", "results", "config", "frame", "surface", "error", "reference"];

/// Only tests and measurements may use the definition: measurements use its pictures, and check an answer
/// before its time counts.
const MAY_USE_REFERENCE: &[&str] =
    &["crates/lockon-core/src/reference/", "crates/lockon-bench/", "src/cli/speed.rs"];

/// Each file here costs its reviewers time: think twice, and keep the list as short as it is.
const FILES_WITH_UNSAFE: &[&str] = &[
    "crates/lockon-bench/src/device.rs",
    "crates/lockon-bench/src/follow.rs",
    "crates/lockon-bench/src/peers.rs",
    "crates/lockon-bench/src/textures/array.rs",
    "crates/lockon-bench/src/textures/fetch.rs",
    "crates/lockon-bench/src/textures/resample.rs",
    "crates/lockon-bench/src/textures/view.rs",
    "crates/lockon-core/src/backend/cpu/products/avx512.rs",
    "crates/lockon-core/src/colour/avx512.rs",
    "crates/lockon-core/src/device_memory.rs",
    "crates/lockon-core/src/simd.rs",
    "crates/lockon-cuda/src/alone.rs",
    "crates/lockon-cuda/src/bands.rs",
    "crates/lockon-cuda/src/correlation.rs",
    "crates/lockon-cuda/src/objects.rs",
    "crates/lockon-cuda/src/outlines.rs",
    "crates/lockon-cuda/src/staged.rs",
    "crates/lockon-cuda/src/driver/device.rs",
    "crates/lockon-cuda/src/driver/event.rs",
    "crates/lockon-cuda/src/driver/graph.rs",
    "crates/lockon-cuda/src/driver/memory.rs",
    "crates/lockon-cuda/src/driver/module.rs",
    "crates/lockon-cuda/src/driver/stream.rs",
    "crates/lockon-cuda/src/driver/texture.rs",
    "crates/lockon-cuda/src/lib.rs",
    "crates/lockon-cuda/src/mma.rs",
    "crates/lockon-cuda/src/ncc.rs",
    "crates/lockon-cuda/src/overlay.rs",
    "crates/lockon-cuda/src/parts.rs",
    "crates/lockon-cuda/src/range.rs",
    "crates/lockon-cuda/src/search.rs",
    "crates/lockon-cuda/src/shared.rs",
    "crates/lockon-cuda/src/suspects.rs",
    "crates/lockon-cuda/src/surface.rs",
    "crates/lockon-cuda/src/tests.rs",
    "crates/lockon-cuda/src/texture.rs",
    "crates/lockon-cuda/src/threshold.rs",
    "crates/lockon-cuda/src/threshold/hysteresis.rs",
    "crates/lockon-cuda/src/threshold/whole.rs",
    "crates/lockon-cuda/src/wgmma.rs",
    "crates/lockon-cuda/src/wgmma/map.rs",
    "crates/lockon-gst/src/cuda.rs",
    "crates/lockon-gst/src/pinned.rs",
    "python/src/array.rs",
    "python/src/dlpack.rs",
    "python/src/gpu_array.rs",
    "python/src/process.rs",
];

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
fn the_reference_leans_on_plain_data_and_nobody_leans_on_it() {
    let broken: Vec<_> = sources().iter().flat_map(|(path, text)| broken_reference(path, text)).collect();
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

/// Modules that lie in a folder of another one, and are known by its name.
const KNOWN_AS: [(&str, &str); 1] = [("surface", "frame")];

#[test]
fn modules_of_the_core_use_the_rows_below_their_own() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md can be read");
    let table = text.split("| modules of `lockon-core` |").nth(1).expect("the table is there");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let mut row_of = BTreeMap::new();
    for (row, line) in rows.enumerate() {
        for module in line.split('|').nth(1).expect("a first cell").split('`').skip(1).step_by(2) {
            assert!(row_of.insert(module, row).is_none(), "{module} stands in two rows");
        }
    }
    let mut broken = String::new();
    for (path, text) in &sources() {
        let Some(file) = path.strip_prefix("crates/lockon-core/src/").filter(|file| *file != "lib.rs") else {
            continue;
        };
        if file.ends_with("tests.rs") {
            continue;
        }
        let module = match file.split(['/', '.']).next().expect("it has a name") {
            "backend" if file.starts_with("backend/cpu") => "backend::cpu",
            module => module,
        };
        let Some(row) = row_of.get(module) else {
            let _ = writeln!(broken, "{path}:1: `{module}` is in no row of the table in ARCHITECTURE.md");
            continue;
        };
        for (line, used) in uses_of_crate(&bare(text)) {
            let known_as = KNOWN_AS.iter().find(|(name, _)| *name == used);
            let used = known_as.map_or(&*used, |(_, module)| *module);
            let is_below = row_of.get(used).is_none_or(|other| other > row);
            if used != module && !(module == "backend::cpu" && used == "backend") && !is_below {
                let _ =
                    writeln!(broken, "{path}:{line}: `{module}` uses `{used}`, which is not in a row below");
            }
        }
    }
    assert!(row_of.len() > 30, "only {} modules are in the table", row_of.len());
    assert!(broken.is_empty(), "\n{broken}");
}

/// The modules that a text names behind `crate::`, with their lines; each of several in braces.
/// `backend::cpu` counts as one.
fn uses_of_crate(bare: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, _) in bare.match_indices("crate::") {
        let line = 1 + bare[..at].matches('\n').count();
        let rest = &bare[at + "crate::".len()..];
        for rest in members(rest) {
            let module = &rest[..word_length(rest)];
            let is_cpu = module == "backend" && rest[module.len()..].starts_with("::cpu");
            found.push((line, if is_cpu { "backend::cpu".to_owned() } else { module.to_owned() }));
        }
    }
    found
}

/// The paths of a list in braces, `{a, b::{c, d}}`; a path without braces is the only one.
fn members(rest: &str) -> Vec<&str> {
    let Some(list) = rest.strip_prefix('{') else { return vec![rest] };
    let (mut depth, mut start, mut members) = (1, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && c == ',') {
            members.push(list[start..at].trim());
            start = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    members.retain(|member| !member.is_empty());
    members
}

#[test]
fn modules_in_braces_count_each() {
    let used = |text: &str| uses_of_crate(text).into_iter().map(|(_, module)| module).collect::<Vec<_>>();
    assert_eq!(used("use crate::frame::{Frame, Size};"), ["frame"]);
    assert_eq!(
        used("use crate::{\n    frame::{self, Size},\n    backend::cpu,\n};"),
        ["frame", "backend::cpu"]
    );
}

/// Tables cannot be broken into lines, nor can text that is pasted into a shell.
#[test]
fn comment_lines_are_no_wider_than_code_lines() {
    const WIDTH: usize = 110;
    let mut broken = String::new();
    for (path, text) in &sources() {
        for (line, text) in (1..).zip(text.lines()) {
            let Some(comment) = text.trim_start().strip_prefix("//") else { continue };
            let words = comment.trim_start_matches(['/', '!']).trim_start();
            let is_whole = words.starts_with('|') || words.starts_with("gst-launch-1.0 ");
            if text.chars().count() > WIDTH && !is_whole {
                let _ = writeln!(broken, "{path}:{line}: {} characters", text.chars().count());
            }
        }
    }
    assert!(broken.is_empty(), "\n{broken}comments have at most {WIDTH}, as code");
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
        let help = Command::new(program()).args([typed[0], "--help"]).output();
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

/// Every Rust file of the program by its path from the root, as `src/cli/run.rs`.
fn sources() -> BTreeMap<String, String> {
    sources_in(SOURCES)
}

/// Files of the program and of the element, without those that have only tests.
fn production() -> BTreeMap<String, String> {
    let mut found = sources_in(&["src", "crates", "plugin/src", "python/src"]);
    found.retain(|path, _| path.contains("src/") && !path.ends_with("tests.rs"));
    found
}

fn sources_in(folders: &[&str]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders: Vec<_> = folders.iter().map(|folder| root().join(folder)).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("sources can be listed") {
            let path = entry.expect("sources can be listed").path();
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

/// Returns the forbidden references: by the definition to other code, and by other code to the definition.
fn broken_reference(path: &str, text: &str) -> Vec<String> {
    // Files of tests are what `#[cfg(test)]` items are: they may use everything.
    if path.ends_with("/tests.rs") {
        return Vec::new();
    }
    let text = bare(text);
    let words: Vec<_> = words(&text).collect();
    let mut broken = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let before = index.checked_sub(1).map_or("", |before| words[before].text);
        let is_path = matches!(before, "crate" | "lockon" | "lockon_core");
        if path.contains("/reference/") && before == "crate" && !REFERENCE_MAY_USE.contains(&word.text) {
            let fault = format!("the reference may use only {}", REFERENCE_MAY_USE.join(", "));
            broken.push(format!("{path}:{}: uses {}: {fault}", word.line, word.text));
        } else if is_path
            && word.text == "reference"
            && !MAY_USE_REFERENCE.iter().any(|may| path.starts_with(may))
        {
            broken.push(format!("{path}:{}: the reference is for tests and benches", word.line));
        }
    }
    broken
}

fn word_length(text: &str) -> usize {
    text.find(|c: char| !is_word(c)).unwrap_or(text.len())
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

struct Word<'a> {
    text: &'a str,
    line: usize,
}

fn words(text: &str) -> impl Iterator<Item = Word<'_>> {
    let (mut at, mut line) = (0, 1);
    std::iter::from_fn(move || {
        let start = at + text[at..].find(is_word)?;
        line += text[at..start].matches('\n').count();
        at = start + word_length(&text[start..]);
        Some(Word { text: &text[start..at], line })
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

    #[test]
    fn comments_strings_and_tests_do_not_count() {
        let text = "// a\n/* b /* c */ d */ \"e\\\"e\" r#\"f\"f\"# '\\'' '\"' /// x\n\
                    #[cfg(test)]\nmod tests {\n    use g;\n    fn f() { }\n}\n#[cfg(test)]\nuse h;\n\
                    fn i<'a>(x: &'a u8) { j() }\n";
        let text = bare(text);
        let found: Vec<_> = words(&text).map(|word| format!("{} {}", word.line, word.text)).collect();
        assert_eq!(found, ["10 fn", "10 i", "10 a", "10 x", "10 a", "10 u8", "10 j"]);
    }

    #[test]
    fn what_the_reference_may_not_use_and_who_may_not_use_it_is_named_with_its_line() {
        let said = |path, text| broken_reference(path, text).join("; ");
        assert_eq!(
            said("crates/lockon-core/src/reference/ncc.rs", "\nuse crate::backend::peaks;"),
            "crates/lockon-core/src/reference/ncc.rs:2: uses backend: the reference may use only template, results, \
             config, frame, surface, error, reference"
        );
        assert_eq!(
            said("src/cli/run.rs", "use lockon::reference::ncc;"),
            "src/cli/run.rs:1: the reference is for tests and benches"
        );
        assert_eq!(said("crates/lockon-core/src/reference/ncc.rs", "use crate::frame::Size;"), "");
        assert_eq!(said("crates/lockon-bench/src/lib.rs", "use lockon_core::reference;"), "");
    }
}

#[test]
fn crates_with_known_advisories_do_not_come_back() {
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    // Each of these came with the TLS of an MQTT client. `cargo deny check advisories` knows all others.
    for (name, version) in [("rustls-pemfile", ""), ("rustls-webpki", "0.102")] {
        let found = format!("name = \"{name}\"\nversion = \"{version}");
        assert!(!lock.contains(&found), "{name} {version} is in Cargo.lock");
    }
}
