//! `multipart/x-mixed-replace` (RFC 2046, 5.1): from the bytes of a response to its JPEG pictures.
//!
//! A picture is delivered with its last byte, known from its `Content-Length` or from the JPEG itself. The
//! parser does not wait for the boundary after it: many cameras send it with the next picture only.
//!
//! Servers differ, so a boundary may have more or fewer dashes than it should, lines may end in LF alone,
//! headers may be missing, and garbage may lie between the parts.

use super::jpeg_end::JpegEnd;

/// Maximum bytes of a picture; 8K from a camera has 10 MB.
const MAX_PART: usize = 64 << 20;

/// Maximum bytes of a part's headers.
const MAX_HEAD: usize = 1 << 16;

/// After so many parts without a JPEG the stream is of another kind.
const MAX_OTHER_PARTS: u32 = 10;

/// Dashes and line breaks around a boundary.
const MAX_DASHES: usize = 16;

/// The beginning of every JPEG picture.
const JPEG: [u8; 2] = [0xFF, 0xD8];

/// Extracts the pictures from a response.
#[derive(Debug, Default)]
pub(super) struct Parser {
    /// The boundary without the dashes around it; empty while it is not known.
    boundary: Vec<u8>,
    /// Received bytes that are not used yet.
    bytes: Vec<u8>,
    state: State,
    /// Bytes of the headers so far.
    head: usize,
    part: Part,
    /// Parts since the last JPEG that are no JPEG.
    others: u32,
}

#[derive(Debug, Default)]
enum State {
    /// In front of a boundary.
    #[default]
    Between,
    /// In the headers of a part.
    Head,
    /// In its picture. So many bytes of it were searched for a boundary.
    Picture(JpegEnd, usize),
    /// In a part that is no JPEG; so many bytes of it are left.
    Other(usize),
}

/// Headers of a part.
#[derive(Debug, Default)]
struct Part {
    length: Option<usize>,
    kind: Option<String>,
}

impl Parser {
    /// For a response whose `Content-Type` names that boundary, if it names one.
    pub(super) fn new(boundary: &str) -> Self {
        Self { boundary: boundary.trim().trim_matches('-').into(), ..Self::default() }
    }

    /// Reads some bytes of the response, and passes each picture that they complete to `deliver`, and true if
    /// the picture ends with its own end marker.
    ///
    /// # Errors
    /// If the response has something else than JPEG pictures, in words.
    pub(super) fn push(&mut self, bytes: &[u8], mut deliver: impl FnMut(&[u8], bool)) -> Result<(), String> {
        self.bytes.extend_from_slice(bytes);
        // Bytes before this are used.
        let mut start = 0;
        while let Some(used) = self.step(start, &mut deliver)? {
            start += used;
        }
        self.bytes.drain(..start);
        if self.bytes.len() > MAX_PART {
            return Err(format!("a part of it has more than {} MiB", MAX_PART >> 20));
        }
        Ok(())
    }

    /// Reads one line or one picture. Returns how many bytes it used, or `None` if more must come.
    fn step(&mut self, start: usize, deliver: &mut impl FnMut(&[u8], bool)) -> Result<Option<usize>, String> {
        let bytes = &self.bytes[start..];
        match &mut self.state {
            State::Other(left) => {
                let skipped = bytes.len().min(*left);
                *left -= skipped;
                if *left == 0 {
                    self.state = State::Between;
                }
                return Ok((skipped > 0).then_some(skipped));
            }
            State::Picture(end, searched) => {
                let mut length = end.look(bytes);
                let has_end = length.is_some();
                if let Some(told) = self.part.length {
                    length = length.or(Some(told).filter(|told| *told <= bytes.len()));
                } else if length.is_none()
                    && let Some(data) = end.data()
                {
                    length = boundary_after(bytes, data.max(*searched), &self.boundary);
                    // A boundary may have begun.
                    *searched = bytes.len().saturating_sub(self.boundary.len() + MAX_DASHES);
                }
                if let Some(length) = length {
                    deliver(&bytes[..length], has_end);
                    (self.state, self.others) = (State::Between, 0);
                }
                return Ok(length);
            }
            State::Between | State::Head => {}
        }
        // A picture may come where a boundary or a header should.
        if bytes.starts_with(&JPEG) {
            self.state = State::Picture(JpegEnd::default(), 0);
            return Ok(Some(0));
        }
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            if bytes.len() <= MAX_HEAD {
                return Ok(None);
            }
            // Garbage; its last byte may begin a picture.
            self.state = State::Between;
            return Ok(Some(bytes.len() - 1));
        };
        let line = bytes[..end].trim_ascii();
        if matches!(self.state, State::Between) {
            if let Some(boundary) = boundary_in(line, &self.boundary) {
                if self.boundary.is_empty() {
                    self.boundary = boundary.to_owned();
                }
                self.enter_head();
            } else if header(line).is_some_and(|(name, _)| name.to_ascii_lowercase().starts_with("content-"))
            {
                self.enter_head();
                return Ok(Some(0));
            }
            return Ok(Some(end + 1));
        }
        self.head += end + 1;
        if self.head > MAX_HEAD {
            return Err(format!("the headers of a part have more than {} KiB", MAX_HEAD >> 10));
        }
        if line.is_empty() && self.head > end + 1 {
            // The part is a JPEG if it begins as one, so its first bytes must be there.
            let Some(first) = bytes.get(end + 1..).filter(|rest| rest.len() >= JPEG.len()) else {
                self.head -= end + 1;
                return Ok(None);
            };
            // Some servers send more than one empty line.
            if !first.starts_with(&JPEG) && !first.starts_with(b"\r") && !first.starts_with(b"\n") {
                self.state = self.part.length.map_or(State::Between, State::Other);
                self.count_other()?;
            }
        } else if boundary_in(line, &self.boundary).is_some() {
            self.count_other()?;
            self.enter_head();
        } else if let Some((name, value)) = header(line) {
            match name.to_ascii_lowercase().as_str() {
                // A picture of less than this is a mistake of the server.
                "content-length" => self.part.length = value.parse().ok().filter(|length| *length > 3),
                "content-type" => self.part.kind = Some(value.chars().take(80).collect()),
                _ => {}
            }
        }
        Ok(Some(end + 1))
    }

    /// Counts a part that is no JPEG.
    fn count_other(&mut self) -> Result<(), String> {
        self.others += 1;
        let kind = self.part.kind.as_deref().unwrap_or("no JPEG");
        // Cameras mix sound with their pictures, but not pictures of two kinds.
        let is_other_picture = kind.starts_with("image/") && !kind.contains("jp");
        if self.others >= MAX_OTHER_PARTS || is_other_picture {
            return Err(format!("its parts are {kind}: only JPEG pictures can be read"));
        }
        Ok(())
    }

    fn enter_head(&mut self) {
        (self.state, self.head, self.part) = (State::Head, 0, Part::default());
    }
}

/// The boundary without its dashes, if the line ends in it.
fn boundary_in<'a>(line: &'a [u8], known: &[u8]) -> Option<&'a [u8]> {
    let line = trim_dashes(line);
    if known.is_empty() {
        let is_boundary = line.len() < 100 && !line.is_empty();
        return Some(trim_dashes(line)).filter(|_| is_boundary && !line.contains(&b':'));
    }
    let before = line.strip_suffix(known)?;
    (before.is_empty() || before.ends_with(b"--")).then_some(&line[before.len()..])
}

fn trim_dashes(line: &[u8]) -> &[u8] {
    let start = line.iter().position(|byte| *byte != b'-').unwrap_or(line.len());
    let end = line.iter().rposition(|byte| *byte != b'-').map_or(start, |last| last + 1);
    &line[start..end]
}

/// The number of bytes before the next boundary and its line break, if one begins at `from` or later.
fn boundary_after(bytes: &[u8], from: usize, boundary: &[u8]) -> Option<usize> {
    if boundary.is_empty() {
        return None;
    }
    let dashes = (from..bytes.len()).filter(|at| bytes[*at..].starts_with(b"\n--"));
    let is_boundary = |at: &usize| {
        let line = bytes[at + 1..].iter().take(boundary.len() + MAX_DASHES).copied().collect::<Vec<_>>();
        trim_dashes(&line).starts_with(boundary)
    };
    let at = dashes.into_iter().find(is_boundary)?;
    Some(if bytes[..at].ends_with(b"\r") { at - 1 } else { at })
}

/// Name and value of a header.
fn header(line: &[u8]) -> Option<(&str, &str)> {
    let (name, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
    Some((name.trim(), value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A minimal JPEG with a correct end, and a comment that looks like a line of the protocol.
    fn picture(number: u8) -> Vec<u8> {
        let mut bytes = vec![0xFF, 0xD8, 0xFF, 0xFE, 0, 16];
        bytes.extend(b"\r\n--frame\r\nx:y");
        bytes.truncate(20);
        bytes.extend([0xFF, 0xDA, 0, 3, number, number, 0xFF, 0, b'\n', 0xFF, 0xD9]);
        bytes
    }

    /// As `picture`, without its end, as some cameras send it.
    fn endless(number: u8) -> Vec<u8> {
        let mut bytes = picture(number);
        bytes.truncate(bytes.len() - 2);
        bytes[8..16].fill(b'.');
        bytes
    }

    /// Pictures that a parser takes out of a response that comes in pieces, and how many bytes had come.
    fn parsed(boundary: &str, response: &[u8], piece: usize) -> Result<Vec<(Vec<u8>, usize)>, String> {
        let (mut parser, mut found, mut came) = (Parser::new(boundary), Vec::new(), 0);
        for piece in response.chunks(piece) {
            came += piece.len();
            parser.push(piece, |picture, has_end| {
                assert_eq!(has_end, picture.ends_with(&[0xFF, 0xD9]));
                found.push((picture.to_vec(), came));
            })?;
        }
        Ok(found)
    }

    #[test]
    fn servers_of_all_kinds_are_understood_in_pieces_of_any_size() {
        let length = picture(0).len();
        let with_length = format!("Content-Length: {length}\r\n");
        let heads = [
            ("frame", format!("--frame\r\nContent-Type: image/jpeg\r\n{with_length}\r\n"), "\r\n"),
            // The boundary is named with its dashes, has too many, or too few.
            ("--frame", format!("--frame\r\nContent-Type: image/jpeg\r\n{with_length}\r\n"), "\r\n"),
            ("--frame", format!("----frame\r\n{with_length}\r\n"), "\r\n"),
            ("frame", "frame\r\nContent-Type: image/jpeg\r\n\r\n".into(), "\r\n"),
            // Lines end in LF alone, there is no length, no type, no header at all.
            ("frame", format!("--frame\ncontent-type:image/jpeg\ncontent-length:{length}\n\n"), "\n"),
            ("frame", "--frame\r\nContent-Type: image/jpeg\r\n\r\n".into(), "\r\n"),
            ("frame", "--frame\nX-Timestamp: 0.123456\n\n".into(), ""),
            ("frame", "--frame\r\n\r\n".into(), "\r\n"),
            ("frame", "--frame\r\n".into(), "\r\n"),
            // The boundary is not named, or another one is, or it comes only between pictures.
            ("", format!("--frame\r\n{with_length}\r\n"), "\r\n"),
            ("other", format!("--frame\r\n{with_length}X-Extra: a\r\n\r\n"), "\r\n"),
            ("frame", format!("{with_length}\r\n"), "\r\n--frame\r\n"),
            // Wrong lengths, too many empty lines, garbage in between.
            ("frame", "--frame\r\nContent-Length: 0\r\n\r\n".into(), "\r\n"),
            ("frame", "--frame\r\nContent-Length: 99999\r\n\r\n".into(), "\r\n"),
            ("frame", format!("\r\n\r\n--frame\r\n{with_length}\r\n\r\n"), "\0\0\0 \n\0"),
        ];
        for (boundary, head, tail) in heads {
            let (mut response, mut ends) = (Vec::new(), Vec::new());
            for number in 0..3 {
                response.extend(head.as_bytes());
                response.extend(picture(number));
                ends.push(response.len());
                response.extend(tail.as_bytes());
            }
            for piece in 1..response.len() {
                let found = parsed(boundary, &response, piece).unwrap();
                let expected = (0..3)
                    .zip(&ends)
                    .map(|(number, end)| (picture(number), end.next_multiple_of(piece).min(response.len())));
                assert_eq!(found, expected.collect::<Vec<_>>(), "{boundary} {head:?}, pieces of {piece}");
            }
        }
    }

    #[test]
    fn a_picture_without_an_end_ends_with_its_length_or_the_next_boundary() {
        for (head, waits) in [
            (format!("--frame\r\nContent-Length: {}\r\n\r\n", endless(0).len()), false),
            ("--frame\r\nContent-Type: image/jpeg\r\n\r\n".to_owned(), true),
        ] {
            let (mut response, mut ends) = (Vec::new(), Vec::new());
            for number in 0..4 {
                response.extend(head.as_bytes());
                if waits && number > 0 {
                    ends.push(response.len());
                }
                response.extend(endless(number));
                if !waits {
                    ends.push(response.len());
                }
                response.extend(b"\r\n");
            }
            for piece in 1..40 {
                let found = parsed("frame", &response, piece).unwrap();
                assert_eq!(found.len(), ends.len(), "{head:?}, pieces of {piece}");
                for (((picture, came), number), end) in found.iter().zip(0..).zip(&ends) {
                    assert_eq!(picture, &endless(number));
                    assert!(*came <= end.next_multiple_of(piece), "{came} {end}");
                }
            }
        }
    }

    #[test]
    fn parts_that_are_no_jpeg_are_skipped_and_a_stream_of_them_is_refused() {
        let mut response =
            b"--b\r\nContent-Type: audio/basic\r\nContent-Length: 5\r\n\r\n\n--b\n\r\n".to_vec();
        response.extend(b"--b\r\nContent-Type: text/plain\r\n\r\nwords\r\n--b\r\n\r\n");
        response.extend(picture(1));
        for piece in 1..response.len() {
            assert_eq!(parsed("b", &response, piece).unwrap().len(), 1, "pieces of {piece}");
        }
        let page = b"--b\r\nContent-Type: text/html\r\n\r\n<p>no\r\n".repeat(12);
        let error = parsed("b", &page, 7).unwrap_err();
        assert_eq!(error, "its parts are text/html: only JPEG pictures can be read");
        let error = parsed("b", b"--b\nContent-Type: image/png\n\n\x89PNG", 64).unwrap_err();
        assert!(error.contains("image/png"), "{error}");
    }

    #[test]
    fn a_stream_without_an_end_is_given_up_before_memory_is() {
        let mut parser = Parser::new("frame");
        let mut pushed = parser.push(b"--frame\r\n\r\n\xFF\xD8\xFF\xDA\0\x02", |_, _| panic!("no picture"));
        for _ in 0..=MAX_PART >> 20 {
            pushed = pushed.and_then(|()| parser.push(&vec![7; 1 << 20], |_, _| panic!("no picture")));
        }
        assert_eq!(pushed.unwrap_err(), "a part of it has more than 64 MiB");
        let mut parser = Parser::new("frame");
        for _ in 0..100 {
            parser.push(&[7; 4096], |_, _| panic!("no picture")).unwrap();
        }
        assert!(parser.bytes.len() <= 2 * MAX_HEAD, "{}", parser.bytes.len());
        let head =
            b"--frame\r\n".iter().chain(b"X: y\r\n".repeat(20_000).iter()).copied().collect::<Vec<_>>();
        assert!(parser.push(&head, |_, _| panic!("no picture")).unwrap_err().contains("64 KiB"));
    }
}
