// Definitions that the kernels and their launchers share.
//
// Constants. NVRTC writes each `constexpr` number of a namespace into the PTX, and the launchers read theirs
// from there at compile time (crates/lockon-cuda/src/shared.rs): there is no second place to change.
//
// Structures that a launcher fills. Each has a static_assert of its layout, and its Rust twin has the same
// numbers: each compiler checks its own.
#pragma once

// Bytes from the start of a structure to a field, by what NVRTC has in place of `offsetof`.
#define OFFSET(type, field) __INTADDR__(&((type*)0)->field)
