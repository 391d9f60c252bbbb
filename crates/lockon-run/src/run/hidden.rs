//! Checks names in `--blur` and `--pixelate`: if no track or template has a name, nothing would be hidden.

use super::NamedTemplate;
use crate::request::Request;
use lockon_core::config::Subject;
use lockon_core::error::{Error, Result};
use lockon_core::ports::{Delivery, Sink};
use lockon_core::results::{FrameRecord, Summary};
use lockon_core::text;
use lockon_core::tracker::OBJECT_LABEL;

/// The subjects that hide, each with its option.
fn subjects(request: &Request) -> impl Iterator<Item = (&'static str, &Subject)> {
    let blurred = request.blur.iter().map(|subject| ("--blur", subject));
    blurred.chain(request.pixelate.iter().map(|subject| ("--pixelate", subject)))
}

/// The names of the given tracks and templates.
fn names<'a>(request: &'a Request, templates: &'a [NamedTemplate]) -> impl Iterator<Item = &'a str> {
    let tracks = request.track.iter().filter_map(|track| track.name.as_deref());
    let objects = request.track_objects.then_some(OBJECT_LABEL);
    tracks.chain(templates.iter().map(|named| &**named.template.name())).chain(objects)
}

/// True if the subject exists before the first frame.
fn is_given(subject: &Subject, request: &Request, templates: &[NamedTemplate]) -> bool {
    match subject {
        Subject::All => true,
        Subject::Track(id) => *id as usize <= request.track.len(),
        Subject::Named(name) => names(request, templates).any(|known| known == &**name),
    }
}

/// Refuses names that no track or template has or can get.
///
/// # Errors
/// `Usage`, with the existing names.
pub(super) fn check(request: &Request, templates: &[NamedTemplate]) -> Result<()> {
    // Orders add tracks and templates, and a detector has its own names.
    let is_open = request.control.is_some()
        || request.display
        || request.serve.is_some()
        || request.pick
        || request.track_detections;
    let missing = subjects(request).find(|(_, subject)| !is_given(subject, request, templates));
    let Some((option, subject)) = missing.filter(|_| !is_open) else { return Ok(()) };
    if let Subject::Track(_) = subject {
        if request.track_matches || request.track_objects {
            return Ok(());
        }
        let there = match request.track.len() {
            0 => "nothing is followed (--track, --track-matches, --track-objects)".to_owned(),
            count => format!("the last track is {count}"),
        };
        return Err(Error::Usage(format!("{option} {subject}: there is no such track: {there}")));
    }
    let known: Vec<_> = names(request, templates).map(text::in_one_line).collect();
    let there = match known.len() {
        0 => "no track and no template has a name".to_owned(),
        _ => format!("the names are {}", known.join(", ")),
    };
    let name = subject.to_string();
    Err(Error::Usage(format!("{option} {}: nothing has that name: {there}", text::in_one_line(&name))))
}

/// Warns at the end of subjects that never appeared, which were not given before the first frame.
pub(super) struct Unseen {
    subjects: Vec<(&'static str, Subject)>,
}

impl Unseen {
    /// `None` if all subjects were given.
    pub(super) fn of(request: &Request, templates: &[NamedTemplate]) -> Option<Self> {
        let open = subjects(request).filter(|(_, subject)| !is_given(subject, request, templates));
        let subjects: Vec<_> = open.map(|(option, subject)| (option, subject.clone())).collect();
        (!subjects.is_empty()).then_some(Self { subjects })
    }

    fn see(&mut self, record: &FrameRecord) {
        self.subjects.retain(|(_, subject)| {
            let is_track = record.tracks.iter().any(|track| {
                subject.means(Some(track.id), [track.name.as_deref(), track.template.as_deref()])
            });
            let is_match =
                || record.matches.iter().any(|found| subject.means(None, [Some(&*found.template), None]));
            !is_track && !is_match()
        });
    }

    fn warnings(&self) -> impl Iterator<Item = String> {
        self.subjects.iter().map(|(option, subject)| {
            let is_number = matches!(subject, Subject::Track(_));
            let what = if is_number { "track of that number" } else { "track or template of that name" };
            let subject = subject.to_string();
            format!("{option} {}: no {what} appeared: it hid nothing", text::in_one_line(&subject))
        })
    }
}

impl Sink for Unseen {
    fn name(&self) -> &'static str {
        "hidden"
    }

    fn is_output(&self) -> bool {
        false
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        self.see(delivery.record);
        Ok(())
    }

    fn finish(&mut self, _: &Summary) -> Result<()> {
        self.warnings().for_each(|warning| tracing::warn!("{warning}"));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockon_core::results::Track;

    fn hiding(subjects: &[&str], tracks: &[&str]) -> Request {
        Request {
            blur: subjects.iter().map(|text| text.parse().unwrap()).collect(),
            track: tracks.iter().map(|text| text.parse().unwrap()).collect(),
            ..Request::new("a.mp4").unwrap()
        }
    }

    #[test]
    fn a_name_that_nothing_has_is_refused_with_the_names_that_there_are() {
        let tracks = ["Faces=1,2,30,40", "5,6,30,40"];
        check(&hiding(&["all", "2", "Faces"], &tracks), &[]).unwrap();
        let said = |request: &Request| check(request, &[]).unwrap_err().to_string();
        let name = said(&hiding(&["Face"], &tracks));
        assert!(name.contains("--blur Face: nothing has that name: the names are Faces"), "{name}");
        let number = said(&hiding(&["3"], &tracks));
        assert!(number.contains("--blur 3: there is no such track: the last track is 2"), "{number}");
        let none = said(&Request { pixelate: vec!["car".parse().unwrap()], ..hiding(&[], &[]) });
        assert!(none.contains("--pixelate car: nothing has that name: no track and no template"), "{none}");
        // These get names and numbers later.
        check(&Request { track_detections: true, ..hiding(&["person", "7"], &[]) }, &[]).unwrap();
        check(&Request { track_matches: true, ..hiding(&["7"], &[]) }, &[]).unwrap();
        check(&Request { track_objects: true, ..hiding(&["object", "7"], &[]) }, &[]).unwrap();
        check(&Request { control: Some("a.jsonl".into()), ..hiding(&["later"], &[]) }, &[]).unwrap();
    }

    #[test]
    fn what_never_appeared_is_reported_at_the_end() {
        let request = Request { track_detections: true, ..hiding(&["person", "car", "9", "all"], &[]) };
        let mut unseen = Unseen::of(&request, &[]).unwrap();
        let person = Track { id: 1, template: Some("person".into()), ..Track::default() };
        unseen.see(&FrameRecord { tracks: vec![person], ..FrameRecord::default() });
        let warnings: Vec<_> = unseen.warnings().collect();
        assert_eq!(
            warnings,
            [
                "--blur car: no track or template of that name appeared: it hid nothing",
                "--blur 9: no track of that number appeared: it hid nothing"
            ]
        );
        assert!(Unseen::of(&hiding(&["all"], &[]), &[]).is_none());
    }
}
