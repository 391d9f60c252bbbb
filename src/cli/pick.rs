//! `lockon pick` and `lockon run --pick`: boxes that the user draws on a frame.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use lockon::Error;
use lockon::colour::{self, Conversion};
use lockon::config::{Moment, TrackSpec};
use lockon::control::Control;
use lockon::files;
use lockon::frame::{Frame, PixelFormat, Plane, Rect};
use lockon::media::launch;
use lockon::media::pick::{FORWARD_KEYS, Film, KEYS, Opening, Picked, Picker, Reach, SCRUB_KEYS};
use lockon::media::source::{Decoder, Input, SourceSpec};
use lockon::overlay::{self, Canvas};
use lockon::request::login;
use lockon::{shell, still, text};

use super::args::PickArgs;
use super::signals::Signals;
use super::{Outcome, log, print};

/// The message if the printed command does not contain the whole address.
const LOGIN_IS_MISSING: &str = "the address is printed without user and password: use --credentials FILE or the variable \
     LOCKON_CREDENTIALS; where *** stands, type again what belongs there";

pub(super) fn pick(args: &PickArgs) -> Result<Outcome> {
    launch::init()?;
    log::join_gstreamer();
    let login = login(args.credentials.as_deref(), &args.input)?;
    let spec = SourceSpec { login, ..SourceSpec::new(args.input.clone(), Decoder::Software) };
    let mut inputs = args.input.files();
    inputs.extend(args.credentials.clone());
    if let Some(output) = &args.output {
        still::check_extension(output)?;
        let taken = if args.overwrite.overwrite { args.boxes.len() } else { 1 };
        files::check_folders(std::slice::from_ref(output))?;
        files::check_distinct(&inputs, &numbered(output, taken))?;
        args.overwrite.allow(std::slice::from_ref(output))?;
        files::check_writable(output)?;
    }
    let signals = Signals::watch()?;
    // Held open, so that the picture need not wait for a reader.
    let _reader = match args.output.as_deref().filter(|output| files::is_pipe(output)) {
        Some(pipe) => match files::open_pipe(pipe, files::End::Writing, signals.control())? {
            None => return Ok(signals.outcome()),
            reader => reader,
        },
        None => None,
    };
    let start = args.frame.map(Moment::Frame).or(args.at);
    let film = match Film::open(&spec, start, signals.control()) {
        Err(_) if signals.exit_code().is_some() => return Ok(signals.outcome()),
        opened => opened?,
    };
    let Some(film) = film else { return Ok(signals.outcome()) };
    match film.opening() {
        Opening::Asked => {}
        Opening::NotEmpty(1) => log::say("frame 0 is empty (black, or one flat colour): starting at frame 1"),
        Opening::NotEmpty(count) => log::say(&format!(
            "frames 0 to {} are empty (black, or one flat colour): starting at frame {count}",
            count - 1
        )),
        Opening::AllEmpty(count) => {
            log::say(&format!("the first {count} frames are all empty (black, or one flat colour)"));
        }
    }
    let picked = if args.boxes.is_empty() {
        match ask(film, &args.input, signals.control())? {
            Some(picked) => picked,
            None => return Ok(signals.outcome()),
        }
    } else {
        let (frame, from) = (film.shown().clone(), film.moment());
        args.boxes.iter().map(|&rect| Picked { rect, frame: frame.clone(), from }).collect()
    };
    for Picked { rect, frame, .. } in &picked {
        let size = frame.format.size;
        if !rect.is_inside(size) {
            return Err(Error::Outside { what: "box", rect: *rect, frame: size }.into());
        }
    }
    let mut saved = Vec::new();
    if let Some(path) = &args.output {
        // The first file was allowed by name. Other files that may not be overwritten are skipped in the
        // numbering.
        let names = numbered(path, picked.len());
        if args.overwrite.overwrite {
            files::check_distinct(&inputs, &names)?;
        }
        for (index, (Picked { rect, frame, from }, name)) in picked.iter().zip(names).enumerate() {
            let name = if index == 0 || args.overwrite.overwrite { name } else { free_name(path) };
            still::save_rgb(&name, &colour::rgb(frame, *rect), rect.size())?;
            let frame = match from {
                Moment::Frame(index) => format!("frame {index}"),
                Moment::Time(_) => format!("the frame at {from}"),
            };
            log::say(&format!("{}: {rect} of {frame}", text::path(&name)));
            saved.push(name);
        }
    }
    let is_real_time = spec.is_real_time()?;
    let boxes = picked.iter().map(|picked| (picked.rect, Some(picked.from).filter(|_| !is_real_time)));
    let mut lines = command(&args.input, &boxes.collect::<Vec<_>>());
    // Data that went through a pipe or to a device cannot be read again.
    saved.retain(|name| name.is_file());
    if !saved.is_empty() {
        lines += &command_of(&args.input, &templates(&saved));
    }
    print(&lines)?;
    if matches!(&args.input, Input::Uri(uri) if uri.without_login().1) {
        log::say(LOGIN_IS_MISSING);
    }
    Ok(Outcome::Done)
}

/// Returns the boxes to follow from a frame on, which the user draws on it; `None` if a signal asks the
/// program to end.
///
/// # Errors
/// If nothing is picked: the user cancelled, or no window can be opened. Without a window the frame is
/// written as a picture.
pub(super) fn tracks(frame: &Frame, input: &Input, control: &Control) -> Result<Option<Vec<TrackSpec>>> {
    let Some(picked) = ask(Film::of(frame.clone()), input, control)? else { return Ok(None) };
    let tracks: Vec<_> = picked.iter().map(|picked| TrackSpec::new(picked.rect, picked.from)).collect();
    for track in &tracks {
        log::say(&format!("picked: --track {track}"));
    }
    Ok(Some(tracks))
}

/// Returns the boxes that the user draws on frames of a video, at least one; `None` if a signal asks the
/// program to end.
fn ask(film: Film, input: &Input, control: &Control) -> Result<Option<Vec<Picked>>> {
    let (frame, reach) = (film.shown().clone(), film.reach());
    let index = frame.meta.index;
    let title = match reach {
        Reach::Nothing => format!("{}, frame {index}", input.title()),
        _ => input.title(),
    };
    let picker = match Picker::open(film, &title, control) {
        Ok(picker) => picker,
        Err(error) => {
            let path = PathBuf::from(format!("{}-frame-{index}.png", stem(input)));
            let path = if path.symlink_metadata().is_ok() { free_name(&path) } else { path };
            still::save_rgb(&path, &with_grid(&frame), frame.format.size)?;
            let mut words = format!("no window to pick in: {error}\n");
            let _ = write!(
                words,
                "frame {index} is in {} with a grid of coordinates (0,0 is the top left pixel). Read a box from it, \
                 X,Y,W,H, and go on with\n  {}  lockon pick {} --frame {index} --box X,Y,W,H -o crop.png",
                text::path(&path),
                command_of(input, &format!(" --track X,Y,W,H@{index}")),
                quoted(input),
            );
            if matches!(input, Input::Uri(uri) if uri.without_login().1) {
                let _ = write!(words, "\n{LOGIN_IS_MISSING}");
            }
            bail!("{words}");
        }
    };
    log::say(KEYS);
    match reach {
        Reach::Nothing => {}
        Reach::Forward => log::say(FORWARD_KEYS),
        Reach::Recount | Reach::Seek => log::say(SCRUB_KEYS),
    }
    match picker.pick(control)? {
        Some(picked) => Ok(Some(picked)),
        None if control.is_stopped() => Ok(None),
        None => bail!("nothing was picked"),
    }
}

/// The command that follows these boxes, each from its frame on, as a line for a shell. The number of a
/// camera's frame means nothing later.
fn command(input: &Input, boxes: &[(Rect, Option<Moment>)]) -> String {
    let mut tracks = String::new();
    for (rect, from) in boxes {
        let _ = write!(tracks, " --track {rect}");
        if let Some(from) = from {
            let _ = write!(tracks, "@{from}");
        }
    }
    command_of(input, &tracks)
}

/// Options that search for these pictures.
fn templates(pictures: &[PathBuf]) -> String {
    let mut options = String::new();
    for picture in pictures {
        let _ = write!(options, " --template {}", shell::path(&picture.to_string_lossy()));
    }
    options
}

fn command_of(input: &Input, options: &str) -> String {
    format!("lockon run {}{options}\n", quoted(input))
}

/// The input as a word for a shell that no program takes for an option.
fn quoted(input: &Input) -> String {
    // Text may be long, and the user has it.
    if matches!(input, Input::Launch(_)) {
        return "--source TEXT".to_owned();
    }
    let text = match input {
        // The line must not contain a password, and `***` opens no camera.
        Input::Uri(uri) => uri.without_login().0,
        input => input.to_string(),
    };
    if text == "-" { text } else { shell::path(&text) }
}

/// Returns the name of a file about an input, without its extension.
fn stem(input: &Input) -> String {
    let stem = match input {
        Input::File(path) => path.file_stem().map(|stem| stem.to_string_lossy().into_owned()),
        _ => None,
    };
    stem.unwrap_or_else(|| "lockon".to_owned())
}

/// `clip-2.png` for `clip.png`.
fn with_number(path: &Path, number: usize) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{number}."));
    name.push(path.extension().unwrap_or_default());
    path.with_file_name(name)
}

/// The name itself and those with the numbers from 2 on, one at least.
fn numbered(path: &Path, count: usize) -> Vec<PathBuf> {
    let more = (2..=count).map(|number| with_number(path, number));
    std::iter::once(path.to_owned()).chain(more).collect()
}

/// Returns the first numbered name whose file does not exist.
fn free_name(path: &Path) -> PathBuf {
    let names = (2..usize::MAX).map(|number| with_number(path, number));
    let mut free = names.filter(|path| path.symlink_metadata().is_err());
    free.next().expect("a folder has fewer files than there are numbers")
}

/// The frame in colour, with a grid to read positions from.
fn with_grid(frame: &Frame) -> Vec<u8> {
    let size = frame.format.size;
    let mut planes = colour::planes(frame);
    let views = planes.iter_mut().map(Plane::as_mut).collect();
    overlay::draw_grid(&mut Canvas::new(views, PixelFormat::Y444, size));
    let convert = Conversion::of(&frame.format);
    let [y, cb, cr] = planes.each_ref().map(Plane::data);
    (0..size.area()).flat_map(|at| convert.rgb([y[at], cb[at], cr[at]])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_can_be_pasted_into_a_shell() {
        let line = |input: &str, from| {
            let boxes = [(Rect::new(1, 2, 30, 40), from), (Rect::new(5, 6, 7, 8), from)];
            command(&Input::File(input.into()), &boxes)
        };
        assert_eq!(
            line("cars.mp4", Some(Moment::Frame(18))),
            "lockon run cars.mp4 --track 1,2,30,40@18 --track 5,6,7,8@18\n"
        );
        assert!(line("cars.mp4", Some(Moment::Time(62_480_000_000))).contains("40@62.48s --track"));
        assert!(
            line("it's a clip.mp4", None).starts_with(r"lockon run 'it'\''s a clip.mp4' --track 1,2,30,40 ")
        );
        assert!(line("-o.mp4", None).starts_with("lockon run ./-o.mp4 "));
        assert!(line("$(rm).mp4", None).starts_with("lockon run '$(rm).mp4' "));
    }

    #[test]
    fn the_command_for_an_address_has_neither_its_password_nor_stars_in_its_place() {
        let line = command(&Input::Uri("rtsp://me:s3cret@host/x".into()), &[(Rect::new(1, 2, 30, 40), None)]);
        assert_eq!(line, "lockon run rtsp://host/x --track 1,2,30,40\n");
    }

    #[test]
    fn names_that_are_taken_get_a_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        for expected in ["a-2.png", "a-3.png"] {
            let free = free_name(&path);
            assert_eq!(free.file_name().unwrap(), expected);
            std::fs::write(free, "").unwrap();
        }
    }
}
