//! Checks whether the application reads the messages on the bus.
//!
//! A bus keeps messages until the application reads them, and many applications never do: one message for
//! each frame would fill the memory.

use gst::prelude::*;

/// Maximum number of messages posted after an unread one: an application that is busy for some seconds misses
/// none.
const MOST_UNREAD: u32 = 256;

/// Checks whether the application reads the messages on the bus.
#[derive(Debug, Default)]
pub(super) struct Audience {
    /// The next unread message at the last check.
    head: Option<gst::Seqnum>,
    /// Messages posted since `head` became the next unread one.
    posted: u32,
}

impl Audience {
    /// True if a message should be posted: not if the bus's oldest message stayed unread while
    /// [`MOST_UNREAD`] were posted. After it is read, messages are posted again.
    pub(super) fn listens(&mut self, element: &gst::Element) -> bool {
        let head = bus_of(element).and_then(|bus| bus.peek()).map(|message| message.seqnum());
        if head.is_none() || head != self.head {
            (self.head, self.posted) = (head, 0);
        }
        if self.posted == MOST_UNREAD {
            return false;
        }
        self.posted += 1;
        if self.posted == MOST_UNREAD {
            gst::warning!(
                super::CAT,
                obj = element,
                "the bus is not read: after {MOST_UNREAD} messages the element posts no more until one is read \
                 (post-messages=none silences this)"
            );
        }
        true
    }
}

/// The bus that an application reads: that of the outermost bin. Inner bins pass messages on.
fn bus_of(element: &gst::Element) -> Option<gst::Bus> {
    let mut outermost = element.clone();
    while let Some(parent) = outermost.parent().and_then(|parent| parent.downcast::<gst::Element>().ok()) {
        outermost = parent;
    }
    outermost.bus()
}
