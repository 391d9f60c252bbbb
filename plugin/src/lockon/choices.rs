//! Properties whose value is one of a few words.
//!
//! Properties that are fields of lockon's `Request` have a type here, whose nicks are the words of the field:
//! so tools can offer them, and pipelines use the words of the command line.

use gst::glib;
use gst::prelude::*;

/// The picture of outgoing frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, glib::Enum)]
#[repr(u32)]
#[enum_type(name = "GstLockonView")]
pub enum View {
    /// Frames stay unchanged.
    #[enum_value(name = "None: frames are not touched", nick = "none")]
    None,
    /// Boxes and labels over it.
    #[default]
    #[enum_value(name = "Overlay: boxes and labels over the picture", nick = "overlay")]
    Overlay,
    /// The thresholded frame.
    #[enum_value(name = "Mask: the thresholded frame, where there is a threshold", nick = "mask")]
    Mask,
    /// Half of each.
    #[enum_value(name = "Split: the picture on the left, the thresholded frame on the right", nick = "split")]
    Split,
    /// Boxes and labels as pictures that a sink lays over it.
    #[enum_value(
        name = "Composition: boxes and labels as pictures that a sink lays over it; an overlay where none does",
        nick = "composition"
    )]
    Composition,
}

impl View {
    /// lockon's name for it; `None` leaves frames unchanged.
    pub(super) fn drawn(self) -> Option<lockon_core::config::View> {
        match self {
            Self::None => None,
            Self::Overlay | Self::Composition => Some(lockon_core::config::View::Overlay),
            Self::Mask => Some(lockon_core::config::View::Mask),
            Self::Split => Some(lockon_core::config::View::Split),
        }
    }

    pub(super) fn has_mask(self) -> bool {
        self.drawn().is_some_and(lockon_core::config::View::has_mask)
    }
}

/// The frames for which a message is posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, glib::Enum)]
#[repr(u32)]
#[enum_type(name = "GstLockonPostMessages")]
pub enum PostMessages {
    /// For none.
    #[enum_value(name = "None: no messages", nick = "none")]
    None,
    /// For those in which something was found, is followed or thresholded.
    #[default]
    #[enum_value(name = "Results: for frames with matches, tracks or a threshold", nick = "results")]
    Results,
    /// For every frame.
    #[enum_value(name = "All: for every frame", nick = "all")]
    All,
}

/// The search method of templates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, glib::Enum)]
#[repr(u32)]
#[enum_type(name = "GstLockonSearch")]
pub enum Search {
    /// Pyramid where exhaustive takes long on the CPU.
    #[default]
    #[enum_value(name = "Auto: pyramid where exhaustive takes long on the CPU", nick = "auto")]
    Auto,
    /// Every place, size and direction.
    #[enum_value(name = "Exhaustive: every place, size and direction", nick = "exhaustive")]
    Exhaustive,
    /// From coarse to fine on the CPU.
    #[enum_value(name = "Pyramid: from coarse to fine on the CPU", nick = "pyramid")]
    Pyramid,
}

/// The reaction to a GPU that fails while frames pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, glib::Enum)]
#[repr(u32)]
#[enum_type(name = "GstLockonOnDeviceLoss")]
pub enum OnDeviceLoss {
    /// An error.
    #[default]
    #[enum_value(name = "End: an error ends the stream", nick = "end")]
    End,
    /// Continues on another GPU.
    #[enum_value(name = "GPU: another one does the rest, or the CPU", nick = "gpu")]
    Gpu,
    /// Continues on the CPU.
    #[enum_value(name = "CPU: it does the rest", nick = "cpu")]
    Cpu,
}

/// The range of luma that is searched and thresholded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, glib::Enum)]
#[repr(u32)]
#[enum_type(name = "GstLockonRange")]
pub enum Range {
    /// As decoded.
    #[default]
    #[enum_value(name = "As is: as decoded", nick = "as-is")]
    AsIs,
    /// Limited range is expanded.
    #[enum_value(name = "Full: limited range, 16 to 235, is expanded to 0 to 255", nick = "full")]
    Full,
}

/// The colour of objects in thresholded frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, glib::Enum)]
#[repr(u32)]
#[enum_type(name = "GstLockonObjectColour")]
pub enum ObjectColour {
    /// Bright on dark.
    #[default]
    #[enum_value(name = "White: bright objects", nick = "white")]
    White,
    /// Dark on bright.
    #[enum_value(name = "Black: dark objects, as ink on paper", nick = "black")]
    Black,
}

/// All of them.
pub(super) fn types() -> [glib::Type; 6] {
    [
        View::static_type(),
        PostMessages::static_type(),
        Search::static_type(),
        OnDeviceLoss::static_type(),
        Range::static_type(),
        ObjectColour::static_type(),
    ]
}

/// The type of a request's field whose value is one of a few words. `backend` has none: `cuda:0,1` is one of
/// very many.
pub(super) fn of_field(name: &str) -> Option<glib::Type> {
    match name {
        "search" => Some(Search::static_type()),
        "on-device-loss" => Some(OnDeviceLoss::static_type()),
        "range" => Some(Range::static_type()),
        "object-colour" => Some(ObjectColour::static_type()),
        _ => None,
    }
}

/// The word that a value of such a type stands for.
pub(super) fn word(value: &glib::Value) -> Option<&str> {
    glib::EnumValue::from_value(value).map(|(_, choice)| choice.nick())
}

/// The value that a word stands for.
pub(super) fn value(choices: glib::Type, word: &str) -> Option<glib::Value> {
    glib::EnumClass::with_type(choices)?.to_value_by_nick(word)
}

/// A property of such a type, whose default is its first word.
pub(super) fn property(
    field: &str,
    nick: &str,
    blurb: &str,
    flags: glib::ParamFlags,
) -> Option<glib::ParamSpec> {
    macro_rules! of {
        ($type:ty) => {
            Some(glib::ParamSpecEnum::builder::<$type>(field).nick(nick).blurb(blurb).flags(flags).build())
        };
    }
    match field {
        "search" => of!(Search),
        "on-device-loss" => of!(OnDeviceLoss),
        "range" => of!(Range),
        "object-colour" => of!(ObjectColour),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use lockon_run::request::{Field, Request};

    use super::*;

    #[test]
    fn words_and_defaults_are_those_of_the_request() {
        for field in Field::of_element() {
            let Some(choices) = of_field(field.name) else { continue };
            let class = glib::EnumClass::with_type(choices).unwrap();
            let words: Vec<_> = class.values().iter().map(glib::EnumValue::nick).collect();
            assert_eq!(words, field.spec.offers, "{}", field.name);
            let property = property(field.name, "", "", glib::ParamFlags::READWRITE).unwrap();
            let default = field.texts(&Request::default());
            assert_eq!(word(property.default_value()), default[0].to_str(), "{}", field.name);
        }
    }
}
