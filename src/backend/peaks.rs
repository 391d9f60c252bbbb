//! Peaks of score maps.
