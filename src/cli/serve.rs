//! `lockon serve`: a page that opens videos, each as a run of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use lockon::Error;
use lockon::files;
use lockon::fleet::{self, Ended, Entry, Fleet, RunId};
use lockon::media::launch;
use lockon::media::source::Input;
use lockon::page::Chosen;
use lockon::request::{self, Request};
use lockon::setup;
use lockon::text;

use super::args::ServeArgs;
use super::page::Page;
use super::signals::Signals;
use super::wiring::Wiring;
use super::{Outcome, closing, log, run, system};

/// Maximum number of videos that are open at the same time.
const MOST_OPEN: usize = 16;

/// Time between two checks for chosen videos.
const TICK: Duration = Duration::from_millis(50);

pub(super) fn serve(args: &ServeArgs) -> Result<Outcome> {
    launch::init()?;
    log::join_gstreamer();
    let base = Request { serve: Some(args.address.clone()), ..args.typed.options()? };
    if base.output.iter().any(|path| files::is_stdout(path)) {
        return Err(Error::Usage("-o - is for `lockon run`: a page opens many videos".into()).into());
    }
    // The video to open is not known yet, so the options are checked with a camera, which accepts all of
    // them.
    Request { input: Request::new("camera:/dev/video0")?.input, ..base.clone() }.check()?;
    setup::load_templates(&base.template)?;
    system::allow_files();
    system::check_threads(
        setup::threads(base.threads) + system::THREADS_EACH * MOST_OPEN,
        "--threads takes fewer",
    )?;
    let signals = Signals::watch()?;
    let (page, chosen) = Page::offering(&args.address, args.folder.as_deref())?;
    let wiring = Arc::new(Wiring::to(page));
    let mut fleet = Fleet::under(MOST_OPEN, signals.control());
    let mut open: HashMap<RunId, Open> = HashMap::new();
    let mut index = 0;
    while !signals.control().is_stopped() || !fleet.is_done() {
        for chosen in chosen.try_iter() {
            match request(args, &base, &chosen, index + 1, &open) {
                Ok((name, request)) => {
                    index += 1;
                    let entry = entry(name.clone(), request.clone(), chosen.clone(), &wiring);
                    open.insert(fleet.add(entry), Open { asked: (name, request), chosen });
                }
                Err(error) => chosen.answer(Err(format!("{error:#}"))),
            }
        }
        if let Some(ended) = fleet.wait_timeout(TICK) {
            tell(&ended, open.remove(&ended.id));
        }
    }
    Ok(signals.outcome())
}

/// A run that is active.
struct Open {
    /// The name of its video, and its request.
    asked: (String, Request),
    chosen: Chosen,
}

/// Returns the name of a video that was chosen, and its request, for the run number `index`, from 1 on,
/// beside those that are open.
fn request(
    args: &ServeArgs,
    base: &Request,
    chosen: &Chosen,
    index: usize,
    open: &HashMap<RunId, Open>,
) -> Result<(String, Request)> {
    if open.len() >= MOST_OPEN {
        return Err(Error::Usage(format!("{MOST_OPEN} videos are open already: end one first")).into());
    }
    let mut request = Request { input: Request::new(&chosen.input)?.input, ..base.clone() };
    let input = request.parsed_input()?;
    // A file cannot lose its connection.
    request.reconnect &= !matches!(input, Input::File(_));
    let name = request::name_of(&input);
    request::expand(&mut request, &name, index)?;
    request = request.dated(std::time::SystemTime::now());
    run::check(&request)?;
    let mut runs: Vec<_> = open.values().map(|open| open.asked.clone()).collect();
    runs.push((name, request));
    // Even with -y no two of them write the same file.
    fleet::check(&runs)?;
    let (name, request) = runs.pop().expect("it was put there");
    args.overwrite.allow_unasked(&request.files_at_risk())?;
    Ok((name, request))
}

/// Returns the entry for a run of this request.
fn entry(name: String, request: Request, chosen: Chosen, wiring: &Arc<Wiring>) -> Entry {
    let (line, outlets) = (request.command_line(), wiring.outlets(&name));
    let (wiring, video, file) = (wiring.clone(), name.clone(), chosen.file.clone());
    let entry = Entry::new(name, request).with_outlets(outlets).when_opened(move |run| {
        if let Some(number) = wiring.attach(run, &video, line, None) {
            chosen.answer(Ok(number));
        }
        log::say(&format!("{}: opened", text::in_one_line(&video)));
        Ok(())
    });
    match file {
        Some(file) => entry.reading(file),
        None => entry,
    }
}

fn tell(ended: &Ended, open: Option<Open>) {
    closing::say(ended);
    if let Err(error) = &ended.outcome {
        // The client waits until the run is open: this ends the wait.
        open.inspect(|open| open.chosen.answer(Err(error.to_string())));
        if !matches!(error, Error::Stopped) {
            let name = text::in_one_line(&ended.name);
            log::error(&format!("{name}: {}", text::for_people(&error.to_string())));
        }
    }
}
