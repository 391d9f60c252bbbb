//! `lockon match` and `lockon threshold`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;

use lockon::backend::{self, Findings, Options, Standing};
use lockon::config::{BackendChoice, Kernel};
use lockon::files;
use lockon::frame::{FrameMeta, PixelFormat, Plane, PlaneRef};
use lockon::job::{self, check_device};
use lockon::overlay::{self, Canvas, Trails};
use lockon::results::{FrameRecord, Record};
use lockon::still;

use super::Outcome;
use super::args::{MatchArgs, ThresholdArgs};

/// `lockon match`: one `frame` record on standard output, best match first.
pub(super) fn find(args: &MatchArgs) -> Result<Outcome> {
    if let Some(output) = &args.output {
        let templates = args.templates.iter().map(|text| job::name_and_path(text).1);
        let inputs: Vec<_> = templates.chain([args.scene.clone()]).collect();
        check_output(&inputs, output)?;
    }
    check_device(&args.kernel, args.backend, Some(args.search.search), None)?;
    let scene = still::load(&args.scene)?;
    let templates = job::load_templates(&args.templates)?;
    args.overwrite.allow(args.output.as_slice())?;
    let started = Instant::now();
    let sought = args.search.sought(&templates)?.expect("at least one template is required");
    let standing = Standing::new(scene.luma.size());
    let standing = sought.standing(standing, args.search.roi, args.search.limits())?;
    let options = Options { memory: args.memory, ..options(args.backend, &args.kernel, args.threads) };
    let found = work(&options, &standing, scene.luma.as_ref())?;
    let mut record = FrameRecord { matches: found.matches, ..FrameRecord::default() };
    // The tie order of the peaks, across names too; the sort keeps the bank's order for the rest.
    record.matches.sort_by(|a, b| b.score.total_cmp(&a.score).then((a.y, a.x).cmp(&(b.y, b.x))));
    record.latency_us = started.elapsed().as_micros() as u64;
    let mut line = serde_json::to_vec(&Record::Frame(&record))?;
    line.push(b'\n');
    std::io::stdout().write_all(&line)?;
    if let Some(path) = &args.output {
        save_overlay(path, &scene.luma, &record)?;
    }
    Ok(Outcome::Done)
}

/// The grey picture with the matches drawn in colour.
fn save_overlay(path: &Path, luma: &Plane, record: &FrameRecord) -> lockon::Result<()> {
    let size = luma.size();
    let grey = Plane::from_vec(vec![128; size.area()], size);
    let mut planes = [luma.clone(), grey.clone(), grey];
    let views = planes.iter_mut().map(Plane::as_mut).collect();
    overlay::draw_results(&mut Canvas::new(views, PixelFormat::Y444, size), record, &mut Trails::default());
    let [y, cb, cr] = &planes;
    still::save_colour(path, [y, cb, cr])
}

/// `lockon threshold`: the thresholded picture as a file.
pub(super) fn threshold(args: &ThresholdArgs) -> Result<Outcome> {
    check_device(&args.kernel, args.backend, None, Some(args.method))?;
    check_output(std::slice::from_ref(&args.image), &args.output)?;
    let picture = still::load(&args.image)?;
    args.overwrite.allow(std::slice::from_ref(&args.output))?;
    let standing = Standing::new(picture.luma.size()).thresholding(Some(args.method), true);
    let found = work(&options(args.backend, &args.kernel, None), &standing, picture.luma.as_ref())?;
    let mask = found.mask.expect("the mask was asked for");
    still::save(&args.output, mask.plane(0))?;
    Ok(Outcome::Done)
}

/// Refuses, before any work, a picture that could not be written.
fn check_output(inputs: &[PathBuf], output: &PathBuf) -> lockon::Result<()> {
    still::check_extension(output)?;
    files::check_distinct(inputs, std::slice::from_ref(output))?;
    files::check_writable(output).map(|_| ())
}

fn options(choice: BackendChoice, kernels: &[Kernel], threads: Option<u16>) -> Options {
    let (threads, kernels) = (job::threads(threads), kernels.iter().copied().collect());
    Options { choice, depth: 1, threads, kernels, ..Options::default() }
}

/// One picture through a backend, as if it were a video of one frame.
fn work(options: &Options, standing: &Standing, picture: PlaneRef<'_>) -> lockon::Result<Findings> {
    let mut backend = backend::open(options, standing)?;
    let meta = FrameMeta { index: 0, pts_ns: None, duration_ns: None, arrived: Instant::now() };
    backend.submit(meta, &mut |mut plane| plane.copy_from(picture))?;
    let mut findings = Findings::default();
    backend.wait_next(&mut findings)?;
    Ok(findings)
}
