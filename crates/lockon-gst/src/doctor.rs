//! Finds the parts that are installed and missing, and the command that fixes it.
//!
//! [`check`] looks and returns plain data; nothing is printed, opened or started here. A package is
//! recognised by the elements that it brings, since GStreamer itself can be asked only for elements.

use std::path::{Path, PathBuf};

use crate::cuda;
use crate::launch;
use crate::source::nvidia_codecs;

/// One thing that was checked, and the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// `GStreamer`, a package, `camera`, `cuda`.
    pub subject: String,
    /// State of the part.
    pub health: Health,
    /// The part that was found or is missing, and what that means.
    pub detail: String,
    /// The remedy, if there is one: a command if it is a package.
    pub fix: Option<String>,
}

/// The state of a part that was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// As it should be.
    Good,
    /// Not there, and lockon works without it.
    Absent,
    /// Not there, or too old, and something that lockon offers does not work.
    Bad,
}

impl Finding {
    fn new(subject: impl Into<String>, health: Health, detail: impl Into<String>) -> Self {
        Self { subject: subject.into(), health, detail: detail.into(), fix: None }
    }
}

/// The elements that lockon uses of each package: the package, its purpose, and its elements, with one space
/// between.
const NEEDED: &[(&str, &str, &str)] = &[
    (
        "gstreamer1.0-plugins-base",
        "reads and converts video",
        "appsink appsrc decodebin uridecodebin videoconvert",
    ),
    (
        "gstreamer1.0-plugins-good",
        "reads and writes MP4, Matroska, WebM, AVI; cameras, RTSP, display, rotated and interlaced video",
        "qtdemux mp4mux matroskademux matroskamux webmmux avidemux avimux vp8dec vp8enc jpegdec jpegenc \
         v4l2src rtspsrc souphttpsrc autovideosink videoflip deinterlace",
    ),
    ("gstreamer1.0-plugins-bad", "reads H.264 and H.265 streams, MPEG-TS", "h264parse h265parse tsdemux"),
    ("gstreamer1.0-libav", "decodes H.264, H.265, MPEG-4", "avdec_h264 avdec_h265 avdec_mpeg4"),
    ("gstreamer1.0-plugins-ugly", "writes H.264", "x264enc"),
];

/// The oldest GStreamer that lockon supports.
const OLDEST_GSTREAMER: (u32, u32) = (1, 22);

/// Looks at GStreamer, its plugins and cameras. Each problem comes with the command that fixes it.
pub fn check() -> Vec<Finding> {
    let mut findings = Vec::new();
    match launch::init() {
        Ok(()) => {
            findings.push(gstreamer());
            findings.extend(
                NEEDED.iter().map(|(package, purpose, elements)| plugins(package, purpose, elements)),
            );
        }
        Err(error) => {
            let mut finding = Finding::new("GStreamer", Health::Bad, error.to_string());
            finding.fix = Some(format!("{INSTALL}libgstreamer1.0-0 gstreamer1.0-tools"));
            findings.push(finding);
        }
    }
    findings.push(camera());
    findings
}

/// Returns the version of the GStreamer that is used, as `GStreamer 1.22.0`. It need not be initialised.
pub fn gstreamer_version() -> String {
    gst::version_string().into()
}

/// Checks the decoders on NVIDIA GPUs, and the library that leaves frames there.
pub fn nvidia() -> Vec<Finding> {
    if launch::init().is_err() {
        return Vec::new();
    }
    let codecs: Vec<_> =
        nvidia_codecs().iter().map(|name| name.trim_start_matches("video/x-").to_owned()).collect();
    let mut nvdec = Finding::new("nvdec", Health::Good, format!("decodes {}", codecs.join(", ")));
    if codecs.is_empty() {
        nvdec = Finding::new("nvdec", Health::Absent, "no decoder of NVIDIA's is there: software decodes");
        let packages = "gstreamer1.0-plugins-bad, and libnvcuvid1 where the driver is Debian's";
        nvdec.fix = Some(format!("{INSTALL}{packages}"));
    }
    let library = if cuda::is_usable() {
        let detail = format!("{} is there: frames that NVDEC decodes stay on the GPU", cuda::LIBRARY);
        Finding::new("libgstcuda", Health::Good, detail)
    } else {
        let detail = format!("{} is not there: decoded frames go through host memory", cuda::LIBRARY);
        let mut finding = Finding::new("libgstcuda", Health::Absent, detail);
        finding.fix = Some(format!("{INSTALL}libgstreamer-plugins-bad1.0-0"));
        finding
    };
    vec![nvdec, library]
}

/// The command that installs all missing packages; `None` if none is missing.
pub fn install_command(findings: &[Finding]) -> Option<String> {
    let bad = findings.iter().filter(|finding| finding.health == Health::Bad);
    let missing = bad.filter_map(|finding| finding.fix.as_deref()?.strip_prefix(INSTALL));
    let packages = missing.collect::<Vec<_>>().join(" ");
    (!packages.is_empty()).then(|| format!("{INSTALL}{packages}"))
}

/// As in `scripts/setup`: recommended packages are several times as large as the needed ones.
const INSTALL: &str = "apt-get install --no-install-recommends ";

fn gstreamer() -> Finding {
    let (major, minor, ..) = gst::version();
    let (old_major, old_minor) = OLDEST_GSTREAMER;
    let version = gstreamer_version();
    if (major, minor) < OLDEST_GSTREAMER {
        return Finding::new(
            "GStreamer",
            Health::Bad,
            format!("{version}, {old_major}.{old_minor} or newer is needed"),
        );
    }
    Finding::new("GStreamer", Health::Good, version)
}

fn plugins(package: &str, purpose: &str, elements: &str) -> Finding {
    let missing: Vec<_> =
        elements.split(' ').filter(|name| gst::ElementFactory::find(name).is_none()).collect();
    if missing.is_empty() {
        return Finding::new(package, Health::Good, purpose);
    }
    let mut finding =
        Finding::new(package, Health::Bad, format!("{purpose}; missing: {}", missing.join(", ")));
    finding.fix = Some(format!("{INSTALL}{package}"));
    finding
}

fn camera() -> Finding {
    let cameras = cameras();
    if cameras.is_empty() {
        return Finding::new("camera", Health::Absent, "none found: there is no /dev/video*");
    }
    let names = cameras.iter().map(|path| match camera_name(path) {
        Some(name) => format!("{} ({name})", path.display()),
        None => path.display().to_string(),
    });
    Finding::new("camera", Health::Good, names.collect::<Vec<_>>().join(", "))
}

/// Returns the name that a camera reports.
fn camera_name(device: &Path) -> Option<String> {
    let file = Path::new("/sys/class/video4linux").join(device.file_name()?).join("name");
    Some(std::fs::read_to_string(file).ok()?.trim().to_owned())
}

/// Debian's and Ubuntu's packages, each with the elements that lockon or its users may name.
///
/// `dpkg -S` on Debian 12; an element that is not in this list has no known package, so it is most likely
/// misspelt.
const PACKAGES: &[(&str, &str)] = &[
    ("libgstreamer1.0-0", "filesrc filesink fdsink fakesink queue tee typefind"),
    (
        "gstreamer1.0-plugins-base",
        "appsink appsrc audioconvert audioresample compositor decodebin encodebin oggdemux oggmux opusdec \
         opusenc theoradec theoraenc uridecodebin videoconvert videorate videoscale videotestsrc \
         vorbisdec vorbisenc",
    ),
    (
        "gstreamer1.0-plugins-good",
        "aacparse autoaudiosink autovideosink avidemux avimux deinterlace flvdemux flvmux imagefreeze \
         jpegdec jpegenc lamemp3enc matroskademux matroskamux mp4mux mpegaudioparse mpg123audiodec \
         multifilesink multifilesrc pngdec pngenc pulsesink qtdemux qtmux rtph264depay rtph264pay rtph265depay \
         rtpjitterbuffer rtspsrc souphttpsrc taginject udpsink udpsrc v4l2src v4l2sink videobox videocrop \
         videoflip vp8dec vp8enc vp9dec vp9enc wavenc webmmux y4menc",
    ),
    (
        "gstreamer1.0-plugins-bad",
        "av1dec av1enc av1parse cudadownload cudaupload dashdemux fpsdisplaysink h264parse h265parse \
         hlsdemux hlssink2 mpeg4videoparse mpegtsmux mpegvideoparse openh264dec openh264enc opusparse \
         rtmpsink rtmpsrc sdpdemux shmsink shmsrc srtsink srtsrc tsdemux voaacenc vp9parse waylandsink \
         webrtcbin x265enc y4mdec",
    ),
    ("gstreamer1.0-plugins-ugly", "a52dec asfdemux mpeg2dec x264enc"),
    ("gstreamer1.0-libav", "avdec_h264 avdec_h265 avdec_mpeg4 avenc_aac"),
    ("gstreamer1.0-x", "textoverlay ximagesink ximagesrc xvimagesink"),
    ("gstreamer1.0-gl", "glcolorconvert gldownload glimagesink glupload"),
    ("gstreamer1.0-alsa", "alsasink alsasrc"),
    ("gstreamer1.0-rtsp", "rtspclientsink"),
    ("gstreamer1.0-gtk3", "gtksink gtkglsink"),
];

/// Families of elements, recognised by the beginning of their names.
const FAMILIES: &[(&str, &str)] = &[
    ("avdec_", "gstreamer1.0-libav"),
    ("avenc_", "gstreamer1.0-libav"),
    ("avmux_", "gstreamer1.0-libav"),
    ("avdemux_", "gstreamer1.0-libav"),
    ("vaapi", "gstreamer1.0-vaapi"),
    ("nvh26", "gstreamer1.0-plugins-bad"),
];

/// The Debian package that has the element of that factory name, where it is known.
pub fn package_of(element: &str) -> Option<&'static str> {
    let listed = PACKAGES.iter().find(|(_, elements)| elements.split(' ').any(|name| name == element));
    let family = || FAMILIES.iter().find(|(start, _)| element.starts_with(start));
    listed.map(|(package, _)| *package).or_else(|| family().map(|(_, package)| *package))
}

/// The cameras of this machine: `/dev/video0` and so on, in the order of their numbers.
pub fn cameras() -> Vec<PathBuf> {
    let number = |path: &PathBuf| path.file_name()?.to_str()?.strip_prefix("video")?.parse::<u32>().ok();
    let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let mut cameras: Vec<_> =
        entries.map(|entry| entry.path()).filter(|path| number(path).is_some()).collect();
    cameras.sort_by_key(number);
    cameras
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_needed_element_is_known_to_be_in_its_package() {
        for (package, _, elements) in NEEDED {
            for element in elements.split(' ') {
                assert_eq!(package_of(element), Some(*package), "{element}");
            }
        }
    }

    #[test]
    fn missing_packages_are_fixed_by_one_command() {
        let mut findings = vec![Finding::new("camera", Health::Absent, "none")];
        assert_eq!(install_command(&findings), None);
        launch::init().unwrap();
        findings.push(plugins("one", "does this", "no-such-element queue"));
        findings.push(plugins("two", "does that", "no-other-element"));
        assert_eq!(findings[1].detail, "does this; missing: no-such-element");
        assert_eq!(install_command(&findings).unwrap(), "apt-get install --no-install-recommends one two");
    }

    #[test]
    fn the_machine_that_runs_the_tests_is_told_about() {
        let subjects = check().into_iter().map(|finding| finding.subject).collect::<Vec<_>>();
        assert!(
            ["GStreamer", "gstreamer1.0-plugins-base", "camera"]
                .iter()
                .all(|s| subjects.iter().any(|t| t == s))
        );
    }
}
