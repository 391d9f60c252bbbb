// What the kernels and their launchers have to agree on.
//
// Constants. NVRTC writes each `constexpr` number of a namespace into the PTX, and the launchers take theirs
// from there while they are compiled (crates/lockon-cuda/src/shared.rs): there is no second place to change.
//
// Structures that a launcher fills. Beside each stands a static_assert of how it lies, and beside its Rust
// twin the same numbers: each compiler checks its own.
#pragma once

// Bytes from the start of a structure to a field, by what NVRTC has in place of `offsetof`.
#define OFFSET(type, field) __INTADDR__(&((type*)0)->field)
