//! `lockon serve`: a page on which videos are opened, each a run of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use lockon::Error;
use lockon::fleet::{self, Ended, Fleet, Order, RunId};
use lockon::job;
use lockon::media::launch;
use lockon::media::source::Input;
use lockon::request::Request;
use lockon::serve::Chosen;
use lockon::text;

use super::args::ServeArgs;
use super::page::Page;
use super::signals::Signals;
use super::{Outcome, closing, log, run, system};

/// Videos that are open at the same time.
const MOST_OPEN: usize = 16;

/// Threads that a run needs beside those that work for all: its own, GStreamer's and a codec's.
const THREADS_EACH: usize = 8;

/// Between two looks at what was chosen.
const TICK: Duration = Duration::from_millis(50);

pub(super) fn serve(args: &ServeArgs) -> Result<Outcome> {
    launch::init()?;
    log::join_gstreamer();
    let base = Request { serve: Some(args.address.clone()), ..args.typed.options()? };
    // Of an input that takes all of them, since nobody knows yet what will be chosen.
    Request { input: Request::new("camera:/dev/video0")?.input, ..base.clone() }.check()?;
    job::load_templates(&base.template)?;
    system::allow_files();
    system::check_threads(job::threads(base.threads) + THREADS_EACH * MOST_OPEN, "--threads takes fewer")?;
    let signals = Signals::watch()?;
    let (page, chosen) = Page::offering(&args.address, args.folder.as_deref())?;
    let page = Arc::new(page);
    let mut fleet = Fleet::under(MOST_OPEN, signals.control());
    let mut open: HashMap<RunId, Chosen> = HashMap::new();
    while !signals.control().is_stopped() || !fleet.is_done() {
        for chosen in chosen.try_iter() {
            match order(args, &base, &chosen, &page, open.len()) {
                Ok(order) => drop(open.insert(fleet.add(order), chosen)),
                Err(error) => chosen.answer(Err(format!("{error:#}"))),
            }
        }
        if let Some(ended) = fleet.wait_timeout(TICK) {
            tell(&ended, open.remove(&ended.id));
        }
    }
    Ok(signals.outcome())
}

/// What is asked of a video that was chosen.
fn order(args: &ServeArgs, base: &Request, chosen: &Chosen, page: &Arc<Page>, open: usize) -> Result<Order> {
    if open >= MOST_OPEN {
        return Err(Error::Usage(format!("{MOST_OPEN} videos are open already: end one first")).into());
    }
    let mut request = Request { input: Request::new(&chosen.input)?.input, ..base.clone() };
    let input = request.parsed_input()?;
    // A file is not lost.
    request.reconnect &= !matches!(input, Input::File(_));
    let name = fleet::name_of(&input);
    fleet::expand(&mut request, &name, 1)?;
    run::check(&request)?;
    args.overwrite.allow_unasked(&request.output_files())?;
    let words = request.words();
    let line = ["lockon", "run"].map(str::to_owned).into_iter();
    let line: Vec<_> = line.chain(words.iter().map(|word| word.to_string_lossy().into_owned())).collect();
    let (page, chosen, video) = (page.clone(), chosen.clone(), name.clone());
    Ok(Order::new(name, request).when_opened(move |run| {
        run.note_command(line);
        chosen.answer(Ok(page.number(run, &video)));
        log::say(&format!("{}: opened", text::in_one_line(&video)));
        Ok(())
    }))
}

fn tell(Ended { name, request, summary, outcome, .. }: &Ended, chosen: Option<Chosen>) {
    let name = text::in_one_line(name);
    if summary.frames > 0 {
        log::say(&format!("{name}: {}", closing::in_one_line(summary, request.min_score)));
    }
    if let Err(error) = outcome {
        // Where the folder lies is nobody's business who looks at the page.
        let path = request.parsed_input().map_or_else(|_| String::new(), |input| input.to_string());
        let why = text::for_people(&error.to_string());
        let why = if path.is_empty() { why } else { why.replace(&path, &name) };
        // Whoever waits until it is open need wait no longer.
        chosen.inspect(|chosen| chosen.answer(Err(why.clone())));
        if !matches!(error, Error::Stopped) {
            log::error(&format!("{name}: {why}"));
        }
    }
}
