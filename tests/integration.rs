//! Integration tests, in one binary: the engine in memory, the program on real files, the rules of the tree.

mod architecture;
mod cli;
mod engine;
mod tracker;
mod util;
