//! What downstream is told of the frames that come: their caps, with or without pictures that lie over them.

use gst::prelude::*;
use gst::subclass::prelude::*;

use super::super::line::Layout;
use super::super::{CAT, View};
use super::{Lockon, lock};

/// What caps say of frames that carry pictures which are to be laid over them.
pub(super) const FEATURE: &str = "meta:GstVideoOverlayComposition";

/// What downstream was told.
#[derive(Default)]
pub(super) struct Outlet {
    /// Whether pictures over frames were wanted then; none before anything was told.
    is_wanted: Option<bool>,
    /// Whoever is downstream lays the pictures that frames carry over them.
    has_layers: bool,
}

impl Lockon {
    /// Tells downstream of caps. Where pictures over frames are wanted, the caps say that there can be some
    /// if downstream takes such caps and lays the pictures over frames; this is how GStreamer's own overlays
    /// ask.
    pub(super) fn announce(&self, caps: &gst::Caps) {
        let is_wanted = lock(&self.settings).view == View::Composition;
        let has_layers = is_wanted && self.announce_layers(caps);
        if !has_layers && self.srcpad.current_caps().as_ref() != Some(caps) {
            // Downstream that does not take them answers the next frame.
            let _ = self.srcpad.push_event(gst::event::Caps::new(caps));
        }
        if is_wanted && !has_layers {
            gst::info!(
                CAT,
                imp = self,
                "downstream lays nothing over frames: what is found is drawn into them"
            );
        }
        *lock(&self.outlet) = Outlet { is_wanted: Some(is_wanted), has_layers };
    }

    /// True if downstream was told of caps whose frames carry pictures, and lays these over them.
    fn announce_layers(&self, caps: &gst::Caps) -> bool {
        let mut with_layers = caps.clone();
        let caps = with_layers.make_mut();
        for index in 0..caps.size() {
            if let Some(features) = caps.features_mut(index) {
                features.add(FEATURE);
            }
        }
        if self.srcpad.peer_query_caps(Some(&with_layers)).is_empty() {
            return false;
        }
        if self.srcpad.current_caps().as_ref() != Some(&with_layers)
            && !self.srcpad.push_event(gst::event::Caps::new(&with_layers))
        {
            return false;
        }
        let mut query = gst::query::Allocation::new(Some(&with_layers), false);
        self.srcpad.peer_query(&mut query)
            && query.find_allocation_meta::<gst_video::VideoOverlayCompositionMeta>().is_some()
    }

    /// Tells downstream anew, in front of a frame, if the view was changed or downstream has asked for it.
    /// True if the frame is to carry what is drawn.
    pub(super) fn has_layers(&self, view: View, layout: &Layout) -> bool {
        let is_wanted = view == View::Composition;
        let is_told = lock(&self.outlet).is_wanted == Some(is_wanted);
        if !is_told || is_wanted && self.srcpad.check_reconfigure() {
            self.announce(&layout.caps);
        }
        lock(&self.outlet).has_layers
    }

    /// What was told was dropped by a flush.
    pub(super) fn forget_announcement(&self) {
        lock(&self.outlet).is_wanted = None;
    }
}
