//! Benchmarks that run on the CPU.

use std::time::Instant;

use anyhow::Result;

use lockon_core::backend::cpu;
use lockon_core::config::Limits;
use lockon_core::frame::{Plane, Rect};

use super::check::{check_mask, check_matches};
use super::plan::{Subject, Work};
use super::scene::{Scene, SearchCase, methods, spec_of};
use super::table::{Micros, Times};

impl Work {
    pub(super) fn on_cpu(&mut self, threads: usize) -> Result<()> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
        for frame in self.frames.clone() {
            let picture = Scene::Natural.picture(frame);
            let wants_searches = self.wants_subject(Subject::Ncc);
            let templates = self.templates.clone().into_iter();
            for template in templates.filter(|size| wants_searches && size.fits_in(frame)) {
                let (whole, limits) = (Rect::whole(frame), Limits::default());
                let search = SearchCase::new((Scene::Natural, &picture), whole, template, self.bank, limits)?;
                let mut planner = cpu::ncc::Planner::new();
                let mut matcher = cpu::ncc::Matcher::new(&mut planner, search.bank.clone(), frame, threads);
                let mut matches = Vec::new();
                let micros = pool.install(|| {
                    time(|| {
                        matcher.run(picture.as_ref(), whole, &limits, &mut matches).expect("there is memory");
                    })
                });
                check_matches(&picture, &search, &matches)?;
                self.add_search("auto".into(), &search, Times::from(&micros))?;
            }
            let wants_thresholds = self.wants_subject(Subject::Threshold);
            for block in self.blocks.clone().into_iter().filter(|_| wants_thresholds) {
                for method in methods() {
                    let spec = spec_of(method, block);
                    let mut thresholder = cpu::threshold::Thresholder::new(&spec, frame);
                    let mut mask = Plane::new(frame);
                    let micros = pool.install(|| {
                        time(|| {
                            thresholder.run(picture.as_ref(), &mut mask);
                        })
                    });
                    check_mask(&picture, &spec, &mask)?;
                    self.add_threshold("auto".into(), frame, &spec, Times::from(&micros))?;
                }
            }
        }
        Ok(())
    }
}

/// Times something on this thread, in microseconds in rising order.
fn time(mut work: impl FnMut()) -> Micros {
    work();
    let began = Instant::now();
    let mut micros = Vec::new();
    while micros.len() < 5 || (micros.len() < 50 && began.elapsed().as_secs_f64() < 1.0) {
        let started = Instant::now();
        work();
        micros.push(started.elapsed().as_secs_f64() * 1e6);
    }
    micros.sort_by(f64::total_cmp);
    micros
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::plan::{BenchRequest, check_request};
    use super::super::{Args, Command};
    use super::*;

    fn request(words: &str) -> BenchRequest {
        let args = Args::parse_from(["lockon-bench", "kernels"].into_iter().chain(words.split_whitespace()));
        let Command::Kernels(request) = args.command else { unreachable!("the command is `kernels`") };
        request
    }

    #[test]
    fn each_row_of_the_cpu_is_a_measurement_whose_result_was_checked() {
        let words = "--backend cpu --frame 123x67 --template 16x9 --block 11 --json";
        let mut work = Work::new(&request(words));
        work.on_cpu(2).unwrap();
        let rows = serde_json::to_value(&work.rows).unwrap();
        let of = |key: &str| rows.as_array().unwrap().iter().map(|row| row[key].clone()).collect::<Vec<_>>();
        assert_eq!(of("op"), ["ncc", "threshold", "threshold", "threshold", "threshold"]);
        assert_eq!(of("kernel"), ["auto"; 5]);
        assert_eq!(rows[0]["template"], serde_json::json!([16, 9]));
        assert_eq!(rows[0]["scene"], "natural");
        assert_eq!(rows[4]["method"], "niblack");
        for row in rows.as_array().unwrap() {
            assert_eq!(row["frame"], serde_json::json!([123, 67]));
            assert!(row["median_us"].as_f64().unwrap() > 0.0 && row["p90_us"].as_f64().unwrap() > 0.0);
        }
    }

    #[test]
    fn requests_that_mean_nothing_are_wrong_usage() {
        for words in [
            "--frame 64x48 --template 65x8",
            "--bank 2 --block 11",
            "--backend cpu --kernel ncc-mma",
            "--backend cpu --peers",
            "--backend cpu --only ring",
            "--backend cuda --threads 2",
            "--only ncc --block 11",
        ] {
            let error = check_request(&request(words)).expect_err(words);
            assert!(error.is_usage(), "{words}: {error}");
        }
        assert!(check_request(&request("--backend cpu --only ncc --template 8x8")).is_ok());
    }
}
