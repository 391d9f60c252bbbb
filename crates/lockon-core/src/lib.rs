//! The engine of lockon, which finds and follows known patterns in video: everything but where video comes
//! from, where it goes to, and GPUs.
//!
//! [`engine`] runs between two traits, [`ports::Source`] and [`ports::Sink`], over a device behind a third,
//! [`backend::Backend`]; the CPU is one. [`mod@reference`] is the definition of every score and threshold:
//! plain loops that backends are tested against, byte by byte.
//!
//! The writers of results files (`output`), the reader of pictures (`pictures`) and the page about a run
//! (`report`) are features, all off by default.

pub mod appearances;
mod as_text;
pub mod backend;
pub mod change;
pub mod colour;
pub mod config;
pub mod control;
pub mod device_memory;
pub mod distinctiveness;
pub mod engine;
pub mod error;
pub mod excerpt;
#[cfg(feature = "files")]
pub mod files;
pub mod frame;
mod geometry;
pub mod locks;
pub mod memory;
pub mod message;
pub mod metrics;
pub mod orders;
#[cfg(feature = "output")]
pub mod output;
pub mod overlay;
pub mod paced;
pub mod ports;
pub mod processors;
pub mod recent_frames;
pub mod recycle;
pub mod reference;
pub mod results;
pub mod search;
pub mod shell;
pub mod simd;
pub mod stats;
#[cfg(feature = "pictures")]
pub mod still;
pub mod tally;
pub mod template;
pub mod text;
pub mod threads;
pub mod track_events;
pub mod tracker;
pub mod workers;

pub use error::{Error, Result};
pub use frame::surface;
