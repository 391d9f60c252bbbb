//! The CPU backend.

mod correlate;
pub mod ncc;
mod plan;
mod search;
mod sums;
