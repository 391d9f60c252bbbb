//! The library's request as options of the command line.

use std::ffi::{OsStr, OsString};
use std::marker::PhantomData;
use std::path::Path;

use clap::builder::{OsStringValueParser, PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint};

use lockon::request::{FIELDS, Field, Request, Shape};

/// Selects the options of a request that a command has.
pub(super) trait Selection: 'static {
    fn has(field: &Field) -> bool;
}

/// All.
pub(super) struct All;

impl Selection for All {
    fn has(_: &Field) -> bool {
        true
    }
}

/// The options of a search in a still picture.
pub(super) struct StillSearch;

impl Selection for StillSearch {
    fn has(field: &Field) -> bool {
        field.spec.in_still
    }
}

/// The options of a threshold of a still picture: the device and its kernels, and what is done with the mask.
pub(super) struct StillThreshold;

impl Selection for StillThreshold {
    fn has(field: &Field) -> bool {
        field.spec.of_masks || ["backend", "kernel"].contains(&field.name)
    }
}

/// The typed options of a request: options that are in [`Selection`], each with its texts.
pub(super) struct Typed<S> {
    texts: Vec<(&'static Field, Vec<OsString>)>,
    selection: PhantomData<fn() -> S>,
}

impl<S: Selection> Typed<S> {
    /// Returns the request: the typed options override the job file's, if one was named.
    ///
    /// # Errors
    /// The errors of [`Request::read`]; `Usage` if several inputs were named.
    pub(super) fn request(&self) -> lockon::Result<Request> {
        match self.inputs() {
            [_, _, ..] => Err(lockon::Error::Usage("one INPUT is taken here".into())),
            inputs => self.request_of(inputs.first().map(OsString::as_os_str)),
        }
    }

    /// Returns a request for each named input: the typed options override the job file's, if the input is
    /// one.
    ///
    /// # Errors
    /// The errors of [`Request::read`].
    pub(super) fn requests(&self) -> lockon::Result<Vec<Request>> {
        self.inputs().iter().map(|input| self.request_of(Some(input))).collect()
    }

    /// Returns a request of all typed options except inputs.
    ///
    /// # Errors
    /// `Value`.
    pub(super) fn options(&self) -> lockon::Result<Request> {
        self.request_of(None)
    }

    fn inputs(&self) -> &[OsString] {
        let inputs = self.texts.iter().find(|(field, _)| field.spec.is_positional);
        inputs.map_or(&[], |(_, texts)| texts)
    }

    fn request_of(&self, input: Option<&OsStr>) -> lockon::Result<Request> {
        let mut request = match input.map(|input| (input, job_name(input))) {
            Some((_, Some(path))) => Request::read(Path::new(path))?,
            Some((input, None)) => Request::new(input)?,
            None => Request::default(),
        };
        for (field, texts) in self.texts.iter().filter(|(field, _)| !field.spec.is_positional) {
            let typed = field.join(texts);
            field.give(&mut request, texts, &typed)?;
        }
        Ok(request)
    }
}

/// Returns the file named by `@JOB` in the place of an input.
fn job_name(input: &OsStr) -> Option<&str> {
    input.to_str()?.strip_prefix('@')
}

impl<S: Selection> FromArgMatches for Typed<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_typed = |field: &&Field| matches.value_source(field.name) == Some(ValueSource::CommandLine);
        let texts = |field: &Field| match field.shape {
            Shape::Switch => vec!["true".into()],
            _ => matches.get_many::<OsString>(field.name).into_iter().flatten().cloned().collect(),
        };
        let typed = FIELDS.iter().filter(|field| S::has(field)).filter(is_typed);
        Ok(Self { texts: typed.map(|field| (field, texts(field))).collect(), selection: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<S: Selection> Args for Typed<S> {
    fn augment_args(command: Command) -> Command {
        FIELDS.iter().filter(|field| S::has(field)).fold(command, |command, field| command.arg(arg(field)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn arg(field: &'static Field) -> Arg {
    let spec = &field.spec;
    let help = if spec.lists_offers {
        format!("{}: {}", field.help, spec.offers.join(", "))
    } else {
        field.help.to_owned()
    };
    let brief = brief(&help).to_owned();
    let mut arg = Arg::new(field.name).help(brief).long_help(help).hide_short_help(spec.is_rare);
    if !spec.is_positional {
        arg = arg.long(field.name);
    }
    if let Some(short) = spec.short {
        arg = arg.short(short);
    }
    if !spec.group.is_empty() {
        arg = arg.help_heading(spec.group);
    }
    if field.shape == Shape::Switch {
        return arg.action(ArgAction::SetTrue);
    }
    // Each input is a video of its own.
    let takes_many = field.shape == Shape::List || spec.is_positional;
    let action = if takes_many { ArgAction::Append } else { ArgAction::Set };
    if spec.is_positional {
        arg = arg.num_args(1..);
    }
    arg = arg
        .action(action)
        .value_name(spec.value)
        .value_parser(Checked(field))
        .allow_hyphen_values(spec.takes_hyphens)
        .hide_possible_values(true);
    if spec.is_file {
        arg = arg.value_hint(ValueHint::FilePath);
    }
    if let ([default], Shape::One) = (&field.default_texts()[..], field.shape) {
        arg = arg.default_value(default.clone()).hide_default_value(spec.hides_default);
    }
    arg
}

/// Returns the beginning of a help text that is enough for the short help: up to the first colon, semicolon
/// or full stop outside of brackets.
fn brief(help: &str) -> &str {
    let mut depth = 0;
    let ends = help.char_indices().find(|&(at, c)| {
        depth += i32::from(matches!(c, '(' | '[')) - i32::from(matches!(c, ')' | ']'));
        depth == 0 && matches!(c, '.' | ':' | ';') && help[at + 1..].starts_with(' ')
    });
    help[..ends.map_or(help.len(), |(at, _)| at)].trim_end()
}

/// Refuses values that a field cannot have, and offers its values to completions.
#[derive(Clone)]
struct Checked(&'static Field);

impl TypedValueParser for Checked {
    type Value = OsString;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<OsString, clap::Error> {
        let field = self.0;
        let is_text = value.to_str().is_some();
        let check = move |typed: OsString| {
            if field.spec.is_positional && job_name(&typed).is_some() {
                return Ok(typed);
            }
            field.put(&mut Request::default(), std::slice::from_ref(&typed)).map(|()| typed)
        };
        let checked = OsStringValueParser::new().try_map(check).parse_ref(command, arg, value);
        // The message that an argument is not valid text is made where all arguments are known.
        checked.map_err(|error| {
            if is_text { error } else { clap::Error::new(ErrorKind::InvalidUtf8).with_cmd(command) }
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let offers = self.0.spec.offers;
        (!offers.is_empty()).then(|| Box::new(offers.iter().map(PossibleValue::new)) as _)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    use lockon::request::{InElement, Number};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        typed: Typed<All>,
    }

    #[test]
    fn the_short_help_has_a_line_for_each_common_option_and_the_long_one_has_all() {
        use clap::CommandFactory;

        let mut line = Line::command().term_width(160);
        let (short, long) = (line.render_help().to_string(), line.render_long_help().to_string());
        for field in FIELDS.iter().filter(|field| !field.spec.is_positional) {
            let told =
                |help: &str| help.lines().any(|line| line.split_whitespace().any(|w| w == field.option()));
            assert_eq!((told(&short), told(&long)), (!field.spec.is_rare, true), "{}", field.name);
            assert!(brief(field.help).len() <= 150, "{}: {}", field.name, brief(field.help));
            // clap takes this for the end of a line.
            assert!(!field.help.contains("{n}"), "{}", field.name);
        }
    }

    #[test]
    fn a_brief_help_ends_before_details_but_not_inside_of_brackets() {
        assert_eq!(brief("Search for it (a, b; c): as often. As you like"), "Search for it (a, b; c)");
        assert_eq!(brief("Every 1:02.5 at .mp4"), "Every 1:02.5 at .mp4");
    }

    fn parsed(words: &[OsString]) -> Request {
        let words = [OsString::from("run")].into_iter().chain(words.iter().cloned());
        Line::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).typed.request().unwrap()
    }

    /// Returns texts that a field accepts, none of them a default. Numbers, choices and plain text need none
    /// here.
    fn examples(field: &Field) -> Vec<&'static str> {
        match (field.name, field.number, field.spec.offers) {
            ("input", ..) => {
                vec!["a clip.mp4", "rtsp://cam/1", "camera:/dev/video3", "-", "seq/%04d.jpg", "it's.mkv"]
            }
            ("track", ..) => {
                vec!["1,2,30,40", "5,6,7,8@9", "1,2,3,4@12.5s", "1,2,3,4@1:02.5", "a b=1,2,3,4@7"]
            }
            ("lost-for" | "gap" | "cut-padding", ..) => vec!["10s", "500ms", "1:30", "2.5s"],
            ("threshold", ..) => {
                vec![
                    "mean:31:5",
                    "gaussian:3:-7.5:inv",
                    "sauvola:255x31:0.2",
                    "niblack:31:-0.2:inv",
                    "wolf:31:0.5",
                    "phansalkar:31:0.25",
                    "bradley:31:15",
                    "fixed:100..160",
                    "otsu",
                    "triangle:inv",
                    "background:200:12..40",
                ]
            }
            ("object-area", ..) => vec!["20..500", "20..", "..500"],
            ("object-size", ..) => vec!["5x8..40x60", "5x8..", "..40x60"],
            ("object-colour", ..) => vec!["black"],
            ("connect", ..) => vec!["4"],
            ("open" | "close", ..) => vec!["3", "255"],
            ("scales", ..) => vec!["0.5", "0.8..1.25", "0.8..1.25/1.02"],
            ("angles", ..) => vec!["45", "-12.5", "-180..180", "-30..30/2"],
            ("roi", ..) => vec!["0,0,1,1", "10,20,300,400"],
            ("backend", ..) => vec!["cpu", "cuda", "cuda:3"],
            ("rotate", ..) => vec!["100M", "5000", "hour", "day"],
            ("memory", ..) => vec!["2G", "500M", "1.5G", "1048576"],
            ("size", ..) => vec!["640x480"],
            ("fps", ..) => vec!["30", "30000/1001"],
            ("start" | "end", ..) => vec!["120", "12.5s", "500ms", "1:02:03.5"],
            ("follow", ..) => vec!["640x640", "320x180@2"],
            ("follow-zoom", ..) => vec!["1.5", "16"],
            ("speed", ..) => vec!["0.5", "4", "max"],
            ("zone", ..) => vec!["door=0,0,10,0,10,10", "a b=1.5,2,3,4,-5,6,7,8"],
            ("zone-limit", ..) => vec!["door=3", "a b=0"],
            ("line", ..) => vec!["door=0,0,10,0", "a b=1.5,2,-5,6"],
            ("metrics" | "serve", ..) => vec!["9090", "0.0.0.0:9090", "[::1]:1"],
            ("min-score", ..) => vec!["-1", "-0.25", "0.7000000000000001", "1"],
            (_, Number::Real, _) => vec!["0", "0.1"],
            (_, Number::Whole, _) => vec!["1", "3"],
            (_, Number::Long, _) => vec!["2", "9007199254740993"],
            (_, _, offers @ [_, ..]) => offers.to_vec(),
            _ => vec!["text", "a folder/b c.mkv", "\"quoted\"", "name=it's", "x ! y"],
        }
    }

    /// Any request: each field is the default or some of its examples.
    fn requests() -> impl Strategy<Value = Request> {
        let choices: Vec<_> = FIELDS
            .iter()
            .map(|field| match field.shape {
                Shape::Switch => prop_oneof![Just(vec![]), Just(vec!["true"])].boxed(),
                Shape::List => prop::collection::vec(select(examples(field)), 0..3).boxed(),
                Shape::One | Shape::Maybe => {
                    prop_oneof![Just(vec![]), select(examples(field)).prop_map(|text| vec![text])].boxed()
                }
            })
            .collect();
        choices.prop_map(|chosen| {
            let mut request = Request::default();
            for (field, texts) in FIELDS.iter().zip(chosen).filter(|(_, texts)| !texts.is_empty()) {
                let texts: Vec<OsString> = texts.into_iter().map(OsString::from).collect();
                field.put(&mut request, &texts).unwrap_or_else(|what| panic!("{}: {what}", field.name));
            }
            request
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_request_comes_back_from_job_files(request in requests()) {
            let toml = request.to_toml().unwrap();
            prop_assert_eq!(&Request::from_toml(&toml).unwrap(), &request, "{}", toml);
            let json = request.to_json().unwrap();
            prop_assert_eq!(&Request::from_json(&json).unwrap(), &request, "{}", json);
        }

        #[test]
        fn a_request_comes_back_from_the_command_line(request in requests()) {
            let words = request.words();
            prop_assert_eq!(&parsed(&words), &request, "{:?}", words);
        }

        #[test]
        fn what_the_element_has_comes_back_from_its_properties(request in requests()) {
            let of_element = |field: &&Field| field.spec.element != InElement::No;
            let properties = request.properties().unwrap();
            let texts = properties.iter().map(|(name, text)| (*name, text.as_str()));
            let back = Request::from_properties(texts).unwrap();
            for field in FIELDS.iter() {
                let expected = if of_element(&field) { &request } else { &Request::default() };
                prop_assert_eq!(field.texts(&back), field.texts(expected), "{} {:?}", field.name, &properties);
            }
        }

        #[test]
        fn options_count_more_than_the_job_file_that_they_come_with(
            job in requests(), typed in requests(), at in any::<Index>(),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("job.toml");
            std::fs::write(&path, job.to_toml().unwrap()).unwrap();
            let field = &FIELDS[at.index(FIELDS.len())];
            prop_assume!(!field.spec.is_positional && field.is_set(&typed));
            let mut expected = job;
            field.put(&mut expected, &field.texts(&typed)).unwrap();
            let mut one = Request::default();
            field.put(&mut one, &field.texts(&typed)).unwrap();
            let words: Vec<_> =
                [OsString::from(format!("@{}", path.display()))].into_iter().chain(one.words()).collect();
            prop_assert_eq!(parsed(&words), expected);
        }
    }

    #[test]
    fn what_a_job_file_says_wrong_is_told_with_the_key_and_the_place() {
        for (toml, says) in [
            ("min_score = 0.5", "a job has no key \"min_score\" (is min-score meant?)"),
            ("tracks = []", "is track meant?"),
            ("wobble = 1", "a job has no key \"wobble\""),
            ("min-score = 2", "min-score: not between -1 and 1"),
            ("threads = 0", "threads: not between 1 and 1024"),
            ("threads = 100000", "threads: not between 1 and 1024"),
            ("depth = 1000000", "depth: not between 1 and 32"),
            ("max-frames = 99999999999999999999", "max-frames: more than 18446744073709551615"),
            ("every = 0", "every: not 1 or more"),
            ("threshold = \"mean:30:5\"", "threshold: block 30 is not an odd number"),
            ("track-matches = 3", "track-matches: expected true or false"),
            ("min-score = [0.1, 0.2]", "min-score: it has one value"),
            ("roi = [\"1,2,3,4\", \"1,2,3,4\"]", "roi: it can be given once"),
            ("\n\nmin-score = ", "line 3"),
        ] {
            let error = Request::from_toml(toml).unwrap_err().to_string();
            assert!(error.contains(says), "{toml}: {error}");
        }
    }

    #[test]
    fn numbers_are_numbers_in_job_files_and_names_are_text() {
        let request =
            Request::from_toml("input = \"a.mp4\"\nmin-score = 1\ntemplate = \"a.png\"\nthreads = 4\n");
        let json = request.unwrap().to_json().unwrap();
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        let expected = serde_json::json!({
            "input": "a.mp4", "template": ["a.png"], "min-score": 1.0, "threads": 4,
        });
        assert_eq!(value, expected);
        assert!(FIELDS.iter().all(|field| field.shape != Shape::Switch || field.number == Number::No));
    }

    #[test]
    fn secrets_do_not_reach_a_job_file() {
        let mut request = Request::new("rtsp://me:secret@cam/1").unwrap();
        request.source = Some("souphttpsrc user-pw=secret ! decodebin".into());
        request.events = vec!["mqtt://me:secret@broker/topic".into(), "https://hook/secret".into()];
        let (shown, had_any) = request.without_secrets();
        assert!(had_any && !shown.to_toml().unwrap().contains("secret"), "{shown:?}");
        assert!(!Request::new("rtsp://cam/1").unwrap().without_secrets().1);
    }
}
