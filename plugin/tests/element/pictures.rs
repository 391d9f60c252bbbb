//! Formats of frames, and what is drawn into them or lies over them.

use gst_video::VideoOverlayCompositionMeta;
use lockon::media::source;

use super::*;

/// How frames of a format of that name are laid out whose planes are made by a copy, with padded rows.
fn padded(name: &str) -> (gst_video::VideoInfo, gst::Buffer) {
    let format = name.parse::<gst_video::VideoFormat>().unwrap();
    let (width, height) = (SIZE.width as u32, SIZE.height as u32);
    let info = gst_video::VideoInfo::builder(format, width, height).fps((25, 1)).build().unwrap();
    let padding = 24;
    let strides: Vec<_> = info.stride().iter().map(|stride| stride + padding).collect();
    let rows = |plane: usize| {
        let component = info.format_info().plane().iter().position(|&of| of as usize == plane).unwrap();
        info.comp_height(component as u8) as usize
    };
    let mut offsets = vec![0];
    for (plane, stride) in strides.iter().enumerate() {
        offsets.push(offsets[plane] + *stride as usize * rows(plane));
    }
    let total = offsets.pop().unwrap();
    let mut buffer = gst::Buffer::from_mut_slice(vec![77u8; total]);
    let flags = gst_video::VideoFrameFlags::empty();
    let writable = buffer.get_mut().unwrap();
    gst_video::VideoMeta::add_full(writable, flags, format, width, height, &offsets, &strides).unwrap();
    (info, buffer)
}

/// Frame `n` in a format, as GStreamer converts it from 8-bit planes; colours are those of its noise.
fn converted(n: u64, name: &str) -> gst::Buffer {
    let y444 = PixelFormat::Y444;
    let mut from = frame(n, y444);
    let mut chroma =
        gst_video::VideoFrameRef::from_buffer_ref_writable(from.get_mut().unwrap(), &info(y444)).unwrap();
    for (seed, plane) in (7..).zip(&mut chroma.planes_data_mut()[1..3]) {
        let len = plane.len();
        plane.copy_from_slice(noise(seed, Size::new(len, 1)).data());
    }
    drop(chroma);
    let (info_of_it, mut to) = padded(name);
    let converter = gst_video::VideoConverter::new(&info(y444), &info_of_it, None).unwrap();
    {
        let from = gst_video::VideoFrameRef::from_buffer_ref_readable(&from, &info(y444)).unwrap();
        let writable = to.get_mut().unwrap();
        writable.set_pts(n * FRAME);
        writable.set_duration(FRAME);
        let mut to = gst_video::VideoFrameRef::from_buffer_ref_writable(writable, &info_of_it).unwrap();
        converter.frame_ref(&from, &mut to);
    }
    to
}

/// The same picture in the format whose planes are made of it.
fn gathered(buffer: &gst::Buffer, info: &gst_video::VideoInfo) -> (gst::Buffer, gst::Caps) {
    let (_, format) = source::describe(&info.to_caps().unwrap()).unwrap();
    let picture = source::Mapper::default().picture(buffer.clone(), info, &format).unwrap();
    let mut planar = frame(0, format.pixels);
    let writable = planar.get_mut().unwrap();
    writable.set_pts(buffer.pts());
    let info = super::info(format.pixels);
    let mut to = gst_video::VideoFrameRef::from_buffer_ref_writable(writable, &info).unwrap();
    let strides: Vec<_> = to.plane_stride().iter().map(|stride| *stride as usize).collect();
    for (index, plane) in to.planes_data_mut().into_iter().enumerate().take(format.pixels.planes()) {
        let rows = picture.plane(index).rows();
        for (to, from) in plane.chunks_mut(strides[index]).zip(rows) {
            to[..from.len()].copy_from_slice(from);
        }
    }
    drop(to);
    (planar, caps(format.pixels))
}

fn names_of_gathered() -> impl Iterator<Item = &'static str> {
    source::formats().filter(|name| PixelFormat::from_name(name).is_none())
}

#[test]
fn packed_and_deeper_formats_have_the_results_of_their_8_bit_planes_and_pass_untouched() {
    let here = Place::new();
    for name in names_of_gathered() {
        let element = || {
            let element = here.element();
            let (x, y) = place(0);
            element.set_property("track", format!("{x},{y},15,13"));
            element.set_property("threshold", "mean:7:3");
            (element.clone(), bus_of(&element))
        };
        let ((direct, direct_bus), (planar, planar_bus)) = (element(), element());
        let mut into_direct = Harness::with_element(&direct, Some("sink"), Some("src"));
        let (info, _) = padded(name);
        into_direct.set_src_caps(info.to_caps().unwrap());
        let mut into_planar = Harness::with_element(&planar, Some("sink"), Some("src"));
        for n in 0..4 {
            let buffer = converted(n, name);
            let (same, caps) = gathered(&buffer, &info);
            if n == 0 {
                into_planar.set_src_caps(caps);
            }
            let sent = bytes(&buffer);
            let came = into_direct.push_and_pull(buffer).unwrap();
            assert!(bytes(&came) == sent, "frame {n} of {name} was changed");
            into_planar.push_and_pull(same).unwrap();
            let (direct, planar) = (messages(&direct_bus), messages(&planar_bus));
            assert_eq!((direct.len(), planar.len()), (1, 1), "{name}");
            let found = |message: &gst::Structure| {
                let parts = ["matches", "tracks"].map(|field| {
                    list(message, field).into_iter().map(|mut part| {
                        part.remove_field("roi-id");
                        part.to_string()
                    })
                });
                let foreground = message.get::<f64>("foreground").unwrap();
                (parts.into_iter().flatten().collect::<Vec<_>>(), foreground)
            };
            assert_eq!(found(&direct[0]), found(&planar[0]), "frame {n} of {name}");
            assert_eq!(list(&direct[0], "matches").len(), 1, "frame {n} of {name}");
        }
    }
}

#[test]
fn results_are_drawn_into_packed_and_deeper_formats_and_nothing_else_changes() {
    let here = Place::new();
    for name in names_of_gathered() {
        let element = here.element();
        element.set_property_from_str("view", "overlay");
        let mut harness = Harness::with_element(&element, Some("sink"), Some("src"));
        let (info, _) = padded(name);
        harness.set_src_caps(info.to_caps().unwrap());
        let buffer = converted(3, name);
        let sent = bytes(&buffer);
        let drawn = bytes(&harness.push_and_pull(buffer.clone()).unwrap());
        assert!(bytes(&buffer) == sent, "{name}: what somebody else has was changed");
        assert_eq!(sent.len(), drawn.len(), "{name}");
        let changed = sent.iter().zip(&drawn).filter(|(before, after)| before != after).count();
        assert!(changed > sent.len() / 50, "{name}: nothing was drawn");
        // The pattern stands in the upper left corner, and its label below it.
        let (_, format) = source::describe(&info.to_caps().unwrap()).unwrap();
        let planes = |bytes: Vec<u8>| {
            let mut copy = padded(name).1;
            copy.get_mut().unwrap().map_writable().unwrap().copy_from_slice(&bytes);
            source::Mapper::default().picture(copy, &info, &format).unwrap()
        };
        let (before, after) = (planes(sent), planes(drawn));
        let last = SIZE.height - 1;
        assert_eq!(before.plane(0).row(last), after.plane(0).row(last), "{name}");
        element.set_property_from_str("view", "mask");
        element.set_property("threshold", "mean:7:3");
        let masked = planes(bytes(&harness.push_and_pull(converted(3, name)).unwrap()));
        let luma = masked.plane(0).to_plane();
        // Through RGB and back white and black are themselves, through limited range a step off at most.
        assert!(luma.data().iter().all(|luma| [0, 255].iter().any(|end| luma.abs_diff(*end) <= 1)), "{name}");
    }
}

/// A harness whose sink lays pictures over frames if `does`.
fn with_a_sink_that_lays(element: &gst::Element, does: bool) -> Harness {
    let mut harness = Harness::with_element(element, Some("sink"), Some("src"));
    if does {
        harness.add_propose_allocation_meta(VideoOverlayCompositionMeta::meta_api(), None);
    }
    harness.set_src_caps(caps(PixelFormat::Y444));
    harness
}

fn has_feature(element: &gst::Element) -> bool {
    let caps = element.static_pad("src").unwrap().current_caps().unwrap();
    caps.features(0).unwrap().contains("meta:GstVideoOverlayComposition")
}

#[test]
fn a_composition_that_a_sink_lays_over_a_frame_shows_the_overlay() {
    let here = Place::new();
    let element = |view: &str| {
        let element = here.element();
        element.set_property("track", "20,30,30,20");
        element.set_property_from_str("view", view);
        element
    };
    let (composed, painted) = (element("composition"), element("overlay"));
    let mut composing = with_a_sink_that_lays(&composed, true);
    let mut painting = with_a_sink_that_lays(&painted, false);
    for n in 0..12 {
        let sent = frame(n, PixelFormat::Y444);
        let expected = bytes(&painting.push_and_pull(frame(n, PixelFormat::Y444)).unwrap());
        let mut came = composing.push_and_pull(sent.copy()).unwrap();
        assert!(bytes(&came) == bytes(&sent), "frame {n}: its pixels were changed");
        assert!(has_feature(&composed) && !has_feature(&painted));
        let composition = came.meta::<VideoOverlayCompositionMeta>().expect("a composition").overlay_owned();
        let info = info(PixelFormat::Y444);
        let mut canvas = gst_video::VideoFrameRef::from_buffer_ref_writable(came.make_mut(), &info).unwrap();
        composition.blend(&mut canvas).unwrap();
        drop(canvas);
        let laid = bytes(&came);
        // On a picture without colours of its own both show the same, but for rounding: each of what lies
        // over one another is rounded in a painting, and the whole once more where it is laid over the
        // picture.
        let off = expected.iter().zip(&laid).map(|(painted, laid)| painted.abs_diff(*laid)).max().unwrap();
        assert!(off <= 4, "frame {n}: {off}");
        assert!(laid != bytes(&sent));
    }
}

#[test]
fn where_no_sink_lays_pictures_over_frames_a_composition_is_an_overlay() {
    let here = Place::new();
    let draw = |view: &str| {
        let element = here.element();
        element.set_property_from_str("view", view);
        let mut harness = with_a_sink_that_lays(&element, false);
        let came = harness.push_and_pull(frame(3, PixelFormat::Y444)).unwrap();
        assert!(came.meta::<VideoOverlayCompositionMeta>().is_none() && !has_feature(&element));
        bytes(&came)
    };
    assert!(draw("composition") == draw("overlay"));
    assert!(draw("none") != draw("overlay"));
}

#[test]
fn a_composition_can_be_chosen_and_left_while_frames_pass_and_stays_after_a_flush() {
    let here = Place::new();
    let element = here.element();
    let mut harness = with_a_sink_that_lays(&element, true);
    let shows = |view: &str, harness: &mut Harness, n: u64| {
        element.set_property_from_str("view", view);
        let came = harness.push_and_pull(frame(n, PixelFormat::Y444)).unwrap();
        let has_composition = came.meta::<VideoOverlayCompositionMeta>().is_some();
        let is_untouched = bytes(&came) == bytes(&frame(n, PixelFormat::Y444));
        assert_eq!(has_feature(&element), has_composition);
        (has_composition, is_untouched)
    };
    assert_eq!(shows("none", &mut harness, 1), (false, true));
    assert_eq!(shows("composition", &mut harness, 2), (true, true));
    assert_eq!(shows("overlay", &mut harness, 3), (false, false));
    assert_eq!(shows("composition", &mut harness, 4), (true, true));
    harness.push_event(gst::event::FlushStart::new());
    harness.push_event(gst::event::FlushStop::new(true));
    let segment = gst::FormattedSegment::<gst::ClockTime>::new();
    harness.push_event(gst::event::Segment::new(&segment));
    assert_eq!(shows("composition", &mut harness, 5), (true, true));
    assert_eq!(shows("none", &mut harness, 6), (false, true));
}

#[test]
fn a_composition_goes_where_only_frames_with_pictures_over_them_are_taken() {
    let here = Place::new();
    let pipeline = parse(&format!(
        "videotestsrc num-buffers=5 ! lockon name=l backend=cpu view=composition template={} min-score=-1 \
         ! video/x-raw(memory:SystemMemory,meta:GstVideoOverlayComposition),format=I420,width=96,height=64 ! fakesink name=out",
        here.text("pattern.png")
    ));
    let counted = std::sync::Arc::new(AtomicUsize::new(0));
    let count = counted.clone();
    let pad = pipeline.by_name("out").unwrap().static_pad("sink").unwrap();
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        let has_one = info.buffer().unwrap().meta::<VideoOverlayCompositionMeta>().is_some();
        count.fetch_add(usize::from(has_one), Ordering::SeqCst);
        gst::PadProbeReturn::Ok
    });
    play(&pipeline);
    assert_eq!(counted.load(Ordering::SeqCst), 5);
    // Whoever asks in front of it hears of no pictures, and can send what the sink takes only with them.
    let pad = pipeline.by_name("l").unwrap().static_pad("sink").unwrap();
    pipeline.set_state(gst::State::Ready).unwrap();
    let plain = |width: i32| {
        let caps = gst::Caps::builder("video/x-raw").field("format", "I420").field("width", width);
        caps.field("height", 64).field("framerate", gst::Fraction::new(25, 1)).build()
    };
    for (caps, is_taken) in [(plain(96), true), (plain(97), false)] {
        assert_eq!(!pad.query_caps(Some(&caps)).is_empty(), is_taken, "{caps}");
        assert_eq!(pad.query_accept_caps(&caps), is_taken, "{caps}");
    }
    let taken = pad.query_caps(None);
    let with_layers = |features: &gst::CapsFeaturesRef| features.contains("meta:GstVideoOverlayComposition");
    assert!(!taken.is_empty() && !taken.iter_with_features().any(|(_, features)| with_layers(features)));
}

#[test]
fn a_composition_that_a_sink_takes_leaks_nothing() {
    let here = Place::new();
    let template = here.text("pattern.png");
    let mut command = with_plugin("gst-launch-1.0", &here);
    under_the_tracer(&mut command).args(
        "-v videotestsrc num-buffers=40 pattern=smpte ! video/x-raw,format=I420,width=160,height=120 !"
            .split(' '),
    );
    command.args("lockon backend=cpu view=composition min-score=-1 track=0,70,40,40".split(' '));
    let output = command.arg(format!("template={template}")).args(["!", "fakevideosink"]).output().unwrap();
    let said = succeeds(&output);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("meta:GstVideoOverlayComposition"), "{shown}");
    assert!(said.contains("object-alive.class"), "the tracer did not run: {said}");
    assert!(alive(&said).is_empty(), "{}", alive(&said).join("\n"));
}
