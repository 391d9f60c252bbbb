//! The `lockon` program.

fn main() {}
