//! The view as pictures that lie over a frame (`GstVideoOverlayComposition`): for a sink that lays them over
//! it, and for frames of a format that lockon's own painter does not know. GStreamer draws them on such
//! frames.

use gst::glib;
use gst_video::{VideoOverlayComposition, VideoOverlayCompositionMeta, VideoOverlayRectangle};
use lockon_core::config::View;
use lockon_core::frame::{Picture, PlaneRef};
use lockon_core::overlay::{Drawing, Layer, layers};

/// Returns the pictures of a view over a frame; `None` if there are none. `mask` is the thresholded frame, if
/// there is one.
pub(super) fn of(
    view: View,
    mask: Option<&dyn Picture>,
    drawing: &Drawing,
) -> Result<Option<VideoOverlayComposition>, glib::BoolError> {
    let mask: Option<PlaneRef<'_>> = mask.map(|mask| mask.plane(0));
    let layers = match (view, mask) {
        (View::Mask, Some(mask)) => vec![Layer::of_mask(mask, 0)],
        (View::Split, Some(mask)) => {
            let mut divider = Drawing::default();
            divider.divider(mask.size());
            let half = Layer::of_mask(mask, mask.size().width / 2);
            std::iter::once(half).chain(layers(&divider)).chain(layers(drawing)).collect()
        }
        _ => layers(drawing),
    };
    if layers.is_empty() {
        return Ok(None);
    }
    let rectangles = layers.into_iter().map(rectangle).collect::<Result<Vec<_>, _>>()?;
    VideoOverlayComposition::new(&rectangles).map(Some)
}

fn rectangle(Layer { area, pixels }: Layer) -> Result<VideoOverlayRectangle, glib::BoolError> {
    let (width, height) = (area.w as u32, area.h as u32);
    let mut buffer = gst::Buffer::from_mut_slice(pixels);
    gst_video::VideoMeta::add(
        buffer.get_mut().expect("a new buffer is nobody else's"),
        gst_video::VideoFrameFlags::empty(),
        gst_video::VideoFormat::Ayuv,
        width,
        height,
    )?;
    let flags = gst_video::VideoOverlayFormatFlags::empty();
    Ok(VideoOverlayRectangle::new_raw(&buffer, area.x as i32, area.y as i32, width, height, flags))
}

/// Puts it on a buffer, over its existing compositions.
pub(super) fn attach(
    buffer: &mut gst::BufferRef,
    composition: &VideoOverlayComposition,
) -> Result<(), glib::BoolError> {
    let Some(mut there) = buffer.meta_mut::<VideoOverlayCompositionMeta>() else {
        VideoOverlayCompositionMeta::add(buffer, composition);
        return Ok(());
    };
    let below: Vec<_> = there.overlay().iter().collect();
    let above: Vec<_> = composition.iter().collect();
    there.set_overlay(&VideoOverlayComposition::new(below.iter().chain(&above))?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use lockon_core::frame::{Plane, Size};

    use super::*;

    #[test]
    fn what_upstream_has_laid_over_a_frame_stays_below() {
        gst::init().unwrap();
        let mut buffer = gst::Buffer::new();
        for (width, height) in [(5, 4), (3, 7)] {
            let mask = Plane::new(Size::new(width, height));
            let drawing = Drawing::default();
            let composition = of(View::Mask, Some(&mask), &drawing).unwrap().unwrap();
            attach(buffer.get_mut().unwrap(), &composition).unwrap();
        }
        let metas: Vec<_> = buffer.iter_meta::<VideoOverlayCompositionMeta>().collect();
        assert_eq!(metas.len(), 1);
        let places: Vec<_> = metas[0].overlay().iter().map(|layer| layer.render_rectangle()).collect();
        assert_eq!(places, [(0, 0, 5, 4), (0, 0, 3, 7)]);
    }

    #[test]
    fn a_view_without_anything_to_show_is_no_composition() {
        gst::init().unwrap();
        assert!(of(View::Overlay, None, &Drawing::default()).unwrap().is_none());
    }
}
