//! The element `lockon`: frames in, the same frames out, with the results in them.
//!
//! ```text
//! gst-launch-1.0 filesrc location=a.mp4 ! decodebin ! lockon template=logo.png ! videoconvert ! autovideosink
//! ```
//!
//! # Frames
//!
//! `video/x-raw` in system memory, with sides of 1 to 65535 pixels:
//!
//! - in any format with an 8-bit luma plane (I420, NV12, GRAY8, YV12, NV21, Y42B, Y444, NV16, NV61, NV24,
//!   Y41B, YUV9): luma is searched where it lies, nothing is converted;
//! - in packed YUV (YUY2, UYVY, YVYU, AYUV, VUYA, v308, IYU2) and with alpha (A420): 8-bit planes are
//!   gathered by one copy;
//! - with more than 8 bits a sample (GRAY16, P010, P012, P016, I420, I422 and Y444 of 10 and 12 bits, Y444 of
//!   16): the upper 8 bits of each sample count, as `videoconvert dither=none` has it;
//! - in RGB of 8 bits a sample, packed or planar, with alpha or without: luma is that of still pictures
//!   (OpenCV's rule, full range), so that a template that was cut out of such a picture scores 1. The program
//!   converts RGB to luma of limited range; a `videoconvert` in front does the same.
//!
//! A `videoconvert` in front takes the rest: formats in which samples begin between bytes or lie in tiles
//! (`v210`, `NV12_10LE32`), RGB of other depths. Frames in a GPU's memory (`memory:CUDAMemory`, in the
//! formats of the first kind; `cudaconvert` takes others, such as P010) are searched and drawn on there with
//! `backend=cuda`; tracking fetches windows of some kB. With `backend=cpu` put `cudadownload` in front.
//!
//! The incoming buffer goes out: `view` decides what is drawn into it. The element draws on it in place if it
//! holds the only reference, and on a copy otherwise. With `view=none` its pixels are never touched. On
//! frames of the last three kinds GStreamer draws (`gst_video_overlay_composition_blend`); outside of the
//! drawn parts their samples stay unchanged.
//!
//! With `view=composition` pixels are not touched either: the drawing is a `GstVideoOverlayComposition` over
//! the frame, for a sink that shows it, as `glimagesink` does. The element checks downstream as `textoverlay`
//! does, by caps with `meta:GstVideoOverlayComposition` and an ALLOCATION query; without support, `overlay`
//! is used. Both views are equal within four levels of each sample, except for the picture's own colours
//! under letters and shadows: an overlay leaves them, a composition covers them. `view` can be changed while
//! frames pass.
//!
//! The element is a border between threads, as a `queue` is: up to `depth` frames (4, of a live source 2) are
//! in flight on the device and two more wait. Events keep their place between frames, a flush drops all
//! frames inside, the end of the stream waits for them. Downstream runs on the element's thread, so put a
//! `queue` behind it where that is slow, an encoder for example.
//!
//! # Time
//!
//! Frames of a file pass as fast as they are searched and taken downstream. A live frame is searched as soon
//! as it comes and never waits for the next one; the answer to a latency query is one frame's duration more
//! than upstream's, and rises up to `depth` and two more of them only where frames were seen to stay that
//! long, searched or waiting for the search of others: a LATENCY message reports it. After ten seconds in
//! which all frames stayed for less it falls to what these needed, with a message again; a latency that rises
//! again after it fell waits twice as long each time, up to 320 seconds. Where caps have no rate the longest
//! duration of a buffer counts, and where buffers have none the stay itself.
//!
//! Frames that a sink reports as late are dropped before they are searched, also those of a file, unless
//! `qos` is false: their numbers are missing in the results, and QOS messages count them. To search every
//! frame of a file in front of a sink that keeps time, set `qos=false`. If a search slows down a live source,
//! put `queue leaky=downstream max-size-buffers=1` in front. `lockon run --print-pipeline --as-element`
//! prints both where the program would lose no frame, or would drop some to keep up.
//!
//! # Results
//!
//! On the bus, before the frame is pushed: an element message with the structure `lockon` for every frame in
//! which something was found, is followed or thresholded; `post-messages` says `all` or `none` instead. If
//! the application does not read the bus, no more than 256 are posted.
//!
//! | field | type | what |
//! |---|---|---|
//! | `frame` | guint64 | zero-based count of the frames that came, dropped ones included |
//! | `pts`, `duration` | guint64 | the buffer's, in nanoseconds; missing where it has none |
//! | `stream-time`, `running-time` | guint64 | the PTS in its segment; stream time is `pts_ns` of results files |
//! | `matches` | list of `match` | `template` (string), `x`, `y`, `w`, `h` (guint), `score`, `scale`, `angle`, `cx`, `cy` (double), `roi-id` (gint), `track` (guint: the track that lies on it; missing if none does) |
//! | `tracks` | list of `track` | `id` (guint), `name` (string; of boxes that were given one), `template` (string; of tracks of matches, `object` of tracks of objects), `state` (string), `x`, `y`, `w`, `h`, `score`, `second-peak-ratio` (double), `roi-id` (gint), `object` (guint: the place of its object in `objects`, from 1; of tracks of objects that are not lost) |
//! | `foreground` | double | share of the pixels above the threshold; missing without one |
//! | `objects` | list of `object` | `x`, `y`, `w`, `h`, `min-luma`, `max-luma` (guint), `area`, `holes` (guint64), `cx`, `cy`, `length`, `width`, `angle`, `perimeter`, `mean-luma` (double), `touches-border` (gboolean), `roi-id` (gint); missing unless `objects` is true |
//! | `more-objects` | guint64 | objects that `object-max` left out; missing if there are none |
//! | `zones` | list of `zone` | `zone` (string), `inside`, `entered`, `left` (guint64: tracks in it, and how often one came and went), `objects` (guint64: objects in it; missing unless `objects` is true); missing without zones |
//! | `lines` | list of `line` | `line` (string), `in`, `out` (guint64: tracks that have crossed it); missing without lines |
//! | `crossings` | list of `crossing` | tracks that crossed a line in this frame: `line` (string), `id` (guint), `direction` (string: `in` or `out`); missing if there are none |
//!
//! The fields have the meaning of those in results files: see `lockon_core::results`. The crate
//! `lockon-messages` reads the structures as values of Rust; the element makes them from these. `state` is
//! `tracked`, `uncertain`, `lost` or `reacquired`.
//!
//! Boxes are in pixels of the frame that caps describe. A buffer that shows a part of its memory
//! (`GstVideoCropMeta`) leaves with a `GstVideoMeta` of that part instead.
//!
//! On the buffer: a `GstVideoRegionOfInterestMeta` for each match, each object, and each track that is not
//! lost. Its type is the template's name, `object`, or `track` for a box that was given: names survive
//! converters. Its parameter is the structure of the message, `match`, `object` or `track`; converters of
//! GStreamer before 1.24 drop it. Its `id` is `roi-id`, which no other region has, also of other `lockon`
//! elements of the process; in the first of these it is the track's. A match that is followed has the track's
//! `id` as its `parent_id`. Boxes are cut off at the frame's borders, and upstream's metadata stays. Built
//! with the feature `v1_24`, as `scripts/install-plugin` does where GStreamer is new enough and the headers
//! of its plugins-bad are installed, also analytics metadata: detections, those of the first 1000 objects
//! among them, and tracking entries related to them; an entry of a lost track is marked as lost, and has no
//! detection.
//!
//! # Behind a detector
//!
//! With `track-detections` the regions of interest that upstream has put on frames become tracks, by the
//! rules of `track-matches`, but at their first sighting; the detector may look at each Nth frame only. With
//! the feature `v1_24` object detections among analytics metadata do, too. `detection-type` and
//! `min-detection-score` select them; the score is the field `confidence` of one of a region's parameters, 1
//! if there is none. A track has the region's type as its `template`.
//!
//! A detection corrects the track that it lies on: the position of the object's box relative to what the
//! tracker follows is the mean over the last few detections. If it overlaps its track by less than half, the
//! track has lost the object; it begins again there, under its number.
//!
//! If a track lies on a region of the frame, it has no region of its own: the existing one gets the parameter
//! `object_id` with the track's number as `id`, as with DL Streamer's trackers, and the track's region id if
//! it has none itself. A detection among analytics metadata is related to the track's entry instead of one of
//! the element's own. Results files have the detections as `detections`.
//!
//! # Files
//!
//! `results` writes what `lockon run --results` does, records of changed caps and of stalls included; a
//! pause, or a slow downstream, is no stall. There a frame without a PTS gets one that continues the earlier
//! ones, marked `pts_interpolated`; the frame itself, and its message, get none. A file is complete before
//! the end of the stream is pushed. A file that fails while frames pass, on a full disk, is closed with its
//! complete lines: the element warns at once, and frames and other files continue. To check that a file is
//! complete, look for the `summary` at its end.
//!
//! After the end, a flushing seek begins a new run: frames are counted from 0 again, boxes start again, files
//! are overwritten. A seek before the end continues the same run.
//!
//! # Changes
//!
//! Properties that decide the search can be set while frames pass (`template`, `threshold`, `min-score`,
//! `roi` and so on; `min-score`, `max-overlap` and `max-matches` can be controlled, and each frame is
//! searched with the values that are due at its stream time). A new value counts from the next frame that is
//! submitted; results of the frames before stay valid, and tracks and the background of a threshold continue.
//! Properties that are set by one call (`g_object_set` with several, or between `g_object_freeze_notify` and
//! `g_object_thaw_notify`) are one change: all of it is done or nothing. A value that cannot be used gives a
//! warning on the bus, and the property gets its earlier value back. Errors that only a frame shows, such as
//! a box outside of it, are reported with the next frame. The device, the boxes of `track`, `track-matches`,
//! `track-objects`, `zone` and `line` are taken on the way from READY to PAUSED.
//!
//! Action signals change the tracks, from any thread, from the first frame to the end of the stream, and the
//! templates from PAUSED on. They count from the next frame that is searched:
//!
//! | signal | arguments (guint) | gives | what |
//! |---|---|---|---|
//! | `follow` | x, y, w, h | guint: the track's id, 0 if there is no run | follows the object in this box of the next frame |
//! | `correct` | id, x, y, w, h | gboolean | the target of a track is in this box: it is learnt again under its id |
//! | `forget` | id | gboolean | follows this track no more |
//! | `clear` | | gboolean | follows no track any more |
//! | `add-template` | name (string), sample (`GstSample`) | gboolean | searches for the sample's picture, in place of the template with that name |
//! | `remove-template` | name (string) | gboolean | searches for it no more |
//!
//! FALSE means that the element refused it; a warning on the bus has the reason. A sample has raw pixels in
//! system memory, or is an encoded picture (`image/png`, `image/jpeg`, `image/bmp`). Its luma plane is used
//! unchanged if that holds for frames of its format; other YUV is converted to 8 bits, and RGB becomes luma
//! as in files. Alpha is the mask. `template` lists only files: a name given to one of these signals is
//! removed from it. Templates that they added are gone after READY.
//!
//! With `navigation` a box that is dragged in a window downstream is followed too, from the shown frame on,
//! and a clicked track is forgotten.
//!
//! Requests that then turn out to be impossible, such as a box outside of the frame, give a warning on the
//! bus. Each of these changes, those of properties too, is a record of the type `control` in results files;
//! `control` with such a file repeats them at the same frames, so that the same video has the same results.
//!
//! `GstPreset` keeps all properties under a name.
//!
//! # Errors
//!
//! The text has the failure and the remedy.
//!
//! | error | what |
//! |---|---|
//! | `GST_LIBRARY_ERROR_SETTINGS` | a value, template or box cannot be used |
//! | `GST_LIBRARY_ERROR_FAILED` | a fault of lockon's own: a panic was caught |
//! | `GST_RESOURCE_ERROR_NOT_FOUND` | there is no such file, folder, device or driver |
//! | `GST_RESOURCE_ERROR_NOT_AUTHORIZED` | a file may not be read or written |
//! | `GST_RESOURCE_ERROR_OPEN_READ`, `_READ` | a file cannot be read, or is no picture |
//! | `GST_RESOURCE_ERROR_OPEN_WRITE`, `_WRITE` | a results file cannot be written; a warning where frames have passed already |
//! | `GST_RESOURCE_ERROR_NO_SPACE_LEFT` | a disk on which a file is to be created is full, or the device's or the host's memory is |
//! | `GST_RESOURCE_ERROR_SETTINGS` | the device or its driver is too old, or frames are too large for it |
//! | `GST_RESOURCE_ERROR_FAILED` | a device failed while it worked (`on-device-loss=cpu` continues without it) |
//! | `GST_STREAM_ERROR_FORMAT` | frames are not as their caps say |
//! | `GST_STREAM_ERROR_FAILED` | downstream refuses frames after the end of the stream, when upstream gets no error any more |

use std::sync::LazyLock;

use gst::glib;
use gst::prelude::*;

mod audience;
mod choices;
mod composition;
mod imp;
mod latency;
mod line;
mod log;
mod marks;
mod run;
mod settings;
mod trouble;
mod work;

pub use choices::{OnDeviceLoss, PostMessages, Range, Search, View};

static CAT: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    gst::DebugCategory::new(
        "lockon",
        gst::DebugColorFlags::empty(),
        Some("lockon: finds and follows patterns"),
    )
});

glib::wrapper! {
    /// The element.
    pub struct Lockon(ObjectSubclass<imp::Lockon>) @extends gst::Element, gst::Object, @implements gst::Preset;
}

pub(crate) fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    // Registers the types where documentation tools look for them.
    for choice in choices::types() {
        choice.mark_as_plugin_api(gst::PluginAPIFlags::empty());
    }
    gst::Element::register(Some(plugin), "lockon", gst::Rank::NONE, Lockon::static_type())
}
