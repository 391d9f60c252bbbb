//! Outputs of a picture for each frame, with numbers in their names: `masks/%06d.png`.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use lockon_core::files::folder_of;
use std::sync::{Arc, Mutex};

use gst::prelude::*;

use super::lock;
use crate::source::{NumberedName, number_of};

/// The ending of their names.
pub(super) const EXTENSION: &str = "png";

/// The names of numbered pictures.
#[derive(Debug)]
pub struct Numbered {
    path: PathBuf,
    name: NumberedName,
}

impl Numbered {
    /// Reads a path with one `%d` or `%06d` in its file name, which ends in `.png`; `None` for any other.
    pub fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let is_picture = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(EXTENSION));
        let name = number_of(name).filter(|_| is_picture)?;
        Some(Self { path: path.to_owned(), name })
    }

    /// The path of the picture of a frame.
    pub fn picture(&self, frame: u64) -> PathBuf {
        self.path.with_file_name(self.name.name(frame))
    }

    /// True for the path of one of the pictures.
    pub fn has(&self, path: &Path) -> bool {
        let folder = |path: &Path| folder_of(path).canonicalize();
        let is_one = path.file_name().and_then(|name| self.name.value(name.to_str()?)).is_some();
        is_one && matches!((folder(path), folder(&self.path)), (Ok(one), Ok(other)) if one == other)
    }

    /// The pictures that exist, in the order of their numbers.
    pub fn existing(&self) -> Vec<PathBuf> {
        let entries = folder_of(&self.path).read_dir().into_iter().flatten().flatten();
        let mut found: Vec<_> =
            entries.filter_map(|entry| self.name.value(entry.file_name().to_str()?)).collect();
        found.sort_unstable();
        found.into_iter().map(|number| self.picture(number)).collect()
    }

    /// The path in the form of `multifilesink`: a percent sign in a folder's name is escaped.
    pub(super) fn location(&self) -> Option<String> {
        let folder = self.path.parent()?.to_str()?.replace('%', "%%");
        let name = self.path.file_name()?.to_str()?;
        Some(if folder.is_empty() {
            name.to_owned()
        } else {
            format!("{}/{name}", folder.trim_end_matches('/'))
        })
    }
}

/// The files that an output was written to: itself, or the pictures of its numbered name.
pub fn written(path: &Path) -> Vec<PathBuf> {
    match Numbered::of(path) {
        Some(numbered) => numbered.existing(),
        None => vec![path.to_owned()],
    }
}

/// The numbers of the frames on their way through a pipeline, in order; each frame becomes one picture. There
/// are never more than the pipeline holds frames.
#[derive(Clone, Default)]
pub(super) struct Numbers(Arc<Mutex<VecDeque<u64>>>);

impl Numbers {
    /// Gives each picture that comes to the `multifilesink` the number of its frame.
    pub(super) fn attach(file: &gst::Element) -> Self {
        let numbers = Self::default();
        if let Some(pad) = file.static_pad("sink") {
            let (numbers, file) = (numbers.clone(), file.downgrade());
            pad.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
                if let (Some(number), Some(file)) = (lock(&numbers.0).pop_front(), file.upgrade()) {
                    file.set_property("index", i32::try_from(number).unwrap_or(i32::MAX));
                }
                gst::PadProbeReturn::Ok
            });
        }
        numbers
    }

    /// Announces the next frame that is pushed.
    pub(super) fn push(&self, frame: u64) {
        lock(&self.0).push_back(frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_names_are_png_with_one_number_and_know_their_pictures() {
        for none in ["a.png", "%d-%d.png", "%06d.jpg", "%06d/a.png", "%6d.png"] {
            assert!(Numbered::of(Path::new(none)).is_none(), "{none}");
        }
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("50%d");
        std::fs::create_dir(&place).unwrap();
        let numbered = Numbered::of(&place.join("m%%%04d.png")).unwrap();
        for name in ["m%0010.png", "m%0002.png", "m%12345.png", "m%02.png", "m%0003.jpg"] {
            std::fs::write(place.join(name), "").unwrap();
        }
        let expected = [2, 10, 12345].map(|number| numbered.picture(number));
        assert_eq!(numbered.existing(), expected);
        assert_eq!(numbered.picture(2), place.join("m%0002.png"));
        assert!(numbered.has(&place.join(".").join("m%0777.png")) && !numbered.has(Path::new("m%0777.png")));
        assert!(numbered.location().unwrap().ends_with("/50%%d/m%%%04d.png"));
    }
}
