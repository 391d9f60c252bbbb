//! One `OpenGL` display for all decoders of a process.
//!
//! NVIDIA's decoders of GStreamer 1.22 open an `OpenGL` display before they know that their frames will stay
//! in CUDA memory. Each pipeline would make one of its own, with a thread, and a hundred videos open at once.
//! So the first display is kept, and given to the decoders of other pipelines when they ask for one. Outputs
//! have their own, since a decoder restricts which kinds of `OpenGL` its display offers.

use std::sync::Mutex;

use gst::prelude::*;

use lockon_core::locks::lock;

/// The type of context in which elements share a display (`GST_GL_DISPLAY_CONTEXT_TYPE`).
pub(super) const DISPLAY: &str = "gst.gl.GLDisplay";

/// The display of the first decoder that made one.
static SHARED: Mutex<Option<gst::Context>> = Mutex::new(None);

/// Keeps the first display that a decoder says it has, and gives it to decoders that need one. Runs on the
/// thread of the element that posts the message, which looks again for a display when this has returned.
pub(super) fn attend(message: &gst::MessageRef) {
    attend_with(&SHARED, message);
}

/// As [`attend`], where the display is kept in `shared`.
pub(super) fn attend_with(shared: &Mutex<Option<gst::Context>>, message: &gst::MessageRef) {
    match message.view() {
        gst::MessageView::NeedContext(need) if need.context_type() == DISPLAY => {
            let display = lock(shared).clone();
            if let (Some(decoder), Some(display)) = (decoder(message), display) {
                decoder.set_context(&display);
            }
        }
        gst::MessageView::HaveContext(have) => {
            let context = have.context();
            if context.context_type() == DISPLAY && decoder(message).is_some() {
                lock(shared).get_or_insert(context);
            }
        }
        _ => {}
    }
}

/// The element that posts a message, if it decodes video.
fn decoder(message: &gst::MessageRef) -> Option<gst::Element> {
    let element = message.src()?.downcast_ref::<gst::Element>()?;
    let kind = gst::ElementFactoryType::DECODER | gst::ElementFactoryType::MEDIA_VIDEO;
    element.factory()?.has_type(kind).then(|| element.clone())
}
