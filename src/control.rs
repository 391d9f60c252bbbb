//! What a run is told from outside while it goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// A handle on a run, which everybody may hold: whoever asks for the end, and all that wait or work for long and so have to
/// hear of it. Clones are handles on the same run.
#[derive(Debug, Clone, Default)]
pub struct Control {
    is_stopped: Arc<AtomicBool>,
}

impl Control {
    /// A handle on a run that nobody has asked to end.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for the end, as soon as possible. There is no way back.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Ends what calls it if somebody has asked for the end.
    ///
    /// # Errors
    /// `Stopped` if so.
    pub fn check(&self) -> Result<()> {
        if self.is_stopped() { Err(Error::Stopped) } else { Ok(()) }
    }

    /// True once somebody has asked for the end. Cheap enough to be asked between any two pieces of work.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_clones_hear_of_the_end() {
        let control = Control::new();
        let (other, unrelated) = (control.clone(), Control::new());
        assert!(!other.is_stopped());
        control.stop();
        assert!(control.is_stopped() && other.is_stopped() && !unrelated.is_stopped());
    }
}
