//! The GStreamer element's view of a request: which fields are its properties, and the pipeline that does the
//! same.

use std::ffi::OsString;

use super::{FIELDS, Field, InElement, Request, Shape};
use lockon_core::config::{Part, View};
use lockon_core::control::Control;
use lockon_core::error::{Error, Result};
use lockon_core::files;
use lockon_gst::launch::Launch;
use lockon_gst::sink;
use lockon_gst::source::Decoder;
use lockon_gst::source::{Input, SourceSpec, VideoSource};

/// Separates the values of a list in a property.
const SEPARATOR: &str = ";";

impl Field {
    /// All fields that the element has as properties.
    pub fn of_element() -> impl Iterator<Item = &'static Self> {
        FIELDS.iter().filter(|field| field.spec.element != InElement::No)
    }

    /// Splits a property's text into texts: values of a list are separated by semicolons. An empty text sets
    /// nothing.
    pub fn split(&self, property: &str) -> Vec<OsString> {
        let parts: Vec<&str> = match self.shape {
            Shape::List => property.split(SEPARATOR).collect(),
            _ => vec![property],
        };
        parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).map(OsString::from).collect()
    }

    /// Joins texts to a property's text, as [`Self::split`] reads it.
    pub fn join(&self, texts: &[OsString]) -> String {
        texts.iter().map(|text| text.to_string_lossy()).collect::<Vec<_>>().join(SEPARATOR)
    }
}

impl Request {
    /// The request of the element's properties, each a name and its text. An empty text sets nothing.
    ///
    /// # Errors
    /// `Usage` if there is no such property; `Value` if a text is none of its values.
    pub fn from_properties<'a>(properties: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self> {
        let mut request = Self::default();
        for (name, text) in properties {
            let field = Self::property(name)?;
            field.give(&mut request, &field.split(text), text)?;
        }
        Ok(request)
    }

    fn property(name: &str) -> Result<&'static Field> {
        Field::of_element()
            .find(|field| field.name == name)
            .ok_or_else(|| Error::Usage(format!("the element has no property {name:?}")))
    }

    /// The element's properties that are set, with their texts.
    ///
    /// # Errors
    /// `Usage` if a text has a semicolon, which would split it.
    pub fn properties(&self) -> Result<Vec<(&'static str, String)>> {
        let mut properties = Vec::new();
        for field in Field::of_element().filter(|field| field.is_set(self)) {
            let texts = field.texts(self);
            let is_parted = |text: &&OsString| text.to_string_lossy().contains(SEPARATOR);
            if let Some(text) = texts.iter().filter(|_| field.shape == Shape::List).find(is_parted) {
                return Err(Error::Usage(format!(
                    "the element takes {:?} for several, which `;` separates",
                    text.to_string_lossy()
                )));
            }
            properties.push((field.name, field.join(&texts)));
        }
        Ok(properties)
    }

    /// Returns the pipelines of a run: of its source, as far as it is known without playing it, and of its
    /// outputs, each with its purpose.
    ///
    /// # Errors
    /// As [`Self::check`], [`VideoSource::open`] of a file, and [`SourceSpec::launch`].
    pub fn pipelines(&self) -> Result<(Launch, Vec<(String, Launch)>)> {
        let spec = self.source_spec()?;
        self.check_with(&spec)?;
        self.pipelines_from(&spec)
    }

    fn pipelines_from(&self, spec: &SourceSpec) -> Result<(Launch, Vec<(String, Launch)>)> {
        // The pipeline depends on the file's content: a turned or interlaced video, one of 10 bits.
        let source = match &spec.input {
            Input::File(path) if !files::is_pipe(path) => {
                VideoSource::open(spec, &Control::new())?.launch().clone()
            }
            _ => spec.launch()?,
        };
        if matches!(spec.input, Input::Uri(_)) && spec.input.file().is_none() {
            tracing::warn!(
                "a program sets how network sources even out jitter: --jitter is left out of the text"
            );
        }
        if self.decoder == Decoder::Hardware {
            tracing::warn!("a program prefers decoders: --decoder hardware is left out of the text");
        }
        let mut sinks = Vec::new();
        for path in &self.output {
            sinks.push((path.display().to_string(), sink::file_launch(path, self.codec)?));
        }
        for text in &self.sink {
            sinks.push(("--sink".to_owned(), sink::user_launch(text)?));
        }
        if self.display {
            let is_live = matches!(spec.input, Input::Camera(_));
            sinks.push(("--display".to_owned(), sink::display_launch(is_live)));
        }
        Ok((source, sinks))
    }

    /// The pipeline that does the same by the element `lockon`, whose properties are named as options are.
    /// Options that the element does not have are left out, with a warning.
    ///
    /// # Errors
    /// As [`Self::pipelines`] and [`Self::properties`].
    pub fn as_element(&self) -> Result<Launch> {
        let spec = &self.source_spec()?;
        self.check_with(spec)?;
        if self.hides() {
            return Err(Error::Usage(
                "--blur and --pixelate: the element hides nothing, use `lockon run`".into(),
            ));
        }
        let (mut source, sinks) = self.pipelines_from(spec)?;
        let sinks: Vec<_> = sinks.into_iter().map(|(_, launch)| launch).collect();
        let is_real_time = spec.is_real_time()?;
        let is_live = spec.live.unwrap_or(is_real_time);
        if is_live {
            // A source without a pace of its own is paced here, as in the program.
            let paced = if is_real_time { "" } else { "clocksync ! " };
            let newest = "queue leaky=downstream max-size-buffers=1 max-size-bytes=0 max-size-time=0";
            source.insert_before("frames", &format!("{paced}{newest}"))?;
        }
        self.warn_of_what_the_element_cannot(spec);
        let mut properties = self.properties()?;
        if !is_live {
            // If no frame may be dropped, a sink's reports of late frames are ignored.
            properties.push(("qos", "false".into()));
        }
        match self.shown_view() {
            // Without an output nothing is drawn.
            _ if sinks.is_empty() => properties.push(("view", "none".into())),
            View::Overlay => {}
            view => properties.push(("view", view.to_string())),
        }
        let mut launch = source.joined("lockon", &sinks)?;
        for (property, value) in properties {
            launch.set("lockon", property, value);
        }
        Ok(launch)
    }

    fn warn_of_what_the_element_cannot(&self, spec: &SourceSpec) {
        if !self.output.is_empty() && !self.no_audio && spec.input.file().is_some() {
            tracing::warn!("this line leaves out the audio (--no-audio silences this)");
        }
        if self.reconnect {
            tracing::warn!("a source that is lost ends this line: --reconnect is left out of it");
        }
        if spec.login.is_some() {
            tracing::warn!("user and password are left out of this line: sources have properties for them");
        }
        for (option, is_given) in [
            ("--report", self.report.is_some()),
            ("--metrics", self.metrics.is_some()),
            ("--events", !self.events.is_empty()),
            ("--follow", self.follow.is_some()),
            ("--cut", self.cut.is_some()),
            ("--append", self.append),
            ("--rotate", self.rotate.is_some()),
        ] {
            if is_given {
                tracing::warn!(
                    "{option} is left out of this line: the element writes results files and draws only"
                );
            }
        }
        if self.part() != Part::default() {
            tracing::warn!(
                "--start, --end and --every are left out of this line: put a seek or videorate before the element"
            );
        }
    }
}
