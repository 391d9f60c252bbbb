//! A run of lockon as a value: [`request`] describes the work, [`run`] does it, [`fleet`] does many at once.
//!
//! A run assembles a source of `lockon-gst`, a device of [`backend`], the tracker and the engine of
//! `lockon-core`, and sinks. It knows no events, no page and no farm: their outputs are handed to it as
//! [`run::Outlet`]s.

pub mod backend;
pub mod devices;
#[cfg(feature = "gst")]
pub mod fleet;
mod hardware;
pub mod job;
#[cfg(feature = "gst")]
pub mod request;
#[cfg(feature = "gst")]
pub mod run;
#[cfg(test)]
#[path = "../../../tests/say.rs"]
mod say;
