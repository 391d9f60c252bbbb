//! Words as they are typed in a POSIX shell.

/// A word that a shell passes on unchanged.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:,@%=".contains(c);
    // Alone it stands between elements of a pipeline, and means nothing to a shell there.
    if word == "!" || (!word.is_empty() && word.chars().all(is_plain)) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// The name of a file or folder as a word that no program takes for an option.
pub fn path(name: &str) -> String {
    if name.starts_with('-') { quoted(&format!("./{name}")) } else { quoted(name) }
}

/// Returns a line that a shell splits into these words.
pub fn line<T: AsRef<str>>(words: &[T]) -> String {
    words.iter().map(|word| quoted(word.as_ref())).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_makes_the_same_words_of_a_line() {
        let words = [
            "plain",
            "",
            "!",
            "a!b",
            "two words",
            "it's",
            "$(rm)",
            "`x`",
            "~",
            "*",
            "a\\b",
            "#1",
            "a=b",
            "é\nx",
            ";",
        ];
        let script = format!("printf '%s\\0' {}", line(&words));
        let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        let made = String::from_utf8(output.stdout).unwrap();
        assert_eq!(made.split_terminator('\0').collect::<Vec<_>>(), words);
    }
}
