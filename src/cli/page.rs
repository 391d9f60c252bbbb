//! The page of `--serve`: where it is, and how long it stays.

#[cfg(feature = "serve")]
use std::path::Path;
#[cfg(feature = "serve")]
use std::time::{Duration, Instant};

use anyhow::Result;
#[cfg(feature = "serve")]
use crossbeam_channel::Receiver;

#[cfg(feature = "serve")]
use lockon::metrics::Address;
use lockon::request::Request;
use lockon::run::Run;
#[cfg(feature = "serve")]
use lockon::serve;

#[cfg(feature = "serve")]
use super::log;
use super::signals::Signals;

/// A browser that shows the page again within this time was reloaded.
#[cfg(feature = "serve")]
const RELOAD: Duration = Duration::from_secs(3);

/// Between two checks whether the page should end.
#[cfg(feature = "serve")]
const TICK: Duration = Duration::from_millis(50);

/// Names of videos in the page's own name.
#[cfg(feature = "serve")]
const MOST_NAMES: usize = 2;

/// The page of a run, or of several.
pub(super) struct Page(#[cfg(feature = "serve")] serve::Page);

impl Page {
    /// Starts the requested page and prints its address.
    #[cfg(feature = "serve")]
    pub(super) fn of(request: &Request) -> Result<Option<Self>> {
        let Some(address) = &request.serve else { return Ok(None) };
        let page = serve::Page::start(address)?;
        log::say(&format!("page: {}", page.url()));
        Ok(Some(Self(page)))
    }

    /// Without the feature, requests for a page are refused before.
    #[cfg(not(feature = "serve"))]
    pub(super) fn of(_: &Request) -> Result<Option<Self>> {
        Ok(None)
    }

    /// Starts a page with cameras and the videos of a folder, and prints its address. The receiver gives what
    /// was chosen.
    #[cfg(feature = "serve")]
    pub(super) fn offering(
        address: &Address,
        folder: Option<&Path>,
    ) -> Result<(Self, Receiver<serve::Chosen>)> {
        let (page, chosen) = serve::Page::offering(address, folder)?;
        let name = folder.and_then(|folder| folder.file_name()).map(|name| name.to_string_lossy());
        page.call(&name.unwrap_or_default());
        log::say(&format!("page: {}", page.url()));
        Ok((Self(page), chosen))
    }

    /// As [`Self::show`]; gives the run's number on the page.
    #[cfg(feature = "serve")]
    pub(super) fn number(&self, run: &mut Run, name: &str) -> usize {
        run.show(&self.0, name)
    }

    /// Shows a run under a name.
    #[cfg_attr(not(feature = "serve"), expect(clippy::unused_self, reason = "there is no page"))]
    pub(super) fn show(&self, run: &mut Run, name: &str) {
        #[cfg(feature = "serve")]
        run.show(&self.0, name);
        #[cfg(not(feature = "serve"))]
        let _ = (run, name);
    }

    /// Names the page after these videos, which wait until they are shown.
    #[cfg_attr(not(feature = "serve"), expect(clippy::unused_self, reason = "there is no page"))]
    pub(super) fn announce(&self, names: Vec<String>) {
        #[cfg(feature = "serve")]
        {
            let first = names.iter().take(MOST_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
            match names.len().saturating_sub(MOST_NAMES) {
                0 => self.0.call(&first),
                more => self.0.call(&format!("{first} and {more} more")),
            }
            self.0.announce(names);
        }
        #[cfg(not(feature = "serve"))]
        let _ = names;
    }

    /// A video has ended, or could not be opened for this reason.
    #[cfg_attr(not(feature = "serve"), expect(clippy::unused_self, reason = "there is no page"))]
    pub(super) fn withdraw(&self, name: &str, error: Option<String>) {
        #[cfg(feature = "serve")]
        self.0.withdraw(name, error);
        #[cfg(not(feature = "serve"))]
        let _ = (name, error);
    }

    /// Keeps the page after the end of all videos; `say` is called first if it stays.
    ///
    /// On a terminal it stays until Ctrl-C, or until it is closed in the browser. Elsewhere a script
    /// may wait for the end: there it stays only while a browser shows it. With `exits` it never stays.
    #[cfg(feature = "serve")]
    pub(super) fn stay(&self, signals: &Signals, exits: bool, say: impl FnOnce()) {
        let Self(page) = self;
        let is_terminal = log::is_terminal();
        if exits || signals.exit_code().is_some() || (!is_terminal && page.viewers() == 0) {
            return;
        }
        say();
        let rule = if is_terminal {
            "until Ctrl-C, or Close on the page"
        } else {
            "while a browser shows it (--exit-at-end ends with the video)"
        };
        // Before the message: its reader may press Ctrl-C at once.
        signals.expect_end();
        page.done();
        log::say(&format!("all videos have ended; the page stays {rule}: {}", page.url()));
        let mut seen = Instant::now();
        while signals.exit_code().is_none() && !page.is_closed() {
            if page.viewers() > 0 {
                seen = Instant::now();
            } else if !is_terminal && seen.elapsed() > RELOAD {
                break;
            }
            std::thread::sleep(TICK);
        }
    }

    /// Without the feature there is no page.
    #[cfg(not(feature = "serve"))]
    #[expect(clippy::unused_self, reason = "there is no page")]
    pub(super) fn stay(&self, _: &Signals, _: bool, _: impl FnOnce()) {}
}
