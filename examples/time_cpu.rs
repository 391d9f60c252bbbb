//! Runs the commands from standard input with the CPU backend, and prints how long each took.
//!
//!     cargo run --release --example time_cpu -- PICTURE THREADS
//!
//! A line `match X,Y,W,H X,Y,W,H...` searches the first box of the picture for the pictures in the other
//! boxes, all in one bank, `threshold SPEC` binarises the picture, and `objects 4|8 MASK` measures the
//! objects of a mask in a file. The answer is one line: microseconds, then the best match of each box as X,Y,
//! the number of foreground pixels, or the number of objects and the sum of their areas. Work that is done
//! only the first time is planned before the clock starts. `scripts/bench-opencv` alternates it with OpenCV.

use std::collections::HashMap;
use std::error::Error;
use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use lockon::backend::cpu::ncc::{Matcher, Planner};
use lockon::backend::cpu::objects::ObjectFinder;
use lockon::backend::cpu::threshold::Thresholder;
use lockon::config::{Limits, ObjectSpec};
use lockon::frame::{Plane, Rect};
use lockon::results::{Match, Object};
use lockon::still;
use lockon::template::{Bank, Template};
use rayon::{ThreadPool, ThreadPoolBuilder};

/// A planned job, with room for its results.
enum Job {
    Match(Box<Matcher>, Rect, Vec<Match>),
    Threshold(Box<Thresholder>, Plane),
    Objects(Box<ObjectFinder>, Plane, Vec<Object>),
}

/// True for a search that the backend keeps on the thread that asks: to wake others would take as long as
/// they save.
fn is_small(region: Rect, picture: &Plane) -> bool {
    4 * region.size().area() <= picture.size().area()
}

impl Job {
    fn plan(line: &str, picture: &Plane, threads: usize) -> Result<Self, Box<dyn Error>> {
        match line.split_once(' ') {
            Some(("match", boxes)) => {
                let boxes = boxes.split(' ').map(str::parse).collect::<Result<Vec<Rect>, _>>()?;
                let [region, places @ ..] = boxes.as_slice() else { return Err("no boxes".into()) };
                let cut = |(index, place): (usize, &Rect)| {
                    Template::new(index.to_string(), picture.as_ref().crop(*place).to_plane(), None)
                };
                let members = places.iter().enumerate().map(cut).collect::<Result<Vec<_>, _>>()?;
                let bank = Arc::new(Bank::new(members)?.fitting(region.size())?);
                let threads = if is_small(*region, picture) { 1 } else { threads };
                let matcher = Matcher::new(&mut Planner::new(), bank, region.size(), threads);
                Ok(Self::Match(Box::new(matcher), *region, Vec::new()))
            }
            Some(("threshold", spec)) => {
                let thresholder = Thresholder::new(&spec.parse()?, picture.size());
                Ok(Self::Threshold(Box::new(thresholder), Plane::new(picture.size())))
            }
            Some(("objects", what)) => {
                let (connectivity, path) = what.split_once(' ').ok_or("no mask")?;
                let mask = still::load(Path::new(path))?.luma;
                let spec = ObjectSpec { connectivity: connectivity.parse()?, ..ObjectSpec::default() };
                Ok(Self::Objects(Box::new(ObjectFinder::new(&spec, mask.size(), None)?), mask, Vec::new()))
            }
            _ => Err(format!("no `match`, `threshold` or `objects`: {line}").into()),
        }
    }

    fn run(&mut self, picture: &Plane, pool: &ThreadPool) {
        match self {
            Self::Match(matcher, region, matches) => {
                let limits = Limits::default();
                let mut run = || {
                    matcher.run(picture.as_ref(), *region, &limits, matches).expect("there is memory");
                };
                if is_small(*region, picture) { run() } else { pool.install(run) }
            }
            Self::Threshold(thresholder, mask) => {
                pool.install(|| thresholder.run(picture.as_ref(), mask));
            }
            Self::Objects(finder, mask, objects) => pool.install(|| {
                finder.clean(mask.as_ref()).expect("there is memory");
                finder.find(picture.as_ref(), objects).expect("there is memory");
            }),
        }
    }

    fn answer(&self) -> String {
        match self {
            Self::Match(_, _, matches) => {
                matches.iter().map(|found| format!(" {},{}", found.x, found.y)).collect()
            }
            Self::Threshold(_, mask) => {
                format!(" {}", mask.data().iter().map(|&v| usize::from(v / 255)).sum::<usize>())
            }
            Self::Objects(_, _, objects) => {
                format!(" {} {}", objects.len(), objects.iter().map(|object| object.area).sum::<usize>())
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [picture, threads] = args.as_slice() else { return Err("usage: time_cpu PICTURE THREADS".into()) };
    let (picture, threads) = (still::load(Path::new(picture))?.luma, threads.parse()?);
    let pool = ThreadPoolBuilder::new().num_threads(threads).build()?;
    let mut jobs = HashMap::new();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if !jobs.contains_key(&line) {
            let mut job = Job::plan(&line, &picture, threads)?;
            job.run(&picture, &pool);
            jobs.insert(line.clone(), job);
        }
        let job = jobs.get_mut(&line).expect("planned above");
        let started = Instant::now();
        job.run(&picture, &pool);
        let micros = started.elapsed().as_secs_f64() * 1e6;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{micros:.1}{}", job.answer())?;
        out.flush()?;
    }
    Ok(())
}
