//! Lists the cameras of this machine.

use gst::prelude::*;

use super::launch;

/// A camera that can be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Camera {
    /// The name that the camera reports.
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
    listed(monitor.devices().iter().filter_map(camera).collect())
}

/// Returns the cameras that can be opened, by their devices; some are found in two ways.
fn listed(mut found: Vec<Camera>) -> Vec<Camera> {
    found.retain(|camera| camera.device.starts_with("/dev/video"));
    found.sort_by(|one, other| one.device.cmp(&other.device));
    found.dedup_by(|one, other| one.device == other.device);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor;

    #[test]
    fn each_camera_is_listed_once_and_nothing_else_is() {
        let camera = |name: &str, device: &str| Camera { name: name.into(), device: device.into() };
        let found = vec![
            camera("yard", "/dev/video2"),
            camera("screen", "pipewire:7"),
            camera("door", "/dev/video0"),
            camera("yard, by PipeWire", "/dev/video2"),
            camera("", ""),
        ];
        assert_eq!(listed(found), [camera("door", "/dev/video0"), camera("yard", "/dev/video2")]);
    }

    #[test]
    fn every_camera_that_is_found_is_a_device_of_this_machine() {
        let devices: Vec<_> = doctor::cameras().iter().map(|path| path.display().to_string()).collect();
        let cameras = cameras();
        assert!(cameras.iter().all(|camera| devices.contains(&camera.device)), "{cameras:?} of {devices:?}");
    }
}
