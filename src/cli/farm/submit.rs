//! `lockon submit`: turns the command line into jobs.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};

use lockon::farm::{self, Farm, Job, Status, Submitted, Terms};
use lockon::fleet::{self, Completion};
use lockon::media::launch;
use lockon::media::source::Input;
use lockon::request::Request;
use lockon::setup::{self, NamedTemplate};
use lockon::text;

use super::super::{Outcome, fleet as videos, log, print};
use super::args::SubmitArgs;
use super::of_jobs;
use super::wait::{Collect, collected, wait};

pub(in crate::cli) fn submit(args: &SubmitArgs) -> Result<Outcome> {
    launch::init()?;
    log::join_gstreamer();
    let access = args.farm.access()?;
    let videos = videos::named(&args.typed, args.inputs.as_deref())?;
    videos.iter().try_for_each(|(name, request)| {
        request.check().with_context(|| text::in_one_line(name).into_owned())
    })?;
    fleet::check(&videos)?;
    if args.replicas > 0 {
        videos.iter().try_for_each(|(_, request)| is_there(request))?;
    }
    let terms = Terms { collect: args.collect.is_some(), overwrite: args.overwrite, tries: args.tries };
    let wholes = jobs(&videos, terms)?;
    if args.replicas == 0 {
        let ids: Vec<_> = wholes.iter().map(|job| job.id.clone()).collect();
        let changed = Farm::connect(&access)?.cancel(&ids)?;
        log::say(&format!("{} cancelled", of_jobs(changed)));
        return Ok(Outcome::Done);
    }
    let jobs = match args.split {
        Some(split) => {
            let parts = wholes.iter().map(|job| farm::split(job, split).map_err(anyhow::Error::new));
            parts.collect::<Result<Vec<_>>>()?.concat()
        }
        None => wholes.clone(),
    };
    let collect = args.collect.as_deref().map(|folder| make_room(folder, &wholes, args)).transpose()?;
    let farm = Farm::connect(&access)?;
    let submitted = farm.submit(&jobs)?;
    // Scripts refer to jobs by their numbers.
    let ids: String = wholes.iter().map(|job| format!("{}\n", job.id)).collect();
    let printed = print(&ids);
    log::say(&describe(&submitted));
    if collect.is_none() && submitted.contains(&Submitted::Known(Status::Done)) {
        log::say(
            "what is done is not done again, also if its files are gone: `lockon jobs purge JOB` forgets it",
        );
    }
    // A script that got no numbers must not submit the jobs again.
    printed.context("the jobs were submitted, but their numbers could not be printed")?;
    let bad: Vec<_> =
        jobs.iter().zip(&submitted).filter(|(_, told)| **told == Submitted::Unreadable).collect();
    if let Some((job, _)) = bad.first() {
        bail!(
            "{} cannot be submitted: the farm has a record of job {} that lockon {} cannot read (`lockon jobs purge {}` removes it)",
            of_jobs(bad.len()),
            job.id,
            job.version,
            job.id
        );
    }
    if !args.wait && args.collect.is_none() {
        return Ok(Outcome::Done);
    }
    wait(&farm, &wholes, collect.as_ref(), !args.no_progress)
}

/// Refuses a file that does not exist: it is a typing error more often than a file that only workers have.
fn is_there(request: &Request) -> lockon::Result<()> {
    let Input::File(path) = request.parsed_input()? else { return Ok(()) };
    path.metadata().map(drop).map_err(|error| {
        let typed = path.to_string_lossy();
        // A mistyped address is not repeated: after `file://` its password would not be recognised.
        let why = if text::address_without_secrets(&typed) == typed {
            let whole = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
            format!("{error} (if workers have it and this machine has not: file://{})", whole.display())
        } else {
            error.to_string()
        };
        lockon::Error::file("read", &path)(std::io::Error::new(error.kind(), why))
    })
}

/// The jobs of these videos. Templates are read once each, not for every video.
fn jobs(videos: &[(String, Request)], terms: Terms) -> Result<Vec<Job>> {
    let mut templates: HashMap<&[String], Vec<NamedTemplate>> = HashMap::new();
    let job = |(name, request): &'_ (String, Request), templates: &[NamedTemplate]| {
        Job::new(name, request, templates, terms).with_context(|| text::in_one_line(name).into_owned())
    };
    let mut jobs = Vec::with_capacity(videos.len());
    for video in videos {
        let texts = video.1.template.as_slice();
        if !templates.contains_key(texts) {
            templates.insert(texts, setup::load_templates(texts)?);
        }
        jobs.push(job(video, &templates[texts])?);
    }
    Ok(jobs)
}

/// Prepares the folder that results come back to. Files there that are no results of these jobs need a
/// confirmation.
fn make_room(folder: &Path, jobs: &[Job], args: &SubmitArgs) -> Result<Collect> {
    std::fs::create_dir_all(folder).map_err(lockon::Error::file("create", folder))?;
    let mut lost = Vec::new();
    for job in jobs {
        // In the form that workers use: results name their request by it.
        let here = collected(&job.request()?, folder);
        // Files that may be others need a confirmation.
        if !matches!(fleet::completion(&here), Ok(Completion::Done | Completion::Part(_))) {
            lost.extend(here.output_files());
        }
    }
    args.overwrite().allow(&lost)?;
    lost.retain(|path| path.symlink_metadata().is_ok());
    Ok(Collect { folder: folder.into(), overwrites: args.overwrite, confirmed: lost })
}

fn describe(submitted: &[Submitted]) -> String {
    let count = |is: &dyn Fn(&Submitted) -> bool| submitted.iter().filter(|told| is(told)).count();
    let known = Status::ALL.map(|status| (status, count(&|told| *told == Submitted::Known(status))));
    let known: Vec<_> = known
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(status, n)| format!("{n} {}", status.name()))
        .collect();
    let new = count(&|told| *told == Submitted::New);
    let mut said = format!("{} submitted", of_jobs(new));
    if !known.is_empty() {
        let _ = write!(said, "; known already: {}", known.join(", "));
    }
    said
}
