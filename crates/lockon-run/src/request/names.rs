//! Names of videos, and names of outputs made from them.

use std::ffi::OsString;
use std::path::Path;

use super::{FIELDS, Request};
use lockon_core::error::Result;
use lockon_gst::launch;
use lockon_gst::source::Input;

/// Returns the name of a video's file, or else the part of its address that identifies it, without characters
/// that a file's name cannot have.
pub fn name_of(input: &Input) -> String {
    let last = |text: &str| {
        let end = text.split(['?', '#']).next().unwrap_or(text).trim_end_matches('/');
        end.rsplit('/').next().unwrap_or(end).to_owned()
    };
    let name = match input {
        Input::File(path) => path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into()),
        Input::Stdin => "stdin".into(),
        // Pictures have numbers for names: their folder names the video.
        Input::Pictures(pictures) => {
            let text = pictures.to_string();
            let folder = text
                .find(['%', '*', '?', '['])
                .map_or(&*text, |at| text[..at].rfind('/').map_or("pictures", |end| &text[..end]));
            last(folder)
        }
        Input::Uri(uri) => last(uri.to_string().split_once("://").map_or("", |(_, rest)| rest)),
        Input::Camera(Some(device)) => last(device),
        Input::Camera(None) => "camera".into(),
        Input::Launch(_) => "source".into(),
    };
    let harmless = |c: char| if c == '/' || c.is_control() { '_' } else { c };
    let name: String = name.chars().map(harmless).collect();
    if matches!(&*name, "" | "." | "..") { "video".into() } else { name }
}

/// A name without its last extension. Never `.` or `..`, which name folders.
pub(crate) fn stem(name: &str) -> &str {
    let stem = Path::new(name).file_stem().and_then(|stem| stem.to_str());
    stem.filter(|stem| !matches!(*stem, "." | "..")).unwrap_or(name)
}

/// Puts into the names of outputs what `{name}` stands for (`a.mp4`), `{stem}` (`a`) and `{index}`, the
/// video's place in the list, from 1 on.
///
/// In a pipeline's text each becomes part of one literal value. Elsewhere braces of the name itself become
/// parentheses where they would stand for something later: a time, or what appears in a clip.
///
/// # Errors
/// As [`give`](super::Field::give) and [`launch::fill`].
pub fn expand(request: &mut Request, name: &str, index: usize) -> Result<()> {
    let (in_address, without_times, index) = (in_address(name), without_times(name), index.to_string());
    for field in FIELDS.iter().filter(|field| field.spec.expands) {
        let texts = field.texts(request);
        let put_in = |text: &OsString| match text.to_str() {
            // A pipeline; after `@` it is the name of a file that holds one.
            Some(text) if field.name == "sink" && has_words(text) && !text.starts_with('@') => {
                launch::fill(&field.option(), text, &words(name, &index)).map(OsString::from)
            }
            Some(text) => {
                let name = if field.name == "events" { &in_address } else { &without_times };
                Ok(put_in(text, &words(name, &index)).into())
            }
            None => Ok(text.clone()),
        };
        let expanded = texts.iter().map(put_in).collect::<Result<Vec<_>>>()?;
        if expanded != texts {
            field.give(request, &expanded, &expanded.join(" ".as_ref()).to_string_lossy())?;
        }
    }
    if let Some(pattern) = &mut request.cut {
        // There `{name}` is the name of the track or template.
        let name = name.replace('{', "(").replace('}', ")");
        *pattern = put_in(pattern, &words(&name, &index)[1..]);
    }
    Ok(())
}

/// A name in which nothing stands for a time.
fn without_times(name: &str) -> String {
    name.replace("{date}", "(date)").replace("{time}", "(time)")
}

/// A name as a part of an address, where `#` and `?` would end the path and `%` begins an escape.
fn in_address(name: &str) -> String {
    name.replace('%', "%25").replace('#', "%23").replace('?', "%3F")
}

/// True if the text contains one of these words.
pub(crate) fn has_words(text: &str) -> bool {
    ["{name}", "{stem}", "{index}"].iter().any(|word| text.contains(word))
}

/// The words in braces, `{name}` first, and their values.
fn words<'a>(name: &'a str, index: &'a str) -> [(&'static str, &'a str); 3] {
    [("{name}", name), ("{stem}", stem(name)), ("{index}", index)]
}

/// Replaces these words by their values.
fn put_in(text: &str, words: &[(&str, &str)]) -> String {
    // One after the other, from the left: a name may have braces of its own.
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('{') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let word = words.iter().find(|(word, _)| rest.starts_with(word));
        let (word, value) = word.unwrap_or(&("{", "{"));
        out.push_str(value);
        rest = &rest[word.len()..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stem_never_names_the_folder_above() {
        for (name, expected) in
            [("a.b.mp4", "a.b"), ("...mp4", "...mp4"), ("..mp4", "..mp4"), (".mp4", ".mp4")]
        {
            assert_eq!(stem(name), expected);
        }
    }

    #[test]
    fn every_kind_of_input_has_a_name_that_a_file_can_have() {
        for (typed, name) in [
            ("videos/a b.mp4", "a b.mp4"),
            ("-", "stdin"),
            ("rtsp://me:secret@cam.local:554/yard/1?x=2", "1"),
            ("rtsp://cam.local", "cam.local"),
            ("file:///tmp/b.mkv", "b.mkv"),
            ("camera", "camera"),
            ("camera:/dev/video3", "video3"),
            ("seq/%04d.jpg", "seq"),
            ("seq/x*.png", "seq"),
            ("%d.png", "pictures"),
        ] {
            assert_eq!(name_of(&typed.parse().unwrap()), name, "{typed}");
        }
    }

    #[test]
    fn words_in_braces_are_put_into_names_of_outputs_and_other_braces_stay() {
        let mut request = Request::new("a.mp4").unwrap();
        request.results = vec!["out/{stem}.{index}.jsonl".into(), "{x}.csv".into()];
        request.output = vec!["{name}.mkv".into()];
        request.report = Some("{{stem}}.html".into());
        request.template = vec!["{stem}.png".into()];
        request.cut = Some("{stem}/{name}-{n}.mp4".into());
        expand(&mut request, "{index}.mp4", 7).unwrap();
        assert_eq!(request.results, ["out/{index}.7.jsonl", "{x}.csv"]);
        assert_eq!(request.output, [Path::new("{index}.mp4.mkv")]);
        assert_eq!(request.report.as_deref(), Some("{{index}}.html"));
        assert_eq!(request.template, ["{stem}.png"], "that is read, not written");
        assert_eq!(request.cut.as_deref(), Some("(index)/{name}-{n}.mp4"), "the name of what appears");
        let mut dated = Request::new("a.mp4").unwrap();
        dated.results = vec!["{date}-{name}.jsonl".into()];
        dated.cut = Some("{stem}-{n}.mkv".into());
        expand(&mut dated, "{date}{n}.mp4", 1).unwrap();
        assert_eq!(dated.results, ["{date}-(date){n}.mp4.jsonl"], "a name is put in once");
        assert_eq!(dated.cut.as_deref(), Some("(date)(n)-{n}.mkv"));
        request.events = vec!["mqtt://b/{stem}".into()];
        expand(&mut request, "50% a#b?.mp4", 7).unwrap();
        assert_eq!(request.events[0].as_str(), "mqtt://b/50%25 a%23b%3F");
    }
}
