//! Pictures on the page, and their part of a frame.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::frame::{Rect, Size};
use crate::results::TrackState;

/// Longest side of the key frame and of a thumbnail, in pixels.
pub(super) const KEY_SIDE: usize = 960;
pub(super) const THUMBNAIL_SIDE: usize = 240;

/// The frame on which paths are drawn.
pub(super) struct Key {
    pub(super) picture: Jpeg,
    pub(super) frame: u64,
    pub(super) size: Size,
    pub(super) has_results: bool,
    /// Boxes of objects in it, not too many.
    pub(super) objects: Vec<Rect>,
    /// How many objects there are.
    pub(super) all_objects: usize,
}

pub(super) struct Thumbnail {
    pub(super) title: String,
    pub(super) state: TrackState,
    /// The shown part of the frame, and the track's box.
    pub(super) crop: Rect,
    pub(super) bounds: [f64; 4],
    pub(super) picture: Jpeg,
}

/// A JPEG file.
pub(super) struct Jpeg(pub(super) Vec<u8>);

impl Jpeg {
    /// The picture as part of a page.
    pub(super) fn uri(&self) -> String {
        format!("data:image/jpeg;base64,{}", BASE64_STANDARD.encode(&self.0))
    }
}
