//! `lockon match` and `lockon threshold`, and the loading of templates that `run` shares.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;

use lockon::Error;
use lockon::backend::{self, Findings, Standing};
use lockon::config::{BackendChoice, Limits};
use lockon::frame::{FrameMeta, PixelFormat, Plane, PlaneRef, Rect};
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

/// Loads `[NAME=]PATH` templates. Without a name they take their file's, without its extension.
///
/// A name that is typed several times gathers several appearances of one thing; a file's name that another template has
/// is refused, since it was hardly meant.
pub(super) fn load_templates(texts: &[String]) -> lockon::Result<Vec<NamedTemplate>> {
    let mut templates: Vec<NamedTemplate> = Vec::new();
    for text in texts {
        let (typed, path) = name_and_path(text);
        let from_file = || path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let (is_typed, name) = (typed.is_some(), typed.unwrap_or_else(from_file));
        if !is_typed && templates.iter().any(|t| **t.template.name() == *name) {
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
fn name_and_path(text: &str) -> (Option<String>, PathBuf) {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !name.contains('/') && !Path::new(text).exists() => {
            (Some(name.to_owned()), path.into())
        }
        _ => (None, text.into()),
    }
}

/// `lockon match`: one `frame` record on standard output, best match first.
pub(super) fn find(args: &MatchArgs) -> Result<Outcome> {
    let scene = still::load(&args.scene)?;
    let templates = load_templates(&args.templates)?;
    let started = Instant::now();
    let bank = run::bank(&templates, &args.search)?;
    let (bank, roi) = run::searched(bank.as_deref(), args.search.roi, scene.luma.size())?;
    let standing = Standing { bank, roi, ..standing(&scene.luma, args.search.limits()) };
    let found = work(args.backend, standing, run::threads(args.threads), scene.luma.as_ref())?;
    let mut record = FrameRecord { matches: found.matches, ..FrameRecord::default() };
    record.matches.sort_by(|a, b| b.score.total_cmp(&a.score));
    if let Some(path) = &args.output {
        save_overlay(path, &scene.luma, &record)?;
    }
    record.latency_us = started.elapsed().as_micros() as u64;
    let mut line = serde_json::to_vec(&Record::Frame(&record))?;
    line.push(b'\n');
    std::io::stdout().write_all(&line)?;
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
    let picture = still::load(&args.image)?;
    let standing = Standing {
        threshold: Some(args.method),
        wants_mask: true,
        ..standing(&picture.luma, Limits::default())
    };
    let found = work(args.backend, standing, run::threads(None), picture.luma.as_ref())?;
    let mask = found.mask.expect("the mask was asked for");
    still::save(&args.output, mask.as_ref().as_ref())?;
    Ok(Outcome::Done)
}

fn standing(picture: &Plane, limits: Limits) -> Standing {
    let frame = picture.size();
    Standing { frame, bank: None, roi: Rect::whole(frame), limits, threshold: None, wants_mask: false }
}

/// One picture through a backend, as if it were a video of one frame.
fn work(
    choice: BackendChoice,
    standing: Standing,
    threads: usize,
    picture: PlaneRef<'_>,
) -> lockon::Result<Findings> {
    let mut backend = backend::open(choice, standing, 1, threads)?;
    let meta = FrameMeta { index: 0, pts_ns: None, duration_ns: None, arrived: Instant::now() };
    backend.submit(meta, picture)?;
    let mut findings = Findings::default();
    backend.wait_next(&mut findings)?;
    Ok(findings)
}
