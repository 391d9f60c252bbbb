//! NCC.
