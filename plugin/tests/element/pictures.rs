//! Formats of frames, and what is drawn into them or lies over them.

use gst_video::VideoOverlayCompositionMeta;
use lockon_gst::source;

use super::*;

/// Returns a frame of the named format with padded rows, and its layout. The planes of these formats are made
/// by a copy.
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

/// Returns the picture, and its caps, in the format that the mapped planes are in.
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
        // The pattern is in the upper left corner, and its label below it.
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

/// The frame in the middle of a larger picture, with a crop that shows it.
fn cropped(n: u64, format: PixelFormat, (x, y): (u32, u32)) -> gst::Buffer {
    let small = frame(n, format);
    let (width, height) = (SIZE.width as u32 + 32, SIZE.height as u32 + y);
    let kind = format.name.parse::<gst_video::VideoFormat>().unwrap();
    let large = gst_video::VideoInfo::builder(kind, width, height).build().unwrap();
    let mut buffer = gst::Buffer::from_mut_slice(vec![77_u8; large.size()]);
    let writable = buffer.get_mut().unwrap();
    small.copy_into(writable, gst::BufferCopyFlags::TIMESTAMPS, ..).unwrap();
    {
        let from = gst_video::VideoFrameRef::from_buffer_ref_readable(&small, &info(format)).unwrap();
        let mut to = gst_video::VideoFrameRef::from_buffer_ref_writable(writable, &large).unwrap();
        let strides = to.plane_stride().to_vec();
        for (index, plane) in to.planes_data_mut().into_iter().enumerate().take(format.planes()) {
            let (across, down) = if index == 0 { (0, 0) } else { (format.x_shift, format.y_shift) };
            let size = format.plane_size(index, SIZE);
            let per_sample = format.plane_size(index, Size::new(1, 1)).width;
            let (left, above) = ((x as usize >> across) * per_sample, y as usize >> down);
            let rows = plane.chunks_mut(strides[index] as usize).skip(above).take(size.height);
            let pixels = from.plane_data(index as u32).unwrap().chunks(from.plane_stride()[index] as usize);
            for (to, from) in rows.zip(pixels) {
                to[left..left + size.width].copy_from_slice(&from[..size.width]);
            }
        }
    }
    let flags = gst_video::VideoFrameFlags::empty();
    gst_video::VideoMeta::add_from_info(writable, flags, &large).unwrap();
    let shown = (x, y, SIZE.width as u32, SIZE.height as u32);
    gst_video::VideoCropMeta::add(writable, shown);
    buffer
}

#[test]
fn a_frame_that_is_a_part_of_its_memory_is_searched_and_drawn_on_where_caps_say() {
    let here = Place::new();
    for format in ["GRAY8", "I420", "NV12", "Y444"].map(|name| PixelFormat::from_name(name).unwrap()) {
        for origin in [(0, 10), (8, 4), (7, 3)] {
            let element = || {
                let element = here.element();
                element.set_property_from_str("view", "overlay");
                (element.clone(), bus_of(&element))
            };
            let ((whole, whole_bus), (part, part_bus)) = (element(), element());
            let (mut into_whole, mut into_part) = (harness(&whole, format), harness(&part, format));
            for n in 0..3 {
                let sent = cropped(n, format, origin);
                let copy = bytes(&sent);
                let came = into_part.push_and_pull(sent.clone()).unwrap();
                assert!(bytes(&sent) == copy, "{}: somebody else's frame was changed", format.name);
                let expected = into_whole.push_and_pull(frame(n, format)).unwrap();
                assert_eq!(regions(&came).len(), 1);
                let places = |buffer: &gst::BufferRef| -> Vec<_> {
                    regions(buffer).into_iter().map(|(kind, _, rect, _)| (kind, rect)).collect()
                };
                assert_eq!(places(&came), places(&expected), "{} {origin:?}", format.name);
                let place_of = |bus| {
                    let found = &list(&messages(bus)[0], "matches")[0];
                    ["x", "y", "w", "h"].map(|field| found.get::<u32>(field).unwrap())
                };
                assert_eq!(place_of(&part_bus), place_of(&whole_bus), "{} {origin:?}", format.name);
                let (info, described) = source::describe(&caps(format)).unwrap();
                let planes = |buffer| {
                    let picture = source::Mapper::default().picture(buffer, &info, &described).unwrap();
                    (0..format.planes()).map(|plane| picture.plane(plane).to_plane()).collect::<Vec<_>>()
                };
                assert!(came.meta::<gst_video::VideoCropMeta>().is_none());
                assert!(planes(came) == planes(expected), "frame {n} of {} {origin:?}", format.name);
            }
        }
    }
}

#[test]
fn a_crop_that_is_not_of_the_size_in_the_caps_is_an_error() {
    let here = Place::new();
    let element = here.element();
    let bus = bus_of(&element);
    let mut harness = harness(&element, PixelFormat::GRAY8);
    let mut buffer = cropped(0, PixelFormat::GRAY8, (8, 4));
    buffer.make_mut().meta_mut::<gst_video::VideoCropMeta>().unwrap().set_rect((8, 4, 50, 40));
    assert_eq!(harness.push(buffer), Err(gst::FlowError::Error));
    let error = wait_for(&bus, &[gst::MessageType::Error]);
    let gst::MessageView::Error(error) = error.view() else { unreachable!() };
    assert!(error.error().to_string().contains("crop is not of the size in its caps"), "{error:?}");
}

#[test]
fn videocrop_in_front_gives_the_same_boxes_whether_the_sink_takes_crops_or_not() {
    let here = Place::new();
    let i420 = PixelFormat::from_name("I420").unwrap();
    let found = |sink_takes_crops: bool| {
        let element = here.element();
        let crop =
            gst::ElementFactory::make("videocrop").property("left", 6).property("top", 4).build().unwrap();
        let bin = gst::Bin::new();
        bin.add_many([&crop, &element]).unwrap();
        crop.link(&element).unwrap();
        for (inner, name) in [(&crop, "sink"), (&element, "src")] {
            let pad = gst::GhostPad::with_target(&inner.static_pad(name).unwrap()).unwrap();
            bin.add_pad(&pad).unwrap();
        }
        let mut harness = Harness::with_element(&bin, Some("sink"), Some("src"));
        if sink_takes_crops {
            harness.add_propose_allocation_meta(gst_video::VideoMeta::meta_api(), None);
            harness.add_propose_allocation_meta(gst_video::VideoCropMeta::meta_api(), None);
        }
        harness.set_src_caps(caps(i420));
        let seen = std::sync::Arc::new(AtomicBool::new(false));
        let has_come = seen.clone();
        element.static_pad("sink").unwrap().add_probe(gst::PadProbeType::BUFFER, move |_, info| {
            let is_cropped = info.buffer().unwrap().meta::<gst_video::VideoCropMeta>().is_some();
            has_come.fetch_or(is_cropped, Ordering::Relaxed);
            gst::PadProbeReturn::Ok
        });
        let boxes: Vec<_> = (5..9)
            .map(|n| {
                let mut sent = frame(n, i420);
                let flags = gst_video::VideoFrameFlags::empty();
                gst_video::VideoMeta::add_from_info(sent.make_mut(), flags, &info(i420)).unwrap();
                let came = harness.push_and_pull(sent).unwrap();
                let regions = regions(&came);
                assert_eq!(regions.len(), 1, "frame {n}");
                regions[0].2
            })
            .collect();
        (boxes, seen.load(Ordering::Relaxed))
    };
    let (plain, cropped) = (found(false), found(true));
    assert!(cropped.1 && !plain.1, "videocrop sends crops where they are taken");
    assert_eq!(plain.0, cropped.0);
    let (x, y) = place(5);
    assert_eq!(&plain.0[0], &(x as u32 - 6, y as u32 - 4, 15, 13));
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
        // On a picture without colours of its own both show the same, except for rounding. In a painting,
        // each of the layers is rounded. An overlay is rounded once more as a whole where it is laid over the
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
    // A caps query in front of the element returns no caps with overlays. Caps without them are accepted,
    // although the sink accepts frames only with overlays.
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
