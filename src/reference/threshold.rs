//! Adaptive threshold.
