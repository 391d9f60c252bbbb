//! The CPU backend.
pub mod threshold;
