//! Declares, reads and writes the fields of a request.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::LazyLock;

use super::Request;
use crate::request::ListenAddress;
use lockon_core::config::{
    Angles, BackendChoice, Bounds, Codec, Connectivity, CountingLine, Kernel, LumaRange, Moment,
    ObjectColour, OnDeviceLoss, Rotate, Scales, SearchMethod, Shot, Speed, Square, Subject, ThresholdSpec,
    TimeSpan, TrackSpec, Typed, View, Zone, ZoneLimit,
};
use lockon_core::error::{Bytes, Error, Result};
use lockon_core::frame::{Rect, Size};
use lockon_gst::source::{Decoder, Input};

/// A field of a request.
#[derive(Debug)]
pub struct Field {
    /// Its name, such as `min-score`: on the command line behind `--`, in the element a property's, in job
    /// files a key.
    pub name: &'static str,
    /// Describes the field, in one paragraph.
    pub help: &'static str,
    /// How often it can be given.
    pub shape: Shape,
    /// Whether its value is a number.
    pub number: Number,
    /// The rest of its declaration.
    pub spec: Spec,
    pub(super) put: fn(&mut Request, &[OsString]) -> Result<(), String>,
    pub(super) texts: fn(&Request) -> Vec<OsString>,
}

/// How often something can be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// It is on or off.
    Switch,
    /// It always has a value.
    One,
    /// It may have a value.
    Maybe,
    /// Any number of times.
    List,
}

/// The kind of number of a value, for interfaces with number types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    /// It is text.
    No,
    /// A real number.
    Real,
    /// A whole number of up to 32 bits.
    Whole,
    /// A whole number of up to 64 bits.
    Long,
}

/// Whether the GStreamer element has a property of that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InElement {
    /// It has none.
    No,
    /// It has one; the value counts from the next start on.
    Ready,
    /// It has one; a change counts from the next frame on.
    Playing,
}

/// The parts of a declaration beside name, type, default and help.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each says another thing of a field")]
pub struct Spec {
    /// The name of the value in help texts; nothing for a switch.
    pub value: &'static str,
    /// The letter that does the same on the command line.
    pub short: Option<char>,
    /// The heading in help.
    pub group: &'static str,
    /// Minimum and maximum number.
    pub range: Option<(f64, f64)>,
    /// Values that completions offer. Other values may be understood too.
    pub offers: &'static [&'static str],
    /// Help lists the offered values.
    pub lists_offers: bool,
    /// The value is the name of a file that is written.
    pub is_file: bool,
    /// On the command line it stands without a name.
    pub is_positional: bool,
    /// The value may begin with `-`, as negative numbers do: an error about the value says more than one
    /// about an option that does not exist.
    pub takes_hyphens: bool,
    /// Help does not show the default.
    pub hides_default: bool,
    /// The effect of its value: requests that differ only in fields of [`Decides::Nothing`] get the same
    /// results.
    pub decides: Decides,
    /// `{name}`, `{stem}` and `{index}` in the value stand for the name of the video.
    pub expands: bool,
    /// The part of the value that must not be shown.
    pub secret: Option<Secret>,
    /// It belongs to one video, and has no meaning for a run whose video is chosen later.
    pub is_of_one: bool,
    /// A search in a still picture has it.
    pub in_still: bool,
    /// It says what is done with a thresholded picture: a threshold of a still picture has it.
    pub of_masks: bool,
    /// An outlet of the run fulfils it: see [`crate::run::Outlet`].
    pub needs_outlet: bool,
    /// Few people need it: the short help (`-h`) leaves it out.
    pub is_rare: bool,
    /// Fields that must be given with it.
    pub needs: &'static [&'static str],
    /// Fields that cannot be given with it.
    pub excludes: &'static [&'static str],
    /// Whether the element has it.
    pub element: InElement,
}

/// The effect of a field on results and outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decides {
    /// Changes neither the results nor the picture.
    Nothing,
    /// Changes the results.
    Found,
    /// Changes the results, what other outputs contain, or where they go, if it is set: where it is not, the
    /// results of earlier versions stay valid.
    IfSet,
    /// Changes the picture of an output, if it is set.
    Shown,
}

/// The part of a value that must not be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secret {
    /// The login in an address, or in a pipeline's text.
    Login,
    /// The login of a receiver of events; in web addresses also the path.
    Receiver,
}

/// The defaults of a declaration.
pub(super) const SPEC: Spec = Spec {
    value: "",
    short: None,
    group: "",
    range: None,
    offers: &[],
    lists_offers: false,
    is_file: false,
    is_positional: false,
    takes_hyphens: false,
    hides_default: false,
    decides: Decides::Nothing,
    expands: false,
    secret: None,
    is_of_one: false,
    in_still: false,
    of_masks: false,
    needs_outlet: false,
    is_rare: false,
    needs: &[],
    excludes: &[],
    element: InElement::No,
};

/// Makes [`Request`], its default and [`FIELDS`] from the declarations.
macro_rules! request {
    ($($(#[doc = $help:literal])+ $field:ident: $type:ty = $default:expr, $spec:expr;)+) => {
        /// The options of a run. They are declared in the module's source; `lockon run --help` describes them
        /// to users.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Request {
            $($(#[doc = $help])+ pub $field: $type,)+
        }

        impl Default for Request {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        /// All fields, in the order of the declarations.
        pub static FIELDS: std::sync::LazyLock<Vec<Field>> = std::sync::LazyLock::new(|| {
            vec![$(field::declared::<$type>(
                stringify!($field),
                concat!($($help),+),
                $spec,
                |request, texts| field::FieldType::put(&mut request.$field, texts),
                |request| field::FieldType::texts(&request.$field),
            )),+]
        });
    };
}
pub(super) use request;

pub(super) fn declared<T: FieldType>(
    field: &'static str,
    help: &'static str,
    spec: Spec,
    put: fn(&mut Request, &[OsString]) -> Result<(), String>,
    texts: fn(&Request) -> Vec<OsString>,
) -> Field {
    // Once for each field: the leak does not grow.
    let name = String::leak(field.replace('_', "-"));
    Field { name, help: help.trim_start(), shape: T::SHAPE, number: T::NUMBER, spec, put, texts }
}

impl Field {
    /// The field of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        super::FIELDS.iter().find(|field| field.name == name)
    }

    /// Sets it in `request` from these texts: one for a value, any number for a list, `true` or `false` for a
    /// switch, none to leave it out.
    ///
    /// # Errors
    /// Describes the error in a text, without the text itself.
    pub fn put(&self, request: &mut Request, texts: &[OsString]) -> Result<(), String> {
        // Checked first: for a number too large for its type, the range is the better message.
        self.check_range(texts)?;
        (self.put)(request, texts)
    }

    /// As [`Self::put`], with an error that names the field and the text.
    ///
    /// # Errors
    /// `Value`.
    pub fn give(&self, request: &mut Request, texts: &[OsString], typed: &str) -> Result<()> {
        self.put(request, texts).map_err(|what| Error::value(self.name, typed, what))
    }

    pub(super) fn check_range(&self, texts: &[OsString]) -> Result<(), String> {
        let Some((least, most)) = self.spec.range else { return Ok(()) };
        let number = |text: &OsString| text.to_str().and_then(|text| text.parse::<f64>().ok());
        match texts.iter().filter_map(number).find(|number| !(least..=most).contains(number)) {
            None => Ok(()),
            Some(_) if most.is_infinite() => Err(format!("not {least} or more")),
            Some(_) => Err(format!("not between {least} and {most}")),
        }
    }

    /// Returns the texts with which [`Self::put`] gives a request the value that this one has.
    pub fn texts(&self, request: &Request) -> Vec<OsString> {
        (self.texts)(request)
    }

    /// True if the request differs from the default.
    pub fn is_set(&self, request: &Request) -> bool {
        self.texts(request) != self.default_texts()
    }

    /// Returns the texts of the default request.
    pub fn default_texts(&self) -> Vec<OsString> {
        static DEFAULT: LazyLock<Request> = LazyLock::new(Request::default);
        self.texts(&DEFAULT)
    }

    /// Its typed form: `--min-score`, `INPUT`.
    pub fn option(&self) -> String {
        if self.spec.is_positional { self.spec.value.to_owned() } else { format!("--{}", self.name) }
    }
}

/// A value that has a text form.
pub trait Text: Sized {
    /// Whether it is a number.
    const NUMBER: Number = Number::No;

    /// Reads it.
    ///
    /// # Errors
    /// Describes the error in the text, without the text itself.
    fn read(text: &OsStr) -> Result<Self, String>;

    /// The text that is read as this value.
    fn text(&self) -> OsString;
}

fn utf8(text: &OsStr) -> Result<&str, String> {
    text.to_str().ok_or_else(|| "not UTF-8".to_owned())
}

/// Returns the reason of an error without the value: the caller names the value.
fn reason(error: Error) -> String {
    match error {
        Error::Value { expected, .. } => expected,
        other => other.to_string(),
    }
}

macro_rules! text_of_values {
    ($($type:ty),+) => {$(
        impl Text for $type {
            fn read(text: &OsStr) -> Result<Self, String> {
                utf8(text)?.parse().map_err(reason)
            }

            fn text(&self) -> OsString {
                self.to_string().into()
            }
        }
    )+};
}
text_of_values!(
    ThresholdSpec,
    ObjectColour,
    Connectivity,
    Bounds<usize>,
    Bounds<Size>,
    Square,
    TrackSpec,
    TimeSpan,
    Subject,
    Rotate,
    Rect,
    Size,
    Moment,
    SearchMethod,
    BackendChoice,
    OnDeviceLoss,
    LumaRange,
    Codec,
    View,
    Shot,
    Speed,
    Zone,
    ZoneLimit,
    CountingLine,
    Kernel,
    Decoder,
    ListenAddress,
    FrameRate,
    Typed<Scales>,
    Typed<Angles>,
    Typed<Bytes>
);

macro_rules! text_of_numbers {
    ($($type:ty: $number:ident),+) => {$(
        impl Text for $type {
            const NUMBER: Number = Number::$number;

            fn read(text: &OsStr) -> Result<Self, String> {
                let text = utf8(text)?.trim();
                let is_large = text.bytes().all(|byte| byte.is_ascii_digit());
                text.parse().map_err(|error: <$type as FromStr>::Err| match error.to_string() {
                    _ if is_large && !text.is_empty() => format!("more than {}", <$type>::MAX),
                    reason => reason,
                })
            }

            fn text(&self) -> OsString {
                self.to_string().into()
            }
        }
    )+};
}
text_of_numbers!(f64: Real, u8: Whole, u16: Whole, u32: Whole, u64: Long);

impl Text for String {
    fn read(text: &OsStr) -> Result<Self, String> {
        utf8(text).map(str::to_owned)
    }

    fn text(&self) -> OsString {
        self.into()
    }
}

impl Text for PathBuf {
    fn read(text: &OsStr) -> Result<Self, String> {
        if text.is_empty() { Err("a file has a name".into()) } else { Ok(text.into()) }
    }

    fn text(&self) -> OsString {
        self.into()
    }
}

/// A typed input that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputText(OsString);

impl InputText {
    /// The text of an input: see [`Input::typed`].
    ///
    /// # Errors
    /// `Value` if it is none.
    pub fn new(text: &OsStr) -> Result<Self> {
        Input::typed(text).map(|_| Self(text.to_owned()))
    }

    /// The input at this moment: a name may have become the name of a file.
    ///
    /// # Errors
    /// `Value` if it is none.
    pub fn input(&self) -> Result<Input> {
        Input::typed(&self.0)
    }
}

impl Text for InputText {
    fn read(text: &OsStr) -> Result<Self, String> {
        Self::new(text).map_err(reason)
    }

    fn text(&self) -> OsString {
        self.0.clone()
    }
}

/// Frames a second: `30`, `30000/1001`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameRate {
    /// So many frames...
    pub frames: i32,
    /// ...in so many seconds.
    pub seconds: i32,
}

impl FromStr for FrameRate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (frames, seconds) = text.split_once('/').unwrap_or((text, "1"));
        let part = |text: &str| text.parse::<i32>().ok().filter(|number| *number > 0);
        match (part(frames), part(seconds)) {
            (Some(frames), Some(seconds)) => Ok(Self { frames, seconds }),
            _ => Err(Error::value("fps", text, "expected frames a second, such as 30 or 30000/1001")),
        }
    }
}

impl fmt::Display for FrameRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { frames, seconds: 1 } => frames.fmt(f),
            Self { frames, seconds } => write!(f, "{frames}/{seconds}"),
        }
    }
}

/// A field's place in the request: a switch, a value, perhaps a value, or a list of them.
pub(super) trait FieldType: Sized {
    const SHAPE: Shape;
    const NUMBER: Number;

    fn put(&mut self, texts: &[OsString]) -> Result<(), String>;
    fn texts(&self) -> Vec<OsString>;
}

impl FieldType for bool {
    const SHAPE: Shape = Shape::Switch;
    const NUMBER: Number = Number::No;

    fn put(&mut self, texts: &[OsString]) -> Result<(), String> {
        *self = match texts {
            [] => false,
            [text] if text == "true" => true,
            [text] if text == "false" => false,
            _ => return Err("expected true or false".into()),
        };
        Ok(())
    }

    fn texts(&self) -> Vec<OsString> {
        if *self { vec!["true".into()] } else { Vec::new() }
    }
}

impl<T: Text> FieldType for Option<T> {
    const SHAPE: Shape = Shape::Maybe;
    const NUMBER: Number = T::NUMBER;

    fn put(&mut self, texts: &[OsString]) -> Result<(), String> {
        *self = match texts {
            [] => None,
            [text] => Some(T::read(text)?),
            _ => return Err("it can be given once".into()),
        };
        Ok(())
    }

    fn texts(&self) -> Vec<OsString> {
        self.iter().map(T::text).collect()
    }
}

impl<T: Text> FieldType for Vec<T> {
    const SHAPE: Shape = Shape::List;
    const NUMBER: Number = T::NUMBER;

    fn put(&mut self, texts: &[OsString]) -> Result<(), String> {
        *self = texts.iter().map(|text| T::read(text)).collect::<Result<_, _>>()?;
        Ok(())
    }

    fn texts(&self) -> Vec<OsString> {
        self.iter().map(T::text).collect()
    }
}

macro_rules! slots_of_values {
    ($($type:ty),+) => {$(
        impl FieldType for $type {
            const SHAPE: Shape = Shape::One;
            const NUMBER: Number = <$type as Text>::NUMBER;

            fn put(&mut self, texts: &[OsString]) -> Result<(), String> {
                match texts {
                    [text] => *self = <$type as Text>::read(text)?,
                    _ => return Err("it has one value".into()),
                }
                Ok(())
            }

            fn texts(&self) -> Vec<OsString> {
                vec![Text::text(self)]
            }
        }
    )+};
}
slots_of_values!(
    f64,
    u8,
    u32,
    u64,
    ObjectColour,
    Connectivity,
    SearchMethod,
    BackendChoice,
    OnDeviceLoss,
    LumaRange,
    Codec,
    Decoder,
    Moment,
    Speed,
    TimeSpan,
    Typed<Scales>,
    Typed<Angles>
);
