//! A run of lockon as a value: [`request`] describes the work, [`run`] does it, [`fleet`] does many at once.
//!
//! A run assembles a source of `lockon-gst`, a device of [`backend`], the tracker and the engine of
//! `lockon-core`, and sinks. It does not know events, page and farm: it gets their outputs as
//! [`run::Outlet`]s.

pub mod backend;
pub mod devices;
#[cfg(feature = "gst")]
pub mod fleet;
mod hardware;
#[cfg(feature = "gst")]
pub mod request;
#[cfg(feature = "gst")]
pub mod run;
pub mod setup;
#[cfg(test)]
#[path = "../../../tests/test_log.rs"]
mod test_log;
