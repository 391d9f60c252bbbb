//! lockon finds and follows known patterns in live or recorded video.
//!
//! A frame's path, file by file: `media::source` decodes → [`engine`] loops → [`backend`] matches and thresholds →
//! [`tracker`] follows → `media::sink` and [`output`] draw, encode and write. ARCHITECTURE.md tells it in two pages.
//!
//! Matching is zero-mean normalised cross-correlation (NCC, OpenCV's `TM_CCOEFF_NORMED`) by exact integer sums: what is
//! reported is the same to the bit on every backend and for every number of threads. [`mod@reference`] is the definition.

pub mod backend;
pub mod config;
pub mod engine;
pub mod error;
pub mod frame;
pub mod media;
pub mod output;
pub mod overlay;
pub mod ports;
pub mod recycle;
pub mod reference;
pub mod results;
pub mod stats;
pub mod still;
pub mod template;
pub mod tracker;

pub use error::{Error, Result};
