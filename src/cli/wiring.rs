//! The program's additions to its runs: receivers of events, counts for Prometheus, the page, progress, and
//! the command line in results.

use std::sync::Arc;

use anyhow::Result;

use lockon::events::Receivers;
use lockon::metrics::Registry;
use lockon::page::MetricsServer;
use lockon::request::Request;
use lockon::run::{Outlet, Run};

use super::log;
use super::page::Page;
use super::progress::Progress;

/// The outlets of every run.
pub(super) fn outlets() -> Vec<Arc<dyn Outlet>> {
    vec![Arc::new(Receivers)]
}

/// The server of metrics and the page of all runs of a command.
pub(super) struct Wiring {
    metrics: Option<MetricsServer>,
    page: Option<Page>,
}

impl Wiring {
    /// Starts the servers of `--metrics` and `--serve`, and prints their addresses. The page is named after
    /// the videos.
    pub(super) fn of(request: &Request, videos: Vec<String>) -> Result<Self> {
        let start = |address| MetricsServer::start(address, &Registry::default());
        let metrics = request.metrics.as_ref().map(start).transpose()?;
        if let Some(server) = &metrics {
            log::say(&format!("metrics: {}", server.url()));
        }
        let page = Page::of(request)?;
        if let Some(page) = &page {
            page.announce(videos);
        }
        Ok(Self { metrics, page })
    }

    /// Wires runs to this page alone.
    pub(super) fn to(page: Page) -> Self {
        Self { metrics: None, page: Some(page) }
    }

    pub(super) fn page(&self) -> Option<&Page> {
        self.page.as_ref()
    }

    /// The outlets of a run, which is counted under the name of its video.
    pub(super) fn outlets(&self, video: &str) -> Vec<Arc<dyn Outlet>> {
        let counted = self.metrics.as_ref().map(|server| Arc::new(server.outlet(video)) as Arc<dyn Outlet>);
        outlets().into_iter().chain(counted).collect()
    }

    /// Notes the command line in an open run, and shows its progress and the run itself. Returns its number
    /// on the page.
    pub(super) fn attach(
        &self,
        run: &mut Run,
        video: &str,
        line: impl IntoIterator<Item = String>,
        progress: Option<Progress>,
    ) -> Option<usize> {
        run.note_command(line);
        if let Some(progress) = progress {
            run.add_sink(Box::new(progress));
        }
        self.page.as_ref().map(|page| page.show(run, video))
    }
}
