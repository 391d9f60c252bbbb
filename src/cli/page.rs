//! The page of `--serve`: its address, and how long it stays.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use crossbeam_channel::Receiver;

use lockon::page;
use lockon::request::ListenAddress;
use lockon::request::Request;
use lockon::run::Run;

use super::log;
use super::signals::Signals;

/// A browser that shows the page again within this time was reloaded.
const RELOAD: Duration = Duration::from_secs(3);

/// Time between two checks whether the page should end.
const TICK: Duration = Duration::from_millis(50);

/// Maximum names of videos in the page's own name.
const MOST_NAMES: usize = 2;

/// The page of a run, or of several.
pub(super) struct Page(page::Page);

impl Page {
    /// Starts the requested page and prints its address.
    pub(super) fn of(request: &Request) -> Result<Option<Self>> {
        let Some(address) = &request.serve else { return Ok(None) };
        let page = page::Page::start(address)?;
        log::say(&format!("page: {}", page.url()));
        Ok(Some(Self(page)))
    }

    /// Starts a page with cameras and the videos of a folder, and prints its address. The receiver returns
    /// the videos that were chosen.
    pub(super) fn offering(
        address: &ListenAddress,
        folder: Option<&Path>,
    ) -> Result<(Self, Receiver<page::Chosen>)> {
        let (page, chosen) = page::Page::offering(address, folder)?;
        let name = folder.and_then(|folder| folder.file_name()).map(|name| name.to_string_lossy());
        page.call(&name.unwrap_or_default());
        log::say(&format!("page: {}", page.url()));
        Ok((Self(page), chosen))
    }

    /// Shows a run under a name; returns the run's number on the page.
    pub(super) fn show(&self, run: &mut Run, name: &str) -> usize {
        self.0.show(run, name)
    }

    /// Names the page after these videos, which wait until they are shown.
    pub(super) fn announce(&self, names: Vec<String>) {
        let first = names.iter().take(MOST_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
        match names.len().saturating_sub(MOST_NAMES) {
            0 => self.0.call(&first),
            more => self.0.call(&format!("{first} and {more} more")),
        }
        self.0.announce(names);
    }

    /// A video has ended, or could not be opened for this reason.
    pub(super) fn withdraw(&self, name: &str, error: Option<String>) {
        self.0.withdraw(name, error);
    }

    /// Keeps the page after the end of all videos; `say` is called first if it stays.
    ///
    /// On a terminal it stays until Ctrl-C, or until it is closed in the browser. Elsewhere a script
    /// may wait for the end: there it stays only while a browser shows it. With `exits` it never stays.
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
}
