//! Thresholds a still picture: `cargo run --example threshold -- IMAGE -o OUT.png --method mean:31:5`.

use std::path::Path;

use anyhow::{Context, Result, bail};
use lockon::backend::cpu::threshold::Thresholder;
use lockon::config::ThresholdSpec;
use lockon::frame::Plane;
use lockon::still;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [image, o, out, method, spec] = arguments.as_slice() else {
        bail!("expected IMAGE -o OUT.png --method METHOD:BLOCK:PARAMETER[:inv]");
    };
    if (o.as_str(), method.as_str()) != ("-o", "--method") {
        bail!("expected -o and --method after the image, got {o} and {method}");
    }
    let spec: ThresholdSpec = spec.parse()?;
    let picture = still::load(Path::new(image))?.luma;
    let mut mask = Plane::new(picture.size());
    let share = Thresholder::new(&spec, picture.size()).run(picture.as_ref(), &mut mask);
    still::save(Path::new(out), mask.as_ref()).context("the mask")?;
    eprintln!("{spec}: {:.2} % foreground", 100.0 * share);
    Ok(())
}
