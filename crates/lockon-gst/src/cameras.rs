//! Which cameras this machine has.

use gst::prelude::*;

use super::launch;

/// A camera that can be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Camera {
    /// What it calls itself.
    pub name: String,
    /// Its device, as in `/dev/video0`.
    pub device: String,
}

/// The cameras that GStreamer finds, by their devices; none where it finds none, or is not there. Takes as
/// long as asking each of them.
pub fn cameras() -> Vec<Camera> {
    if launch::init().is_err() {
        return Vec::new();
    }
    let monitor = gst::DeviceMonitor::new();
    monitor.add_filter(Some("Video/Source"), None);
    let camera = |device: &gst::Device| {
        let properties = device.properties()?;
        // The first as of GStreamer 1.24, and PipeWire's.
        let path = ["api.v4l2.path", "device.path"].iter().find_map(|name| properties.get(*name).ok())?;
        Some(Camera { name: device.display_name().into(), device: path })
    };
    let mut cameras: Vec<_> = monitor.devices().iter().filter_map(camera).collect();
    cameras.retain(|camera| camera.device.starts_with("/dev/video"));
    cameras.sort_by(|one, other| one.device.cmp(&other.device));
    // Some are found in two ways.
    cameras.dedup_by(|one, other| one.device == other.device);
    cameras
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor;

    #[test]
    fn every_camera_that_is_offered_is_a_device_of_this_machine_and_is_so_once() {
        let devices: Vec<_> = doctor::cameras().iter().map(|path| path.display().to_string()).collect();
        let cameras = cameras();
        assert!(cameras.iter().all(|camera| devices.contains(&camera.device)), "{cameras:?} of {devices:?}");
        assert!(cameras.windows(2).all(|two| two[0].device < two[1].device), "{cameras:?}");
    }
}
