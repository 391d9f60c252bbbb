//! Names of numbered files: patterns, globs, and natural order.

use std::cmp::Ordering;
use std::ffi::OsStr;

/// A number in a name, with the text before and after it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NumberedName {
    pub(super) before: String,
    pub(super) after: String,
    /// Minimum digits.
    pub(super) width: usize,
}

impl NumberedName {
    pub(crate) fn name(&self, value: u64) -> String {
        format!("{}{value:0width$}{}", self.before, self.after, width = self.width)
    }

    /// The number in a name, if the name matches.
    pub(crate) fn value(&self, name: &str) -> Option<u64> {
        let digits = name.strip_prefix(&*self.before)?.strip_suffix(&*self.after)?;
        let value = digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        (self.name(value) == name).then_some(value)
    }
}

/// Parses a name with one `%d` or `%0Nd`, in which `%%` is a percent sign; `None` if it has none or two.
pub(crate) fn number_of(pattern: &str) -> Option<NumberedName> {
    let mut found = None;
    let mut rest = pattern;
    let mut literal = String::new();
    while let Some((before, after)) = rest.split_once('%') {
        literal.push_str(before);
        if let Some(after) = after.strip_prefix('%') {
            literal.push('%');
            rest = after;
            continue;
        }
        let end = after.find('d')?;
        let width = match &after[..end] {
            "" => 1,
            digits => digits.strip_prefix('0')?.parse().ok().filter(|width| (1..=18).contains(width))?,
        };
        if found.is_some() {
            return None;
        }
        found = Some((std::mem::take(&mut literal), width));
        rest = &after[end + 1..];
    }
    literal.push_str(rest);
    found.map(|(before, width)| NumberedName { before, after: literal, width })
}

/// True if a name matches a glob: `*`, `?` and `[a-z]`, as a shell has them.
pub(super) fn matches_glob(glob: &str, name: &str) -> bool {
    fn matches(glob: &[char], name: &[char]) -> bool {
        match glob {
            [] => name.is_empty(),
            ['*', rest @ ..] => (0..=name.len()).any(|skipped| matches(rest, &name[skipped..])),
            ['?', rest @ ..] => !name.is_empty() && matches(rest, &name[1..]),
            ['[', rest @ ..] => {
                let Some(end) = rest.iter().skip(1).position(|c| *c == ']').map(|at| at + 1) else {
                    return name.first() == Some(&'[') && matches(rest, &name[1..]);
                };
                let (set, rest) = (&rest[..end], &rest[end + 1..]);
                let is_inverted = matches!(set.first(), Some('!' | '^'));
                let set = if is_inverted { &set[1..] } else { set };
                let Some(c) = name.first() else { return false };
                let mut is_in = false;
                let mut at = 0;
                while at < set.len() {
                    if at + 2 < set.len() && set[at + 1] == '-' {
                        is_in |= (set[at]..=set[at + 2]).contains(c);
                        at += 3;
                    } else {
                        is_in |= set[at] == *c;
                        at += 1;
                    }
                }
                is_in != is_inverted && matches(rest, &name[1..])
            }
            [c, rest @ ..] => name.first() == Some(c) && matches(rest, &name[1..]),
        }
    }
    // Each star multiplies the work: two of them in a row are one.
    let mut glob: Vec<char> = glob.chars().collect();
    glob.dedup_by(|a, b| *a == '*' && *b == '*');
    matches(&glob, &name.chars().collect::<Vec<_>>())
}

/// Natural order: `a2` before `a10`.
pub(super) fn natural(a: &OsStr, b: &OsStr) -> Ordering {
    let (a, b) = (a.as_encoded_bytes(), b.as_encoded_bytes());
    let (mut i, mut j) = (0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        if x.is_ascii_digit() && y.is_ascii_digit() {
            let run = |bytes: &[u8], from: usize| {
                let length = bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                let zeros = bytes[from..from + length].iter().take_while(|byte| **byte == b'0').count();
                (from + zeros, from + length)
            };
            let ((from_a, to_a), (from_b, to_b)) = (run(a, i), run(b, j));
            let order =
                (to_a - from_a).cmp(&(to_b - from_b)).then_with(|| a[from_a..to_a].cmp(&b[from_b..to_b]));
            if order.is_ne() {
                return order;
            }
            (i, j) = (to_a, to_b);
        } else if x == y {
            (i, j) = (i + 1, j + 1);
        } else {
            return x.cmp(y);
        }
    }
    (a.len() - i).cmp(&(b.len() - j)).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ordered_as_people_count() {
        let mut names = ["f10.png", "f9.png", "f009b.png", "g1", "f010.png", "e", "f1.png"];
        names.sort_by(|a, b| natural(a.as_ref(), b.as_ref()));
        assert_eq!(names, ["e", "f1.png", "f9.png", "f009b.png", "f010.png", "f10.png", "g1"]);
    }

    #[test]
    fn globs_mean_what_they_mean_in_a_shell() {
        for (glob, name, expected) in [
            ("*.png", "a.png", true),
            ("*.png", "a.png.txt", false),
            ("img_??.jpg", "img_07.jpg", true),
            ("img_??.jpg", "img_7.jpg", false),
            ("[a-c]*[!0-9].bmp", "b1x.bmp", true),
            ("[a-c]*[!0-9].bmp", "b11.bmp", false),
            ("**a**", "banana", true),
            ("[", "[", true),
        ] {
            assert_eq!(matches_glob(glob, name), expected, "{glob} {name}");
        }
    }

    #[test]
    fn patterns_have_one_number() {
        let number = number_of("a%%b_%04d.jpg").unwrap();
        assert_eq!((number.name(7).as_str(), number.name(12345).as_str()), ("a%b_0007.jpg", "a%b_12345.jpg"));
        assert_eq!((number.value("a%b_0007.jpg"), number.value("a%b_07.jpg")), (Some(7), None));
        assert_eq!(number_of("%d").unwrap().name(12), "12");
        for none in ["a.jpg", "100%", "%s", "%d-%d", "%4d", "%0d%"] {
            assert!(number_of(none).is_none(), "{none}");
        }
    }
}
