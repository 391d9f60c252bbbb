//! The CUDA backend.

#![allow(dead_code, reason = "being written")]

pub mod driver;
