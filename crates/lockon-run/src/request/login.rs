//! User and password for a server, kept out of addresses that others can see.

use std::path::Path;

use lockon_core::error::{Error, Result};
use lockon_gst::source::{Input, Login};

/// The variable that may contain them if no file is named.
const VARIABLE: &str = "LOCKON_CREDENTIALS";

/// User and password for the server of an input, from the named file or from the environment.
///
/// # Errors
/// `Usage` if a file is named but there is no server for it, and the errors of [`Login::read`].
pub fn login(credentials: Option<&Path>, input: &Input) -> Result<Option<Login>> {
    let is_network = matches!(input, Input::Uri(_)) && input.file().is_none();
    let has_server = is_network || matches!(input, Input::Launch(_));
    match credentials {
        Some(_) if !has_server => Err(Error::Usage(
            "--credentials is for an address: other inputs need no user and password".into(),
        )),
        Some(path) => Login::read(path).map(Some),
        None if !has_server => Ok(None),
        None => match std::env::var(VARIABLE) {
            Ok(text) if !text.is_empty() => {
                let login = text.parse();
                login.map(Some).map_err(|error| Error::Usage(format!("{VARIABLE}: {error}")))
            }
            _ => Ok(None),
        },
    }
}
