//! Chooses one of several video streams: the requested one, else the one flagged as default, else the first.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use gst::prelude::*;

use super::spec::decoding_element;
use super::{Input, LOG, SourceSpec};
use crate::launch::Launch;
use lockon_core::locks::lock;

/// The choice among the video streams of a pipeline.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// The chosen stream.
    chosen: AtomicUsize,
    has_chosen: AtomicBool,
    /// Why no stream can be used.
    refusal: Mutex<Option<String>>,
}

impl Streams {
    /// Chooses a stream as soon as the pipeline knows all of them. `is_told` is set when the user has been
    /// warned of several.
    pub(super) fn watch(
        spec: &SourceSpec,
        launch: &Launch,
        pipeline: &gst::Pipeline,
        is_told: &Arc<AtomicBool>,
    ) -> Arc<Self> {
        let streams = Arc::new(Self::default());
        let is_ours = matches!(spec.input, Input::File(_) | Input::Stdin | Input::Uri(_));
        let decode = launch.element(pipeline, decoding_element(&spec.input));
        let sink = launch.element(pipeline, "memory").ok().and_then(|element| element.static_pad("sink"));
        let (Ok(decode), Some(sink)) = (decode, sink.filter(|_| is_ours)) else { return streams };
        let (found, spec, is_told, sink) =
            (Arc::clone(&streams), spec.clone(), Arc::clone(is_told), sink.downgrade());
        // Decoded streams are blocked until this returns.
        decode.connect_no_more_pads(move |decode| {
            if let Some(sink) = sink.upgrade() {
                found.choose(decode, &sink, &spec, &is_told);
            }
        });
        streams
    }

    /// The number of the chosen stream, if not the first.
    pub(super) fn other_than_first(&self) -> Option<usize> {
        Some(self.chosen.load(Ordering::Relaxed)).filter(|chosen| *chosen > 0)
    }

    /// Why no stream can be used.
    pub(super) fn refusal(&self) -> Option<String> {
        lock(&self.refusal).clone()
    }

    fn choose(&self, decode: &gst::Element, sink: &gst::Pad, spec: &SourceSpec, is_told: &AtomicBool) {
        let pads: Vec<_> = decode.src_pads().into_iter().filter(is_video).collect();
        if pads.is_empty() || self.has_chosen.swap(true, Ordering::Relaxed) {
            return;
        }
        let flags: Vec<_> = pads.iter().map(flags_of).collect();
        let default = || {
            let flagged = flags.iter().position(|flags| flags.contains(gst::StreamFlags::SELECT));
            let enabled = || flags.iter().position(|flags| !flags.contains(gst::StreamFlags::UNSELECT));
            flagged.or_else(enabled).unwrap_or(0)
        };
        let chosen = spec.video_stream.map_or_else(default, |number| number as usize);
        let described = || {
            let streams = pads.iter().zip(&flags).enumerate();
            let all: Vec<_> = streams.map(|(number, (pad, flags))| described(number, pad, *flags)).collect();
            all.join(", ")
        };
        let Some(pad) = pads.get(chosen) else {
            let streams =
                if pads.len() == 1 { "1 video stream" } else { &format!("{} video streams", pads.len()) };
            let reason = format!("there is no video stream {chosen}: it has {streams}: {}", described());
            *lock(&self.refusal) = Some(reason.clone());
            gst::element_error!(decode, gst::StreamError::Failed, ("{}", reason));
            return;
        };
        self.chosen.store(chosen, Ordering::Relaxed);
        if pads.len() > 1 && spec.video_stream.is_none() && !is_told.swap(true, Ordering::Relaxed) {
            tracing::warn!(target: LOG,
                "{}: it has {} video streams: {}: uses {chosen} (--video-stream N uses another)",
                spec.input, pads.len(), described()
            );
        }
        match sink.peer() {
            Some(linked) if linked == *pad => return,
            Some(linked) => {
                let _ = linked.unlink(sink);
            }
            None => {}
        }
        if let Err(error) = pad.link(sink) {
            gst::element_error!(decode, gst::CoreError::Negotiation, ("video stream {chosen}: {error}"));
        }
    }
}

fn is_video(pad: &gst::Pad) -> bool {
    let caps = pad.current_caps().unwrap_or_else(|| pad.query_caps(None));
    caps.structure(0).is_some_and(|structure| structure.name().starts_with("video/"))
}

fn flags_of(pad: &gst::Pad) -> gst::StreamFlags {
    let start = pad.sticky_event::<gst::event::StreamStart>(0);
    start.map_or(gst::StreamFlags::empty(), |start| start.stream_flags())
}

/// A stream's number, size, and whether it is the default.
fn described(number: usize, pad: &gst::Pad, flags: gst::StreamFlags) -> String {
    let caps = pad.current_caps();
    let structure = caps.as_ref().and_then(|caps| caps.structure(0));
    let side = |name| structure.and_then(|structure| structure.get::<i32>(name).ok());
    let size = side("width").zip(side("height")).map(|(width, height)| format!("{width}x{height}"));
    let default = flags.contains(gst::StreamFlags::SELECT).then(|| "default".to_owned());
    let known: Vec<_> = size.into_iter().chain(default).collect();
    if known.is_empty() { number.to_string() } else { format!("{number} ({})", known.join(", ")) }
}
