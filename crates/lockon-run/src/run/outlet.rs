//! Outputs that other crates add to a run: receivers of events, counts for Prometheus.

use std::fmt;
use std::sync::Arc;

use crate::request::{FIELDS, Field, Request};
use lockon_core::error::{Error, Result};
use lockon_core::ports::Sink;
use lockon_core::surface::Traffic;

/// Opens an output of a run for an option that the run itself cannot fulfil.
pub trait Outlet: fmt::Debug + Send + Sync {
    /// The option of the request, such as `events`.
    fn option(&self) -> &'static str;

    /// Opens the output before the video is opened. Called only if the request has the option.
    ///
    /// # Errors
    /// Whatever cannot be opened.
    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn Sink>>;
}

/// A run that is being opened.
#[derive(Debug, Clone, Copy)]
pub struct Opening<'a> {
    /// The request of the run.
    pub request: &'a Request,
    /// The name of the video.
    pub name: &'a str,
    /// Counts the bytes that the run moves.
    pub traffic: &'a Traffic,
}

/// Refuses a request with an option that no outlet fulfils.
///
/// # Errors
/// `Usage`.
pub(super) fn check(request: &Request, outlets: &[Arc<dyn Outlet>]) -> Result<()> {
    let is_missing = |field: &&Field| {
        field.spec.needs_outlet
            && field.is_set(request)
            && outlets.iter().all(|outlet| outlet.option() != field.name)
    };
    match FIELDS.iter().find(is_missing) {
        Some(field) => Err(Error::Usage(format!("{}: no outlet of the run is for it", field.option()))),
        None => Ok(()),
    }
}

/// Opens the outlets whose options the request has.
///
/// # Errors
/// Whatever cannot be opened.
pub(super) fn open_all(opening: &Opening<'_>, outlets: &[Arc<dyn Outlet>]) -> Result<Vec<Box<dyn Sink>>> {
    let is_wanted = |outlet: &&Arc<dyn Outlet>| {
        Field::named(outlet.option()).is_some_and(|field| field.is_set(opening.request))
    };
    outlets.iter().filter(is_wanted).map(|outlet| outlet.open(opening)).collect()
}
