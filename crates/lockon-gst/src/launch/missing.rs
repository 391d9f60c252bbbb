//! Names missing elements and their packages, and installed elements that cannot be loaded.

use gst::prelude::*;

use crate::doctor;
use lockon_core::error::Error;
use lockon_core::threads;

/// `MissingElement`, if the element's package is known; `Resource` if the element is installed and cannot be
/// loaded.
pub(super) fn missing_element(element: &str) -> Option<Error> {
    if let Some(factory) = gst::ElementFactory::find(element).filter(cannot_be_loaded) {
        return Some(threads::not_loaded("pipeline", &factory.name()));
    }
    let package = doctor::package_of(element)?;
    Some(Error::MissingElement { element: element.to_owned(), package })
}

/// Names the element that a `missing-plugin` message needs, if it is known.
pub(super) fn missing_plugin(structure: &gst::StructureRef) -> Option<Error> {
    if structure.name() != "missing-plugin" {
        return None;
    }
    let element = match structure.get::<&str>("type").ok()? {
        "element" => structure.get::<String>("detail").ok()?,
        "urisource" => match structure.get::<&str>("detail").ok()? {
            "http" | "https" => "souphttpsrc".to_owned(),
            "rtsp" | "rtsps" => "rtspsrc".to_owned(),
            scheme => format!("{scheme}src"),
        },
        "decoder" => {
            let caps = structure.get::<gst::Caps>("detail").ok()?;
            if let Some(error) = not_loaded(&caps) {
                return Some(error);
            }
            let media = caps.structure(0)?.name();
            let element = match media.as_str() {
                "video/quicktime" => "qtdemux".to_owned(),
                "video/x-matroska" | "video/webm" => "matroskademux".to_owned(),
                "video/x-msvideo" => "avidemux".to_owned(),
                "video/mpegts" => "tsdemux".to_owned(),
                "video/x-vp8" => "vp8dec".to_owned(),
                "video/x-vp9" => "vp9dec".to_owned(),
                "video/x-av1" => "av1dec".to_owned(),
                "image/jpeg" => "jpegdec".to_owned(),
                // libav has nearly every other decoder, with nearly the name of the format.
                other => format!("avdec_{}", other.trim_start_matches("video/").trim_start_matches("x-")),
            };
            // If the package is installed already, its name does not help: nothing decodes this.
            let has = |name: &str| gst::ElementFactory::find(name).is_some();
            if has(&element) || (element.starts_with("avdec_") && has("avdec_h264")) {
                return Some(nothing_decodes(media));
            }
            element
        }
        _ => return None,
    };
    missing_element(&element)
}

/// True for an element whose plugin is installed and does not load. GStreamer skips it as if it were not
/// installed.
fn cannot_be_loaded(factory: &gst::ElementFactory) -> bool {
    factory.load().is_err()
}

/// The error of an installed element that accepts such a stream but cannot be loaded.
fn not_loaded(caps: &gst::Caps) -> Option<Error> {
    let all =
        gst::ElementFactory::factories_with_type(gst::ElementFactoryType::DECODABLE, gst::Rank::MARGINAL);
    let of_stream = all.into_iter().filter(|factory| factory.can_sink_any_caps(caps));
    let factory = of_stream.into_iter().find(cannot_be_loaded)?;
    let media = caps.structure(0)?.name();
    Some(threads::not_loaded("decodebin", &format!("{}, which takes {media},", factory.name())))
}

/// The error if no installed decoder accepts such a stream.
fn nothing_decodes(media: &str) -> Error {
    Error::Pipeline {
        element: "decodebin".to_owned(),
        message: format!(
            "GStreamer has no decoder for {media} (ffmpeg -i FILE -c:v libx264 FILE.mp4 makes H.264 of it)"
        ),
        debug: String::new(),
    }
}
