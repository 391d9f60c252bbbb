//! The GStreamer seam: video comes in, is shown and is written here. The program and the engine name
//! GStreamer nowhere else.
//!
//! [`launch`] makes pipelines from gst-launch text (most of it lies in `pipelines/*.launch`) and holds them
//! while they run. [`source`] hands decoded frames to the engine; [`sink`] takes them back with their
//! results, draws those in, and encodes or shows the frames, with the input's own sound where that is wanted.
//! [`stills`] reads pictures, for [`source`] and for templates. [`cameras`] lists cameras and [`jpeg`]
//! encodes pictures. [`clips`] writes clips of appearances: `copying` copies their packets, and
//! `packet_times` finds when those are decoded. [`cut`] finds where a video can be divided, by what `nal`
//! reads of its packets and `random_access` makes of that. [`crop`] describes buffers that show a part of
//! their memory. [`detections`] reads what a detector in front has found. [`doctor`] lists the parts that are
//! installed and missing, [`log`] joins GStreamer's log to ours, [`truncated`] recognises files that were cut
//! off, `stuck` files that deliver nothing any more. [`window`] receives keys and the mouse in a window, and
//! [`pick`] asks for boxes there, on any frame of a video. [`cuda`] handles pictures that lie on a device,
//! `pinned` pictures that a device takes from the host without a copy.

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
mod nal;
mod packet_times;
pub mod pick;
mod pinned;
mod random_access;
pub mod sample;
pub mod sink;
mod sound;
pub mod source;
pub mod stills;
mod stuck;
#[cfg(test)]
#[path = "../../../tests/test_log.rs"]
mod test_log;
#[cfg(test)]
mod testing;
pub mod truncated;
pub mod window;
