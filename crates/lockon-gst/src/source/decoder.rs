//! Choice of decoders: software, or hardware where available.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use gst::glib::{self, subclass::SignalId};
use gst::prelude::*;

use crate::damage::Errors;
use lockon_core::error::{Error, Result};

/// Decoders to use. It does not apply to gst-launch text, which names its own.
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
    /// All values, with their text.
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

/// From so many cores on, software decodes one file faster than one NVDEC: an H200's takes 739 frames of
/// 1080p H.264 a second of one stream, and 16 virtual cores beside it 1,197, 75 each.
const MANY_CORES: usize = 12;

impl Decoder {
    /// Resolves `Auto`: software if the CPU searches. If a GPU searches, its decoder, which takes less of the
    /// processor: best for live sources and few cores. Files on many cores are decoded faster by software.
    pub fn settled(self, searches_on_gpu: bool, is_real_time: bool, cores: usize) -> Self {
        let is_better_in_software = !searches_on_gpu || !is_real_time && cores >= MANY_CORES;
        if self == Self::Auto && is_better_in_software { Self::Software } else { self }
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
pub(crate) fn picture_decoder(pipeline: &gst::Pipeline) -> Option<gst::Element> {
    pipeline.iterate_recurse().into_iter().flatten().find(|element| {
        let factory = element.factory();
        let class = factory.as_ref().and_then(|factory| factory.metadata("klass")).unwrap_or_default();
        class.contains("Codec/Decoder") && (class.contains("Video") || class.contains("Image"))
    })
}

/// Limits the threads of software decoders, of those in the pipeline and of later ones.
pub(super) fn limit_threads(pipeline: &gst::Pipeline, threads: u32) {
    let limit = move |element: &gst::Element| {
        let is_decoder = is_software_decoder(element);
        // The property's name in libav, libvpx and dav1d.
        let names = ["max-threads", "threads", "n-threads"].into_iter();
        for property in names.filter(|_| is_decoder).filter_map(|name| element.find_property(name)) {
            // libvpx allows 16 at most.
            if let Some(most) = property.downcast_ref::<glib::ParamSpecInt>().map(glib::ParamSpecInt::maximum)
            {
                element.set_property(property.name(), i32::try_from(threads).map_or(most, |n| n.min(most)));
            } else if let Some(range) = property.downcast_ref::<glib::ParamSpecUInt>() {
                element.set_property(property.name(), threads.min(range.maximum()));
            }
        }
    };
    for_each_element(pipeline, limit);
}

/// Counts errors of software decoders as this pipeline's, if the thread that feeds them reports them.
pub(super) fn count_errors(pipeline: &gst::Pipeline, errors: &Errors) {
    let errors = errors.clone();
    for_each_element(pipeline, move |element| {
        if let Some(pad) = element.static_pad("sink").filter(|_| is_software_decoder(element)) {
            let errors = errors.clone();
            pad.add_probe(gst::PadProbeType::DATA_DOWNSTREAM, move |_, _| {
                errors.are_of_this_thread();
                gst::PadProbeReturn::Ok
            });
        }
    });
}

/// Decoders of libav that draw into GStreamer's buffers safely: each of their pixel formats is one of
/// GStreamer's too.
const DRAW_DIRECTLY: [&str; 7] =
    ["avdec_h264", "avdec_mpeg2video", "avdec_mpeg4", "avdec_vp8", "avdec_vp9", "avdec_wmv3", "avdec_vc1"];

/// Makes other decoders of libav draw into buffers of their own, which are copied.
///
/// gst-libav 1.22 crashes when it makes a buffer for a pixel format that GStreamer lacks, such as grey of
/// 10 bits in FFV1 or H.265. Without buffers to draw into it refuses the format instead.
pub(super) fn draw_safely(pipeline: &gst::Pipeline) {
    const DIRECT: &str = "direct-rendering";
    for_each_element(pipeline, |element| {
        let Some(factory) = element.factory().filter(|_| element.find_property(DIRECT).is_some()) else {
            return;
        };
        match factory.name().as_str() {
            // Its caps state whether the video is grey.
            "avdec_h265" => {
                let decoder = element.downgrade();
                let Some(pad) = element.static_pad("sink") else { return };
                pad.add_probe(gst::PadProbeType::EVENT_DOWNSTREAM, move |_, info| {
                    if let (Some(gst::EventView::Caps(caps)), Some(decoder)) =
                        (info.event().map(|event| event.view()), decoder.upgrade())
                    {
                        let chroma =
                            caps.caps().structure(0).and_then(|s| s.get::<String>("chroma-format").ok());
                        decoder.set_property(DIRECT, chroma.is_some_and(|chroma| chroma != "4:0:0"));
                    }
                    gst::PadProbeReturn::Ok
                });
            }
            name if DRAW_DIRECTLY.contains(&name) => {}
            _ => element.set_property(DIRECT, false),
        }
    });
}

fn is_software_decoder(element: &gst::Element) -> bool {
    let class = element.factory().and_then(|factory| factory.metadata("klass").map(str::to_owned));
    class.is_some_and(|class| class.contains("Decoder") && !class.contains("Hardware"))
}

/// Calls `to_do` with each element that is in the pipeline, now or later.
fn for_each_element(pipeline: &impl IsA<gst::Bin>, to_do: impl Fn(&gst::Element) + Send + Sync + 'static) {
    let bin = pipeline.as_ref();
    bin.iterate_recurse().into_iter().flatten().for_each(|element| to_do(&element));
    bin.connect_deep_element_added(move |_, _, element| to_do(element));
}

pub(super) fn is_hardware(factory: &gst::ElementFactory) -> bool {
    factory.metadata("klass").is_some_and(|class| class.contains("Hardware"))
}

/// Names of the caps that NVIDIA's decoders accept, such as `video/x-h264`.
pub(crate) fn nvidia_codecs() -> Vec<String> {
    let video = gst::ElementFactoryType::DECODER | gst::ElementFactoryType::MEDIA_VIDEO;
    let factories = gst::ElementFactory::factories_with_type(video, gst::Rank::NONE).into_iter();
    let ours = factories.filter(|factory| factory.plugin_name().is_some_and(|plugin| plugin == "nvcodec"));
    let templates = ours.flat_map(|factory| factory.static_pad_templates().into_iter().collect::<Vec<_>>());
    let sinks = templates.filter(|template| template.direction() == gst::PadDirection::Sink);
    let mut codecs: Vec<_> = sinks
        .flat_map(|template| template.caps().iter().map(|s| s.name().to_string()).collect::<Vec<_>>())
        .collect();
    codecs.sort();
    codecs.dedup();
    codecs
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

/// Leaves out NVIDIA's decoders of other GPUs than `number`: there is one element for each codec and GPU.
pub(super) fn keep_to_gpu(pipeline: &gst::Pipeline, number: u32) {
    leave_out(pipeline, move |factory| gpu_of(factory).is_some_and(|gpu| gpu != number));
}

/// Leaves out elements that open other files and addresses than the input, as playlists name them, and
/// forbids HTTP sources to follow a redirect. Returns the first element that was left out, once one was.
pub(crate) fn keep_to_file(pipeline: &impl IsA<gst::Bin>) -> Arc<OnceLock<gst::ElementFactory>> {
    const REDIRECT: &str = "automatic-redirect";
    for_each_element(pipeline, |element| {
        if element.find_property(REDIRECT).is_some() {
            element.set_property(REDIRECT, false);
        }
    });
    let first = Arc::new(OnceLock::new());
    let left_out = first.clone();
    leave_out(pipeline, move |factory| {
        let opens = opens_others(factory.metadata("klass").unwrap_or_default());
        if opens {
            let _ = left_out.set(factory.clone());
        }
        opens
    });
    first
}

/// Skips decoders of the alpha channel of VP8 and VP9 if the picture can be decoded without it. Alpha is not
/// used, and GStreamer 1.22 hangs if the picture or the alpha of a frame is damaged.
pub(super) fn leave_out_alpha(pipeline: &gst::Pipeline) {
    leave_out(pipeline, |factory| {
        let name = factory.name();
        let Some(codec) = name.strip_suffix("alphadecodebin") else { return false };
        let caps = gst::Caps::builder(format!("video/x-{codec}")).field("codec-alpha", true).build();
        let plain = gst::ElementFactory::find(&format!("{codec}dec"));
        plain.is_some_and(|plain| plain.can_sink_any_caps(&caps))
    });
}

/// True for a class of elements that open other addresses by name: playlists of HLS, DASH and Smooth
/// Streaming are `Adaptive`, session descriptions `Network`, timelines `Editing`.
fn opens_others(class: &str) -> bool {
    class.split('/').any(|part| matches!(part, "Adaptive" | "Network" | "Editing" | "Source"))
}

/// Makes the elements that choose decoders in a pipeline skip some.
pub(super) fn leave_out(
    pipeline: &impl IsA<gst::Bin>,
    is_left_out: impl Fn(&gst::ElementFactory) -> bool + Clone + Send + Sync + 'static,
) {
    // Decoders within a `uridecodebin` ask through it.
    let choosers = pipeline.as_ref().children().into_iter().filter_map(|element| {
        let signal = SignalId::lookup("autoplug-select", element.type_())?;
        Some((element, signal.query().return_type().type_()))
    });
    for (chooser, answer) in choosers {
        // The bindings lack this type.
        let Some(answer) = glib::EnumClass::with_type(answer) else { continue };
        let is_left_out = is_left_out.clone();
        chooser.connect("autoplug-select", false, move |values| {
            let factory = values.last().and_then(|value| value.get::<gst::ElementFactory>().ok());
            let is_passed = factory.is_some_and(|factory| is_left_out(&factory));
            answer.to_value_by_nick(if is_passed { "skip" } else { "try" })
        });
    }
}

/// The GPU of a decoder of NVIDIA's, from its name: `nvh264dec` is the first one's,
/// `nvh264device1dec` the second one's.
fn gpu_of(factory: &gst::ElementFactory) -> Option<u32> {
    (factory.plugin_name()? == "nvcodec").then(|| number_in(&factory.name()))
}

fn number_in(name: &str) -> u32 {
    let digits = name.split_once("device").and_then(|(_, rest)| rest.strip_suffix("dec"));
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoders_have_no_more_threads_than_they_are_given() {
        crate::launch::init().unwrap();
        let pipeline = || {
            let pipeline = gst::parse::launch("fakesrc ! avdec_h264 name=a ! fakesink").unwrap();
            pipeline.downcast::<gst::Pipeline>().unwrap()
        };
        let many = pipeline();
        limit_threads(&many, u32::MAX);
        let decoder = gst::ElementFactory::make("vp8dec").build().unwrap();
        many.add(&decoder).unwrap();
        assert_eq!(decoder.property::<u32>("threads"), 16, "as many as it takes");
        let pipeline = pipeline();
        limit_threads(&pipeline, 3);
        let of = |name: &str| pipeline.by_name(name).unwrap();
        assert_eq!(of("a").property::<i32>("max-threads"), 3);
        for (factory, property) in [("avdec_h265", "max-threads"), ("vp9dec", "threads")] {
            let later = gst::ElementFactory::make(factory).name(factory).build().unwrap();
            pipeline.add(&later).unwrap();
            let value = later.property_value(property);
            assert!(
                value.get::<i32>().is_ok_and(|n| n == 3) || value.get::<u32>().is_ok_and(|n| n == 3),
                "{value:?}"
            );
        }
        // Encoders keep their own number.
        let encoder = gst::ElementFactory::make("vp8enc").build().unwrap();
        let before = encoder.property::<i32>("threads");
        pipeline.add(&encoder).unwrap();
        assert_eq!(encoder.property::<i32>("threads"), before);
    }

    /// Without a GPU there is no decoder that could be left out; a wrong answer would end the process.
    #[test]
    fn decoders_that_are_on_no_gpu_are_taken_whatever_the_gpu_is() {
        crate::launch::init().unwrap();
        let text = "videotestsrc num-buffers=5 ! jpegenc ! decodebin ! fakesink name=end";
        let pipeline = gst::parse::launch(text).unwrap().downcast::<gst::Pipeline>().unwrap();
        keep_to_gpu(&pipeline, 7);
        pipeline.set_state(gst::State::Playing).unwrap();
        let end = [gst::MessageType::Eos, gst::MessageType::Error];
        let message = pipeline.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(20), &end);
        let decoder = picture_decoder(&pipeline)
            .and_then(|decoder| decoder.factory())
            .map(|factory| factory.name().to_string());
        pipeline.set_state(gst::State::Null).unwrap();
        assert_eq!(message.unwrap().type_(), gst::MessageType::Eos);
        assert_eq!(decoder.as_deref(), Some("jpegdec"));
    }

    #[test]
    fn classes_of_what_opens_other_files_are_left_out_and_no_others() {
        for class in [
            "Codec/Demuxer/Adaptive",
            "Codec/Demuxer/Network/RTP",
            "Codec/Demuxer/Editing",
            "Source/Network",
            "Source/File/Video",
        ] {
            assert!(opens_others(class), "{class}");
        }
        for class in [
            "Codec/Demuxer",
            "Codec/Demuxer/Metadata",
            "Codec/Decoder/Video/Hardware",
            "Codec/Parser/Converter",
            "",
        ] {
            assert!(!opens_others(class), "{class}");
        }
    }

    #[test]
    fn a_decoder_of_nvidias_tells_its_gpu_by_its_name() {
        let names = ["nvh264dec", "nvh265sldevice1dec", "nvvp9device12dec", "nvdevicedec"];
        assert_eq!(names.map(number_in), [0, 1, 12, 0]);
    }

    #[test]
    fn auto_is_hardware_for_live_sources_and_few_cores_beside_a_gpu_that_searches() {
        let settled = |gpu, live, cores| Decoder::Auto.settled(gpu, live, cores);
        assert_eq!(settled(true, true, 16), Decoder::Auto);
        assert_eq!(settled(true, false, 4), Decoder::Auto);
        assert_eq!(settled(true, false, 16), Decoder::Software);
        assert_eq!(settled(false, true, 4), Decoder::Software);
        assert_eq!(
            Decoder::Hardware.settled(false, false, 16),
            Decoder::Hardware,
            "what was asked for stays"
        );
    }
}
