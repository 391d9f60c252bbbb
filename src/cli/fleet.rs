//! `lockon run` of several videos: the list, the name of each, and messages about all of them.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Result, bail};

use lockon::Error;
use lockon::files;
use lockon::fleet::{self, Completion, Ended, Entry, Fleet};
use lockon::media::source::Input;
use lockon::request::{self, Request};
use lockon::run::Count;
use lockon::setup;
use lockon::text;

use super::args::RunArgs;
use super::log;
use super::progress::Progress;
use super::request::{All, Typed};
use super::signals::Signals;
use super::told::Told;
use super::wiring::Wiring;
use super::{Outcome, closing, run, system};

/// Time between two checks of the progress of all.
const TICK: Duration = Duration::from_millis(200);

/// A video's name and its request.
type Named = (String, Request);

/// Returns the videos that the arguments name, each with its name.
pub(super) fn videos(args: &RunArgs) -> Result<Vec<Named>> {
    named(&args.typed, args.several.inputs.as_deref())
}

/// The videos of any command that has the options of a run, each with its name.
pub(super) fn named(typed: &Typed<All>, list: Option<&Path>) -> Result<Vec<Named>> {
    let mut requests = typed.requests()?;
    if let Some(list) = list {
        let is_stdin = |request: &Request| matches!(request.parsed_input(), Ok(Input::Stdin));
        if list.as_os_str() == "-" && requests.iter().any(is_stdin) {
            bail!(Error::Usage(
                "--inputs - and the video - are both read from standard input: put the list into a file"
                    .into()
            ));
        }
        requests.extend(fleet::read_list(list, &typed.options()?)?);
        if requests.is_empty() {
            bail!(Error::Usage(format!("{} names no video", text::path(list))));
        }
    }
    if requests.is_empty() {
        // The request has a source of its own (`--source`), or its check reports an error.
        requests.push(typed.options()?);
    }
    let inputs = requests.iter().map(Request::parsed_input);
    let inputs = inputs.collect::<lockon::Result<Vec<_>>>()?;
    let address = |input: &Input| match input {
        Input::Launch(_) => request::name_of(input),
        input => input.to_string(),
    };
    let (mut names, mut addresses) = (HashMap::<String, usize>::new(), HashMap::<String, usize>::new());
    for input in &inputs {
        *names.entry(request::name_of(input)).or_default() += 1;
        *addresses.entry(address(input)).or_default() += 1;
    }
    let mut videos = Vec::with_capacity(requests.len());
    for (index, (mut request, input)) in requests.into_iter().zip(&inputs).enumerate() {
        let name = request::name_of(input);
        request::expand(&mut request, &name, index + 1)?;
        let whole = address(input);
        // Videos of one name are listed by their addresses, and videos of one address by their places.
        let name = match (names[&name], addresses[&whole]) {
            (1, _) => name,
            (_, 1) => whole,
            _ => format!("{whole} ({})", index + 1),
        };
        videos.push((name, request));
    }
    Ok(videos)
}

/// Runs the videos at the same time.
pub(super) fn run(args: &RunArgs, mut videos: Vec<Named>) -> Result<Outcome> {
    let now = SystemTime::now();
    for (_, request) in &mut videos {
        *request = request.dated(now);
    }
    videos
        .iter()
        .try_for_each(|(name, request)| run::check(request).map_err(|error| in_front(name, error)))?;
    videos.iter().try_for_each(|(_, request)| run::check_stdout(request))?;
    fleet::check(&videos)?;
    // Checks all videos first: otherwise each would fail by itself.
    let written: Vec<_> = videos.iter().flat_map(|(_, request)| request.written_paths()).collect();
    files::check_folders(&written)?;
    let all = videos.len();
    let may_be_lost = if args.several.skip_done {
        leave_out_done(&mut videos, args.overwrite.no_overwrite)?
    } else {
        outputs(&videos)
    };
    let skipped = all - videos.len();
    if skipped > 0 {
        log::say(&match all {
            1 => "the video is done already".to_owned(),
            _ => format!("{skipped} of {all} videos are done already"),
        });
    }
    if videos.is_empty() {
        return Ok(Outcome::Done);
    }
    args.overwrite.allow(&may_be_lost)?;
    let jobs = args.several.jobs.map_or_else(|| fleet::usual_jobs(&videos[0].1), usize::from);
    system::allow_files();
    let live = videos.iter().filter(|(_, request)| fleet::is_live(request)).count();
    let at_once = live + jobs.min(videos.len() - live);
    system::check_threads(
        setup::threads(None) + system::THREADS_EACH * at_once,
        "--jobs takes fewer files at a time; cameras and streams all run at once",
    )?;
    let signals = Signals::watch()?;
    let names = videos.iter().map(|(name, _)| name.clone()).collect();
    let wiring = Arc::new(Wiring::of(&videos[0].1, names)?);
    let keeps = videos.iter().any(|(_, request)| run::keeps_anything(request));
    let shows = !args.no_progress && !log::is_quiet();
    let count = Count::new();
    let mut told = Videos::new(videos.len(), shows);
    let mut fleet = Fleet::under(jobs, signals.control());
    let entries: Vec<_> =
        videos.into_iter().map(|(name, request)| entry(name, request, shows, &count, &wiring)).collect();
    fleet.add_all(entries);
    while !fleet.is_done() {
        if let Some(ended) = fleet.wait_timeout(TICK) {
            told.tell(&ended);
            if let Some(page) = wiring.page() {
                let error = ended.outcome.as_ref().err().filter(|error| !matches!(error, Error::Stopped));
                page.withdraw(&ended.name, error.map(ToString::to_string));
            }
        }
        told.tick(&fleet, &count);
    }
    drop(fleet);
    let outcome = told.close(&count, keeps).map(|()| signals.outcome());
    run::stay(wiring.page(), &signals, args, outcome)
}

/// The entry for one of several videos.
fn entry(name: String, request: Request, shows: bool, count: &Arc<Count>, wiring: &Arc<Wiring>) -> Entry {
    let (line, outlets) = (request.command_line(), wiring.outlets(&name));
    let (count, wiring, video) = (count.clone(), wiring.clone(), name.clone());
    Entry::new(name, request).sparing_colours().with_outlets(outlets).when_opened(move |run| {
        count.watch(run);
        let bar = (shows && log::is_terminal()).then(|| Progress::of_one(&video, run.length_ns()));
        wiring.attach(run, &video, line, bar);
        Ok(())
    })
}

/// Leaves out the videos that are done. Returns the files of the other videos that would be lost; results of
/// an interrupted run do not count, unless `keeps_all`.
fn leave_out_done(videos: &mut Vec<Named>, keeps_all: bool) -> Result<Vec<PathBuf>> {
    let mut lost = Vec::new();
    let mut left = Vec::with_capacity(videos.len());
    for (name, request) in std::mem::take(videos) {
        let of_interrupted = match fleet::completion(&request).map_err(|error| in_front(&name, error))? {
            Completion::Done => continue,
            Completion::Part(files) if !keeps_all => files,
            Completion::None | Completion::Part(_) | Completion::Other => Vec::new(),
        };
        lost.extend(request.files_at_risk().into_iter().filter(|path| !of_interrupted.contains(path)));
        left.push((name, request));
    }
    *videos = left;
    Ok(lost)
}

fn outputs(videos: &[Named]) -> Vec<PathBuf> {
    videos.iter().flat_map(|(_, request)| request.files_at_risk()).collect()
}

/// An error about one of several videos, of the same kind.
fn in_front(name: &str, error: Error) -> anyhow::Error {
    anyhow::Error::new(error).context(text::in_one_line(name).into_owned())
}

/// Messages about all videos.
struct Videos {
    told: Told,
    interrupted: usize,
    dropped: u64,
    /// The output whose reader has closed standard output.
    unread: Option<&'static str>,
}

impl Videos {
    fn new(videos: usize, shows: bool) -> Self {
        let told = Told::new(videos, ["video", "videos"], shows);
        Self { told, interrupted: 0, dropped: 0, unread: None }
    }

    /// A line about a run that has ended.
    fn tell(&mut self, ended: &Ended) {
        let Ended { name, summary, outcome, .. } = ended;
        self.dropped += summary.dropped;
        self.interrupted += usize::from(summary.interrupted);
        closing::say(ended);
        match outcome {
            Ok(()) | Err(Error::Stopped) => self.told.end(),
            Err(Error::ReaderGone { name }) => {
                self.unread = Some(name);
                self.told.end();
            }
            Err(error) => self.told.fail(name, text::for_people(&error.to_string())),
        }
    }

    fn tick(&mut self, fleet: &Fleet, count: &Count) {
        let dropped = self.dropped;
        self.told.tick(|told| format!("{} run: {}", fleet.counts().running, rate(told, count, dropped)));
    }

    /// The last line, and the failed videos again.
    fn close(&self, count: &Count, keeps: bool) -> Result<()> {
        let interrupted = match self.interrupted {
            0 => String::new(),
            count => format!(", {count} interrupted"),
        };
        self.told.close(&format!("{}{interrupted}", rate(&self.told, count, self.dropped)));
        if !keeps && count.frames() > 0 {
            log::say(closing::NOTHING_KEPT);
        }
        self.told.outcome()?;
        self.unread.map_or(Ok(()), |name| Err(Error::ReaderGone { name }.into()))
    }
}

/// `1234 frames in 12.5 s, 98.7 fps, 3 dropped, 1 failed`
fn rate(told: &Told, count: &Count, dropped: u64) -> String {
    let (frames, seconds) = (count.frames(), told.seconds());
    let mut rate = format!("{frames} frames in {seconds:.1} s, {:.1} fps", frames as f64 / seconds);
    for (count, what) in [(dropped, "dropped"), (told.failed() as u64, "failed")] {
        if count > 0 {
            let _ = write!(rate, ", {count} {what}");
        }
    }
    rate
}
