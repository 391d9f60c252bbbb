//! Files that are about to be written: whether they can be, whether they are something else that is in use,
//! and writing them so that what was there before is lost only when its successor is whole. And files that
//! say something secret.

use std::collections::{BTreeMap, HashSet};
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, BufRead, BufReader, Cursor, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};

use crate::control::{Control, STOP_CHECK};
use crate::error::{Error, Result};
use crate::locks::lock;
use crate::shell;
use crate::text;

mod claim;

pub use claim::Claim;

/// Maximum bytes of a file that holds a secret.
const MOST_SECRET: u64 = 4096;

/// The byte order mark of UTF-8.
const UTF8_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// Contents of pipes. A pipe can be read only once, and several videos of a process may name the same one.
static SAID_ONCE: Mutex<BTreeMap<PathBuf, String>> = Mutex::new(BTreeMap::new());

/// Returns the contents of a file that holds a secret, such as a password: 4096 bytes of it at most. Warns of
/// a file that other users of the machine can read. A pipe is read at the first call; later calls get the
/// same contents.
///
/// # Errors
/// `File` if it cannot be read.
pub fn secret(path: &Path) -> Result<String> {
    let about = path.metadata().map_err(Error::file("read", path))?;
    let read = || {
        let mut said = String::new();
        let file = File::open(path).map_err(Error::file("read", path))?;
        text_of(file.take(MOST_SECRET))
            .and_then(|mut text| text.read_to_string(&mut said))
            .map_err(Error::file("read", path))?;
        Ok(said)
    };
    if !about.is_file() {
        let mut said = lock(&SAID_ONCE);
        if let Some(secret) = said.get(path) {
            return Ok(secret.clone());
        }
        let secret = read()?;
        said.insert(path.to_owned(), secret.clone());
        return Ok(secret);
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        if about.permissions().mode() & 0o077 != 0 {
            let name = text::path(path);
            tracing::warn!("{name} may have a password in it and is open to other users (chmod 600 {name})");
        }
    }
    read()
}

/// Returns the contents of a text file, without the byte order mark that some editors write.
///
/// # Errors
/// `File` if it cannot be read or is not UTF-8.
pub fn read_text(path: &Path) -> Result<String> {
    File::open(path).and_then(whole_text_of).map_err(Error::file("read", path))
}

/// Returns the whole text of a reader, as [`text_of`] reads it.
///
/// # Errors
/// The reader's; `InvalidData` if the text is larger than 64 MiB, as that of `/dev/zero` is.
pub fn whole_text_of(from: impl Read) -> io::Result<String> {
    const MAX: u64 = 64 << 20;
    let mut text = String::new();
    if text_of(from)?.take(MAX + 1).read_to_string(&mut text)? as u64 > MAX {
        let what = format!("the text is larger than {} MiB", MAX >> 20);
        return Err(io::Error::new(ErrorKind::InvalidData, what));
    }
    Ok(text)
}

/// Returns a reader of a text without its byte order mark. All text that people write is read through this.
///
/// # Errors
/// The reader's; `InvalidData` for the byte order marks of UTF-16 and UTF-32.
pub fn text_of<R: Read>(mut from: R) -> io::Result<impl BufRead> {
    let mut start = Vec::new();
    // A pipe may give it byte by byte.
    from.by_ref().take(UTF8_MARK.len() as u64).read_to_end(&mut start)?;
    if start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff]) {
        let what = "its text is UTF-16: save it as UTF-8";
        return Err(io::Error::new(ErrorKind::InvalidData, what));
    }
    if start == UTF8_MARK {
        start.clear();
    }
    Ok(BufReader::new(Cursor::new(start).chain(from)))
}

/// Returns the folder of a path; `.` if the path names none.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

/// Refuses outputs in folders that do not exist. One error names all of these folders, and the command that
/// makes them.
///
/// Folders are never made for an output: for a mistyped name, or a disk that is not mounted, files would end
/// up in a place where they are not found.
///
/// # Errors
/// `Usage`.
pub fn check_folders(outputs: &[PathBuf]) -> Result<()> {
    let mut missing: Vec<&Path> = Vec::new();
    for folder in outputs.iter().filter_map(|path| path.parent()) {
        match folder.metadata() {
            _ if folder.as_os_str().is_empty() || missing.contains(&folder) => {}
            Ok(found) if found.is_dir() => {}
            // `a.mp4/out.mkv`: there is no folder to make.
            Ok(_) => return Err(Error::Usage(format!("{} is not a folder", text::path(folder)))),
            Err(error) if error.kind() == ErrorKind::NotFound => missing.push(folder),
            // A folder that cannot be looked into, or lies below a file: the system says why.
            Err(_) => {}
        }
    }
    let words: Vec<_> = missing.iter().map(|folder| shell::path(&folder.to_string_lossy())).collect();
    let named = match &missing[..] {
        [] => return Ok(()),
        [folder] => format!("folder {} does not exist", text::path(folder)),
        folders => format!("{} folders for outputs do not exist", folders.len()),
    };
    Err(Error::Usage(format!("{named} (fix: mkdir -p {})", text::in_one_line(&words.join(" ")))))
}

/// True if nothing is at `path` yet. Leaves everything as it was.
///
/// # Errors
/// `File` if the file could not be written there.
pub fn check_writable(path: &Path) -> Result<bool> {
    let is_new = path.symlink_metadata().is_err();
    // Opening a named pipe would wait for its reader, and a device may do anything.
    if is_new || path.is_file() || path.is_dir() {
        let file = OpenOptions::new().write(true).create(is_new).truncate(false).open(path);
        drop(file.map_err(Error::file("write", path))?);
    }
    if is_new {
        std::fs::remove_file(path).map_err(Error::file("write", path))?;
    }
    Ok(is_new)
}

/// Writes a whole file at `path`, as [`Successor`] does.
///
/// # Errors
/// The system's. Nothing stays behind but, where it was written directly, a part of the file.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = Successor::begin(path)?;
    file.write_all(bytes)?;
    file.finish()
}

/// Writes a whole file at `path`, where nothing may be yet: the bytes are there at once, or not at all.
///
/// # Errors
/// The system's; `AlreadyExists` if the name is in use, also if that began meanwhile.
pub fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if path.symlink_metadata().is_ok() {
        return Err(ErrorKind::AlreadyExists.into());
    }
    let mut file = Successor::begin(path)?;
    file.write_all(bytes)?;
    match file.file {
        Written::Directly(_) => Ok(()),
        Written::Beside { file, target, .. } => {
            file.as_file().sync_all()?;
            file.persist_noclobber(&target).map(drop).map_err(|failed| bare(&failed.error))
        }
    }
}

/// A file that is written piece by piece and replaces the file at its path when it is complete.
///
/// A file that exists already keeps its bytes until the new ones are on the disk: they are written under
/// another name in the same folder, which then becomes the path. So a full disk, a crash or a lost power
/// supply leaves the old file or the new one, never a part of one. Dropped before its end it leaves nothing
/// behind.
///
/// Links are followed, so that a link stays a link; the old file's permissions stay, a second hard link keeps
/// the old bytes. Written directly are: paths that are no regular file (a pipe, a device) or that name an
/// open file (`/dev/stdout`, `/dev/fd/3`); files in a folder that accepts no new ones; and files that cannot
/// be replaced (in a container a file may be mounted by itself).
pub struct Successor {
    path: PathBuf,
    file: Written,
}

enum Written {
    Directly(File),
    Beside {
        file: tempfile::NamedTempFile,
        target: PathBuf,
        /// The permissions of the existing file.
        permissions: Option<Permissions>,
    },
}

impl Successor {
    /// Begins to write the file at `path`.
    ///
    /// # Errors
    /// The system's.
    pub fn begin(path: &Path) -> io::Result<Self> {
        let directly =
            || File::create(path).map(|file| Self { path: path.into(), file: Written::Directly(file) });
        let Some((folder, name)) = replaceable(path) else { return directly() };
        let target = folder.join(&name);
        let permissions = target.metadata().ok().map(|before| before.permissions());
        let mut prefix = std::ffi::OsString::from(".");
        prefix.push(&name);
        // A name has 255 bytes at most, and the old name may use all of them.
        if prefix.len() > 200 {
            prefix = ".lockon".into();
        }
        prefix.push(".");
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // The umask reduces these permissions, as for any new file.
            builder.permissions(Permissions::from_mode(0o666));
        }
        match builder.tempfile_in(&folder) {
            Ok(file) => Ok(Self { path: path.into(), file: Written::Beside { file, target, permissions } }),
            Err(error) if permissions.is_some() && takes_no_other(&error) => directly(),
            // The temporary name means nothing to the caller, so it is left out.
            Err(error) => Err(bare(&error)),
        }
    }

    /// Puts the file where it is to be.
    ///
    /// # Errors
    /// The system's: then the old file is there as it was, but where it was written directly.
    pub fn finish(self) -> io::Result<()> {
        let Written::Beside { file, target, permissions } = self.file else { return Ok(()) };
        if let Some(permissions) = &permissions {
            file.as_file().set_permissions(permissions.clone())?;
        }
        // Some file systems find out only now that they are full.
        file.as_file().sync_all()?;
        match file.persist(&target) {
            Ok(_) => Ok(()),
            Err(failed) if permissions.is_some() && takes_no_other(&failed.error) => {
                io::copy(&mut failed.file.reopen()?, &mut File::create(&self.path)?).map(|_| ())
            }
            Err(failed) => Err(bare(&failed.error)),
        }
    }
}

impl Write for Successor {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.file {
            Written::Directly(file) => file.write(bytes),
            // The file itself, whose errors do not name it.
            Written::Beside { file, .. } => file.as_file_mut().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// True if the system refuses to replace a file by another, though it may still let the file's own bytes be
/// written: its folder belongs to another user or is read-only, or the file is mounted there by itself.
fn takes_no_other(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::ResourceBusy
            | ErrorKind::CrossesDevices
    )
}

/// The system's error without the path that a library put in front of it.
fn bare(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

/// The real folder and name of a regular file, or of one to be; `None` where another file cannot take its
/// place.
fn replaceable(path: &Path) -> Option<(PathBuf, std::ffi::OsString)> {
    let mut path = path.to_owned();
    // As many links as Linux follows.
    for _ in 0..40 {
        let (folder, name) = (folder_of(&path).canonicalize().ok()?, path.file_name()?.to_owned());
        // An open file, whose place another could take, but not as that which is open.
        if folder.starts_with("/proc") {
            return None;
        }
        let found = folder.join(&name);
        match found.symlink_metadata() {
            Ok(data) if data.is_symlink() => path = folder.join(found.read_link().ok()?),
            Ok(data) if !data.is_file() => return None,
            _ => return Some((folder, name)),
        }
    }
    None
}

/// True for `-`, which stands for standard output where an output is named.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// True if it is a pipe, with a name or without (`/dev/stdin`).
pub fn is_pipe(path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        path.metadata().is_ok_and(|about| about.file_type().is_fifo())
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        false
    }
}

/// An end of a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Reads data that another process writes.
    Reading,
    /// Writes data that another process reads.
    Writing,
}

/// Opens an end of a named pipe and waits until the other end is opened; `None` if `control` is stopped
/// before that.
///
/// # Errors
/// `File` if it cannot be opened.
pub fn open_pipe(path: &Path, end: End, control: &Control) -> Result<Option<File>> {
    let action = if end == End::Reading { "read" } else { "write" };
    let (sender, opened) = mpsc::channel();
    let place = path.to_owned();
    let open = move || {
        let file = OpenOptions::new().read(end == End::Reading).write(end == End::Writing).open(place);
        let _ = sender.send(file);
    };
    let thread = std::thread::Builder::new().name("lockon-pipe".to_owned()).spawn(open);
    let thread = thread.map_err(Error::file(action, path))?;
    loop {
        match opened.recv_timeout(STOP_CHECK) {
            Ok(file) => return file.map(Some).map_err(Error::file(action, path)),
            Err(RecvTimeoutError::Timeout) if !control.is_stopped() => {}
            Err(RecvTimeoutError::Timeout) => {
                // Opening both ends does not wait, and releases a thread that waits for one of them.
                if let Ok(_both) = OpenOptions::new().read(true).write(true).open(path) {
                    let _ = thread.join();
                }
                return Ok(None);
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::file(action, path)(std::io::ErrorKind::Interrupted.into()));
            }
        }
    }
}

/// Returns a reader of a file or a pipe whose reads fail as soon as `control` is stopped; `None` if it was
/// stopped before a pipe was open. The process at the other end of a pipe may be silent for as long as it
/// likes.
///
/// # Errors
/// `File` if it cannot be opened.
pub fn open_until_stopped(path: &Path, control: &Control) -> Result<Option<Box<dyn Read>>> {
    if !is_pipe(path) {
        return File::open(path).map(|file| Some(Box::new(file) as _)).map_err(Error::file("read", path));
    }
    let Some(mut pipe) = open_pipe(path, End::Reading, control)? else { return Ok(None) };
    let (sender, pieces) = mpsc::sync_channel::<io::Result<Vec<u8>>>(4);
    // It ends with the next byte at the latest, and holds no one up.
    let read = move || {
        loop {
            let mut piece = vec![0; 1 << 16];
            let read = pipe.read(&mut piece).map(|length| {
                piece.truncate(length);
                piece
            });
            let is_end = read.as_ref().is_ok_and(Vec::is_empty);
            let is_fatal = read.as_ref().is_err_and(|error| error.kind() != ErrorKind::Interrupted);
            if sender.send(read).is_err() || is_end || is_fatal {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("lockon-pipe".to_owned())
        .spawn(read)
        .map_err(Error::file("read", path))?;
    Ok(Some(Box::new(Pieces { coming: pieces, rest: Cursor::default(), control: control.clone() })))
}

/// Bytes that a thread reads, until a run is stopped.
struct Pieces {
    coming: mpsc::Receiver<io::Result<Vec<u8>>>,
    rest: Cursor<Vec<u8>>,
    control: Control,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.position() == self.rest.get_ref().len() as u64 {
            match self.coming.recv_timeout(STOP_CHECK) {
                Ok(Ok(piece)) if piece.is_empty() => return Ok(0),
                Ok(piece) => self.rest = Cursor::new(piece?),
                Err(RecvTimeoutError::Timeout) if !self.control.is_stopped() => {}
                Err(RecvTimeoutError::Timeout) => return Err(io::Error::other("the run was stopped")),
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
            }
        }
        self.rest.read(buffer)
    }
}

/// Refuses outputs that are an input or each other: one would destroy the other.
///
/// # Errors
/// `Usage`, naming the file.
pub fn check_distinct(inputs: &[PathBuf], outputs: &[PathBuf]) -> Result<()> {
    let inputs: HashSet<_> = inputs.iter().map(|path| Identity::of(path)).collect();
    let mut seen = HashSet::new();
    for path in outputs {
        let identity = Identity::of(path);
        let twice = if inputs.contains(&identity) {
            "is both input and output"
        } else if seen.contains(&identity) {
            "is given twice as an output"
        } else {
            seen.insert(identity);
            continue;
        };
        return Err(Error::Usage(format!("{} {twice}", text::path(path))));
    }
    Ok(())
}

/// The identity of the file that a path leads to, through links of both kinds.
#[derive(PartialEq, Eq, Hash)]
enum Identity {
    /// An existing file: its device and its number there.
    Existing(u64, u64),
    /// A file to be: its folder's real path and its name.
    New(PathBuf),
}

impl Identity {
    fn of(path: &Path) -> Self {
        #[cfg(unix)]
        if let Ok(found) = path.metadata() {
            use std::os::unix::fs::MetadataExt;
            return Self::Existing(found.dev(), found.ino());
        }
        let folder = folder_of(path);
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        Self::New(path.canonicalize().unwrap_or_else(|_| folder.join(path.file_name().unwrap_or_default())))
    }

    /// True for one file; false where files have no numbers.
    fn same(a: &Metadata, b: &Metadata) -> bool {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            (a.dev(), a.ino()) == (b.dev(), b.ino())
        }
        #[cfg(not(unix))]
        {
            let _ = (a, b);
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_text() {
        /// Gives one byte at a time.
        struct Slow<'a>(&'a [u8]);
        impl Read for Slow<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let length = buffer.len().min(1);
                self.0.read(&mut buffer[..length])
            }
        }
        let read = |bytes: &[u8]| {
            let mut text = String::new();
            text_of(Slow(bytes))?.read_to_string(&mut text)?;
            io::Result::Ok(text)
        };
        for (bytes, expected) in [
            (&b"\xef\xbb\xbfa\r\n"[..], "a\r\n"),
            (b"\xef\xbb\xbf", ""),
            (b"\xef\xbb\xbf\xef\xbb\xbf", "\u{feff}"),
            (b"a", "a"),
            (b"", ""),
            ("\u{fc}x\u{feff}".as_bytes(), "\u{fc}x\u{feff}"),
        ] {
            assert_eq!(read(bytes).unwrap(), expected);
        }
        for bytes in [b"\xff\xfea\0".as_slice(), b"\xfe\xff\0a", b"\xff\xfe\0\0"] {
            assert!(read(bytes).unwrap_err().to_string().contains("save it as UTF-8"));
        }
        assert!(read(b"\xef\xbb").is_err(), "that is no UTF-8");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("login");
        std::fs::write(&path, "\u{feff}me:s3cret\r\n").unwrap();
        assert_eq!(secret(&path).unwrap(), "me:s3cret\r\n");
        assert_eq!(read_text(&path).unwrap(), "me:s3cret\r\n");
        #[cfg(target_os = "linux")]
        assert!(read_text(Path::new("/dev/zero")).unwrap_err().to_string().contains("larger than 64 MiB"));
        assert!(read_text(&folder.path().join("none")).unwrap_err().to_string().contains("cannot read"));
    }

    #[test]
    fn an_output_that_is_an_input_is_refused_through_links() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("in"), "x").unwrap();
        std::fs::hard_link(path("in"), path("hard")).unwrap();
        std::os::unix::fs::symlink(path("in"), path("soft")).unwrap();
        for name in ["in", "hard", "soft"] {
            let said = check_distinct(&[path("in")], &[path("out"), path(name)]).unwrap_err().to_string();
            assert!(said.ends_with("is both input and output"), "{said}");
        }
        check_distinct(&[path("in"), path("in")], &[path("out"), path("other")]).unwrap();
    }

    #[test]
    fn an_output_given_twice_is_refused_however_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("out"), dir.path().join(".").join("out"));
        assert!(
            check_distinct(&[], &[a, b]).unwrap_err().to_string().ends_with("is given twice as an output")
        );
    }

    /// The names in a folder, and hidden ones.
    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_takes_the_place_of_another_and_nothing_else_stays() {
        let dir = tempfile::tempdir().unwrap();
        let long = "n".repeat(255);
        for name in ["page.html", long.as_str()] {
            replace(&dir.path().join(name), b"old").unwrap();
            replace(&dir.path().join(name), b"new").unwrap();
            assert_eq!(std::fs::read(dir.path().join(name)).unwrap(), b"new");
        }
        assert_eq!(names(dir.path()), [long.as_str(), "page.html"]);
    }

    #[cfg(unix)]
    #[test]
    fn permissions_stay_and_new_files_have_usual_ones() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let mode = |name: &str| path(name).metadata().unwrap().permissions().mode() & 0o777;
        std::fs::write(path("usual"), "").unwrap();
        replace(&path("new"), b"x").unwrap();
        assert_eq!(mode("new"), mode("usual"));
        std::fs::set_permissions(path("new"), Permissions::from_mode(0o640)).unwrap();
        replace(&path("new"), b"y").unwrap();
        assert_eq!(mode("new"), 0o640);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_a_link_and_its_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir(path("far")).unwrap();
        std::fs::write(path("far/page"), "old").unwrap();
        std::os::unix::fs::symlink("far/page", path("link")).unwrap();
        std::os::unix::fs::symlink("far/none-yet", path("early")).unwrap();
        for (link, file) in [("link", "far/page"), ("early", "far/none-yet")] {
            replace(&path(link), b"new").unwrap();
            assert!(path(link).symlink_metadata().unwrap().is_symlink(), "{link}");
            assert_eq!(std::fs::read(path(file)).unwrap(), b"new");
        }
        assert_eq!(names(&path("far")), ["none-yet", "page"]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn pipes_devices_and_open_files_are_written_directly() {
        use std::io::{Read, Seek};
        use std::os::fd::AsRawFd;
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let reader = {
            let fifo = fifo.clone();
            std::thread::spawn(move || std::fs::read(fifo).unwrap())
        };
        replace(&fifo, b"through").unwrap();
        assert_eq!(reader.join().unwrap(), b"through");
        replace(Path::new("/dev/null"), b"x").unwrap();
        assert_eq!(replace(Path::new("/dev/full"), b"x").unwrap_err().kind(), ErrorKind::StorageFull);
        // As `/dev/stdout` is, where a shell has sent it to a file.
        let mut open = tempfile::tempfile_in(dir.path()).unwrap();
        replace(Path::new(&format!("/dev/fd/{}", open.as_raw_fd())), b"open").unwrap();
        let mut text = String::new();
        open.rewind().unwrap();
        open.read_to_string(&mut text).unwrap();
        assert_eq!(text, "open");
        assert_eq!(names(dir.path()), ["fifo"]);
    }

    #[test]
    fn a_folder_that_is_missing_is_the_systems_error() {
        let error = replace(Path::new("no/where/page.html"), b"x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }

    #[test]
    #[cfg(unix)]
    fn a_pipe_that_nobody_opens_is_given_up_when_that_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(is_pipe(&pipe) && !is_pipe(dir.path()));
        for end in [End::Reading, End::Writing] {
            let control = Control::new();
            let stop = control.clone();
            let stopper = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(200));
                stop.stop();
            });
            assert!(open_pipe(&pipe, end, &control).unwrap().is_none(), "{end:?}");
            stopper.join().unwrap();
        }
        let (path, control) = (pipe.clone(), Control::new());
        let writer = std::thread::spawn(move || std::fs::write(path, "some bytes"));
        let mut read = String::new();
        std::io::Read::read_to_string(
            &mut open_pipe(&pipe, End::Reading, &control).unwrap().unwrap(),
            &mut read,
        )
        .unwrap();
        writer.join().unwrap().unwrap();
        assert_eq!(read, "some bytes");
    }

    #[test]
    fn checking_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        assert!(check_writable(&dir.path().join("new")).unwrap());
        assert!(!dir.path().join("new").exists());
        std::fs::write(dir.path().join("old"), "kept").unwrap();
        assert!(!check_writable(&dir.path().join("old")).unwrap());
        assert_eq!(std::fs::read_to_string(dir.path().join("old")).unwrap(), "kept");
        assert!(check_writable(&dir.path().join("no/where")).is_err());
    }

    #[test]
    fn folders_that_do_not_exist_are_named_together_with_the_command_that_makes_them() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let said = |names: &[&str]| {
            let outputs: Vec<_> = names.iter().map(|name| at(name)).collect();
            let error = check_folders(&outputs).err().filter(Error::is_usage)?.to_string();
            Some(error.replace(&format!("{}/", dir.path().display()), ""))
        };
        std::fs::create_dir(at("there")).unwrap();
        std::fs::write(at("file"), "").unwrap();
        assert_eq!(said(&["a.mkv", "there/a.mkv", "there/b.jsonl"]), None);
        let one = "folder no does not exist (fix: mkdir -p no)";
        assert_eq!(said(&["no/a.mkv", "there/a.mkv", "no/b.jsonl"]).as_deref(), Some(one));
        let several = "2 folders for outputs do not exist (fix: mkdir -p no 'it is/far')";
        assert_eq!(said(&["no/a.mkv", "it is/far/a.mkv", "no/b.jsonl"]).as_deref(), Some(several));
        assert_eq!(said(&["file/a.mkv"]).as_deref(), Some("file is not a folder"));
        // Files of this folder, and those that are open, have no folder to look for.
        check_folders(&["a.mkv".into(), "-".into(), "/dev/stdout".into()]).unwrap();
        let dashed = check_folders(&["-no/a.mkv".into()]).unwrap_err().to_string();
        assert!(dashed.ends_with("(fix: mkdir -p ./-no)"), "{dashed}");
    }
}
