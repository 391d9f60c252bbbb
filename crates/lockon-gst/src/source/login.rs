//! User and password for a server. They are never shown.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use gst::glib;
use gst::prelude::*;

use super::Uri;
use lockon_core::error::{Error, Result};
use lockon_core::files;
use lockon_core::text;

/// User and password for a server.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    user: String,
    password: String,
}

impl Login {
    /// This user with this password.
    pub fn new(user: &str, password: &str) -> Self {
        Self { user: user.to_owned(), password: password.to_owned() }
    }

    /// Reads a file with one line, `user:password`, as [`files::secret`] does.
    ///
    /// # Errors
    /// `File` if it cannot be read, `Usage` if it says something else. No error repeats what it says.
    pub fn read(path: &Path) -> Result<Self> {
        let said = files::secret(path)?;
        said.parse().map_err(|error| Error::Usage(format!("{}: {error}", text::path(path))))
    }

    /// False for a user alone.
    pub(super) fn has_password(&self) -> bool {
        !self.password.is_empty()
    }

    /// Gives it to an element that asks for one and has none yet: `rtspsrc` and `souphttpsrc` have properties
    /// for user and password, SRT has a passphrase.
    fn give_to(&self, element: &gst::Element) {
        let is_text = |name: &str| {
            element.find_property(name).is_some_and(|spec| {
                spec.value_type() == glib::Type::STRING && spec.flags().contains(glib::ParamFlags::READWRITE)
            })
        };
        let is_unset = |name: &str| {
            is_text(name) && element.property::<Option<String>>(name).is_none_or(|value| value.is_empty())
        };
        let is_srt = element.factory().is_some_and(|factory| factory.name().starts_with("srt"));
        if is_unset("user-id") && is_text("user-pw") {
            element.set_property("user-id", &self.user);
            element.set_property("user-pw", &self.password);
        } else if is_srt && element.find_property("passphrase").is_some() {
            element.set_property("passphrase", &self.password);
        }
    }
}

impl FromStr for Login {
    type Err = Error;

    /// `user:password`; the first colon ends the user.
    fn from_str(text: &str) -> Result<Self> {
        let line = text.strip_suffix('\n').unwrap_or(text);
        let line = line.strip_suffix('\r').unwrap_or(line);
        let parts = line.split_once(':').filter(|_| !line.contains(char::is_control));
        let (user, password) =
            parts.ok_or_else(|| Error::Usage("expected one line, user:password, and nothing else".into()))?;
        Ok(Self::new(user, password))
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({})", text::HIDDEN)
    }
}

/// Gives the login to every element that asks for one, now or later, for a server that was typed: a list of
/// pieces of a stream, which its server sends, may name others.
pub(super) fn give_login(pipeline: &gst::Pipeline, login: Login) {
    let elements = || pipeline.iterate_recurse().into_iter().flatten();
    let typed: Vec<String> = elements().filter_map(|element| place_of(&element)).collect();
    let is_for = move |element: &gst::Element| {
        typed.is_empty() || place_of(element).is_some_and(|place| typed.contains(&place))
    };
    for element in elements().filter(|element| is_for(element)) {
        login.give_to(&element);
    }
    pipeline.connect_deep_element_added(move |_, _, element| {
        if is_for(element) {
            login.give_to(element);
        }
    });
}

/// Host and port of the server that an element reads from, where it says so.
fn place_of(element: &gst::Element) -> Option<String> {
    ["location", "uri"].iter().find_map(|name| {
        element.find_property(name).filter(|spec| {
            spec.value_type() == glib::Type::STRING && spec.flags().contains(glib::ParamFlags::READABLE)
        })?;
        Uri::from(element.property::<Option<String>>(name)?).place()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_one_line_and_shows_nothing_of_itself() {
        let login: Login = "admin:s3:cret\r\n".parse().unwrap();
        assert_eq!(login, Login::new("admin", "s3:cret"));
        assert_eq!(format!("{login:?}"), "Login(***)");
        for wrong in ["s3cret", "admin:s3cret\nmore", ""] {
            let error = wrong.parse::<Login>().unwrap_err();
            assert!(error.is_usage() && !error.to_string().contains("s3cret"), "{error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_login_that_can_be_read_once_is_that_of_all_who_name_it() {
        use std::io::Write;
        use std::os::fd::AsRawFd;
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"admin:s3cret\n").unwrap();
        drop(writer);
        // As a shell names what a command prints.
        let path = std::path::PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
        let login = Login::new("admin", "s3cret");
        assert_eq!([Login::read(&path).unwrap(), Login::read(&path).unwrap()], [login.clone(), login]);
    }

    #[test]
    fn elements_that_ask_for_a_login_get_it_and_what_was_typed_stays() {
        crate::launch::init().unwrap();
        for factory in ["rtspsrc", "souphttpsrc"] {
            let element = gst::ElementFactory::make(factory).build().unwrap();
            Login::new("a", "b").give_to(&element);
            Login::new("c", "d").give_to(&element);
            let get = |name| element.property::<Option<String>>(name).unwrap();
            assert_eq!((get("user-id").as_str(), get("user-pw").as_str()), ("a", "b"), "{factory}");
        }
        // It has no such properties, and is left alone.
        Login::new("a", "b").give_to(&gst::ElementFactory::make("filesrc").build().unwrap());
    }
}
