//! `lockon info`: the contents of a video or of a camera's stream.

use anyhow::Result;
use serde_json::{Value, json};

use lockon::frame::Size;
use lockon::media::launch;
use lockon::media::source::{Decoder, Input, SourceInfo, SourceSpec, StreamInfo, StreamKind, VideoSource};
use lockon::request::login;
use lockon::text;

use super::args::InfoArgs;
use super::signals::Signals;
use super::{Outcome, log, print};

/// The number of frames, and whether they were counted.
struct Frames {
    count: u64,
    is_counted: bool,
}

pub(super) fn info(args: &InfoArgs) -> Result<Outcome> {
    launch::init()?;
    log::join_gstreamer();
    let login = login(args.credentials.as_deref(), &args.input)?;
    let spec = SourceSpec {
        login,
        video_stream: args.video_stream,
        ..SourceSpec::new(args.input.clone(), Decoder::Software)
    };
    let signals = Signals::watch()?;
    let source = match VideoSource::open(&spec, signals.control()) {
        Err(_) if signals.exit_code().is_some() => return Ok(signals.outcome()),
        opened => opened?,
    };
    let info = source.info();
    let frames = if args.count {
        match source.count_frames(signals.control())? {
            Some(count) => Some(Frames { count, is_counted: true }),
            None => return Ok(signals.outcome()),
        }
    } else {
        drop(source);
        estimated(&info)
    };
    let bytes = args.input.file().and_then(|path| path.metadata().ok()).map(|about| about.len());
    let text = if args.json {
        let value = as_json(&args.input, bytes, &info, frames.as_ref());
        serde_json::to_string_pretty(&value)? + "\n"
    } else {
        in_words(&args.input, bytes, &info, frames.as_ref())
    };
    print(&text)?;
    Ok(Outcome::Done)
}

/// The stream that is used.
fn used(info: &SourceInfo) -> Option<&StreamInfo> {
    info.streams.iter().find(|stream| stream.is_used)
}

/// Frames a second of the video that is used, if known.
fn frame_rate(info: &SourceInfo) -> Option<(i32, i32)> {
    Some(info.format.frame_rate)
        .filter(|rate| rate.0 > 0)
        .or_else(|| used(info).and_then(|stream| stream.frame_rate))
}

/// How many frames there are, from length and rate.
fn estimated(info: &SourceInfo) -> Option<Frames> {
    let (n, d) = frame_rate(info)?;
    let count = info.duration_ns? as f64 / 1e9 * f64::from(n) / f64::from(d);
    Some(Frames { count: count.round() as u64, is_counted: false })
}

fn kind(stream: &StreamInfo) -> &'static str {
    match stream.kind {
        StreamKind::Video => "video",
        StreamKind::Sound => "sound",
        StreamKind::Text => "text",
        StreamKind::Other => "other",
    }
}

/// Streams with their numbers among those of their kind.
fn numbered(info: &SourceInfo) -> impl Iterator<Item = (usize, &StreamInfo)> {
    info.streams.iter().enumerate().map(|(at, stream)| {
        let before = info.streams[..at].iter().filter(|other| other.kind == stream.kind).count();
        (before, stream)
    })
}

fn range(is_full: Option<bool>) -> Option<&'static str> {
    is_full.map(|is_full| if is_full { "full" } else { "limited" })
}

fn as_json(input: &Input, bytes: Option<u64>, info: &SourceInfo, frames: Option<&Frames>) -> Value {
    let fraction = |(n, d): (i32, i32)| format!("{n}/{d}");
    let streams: Vec<_> = numbered(info)
        .map(|(number, stream)| {
            json!({
                "kind": kind(stream),
                "number": number,
                "used": stream.is_used,
                "default": stream.is_default,
                "codec": stream.codec,
                "profile": stream.profile,
                "level": stream.level,
                "width": stream.size.map(|size| size.width),
                "height": stream.size.map(|size| size.height),
                "frame_rate": stream.frame_rate.map(fraction),
                "chroma": stream.chroma,
                "bits": stream.bits,
                "interlaced": stream.is_interlaced,
                "colorimetry": stream.colorimetry,
                "sample_rate": stream.sample_rate,
                "channels": stream.channels,
                "language": stream.language,
                "bit_rate": stream.bit_rate,
            })
        })
        .collect();
    let format = &info.format;
    json!({
        "input": input.to_string(),
        "container": info.container,
        "bytes": bytes,
        "live": info.is_live,
        "duration_s": info.duration_ns.map(|ns| ns as f64 / 1e9),
        "frames": frames.map(|frames| frames.count),
        "frames_are_counted": frames.map(|frames| frames.is_counted),
        "streams": streams,
        "decoded": {
            "width": format.size.width,
            "height": format.size.height,
            "frame_rate": frame_rate(info).map(fraction),
            "pixel_aspect": fraction(format.pixel_aspect),
            "pixels": format.pixels.name,
            "bits": info.bits,
            "range": range(info.is_full_range),
            "colorimetry": format.colorimetry,
            "turned": info.turned,
            "decoder": info.decoder,
        },
    })
}

fn size(size: Size) -> String {
    format!("{}x{}", size.width, size.height)
}

fn per_second((n, d): (i32, i32)) -> String {
    let rate = (f64::from(n) / f64::from(d) * 1000.0).round() / 1000.0;
    format!("{rate} frames a second")
}

/// A stream in words, without its kind and number.
fn described(stream: &StreamInfo) -> String {
    let profile = stream.profile.iter().map(|profile| format!("profile {profile}"));
    let level = stream.level.iter().map(|level| format!("level {level}"));
    let sound = stream.sample_rate.map(|rate| format!("{rate} Hz"));
    let channels = stream.channels.map(|channels| match channels {
        1 => "1 channel".to_owned(),
        channels => format!("{channels} channels"),
    });
    let bits = stream.bits.map(|bits| format!("{bits} bits"));
    let rate = stream.bit_rate.map(|rate| format!("{} kbit/s", rate.div_ceil(1000)));
    let marks = [(stream.is_interlaced == Some(true), "interlaced"), (stream.is_default, "default")];
    std::iter::once(stream.codec.clone())
        .chain(profile)
        .chain(level)
        .chain(stream.size.map(size))
        .chain(stream.frame_rate.map(per_second))
        .chain(stream.chroma.clone())
        .chain(bits)
        .chain(stream.colorimetry.iter().map(|colours| format!("colorimetry {colours}")))
        .chain(sound)
        .chain(channels)
        .chain(stream.language.clone())
        .chain(rate)
        .chain(marks.into_iter().filter(|(holds, _)| *holds).map(|(_, mark)| mark.to_owned()))
        .collect::<Vec<_>>()
        .join(", ")
}

fn in_words(input: &Input, bytes: Option<u64>, info: &SourceInfo, frames: Option<&Frames>) -> String {
    let mut rows = Vec::new();
    let seconds = info.duration_ns.map(|ns| format!("{:.3} s", ns as f64 / 1e9));
    let live = info.is_live.then(|| "live".to_owned());
    let about = info.container.clone().into_iter().chain(live).chain(seconds);
    let about: Vec<_> = about.chain(bytes.map(|bytes| format!("{bytes} bytes"))).collect();
    rows.push(("input".to_owned(), format!("{input}: {}", about.join(", "))));
    for (number, stream) in numbered(info) {
        let mark = if stream.is_used { " (used)" } else { "" };
        rows.push((format!("{} {number}{mark}", kind(stream)), described(stream)));
    }
    let format = &info.format;
    let decoded = std::iter::once(size(format.size))
        .chain([format.pixels.name.to_owned(), format!("{} bits", info.bits)])
        .chain(range(info.is_full_range).map(|range| format!("{range} range")))
        .chain(format.colorimetry.iter().map(|colours| format!("colorimetry {colours}")))
        .chain(info.turned.clone())
        .chain(info.decoder.iter().map(|decoder| format!("by {decoder}")));
    rows.push(("decoded".to_owned(), decoded.collect::<Vec<_>>().join(", ")));
    let counted = match frames {
        Some(Frames { count, is_counted: true }) => count.to_string(),
        Some(Frames { count, is_counted: false }) => {
            format!("about {count}, from length and rate (--count counts them)")
        }
        None if info.is_live => "without end".to_owned(),
        None => "not known (--count counts them)".to_owned(),
    };
    rows.push(("frames".to_owned(), counted));
    let unknown = [
        (info.duration_ns.is_none() && !info.is_live, "length"),
        (frame_rate(info).is_none(), "frame rate"),
        (info.is_full_range.is_none(), "range"),
        (info.streams.is_empty(), "streams"),
    ];
    let unknown: Vec<_> = unknown.into_iter().filter(|(holds, _)| *holds).map(|(_, name)| name).collect();
    if !unknown.is_empty() {
        rows.push(("not known".to_owned(), unknown.join(", ")));
    }
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    // Names and tags of a file may have anything in them.
    let line = |(name, words): &(String, String)| format!("{name:width$}  {}\n", text::in_one_line(words));
    rows.iter().map(line).collect()
}
