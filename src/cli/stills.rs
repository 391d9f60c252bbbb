//! `lockon match` and `lockon threshold`, and the loading of templates that `run` shares.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;

use lockon::Error;
use lockon::backend::{self, Findings, Options, Standing};
use lockon::config::{BackendChoice, Kernel, ThresholdSpec};
use lockon::files;
use lockon::frame::{FrameMeta, PixelFormat, Plane, PlaneRef};
use lockon::overlay::{self, Canvas};
use lockon::results::{FrameRecord, Record};
use lockon::still;
use lockon::template::Template;

use super::Outcome;
use super::args::{MatchArgs, ThresholdArgs};
use super::run;

/// A template with the digest of the file it came from.
pub(super) struct NamedTemplate {
    pub(super) template: Template,
    pub(super) sha256: String,
}

/// Loads `[NAME=]PATH` templates. Without a name they take their file's, without its extension. No two may have the same.
pub(super) fn load_templates(texts: &[String]) -> lockon::Result<Vec<NamedTemplate>> {
    let mut templates: Vec<NamedTemplate> = Vec::new();
    for text in texts {
        let (name, path) = name_and_path(text);
        if templates.iter().any(|t| **t.template.name() == *name) {
            return Err(Error::Usage(format!(
                "two templates are named {name:?}: give them names, NAME=PATH"
            )));
        }
        let still = still::load(&path)?;
        let template = Template::new(name, still.luma, still.alpha.as_ref())?;
        templates.push(NamedTemplate { template, sha256: still.sha256 });
    }
    Ok(templates)
}

/// Splits `NAME=PATH`. A file whose own name has a `=` is a path.
pub(super) fn name_and_path(text: &str) -> (String, PathBuf) {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !name.contains('/') && !Path::new(text).exists() => {
            (name.to_owned(), path.into())
        }
        _ => (Path::new(text).file_stem().unwrap_or_default().to_string_lossy().into_owned(), text.into()),
    }
}

/// `lockon match`: one `frame` record on standard output, best match first.
pub(super) fn find(args: &MatchArgs) -> Result<Outcome> {
    if let Some(output) = &args.output {
        let templates = args.templates.iter().map(|text| name_and_path(text).1);
        let inputs: Vec<_> = templates.chain([args.scene.clone()]).collect();
        check_output(&inputs, output)?;
    }
    check_kernels(&args.kernel, args.backend, true, None)?;
    let scene = still::load(&args.scene)?;
    let templates = load_templates(&args.templates)?;
    let started = Instant::now();
    let sought = run::sought(&templates, &args.search)?.expect("at least one template is required");
    let standing = sought.standing(Standing::new(scene.luma.size()), &args.search)?;
    let found = work(args.backend, &args.kernel, &standing, run::threads(args.threads), scene.luma.as_ref())?;
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
    overlay::draw_results(&mut Canvas::new(views, PixelFormat::Y444, size), record);
    let [y, cb, cr] = &planes;
    still::save_colour(path, [y, cb, cr])
}

/// `lockon threshold`: the thresholded picture as a file.
pub(super) fn threshold(args: &ThresholdArgs) -> Result<Outcome> {
    check_kernels(&args.kernel, args.backend, false, Some(args.method))?;
    check_output(std::slice::from_ref(&args.image), &args.output)?;
    let picture = still::load(&args.image)?;
    let standing = Standing::new(picture.luma.size()).thresholding(Some(args.method), true);
    let found = work(args.backend, &args.kernel, &standing, run::threads(None), picture.luma.as_ref())?;
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

/// Refuses kernels that have nothing to do, or have their work done by another.
pub(super) fn check_kernels(
    kernels: &[Kernel],
    backend: BackendChoice,
    searches: bool,
    threshold: Option<ThresholdSpec>,
) -> lockon::Result<()> {
    let usage = |text: String| Err(lockon::Error::Usage(text));
    for (index, kernel) in kernels.iter().enumerate() {
        if backend == BackendChoice::Cpu {
            return usage(format!("--kernel {kernel} is the CUDA backend's: it needs --backend cuda"));
        }
        let has_work = match kernel {
            Kernel::Ncc(_) => searches,
            Kernel::Box(_) | Kernel::Gaussian(_) => threshold.is_some_and(|spec| kernel.makes(spec.method)),
        };
        if !has_work {
            return usage(format!("--kernel {kernel} has nothing to do here"));
        }
        let same = |other: &&Kernel| std::mem::discriminant(*other) == std::mem::discriminant(kernel);
        if let Some(other) = kernels[..index].iter().find(same) {
            return usage(format!("--kernel {other} and --kernel {kernel} are for the same work"));
        }
    }
    Ok(())
}

/// One picture through a backend, as if it were a video of one frame.
fn work(
    choice: BackendChoice,
    kernels: &[Kernel],
    standing: &Standing,
    threads: usize,
    picture: PlaneRef<'_>,
) -> lockon::Result<Findings> {
    let options = Options { choice, depth: 1, threads, kernels: kernels.iter().copied().collect() };
    let mut backend = backend::open(&options, standing)?;
    let meta = FrameMeta { index: 0, pts_ns: None, duration_ns: None, arrived: Instant::now() };
    backend.submit(meta, &mut |mut plane| plane.copy_from(picture))?;
    let mut findings = Findings::default();
    backend.wait_next(&mut findings)?;
    Ok(findings)
}
