//! The GStreamer seam: video comes in, is shown and is written here. GStreamer is named nowhere else.
//!
//! [`launch`] makes pipelines from gst-launch text, most of which lies in `pipelines/*.launch`, and holds them while they run.
//! [`source`] hands decoded frames to the engine. [`doctor`] says what is installed and what is not.

pub mod doctor;
pub mod launch;
pub mod source;
