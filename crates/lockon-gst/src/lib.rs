//! The GStreamer seam: video comes in, is shown and is written here. GStreamer is named nowhere else.
//!
//! [`launch`] makes pipelines from gst-launch text, most of which lies in `pipelines/*.launch`, and holds
//! them while they run. [`source`] hands decoded frames to the engine; [`sink`] takes them back with their
//! results, draws those in, and encodes or shows the frames, with the input's own sound where that is wanted.
//! [`stills`] reads pictures, for [`source`] and for templates.
//! [`cameras`] are found and [`jpeg`]s made here. [`crop`] describes buffers that show a part of their
//! memory.
//! [`detections`] reads what a detector in front has found. [`doctor`] says what is installed and what is
//! not, [`log`] joins GStreamer's log to ours, [`truncated`] tells files that were cut off, `stuck` those
//! from which nothing comes any more. [`window`] hears keys and the mouse in a window, and [`pick`] asks for
//! boxes there, on any frame of a video. [`cuda`] knows pictures that lie on a device, `pinned` those that a
//! device takes from the host without a copy.

pub mod cameras;
pub mod clips;
mod copying;
pub mod crop;
pub mod cuda;
pub mod cut;
mod damage;
pub mod detections;
pub mod doctor;
pub mod jpeg;
pub mod launch;
pub mod log;
pub mod pick;
mod pinned;
pub mod sample;
#[cfg(test)]
#[path = "../../../tests/say.rs"]
mod say;
pub mod sink;
mod sound;
pub mod source;
pub mod stills;
mod stuck;
#[cfg(test)]
mod testing;
pub mod truncated;
pub mod window;
