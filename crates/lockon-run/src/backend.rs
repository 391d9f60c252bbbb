//! The device seam and the devices, and [`open`], which chooses one.

pub use lockon_core::backend::*;
#[cfg(feature = "cuda")]
pub use lockon_cuda as cuda;

pub use crate::devices::{Ahead, open, open_gpu, probe};
pub use crate::hardware::{Node, may_have_gpu, node_of};

#[cfg(not(feature = "cuda"))]
#[path = "no_cuda.rs"]
pub mod cuda;
