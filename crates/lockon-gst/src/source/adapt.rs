//! The elements that a video needs in front of the appsink: none for most.
//!
//! A converter costs more than matching does, so one is inserted only if the first frame's caps and tags
//! require it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use gst::prelude::*;

use super::errors::no_video;
use super::head::Head;
use super::orientation::{self, Orientation};
use super::picture::pixels;
use super::{Input, LOG, SourceSpec};
use crate::cuda::FEATURE;
use crate::launch;
use lockon_core::error::Result;
use lockon_core::locks::lock;

/// Formats that a conversion may produce: 8-bit luma with its chroma, as planes that `videoflip` and
/// `deinterlace` accept.
const CONVERTED: &str = "video/x-raw,format=(string){I420,Y42B,Y444,GRAY8}";

/// Formats that both `deinterlace` and `videoflip` take (GStreamer 1.22).
const TURNABLE: [&str; 5] = ["I420", "YV12", "NV12", "NV21", "Y444"];

/// Returns the elements that must stand before the appsink for a video of these caps, if any; its tags are on
/// `pad`. Warns of conversions, as they cost time.
pub(super) fn adaptation(
    caps: &gst::Caps,
    pad: &gst::Pad,
    spec: &SourceSpec,
    head: &Head,
) -> Result<Option<String>> {
    let info = gst_video::VideoInfo::from_caps(caps)
        .map_err(|_| no_video(&spec.input, format!("not video: {caps}")))?;
    let name = info.format().to_str().as_str();
    // A converter turns RGB into luma of limited range, as in videos that are written from RGB.
    let has_luma = pixels(name).is_some() && !info.is_rgb();
    let depth = info.comp_depth(0);
    if depth > 8 {
        tracing::warn!(target: LOG, "{}: {name} has no 8-bit luma plane: {depth} bits are reduced to 8", spec.input);
    }
    if info.has_alpha() {
        tracing::warn!(target: LOG,
            "{}: transparency is left out: also what it hides is searched (pictures are laid on white)", spec.input);
    }
    // A user's own text is run as written, except where it cannot work.
    let is_ours = !matches!(spec.input, Input::Launch(_));
    let is_interlaced = info.is_interlaced();
    let direction = if is_ours { direction(pad, spec, head) } else { None };
    let is_turned = direction.is_some();
    if is_interlaced && !is_ours {
        tracing::warn!(target: LOG,
            "{}: interlaced: fields are matched together (put `deinterlace fields=top` in)",
            spec.input
        );
    }
    let mut chain = Vec::new();
    let deinterlaces = is_interlaced && is_ours;
    let converts = !has_luma || ((deinterlaces || is_turned) && !TURNABLE.contains(&name));
    if converts {
        // Dithering would add noise to the compared pixels.
        chain.push("videoconvert dither=none");
    }
    if deinterlaces {
        // One frame out for each frame in; the default gives each field a frame of its own.
        chain.push("deinterlace fields=top");
    }
    let flip = direction.map(|direction| format!("videoflip video-direction={direction}"));
    chain.extend(flip.as_deref());
    if chain.is_empty() {
        return Ok(None);
    }
    if caps.features(0).is_some_and(|features| features.contains(FEATURE)) {
        chain.insert(0, "cudadownload");
    }
    if converts {
        chain.push(CONVERTED);
    }
    if !has_luma && depth <= 8 {
        tracing::warn!(target: LOG, "{}: {name} has no 8-bit luma plane: luma is computed", spec.input);
    }
    if deinterlaces {
        tracing::warn!(target: LOG, "{}: interlaced: frames are made of the top fields", spec.input);
    }
    Ok(Some(chain.join(" ! ")))
}

/// The direction for `videoflip`, if the picture must be turned or mirrored.
fn direction(pad: &gst::Pad, spec: &SourceSpec, head: &Head) -> Option<&'static str> {
    if tagged(pad).and_then(Orientation::direction).is_some() {
        return Some("auto");
    }
    untagged(pad, spec, head).and_then(Orientation::direction)
}

/// Returns the orientation from a tag on the pad.
pub(super) fn tagged(pad: &gst::Pad) -> Option<Orientation> {
    let tags = (0..).map_while(|n| pad.sticky_event::<gst::event::Tag>(n));
    tags.into_iter().find_map(|event| {
        let tag = event.tag().get::<gst::tags::ImageOrientation>()?;
        Orientation::of_tag(tag.get())
    })
}

/// Returns the orientation from the file's track header or the video itself, for streams without a tag.
pub(super) fn untagged(pad: &gst::Pad, spec: &SourceSpec, head: &Head) -> Option<Orientation> {
    let of_file = || {
        // Demuxers of MP4 end a stream's name in the number of its track.
        let stream = pad.stream_id()?;
        let track = stream.rsplit('/').next()?.parse().ok()?;
        orientation::of_mp4(&spec.file()?, track)
    };
    of_file().filter(|of_file| of_file.direction().is_some()).or_else(|| head.orientation())
}

/// Inserts the elements that the video needs in front of the appsink, just before its first frame arrives.
/// Their text can be read once that frame has arrived. Nothing is inserted if `is_wanted` is false by then.
pub(super) fn adapt_in_place(
    pipeline: &gst::Pipeline,
    pad: &gst::Pad,
    spec: &SourceSpec,
    head: &Arc<Head>,
    is_wanted: impl Fn() -> bool + Send + Sync + 'static,
) -> Arc<Mutex<Option<String>>> {
    let chain = Arc::new(Mutex::new(None));
    let (put_in, spec, head) = (Arc::clone(&chain), spec.clone(), Arc::clone(head));
    let pipeline = pipeline.downgrade();
    let adapt = move |before: &gst::Pad| -> Result<(), gst::glib::BoolError> {
        let (Some(pipeline), Some(after), Some(caps)) =
            (pipeline.upgrade(), before.peer(), before.current_caps())
        else {
            return Ok(());
        };
        if !is_wanted() {
            return Ok(());
        }
        // An input without video is reported when the first frame is examined.
        let Ok(Some(text)) = adaptation(&caps, before, &spec, &head) else { return Ok(()) };
        // The text of a bin must end in an element, and caps are no element.
        let bin = gst::parse::bin_from_description(&format!("{text} ! identity"), true)
            .map_err(|error| gst::glib::bool_error!("{text}: {error}"))?;
        let (Some(entry), Some(exit)) = (bin.static_pad("sink"), bin.static_pad("src")) else {
            return Err(gst::glib::bool_error!("{text}: it has no ends"));
        };
        pipeline.add(&bin)?;
        bin.sync_state_with_parent()?;
        before.unlink(&after)?;
        let linked = |result: Result<gst::PadLinkSuccess, gst::PadLinkError>| {
            result.map_err(|error| gst::glib::bool_error!("{text}: {error}"))
        };
        linked(before.link(&entry))?;
        linked(exit.link(&after))?;
        *lock(&put_in) = Some(text);
        Ok(())
    };
    let adapt = Arc::new(adapt);
    let is_watched = AtomicBool::new(false);
    let watch = move |before: &gst::Pad| {
        // The inserted elements are linked here too.
        if is_watched.swap(true, Ordering::Relaxed) {
            return;
        }
        let adapt = Arc::clone(&adapt);
        before.add_probe(gst::PadProbeType::BLOCK | gst::PadProbeType::BUFFER, move |before, _| {
            launch::guarded(before, gst::PadProbeReturn::Remove, || {
                if let Err(error) = adapt(before)
                    && let Some(element) = before.parent_element()
                {
                    gst::element_error!(
                        element,
                        gst::CoreError::Negotiation,
                        ("cannot be converted: {error}")
                    );
                }
                gst::PadProbeReturn::Remove
            })
        });
    };
    // A decoder's pad is linked once its format is known.
    if let Some(before) = pad.peer() {
        watch(&before);
    }
    pad.connect_linked(move |_, before| watch(before));
    chain
}
