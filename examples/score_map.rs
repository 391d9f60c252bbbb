//! Writes the exact score map of a template in a picture as raw little-endian f64, row by row.
//!
//!     cargo run --release --example score_map -- SCENE TEMPLATE OUT.f64
//!
//! Prints the map's width and height. `scripts/check-ncc-against-opencv` compares the file with OpenCV's.

#![allow(clippy::print_stdout, reason = "an example prints its result")]

use std::path::Path;
use std::sync::Arc;

use lockon::backend::cpu::ncc::{Matcher, Planner};
use lockon::frame::Rect;
use lockon::still;
use lockon::template::{Bank, Template};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [scene, template, out] = args.as_slice() else {
        return Err("usage: score_map SCENE TEMPLATE OUT.f64".into());
    };
    let (scene, template) = (still::load(Path::new(scene))?, still::load(Path::new(template))?);
    let template = Template::new("template", template.luma, template.alpha.as_ref())?;
    let (size, template_size) = (scene.luma.size(), template.size());
    let bank = Arc::new(Bank::new(vec![template])?.fitting(size)?);
    let mut matcher = Matcher::new(&mut Planner::new(), bank, size, 1);
    let scores = matcher.score_map(scene.luma.as_ref(), Rect::whole(size), 0)?;
    std::fs::write(out, scores.iter().flat_map(|score| score.to_le_bytes()).collect::<Vec<u8>>())?;
    let map = template_size.positions_in(size);
    println!("{} {}", map.width, map.height);
    Ok(())
}
