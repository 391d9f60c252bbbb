//! User and password for the server that the user typed. They are never shown, and no other server gets them.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

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
    /// `File` if it cannot be read, `Usage` if it contains something else. No error repeats its content.
    pub fn read(path: &Path) -> Result<Self> {
        let said = files::secret(path)?;
        said.parse().map_err(|error| Error::Usage(format!("{}: {error}", text::path(path))))
    }

    /// False for a user alone.
    pub(super) fn has_password(&self) -> bool {
        !self.password.is_empty()
    }

    /// Gives it to an element that needs one and has none yet: `rtspsrc` and `souphttpsrc` have properties
    /// for user and password, SRT has a passphrase. Returns true if it got them.
    fn give_to(&self, element: &gst::Element) -> bool {
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
        } else {
            return false;
        }
        true
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

/// Gives the login to every element that needs one, now or later, and reads from the server that the user
/// typed. Playlists and redirections may name other servers, which do not get it.
///
/// `typed` is the address that the user typed. Without one, in a user's own pipeline, the addresses of its
/// elements count as typed.
pub(super) fn give_login(pipeline: &gst::Pipeline, login: Login, typed: Option<&Uri>) {
    let elements = || pipeline.iterate_recurse().into_iter().flatten();
    let of_elements = elements().filter_map(|element| uri_of(&element)).filter(Uri::has_server);
    let typed: Arc<[Uri]> = typed.map_or_else(|| of_elements.collect(), |typed| [typed.clone()].into());
    let give = move |element: &gst::Element, is_written_by_user: bool| {
        let is_allowed = |uri: &Uri| typed.iter().any(|typed| typed.lends_login_to(uri));
        // An element in the user's text may have its server in a property of another name.
        let is_for = uri_of(element).map_or(is_written_by_user, |uri| is_allowed(&uri));
        if is_for && login.give_to(element) {
            keep_login(element, &typed);
        }
    };
    for element in elements() {
        give(&element, true);
    }
    pipeline.connect_deep_element_added(move |_, _, element| give(element, false));
}

/// Prevents an element with a login from giving it to the server of a redirect.
fn keep_login(element: &gst::Element, typed: &Arc<[Uri]>) {
    // `souphttpsrc` would log in at every server that asks. Instead it fails, and the source is opened there.
    if element.has_property("automatic-redirect") {
        element.set_property("automatic-redirect", false);
    }
    if glib::subclass::SignalId::lookup("before-send", element.type_()).is_some() {
        // `rtspsrc` connects to the new server by itself, and emits this before each request.
        let typed = Arc::clone(typed);
        element.connect("before-send", false, move |values| {
            if let Some(element) = values.first().and_then(|value| value.get::<gst::Element>().ok()) {
                let is_allowed = |uri: Uri| typed.iter().any(|typed| typed.lends_login_to(&uri));
                if !typed.is_empty() && !uri_of(&element).is_some_and(is_allowed) {
                    element.set_property("user-id", None::<String>);
                    element.set_property("user-pw", None::<String>);
                }
            }
            // The request is sent.
            Some(true.to_value())
        });
    }
}

/// The address that an element reads from, if it has a property for it.
fn uri_of(element: &gst::Element) -> Option<Uri> {
    ["location", "uri"].iter().find_map(|name| {
        element.find_property(name).filter(|spec| {
            spec.value_type() == glib::Type::STRING && spec.flags().contains(glib::ParamFlags::READABLE)
        })?;
        element.property::<Option<String>>(name).map(Uri::from)
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
        // A shell's name for the output of a command.
        let path = std::path::PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
        let login = Login::new("admin", "s3cret");
        assert_eq!([Login::read(&path).unwrap(), Login::read(&path).unwrap()], [login.clone(), login]);
    }

    #[test]
    fn elements_that_ask_for_a_login_get_it_and_what_was_typed_stays() {
        super::super::login_tests::load_plugins();
        for factory in ["rtspsrc", "souphttpsrc"] {
            let element = gst::ElementFactory::make(factory).build().unwrap();
            assert!(Login::new("a", "b").give_to(&element));
            assert!(!Login::new("c", "d").give_to(&element));
            let get = |name| element.property::<Option<String>>(name).unwrap();
            assert_eq!((get("user-id").as_str(), get("user-pw").as_str()), ("a", "b"), "{factory}");
        }
        // It has no such properties, and is left alone.
        assert!(!Login::new("a", "b").give_to(&gst::ElementFactory::make("filesrc").build().unwrap()));
    }
}
