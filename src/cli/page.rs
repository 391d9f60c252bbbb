//! The page that `--serve` asks for, and where it is.

#[cfg(feature = "serve")]
use std::path::Path;

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

/// The page of a run, or of several.
pub(super) struct Page(#[cfg(feature = "serve")] serve::Page);

impl Page {
    /// Serves the page that was asked for, and says where.
    #[cfg(feature = "serve")]
    pub(super) fn of(request: &Request) -> Result<Option<Self>> {
        let Some(address) = &request.serve else { return Ok(None) };
        let page = serve::Page::start(address)?;
        log::say(&format!("page: {}", page.url()));
        Ok(Some(Self(page)))
    }

    /// Requests that ask for one are refused where there is none.
    #[cfg(not(feature = "serve"))]
    pub(super) fn of(_: &Request) -> Result<Option<Self>> {
        Ok(None)
    }

    /// Serves one on which cameras, and videos in a folder, can be chosen, and says where. What somebody has
    /// chosen comes out of the receiver.
    #[cfg(feature = "serve")]
    pub(super) fn offering(
        address: &Address,
        folder: Option<&Path>,
    ) -> Result<(Self, Receiver<serve::Chosen>)> {
        let (page, chosen) = serve::Page::offering(address, folder)?;
        log::say(&format!("page: {}", page.url()));
        Ok((Self(page), chosen))
    }

    /// The same as [`Self::show`]; gives the number that the run has on the page.
    #[cfg(feature = "serve")]
    pub(super) fn number(&self, run: &mut Run, name: &str) -> usize {
        run.show(&self.0, name)
    }

    /// Shows a run under a name.
    #[cfg_attr(not(feature = "serve"), expect(clippy::unused_self, reason = "there is none to show it on"))]
    pub(super) fn show(&self, run: &mut Run, name: &str) {
        #[cfg(feature = "serve")]
        run.show(&self.0, name);
        #[cfg(not(feature = "serve"))]
        let _ = (run, name);
    }
}
