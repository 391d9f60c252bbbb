//! Logins in words that are no address, but were perhaps meant to be one: `rtsp:/user:password@host`,
//! `user:password@host`. Such a word is read as the name of a file, and the error repeats it.

use std::path::Path;

use super::{HIDDEN, authority, is_of_scheme};

/// Maximum words of a line that may belong to the name of a file, on either side.
const MAX_WORDS: usize = 8;

/// Finds logins in words without a correct `scheme://`. The name of an existing file has none.
pub(super) fn logins(text: &str) -> Vec<(usize, usize)> {
    if !text.contains('@') {
        return Vec::new();
    }
    let found = words(text).into_iter().filter_map(|(from, to)| {
        let (start, at) = login(&text[from..to])?;
        (!is_in_name_of_file(text, from, to)).then_some((from + start, from + at))
    });
    found.collect()
}

/// As [`logins`], for a text that is one word, white space and quotes included.
pub(super) fn login_of_address(text: &str) -> Option<(usize, usize)> {
    login(text).filter(|_| !Path::new(text).exists())
}

fn login(word: &str) -> Option<(usize, usize)> {
    if word.contains("://") {
        return None;
    }
    let is_host = |at: &usize| {
        let place = authority(&word[at + 1..]).trim_end_matches([':', '.', ',', ';']);
        let is_name = |c: char| c.is_alphanumeric() || "-._:[]{}%".contains(c);
        !place.is_empty() && place.chars().all(is_name) && !is_time(place)
    };
    let (at, _) = word.rmatch_indices('@').find(|(at, _)| is_host(at))?;
    let head = &word[..at];
    // `--events=` in front of it, `location=`.
    let is_option = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let option = head.find(|c| !is_option(c)).filter(|end| head[*end..].starts_with('='));
    let value = option.map_or(0, |end| end + 1);
    let (user, password) = head[value..].split_once(':')?;
    // White space before it is prose, or a pipeline.
    if password.is_empty() || user.contains(char::is_whitespace) || password.starts_with(char::is_whitespace)
    {
        return None;
    }
    let start = value + scheme_length(&head[value..]);
    (start < at && &head[start..] != HIDDEN).then_some((start, at))
}

/// Bytes of a scheme with some of its `://`: `rtsp:/`, `rtsp//`. More than these three are none: a password
/// may begin with a slash.
fn scheme_length(text: &str) -> usize {
    let rest = text.trim_start_matches(is_of_scheme);
    let scheme = text.len() - rest.len();
    let sign = [":/", "//"].into_iter().find(|sign| scheme > 0 && rest.starts_with(sign));
    sign.map_or(0, |sign| scheme + sign.len())
}

/// True for the time or the frame of a box: `--track car:a=1,2,30,40@1:02.5`.
fn is_time(place: &str) -> bool {
    place.chars().all(|c| c.is_ascii_digit() || ".:s".contains(c)) && place.matches('.').count() < 3
}

/// Finds words: between white space, and between the quotes and brackets around them.
fn words(text: &str) -> Vec<(usize, usize)> {
    let mut words = Vec::new();
    let mut from = 0;
    let chars: Vec<(usize, char)> = text.char_indices().collect();
    for (index, (at, c)) in chars.iter().enumerate() {
        let is_edge = |side: Option<char>, marks: &str| {
            side.is_none_or(|c| c.is_whitespace() || marks.contains(c) || c == '\\')
        };
        let before = index.checked_sub(1).map(|before| chars[before].1);
        let after = chars.get(index + 1).map(|(_, c)| *c);
        let is_end = match c {
            '"' | '\'' | '`' | '<' | '>' | '(' | ')' => {
                is_edge(before, "{[(,:=") || is_edge(after, ",}]):;.")
            }
            c => c.is_whitespace() || c.is_control(),
        };
        if is_end {
            words.push((from, *at));
            from = at + c.len_utf8();
        }
    }
    words.push((from, text.len()));
    words.retain(|(from, to)| text[*from..*to].contains('@'));
    words
}

/// True if the word, perhaps with some around it, is the name of a file.
fn is_in_name_of_file(text: &str, from: usize, to: usize) -> bool {
    let line_start = text[..from].rfind('\n').map_or(0, |at| at + 1);
    let line_end = text[to..].find('\n').map_or(text.len(), |at| to + at);
    let starts = text[line_start..from].rmatch_indices(char::is_whitespace);
    let starts = starts.map(|(at, space)| line_start + at + space.len()).take(MAX_WORDS);
    let starts: Vec<usize> = [from, line_start].into_iter().chain(starts).collect();
    let ends = text[to..line_end].match_indices(char::is_whitespace);
    let mut ends = [to, line_end].into_iter().chain(ends.map(|(at, _)| to + at).take(MAX_WORDS));
    ends.any(|end| {
        starts.iter().any(|start| {
            let name = &text[*start..end];
            [name, name.trim_end_matches([':', ',', ';', '.'])].iter().any(|name| Path::new(name).exists())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::{HIDDEN, address_without_secrets, without_secrets};

    #[test]
    fn the_login_of_a_mistyped_address_is_hidden_wherever_it_stands() {
        for (typed, expected) in [
            ("rtsp:/u:s3cret@cam/1", "rtsp:/***@cam/1"),
            ("rtsp//u:s3cret@cam/1", "rtsp//***@cam/1"),
            ("rtsp:///u:s3cret@cam/1", "rtsp:///***@cam/1"),
            ("rtsp:u:s3cret@cam/1", "***@cam/1"),
            ("rtsp/u:s3cret@cam/1", "***@cam/1"),
            ("u:s3cret@cam", "***@cam"),
            ("u:s3cret@10.0.0.7:554/x?y=1", "***@10.0.0.7:554/x?y=1"),
            ("u:s3@cret/x#s3cret@[::1]:554/x", "***@[::1]:554/x"),
            ("u:/s3cret@cam/1", "u:/***@cam/1"),
            ("mqtt:/u:s3cret@h/y", "mqtt:/***@h/y"),
            ("u:s3'cret@h/y", "***@h/y"),
            ("camera:u:s3cret@h/y", "***@h/y"),
        ] {
            assert_eq!(address_without_secrets(typed), expected, "{typed}");
            for (before, after) in
                [("cannot read ", ": no such file"), ("\"", "\" is none"), ("{\"input\":\"", "\",\"x\":1}")]
                    .into_iter()
                    .chain([("--events=", " --x"), ("location=", " ! x"), ("('", "')"), ("x=\"", "\"")])
            {
                let (message, clean) =
                    (format!("{before}{typed}{after}"), format!("{before}{expected}{after}"));
                let is_marked = typed.contains("'c") && before.contains('\'');
                assert!(is_marked || without_secrets(&message) == clean, "{}", without_secrets(&message));
                assert_eq!(without_secrets(&clean), clean, "what is hidden stays so");
            }
        }
        assert_eq!(address_without_secrets("rtsp:/u:s3 cret@cam/1"), "rtsp:/***@cam/1");
    }

    #[test]
    fn words_with_an_at_sign_that_are_no_login_are_left() {
        for text in [
            "--track car:red=1,2,30,40@18 --track a:b=1,2,3,4@1:02.5",
            "--track a:b=1,2,3,4@12.5s",
            "--follow 640x640@2",
            "--events @/etc/a:b",
            "note: @pipelines/x.launch, mail a@b.c",
            "{\"a\":\"x:1\",\"b\":\"c@d\"}",
            "run:@file",
            "filesrc location=a:b ! x@y.z",
            "rtsp://host/a@b",
            "https://example.org/12:30@user/a.mp4",
        ] {
            assert_eq!(without_secrets(text), text);
            assert_eq!(address_without_secrets(text), text);
        }
    }

    #[test]
    fn a_file_keeps_its_name() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["cam:1@yard.mp4", "yard 12:30@gate.mp4", "12:30@gate west side.mp4"] {
            let path = folder.path().join(name).display().to_string();
            let message = format!("cannot read {path}: it has no video stream");
            let hidden = without_secrets(&message).into_owned();
            assert!(hidden.contains(HIDDEN), "{hidden}");
            std::fs::write(&path, "").unwrap();
            assert_eq!(without_secrets(&message), message);
            assert_eq!(address_without_secrets(&path), path);
        }
    }
}
