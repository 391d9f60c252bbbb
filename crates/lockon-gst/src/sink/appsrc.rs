//! The appsrc that frames are pushed into, and the rules for a pipeline of the user's around it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gst::prelude::*;

use super::Shown;
use crate::launch::Launch;
use lockon_core::error::Result;

/// Drawn frames that may wait in `appsrc`: enough to bridge an encoder's uneven pace.
const QUEUED: u64 = 4;

/// The user's pipeline `text` (or `@file`), without opening anything.
///
/// # Errors
/// `File` if the file cannot be read.
pub fn user_launch(text: &str) -> Result<Launch> {
    Launch::user("--sink", text).map(Launch::with_appsrc)
}

/// The pipeline has exactly one appsrc, and it is ours.
pub(super) fn check_appsrc(launch: &Launch, pipeline: &gst::Pipeline) -> Result<()> {
    let sources: Vec<_> =
        pipeline.iterate_all_by_element_factory_name("appsrc").into_iter().flatten().collect();
    match sources.as_slice() {
        [source] if source.name() == "results" => Ok(()),
        [] => Err(launch.fault("it must begin with `appsrc name=results`, from which the frames come")),
        [source] => {
            Err(launch.fault(format!("its appsrc is named {:?}: write `appsrc name=results`", source.name())))
        }
        more => Err(launch.fault(format!(
            "it has {} appsrc elements, but frames come from one, `appsrc name=results` (a tee splits them)",
            more.len()
        ))),
    }
}

/// Lets sinks with `sync=false` start without a first frame (`async=false`). After a tee, an encoder with
/// lookahead gives no frame until it has many, while another sink that waits with its first frame blocks the
/// tee: the pipeline would wait for ever, as in `gst-launch-1.0`.
pub(super) fn start_without_preroll(pipeline: &gst::Pipeline) {
    for sink in pipeline.iterate_sinks().into_iter().flatten() {
        let has = |property: &str| sink.has_property_with_type(property, bool::static_type());
        if has("sync") && has("async") && !sink.property::<bool>("sync") {
            sink.set_property("async", false);
        }
    }
}

/// Sets the properties that only an appsrc has. They are not in the text, so that users can try it with
/// videotestsrc instead.
pub(crate) fn prepare(appsrc: &gst_app::AppSrc, info: &gst_video::VideoInfo, is_live: bool) {
    appsrc.set_caps(info.to_caps().ok().as_ref());
    appsrc.set_format(gst::Format::Time);
    // Bytes are no useful limit for pictures.
    appsrc.set_max_bytes(0);
    appsrc.set_max_buffers(QUEUED);
    appsrc.set_is_live(is_live);
    appsrc.set_block(!is_live);
    if is_live {
        appsrc.set_max_buffers(1);
        appsrc.set_leaky_type(gst_app::AppLeakyType::Downstream);
        // Frames get the time at which they are pushed: none is older.
        appsrc.set_min_latency(0);
    }
}

/// Counts frames that leave the appsrc. The others that were pushed were dropped.
pub(super) fn count_drops(appsrc: &gst_app::AppSrc, shown: &Arc<Shown>) {
    let Some(pad) = appsrc.static_pad("src") else { return };
    let shown = shown.clone();
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
        shown.left.fetch_add(1, Ordering::Relaxed);
        gst::PadProbeReturn::Ok
    });
}
