//! 1. Find a template in a picture: a bank, a device, one frame.
//!
//! ```text
//! cargo run --release --example 1_find_in_a_picture -- SCENE TEMPLATE [MIN_SCORE]
//! ```
//!
//! Prints each place with its exact score, best first.

#![allow(clippy::print_stdout, reason = "an example prints its result")]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use lockon::backend::{self, Findings, Options, Standing};
use lockon::config::Limits;
use lockon::frame::{FrameMeta, Picture, Rect};
use lockon::still;
use lockon::template::{Bank, Template};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [scene, template, rest @ ..] = args.as_slice() else {
        return Err("usage: 1_find_in_a_picture SCENE TEMPLATE [MIN_SCORE]".into());
    };
    let scene = still::load(Path::new(scene))?.luma;
    let picture = still::load(Path::new(template))?;
    let template = Template::new("template", picture.luma, picture.alpha.as_ref())?;

    // The work to do on every frame; here there is one frame.
    let min_score = rest.first().map_or(Ok(Limits::default().min_score), |text| text.parse())?;
    let standing = Standing {
        bank: Some(Arc::new(Bank::new(vec![template])?)),
        roi: Rect::whole(scene.size()),
        limits: Limits { min_score, max_matches: 10, ..Limits::default() },
        ..Standing::new(scene.size())
    };
    // A GPU if there is one, else the CPU: the scores are the same to the bit.
    let mut backend = backend::open(&Options::default(), &standing)?;
    let meta = FrameMeta { index: 0, pts_ns: None, duration_ns: None, arrived: Instant::now() };
    let picture: Arc<dyn Picture> = Arc::new(scene);
    backend.submit(meta, &picture)?;
    let mut findings = Findings::default();
    backend.wait_next(&mut findings)?;
    for found in &findings.matches {
        println!("{} scores {:.6}", found.rect(), found.score);
    }
    Ok(())
}
