//! A run's data for the page.

use std::sync::Arc;

use lockon_core::config::{CountingLine, Zone};
use lockon_core::control::Control;
use lockon_core::results::SearchRecord;
use lockon_core::surface::Traffic;
use lockon_core::text;
use lockon_gst::source::Input;
use lockon_gst::window;
use lockon_run::request::{self, Request};
use lockon_run::run::Run;

use super::Page;

/// Maximum letters of a pipeline's text in a title.
const MOST_TITLE: usize = 60;

/// A run, with its data for the page.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    /// The video's name: metrics and lists use it.
    pub(super) name: String,
    /// The name in titles, which differs from those of other runs with the same `name`.
    pub(super) title: String,
    /// Controls the run.
    pub(super) control: Control,
    /// Counts the bytes that it moves.
    pub(super) traffic: Traffic,
    /// True if frames come in their own time, from a camera or a stream.
    pub(super) is_live: bool,
    /// Every Nth frame is processed.
    pub(super) every: u64,
    /// Length of the processed part in nanoseconds, if it is known.
    pub(super) length_ns: Option<u64>,
    /// Time of its first frame, in nanoseconds.
    pub(super) start_ns: u64,
    /// True if the run can jump to another place of the video.
    pub(super) can_jump: bool,
    /// The zones at its start.
    pub(super) zones: Vec<Zone>,
    /// The lines at its start.
    pub(super) lines: Vec<CountingLine>,
    /// The search at its start.
    pub(super) search: Arc<SearchRecord>,
    /// True if the run has nothing to do until a box is drawn: it pauses at its first frame.
    pub(super) waits: bool,
    /// Frames that it always keeps.
    pub(super) kept: usize,
    /// Size of its first frame in bytes.
    pub(super) frame_bytes: usize,
}

impl Page {
    /// Shows a run from now on. Returns the number that it has on the page. If its name is taken, a number is
    /// appended to the name.
    pub fn show(&self, run: &mut Run, name: &str) -> usize {
        let shown = Shown::of(run, name);
        if !shown.is_live {
            shown.control.set_speed(run.request().speed.times());
        }
        self.shared.lobby.withdraw(&shown.name, None);
        let sink = self.shared.watch(shown);
        let number = sink.number();
        run.add_sink(Box::new(sink));
        number
    }
}

impl Shown {
    fn of(run: &Run, name: &str) -> Self {
        let request = run.request();
        let is_live = run.is_live();
        Self {
            name: text::for_people(name),
            title: text::for_people(&title(request, run.input(), name)),
            zones: request.zone.clone(),
            lines: request.line.clone(),
            start_ns: run.start_ns().unwrap_or(0),
            can_jump: run.can_jump(),
            control: run.control().clone(),
            traffic: run.traffic(),
            is_live,
            every: request.every,
            length_ns: run.length_ns(),
            search: run.search().record().into(),
            waits: request.is_idle() && !request.display && !is_live,
            kept: if request.display { window::KEPT } else { 0 },
            frame_bytes: run.format().bytes(),
        }
    }
}

/// The name of a run in the title of its page, different for different runs: for an address also its host,
/// for a pipeline the beginning of its text.
fn title(request: &Request, input: &Input, name: &str) -> String {
    match input {
        Input::Uri(uri) => {
            let uri = uri.to_string();
            let place = uri.split_once("://").map_or(&*uri, |(_, place)| place);
            let host = place.split(['/', '?', '#']).next().unwrap_or_default();
            let host = host.rsplit('@').next().unwrap_or_default();
            if host.is_empty() || name.contains(host) { name.to_owned() } else { format!("{host} {name}") }
        }
        Input::Launch(_) if name == request::name_of(input) => {
            let text = text::without_secrets(request.source.as_deref().unwrap_or_default()).into_owned();
            let first: String = text.chars().take(MOST_TITLE).collect();
            let more = if first.len() < text.len() { "\u{2026}" } else { "" };
            format!("{name}: {first}{more}")
        }
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockon_gst::launch;

    #[test]
    fn runs_whose_videos_have_the_same_name_have_different_titles() {
        launch::init().unwrap();
        let title_of = |request: &Request| {
            let input = request.parsed_input().unwrap();
            title(request, &input, &request::name_of(&input))
        };
        for (typed, expected) in [
            ("rtsp://me:s3cret@cam1:554/stream", "cam1:554 stream"),
            ("rtsp://cam2/stream?user=me", "cam2 stream"),
            ("match.mp4", "match.mp4"),
        ] {
            assert_eq!(title_of(&Request::new(typed).unwrap()), expected);
        }
        for (pattern, expected) in [("ball", "ball"), ("snow", "snow")] {
            let source =
                format!("videotestsrc pattern={pattern} ! videoconvert ! appsink name=frames sync=true");
            let title = title_of(&Request { source: Some(source), ..Request::default() });
            assert_eq!(
                title,
                format!("source: videotestsrc pattern={expected} ! videoconvert ! appsink name=fram\u{2026}")
            );
        }
        // Each of several has a name of its own already.
        let request =
            Request { source: Some("videotestsrc ! appsink name=frames".into()), ..Request::default() };
        assert_eq!(title(&request, &request.parsed_input().unwrap(), "source (2)"), "source (2)");
    }
}
