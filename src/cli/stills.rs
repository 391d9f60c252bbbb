//! `lockon match` and `lockon threshold`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;

use lockon::Error;
use lockon::backend::{self, Backend, Findings, Options, Standing};
use lockon::config::View;
use lockon::control::Control;
use lockon::files;
use lockon::frame::{FrameMeta, Picture, PixelFormat, Plane, PlaneRef};
use lockon::output;
use lockon::overlay::{self, Canvas, Trails};
use lockon::request::Request;
use lockon::results::{FrameRecord, Match, Record, ThresholdResult};
use lockon::setup::{self, NamedTemplate, check_device};
use lockon::still::{self, Density, MaskFile, MaskKind, Still, Warned};

use super::args::{MatchArgs, ThresholdArgs};
use super::words::counted;
use super::{Outcome, explain, log, no_terminal, print};

/// `lockon match`: one `frame` record on standard output, best match first, or the picture in its place. Ends
/// well only if there is a match.
pub(super) fn find(args: &MatchArgs) -> Result<Outcome> {
    if let Some(output) = &args.output {
        let templates = args.templates.iter().map(|text| setup::name_and_path(text).1);
        let inputs: Vec<_> = templates.chain([args.scene.clone()]).collect();
        check_output(&inputs, output)?;
    }
    let request = args.typed.request()?;
    let scene = load_scene(&args.scene, None)?;
    let templates = setup::load_templates(&args.templates)?;
    let written: Vec<_> = args.output.iter().filter(|path| !files::is_stdout(path)).cloned().collect();
    args.overwrite.allow(&written)?;
    let started = Instant::now();
    let options = Options { depth: 1, ..request.options(&Control::new()) };
    let setup = request.setup(templates, &options.control)?;
    let sought = setup.search.sought().expect("at least one template is required");
    let standing = Standing::new(scene.luma.size());
    let backend = setup::open_for(sought, &options, &standing, request.roi, request.limits())?;
    let found = work(backend, scene.luma.as_ref())?;
    let mut record = FrameRecord { matches: found.matches, ..FrameRecord::default() };
    // The tie order of the peaks, across names too; the sort keeps the bank's order for the rest.
    record.matches.sort_by(|a, b| b.score.total_cmp(&a.score).then((a.y, a.x).cmp(&(b.y, b.x))));
    record.latency_us = started.elapsed().as_micros() as u64;
    let mut line = Vec::new();
    output::write_line(&mut line, &Record::Frame(&record))?;
    let gives_picture = args.output.as_deref().is_some_and(files::is_stdout);
    let text = String::from_utf8(line).expect("JSON is text");
    let printed = if gives_picture { Ok(()) } else { print(&text) };
    if let Some(path) = &args.output {
        save_overlay(path, &scene, &record)?;
    }
    printed?;
    if args.explain {
        let standing = Standing::new(scene.luma.size());
        let limits = explain::limits(request.limits());
        let backend = setup::open_for(sought, &options, &standing, request.roi, limits)?;
        let found = work(backend, scene.luma.as_ref())?;
        for NamedTemplate { template, .. } in &setup.templates {
            let of_template = |m: &&Match| m.template == *template.name();
            let places: Vec<_> = found.matches.iter().filter(of_template).collect();
            let reported = record.matches.iter().filter(of_template).count();
            let search = explain::ExplainedSearch { limits: request.limits(), reported };
            log::say(&explain::describe(template, &places, limits.min_score, &search));
        }
    }
    Ok(if record.matches.is_empty() { Outcome::NoMatch } else { Outcome::Done })
}

/// Loads the picture to search, or one page of it. Warns if its conversion lost something.
fn load_scene(path: &Path, page: Option<usize>) -> lockon::Result<Still> {
    let mut bytes = still::read(path)?;
    if let Some(page) = page {
        bytes = still::page(&bytes, page, path)?;
    }
    let (scene, loss) = setup::decode_picture(&bytes, path, still::MAX_PIXELS)?.into_scene();
    Warned::default().of(loss, path);
    Ok(scene)
}

/// The picture with the matches drawn on it.
fn save_overlay(path: &Path, scene: &Still, record: &FrameRecord) -> lockon::Result<()> {
    let size = scene.luma.size();
    let mut planes = scene.planes();
    let views = planes.iter_mut().map(Plane::as_mut).collect();
    overlay::draw_results(&mut Canvas::new(views, PixelFormat::Y444, size), record, &mut Trails::default());
    scene.save_drawn(path, &planes)
}

/// `lockon threshold`: the thresholded picture as a file, its objects as one `frame` record on standard
/// output.
pub(super) fn threshold(args: &ThresholdArgs) -> Result<Outcome> {
    let request = Request { threshold: Some(args.method), ..args.typed.request()? };
    let output = args.output.as_ref();
    let file = output.map(|output| mask_file(args, output)).transpose()?;
    check_device(&request.kernel, request.backend, None, request.threshold)?;
    request.check_objects()?;
    if args.method.method.remembers() {
        let text = format!(
            "--method {} compares frames with those before: use `lockon run --threshold`",
            args.method
        );
        return Err(Error::Usage(text).into());
    }
    if args.view == View::Split {
        return Err(Error::Usage("--view split is for videos: use mask or overlay".into()).into());
    }
    if let Some(output) = output {
        check_place(std::slice::from_ref(&args.image), output)?;
    }
    let page = args.page.map(|page| page as usize);
    let mut picture = load_scene(&args.image, page)?;
    if let Some(dpi) = args.dpi {
        picture.density = Density::new(dpi.into(), dpi.into());
    }
    if let Some(output) = output.filter(|output| !files::is_stdout(output)) {
        args.overwrite.allow(std::slice::from_ref(output))?;
    }
    let started = Instant::now();
    let standing = Standing::new(picture.luma.size())
        .thresholding(request.threshold, output.is_some())
        .finding(request.object_spec());
    let backend = backend::open(&Options { depth: 1, ..request.options(&Control::new()) }, &standing)?;
    let found = work(backend, picture.luma.as_ref())?;
    let record = FrameRecord {
        threshold: found.foreground.map(|foreground| ThresholdResult { foreground }),
        objects: found.objects,
        more_objects: found.more_objects,
        latency_us: started.elapsed().as_micros() as u64,
        ..FrameRecord::default()
    };
    if let (Some(path), Some(file)) = (output, file) {
        if args.view == View::Overlay {
            save_overlay(path, &picture, &record)?;
        } else {
            let mask = found.mask.expect("the mask was asked for");
            still::save_mask(path, mask.plane(0), &MaskFile { density: picture.density, ..file })?;
        }
    }
    let Some(objects) = &record.objects else { return Ok(Outcome::Done) };
    // The record follows the picture, which its readers may look for.
    if !output.is_some_and(|output| files::is_stdout(output)) {
        let mut line = Vec::new();
        output::write_line(&mut line, &Record::Frame(&record))?;
        print(&String::from_utf8(line).expect("JSON is text"))?;
    }
    if record.more_objects > 0 {
        let (kept, more) = (objects.len(), record.more_objects);
        log::say(&format!("--object-max: the {kept} largest objects are reported, {more} are left out"));
    }
    Ok(Outcome::Done)
}

/// How the mask is written, without its dots per inch.
///
/// # Errors
/// `Value` or `Usage` if the kind of file is unknown, or cannot be what was asked for.
fn mask_file(args: &ThresholdArgs, output: &Path) -> lockon::Result<MaskFile> {
    let kind = args.format.map_or_else(|| MaskKind::of_path(output), Ok)?;
    let asked = args.bits.as_deref().map(|bits| if bits == "1" { 1 } else { 8 });
    let bits = asked.unwrap_or(kind.bits()[0]);
    if args.view == View::Overlay {
        if !kind.has_colours() || asked == Some(1) {
            return Err(Error::Usage("--view overlay has colours: use .png, .jpg or .bmp, of 8 bits".into()));
        }
        if MaskKind::of_path(output)? != kind {
            let format = "--format is not for --view overlay: let the name of -o end in .png, .jpg or .bmp";
            return Err(Error::Usage(format.into()));
        }
    }
    if !kind.bits().contains(&bits) {
        let can = counted(kind.bits()[0].into(), "bit", "bits");
        return Err(Error::Usage(format!("--bits {bits}: a {kind} has {can} a pixel; a png has 8 or 1")));
    }
    if args.dpi.is_some() && kind == MaskKind::Pbm {
        return Err(Error::Usage("--dpi: a pbm has no dots per inch; use .png or .tif".into()));
    }
    Ok(MaskFile { kind, bits, density: None })
}

/// Refuses, before any work, a picture that could not be written.
fn check_output(inputs: &[PathBuf], output: &PathBuf) -> lockon::Result<()> {
    if !files::is_stdout(output) {
        still::check_extension(output)?;
    }
    check_place(inputs, output)
}

/// As `check_output`, whatever the name of the file ends in.
fn check_place(inputs: &[PathBuf], output: &PathBuf) -> lockon::Result<()> {
    if files::is_stdout(output) {
        return no_terminal();
    }
    files::check_folders(std::slice::from_ref(output))?;
    files::check_distinct(inputs, std::slice::from_ref(output))?;
    files::check_writable(output).map(|_| ())
}

/// One picture through a backend, as if it were a video of one frame.
fn work(mut backend: Box<dyn Backend>, picture: PlaneRef<'_>) -> lockon::Result<Findings> {
    let meta = FrameMeta { index: 0, pts_ns: None, duration_ns: None, arrived: Instant::now() };
    let picture: Arc<dyn Picture> = Arc::new(picture.to_plane());
    backend.submit(meta, &picture)?;
    let mut findings = Findings::default();
    backend.wait_next(&mut findings)?;
    Ok(findings)
}
