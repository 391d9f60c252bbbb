//! Compares the texture unit with a model of it in every mode of CUDA: each combination of memory (linear,
//! rows, 2-D and 3-D arrays), texel, filter, addressing, coordinates and result of a fetch.
//!
//! ```text
//! cargo run -p lockon-cuda --features bench --example texture_modes              # all 783
//! cargo run -p lockon-cuda --features bench --example texture_modes -- linear mirror 3-D
//! ```
//!
//! Words after `--` leave only the rows that have all of them.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it is a program")]

use std::process::ExitCode;

use lockon_cuda::bench::{Context, FetchMode};

fn main() -> ExitCode {
    let wanted: Vec<_> = std::env::args().skip(1).collect();
    match show(&wanted) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a row for each mode that has all of the words; true if all are as the model has them.
fn show(wanted: &[String]) -> lockon_core::Result<bool> {
    let context = Context::open(0)?;
    println!("{}", context.describe().name);
    println!(
        "{:<10} {:<7} {:<7} {:<8} {:<12} {:<17} {:>8} {:>10} {:>10}",
        "memory", "texel", "filter", "address", "coordinates", "read", "fetches", "off by", "allowed"
    );
    let mut is_right = true;
    context.compare_texture_modes(&mut |mode| {
        let FetchMode { memory, texel, filter, address, coordinates, read, fetches, off, allowed, .. } = mode;
        let row = format!("{memory:<10} {texel:<7} {filter:<7} {address:<8} {coordinates:<12} {read:<17}");
        if wanted.iter().all(|word| row.contains(word)) {
            println!("{row} {fetches:>8} {off:>10.6} {allowed:>10.6}");
            if let Some(wrong) = &mode.wrong {
                println!("  {wrong}");
                is_right = false;
            }
        }
    })?;
    Ok(is_right)
}
