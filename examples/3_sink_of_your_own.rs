//! 3. A sink of your own: a whole run, from a request, whose results go to your code.
//!
//! ```text
//! cargo run --release --example 3_sink_of_your_own -- VIDEO TEMPLATE
//! ```
//!
//! Counts the frames in which the template was found, and prints the best place of all.

#![allow(clippy::print_stdout, reason = "an example prints its result")]

use std::sync::{Arc, Mutex};

use lockon::Result;
use lockon::control::Control;
use lockon::ports::{Delivery, Sink};
use lockon::request::Request;
use lockon::results::Match;
use lockon::run::Run;

/// The results so far. The sink belongs to the run, so the sink and `main` share this.
#[derive(Default)]
struct Found {
    frames: u64,
    best: Option<(u64, Match)>,
}

struct Count(Arc<Mutex<Found>>);

impl Sink for Count {
    fn name(&self) -> &'static str {
        "count"
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        // Matches of one template come best first.
        let Some(first) = delivery.record.matches.first() else { return Ok(()) };
        let mut found = self.0.lock().expect("nobody panics while holding it");
        found.frames += 1;
        if found.best.as_ref().is_none_or(|(_, best)| best.score < first.score) {
            found.best = Some((delivery.record.frame, first.clone()));
        }
        Ok(())
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [video, template] = args.as_slice() else {
        return Err("usage: 3_sink_of_your_own VIDEO TEMPLATE".into());
    };
    let mut request = Request::new(video)?;
    request.template.push(template.clone());
    // Each clone of it can stop the run, or pause it.
    let control = Control::new();
    let mut run = Run::start(&request, &control)?;
    let found = Arc::new(Mutex::new(Found::default()));
    run.add_sink(Box::new(Count(found.clone())));
    let (summary, outcome) = run.finish();
    outcome?;
    let found = found.lock().expect("nobody panics while holding it");
    println!("found in {} of {} frames", found.frames, summary.frames);
    if let Some((frame, best)) = &found.best {
        println!("best in frame {frame}: {} scores {:.4}", best.rect(), best.score);
    }
    Ok(())
}
