//! Conventions of all elements: types of properties, values over time, presets, threads.

use gst_controller::prelude::*;

use super::*;

/// The nicks that a property offers.
fn offered(element: &gst::Element, property: &str) -> Vec<String> {
    let property = element.find_property(property).unwrap();
    let choices = gst::glib::EnumClass::with_type(property.value_type()).expect("a list of choices");
    choices.values().iter().map(|choice| choice.nick().to_owned()).collect()
}

#[test]
fn closed_lists_are_choices_that_are_typed_as_in_the_program() {
    init();
    let element = gst::ElementFactory::make("lockon").build().unwrap();
    assert_eq!(offered(&element, "search"), ["auto", "exhaustive", "pyramid"]);
    assert_eq!(offered(&element, "on-device-loss"), ["end", "gpu", "cpu"]);
    assert_eq!(element.property::<gstlockon::lockon::Search>("search"), gstlockon::lockon::Search::Auto);
    let typed = gst::parse::launch("lockon search=pyramid on-device-loss=cpu backend=cuda:0,1").unwrap();
    assert_eq!(typed.property::<gstlockon::lockon::Search>("search"), gstlockon::lockon::Search::Pyramid);
    let loss = typed.property::<gstlockon::lockon::OnDeviceLoss>("on-device-loss");
    assert_eq!(loss, gstlockon::lockon::OnDeviceLoss::Cpu);
    assert_eq!(typed.property::<String>("backend"), "cuda:0,1");
}

#[test]
fn a_chosen_search_is_the_one_that_results_tell_of() {
    let here = Place::new();
    let element = here.element();
    element.set_property("search", gstlockon::lockon::Search::Pyramid);
    element.set_property("results", here.text("out.jsonl"));
    let mut harness = harness(&element, PixelFormat::GRAY8);
    harness.push_and_pull(frame(0, PixelFormat::GRAY8)).unwrap();
    end(&mut harness);
    drop(harness);
    element.set_state(gst::State::Null).unwrap();
    let run = &here.records("out.jsonl")[0];
    assert!(run.to_string().contains("\"search\":\"pyramid\""), "{run}");
}

#[test]
fn a_controlled_number_counts_for_the_frames_of_its_time_with_frames_in_flight() {
    let here = Place::new();
    let element = here.element();
    element.set_property("min-score", -1.0);
    element.set_property("depth", 3u32);
    let source = gst_controller::InterpolationControlSource::new();
    source.set_mode(gst_controller::InterpolationMode::None);
    // Matches in a frame: 1 until frame 4, then 3, from frame 9 on 2.
    let most = |n: u64| [1u32, 3, 2][usize::from(n >= 4) + usize::from(n >= 9)];
    for n in [0, 4, 9] {
        assert!(source.set(n * FRAME, f64::from(most(n))));
    }
    let binding = gst_controller::DirectControlBinding::new_absolute(&element, "max-matches", &source);
    element.add_control_binding(&binding).unwrap();
    let mut harness = harness(&element, PixelFormat::GRAY8);
    // A caller that holds back notifications of properties does not hold back their values.
    let held_back = element.freeze_notify();
    // Two wait and three are in flight, so that these are set for one frame while others are searched.
    let mut found = Vec::new();
    for n in 0..16 {
        harness.push(frame(n, PixelFormat::GRAY8)).unwrap();
        if n >= 4 {
            found.push(regions(&harness.pull().unwrap()).len() as u32);
        }
    }
    drop(held_back);
    (0..4).for_each(|_| found.push(regions(&harness.pull().unwrap()).len() as u32));
    assert_eq!(found, (0..16).map(most).collect::<Vec<_>>());
}

#[test]
fn numbers_that_can_be_set_while_frames_pass_can_be_controlled_and_others_not() {
    init();
    let element = gst::ElementFactory::make("lockon").build().unwrap();
    let mut controllable: Vec<_> = element
        .list_properties()
        .iter()
        .filter(|property| property.flags().contains(gst::PARAM_FLAG_CONTROLLABLE))
        .map(|property| property.name().to_owned())
        .collect();
    controllable.sort_unstable();
    assert_eq!(controllable, ["max-matches", "max-overlap", "min-score", "object-max"]);
}

#[test]
fn a_property_that_is_set_to_what_it_is_changes_nothing() {
    let here = Place::new();
    let element = here.element();
    let mut harness = harness(&element, PixelFormat::GRAY8);
    harness.push_and_pull(frame(0, PixelFormat::GRAY8)).unwrap();
    // It would be read again if it counted as a change.
    std::fs::remove_file(here.path("pattern.png")).unwrap();
    let bus = bus_of(&element);
    element.set_property("template", here.text("pattern.png"));
    assert!(bus.pop_filtered(&[gst::MessageType::Warning]).is_none());
    assert_eq!(regions(&harness.push_and_pull(frame(1, PixelFormat::GRAY8)).unwrap()).len(), 1);
}

#[test]
fn setting_template_notifies_templates_and_the_other_way_round() {
    init();
    let element = gst::ElementFactory::make("lockon").build().unwrap();
    let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    element.connect_notify(None, {
        let told = told.clone();
        move |_, property| told.lock().unwrap().push(property.name().to_owned())
    });
    let told = || {
        let mut told = std::mem::take(&mut *told.lock().unwrap());
        told.sort_unstable();
        told
    };
    element.set_property("template", "a.png;b.png");
    assert_eq!(told(), ["template", "templates"]);
    element.set_property("templates", gst::Array::new(["c.png"]));
    assert_eq!(
        (told(), element.property::<String>("template")),
        (vec!["template".into(), "templates".into()], "c.png".into())
    );
}

/// Not a test by itself: presets lie in the user's folder, which the environment names.
#[test]
#[ignore = "presets_keep_and_bring_back_what_was_set starts it, with a folder of its own"]
fn a_preset_in_a_folder_of_its_own() {
    init();
    let make = || gst::ElementFactory::make("lockon").build().unwrap();
    let element = make();
    element.set_property("template", "a.png;b.png");
    element.set_property("min-score", 0.7);
    element.set_property("search", gstlockon::lockon::Search::Pyramid);
    element.set_property("threshold", "mean:31:5");
    element.set_property_from_str("view", "split");
    let preset = element.dynamic_cast_ref::<gst::Preset>().expect("presets");
    preset.save_preset("yard").unwrap();
    let other = make();
    let preset = other.dynamic_cast_ref::<gst::Preset>().unwrap();
    assert_eq!(preset.preset_names(), ["yard"]);
    preset.load_preset("yard").unwrap();
    for property in element.list_properties() {
        let name = property.name();
        if ["name", "parent"].contains(&name) {
            continue;
        }
        let text = |element: &gst::Element| element.property_value(name).serialize().ok().map(String::from);
        assert_eq!(text(&element), text(&other), "{name}");
    }
    assert_eq!(other.property::<String>("template"), "a.png;b.png");
    assert_eq!(other.property::<Option<String>>("track"), None);
}

#[test]
fn presets_keep_and_bring_back_what_was_set() {
    let here = Place::new();
    let mut command = with_plugin(std::env::current_exe().unwrap(), &here);
    command.env("XDG_DATA_HOME", here.path("data"));
    let this = "conventions::a_preset_in_a_folder_of_its_own";
    succeeds(&command.args(["--ignored", "--exact", this]).output().unwrap());
    assert!(here.path("data/gstreamer-1.0/presets/GstLockon.prs").exists());
}

/// How many threads this process has, and how many kB of memory are in use.
fn threads_and_memory() -> (usize, usize) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse::<usize>().unwrap()
    };
    (number("Threads:"), number("VmRSS:"))
}

/// Not a test by itself: other tests of this process have threads too.
#[test]
#[ignore = "each_further_element_that_follows_a_box_takes_three_threads_and_six_megabytes_at_most starts it"]
#[allow(clippy::print_stdout, reason = "what was measured")]
fn threads_of_sixteen_elements() {
    init();
    let text = "videotestsrc num-buffers=40 ! video/x-raw,format=I420,width=640,height=480 ! \
                lockon backend=cpu track=200,200,64,48 ! fakesink";
    let started = |count: usize| {
        let pipelines: Vec<_> = (0..count).map(|_| parse(text)).collect();
        for pipeline in &pipelines {
            pipeline.set_state(gst::State::Playing).unwrap();
        }
        for pipeline in &pipelines {
            // The last frames are through; everything that is ever started is there.
            let end = wait_for(&pipeline.bus().unwrap(), &[gst::MessageType::Eos, gst::MessageType::Error]);
            assert_eq!(end.type_(), gst::MessageType::Eos, "{end:?}");
        }
        pipelines
    };
    let one = started(1);
    let (threads, memory) = threads_and_memory();
    let others = started(15);
    let (more_threads, more_memory) = threads_and_memory();
    let each = (more_threads.saturating_sub(threads), more_memory.saturating_sub(memory) / 15);
    println!("15 more: {} threads; each: {} kB", each.0, each.1);
    assert!(each.0 <= 3 * 15, "{} threads more", each.0);
    assert!(each.1 <= 6 * 1024, "{} kB more each", each.1);
    drop((one, others));
}

#[test]
fn each_further_element_that_follows_a_box_takes_three_threads_and_six_megabytes_at_most() {
    let here = Place::new();
    let mut command = with_plugin(std::env::current_exe().unwrap(), &here);
    let this = "conventions::threads_of_sixteen_elements";
    succeeds(&command.args(["--ignored", "--exact", this, "--nocapture"]).output().unwrap());
}
