//! Checks for requests that are not allowed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{FIELDS, Field, ReceiverAddress, ReceiverText, Request, Share, login};
use crate::backend::cuda;
use crate::setup;
use lockon_core::config::{
    BackendChoice, CountingLine, Moment, OnDeviceLoss, Part, SearchMethod, View, Zone, ZoneLimit,
};
use lockon_core::error::{Error, Result};
use lockon_core::files;
use lockon_core::message::{Message, Setting};
use lockon_core::output::{self, report};
use lockon_core::text;
use lockon_gst::clips;
use lockon_gst::cuda::Surfaces;
use lockon_gst::launch::Launch;
use lockon_gst::sink::{self, Numbered, VideoSink};
use lockon_gst::source::{CameraMode, DEFAULT_JITTER_MS, Decoder, Input, SourceSpec};

impl Request {
    /// Refuses requests without a meaning, before any file except a login's is opened.
    ///
    /// # Errors
    /// `Usage` or `Value`, which name the option; `Launch` if pipeline text is wrong; `File` if the login
    /// cannot be read.
    pub fn check(&self) -> Result<()> {
        let spec = self.source_spec()?;
        self.check_with(&spec)
    }

    /// As [`Self::check`], for callers that have the source's description already.
    pub(crate) fn check_with(&self, spec: &SourceSpec) -> Result<()> {
        let usage = |text: &str| Err(Error::Usage(text.into()));
        self.check_fields()?;
        output::check(&self.results)?;
        if let Some(path) = &self.report {
            report::check_name(path)?;
        }
        for path in &self.output {
            sink::file_launch(path, self.codec)?;
        }
        for text in &self.sink {
            VideoSink::user(text, self.shown_view(), false)?;
        }
        let inputs = self.input_files(&spec.input);
        files::check_distinct(&inputs, &self.output_files())?;
        self.check_numbered(&inputs)?;
        self.check_stdout()?;
        self.check_part()?;
        self.check_names()?;
        self.results.iter().try_for_each(|path| output::check_rolling(path, self.rolling()))?;
        if self.no_audio && self.output.is_empty() && self.cut.is_none() {
            return usage("--no-audio needs --output");
        }
        let shows = !self.output.is_empty() || !self.sink.is_empty() || self.display || self.cut.is_some();
        if self.hides() && !shows {
            return usage(
                "--blur and --pixelate hide parts of written pictures: give -o, --cut, --sink or --display",
            );
        }
        if let Some(pattern) = &self.cut {
            clips::check(pattern)?;
        }
        if self.start != Moment::default() && spec.is_real_time()? {
            return usage("--start is for files: a camera or stream has no frames from before it was opened");
        }
        check_called_once("zone", self.zone.iter().map(Zone::name))?;
        check_called_once("line", self.line.iter().map(CountingLine::name))?;
        let is_known = |limit: &&ZoneLimit| self.zone.iter().any(|zone| *zone.name() == limit.zone);
        if let Some(limit) = self.zone_limit.iter().find(|limit| !is_known(limit)) {
            return Err(Error::Usage(format!("--zone-limit {limit}: there is no such --zone")));
        }
        self.check_receivers()?;
        let search = (!self.template.is_empty()).then_some(self.search);
        setup::check_device(&self.kernel, self.backend, search, self.threshold)?;
        self.check_objects()?;
        if self.threshold.is_none() && self.shown_view() != View::Overlay {
            return usage("--view mask and --view split show the thresholded picture: add --threshold");
        }
        Ok(())
    }

    /// Refuses options of objects, and of the cleaning of masks, that would do nothing.
    ///
    /// # Errors
    /// `Usage`, `Settings`.
    pub fn check_objects(&self) -> Result<()> {
        let of_masks = || FIELDS.iter().filter(|field| field.spec.of_masks && field.is_set(self));
        if let Some(field) = of_masks().next() {
            self.check_masks(field.name)?;
        }
        of_masks().try_for_each(|field| self.check_field(field))?;
        let is_given = |name| of_masks().any(|field| field.name == name);
        let [objects, fill_holes] = ["objects", "fill-holes"].map(Setting::named);
        if is_given("connect") && !self.objects && !self.fill_holes {
            let settings = [Setting::named("connect"), objects, fill_holes];
            return Err(Error::Settings(Message::new("{} needs {} or {}", settings)));
        }
        if is_given("object-colour") && self.object_spec().is_none() {
            let [colour, open, close] = ["object-colour", "open", "close"].map(Setting::named);
            let settings = [colour, objects, open, close, fill_holes];
            return Err(Error::Settings(Message::new("{} needs {}, {}, {} or {}", settings)));
        }
        Ok(())
    }

    /// Refuses an option of masks where there is no threshold.
    fn check_masks(&self, option: &'static str) -> Result<()> {
        if self.threshold.is_some() {
            return Ok(());
        }
        let settings = [Setting::named(option), Setting::with("threshold", "mean:31:5")];
        let text = "{} is for the thresholded picture: add a threshold, such as {}";
        Err(Error::Settings(Message::new(text, settings)))
    }

    /// Refuses work on masks where there is no threshold. Options without an effect pass: in the element they
    /// are set one after the other.
    pub(crate) fn check_work_on_masks(&self) -> Result<()> {
        let work = [
            ("objects", self.objects),
            ("open", self.open.is_some()),
            ("close", self.close.is_some()),
            ("fill-holes", self.fill_holes),
        ];
        work.into_iter().filter(|(_, is_set)| *is_set).try_for_each(|(option, _)| self.check_masks(option))
    }

    /// Refuses receivers of events that cannot be parsed, and options that need another one.
    fn check_receivers(&self) -> Result<()> {
        let receivers = self.receivers()?;
        let on_stdout = receivers.iter().filter(|receiver| **receiver == ReceiverAddress::Stdout).count();
        if on_stdout + self.results.iter().filter(|path| *path == "-").count() > 1 && on_stdout > 0 {
            return Err(Error::Usage("--events -: standard output is given twice".into()));
        }
        let has_broker = receivers.iter().any(|receiver| matches!(receiver, ReceiverAddress::Mqtt(_)));
        if self.home_assistant && !has_broker {
            return Err(Error::Usage(
                "--home-assistant needs --events mqtt://...: Home Assistant listens to a broker".into(),
            ));
        }
        Ok(())
    }

    /// Returns the addresses of the receivers of events, in their order.
    ///
    /// # Errors
    /// `Value` if one cannot be parsed, `File` if a file with an address cannot be read.
    pub fn receivers(&self) -> Result<Vec<ReceiverAddress>> {
        self.events.iter().map(ReceiverAddress::of).collect()
    }

    /// Returns the MQTT topics of the run, each with its broker. No other run may have the same.
    ///
    /// # Errors
    /// As [`Self::receivers`].
    pub fn topics(&self) -> Result<Vec<String>> {
        let topic = |receiver| match receiver {
            ReceiverAddress::Mqtt(broker) => Some(broker.name),
            _ => None,
        };
        Ok(self.receivers()?.into_iter().filter_map(topic).collect())
    }

    /// Refuses a run that can find nothing, unless a program gives it orders.
    ///
    /// # Errors
    /// `Usage`.
    pub fn check_work(&self) -> Result<()> {
        if self.track_matches && self.template.is_empty() && self.control.is_none() {
            return Err(Error::Usage("--track-matches needs --template".into()));
        }
        let is_drawn = !self.output.is_empty() || !self.sink.is_empty();
        let is_driven = self.display || self.serve.is_some() || self.control.is_some();
        let follows = self.follows();
        let counts_objects = self.objects && !self.zone_limit.is_empty();
        let of_tracks = [
            ("--events", !self.events.is_empty() && !counts_objects),
            ("--follow", self.follow.is_some()),
            ("--line", !self.line.is_empty()),
            ("--zone", !self.zone.is_empty() && !self.objects && !is_drawn),
        ];
        if let Some((option, _)) = of_tracks.iter().find(|(_, is_given)| *is_given && !follows && !is_driven)
        {
            return Err(Error::Usage(format!(
                "{option} needs tracks: use --track, --pick, --track-matches, --track-objects or --track-detections"
            )));
        }
        // In a window and on a page boxes can be drawn later.
        if !self.is_idle() || self.display || self.serve.is_some() {
            return Ok(());
        }
        let text = "nothing to do: use --template, --track, --pick, --threshold, --display or --serve";
        Err(Error::Usage(text.into()))
    }

    /// Checks ranges, and the declarations of fields that need or exclude each other.
    fn check_fields(&self) -> Result<()> {
        FIELDS.iter().filter(|field| field.is_set(self)).try_for_each(|field| self.check_field(field))
    }

    /// Checks a field that is set.
    fn check_field(&self, field: &Field) -> Result<()> {
        let texts = field.texts(self);
        field.check_range(&texts).map_err(|what| {
            let text = texts.iter().map(|text| text.to_string_lossy()).collect::<Vec<_>>().join(" ");
            Error::Usage(format!("{} {text}: {what}", field.option()))
        })?;
        let is_set = |name: &&str| Field::named(name).is_some_and(|other| other.is_set(self));
        if let Some(missing) = field.spec.needs.iter().find(|name| !is_set(name)) {
            let settings = [Setting::named(field.name), Setting::named(missing)];
            return Err(Error::Settings(Message::new("{} needs {}", settings)));
        }
        if let Some(other) = field.spec.excludes.iter().find(|name| is_set(name)) {
            let other = Field::named(other).expect("it is set").option();
            return Err(Error::Usage(format!("{} cannot be used with {other}", field.option())));
        }
        Ok(())
    }

    /// Refuses numbered pictures that would replace pictures that are read.
    pub(crate) fn check_numbered(&self, inputs: &[PathBuf]) -> Result<()> {
        for numbered in self.output.iter().filter_map(|path| Numbered::of(path)) {
            if let Some(input) = inputs.iter().find(|input| numbered.has(input)) {
                return Err(Error::Usage(format!("{} is both input and output", text::path(input))));
            }
        }
        Ok(())
    }

    /// Refuses several outputs that would all be written to standard output.
    fn check_stdout(&self) -> Result<()> {
        let outputs = self.output.iter().filter(|path| files::is_stdout(path)).map(|_| "-o -");
        let results = self.results.iter().filter(|path| *path == "-").map(|_| "--results -");
        let events = self.events.iter().filter(|to| to.as_str() == "-").map(|_| "--events -");
        let all: Vec<_> = outputs.chain(results).chain(events).collect();
        if all.len() > 1 && all.contains(&"-o -") {
            let all = all.join(" and ");
            return Err(Error::Usage(format!("{all}: a video has standard output to itself")));
        }
        Ok(())
    }

    /// Refuses names that stand for two tracks.
    fn check_names(&self) -> Result<()> {
        let mut names = BTreeSet::new();
        match self.track.iter().filter_map(|track| track.name.as_ref()).find(|name| !names.insert(*name)) {
            Some(name) => {
                Err(Error::Usage(format!("--track: two tracks are named {}", text::in_one_line(name))))
            }
            None => Ok(()),
        }
    }

    /// Refuses a part without frames, and boxes that lie outside of it.
    fn check_part(&self) -> Result<()> {
        let part = self.part();
        part.check()?;
        for track in &self.track {
            // A box from frame 0 on is the default: the user did not type it.
            if part.begins_after(track.from) && track.from != Moment::default() {
                return Err(Error::Usage(format!(
                    "--track {track} starts before --start {}: {}",
                    part.start,
                    Part::EARLIER_BOX
                )));
            }
            if part.ends_before(track.from, self.max_frames) {
                let end = part.end.map(|end| format!("--end {end}"));
                let max = self.max_frames.map(|max| format!("--max-frames {max}"));
                let ends: Vec<_> = end.into_iter().chain(max).collect();
                return Err(Error::Usage(format!(
                    "--track {track} starts after the last of {}",
                    ends.join(", ")
                )));
            }
        }
        Ok(())
    }

    /// The files that are read: the video or its pictures, the templates, the login, an earlier run's orders,
    /// and those that hold what is typed otherwise.
    pub(crate) fn input_files(&self, input: &Input) -> Vec<PathBuf> {
        let templates = self.template.iter().map(|text| setup::name_and_path(text).1);
        let others = [&self.credentials, &self.control].into_iter().flatten().cloned();
        let texts = self.sink.iter().chain(&self.source).filter_map(|text| text.strip_prefix('@'));
        let texts = texts.chain(self.events.iter().filter_map(ReceiverText::file)).map(PathBuf::from);
        input.files().into_iter().chain(templates).chain(others).chain(texts).collect()
    }

    /// The files that are written.
    pub fn output_files(&self) -> Vec<PathBuf> {
        let results = self.results.iter().filter(|path| *path != "-").chain(&self.report).map(PathBuf::from);
        let outputs = self.output.iter().filter(|path| !files::is_stdout(path)).cloned();
        outputs.chain(results).collect()
    }

    /// The files that are written, and the pattern of those that --cut writes: all lie in folders that must
    /// exist.
    pub fn written_paths(&self) -> Vec<PathBuf> {
        self.output_files().into_iter().chain(self.cut.iter().map(PathBuf::from)).collect()
    }

    /// True for a results file that is continued, or gets a name that no file has: nothing in it is lost.
    pub(crate) fn continues(&self, path: &Path) -> bool {
        self.rolling().keeps_files() && self.results.iter().any(|name| Path::new(name) == path)
    }

    /// The files that are written, and existing ones that numbered pictures and clips of --cut may replace.
    pub fn files_at_risk(&self) -> Vec<PathBuf> {
        let clips = self.cut.iter().flat_map(|pattern| clips::existing(pattern));
        let files = self.output_files().into_iter().filter(|path| !self.continues(path));
        files.flat_map(|path| sink::written(&path)).chain(clips).collect()
    }

    /// True if decoders may leave frames where a GPU searches them. Frames that are lost with the device
    /// cannot be given to another, and pyramids are the CPU's.
    pub fn keeps_frames_on_gpu(&self) -> bool {
        let has_gpu = || match self.backend {
            BackendChoice::Cpu => false,
            BackendChoice::Cuda(_) | BackendChoice::CudaOf(_) => true,
            BackendChoice::Auto => cuda::device(0).is_ok(),
        };
        let is_asked = self.on_device_loss == OnDeviceLoss::End && self.search != SearchMethod::Pyramid;
        is_asked && has_gpu()
    }

    /// The input of the video.
    ///
    /// # Errors
    /// `Usage` if there is none; `Launch` if pipeline text is wrong.
    pub fn parsed_input(&self) -> Result<Input> {
        match (&self.source, &self.input) {
            (Some(text), _) => Ok(Input::Launch(Launch::user("--source", text)?.with_appsink())),
            (None, Some(input)) => input.input(),
            (None, None) => Err(Error::Usage("no input: name a file, a URI, camera, or use --source".into())),
        }
    }

    /// Returns the source to open, with its options.
    ///
    /// # Errors
    /// `Usage` if there is none, or an option is for another kind of source; `Launch` if pipeline text is
    /// wrong; `File` if the login cannot be read.
    pub fn source_spec(&self) -> Result<SourceSpec> {
        self.source_spec_for(Share::WHOLE)
    }

    /// As [`Self::source_spec`], for a run that has a share of the machine.
    ///
    /// # Errors
    /// As [`Self::source_spec`].
    pub fn source_spec_for(&self, share: Share) -> Result<SourceSpec> {
        let input = self.parsed_input()?;
        let live = if self.live || self.lossless { Some(self.live) } else { None };
        let usage = |text: &str| Err(Error::Usage(text.into()));
        let is_network = matches!(input, Input::Uri(_)) && input.file().is_none();
        if self.jitter.is_some() && !is_network {
            return usage(
                "--jitter is for rtsp:// and srt://: other sources have none that could be evened out",
            );
        }
        let frame_rate = self.fps.map(|rate| (rate.frames, rate.seconds));
        let camera = CameraMode { size: self.size, frame_rate };
        let is_rate_alone = matches!(input, Input::Pictures(_)) && self.size.is_none();
        if camera != CameraMode::default() && !is_rate_alone && !matches!(input, Input::Camera(_)) {
            return usage("--size and --fps are a camera's: other sources say themselves what they send");
        }
        if self.video_stream.is_some() && !matches!(input, Input::File(_) | Input::Stdin | Input::Uri(_)) {
            return usage("--video-stream is for files and streams: other sources have one video stream");
        }
        let jitter_ms = self.jitter.unwrap_or(DEFAULT_JITTER_MS);
        let login = login(self.credentials.as_deref(), &input)?;
        let reconnect = self.reconnect;
        let surfaces = Surfaces::default();
        let decoder = self.decoder;
        let decoder_threads = share.decoder_threads();
        let spec = SourceSpec {
            input,
            decoder,
            live,
            reconnect,
            video_stream: self.video_stream,
            camera,
            login,
            jitter_ms,
            detections: self.detections(),
            surfaces,
            decoder_threads,
            seek_ns: None,
            wanted_from: Some(self.start).filter(|start| *start != Moment::default()),
            opened: None,
            opened_pictures: None,
            is_confined: false,
            luma_only: false,
        };
        if reconnect && !spec.can_reconnect() {
            return usage("--reconnect is for cameras and streams: a file is not lost");
        }
        if self.decoder != Decoder::Auto {
            return Ok(spec);
        }
        let searches_on_gpu = self.keeps_frames_on_gpu() && lockon_gst::cuda::is_usable();
        let is_real_time = searches_on_gpu && (spec.live == Some(true) || spec.is_real_time()?);
        Ok(SourceSpec { decoder: self.decoder.settled(searches_on_gpu, is_real_time, share.cores()), ..spec })
    }
}

/// Refuses names that stand for two zones, or for two lines.
fn check_called_once<'a>(kind: &str, names: impl Iterator<Item = &'a Arc<str>>) -> Result<()> {
    let mut known = BTreeSet::new();
    let mut names = names.filter(|name| !known.insert(*name));
    names.next().map_or(Ok(()), |name| {
        let name = text::in_one_line(name);
        Err(Error::Usage(format!("--{kind}: two {kind}s are called {name}")))
    })
}
