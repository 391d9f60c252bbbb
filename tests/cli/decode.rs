//! Decoding and its failures: files that hang GStreamer, files that nothing decodes, malicious pictures, and
//! a system with low limits.

use std::process::{Command, Stdio};

use super::{Place, fails, frames, stderr, succeeds};
use crate::util::{program, root};

const WORK: &str = "-y --threshold mean:3:1 --results out.jsonl --no-progress --backend cpu";

/// True if the run noticed only by a timeout that something was wrong.
fn gave_up(said: &str) -> bool {
    ["no frame came", "nothing moved"].iter().any(|words| said.contains(words))
}

/// Whole numbers that look random.
fn scatter(count: usize) -> Vec<u8> {
    (0..count as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// A GIF of grey pictures, all of whose codes have nine bits: the table is cleared before it would need
/// longer ones.
fn gif(width: u16, height: u16, pictures: &[Vec<u8>]) -> Vec<u8> {
    let mut out = b"GIF89a".to_vec();
    let size = [width.to_le_bytes(), height.to_le_bytes()].concat();
    out.extend([size.as_slice(), &[0xF7, 0, 0]].concat());
    out.extend((0..=255_u8).flat_map(|grey| [grey; 3]));
    for picture in pictures {
        let codes = picture.iter().enumerate().flat_map(|(at, &pixel)| {
            let clear = (at % 250 == 0).then_some(256_u16);
            clear.into_iter().chain([u16::from(pixel)])
        });
        let (mut bits, mut count, mut packed) = (0_u32, 0, Vec::new());
        for code in codes.chain([257]) {
            bits |= u32::from(code) << count;
            count += 9;
            while count >= 8 {
                packed.push(bits as u8);
                (bits, count) = (bits >> 8, count - 8);
            }
        }
        packed.push(bits as u8);
        out.extend(b"\x21\xf9\x04\x04\x04\0\0\0\x2c\0\0\0\0");
        out.extend(&size);
        out.extend([0, 8]);
        for part in packed.chunks(255) {
            out.push(part.len() as u8);
            out.extend(part);
        }
        out.push(0);
    }
    out.push(b';');
    out
}

#[test]
fn an_animated_gif_ends_with_its_last_frame() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let pictures: Vec<_> = (0..7).map(|shift| scatter(64 * 48 + shift)[shift..].to_vec()).collect();
    std::fs::write(place.path("moving.gif"), gif(64, 48, &pictures)).unwrap();
    succeeds(place.lockon(&format!("run moving.gif {WORK}")));
    assert_eq!(frames(&place.records("out.jsonl")).len(), 7);
}

#[test]
fn a_gif_that_is_cut_off_ends_too() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let whole = gif(64, 48, &[scatter(64 * 48), scatter(64 * 48)]);
    std::fs::write(place.path("cut.gif"), &whole[..whole.len() * 3 / 4]).unwrap();
    let out = place.lockon(&format!("run cut.gif {WORK}"));
    // As many frames as there are, or an error that is the file's own.
    assert!(matches!(out.status.code(), Some(0 | 1)) && !gave_up(&stderr(&out)), "{}", stderr(&out));
}

#[test]
fn a_video_that_ends_long_before_the_length_that_its_file_states_gives_a_warning() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    place.gst(
        "videotestsrc num-buffers=100 pattern=snow ! video/x-raw,width=96,height=64,framerate=25/1 ! \
         x264enc key-int-max=5 ! flvmux ! filesink location=whole.flv",
    );
    let whole = std::fs::read(place.path("whole.flv")).unwrap();
    std::fs::write(place.path("half.flv"), &whole[..whole.len() / 2]).unwrap();
    let warning = "the file states a length of";
    let said = stderr(&succeeds(place.lockon(&format!("run whole.flv {WORK}"))));
    assert!(!said.contains(warning), "{said}");
    let said = stderr(&succeeds(place.lockon(&format!("run half.flv {WORK}"))));
    assert!(said.contains("half.flv: its last frame is at") && said.contains(warning), "{said}");
    // A part that was asked for is no shortfall.
    let said = stderr(&succeeds(place.lockon(&format!("run whole.flv {WORK} --max-frames 10"))));
    assert!(!said.contains(warning), "{said}");
}

/// gst-libav 1.22 crashes when it makes a buffer for such a format: grey of 10 bits.
#[test]
fn a_pixel_format_that_gstreamer_lacks_is_an_error_and_does_not_crash() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let clip = root().join("tests/media/grey10.h265");
    let out = place.lockon(&format!("run {} {WORK}", clip.display()));
    // A GStreamer that knows the format decodes it.
    let said = stderr(&out);
    assert!(out.status.code() == Some(0) || said.contains("grey10.h265: "), "{out:?}");
    assert!(matches!(out.status.code(), Some(0 | 1)), "{out:?}");
}

/// Raw video of AVI comes without its palette.
#[test]
fn frames_that_a_converter_cannot_read_end_the_run_with_one_error() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let clip = root().join("tests/media/palette.avi");
    let out = place.lockon(&format!("run {} {WORK}", clip.display()));
    fails(&out, 1, "it cannot convert these pictures");
}

#[test]
fn pictures_in_a_row_without_a_container_get_times_that_are_marked() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    place.gst(
        "videotestsrc num-buffers=6 ! video/x-raw,width=96,height=64 ! jpegenc ! filesink location=a.mjpeg",
    );
    succeeds(place.lockon(&format!("run a.mjpeg {WORK}")));
    let records = place.records("out.jsonl");
    let times: Vec<_> = frames(&records).iter().map(|frame| frame["pts_ns"].as_u64()).collect();
    assert_eq!(times, (0..6).map(|n| Some(n * 40_000_000)).collect::<Vec<_>>());
    assert_eq!(frames(&records)[5]["pts_interpolated"], true);
}

#[test]
fn a_file_without_sound_is_split_without_a_word_of_sound() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let mut both = Vec::new();
    for size in ["width=96,height=64", "width=64,height=96"] {
        place.gst(&format!(
            "videotestsrc num-buffers=10 ! video/x-raw,framerate=25/1,{size} ! x264enc bframes=0 ! \
             video/x-h264,stream-format=byte-stream ! filesink location=part.h264"
        ));
        both.extend(std::fs::read(place.path("part.h264")).unwrap());
    }
    std::fs::write(place.path("both.h264"), both).unwrap();
    let out = succeeds(place.lockon(&format!("run both.h264 {WORK} -o out.mkv")));
    let said = stderr(&out);
    assert!(said.contains("going on in out-2.mkv") && !said.contains("sound"), "{said}");
}

#[test]
fn a_demuxer_that_fails_at_once_is_heard_every_time() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    place.gst(
        "videotestsrc num-buffers=5 ! video/x-raw,width=64,height=48 ! vp8enc deadline=1 ! webmmux ! filesink location=a.webm",
    );
    // Without its list of tracks the demuxer gives up, while it is still being connected.
    let mut broken = std::fs::read(place.path("a.webm")).unwrap();
    while let Some(at) = broken.windows(4).position(|window| window == b"\x16\x54\xAE\x6B") {
        broken[at..at + 4].copy_from_slice(b"\x16\x54\xAE\x6C");
    }
    std::fs::write(place.path("broken.webm"), broken).unwrap();
    for _ in 0..12 {
        let out = place.lockon(&format!("run broken.webm {WORK}"));
        fails(&out, 1, "broken.webm: ");
        assert!(!gave_up(&stderr(&out)), "{}", stderr(&out));
    }
}

/// An EBML element: its ID, its length in eight bytes, what it holds.
fn element(id: &[u8], data: &[u8]) -> Vec<u8> {
    let length = (1_u64 << 56 | data.len() as u64).to_be_bytes();
    [id, &length, data].concat()
}

#[test]
fn webm_with_an_alpha_channel_plays() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let video = "video/x-raw,format=I420,width=96,height=64,framerate=25/1 ! vp8enc deadline=1";
    for (name, pattern) in [("colour", "ball"), ("alpha", "gradient")] {
        place.gst(&format!(
            "videotestsrc num-buffers=10 pattern={pattern} ! {video} ! multifilesink location={name}-%d"
        ));
    }
    let read = |name: &str, n: u16| std::fs::read(place.path(&format!("{name}-{n}"))).unwrap();
    let number = |id: &[u8], number: u8| element(id, &[number]);
    let info = element(b"\x15\x49\xA9\x66", &element(b"\x2A\xD7\xB1", &1_000_000_u32.to_be_bytes()));
    // Width, height, and that there is an alpha channel.
    let size = [number(b"\xB0", 96), number(b"\xBA", 64), number(b"\x53\xC0", 1)].concat();
    let codec = element(b"\x86", b"V_VP8");
    let track =
        [number(b"\xD7", 1), number(b"\x73\xC5", 1), number(b"\x83", 1), codec, number(b"\x55\xEE", 1)];
    let track = [track.concat(), element(b"\xE0", &size)].concat();
    let tracks = element(b"\x16\x54\xAE\x6B", &element(b"\xAE", &track));
    let mut cluster = number(b"\xE7", 0);
    for n in 0..10_u16 {
        let block = [&[0x81][..], &(40 * n).to_be_bytes(), &[0], &read("colour", n)].concat();
        let more = [number(b"\xEE", 1), element(b"\xA5", &read("alpha", n))].concat();
        let additions = element(b"\x75\xA1", &element(b"\xA6", &more));
        let reference = if n == 0 { Vec::new() } else { number(b"\xFB", 0xD8) };
        let group = [element(b"\xA1", &block), additions, number(b"\x9B", 40), reference];
        cluster.extend(element(b"\xA0", &group.concat()));
    }
    let head = element(b"\x1A\x45\xDF\xA3", &element(b"\x42\x82", b"webm"));
    let segment = [info, tracks, element(b"\x1F\x43\xB6\x75", &cluster)].concat();
    let file = [head, element(b"\x18\x53\x80\x67", &segment)].concat();
    std::fs::write(place.path("alpha.webm"), file).unwrap();
    succeeds(place.lockon(&format!("run alpha.webm {WORK}")));
    let count = frames(&place.records("out.jsonl")).len();
    // The decoder of GStreamer 1.26 can keep the last one, also for gst-launch-1.0 alone.
    let (played, is_new) = (place.play("alpha.webm"), gst::version() >= (1, 26, 0, 0));
    assert!(count == played || is_new && count > played, "{count}, {played} are played");
    assert!(count == 10 || count == 9 && is_new, "{count}");
}

#[test]
fn video_that_no_installed_decoder_takes_is_named_and_no_package_that_is_there() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    place.gst(
        "videotestsrc num-buffers=3 ! video/x-raw,width=64,height=48 ! jpegenc ! qtmux ! filesink location=a.mov",
    );
    let mut bytes = std::fs::read(place.path("a.mov")).unwrap();
    let at = bytes.windows(8).position(|window| window == b"jpeg\0\0\0\0").unwrap();
    // The code of no codec.
    bytes[at..at + 4].copy_from_slice(b"Zq9x");
    std::fs::write(place.path("unknown.mov"), bytes).unwrap();
    let out = place.lockon(&format!("run unknown.mov {WORK}"));
    fails(&out, 1, "unknown.mov: GStreamer has no decoder for video/x-gst-fourcc-Zq9x");
    assert!(!stderr(&out).contains("apt-get"), "{}", stderr(&out));
}

#[test]
#[cfg(target_os = "linux")]
fn a_stack_that_is_too_small_is_an_error() {
    let out = Command::new("sh")
        .args(["-c", "ulimit -s 64; exec \"$0\" doctor"])
        .arg(program())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    fails(&out, 1, "the stack may have 64 KiB here, and 1024 KiB are needed");
}

/// Addresses are enough to start, and at some point not enough for one thread more: each limit stops the
/// run at another one. Some have room for all of it.
#[test]
#[cfg(target_os = "linux")]
fn a_run_without_memory_for_its_threads_ends_with_an_error_and_does_not_hang() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    place.gst("videotestsrc num-buffers=20 ! video/x-raw,width=96,height=64 ! x264enc ! mp4mux ! filesink location=a.mp4");
    for kib in [300_000, 500_000, 600_000, 700_000] {
        let out = Command::new("timeout")
            .args(["-k", "1", "40", "sh", "-c"])
            .arg(format!(
                "ulimit -v {kib}; exec \"$0\" run a.mp4 --threshold mean:31:5 --backend cpu --results -"
            ))
            .arg(program())
            // A plugin for which there is no memory is a warning of GStreamer's own.
            .env_remove("G_DEBUG")
            .current_dir(place.path(""))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = stderr(&out);
        assert!(!matches!(out.status.code(), Some(124 | 137)), "{kib} KiB: it hangs: {said}");
        assert!(!said.contains("please report"), "{kib} KiB: {said}");
        if kib == 300_000 {
            // GLib ends the process by a signal where it is GLib that gets no memory.
            let is_glib = out.status.code().is_none() && said.contains("allocate memory");
            assert!(is_glib || out.status.code() == Some(1), "{kib} KiB: {said}");
        }
    }
}

/// With this little memory GStreamer cannot load its decoders, and ignores them as if they were not there.
#[test]
#[cfg(target_os = "linux")]
fn a_decoder_that_cannot_be_loaded_for_want_of_memory_is_not_called_missing() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    place.gst("videotestsrc num-buffers=20 ! video/x-raw,width=96,height=64 ! x264enc ! mp4mux ! filesink location=a.mp4");
    let out = Command::new("sh")
        .args(["-c", "ulimit -v 400000; exec \"$0\" info a.mp4"])
        .arg(program())
        .env_remove("G_DEBUG")
        .current_dir(place.path(""))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    fails(&out, 1, "there is too little memory (ulimit -v, now 409600000 bytes");
    assert!(!stderr(&out).contains("no decoder"), "{}", stderr(&out));
}

#[test]
fn fragments_without_an_index_are_not_read_for_ever() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    place.gst(
        "videotestsrc num-buffers=20 ! video/x-raw,width=96,height=64,framerate=25/1 ! x264enc key-int-max=10 \
         ! mp4mux fragment-duration=200 ! filesink location=whole.mp4",
    );
    let mut bytes = std::fs::read(place.path("whole.mp4")).unwrap();
    let at = bytes.windows(4).position(|window| window == b"moov").unwrap();
    bytes[at..at + 4].copy_from_slice(b"free");
    std::fs::write(place.path("headless.mp4"), bytes).unwrap();
    let out = place.lockon(&format!("run headless.mp4 {WORK}"));
    fails(&out, 1, "headless.mp4: ");
    assert!(!gave_up(&stderr(&out)), "{}", stderr(&out));
}

#[test]
#[cfg(target_os = "linux")]
fn a_colour_profile_that_unpacks_to_400_mib_takes_no_such_memory() {
    use image::ImageEncoder;
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let (mut bytes, pixels) = (Vec::new(), scatter(16 * 16));
    let mut encoder = image::codecs::png::PngEncoder::new(&mut bytes);
    encoder.set_icc_profile(vec![0; 400 << 20]).unwrap();
    encoder.write_image(&pixels, 16, 16, image::ExtendedColorType::L8).unwrap();
    assert!(bytes.len() < 1 << 20, "{} bytes", bytes.len());
    std::fs::write(place.path("bomb.png"), bytes).unwrap();
    let out = Command::new("sh")
        .args(["-c", "ulimit -v 400000; exec \"$0\" match bomb.png bomb.png --backend cpu"])
        .arg(program())
        .env("MALLOC_ARENA_MAX", "1")
        .current_dir(place.path(""))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&succeeds(out).stdout).contains("\"score\":1.0"));
}
