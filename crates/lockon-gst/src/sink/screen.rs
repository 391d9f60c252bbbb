//! Checks for a screen, and has the pipeline that shows frames on it.

use crate::launch::{self, Launch};
use crate::window;
use lockon_core::error::{Error, Result};

pub(super) const DISPLAY: &str = include_str!("../../pipelines/display.launch");

/// The pipeline that shows frames on the screen, without opening anything.
pub fn display_launch(is_live: bool) -> Launch {
    let mut launch = Launch::new("display.launch", DISPLAY);
    launch.set("screen", "sync", !is_live);
    launch
}

/// The error if a pipeline cannot open a window.
pub(crate) const NO_WINDOW: &str = "no window can be opened: no display server that GStreamer can show frames on answers at DISPLAY or WAYLAND_DISPLAY";

/// Appended to the error if there is no screen, with its blank.
pub(super) const REMEDY: &str = " (-o FILE writes a file)";

/// Checks that there is a desktop for a window; if not, the error ends with `remedy`.
pub(crate) fn check_screen(remedy: &str) -> Result<()> {
    launch::init()?;
    window::avoid_directfb();
    has_screen(|name| std::env::var_os(name).is_some(), remedy)
}

/// `is_set` looks up a variable of the environment.
pub(super) fn has_screen(is_set: impl Fn(&str) -> bool, remedy: &str) -> Result<()> {
    // autovideosink tries every installed output, and some end the process if there is no screen: DirectFB's
    // does in Debian 12. To draw on a console, name kmssink with --sink.
    if cfg!(target_os = "linux") && !is_set("DISPLAY") && !is_set("WAYLAND_DISPLAY") {
        let reason = format!("there is no screen here: neither DISPLAY nor WAYLAND_DISPLAY is set{remedy}");
        return Err(Error::Output { name: "display".to_owned(), reason });
    }
    Ok(())
}
