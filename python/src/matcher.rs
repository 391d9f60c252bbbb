//! Template matching.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

use lockon_core::backend::cpu::ncc;
use lockon_core::backend::{Backend, Findings, Options, Standing};
use lockon_core::config::{Angles, Limits, Scales, SearchMethod, Typed};
use lockon_core::control::Control;
use lockon_core::error::{DeviceFault, Error, Result};
use lockon_core::frame::{FrameMeta, Picture, Rect, Size};
use lockon_core::locks::Ranked;
use lockon_core::message::Message;
use lockon_core::results::Match;
use lockon_core::search::Search;
use lockon_core::surface::Surface;
use lockon_core::template::{Bank, Template};
use lockon_core::{memory, workers};
use lockon_run::{backend, setup};
use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use rayon::ThreadPool;

use crate::array::Pixels;
use crate::device;
use crate::failure::exception;
use crate::input::{self, Input};
use crate::process::{ForSize, Owned};

/// The fields of `lockon.Match`.
type Row = (String, usize, usize, usize, usize, f64, f64, f64, f64, f64);

/// Templates that are searched in one picture after the other.
#[pyclass(frozen, module = "lockon._lockon")]
pub(crate) struct Matcher {
    search: Search,
    options: Options,
    opened: ForSize<Opened>,
}

/// A search of pictures of one size.
enum Opened {
    /// The CPU, on the thread that calls, or on a pool of more: pictures are read where they lie.
    Cpu(Box<OnCpu>),
    /// A GPU, or a pyramid.
    Device(Box<dyn Backend>),
}

struct OnCpu {
    matcher: ncc::Matcher,
    roi: Rect,
    pool: Option<Arc<ThreadPool>>,
}

#[pymethods]
impl Matcher {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "`lockon.Matcher` gives each a default")]
    #[expect(clippy::needless_pass_by_value, reason = "Python makes the list for this call")]
    fn new(
        templates: Vec<(String, Bound<'_, PyAny>, Option<Bound<'_, PyAny>>)>,
        limits: (f64, usize, f64),
        scales: Option<&str>,
        angles: Option<&str>,
        roi: Option<(usize, usize, usize, usize)>,
        search: &str,
        device: &str,
        threads: Option<usize>,
        py: Python<'_>,
    ) -> PyResult<Self> {
        let templates = templates.iter().map(|(name, luma, mask)| {
            let mask = mask.as_ref().map(|mask| Pixels::of(mask, &format!("the mask of {name:?}")));
            Ok((name, Pixels::of(luma, &format!("template {name:?}"))?, mask.transpose()?))
        });
        let templates = templates.collect::<PyResult<Vec<_>>>()?;
        let method: SearchMethod = search.parse().map_err(exception)?;
        let options = device::options(device, threads)?;
        let (scales, angles) = (typed::<Scales>(scales)?, typed::<Angles>(angles)?);
        let (min_score, max_matches, max_overlap) = limits;
        let limits = Limits { min_score, max_matches, max_overlap };
        let made = py.detach(|| {
            limits.check()?;
            let templates = templates.into_iter().map(|(name, luma, mask)| prepared(name, &luma, mask));
            let templates = templates.collect::<Result<_>>()?;
            let mut search = Search::new(templates, method, &scales, &angles, &Control::new())?;
            (search.limits, search.roi) = (limits, roi.map(|(x, y, w, h)| Rect::new(x, y, w, h)));
            Ok(search)
        });
        let search = made.map_err(exception)?;
        Ok(Self { search, options, opened: ForSize::default() })
    }

    /// The matches in a picture, as tuples of `lockon.Match`.
    fn find(&self, scene: &Bound<'_, PyAny>) -> PyResult<Vec<Row>> {
        let input = Input::of(scene, "scene")?;
        scene.py().detach(|| self.try_find(input)).map_err(exception)
    }

    /// The device of the last search; none before.
    fn device(&self, py: Python<'_>) -> Option<String> {
        let name = |opened: &Opened| match opened {
            Opened::Cpu(own) if own.matcher.threads() == 1 => "CPU, 1 thread".into(),
            Opened::Cpu(own) => format!("CPU, {} threads", own.matcher.threads()),
            Opened::Device(device) => device.describe().name,
        };
        py.detach(|| self.opened.look(name))
    }
}

impl Matcher {
    fn try_find(&self, input: Input) -> Result<Vec<Row>> {
        let (size, picture) = (input.size(), input.into_picture()?);
        let search = |opened: &mut Opened| match opened {
            Opened::Cpu(own) => {
                let OnCpu { matcher, roi, pool } = &mut **own;
                let (mut matches, limits) = (Vec::new(), &self.search.limits);
                let luma = input::luma(&*picture)?;
                let mut run = || matcher.run(luma, *roi, limits, &mut matches);
                let ran = match pool {
                    Some(pool) => pool.install(run),
                    None => run(),
                };
                ran.map(|()| matches)
            }
            Opened::Device(device) => Ok(find(&mut **device, &picture)?.matches),
        };
        let matches = self.opened.with(size, || self.open(size), search)?;
        Ok(matches.into_iter().map(row).collect())
    }

    fn open(&self, size: Size) -> Result<Opened> {
        let Self { search, options, .. } = self;
        search.check(size)?;
        let Some(sought) = search.sought() else {
            return Err(Error::Settings(Message::new("there are no templates", [])));
        };
        let standing = Standing::new(size);
        if sought.asked() != SearchMethod::Exhaustive {
            let device = setup::open_for(sought, options, &standing, search.roi, search.limits)?;
            return Ok(Opened::Device(device));
        }
        let limit = options.memory.unwrap_or_else(memory::default_limit);
        let standing =
            || standing.clone().searching(sought.bank(&options.control, limit)?, search.roi, search.limits);
        if let Some(gpu) = backend::open_gpu(options, standing)? {
            return Ok(Opened::Device(gpu));
        }
        let Standing { bank: Some(bank), roi, .. } = standing()? else {
            unreachable!("a standing search has its bank");
        };
        let left = usize::try_from(limit.0.saturating_sub(bank.bytes())).unwrap_or(usize::MAX);
        let (mut planner, threads) = (ncc::Planner::new(), options.threads);
        let control = &options.control;
        let matcher = ncc::Matcher::within(&mut planner, bank, roi.size(), threads, control, left)?;
        let pool = if matcher.threads() > 1 { Some(pool(matcher.threads())?) } else { None };
        Ok(Opened::Cpu(Box::new(OnCpu { matcher, roi, pool })))
    }
}

/// The last pool of several threads, which is kept for the next call.
static KEPT: Ranked<Option<Owned<Arc<ThreadPool>>>, 6> = Ranked::new(None);

/// The pool that all matchers and thresholders with so many threads share; for one thread a pool of its own.
pub(crate) fn pool(threads: usize) -> Result<Arc<ThreadPool>> {
    let failed = |error: rayon::ThreadPoolBuildError| Error::Backend {
        backend: "cpu",
        fault: DeviceFault::Other(error.to_string()),
    };
    let pool = workers::pool("lockon", threads).map_err(failed)?;
    if threads > 1 {
        *KEPT.lock() = Some(Owned::new(pool.clone()));
    }
    Ok(pool)
}

fn prepared(name: &str, luma: &Pixels, mask: Option<Pixels>) -> Result<Template> {
    let mask = mask.map(|mask| mask.to_luma()).transpose()?;
    Template::new(name, luma.to_luma()?, mask.as_ref())
}

/// Returns the findings of a device in one picture.
pub(crate) fn find(device: &mut dyn Backend, picture: &Arc<dyn Picture>) -> Result<Findings> {
    let meta = FrameMeta { index: 0, pts_ns: None, duration_ns: None, arrived: Instant::now() };
    let mut findings = Findings::default();
    device.submit(meta, picture)?;
    device.wait_next(&mut findings)?;
    picture.surface().map_or(Ok(()), Surface::check)?;
    Ok(findings)
}

fn row(found: Match) -> Row {
    let Match { template, x, y, w, h, score, scale, angle, cx, cy } = found;
    (template.to_string(), x, y, w, h, score, scale, angle, cx, cy)
}

fn typed<T>(text: Option<&str>) -> PyResult<Typed<T>>
where
    Typed<T>: Default + FromStr<Err = Error>,
{
    text.map_or_else(|| Ok(Typed::default()), |text| text.parse().map_err(exception))
}

/// NCC of a template at every position of a picture.
#[pyfunction]
pub(crate) fn score_map<'py>(
    scene: &Bound<'py, PyAny>,
    template: &Bound<'py, PyAny>,
    mask: Option<&Bound<'py, PyAny>>,
    threads: Option<usize>,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let py = scene.py();
    let (scene, luma) = (Pixels::of(scene, "scene")?, Pixels::of(template, "template")?);
    let mask = mask.map(|mask| Pixels::of(mask, "mask")).transpose()?;
    let threads = device::options("cpu", threads)?.threads;
    let mapped = py.detach(|| {
        let template = prepared("template", &luma, mask)?;
        let (size, map) = (scene.size(), template.size().positions_in(scene.size()));
        let bank = Arc::new(Bank::new(vec![template])?.fitting(size)?);
        let (mut planner, control) = (ncc::Planner::new(), Control::new());
        let limit = usize::try_from(memory::default_limit().0).unwrap_or(usize::MAX);
        let mut matcher = ncc::Matcher::within(&mut planner, bank, size, threads, &control, limit)?;
        let picture = scene.into_picture()?;
        let mut scored = || matcher.score_map(picture.luma(), Rect::whole(size), 0);
        let scores = if threads == 1 { scored()? } else { pool(threads)?.install(scored)? };
        Ok((scores, map))
    });
    let (scores, map) = mapped.map_err(exception)?;
    PyArray1::from_vec(py, scores).reshape([map.height, map.width])
}
