//! gst-launch text, word by word.

/// gst-launch text cut at white space, but not inside quotes nor after a backslash. Nothing is unquoted.
pub(super) fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match quote {
            None if is_space(c) => {
                words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
                continue;
            }
            // Inside a word an apostrophe is just a character.
            None if matches!(c, '"' | '\'') && (word.is_empty() || word.ends_with(['=', ','])) => {
                quote = Some(c);
            }
            Some(open) if c == open => quote = None,
            _ => {}
        }
        word.push(c);
        if c == '\\' {
            word.extend(chars.next());
        }
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

/// White space as GStreamer's parser knows it: an ideographic space is a character like others.
fn is_space(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\x0b'
}

/// Where the element of that name begins (its factory) and where its `name=` is.
pub(super) fn find(words: &[String], element: &str) -> Option<(usize, usize)> {
    let (plain, quoted) = (format!("name={element}"), format!("name=\"{element}\""));
    let at = words.iter().position(|w| *w == plain || *w == quoted)?;
    let start = words[..at].iter().rposition(|w| !w.contains('='))?;
    Some((start, at))
}

/// The words of the element of that name: where its factory is, and where the next thing begins.
pub(super) fn span(words: &[String], element: &str) -> Option<(usize, usize)> {
    let (start, _) = find(words, element)?;
    let properties = words[start + 1..].iter().take_while(|word| word.contains('=')).count();
    Some((start, start + 1 + properties))
}

/// Where the element of that name is given the property.
pub(super) fn typed(words: &[String], element: &str, property: &str) -> Option<usize> {
    let (factory, _) = find(words, element)?;
    let mut given =
        words.iter().enumerate().skip(factory + 1).map_while(|(at, w)| Some((at, w.split_once('=')?.0)));
    given.find(|(_, name)| *name == property).map(|(at, _)| at)
}
