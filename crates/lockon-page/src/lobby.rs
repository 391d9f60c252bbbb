//! The page as a whole: its name, the videos that are not shown yet, and when it may be closed.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use lockon_core::locks::{MutexGuard, lock};
use lockon_core::text;

/// Maximum names of waiting videos in an answer.
const MOST_NAMES: usize = 50;

/// Maximum failures in an answer: the last ones.
const MOST_FAILED: usize = 50;

/// State of the page as a whole.
#[derive(Default)]
pub(super) struct Lobby {
    state: Mutex<State>,
    /// The page was closed with its button *Close lockon*.
    closed: AtomicBool,
}

#[derive(Default)]
struct State {
    name: String,
    waiting: VecDeque<String>,
    failed: VecDeque<Failed>,
    is_done: bool,
}

/// A video that could not be opened.
#[derive(Debug, Clone, Serialize)]
struct Failed {
    name: String,
    error: String,
}

/// The page as a whole: `Page` in `openapi.json`.
#[derive(Debug, Serialize)]
pub(super) struct About {
    /// The page's name in titles; empty if it has none.
    name: String,
    /// Videos that wait until others have ended.
    waiting: usize,
    /// The names of the first of them.
    next: Vec<String>,
    /// Videos that could not be opened.
    failed: VecDeque<Failed>,
    /// All videos have ended, and the page can be closed.
    is_done: bool,
}

impl Lobby {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn call(&self, name: &str) {
        self.state().name = shown(name);
    }

    pub(super) fn announce(&self, names: impl IntoIterator<Item = String>) {
        self.state().waiting = names.into_iter().map(|name| text::for_people(&name)).collect();
    }

    /// Notes that a video no longer waits: it is shown, has ended, or failed with this error.
    pub(super) fn withdraw(&self, name: &str, error: Option<String>) {
        let name = text::for_people(name);
        let mut state = self.state();
        let before = state.waiting.len();
        state.waiting.retain(|waiting| *waiting != name);
        // Errors of a shown video are shown with it.
        if let Some(error) = error.filter(|_| state.waiting.len() < before) {
            state.failed.push_back(Failed { name: shown(&name), error: text::for_people(&error) });
            if state.failed.len() > MOST_FAILED {
                state.failed.pop_front();
            }
        }
    }

    /// All videos have ended: from now on the page can be closed.
    pub(super) fn done(&self) {
        self.state().is_done = true;
    }

    /// Closes the page; false before all videos have ended.
    pub(super) fn close(&self) -> bool {
        let is_done = self.state().is_done;
        if is_done {
            self.closed.store(true, Ordering::Relaxed);
        }
        is_done
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub(super) fn about(&self) -> About {
        let state = self.state();
        About {
            name: state.name.clone(),
            waiting: state.waiting.len(),
            next: state.waiting.iter().take(MOST_NAMES).map(|name| shown(name)).collect(),
            failed: state.failed.clone(),
            is_done: state.is_done,
        }
    }
}

fn shown(name: &str) -> String {
    text::in_one_line(&text::for_people(name)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn videos_wait_until_they_are_shown_end_or_fail() {
        let lobby = Lobby::default();
        lobby.announce((0..99).map(|number| format!("{number}.mp4")));
        lobby.withdraw("0.mp4", None);
        lobby.withdraw("1.mp4", Some("no video".into()));
        // It was shown before it failed.
        lobby.withdraw("0.mp4", Some("cut off".into()));
        let about = lobby.about();
        assert_eq!((about.waiting, about.next.len(), &*about.next[0]), (97, MOST_NAMES, "2.mp4"));
        assert_eq!(about.failed.iter().map(|failed| &*failed.name).collect::<Vec<_>>(), ["1.mp4"]);
    }

    #[test]
    fn a_page_can_be_closed_once_all_videos_have_ended() {
        let lobby = Lobby::default();
        assert!(!lobby.close() && !lobby.is_closed());
        lobby.done();
        assert!(!lobby.is_closed() && lobby.close() && lobby.is_closed());
    }
}
