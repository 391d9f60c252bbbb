//! The results of the GStreamer element `lockon` for a frame, as plain values: read from the bus, and from
//! the parameters of regions of interest.
//!
//! ```no_run
//! use lockon_messages::Results;
//!
//! fn watch(bus: &gst::Bus) {
//!     for message in bus.iter_timed(gst::ClockTime::NONE) {
//!         // Other messages are not ours.
//!         let said = message.structure().and_then(|said| Results::try_from(said).ok());
//!         for track in said.iter().flat_map(|results| &results.tracks) {
//!             println!("track {} is at {:.0}, {:.0}", track.id, track.x, track.y);
//!         }
//!     }
//! }
//! ```
//!
//! The element makes its messages of these values too, so what is written is what is read. It depends on
//! `gstreamer` alone.

use std::fmt;
use std::str::FromStr;

use gst::ClockTime;

/// The results of a frame: the structure `lockon` of an element message.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Results {
    /// Zero-based count of the frames that came to the element, dropped ones included.
    pub frame: u64,
    /// The buffer's time, where it has one.
    pub pts: Option<ClockTime>,
    /// The buffer's duration, where it has one.
    pub duration: Option<ClockTime>,
    /// The time in the stream: what results files call `pts_ns`.
    pub stream_time: Option<ClockTime>,
    /// The time since the pipeline began to play.
    pub running_time: Option<ClockTime>,
    /// The matches of templates, the best of each template first.
    pub matches: Vec<Match>,
    /// The tracks, by their ids.
    pub tracks: Vec<Track>,
    /// Share of the pixels above the threshold, from 0 to 1; none without a threshold.
    pub foreground: Option<f64>,
    /// The objects of the thresholded frame; none where they were not requested.
    pub objects: Option<Vec<Object>>,
    /// Objects beyond the maximum number.
    pub more_objects: u64,
    /// The zones, with what is in them.
    pub zones: Vec<ZoneCount>,
    /// The lines, with the tracks that have crossed them.
    pub lines: Vec<LineCount>,
    /// The tracks that crossed a line in this frame.
    pub crossings: Vec<Crossing>,
}

/// What is in a zone: a structure `zone` in the message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ZoneCount {
    /// Its name.
    pub zone: String,
    /// Tracks that are in it.
    pub inside: u64,
    /// Times that a track came into it.
    pub entered: u64,
    /// Times that a track went out of it, or ended in it.
    pub left: u64,
    /// Objects of the thresholded frame that are in it; none where they were not requested.
    pub objects: Option<u64>,
}

/// How often a line was crossed so far: a structure `line` in the message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LineCount {
    /// Its name.
    pub line: String,
    /// From its left to its right side, looking from its first end to its second: the field `in`.
    pub inwards: u64,
    /// From its right to its left side: the field `out`.
    pub outwards: u64,
}

/// A track crossed a line: a structure `crossing` in the message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Crossing {
    /// The line's name.
    pub line: String,
    /// The track's number.
    pub id: u32,
    /// `in` or `out`, as the counts of a [`LineCount`].
    pub direction: String,
}

/// A place where a template was found: a structure `match`, in the message and as the parameter of a region
/// of interest.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Match {
    /// The template's name.
    pub template: String,
    /// Leftmost column of the upright box around it.
    pub x: u32,
    /// Topmost row.
    pub y: u32,
    /// Width in pixels.
    pub w: u32,
    /// Height in pixels.
    pub h: u32,
    /// Exact NCC score, from -1 to 1.
    pub score: f64,
    /// Size of the match divided by the template's.
    pub scale: f64,
    /// How it is turned, in degrees, counter-clockwise.
    pub angle: f64,
    /// Its middle, finer than pixels.
    pub cx: f64,
    /// Its middle, finer than pixels.
    pub cy: f64,
    /// The id of its region of interest.
    pub roi_id: i32,
    /// The track that lies on it.
    pub track: Option<u32>,
}

/// Where something that is followed is: a structure `track`, in the message and as the parameter of a region
/// of interest.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Track {
    /// Its number, 1 or more.
    pub id: u32,
    /// The name that its box was given.
    pub name: Option<String>,
    /// The template or the detector's class from which the track was made; `None` for a box that was given.
    pub template: Option<String>,
    /// How sure it is.
    pub state: TrackState,
    /// Left border, in pixels.
    pub x: f64,
    /// Upper border.
    pub y: f64,
    /// Width.
    pub w: f64,
    /// Height.
    pub h: f64,
    /// How likely the box is right, from 0 to 1.
    pub score: f64,
    /// The second best place's response over the best one's.
    pub second_peak_ratio: f64,
    /// The id of its region of interest.
    pub roi_id: i32,
    /// Of a track of an object: the place of its object in the message, from 1.
    pub object: Option<u32>,
}

/// An object of the thresholded frame, a connected component: a structure `object`, in the message and as the
/// parameter of a region of interest.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Object {
    /// Leftmost column of its box.
    pub x: u32,
    /// Topmost row.
    pub y: u32,
    /// Width in pixels.
    pub w: u32,
    /// Height in pixels.
    pub h: u32,
    /// Number of its pixels.
    pub area: u64,
    /// Its centre of mass, finer than pixels.
    pub cx: f64,
    /// Its centre of mass, finer than pixels.
    pub cy: f64,
    /// Long axis of the ellipse with the same second moments.
    pub length: f64,
    /// Short axis of that ellipse.
    pub width: f64,
    /// Direction of the long axis, in degrees, counter-clockwise.
    pub angle: f64,
    /// Length of all of its borders.
    pub perimeter: f64,
    /// Number of holes.
    pub holes: u64,
    /// Least luma of its pixels.
    pub min_luma: u32,
    /// Mean luma.
    pub mean_luma: f64,
    /// Greatest luma.
    pub max_luma: u32,
    /// True if it reaches the border of the frame.
    pub touches_border: bool,
    /// The id of its region of interest.
    pub roi_id: i32,
}

/// How sure a track is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum TrackState {
    /// It is on its target.
    #[default]
    Tracked,
    /// It may be.
    Uncertain,
    /// It is not seen, and lies where it was last.
    Lost,
    /// It was found again in this frame.
    Reacquired,
}

impl TrackState {
    const ALL: [Self; 4] = [Self::Tracked, Self::Uncertain, Self::Lost, Self::Reacquired];

    /// As messages have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tracked => "tracked",
            Self::Uncertain => "uncertain",
            Self::Lost => "lost",
            Self::Reacquired => "reacquired",
        }
    }
}

impl FromStr for TrackState {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|state| state.name() == text);
        known.ok_or_else(|| {
            Error(format!("state {text:?} is none of tracked, uncertain, lost and reacquired"))
        })
    }
}

/// Why a structure is none of the element's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// A structure's fields, for those who expect some.
struct Fields<'a>(&'a gst::StructureRef);

impl<'a> Fields<'a> {
    fn of(structure: &'a gst::StructureRef, name: &str) -> Result<Self, Error> {
        if structure.name() == name {
            Ok(Self(structure))
        } else {
            Err(Error(format!("structure is named {:?}, expected {name:?}", structure.name())))
        }
    }

    fn get<T>(&self, field: &str) -> Result<T, Error>
    where
        T: gst::glib::value::FromValue<'a>,
        T::Checker: gst::glib::value::ValueTypeChecker,
        <T::Checker as gst::glib::value::ValueTypeChecker>::Error: fmt::Display,
    {
        let value = self.0.value(field).map_err(|error| Error(error.to_string()))?;
        value.get().map_err(|error| Error(format!("field {field:?} of {:?}: {error}", self.0.name())))
    }

    /// Returns the value of a field that may be missing.
    fn find<T>(&self, field: &str) -> Result<Option<T>, Error>
    where
        T: gst::glib::value::FromValue<'a>,
        T::Checker: gst::glib::value::ValueTypeChecker,
        <T::Checker as gst::glib::value::ValueTypeChecker>::Error: fmt::Display,
    {
        if self.0.has_field(field) { self.get(field).map(Some) } else { Ok(None) }
    }

    /// A list that is missing if it is empty.
    fn list_or_none<T: for<'b> TryFrom<&'b gst::StructureRef, Error = Error>>(
        &self,
        field: &str,
    ) -> Result<Vec<T>, Error> {
        if self.0.has_field(field) { self.list(field) } else { Ok(Vec::new()) }
    }

    fn list<T: for<'b> TryFrom<&'b gst::StructureRef, Error = Error>>(
        &self,
        field: &str,
    ) -> Result<Vec<T>, Error> {
        let list: gst::List = self.get(field)?;
        let part = |value: &gst::glib::SendValue| {
            let structure = value.get::<gst::Structure>();
            let structure = structure.map_err(|error| Error(format!("field {field:?}: {error}")))?;
            T::try_from(&structure)
        };
        list.iter().map(part).collect()
    }
}

impl TryFrom<&gst::StructureRef> for ZoneCount {
    type Error = Error;

    fn try_from(structure: &gst::StructureRef) -> Result<Self, Error> {
        let fields = Fields::of(structure, "zone")?;
        Ok(Self {
            zone: fields.get("zone")?,
            inside: fields.get("inside")?,
            entered: fields.get("entered")?,
            left: fields.get("left")?,
            objects: fields.find("objects")?,
        })
    }
}

impl From<&ZoneCount> for gst::Structure {
    fn from(zone: &ZoneCount) -> Self {
        Self::builder("zone")
            .field("zone", &*zone.zone)
            .field("inside", zone.inside)
            .field("entered", zone.entered)
            .field("left", zone.left)
            .field_if_some("objects", zone.objects)
            .build()
    }
}

impl TryFrom<&gst::StructureRef> for LineCount {
    type Error = Error;

    fn try_from(structure: &gst::StructureRef) -> Result<Self, Error> {
        let fields = Fields::of(structure, "line")?;
        Ok(Self { line: fields.get("line")?, inwards: fields.get("in")?, outwards: fields.get("out")? })
    }
}

impl From<&LineCount> for gst::Structure {
    fn from(line: &LineCount) -> Self {
        Self::builder("line")
            .field("line", &*line.line)
            .field("in", line.inwards)
            .field("out", line.outwards)
            .build()
    }
}

impl TryFrom<&gst::StructureRef> for Crossing {
    type Error = Error;

    fn try_from(structure: &gst::StructureRef) -> Result<Self, Error> {
        let fields = Fields::of(structure, "crossing")?;
        Ok(Self { line: fields.get("line")?, id: fields.get("id")?, direction: fields.get("direction")? })
    }
}

impl From<&Crossing> for gst::Structure {
    fn from(crossing: &Crossing) -> Self {
        Self::builder("crossing")
            .field("line", &*crossing.line)
            .field("id", crossing.id)
            .field("direction", &*crossing.direction)
            .build()
    }
}

impl TryFrom<&gst::StructureRef> for Results {
    type Error = Error;

    fn try_from(structure: &gst::StructureRef) -> Result<Self, Error> {
        let fields = Fields::of(structure, "lockon")?;
        Ok(Self {
            frame: fields.get("frame")?,
            pts: fields.find("pts")?,
            duration: fields.find("duration")?,
            stream_time: fields.find("stream-time")?,
            running_time: fields.find("running-time")?,
            matches: fields.list("matches")?,
            tracks: fields.list("tracks")?,
            foreground: fields.find("foreground")?,
            objects: fields.0.has_field("objects").then(|| fields.list("objects")).transpose()?,
            more_objects: fields.find("more-objects")?.unwrap_or_default(),
            zones: fields.list_or_none("zones")?,
            lines: fields.list_or_none("lines")?,
            crossings: fields.list_or_none("crossings")?,
        })
    }
}

/// A list of structures; none if it is empty.
fn list<T>(all: &[T]) -> Option<gst::List>
where
    for<'a> gst::Structure: From<&'a T>,
{
    (!all.is_empty()).then(|| gst::List::new(all.iter().map(gst::Structure::from)))
}

impl From<&Results> for gst::Structure {
    fn from(results: &Results) -> Self {
        let objects = results.objects.as_ref().map(|objects| objects.iter().map(Self::from));
        Self::builder("lockon")
            .field("frame", results.frame)
            .field_if_some("pts", results.pts)
            .field_if_some("duration", results.duration)
            .field_if_some("stream-time", results.stream_time)
            .field_if_some("running-time", results.running_time)
            .field("matches", gst::List::new(results.matches.iter().map(Self::from)))
            .field("tracks", gst::List::new(results.tracks.iter().map(Self::from)))
            .field_if_some("foreground", results.foreground)
            .field_if_some("objects", objects.map(gst::List::new))
            .field_if_some("more-objects", Some(results.more_objects).filter(|more| *more > 0))
            .field_if_some("zones", list(&results.zones))
            .field_if_some("lines", list(&results.lines))
            .field_if_some("crossings", list(&results.crossings))
            .build()
    }
}

impl TryFrom<&gst::StructureRef> for Match {
    type Error = Error;

    fn try_from(structure: &gst::StructureRef) -> Result<Self, Error> {
        let fields = Fields::of(structure, "match")?;
        Ok(Self {
            template: fields.get("template")?,
            x: fields.get("x")?,
            y: fields.get("y")?,
            w: fields.get("w")?,
            h: fields.get("h")?,
            score: fields.get("score")?,
            scale: fields.get("scale")?,
            angle: fields.get("angle")?,
            cx: fields.get("cx")?,
            cy: fields.get("cy")?,
            roi_id: fields.get("roi-id")?,
            track: fields.find("track")?,
        })
    }
}

impl From<&Match> for gst::Structure {
    fn from(found: &Match) -> Self {
        Self::builder("match")
            .field("template", &*found.template)
            .field("x", found.x)
            .field("y", found.y)
            .field("w", found.w)
            .field("h", found.h)
            .field("score", found.score)
            .field("scale", found.scale)
            .field("angle", found.angle)
            .field("cx", found.cx)
            .field("cy", found.cy)
            .field("roi-id", found.roi_id)
            .field_if_some("track", found.track)
            .build()
    }
}

impl TryFrom<&gst::StructureRef> for Track {
    type Error = Error;

    fn try_from(structure: &gst::StructureRef) -> Result<Self, Error> {
        let fields = Fields::of(structure, "track")?;
        Ok(Self {
            id: fields.get("id")?,
            name: fields.find("name")?,
            template: fields.find("template")?,
            state: fields.get::<&str>("state")?.parse()?,
            x: fields.get("x")?,
            y: fields.get("y")?,
            w: fields.get("w")?,
            h: fields.get("h")?,
            score: fields.get("score")?,
            second_peak_ratio: fields.get("second-peak-ratio")?,
            roi_id: fields.get("roi-id")?,
            object: fields.find("object")?,
        })
    }
}

impl From<&Track> for gst::Structure {
    fn from(track: &Track) -> Self {
        Self::builder("track")
            .field("id", track.id)
            .field_if_some("name", track.name.as_deref())
            .field_if_some("template", track.template.as_deref())
            .field("state", track.state.name())
            .field("x", track.x)
            .field("y", track.y)
            .field("w", track.w)
            .field("h", track.h)
            .field("score", track.score)
            .field("second-peak-ratio", track.second_peak_ratio)
            .field("roi-id", track.roi_id)
            .field_if_some("object", track.object)
            .build()
    }
}

impl TryFrom<&gst::StructureRef> for Object {
    type Error = Error;

    fn try_from(structure: &gst::StructureRef) -> Result<Self, Error> {
        let fields = Fields::of(structure, "object")?;
        Ok(Self {
            x: fields.get("x")?,
            y: fields.get("y")?,
            w: fields.get("w")?,
            h: fields.get("h")?,
            area: fields.get("area")?,
            cx: fields.get("cx")?,
            cy: fields.get("cy")?,
            length: fields.get("length")?,
            width: fields.get("width")?,
            angle: fields.get("angle")?,
            perimeter: fields.get("perimeter")?,
            holes: fields.get("holes")?,
            min_luma: fields.get("min-luma")?,
            mean_luma: fields.get("mean-luma")?,
            max_luma: fields.get("max-luma")?,
            touches_border: fields.get("touches-border")?,
            roi_id: fields.get("roi-id")?,
        })
    }
}

impl From<&Object> for gst::Structure {
    fn from(object: &Object) -> Self {
        Self::builder("object")
            .field("x", object.x)
            .field("y", object.y)
            .field("w", object.w)
            .field("h", object.h)
            .field("area", object.area)
            .field("cx", object.cx)
            .field("cy", object.cy)
            .field("length", object.length)
            .field("width", object.width)
            .field("angle", object.angle)
            .field("perimeter", object.perimeter)
            .field("holes", object.holes)
            .field("min-luma", object.min_luma)
            .field("mean-luma", object.mean_luma)
            .field("max-luma", object.max_luma)
            .field("touches-border", object.touches_border)
            .field("roi-id", object.roi_id)
            .build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Results {
        let found = Match {
            template: "logo".into(),
            x: 3,
            y: 5,
            w: 7,
            h: 11,
            score: 0.875,
            scale: 1.25,
            angle: -15.0,
            cx: 6.5,
            cy: 10.5,
            roi_id: 524_288,
            track: Some(2),
        };
        let track = Track {
            id: 2,
            name: Some("van".into()),
            template: Some("logo".into()),
            state: TrackState::Reacquired,
            x: 1.5,
            y: 2.5,
            w: 30.25,
            h: 40.75,
            score: 0.625,
            second_peak_ratio: 0.5,
            roi_id: 2,
            object: Some(1),
        };
        let object = Object {
            x: 1,
            y: 2,
            w: 9,
            h: 4,
            area: 30,
            cx: 5.125,
            cy: 3.5,
            length: 8.5,
            width: 3.25,
            angle: -12.5,
            perimeter: 25.75,
            holes: 1,
            min_luma: 10,
            mean_luma: 100.5,
            max_luma: 200,
            touches_border: true,
            roi_id: 524_289,
        };
        Results {
            frame: 42,
            pts: Some(ClockTime::from_mseconds(1680)),
            duration: Some(ClockTime::from_mseconds(40)),
            stream_time: Some(ClockTime::from_mseconds(1700)),
            running_time: Some(ClockTime::from_mseconds(80)),
            matches: vec![found.clone(), Match { track: None, ..found }],
            tracks: vec![
                track.clone(),
                Track { id: 3, name: None, template: None, state: TrackState::Lost, object: None, ..track },
            ],
            foreground: Some(0.25),
            objects: Some(vec![object.clone(), Object { touches_border: false, ..object }]),
            more_objects: 3,
            zones: vec![
                ZoneCount { zone: "yard".into(), inside: 2, entered: 5, left: 3, objects: Some(4) },
                ZoneCount { zone: "front door".into(), ..ZoneCount::default() },
            ],
            lines: vec![LineCount { line: "gate".into(), inwards: 7, outwards: 6 }],
            crossings: vec![Crossing { line: "gate".into(), id: 2, direction: "out".into() }],
        }
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        gst::init().unwrap();
        for results in [
            full(),
            Results::default(),
            Results { foreground: None, pts: None, ..full() },
            Results { objects: None, more_objects: 0, ..full() },
            Results { objects: Some(Vec::new()), ..full() },
        ] {
            let structure = gst::Structure::from(&results);
            assert_eq!(Results::try_from(&*structure).unwrap(), results);
            // Through text, as logs and files have it.
            let text = structure.to_string().parse::<gst::Structure>();
            if !results.matches.is_empty() {
                assert_eq!(Results::try_from(&*text.unwrap()).unwrap(), results);
            }
        }
        for state in TrackState::ALL {
            assert_eq!(state.name().parse::<TrackState>().unwrap(), state);
        }
    }

    #[test]
    fn what_others_say_and_what_lacks_something_is_refused_with_a_reason() {
        gst::init().unwrap();
        let reason = |structure: &gst::Structure| Results::try_from(&**structure).unwrap_err().to_string();
        let other = gst::Structure::builder("level").field("rms", 1.0).build();
        assert_eq!(reason(&other), "structure is named \"level\", expected \"lockon\"");
        let mut broken = gst::Structure::from(&full());
        broken.remove_field("tracks");
        assert!(reason(&broken).contains("tracks"), "{}", reason(&broken));
        broken.set("tracks", gst::List::new([gst::Structure::new_empty("track")]));
        assert!(reason(&broken).contains("id"), "{}", reason(&broken));
        broken.set("tracks", 7);
        assert!(reason(&broken).contains("tracks"), "{}", reason(&broken));
        let wrong = gst::Structure::builder("lockon").field("frame", "first").build();
        assert!(reason(&wrong).contains("\"frame\" of \"lockon\""), "{}", reason(&wrong));
        assert!("gone".parse::<TrackState>().unwrap_err().to_string().contains("\"gone\""));
    }
}
