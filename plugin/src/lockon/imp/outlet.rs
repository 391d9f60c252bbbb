//! Announces caps of the frames to downstream, with or without pictures over them.

use gst::prelude::*;
use gst::subclass::prelude::*;

use super::super::line::Layout;
use super::super::{CAT, View};
use super::{Lockon, lock};

/// The caps feature of frames with pictures to lay over them.
pub(super) const FEATURE: &str = "meta:GstVideoOverlayComposition";

/// The last announcement to downstream.
#[derive(Default)]
pub(super) struct NegotiatedLayers {
    /// Whether pictures over frames were wanted then; `None` before the first announcement.
    is_wanted: Option<bool>,
    /// True if downstream lays the pictures over their frames.
    has_layers: bool,
}

impl Lockon {
    /// Announces caps to downstream. Where pictures over frames are wanted, the caps say that there can be
    /// some if downstream accepts such caps and lays the pictures over frames; GStreamer's own overlays ask
    /// in this way.
    pub(super) fn announce(&self, caps: &gst::Caps) {
        let is_wanted = lock(&self.settings).view == View::Composition;
        let has_layers = is_wanted && self.announce_layers(caps);
        if !has_layers && self.srcpad.current_caps().as_ref() != Some(caps) {
            // If downstream does not accept them, it refuses the next frame.
            let _ = self.srcpad.push_event(gst::event::Caps::new(caps));
        }
        if is_wanted && !has_layers {
            gst::info!(
                CAT,
                imp = self,
                "downstream lays nothing over frames: what is found is drawn into them"
            );
        }
        *lock(&self.outlet) = NegotiatedLayers { is_wanted: Some(is_wanted), has_layers };
    }

    /// Announces caps whose frames carry pictures. True if downstream accepted them and lays the pictures
    /// over frames.
    fn announce_layers(&self, caps: &gst::Caps) -> bool {
        let with_layers = with_layers(caps);
        if self.srcpad.peer_query_caps(Some(&with_layers)).is_empty() {
            return false;
        }
        if self.srcpad.current_caps().as_ref() != Some(&with_layers)
            && !self.srcpad.push_event(gst::event::Caps::new(&with_layers))
        {
            return false;
        }
        let mut query = gst::query::Allocation::new(Some(&with_layers), false);
        let lays_them = self.srcpad.peer_query(&mut query)
            && query.find_allocation_meta::<gst_video::VideoOverlayCompositionMeta>().is_some();
        // If downstream accepts no other caps, it has to handle the pictures.
        lays_them || self.srcpad.peer_query_caps(Some(caps)).is_empty()
    }

    /// Answers a query for the caps of a pad, if pictures over frames are wanted: frames that come without
    /// them can leave with them. False if they are not wanted, or for another query.
    pub(super) fn answer_with_layers(&self, pad: &gst::Pad, query: &mut gst::QueryRef) -> bool {
        let is_wanted = || lock(&self.settings).view == View::Composition;
        match query.view_mut() {
            gst::QueryViewMut::Caps(query) if is_wanted() => {
                let filter = query.filter_owned();
                let passing = if *pad == self.srcpad {
                    let filter = filter.as_ref().map(without_layers);
                    with_and_without(&self.sinkpad.peer_query_caps(filter.as_ref()))
                } else {
                    let filter = filter.as_ref().map(with_and_without);
                    without_layers(&self.srcpad.peer_query_caps(filter.as_ref()))
                };
                let first = gst::CapsIntersectMode::First;
                let passing = passing.intersect_with_mode(&pad.pad_template_caps(), first);
                query.set_result(
                    &filter.map_or(passing.clone(), |filter| filter.intersect_with_mode(&passing, first)),
                );
                true
            }
            gst::QueryViewMut::AcceptCaps(query) if is_wanted() => {
                let caps = query.caps_owned();
                let can_pass = if *pad == self.srcpad {
                    self.sinkpad.peer_query_accept_caps(&without_layers(&caps))
                } else {
                    [with_layers(&caps), caps.clone()]
                        .iter()
                        .any(|caps| self.srcpad.peer_query_accept_caps(caps))
                };
                query.set_result(can_pass && caps.is_subset(&pad.pad_template_caps()));
                true
            }
            _ => false,
        }
    }

    /// Announces the caps again, in front of a frame, if the view was changed or downstream has asked for it.
    /// True if the frame must carry the drawing.
    pub(super) fn has_layers(&self, view: View, layout: &Layout) -> bool {
        let is_wanted = view == View::Composition;
        let is_told = lock(&self.outlet).is_wanted == Some(is_wanted);
        if !is_told || is_wanted && self.srcpad.check_reconfigure() {
            self.announce(&layout.caps);
        }
        lock(&self.outlet).has_layers
    }

    /// A flush has dropped the announcement.
    pub(super) fn forget_announcement(&self) {
        lock(&self.outlet).is_wanted = None;
    }
}

/// Caps of frames that can carry pictures.
fn with_layers(caps: &gst::Caps) -> gst::Caps {
    with_features(caps, |features| features.add(FEATURE))
}

/// Returns the caps of the same frames without pictures over them.
fn without_layers(caps: &gst::Caps) -> gst::Caps {
    with_features(caps, |features| {
        features.remove(FEATURE);
    })
}

fn with_and_without(caps: &gst::Caps) -> gst::Caps {
    let mut both = with_layers(caps);
    both.merge(without_layers(caps));
    both
}

fn with_features(caps: &gst::Caps, change: impl Fn(&mut gst::CapsFeaturesRef)) -> gst::Caps {
    let mut caps = caps.clone();
    let changed = caps.make_mut();
    for index in 0..changed.size() {
        // `ANY` features are left alone: there is nothing to add.
        if let Some(features) = changed.features_mut(index).filter(|features| !features.is_any()) {
            change(features);
        }
    }
    caps
}
