//! Text through a shell and through GStreamer, and pipelines that run.

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gst::prelude::*;

use super::*;

/// The arguments that a POSIX shell reads from a line.
fn through_shell(line: &str) -> Vec<String> {
    let script = format!("printf '%s\\0' {line}");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(output.status.success(), "{line}");
    String::from_utf8(output.stdout).unwrap().split_terminator('\0').map(str::to_owned).collect()
}

#[test]
fn printed_line_means_the_same_to_a_shell_and_gst_launch() {
    init().unwrap();
    for location in [
        "/a/b.mp4",
        "/a b/it's.mp4",
        "/$HOME/`x`/\"q\".mp4",
        "/back\\slash",
        "/a!b; rm (x) {y}",
        "/ü *?~",
        "/a\nb\tc",
        "/ideographic\u{3000}space",
        "/x\\\" ! fakesink name=\"y",
        "\"",
        "\"quoted\"",
        "\"ü\\\"",
        "NULL",
        "ends in a backslash\\",
    ] {
        let mut launch =
            Launch::new("test", "# a comment\nfilesrc name=input blocksize=512 !\n  fakesink name=out");
        launch.set("input", "location", location).set("out", "sync", false);
        let words = through_shell(&launch.to_string());
        let words = words.iter().map(String::as_str).collect::<Vec<_>>();
        let pipeline = gst::parse::launchv(&words).unwrap().downcast::<gst::Pipeline>().unwrap();
        let input = pipeline.by_name("input").unwrap();
        assert_eq!(input.property::<String>("location"), location, "{launch}");
        assert_eq!(input.property::<u32>("blocksize"), 512);

        let built = launch.build().unwrap().by_name("input").unwrap();
        assert_eq!(built.property::<String>("location"), location);
    }
}

/// Names that would become more than one value if pasted into text.
const HOSTILE: [&str; 20] = [
    "holiday videotestsrc num-buffers=2 ! filesink location=PWNED",
    "a b",
    "a\u{3000}b",
    "a!b",
    "a\" ! fakesink name=x b=\"",
    "a' ! fakesink name=x b='",
    "\"quoted\"",
    "'quoted'",
    "ends in \\",
    "ends in \\\"",
    "\\\" ! fakesink name=x",
    "(a) {b} [c]",
    "{stem} {index}",
    "a\nb ! fakesink name=x",
    "# a",
    "$HOME `x`",
    "NULL",
    "\u{fffd}\u{fffd}",
    "50% %s %n",
    "video/x-raw,format=I420;x=y",
];

#[test]
fn a_name_is_one_value_wherever_it_stands_in_a_pipelines_text() {
    init().unwrap();
    for name in HOSTILE {
        for (text, expected) in [
            ("location={stem}", "#"),
            ("location={stem}.mkv", "#.mkv"),
            ("location=out/{stem}-{index}.mkv", "out/#-7.mkv"),
            ("location=\"{stem}\"", "#"),
            ("location=\"out dir/{stem}.mkv\"", "out dir/#.mkv"),
            ("location=\"a\\\"{stem}\\\\.mkv\"", "a\"#\\.mkv"),
            ("location=\"\\\"a\\\\040{stem}\\\"\"", "a #"),
            ("location=a\\ {stem}\\!", "a #!"),
            ("location = {stem}.mkv", "#.mkv"),
            ("location= \"{stem} x\"", "# x"),
            ("location ={stem}", "#"),
            ("location={stem}{stem}", "##"),
        ] {
            let text = format!("fakesrc ! queue ! filesink {text} name=file sync=true");
            let filled = fill("--sink", &text, &[("{stem}", name), ("{index}", "7")]).unwrap();
            let launch = Launch::new("test", &filled);
            let pipeline = launch.build().unwrap_or_else(|error| panic!("{filled}: {error}"));
            let elements = pipeline.iterate_elements().into_iter().flatten().count();
            assert_eq!(elements, 3, "{filled}");
            let file = pipeline.by_name("file").unwrap_or_else(|| panic!("{filled}"));
            let expected = expected.replace('#', name);
            assert_eq!(file.property::<Option<String>>("location").as_deref(), Some(&*expected), "{filled}");
            assert!(file.property::<bool>("sync"), "{filled}");

            let words = through_shell(&launch.to_string());
            let words = words.iter().map(String::as_str).collect::<Vec<_>>();
            let pasted = gst::parse::launchv(&words).unwrap().downcast::<gst::Pipeline>().unwrap();
            let location = pasted.by_name("file").unwrap().property::<Option<String>>("location");
            assert_eq!(location.as_deref(), Some(&*expected), "{launch}");
        }
    }
}

#[test]
fn a_harmless_name_leaves_the_text_as_it_was_typed() {
    let text = "tee name=t{index} ! video/x-raw,width=(int){index} ! filesink location=\"a b/{stem}.mkv\"";
    let filled = fill("--sink", text, &[("{stem}", "cam-1_a.b"), ("{index}", "12")]).unwrap();
    assert_eq!(filled, text.replace("{stem}", "cam-1_a.b").replace("{index}", "12"));
}

#[test]
fn a_name_that_cannot_be_a_value_is_refused() {
    let said = |text: &str, name: &str| {
        let error = fill("--sink", text, &[("{stem}", name)]).unwrap_err();
        assert!(error.is_usage(), "{error}");
        error.to_string()
    };
    // It would be an element, an element's name with a pad, caps.
    for text in ["{stem}", "queue ! {stem} ! fakesink", "tee name=t {stem}. ! fakesink", "@{stem}"] {
        assert!(said(text, "fakesink").contains("only in the value of a property"), "{text}");
    }
    assert!(said("video/x-raw,format={stem} ! fakesink", "I420 ! filesink").contains("value of a property"));
    // Structures and caps have a syntax of their own, in which a name could set other fields.
    for text in [
        "capsfilter caps=video/x-raw,format={stem}",
        "splitmuxsink muxer-properties=\"properties,x={stem}\"",
        "unknownelement location={stem}",
        "fakesink unknown::location={stem}",
    ] {
        assert!(said(text, "a,location=/b").contains("not possible in"), "{text}");
        assert!(said(text, "a b").contains("only a property that is text"), "{text}");
    }
}

#[test]
fn a_percent_sign_in_a_name_is_no_conversion_of_a_pattern() {
    let filled = fill("--sink", "multifilesink location={stem}-%d.png", &[("{stem}", "50%s")]).unwrap();
    let sink = gst::parse::launch(&filled).unwrap();
    assert_eq!(sink.property::<String>("location"), "50%%s-%d.png");
}

#[test]
fn text_typed_with_quotes_survives_being_printed() {
    init().unwrap();
    let text = r#"videotestsrc ! capsfilter caps="video/x-raw, format=(string){ I420, NV12 }" ! filesink name=f location=/a\ b"#;
    let words = through_shell(&Launch::new("test", text).to_string());
    let words = words.iter().map(String::as_str).collect::<Vec<_>>();
    let pipeline = gst::parse::launchv(&words).unwrap().downcast::<gst::Pipeline>().unwrap();
    assert_eq!(pipeline.by_name("f").unwrap().property::<String>("location"), "/a b");
}

#[test]
fn an_element_that_is_known_but_missing_names_its_package() {
    let error = Launch::new("test", "fakesrc ! vaapipostproc ! fakesink").build().unwrap_err();
    assert!(matches!(error, Error::MissingElement { package: "gstreamer1.0-vaapi", .. }), "{error}");
}

#[test]
fn wrong_text_is_wrong_usage_and_says_what_is_wrong() {
    let said = |launch: &Launch| {
        let error = launch.build().unwrap_err();
        assert!(error.is_usage(), "{error}");
        error.to_string()
    };
    let text = |text| Launch::new("--source", text);
    assert!(said(&text("fakesrc ! vidoeconvert ! fakesink")).contains("no element \"vidoeconvert\""));
    assert!(said(&text("fakesrc speed=3 ! fakesink")).contains("\"speed\""));
    assert!(said(&text("fakesrc ! ! fakesink")).contains("--source"));
    assert!(said(&text("audiotestsrc ! videoconvert ! fakesink")).contains("link"));
    assert!(said(text("fakesrc ! fakesink name=f").set("g", "sync", true)).contains("named \"g\""));
    assert!(said(text("fakesrc ! fakesink name=f").set("f", "snc", true)).contains("no property \"snc\""));
    assert!(said(text("fakesrc ! fakesink name=f").set("f", "sync", "perhaps")).contains("cannot be"));
    assert!(said(&Launch::new("--source", "")).contains("--source"));
    assert!(Launch::user("--source", "# nothing").unwrap_err().is_usage());
}

#[test]
#[cfg(unix)]
fn a_pipeline_file_without_end_is_not_read_to_its_end() {
    assert!(matches!(Launch::user("--source", "@/dev/zero"), Err(Error::File { .. })));
}

#[test]
fn elements_are_put_in_front_of_a_named_one() {
    let mut launch = Launch::new("test", "videotestsrc ! appsink sync=false name=frames  fakesrc ! fakesink");
    launch.insert_before("frames", "videoconvert ! videoflip").unwrap();
    let expected =
        "videotestsrc ! videoconvert ! videoflip ! appsink sync=false name=frames fakesrc ! fakesink";
    assert_eq!(launch.to_string(), expected);
    assert!(launch.sets("frames", "sync") && !launch.sets("frames", "num-buffers"));
    launch.set("frames", "sync", true).set("frames", "max-buffers", 1);
    assert!(launch.to_string().contains("! appsink sync=true name=frames max-buffers=1 fakesrc"), "{launch}");
    assert!(Launch::new("test", "appsink name=frames").insert_before("frames", "identity").is_err());
}

#[test]
fn a_panic_in_a_callback_fails_its_element() {
    crate::test_log::panic_follows();
    let pipeline = Launch::new("test", "videotestsrc ! fakesink name=out").build().unwrap();
    let running = Running::new(pipeline);
    let pad = running.pipeline().by_name("out").unwrap().static_pad("sink").unwrap();
    pad.add_probe(gst::PadProbeType::BUFFER, |pad, _| {
        guarded(pad, gst::PadProbeReturn::Ok, || panic!("on purpose"))
    });
    running.set_state(gst::State::Playing).unwrap();
    let second = Duration::from_secs(10);
    let error = std::iter::repeat_with(|| running.wait(second)).find_map(Result::err).unwrap().to_string();
    assert!(error.starts_with("out: a callback panicked: on purpose"), "{error}");
}

#[test]
fn source_and_sinks_become_one_pipeline() {
    let mut source = Launch::new(
        "test",
        "filesrc name=file ! decodebin ! tee name=t ! appsink name=frames sync=false t. ! fakesink",
    );
    source.set("file", "location", "in").set("frames", "max-buffers", 1);
    let joined = source.joined("identity", &[]).unwrap().to_string();
    let expected = "filesrc name=file location=in ! decodebin ! tee name=t ! identity name=identity ! fakesink t. ! fakesink";
    assert_eq!(joined, expected);
    let mut first =
        Launch::new("test", "audiotestsrc ! mux. appsrc name=results ! avimux name=mux ! filesink name=file");
    first.set("file", "location", "out");
    let second = Launch::new("test", "appsrc name=results ! mux.video_0 qtmux name=mux ! fakesink");
    let both = source.joined("identity", &[first.clone(), second]).unwrap().to_string();
    for part in [
        "filesrc name=file location=in ! ",
        "! identity name=identity ! tee name=outputs outputs. ! queue ",
        "! avimux name=mux ! filesink name=file2 location=out audiotestsrc ! mux. outputs. ! queue ",
        "! mux2.video_0 qtmux name=mux2 ! fakesink t. ! fakesink",
    ] {
        assert!(both.contains(part), "{part} is not in {both}");
    }
    assert!(first.joined("identity", &[]).unwrap_err().to_string().contains("frames"));
    assert!(source.joined("identity", &[source.clone()]).unwrap_err().to_string().contains("results"));
}

#[test]
fn a_running_pipeline_tells_its_end_and_its_failure() {
    let text = "videotestsrc num-buffers=3 ! fakesink";
    let running = Running::new(Launch::new("test", text).build().unwrap());
    running.set_state(gst::State::Playing).unwrap();
    let second = Duration::from_secs(10);
    assert_eq!(running.wait(second).unwrap(), Some(Milestone::Prerolled));
    assert_eq!(running.wait(second).unwrap(), Some(Milestone::Ended));
    let pipeline = running.pipeline().clone();
    drop(running);
    assert_eq!(pipeline.current_state(), gst::State::Null);

    let text = "filesrc location=/nowhere/at/all ! fakesink";
    let running = Running::new(Launch::new("test", text).build().unwrap());
    let error = running.set_state(gst::State::Playing).unwrap_err().to_string();
    assert!(error.contains("/nowhere/at/all") || error.contains("No such file"), "{error}");
}

#[test]
fn decoders_of_all_pipelines_share_the_first_display_that_one_of_them_made() {
    init().unwrap();
    let kind = gst::ElementFactoryType::DECODER | gst::ElementFactoryType::MEDIA_VIDEO;
    let decoders = gst::ElementFactory::factories_with_type(kind, gst::Rank::NONE);
    let decoder = decoders.front().expect("a decoder is installed");
    // Not that of the process, which other tests may have filled.
    let shared = Arc::new(Mutex::new(None));
    let element_of_a_new_pipeline = |factory: &gst::ElementFactory| {
        let pipeline = gst::Pipeline::new();
        let element = factory.create().build().unwrap();
        pipeline.add(&element).unwrap();
        let shared = shared.clone();
        pipeline.bus().unwrap().set_sync_handler(move |_, message| {
            gl::attend_with(&shared, message);
            gst::BusSyncReply::Drop
        });
        (pipeline, element)
    };
    let display = |name: &str| {
        let mut context = gst::Context::new(gl::DISPLAY, true);
        context.get_mut().unwrap().structure_mut().set("name", name);
        context
    };
    let given = |element: &gst::Element| {
        let need = gst::message::NeedContext::builder(gl::DISPLAY).src(element).build();
        element.post_message(need).unwrap();
        element.context(gl::DISPLAY).map(|context| context.structure().get::<String>("name").unwrap())
    };

    let (_first, element) = element_of_a_new_pipeline(decoder);
    assert_eq!(given(&element), None, "nobody has made one");
    element.post_message(gst::message::HaveContext::builder(display("first")).src(&element).build()).unwrap();
    let (_second, element) = element_of_a_new_pipeline(decoder);
    assert_eq!(given(&element).as_deref(), Some("first"));
    element
        .post_message(gst::message::HaveContext::builder(display("second")).src(&element).build())
        .unwrap();
    let (_third, element) = element_of_a_new_pipeline(decoder);
    assert_eq!(given(&element).as_deref(), Some("first"), "the first one is kept");
    let (_output, element) = element_of_a_new_pipeline(&gst::ElementFactory::find("fakesink").unwrap());
    assert_eq!(given(&element), None, "outputs have their own");
}
