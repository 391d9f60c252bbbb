//! The program's additions to its runs: receivers of events, and counts for Prometheus.

use std::sync::Arc;

use lockon::events::Receivers;
use lockon::metrics::Registry;
use lockon::page::MetricsServer;
use lockon::request::Request;
use lockon::run::Outlet;

use super::log;

/// The outlets of every run.
pub(super) fn outlets() -> Vec<Arc<dyn Outlet>> {
    vec![Arc::new(Receivers)]
}

/// The outlets of a run that a server of metrics counts under a name.
pub(super) fn outlets_with(metrics: Option<&MetricsServer>, video: &str) -> Vec<Arc<dyn Outlet>> {
    let counted = metrics.map(|server| Arc::new(server.outlet(video)) as Arc<dyn Outlet>);
    outlets().into_iter().chain(counted).collect()
}

/// Starts the server of `--metrics` and prints its address.
pub(super) fn metrics(request: &Request) -> lockon::Result<Option<MetricsServer>> {
    let Some(address) = &request.metrics else { return Ok(None) };
    let server = MetricsServer::start(address, &Registry::default())?;
    log::say(&format!("metrics: {}", server.url()));
    Ok(Some(server))
}
