//! Results files of runs that last: continued by the next run (`--append`), begun again at a size or a time
//! (`--rotate`), the oldest removed (`--keep`).
//!
//! Names: `{date}` is `2026-11-26` and `{time}` is `130405`, both in UTC, so that no hour comes twice, when a
//! file is begun. A name that is taken gets a number in front of its ending: `cam.0002.jsonl`. Nothing that
//! exists is overwritten.
//!
//! Each line is handed to the system as soon as it is there, so a process that is killed leaves half a line
//! at most, and only if it was killed while it wrote. Before such a file is continued its half line becomes a
//! record of its own, `torn`, in JSON Lines, or is removed and logged in CSV. A file is locked while it is
//! written, so that two processes do not mix their lines, and `--keep` of one removes no file of the other.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;
use time::OffsetDateTime;

use super::{Lines, jsonl};
use crate::config::Rotate;
use crate::error::{Error, Result};
use crate::text;

/// Longest line that is repaired, in bytes: it is held in memory. A longer one is no line of results.
const MOST_TORN: u64 = 16 << 20;

/// Paths that are remembered, of the files begun last: a camera's run may begin one each minute for years.
const MOST_LISTED: usize = 256;

/// Characters of a line that was cut off that a message shows.
const MOST_SHOWN: usize = 4096;

/// Writes results files of runs that last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rolling {
    /// Existing files are continued.
    pub append: bool,
    /// When the next file begins.
    pub rotate: Option<Rotate>,
    /// Files that are kept, the current one included.
    pub keep: Option<u32>,
}

impl Rolling {
    /// True if no file that exists is overwritten.
    pub fn keeps_files(self) -> bool {
        self.append || self.rotate.is_some()
    }
}

/// Replaces `{date}` and `{time}` in a name, in UTC.
pub fn dated(name: &str, now: SystemTime) -> String {
    let now = OffsetDateTime::from(now);
    let date = format!("{:04}-{:02}-{:02}", now.year(), u8::from(now.month()), now.day());
    let time = format!("{:02}{:02}{:02}", now.hour(), now.minute(), now.second());
    name.replace("{date}", &date).replace("{time}", &time)
}

/// True if a name has a word that stands for a time.
pub fn is_dated(name: &str) -> bool {
    name.contains("{date}") || name.contains("{time}")
}

/// Refuses a name that cannot be that of several files.
pub(super) fn check_name(name: &str) -> Result<()> {
    Pattern::of(name).map(|_| ())
}

/// The kind of lines in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineKind {
    /// JSON, the first one with this beginning.
    Json(&'static str),
    /// Rows of CSV under this header.
    Rows(&'static str),
}

impl LineKind {
    /// The bytes that each file begins with.
    fn beginning(self) -> &'static str {
        match self {
            Self::Json(beginning) | Self::Rows(beginning) => beginning,
        }
    }
}

/// Files of one naming, one after the other.
pub(super) struct Files {
    pattern: Pattern,
    kind: LineKind,
    rolling: Rolling,
    clock: fn() -> SystemTime,
    current: Option<Current>,
    /// The files begun last, without those that were removed.
    written: Vec<PathBuf>,
}

/// The file that is written.
struct Current {
    path: PathBuf,
    file: File,
    /// Bytes that were written as whole lines.
    length: u64,
    /// The hour or day in which it was begun.
    period: u64,
}

/// A name with words for times, and where its number goes.
#[derive(Debug, Clone)]
struct Pattern {
    folder: PathBuf,
    stem: String,
    ending: String,
}

/// The times and the number in a file's name. Keys are ordered as files were begun.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    times: String,
    number: u32,
}

impl Pattern {
    fn of(name: &str) -> Result<Self> {
        let path = Path::new(name);
        let file = path.file_name().map_or_else(String::new, |file| file.to_string_lossy().into_owned());
        let folder = crate::files::folder_of(path);
        if is_dated(&folder.to_string_lossy()) {
            let expected = "{date} and {time} stand in the file's name, not in that of a folder";
            return Err(Error::value("results", name, expected));
        }
        if file.contains("{time}") && !file.contains("{date}") {
            let expected = format!(
                "{{time}} without {{date}} is the same every day, so the newest file is not known: use {}",
                file.replacen("{time}", "{date}T{time}", 1)
            );
            return Err(Error::value("results", name, expected));
        }
        let lower = file.to_ascii_lowercase();
        let endings = [".intervals.jsonl", ".intervals.csv", ".jsonl", ".csv"];
        let ending = endings.iter().find(|ending| lower.ends_with(**ending)).map_or(0, |ending| ending.len());
        let (stem, ending) = file.split_at(file.len() - ending);
        Ok(Self { folder: folder.to_owned(), stem: stem.to_owned(), ending: ending.to_owned() })
    }

    /// The name of a file that is begun now, if its number is that; the first one has none.
    fn path(&self, number: u32, now: SystemTime) -> PathBuf {
        let number = if number < 2 { String::new() } else { format!(".{number:04}") };
        self.folder.join(format!("{}{number}{}", dated(&self.stem, now), self.ending))
    }

    /// The key of a name, if it is one of these.
    fn key(&self, name: &str) -> Option<Key> {
        let name = name.strip_suffix(&*self.ending)?;
        let whole = |name: &str, number| Some(Key { times: times_in(&self.stem, name)?, number });
        let (front, digits) = name.rsplit_once('.').unwrap_or((name, ""));
        // Only as `path` writes it.
        let is_number = |number: &u32| *number > 1 && format!("{number:04}") == digits;
        let numbered = || whole(front, digits.parse().ok().filter(is_number)?);
        numbered().or_else(|| whole(name, 1))
    }

    /// Returns the files there that were begun by this naming, in their order. Where the folder cannot be
    /// listed, a warning says so: nothing is overwritten without the list, so results continue.
    fn existing(&self, kind: LineKind) -> Vec<(Key, PathBuf)> {
        let mut found = Vec::new();
        let not_listed = |error: &io::Error| {
            let folder = text::path(&self.folder);
            tracing::warn!("{folder}: earlier results files are not found, and none is removed: {error}");
        };
        let entries = match self.folder.read_dir() {
            Ok(entries) => entries,
            Err(error) => {
                not_listed(&error);
                return found;
            }
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                // Part of a list has an oldest file that may not be the oldest.
                Err(error) => {
                    not_listed(&error);
                    return Vec::new();
                }
            };
            let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
            let key = entry.file_name().to_str().and_then(|name| self.key(name));
            // Another program's file may have such a name.
            if let Some(key) = key.filter(|_| is_file && begins_with(&entry.path(), kind.beginning())) {
                found.push((key, entry.path()));
            }
        }
        found.sort();
        found
    }
}

/// The digits of the times in a name, the date before the time; `None` if it is not such a name.
fn times_in(pattern: &str, name: &str) -> Option<String> {
    let (mut date, mut time) = (String::new(), String::new());
    let (mut pattern, mut name) = (pattern, name);
    while let Some(next) = pattern.chars().next() {
        let words: [(&str, &str, &mut String); 2] =
            [("{date}", "0000-00-00", &mut date), ("{time}", "000000", &mut time)];
        let word = words.into_iter().find(|(word, ..)| pattern.starts_with(word));
        if let Some((word, shape, kept)) = word {
            let text = name.get(..shape.len())?;
            let fits = |(a, b): (u8, u8)| if a == b'0' { b.is_ascii_digit() } else { a == b };
            shape.bytes().zip(text.bytes()).all(fits).then(|| kept.push_str(text))?;
            (pattern, name) = (&pattern[word.len()..], &name[shape.len()..]);
        } else {
            name = name.strip_prefix(next)?;
            pattern = &pattern[next.len_utf8()..];
        }
    }
    name.is_empty().then(|| date + &time)
}

fn begins_with(path: &Path, beginning: &str) -> bool {
    let mut bytes = vec![0; beginning.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut bytes)).is_ok() && bytes == beginning.as_bytes()
}

impl Files {
    /// Files of that naming. None is opened yet.
    ///
    /// # Errors
    /// `Value` if the name cannot be that of several files.
    pub(super) fn new(name: &str, kind: LineKind, rolling: Rolling) -> Result<Self> {
        let pattern = Pattern::of(name)?;
        Ok(Self { pattern, kind, rolling, clock: SystemTime::now, current: None, written: Vec::new() })
    }

    /// The name of the first file that is written, as far as that is known before.
    pub(super) fn first(&self) -> PathBuf {
        self.pattern.path(1, (self.clock)())
    }

    fn period(&self, at: SystemTime) -> u64 {
        let seconds = at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        match self.rolling.rotate {
            Some(Rotate::Hour) => seconds / 3600,
            Some(Rotate::Day) => seconds / 86400,
            Some(Rotate::Size(_)) | None => 0,
        }
    }

    /// Opens the file to continue, or else a new one.
    fn open(&mut self) -> io::Result<()> {
        let now = (self.clock)();
        let existing = self.pattern.existing(self.kind);
        if self.rolling.append && self.current.is_none() && self.written.is_empty() {
            let goes_on = match self.rolling.rotate {
                // A name without a rotation is that of one file.
                None => Some(self.pattern.path(1, now)).filter(|path| path.symlink_metadata().is_ok()),
                Some(rotate) => existing.last().map(|(_, path)| path.clone()).filter(|path| {
                    let Ok(about) = path.metadata() else { return false };
                    let begun = about.modified().unwrap_or(now);
                    match rotate {
                        Rotate::Size(most) => about.len() < most,
                        Rotate::Hour | Rotate::Day => self.period(begun) == self.period(now),
                    }
                }),
            };
            if let Some(path) = goes_on {
                return self.go_on(path, now);
            }
        }
        // Behind those of the same time, also if the first of them were removed.
        let first = self.pattern.path(1, now);
        let key = first.file_name().and_then(|name| self.pattern.key(name.to_str()?));
        let others =
            existing.iter().filter(|(other, _)| key.as_ref().is_some_and(|key| key.times == other.times));
        let mut number = others.map(|(other, _)| other.number).max().unwrap_or(0) + 1;
        let (path, file) = loop {
            let path = self.pattern.path(number, now);
            match OpenOptions::new().append(true).read(true).create_new(true).open(&path) {
                Ok(file) => break (path, file),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1_000_000 => {
                    number += 1;
                }
                Err(error) => return Err(error),
            }
        };
        lock(&file)?;
        self.begin(path, file, 0, now);
        self.remove_oldest(existing);
        Ok(())
    }

    /// Continues an existing file.
    fn go_on(&mut self, path: PathBuf, now: SystemTime) -> io::Result<()> {
        if !path.metadata()?.is_file() {
            // A pipe has nothing to continue.
            let file = OpenOptions::new().write(true).open(&path)?;
            self.begin(path, file, 0, now);
            return Ok(());
        }
        let mut file = OpenOptions::new().append(true).read(true).open(&path)?;
        lock(&file)?;
        // `--keep` of another process removes files under their lock.
        if path.symlink_metadata().is_err() {
            return Err(io::Error::other("another process has just removed it: start the run again"));
        }
        let length = file.metadata()?.len();
        if length > 0
            && !begins_with(&path, self.kind.beginning())
            && !self.is_torn_start(&mut file, length)?
        {
            return Err(io::Error::other(format!(
                "it does not begin with {:?}, so it is not continued: give another name",
                self.kind.beginning().trim_end()
            )));
        }
        let length = repair(&mut file, &path, self.kind)?;
        self.begin(path, file, length, now);
        Ok(())
    }

    /// True if a file has no more than a part of the first line.
    fn is_torn_start(&self, file: &mut File, length: u64) -> io::Result<bool> {
        let beginning = self.kind.beginning().as_bytes();
        if length >= beginning.len() as u64 {
            return Ok(false);
        }
        let mut bytes = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut bytes)?;
        Ok(beginning.starts_with(&bytes))
    }

    fn begin(&mut self, path: PathBuf, file: File, length: u64, now: SystemTime) {
        if self.written.len() == MOST_LISTED {
            self.written.remove(0);
        }
        self.written.push(path.clone());
        self.current = Some(Current { path, file, length, period: self.period(now) });
    }

    /// Removes the oldest files of the naming, but never the current one nor one that another process writes.
    /// A file that cannot be removed is reported: it costs space, and an error would cost the results that
    /// follow.
    fn remove_oldest(&mut self, mut existing: Vec<(Key, PathBuf)>) {
        let Some(keep) = self.rolling.keep else { return };
        existing.retain(|(_, path)| self.current.as_ref().is_none_or(|current| current.path != *path));
        let too_many = (existing.len() + 1).saturating_sub(keep.max(1) as usize);
        for (_, path) in existing.iter().take(too_many) {
            // Held until the file is removed, so that no process continues it meanwhile.
            let file = OpenOptions::new().read(true).write(true).open(path);
            if file.as_ref().is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock))) {
                tracing::debug!("--keep {keep}: another process writes {}", text::path(path));
                continue;
            }
            match std::fs::remove_file(path) {
                Ok(()) => tracing::info!("removed {}: {keep} are kept", text::path(path)),
                // Another program removed it, such as logrotate.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::warn!("--keep {keep}: {} cannot be removed: {error}", text::path(path));
                    continue;
                }
            }
            self.written.retain(|written| written != path);
        }
    }

    fn current(&mut self) -> io::Result<&mut Current> {
        if self.current.is_none() {
            self.open()?;
        }
        self.current.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// A line that was cut off.
#[derive(Serialize)]
struct Torn<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'a str,
}

fn lock(file: &File) -> io::Result<()> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            Err(io::Error::other("another process writes it: give each run its own name"))
        }
        // Some file systems have no locks.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

/// Ends a file with a whole line, and returns its length.
///
/// # Errors
/// The system's; another one if more than [`MOST_TORN`] bytes follow the last line break.
fn repair(file: &mut File, path: &Path, kind: LineKind) -> io::Result<u64> {
    const PIECE: u64 = 1 << 16;
    let length = file.metadata()?.len();
    // The place behind the last line break.
    let mut end = length;
    let whole = loop {
        let start = end.saturating_sub(PIECE);
        let mut piece = vec![0; (end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut piece)?;
        if let Some(at) = piece.iter().rposition(|&byte| byte == b'\n') {
            break start + at as u64 + 1;
        }
        if length - start > MOST_TORN {
            return Err(io::Error::other(format!(
                "no line break in its last {} MiB, so it is not continued: give another name",
                MOST_TORN >> 20
            )));
        }
        if start == 0 {
            break 0;
        }
        end = start;
    };
    if whole == length {
        return Ok(length);
    }
    let mut torn = Vec::new();
    file.seek(SeekFrom::Start(whole))?;
    file.read_to_end(&mut torn)?;
    let is_whole = match kind {
        LineKind::Json(_) => {
            serde_json::from_slice::<serde_json::Value>(&torn).is_ok_and(|value| value.is_object())
        }
        // A number may have lost its last digits.
        LineKind::Rows(_) => false,
    };
    let shown = String::from_utf8_lossy(&torn).into_owned();
    if is_whole {
        file.write_all(b"\n")?;
    } else {
        tracing::warn!(
            "{}: its last line was cut off when it was written, at {:?}",
            text::path(path),
            text::in_one_line(&shown.chars().take(MOST_SHOWN).collect::<String>())
        );
        let mut line = Vec::new();
        // A file without its first line gets that from this run.
        if matches!(kind, LineKind::Json(_)) && whole > 0 {
            jsonl::write_line(&mut line, &Torn { kind: "torn", text: &shown })?;
        }
        file.set_len(whole)?;
        file.write_all(&line)?;
    }
    Ok(file.metadata()?.len())
}

impl Write for Files {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.current()?.file.write(bytes)
    }

    /// Writes all or nothing: a full disk accepts a part of a line.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let current = self.current()?;
        let written = current.file.write_all(bytes);
        match written {
            Ok(()) => current.length += bytes.len() as u64,
            Err(_) => drop(current.file.set_len(current.length)),
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        // Pipes have no disk.
        if let Some(current) = &self.current {
            let _ = current.file.sync_data();
        }
        Ok(())
    }
}

impl Lines for Files {
    fn length(&mut self) -> io::Result<u64> {
        Ok(self.current()?.length)
    }

    fn first_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        BufReader::new(File::open(&self.current()?.path)?).read_line(&mut line)?;
        Ok(line)
    }

    fn roll(&mut self) -> io::Result<bool> {
        let now = (self.clock)();
        let Some(current) = &self.current else { return Ok(false) };
        let is_due = match self.rolling.rotate {
            Some(Rotate::Size(most)) => current.length >= most,
            Some(Rotate::Hour | Rotate::Day) => self.period(now) != current.period,
            None => false,
        };
        if is_due {
            self.flush()?;
            self.open()?;
        }
        Ok(is_due)
    }

    fn files(&self) -> Option<Vec<PathBuf>> {
        Some(self.written.iter().filter(|path| path.exists()).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;

    const JSON: LineKind = LineKind::Json("{\"type\":\"run\"");
    const RUN: &[u8] = b"{\"type\":\"run\",\"n\":1}\n";

    thread_local! {
        static NOW: Cell<u64> = const { Cell::new(0) };
    }

    fn clock() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(NOW.get())
    }

    /// 2026-11-26, 23:59:58 UTC.
    const EVENING: u64 = 1_795_737_598;

    fn files(folder: &Path, name: &str, rolling: Rolling) -> Files {
        let name = folder.join(name);
        Files { clock, ..Files::new(name.to_str().unwrap(), JSON, rolling).unwrap() }
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = folder
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn names_have_the_time_at_which_each_file_was_begun() {
        NOW.set(EVENING);
        assert_eq!(dated("cam-{date}T{time}Z.jsonl", clock()), "cam-2026-11-26T235958Z.jsonl");
        let folder = tempfile::tempdir().unwrap();
        let rolling = Rolling { rotate: Some(Rotate::Day), ..Rolling::default() };
        let mut files = files(folder.path(), "cam-{date}.jsonl", rolling);
        files.write_all(RUN).unwrap();
        assert!(!files.roll().unwrap());
        NOW.set(EVENING + 2);
        assert!(files.roll().unwrap());
        files.write_all(RUN).unwrap();
        assert_eq!(names(folder.path()), ["cam-2026-11-26.jsonl", "cam-2026-11-27.jsonl"]);
    }

    #[test]
    fn a_size_begins_numbered_files_and_the_oldest_of_them_alone_are_removed() {
        NOW.set(EVENING);
        let folder = tempfile::tempdir().unwrap();
        // Other files with names that look alike stay: they begin otherwise, or are no files.
        std::fs::write(folder.path().join("cam.0099.jsonl"), "not ours\n").unwrap();
        std::fs::create_dir(folder.path().join("cam.0098.jsonl")).unwrap();
        std::fs::write(folder.path().join("cam-2.jsonl"), RUN).unwrap();
        std::fs::write(folder.path().join("cam.00007.jsonl"), RUN).unwrap();
        std::fs::write(folder.path().join("cam.0001.jsonl"), RUN).unwrap();
        std::os::unix::fs::symlink("cam-2.jsonl", folder.path().join("cam.0097.jsonl")).unwrap();
        let rolling = Rolling { rotate: Some(Rotate::Size(4096)), keep: Some(2), ..Rolling::default() };
        let mut files = files(folder.path(), "cam.jsonl", rolling);
        for _ in 0..4 {
            files.write_all(RUN).unwrap();
            files.write_all(&[b'x'; 4096]).unwrap();
            assert!(files.roll().unwrap());
        }
        files.write_all(RUN).unwrap();
        let others = [
            "cam-2.jsonl",
            "cam.00007.jsonl",
            "cam.0001.jsonl",
            "cam.0097.jsonl",
            "cam.0098.jsonl",
            "cam.0099.jsonl",
        ];
        let mut expected = vec!["cam.0004.jsonl", "cam.0005.jsonl"];
        expected.extend(others);
        expected.sort_unstable();
        assert_eq!(names(folder.path()), expected);
        assert_eq!(Lines::files(&files).unwrap().len(), 2);
    }

    #[test]
    fn a_restart_overwrites_nothing_and_goes_on_with_the_newest_if_asked() {
        NOW.set(EVENING);
        let folder = tempfile::tempdir().unwrap();
        let size = Some(Rotate::Size(4096));
        for _ in 0..2 {
            files(folder.path(), "a.jsonl", Rolling { rotate: size, ..Rolling::default() })
                .write_all(RUN)
                .unwrap();
        }
        assert_eq!(names(folder.path()), ["a.0002.jsonl", "a.jsonl"]);
        let rolling = Rolling { append: true, rotate: size, keep: None };
        let mut again = files(folder.path(), "a.jsonl", rolling);
        assert_eq!(again.length().unwrap(), RUN.len() as u64);
        again.write_all(b"{}\n").unwrap();
        assert_eq!(std::fs::read(folder.path().join("a.0002.jsonl")).unwrap(), [RUN, b"{}\n"].concat());
        // While one process writes a file no other does.
        let error = files(folder.path(), "a.jsonl", rolling).write_all(RUN).unwrap_err().to_string();
        assert!(error.contains("another process"), "{error}");
    }

    #[test]
    fn a_torn_last_line_is_ended_before_the_file_goes_on_and_its_bytes_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        let rolling = Rolling { append: true, ..Rolling::default() };
        let after = |before: &[u8]| {
            std::fs::write(&path, before).unwrap();
            let mut files = files(folder.path(), "a.jsonl", rolling);
            files.write_all(b"{\"n\":2}\n").unwrap();
            std::fs::read_to_string(&path).unwrap()
        };
        let run = String::from_utf8(RUN.to_vec()).unwrap();
        assert_eq!(after(RUN), format!("{run}{{\"n\":2}}\n"));
        let torn = after(&[RUN, b"{\"type\":\"frame\",\"fra"].concat());
        let record = r#"{"type":"torn","text":"{\"type\":\"frame\",\"fra"}"#;
        assert_eq!(torn, format!("{run}{record}\n{{\"n\":2}}\n"));
        torn.lines().for_each(|line| drop(serde_json::from_str::<serde_json::Value>(line).unwrap()));
        // Only its line break is missing.
        assert_eq!(after(&[RUN, b"{\"n\":1}"].concat()), format!("{run}{{\"n\":1}}\n{{\"n\":2}}\n"));
        // The first line was cut off: this run writes it.
        assert_eq!(after(b"{\"typ"), "{\"n\":2}\n");
        assert_eq!(after(b""), "{\"n\":2}\n");
        // Long lines.
        let long = [RUN, &vec![b'x'; 200_000]].concat();
        assert!(after(&long).starts_with(&format!("{run}{{\"type\":\"torn\",\"text\":\"xxx")));
    }

    #[test]
    fn a_torn_row_is_removed_and_files_of_other_programs_are_not_continued() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let rolling = Rolling { append: true, ..Rolling::default() };
        let name = path.to_str().unwrap();
        let files = || Files::new(name, LineKind::Rows("a,b\n"), rolling).unwrap();
        std::fs::write(&path, "a,b\n1,2\n3,").unwrap();
        files().write_all(b"4,5\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a,b\n1,2\n4,5\n");
        std::fs::write(&path, "b,c\n1,2\n").unwrap();
        let error = files().write_all(b"4,5\n").unwrap_err().to_string();
        assert!(error.contains("does not begin with \"a,b\""), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "b,c\n1,2\n");
    }

    #[test]
    fn files_that_cannot_be_removed_stop_neither_the_results_nor_the_removal_of_others() {
        NOW.set(EVENING);
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let rolling = Rolling { rotate: Some(Rotate::Size(4096)), keep: Some(1), ..Rolling::default() };
        let mut files = files(folder.path(), "a.jsonl", rolling);
        files.write_all(RUN).unwrap();
        // Listed, and then removed by another program or replaced by a folder.
        std::fs::create_dir(at("a.0002.jsonl")).unwrap();
        std::fs::write(at("a.0003.jsonl"), RUN).unwrap();
        let listed = ["a.0001.jsonl", "a.0002.jsonl", "a.0003.jsonl"];
        let key = |number| Key { times: String::new(), number };
        files.remove_oldest(listed.iter().zip(1..).map(|(name, n)| (key(n), at(name))).collect());
        assert_eq!(names(folder.path()), ["a.0002.jsonl", "a.jsonl"]);
        files.write_all(RUN).unwrap();
        assert_eq!(std::fs::read(at("a.jsonl")).unwrap(), RUN.repeat(2));
    }

    #[test]
    fn a_file_that_another_process_writes_is_not_removed_until_it_is_complete() {
        NOW.set(EVENING);
        let folder = tempfile::tempdir().unwrap();
        let rolling = Rolling { rotate: Some(Rotate::Size(1)), keep: Some(1), ..Rolling::default() };
        let [mut other, mut files] = [0; 2].map(|_| files(folder.path(), "a.jsonl", rolling));
        other.write_all(RUN).unwrap();
        for _ in 0..3 {
            files.write_all(RUN).unwrap();
            files.roll().unwrap();
        }
        files.write_all(RUN).unwrap();
        other.write_all(b"{}\n").unwrap();
        assert_eq!(std::fs::read(folder.path().join("a.jsonl")).unwrap(), [RUN, b"{}\n"].concat());
        assert_eq!(names(folder.path()), ["a.0005.jsonl", "a.jsonl"]);
        drop(other);
        files.roll().unwrap();
        assert_eq!(names(folder.path()), ["a.0006.jsonl"]);
    }

    #[test]
    fn a_folder_that_cannot_be_listed_has_no_files_to_continue_and_is_no_error() {
        let pattern = Pattern { folder: "/dev/null".into(), stem: "a".into(), ending: ".jsonl".into() };
        assert_eq!(pattern.existing(JSON), []);
    }

    #[test]
    fn the_paths_that_are_remembered_are_those_that_are_kept_and_a_bounded_number() {
        NOW.set(EVENING);
        for (keep, rotations, expected) in [(Some(2), 9, 2), (None, MOST_LISTED + 7, MOST_LISTED)] {
            let folder = tempfile::tempdir().unwrap();
            let rolling = Rolling { rotate: Some(Rotate::Size(1)), keep, ..Rolling::default() };
            let mut files = files(folder.path(), "a.jsonl", rolling);
            files.write_all(RUN).unwrap();
            for _ in 0..rotations {
                assert!(files.roll().unwrap());
                files.write_all(RUN).unwrap();
            }
            assert_eq!(files.written.len(), expected);
            let listed = Lines::files(&files).unwrap();
            let last = folder.path().join(format!("a.{:04}.jsonl", rotations + 1));
            assert_eq!((listed.len(), listed.last()), (expected, Some(&last)));
        }
    }

    #[test]
    fn a_file_whose_end_is_no_line_of_results_is_refused_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        std::fs::write(&path, RUN).unwrap();
        let length = RUN.len() as u64 + MOST_TORN + (1 << 16);
        File::options().write(true).open(&path).unwrap().set_len(length).unwrap();
        let rolling = Rolling { append: true, ..Rolling::default() };
        let error = files(folder.path(), "a.jsonl", rolling).write_all(RUN).unwrap_err().to_string();
        assert!(error.contains("16 MiB") && error.contains("give another name"), "{error}");
        assert_eq!(path.metadata().unwrap().len(), length);
    }

    #[test]
    fn a_time_without_a_date_is_refused_as_it_does_not_order_files() {
        let rolling = Rolling { rotate: Some(Rotate::Hour), keep: Some(3), append: false };
        let error = Files::new("cam-{time}.jsonl", JSON, rolling).err().unwrap().to_string();
        assert!(error.contains("cam-{date}T{time}.jsonl"), "{error}");
        for name in ["cam-{date}T{time}.jsonl", "{time}-{date}.jsonl", "cam-{date}.jsonl", "cam.jsonl"] {
            Files::new(name, JSON, rolling).unwrap();
        }
    }

    #[test]
    fn words_for_times_in_a_folder_are_refused() {
        let rolling = Rolling { append: true, ..Rolling::default() };
        assert!(Files::new("{date}/a.jsonl", JSON, rolling).is_err());
    }
}
