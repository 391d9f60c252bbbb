//! Which decoders are taken: software, or hardware where it is there.

use std::fmt;
use std::str::FromStr;

use gst::prelude::*;

use lockon_core::error::{Error, Result};

/// Which decoders are used. It does not apply to gst-launch text, which names its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Decoder {
    /// A hardware decoder where there is one for the video, else software.
    Auto,
    /// Software only.
    #[default]
    Software,
    /// A hardware decoder, or an error.
    Hardware,
}

impl Decoder {
    /// All that can be typed.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Software, Self::Hardware];

    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Software => "software",
            Self::Hardware => "hardware",
        }
    }
}

impl fmt::Display for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Decoder {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|decoder| decoder.name() == text);
        known.ok_or_else(|| Error::value("decoder", text, "expected auto, software or hardware"))
    }
}

/// The first element that decodes pictures.
pub(super) fn decoder_of(pipeline: &gst::Pipeline) -> Option<gst::ElementFactory> {
    let factories = pipeline.iterate_recurse().into_iter().flatten().filter_map(|element| element.factory());
    factories.into_iter().find(|factory| {
        let class = factory.metadata("klass").unwrap_or_default();
        class.contains("Codec/Decoder") && (class.contains("Video") || class.contains("Image"))
    })
}

pub(super) fn is_hardware(factory: &gst::ElementFactory) -> bool {
    factory.metadata("klass").is_some_and(|class| class.contains("Hardware"))
}

/// Ranks hardware decoders above all others, for this process: by itself GStreamer ranks many of them last.
pub(super) fn prefer_hardware() {
    let video = gst::ElementFactoryType::DECODER | gst::ElementFactoryType::MEDIA_VIDEO;
    for factory in gst::ElementFactory::factories_with_type(video, gst::Rank::NONE) {
        if is_hardware(&factory) {
            factory.set_rank(gst::Rank::PRIMARY + 64);
        }
    }
}
