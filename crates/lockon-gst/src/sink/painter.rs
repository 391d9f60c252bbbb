//! Drawing: copies of frames with their results, and results drawn into frames in place.

use std::sync::Arc;

use gst::prelude::*;
use gst_video::prelude::*;

use super::timeline::Timestamps;
use lockon_core::config::{View, Zone};
use lockon_core::frame::{Chroma, Frame, Picture, PixelFormat, PlaneMut, Rect, Size, VideoFormat};
use lockon_core::overlay::{self, Crop, Drawing, Hidden, Trails};
use lockon_core::results::FrameRecord;
use lockon_core::surface::Surface;

/// Display options of an output, besides its view.
#[derive(Clone, Default)]
pub(super) struct Shows {
    /// A part that follows a track, with nothing drawn on it.
    pub(super) crop: Option<Crop>,
    /// No results are drawn.
    pub(super) is_plain: bool,
    /// Pictures are grey at full range, as masks are, whatever the frames are.
    pub(super) is_grey: bool,
}

/// Copies frames into writable buffers and draws on them.
pub(crate) struct Painter {
    pool: gst_video::VideoBufferPool,
    /// The format of the buffers.
    pub(crate) info: gst_video::VideoInfo,
    /// The pixel format of the buffers: colour, even for grey frames, unless only masks are shown.
    pixels: PixelFormat,
    /// The format of the frames; a buffer may be one column and one row larger.
    format: VideoFormat,
    /// Size of the shown picture: of the frames, or of a part of them.
    shown: Size,
    even: bool,
    view: View,
    /// A crop that follows a track, instead of the whole frame with results.
    crop: Option<Crop>,
    /// Results are drawn into the frames.
    draws_results: bool,
    /// As in [`Shows`].
    is_grey: bool,
    trails: Trails,
    drawing: Drawing,
}

impl Painter {
    /// A painter for an output's view of the frames.
    pub(super) fn with(
        format: &VideoFormat,
        view: View,
        even: bool,
        shows: &Shows,
    ) -> Result<Self, gst::glib::BoolError> {
        let shown = shows.crop.as_ref().map_or(format.size, Crop::shown);
        Self::sized(format, view, even, shows, shown)
    }

    /// A painter for the frames above a strip: pictures of that size, which differs only in height.
    pub(crate) fn with_strip(format: &VideoFormat, size: Size) -> Result<Self, gst::glib::BoolError> {
        Self::sized(format, View::Overlay, false, &Shows::default(), size)
    }

    fn sized(
        format: &VideoFormat,
        view: View,
        even: bool,
        shows: &Shows,
        shown: Size,
    ) -> Result<Self, gst::glib::BoolError> {
        let Shows { crop, is_plain, is_grey } = shows.clone();
        let pixels = match format.pixels.chroma {
            _ if is_grey => PixelFormat::GRAY8,
            Chroma::None => PixelFormat::from_name("I420").unwrap_or(format.pixels),
            _ => format.pixels,
        };
        // Grey pictures are full range unless they say otherwise; colour without a range has GStreamer's
        // default for its size.
        let said = format.colorimetry.as_deref().filter(|_| !is_grey);
        let has_no_colour = is_grey || format.pixels.chroma == Chroma::None;
        let colours = said.or(has_no_colour.then_some("1:4:0:0"));
        let info = video_info(format, shown, pixels, even, colours)?;
        let pool = gst_video::VideoBufferPool::new();
        let mut config = pool.config();
        // No upper limit: an encoder with lookahead keeps as many as it needs; then buffers are reused.
        config.set_params(Some(&info.to_caps()?), info.size() as u32, 0, 0);
        pool.set_config(config)?;
        pool.set_active(true)?;
        let (trails, drawing) = Default::default();
        let format = format.clone();
        Ok(Self {
            pool,
            info,
            pixels,
            format,
            shown,
            even,
            view,
            crop,
            draws_results: !is_plain,
            is_grey,
            trails,
            drawing,
        })
    }

    /// True if it can paint such frames.
    pub(crate) fn is_for(&self, format: &VideoFormat) -> bool {
        self.format == *format
    }

    /// Returns a painter that draws the same on frames of another format.
    pub(super) fn adapted(&self, format: &VideoFormat) -> Result<Self, gst::glib::BoolError> {
        let (crop, is_plain, is_grey) = (self.crop.clone(), !self.draws_results, self.is_grey);
        Self::with(format, self.view, self.even, &Shows { crop, is_plain, is_grey })
    }

    /// A buffer with the frame, its results and the zones, due at `times`; parts of the frame are `hidden`.
    pub(super) fn paint(
        &mut self,
        frame: &Frame,
        record: &FrameRecord,
        zones: &[Zone],
        hidden: &[Hidden],
        mask: Option<&Arc<dyn Picture>>,
        times: Timestamps,
    ) -> Result<gst::Buffer, String> {
        if let Some(crop) = &mut self.crop {
            let part = crop.step(record, self.format.size);
            let [x, y, w, h] = part;
            let by = [self.shown.width as f64 / w, self.shown.height as f64 / h];
            let mut hidden = hidden.to_vec();
            for Hidden { bounds: [left, top, width, height], .. } in &mut hidden {
                (*left, *top) = ((*left - x) * by[0], (*top - y) * by[1]);
                (*width, *height) = (*width * by[0], *height * by[1]);
            }
            return self.fill(frame, times, |mut views| {
                show(part, frame, self.shown, &mut views);
                overlay::Canvas::new(views, self.pixels, self.shown).hide(&hidden);
            });
        }
        let mut trails = std::mem::take(&mut self.trails);
        let mut drawing = std::mem::take(&mut self.drawing);
        if self.draws_results {
            drawing.results_and_zones(record, &mut trails, zones, self.format.size);
        } else {
            drawing.start(self.format.size);
        }
        let painted = self.paint_with(frame, times, |canvas| draw(self.view, canvas, mask, hidden, &drawing));
        (self.trails, self.drawing) = (trails, drawing);
        painted
    }

    /// A buffer with the frame and the drawing of `draw`, due at `times`.
    pub(crate) fn paint_with(
        &self,
        frame: &Frame,
        times: Timestamps,
        draw: impl FnOnce(&mut overlay::Canvas<'_>),
    ) -> Result<gst::Buffer, String> {
        self.fill(frame, times, |mut views| {
            let planes = frame.format.pixels.planes();
            for (i, view) in views.iter_mut().enumerate().take(planes) {
                view.copy_from(frame.picture.plane(i));
            }
            without_colour(views.iter_mut().skip(planes));
            draw(&mut overlay::Canvas::new(views, self.pixels, self.shown));
        })
    }

    /// A buffer with the frame, on which `on_frame` draws, above a strip that `on_all` draws, due at `times`.
    pub(crate) fn paint_above_strip(
        &self,
        frame: &Frame,
        times: Timestamps,
        on_frame: impl FnOnce(&mut overlay::Canvas<'_>),
        on_all: impl FnOnce(&mut overlay::Canvas<'_>),
    ) -> Result<gst::Buffer, String> {
        let size = frame.format.size;
        self.fill(frame, times, |mut views| {
            let planes = frame.format.pixels.planes();
            without_colour(views.iter_mut().skip(planes));
            let parts = views.iter_mut().enumerate();
            let mut parts: Vec<_> =
                parts.map(|(index, view)| view.top(self.pixels.plane_size(index, size))).collect();
            for (index, view) in parts.iter_mut().enumerate().take(planes) {
                view.copy_from(frame.picture.plane(index));
            }
            on_frame(&mut overlay::Canvas::new(parts, self.pixels, size));
            on_all(&mut overlay::Canvas::new(views, self.pixels, self.shown));
        })
    }

    /// A buffer whose planes `fill` fills from the frame, due at `times`.
    fn fill(
        &self,
        frame: &Frame,
        times: Timestamps,
        fill: impl FnOnce(Vec<PlaneMut<'_>>),
    ) -> Result<gst::Buffer, String> {
        let size = self.shown;
        let mut buffer = self.pool.acquire_buffer(None).map_err(|e| e.to_string())?;
        let writable = buffer.get_mut().ok_or("the pool lent a buffer that is in use")?;
        writable.set_pts(gst::ClockTime::from_nseconds(times.pts));
        writable.set_duration(gst::ClockTime::from_nseconds(times.duration));
        let mut target = gst_video::VideoFrameRef::from_buffer_ref_writable(writable, &self.info)
            .map_err(|e| e.to_string())?;
        let strides: Vec<usize> = target.plane_stride().iter().map(|&s| s as usize).collect();
        let mut planes = target.planes_data_mut();
        {
            let views: Vec<PlaneMut<'_>> = planes
                .iter_mut()
                .zip(&strides)
                .take(self.pixels.planes())
                .enumerate()
                .map(|(i, (data, &stride))| PlaneMut::new(data, self.pixels.plane_size(i, size), stride))
                .collect();
            fill(views);
        }
        // Pixels that could not be fetched from a device would be black.
        frame.picture.surface().map_or(Ok(()), Surface::check).map_err(|error| error.to_string())?;
        let padded = Size::new(self.info.width() as usize, self.info.height() as usize);
        if padded != size {
            for (i, (data, &stride)) in planes.iter_mut().zip(&strides).take(self.pixels.planes()).enumerate()
            {
                let (inner, outer) = (self.pixels.plane_size(i, size), self.pixels.plane_size(i, padded));
                let sample =
                    if i > 0 && matches!(self.pixels.chroma, Chroma::Interleaved { .. }) { 2 } else { 1 };
                extend_edges(data, stride, inner, outer, sample);
            }
        }
        drop(target);
        Ok(buffer)
    }
}

impl Painter {
    /// A copy of a painted buffer, due at `times`, with the box that the user drags on it.
    pub(super) fn with_selection(
        &self,
        painted: &gst::BufferRef,
        dragged: Rect,
        times: Timestamps,
    ) -> Result<gst::Buffer, String> {
        let mut buffer = painted.copy_deep().map_err(|error| error.to_string())?;
        let writable = buffer.get_mut().expect("a copy of one's own");
        writable.set_pts(gst::ClockTime::from_nseconds(times.pts));
        writable.set_duration(gst::ClockTime::from_nseconds(times.duration));
        let mut target = gst_video::VideoFrameRef::from_buffer_ref_writable(writable, &self.info)
            .map_err(|error| error.to_string())?;
        let strides: Vec<usize> = target.plane_stride().iter().map(|&s| s as usize).collect();
        let size = self.format.size;
        let planes = target.planes_data_mut().into_iter().zip(&strides).take(self.pixels.planes());
        let view =
            |(index, (data, &stride))| PlaneMut::new(data, self.pixels.plane_size(index, size), stride);
        let views = planes.enumerate().map(view).collect();
        overlay::draw_selection(&mut overlay::Canvas::new(views, self.pixels, size), &[], Some(dragged));
        drop(target);
        Ok(buffer)
    }
}

impl Drop for Painter {
    /// An active pool keeps its buffers for ever; those still in the pipeline are freed when they return.
    fn drop(&mut self) {
        let _ = self.pool.set_active(false);
    }
}

/// Fills chroma planes with grey.
fn without_colour<'a, 'p: 'a>(planes: impl Iterator<Item = &'a mut PlaneMut<'p>>) {
    planes.for_each(|plane| (0..plane.size().height).for_each(|y| plane.row(y).fill(128)));
}

/// Fills the planes of a picture of the size `shown` with a part of a frame: left, top, width, height.
fn show([x, y, w, h]: [f64; 4], frame: &Frame, shown: Size, views: &mut [PlaneMut<'_>]) {
    let pixels = frame.format.pixels;
    let step = [w / shown.width as f64, h / shown.height as f64];
    for (index, view) in views.iter_mut().enumerate().take(pixels.planes()) {
        let (x_shift, y_shift) = if index == 0 { (0, 0) } else { (pixels.x_shift, pixels.y_shift) };
        let place = [x / (1 << x_shift) as f64, y / (1 << y_shift) as f64];
        let bytes = if index > 0 && matches!(pixels.chroma, Chroma::Interleaved { .. }) { 2 } else { 1 };
        overlay::resample(frame.picture.plane(index), view, place, step, bytes);
    }
    without_colour(views.iter_mut().skip(pixels.planes()));
}

fn draw(
    view: View,
    canvas: &mut overlay::Canvas<'_>,
    mask: Option<&Arc<dyn Picture>>,
    hidden: &[Hidden],
    drawing: &Drawing,
) {
    match (view, mask) {
        (View::Mask, Some(mask)) => {
            overlay::draw_mask(canvas, mask.plane(0));
            return canvas.hide(hidden);
        }
        (View::Split, Some(mask)) => overlay::draw_split(canvas, mask.plane(0)),
        _ => {}
    }
    canvas.hide(hidden);
    canvas.paint(drawing);
}

/// Draws results into a frame in place: `drawing` has the shapes over it, or over the mask.
///
/// # Panics
/// If `frame`, the mask or the drawing is not of that format's size.
pub fn draw_in_place(
    frame: &mut gst_video::VideoFrameRef<&mut gst::BufferRef>,
    format: &VideoFormat,
    view: View,
    mask: Option<&Arc<dyn Picture>>,
    drawing: &Drawing,
) {
    let (pixels, size) = (format.pixels, format.size);
    // Strides are negative in bottom-up pictures only, which no format with a luma plane has.
    let strides: Vec<usize> = frame.plane_stride().iter().map(|&s| s as usize).collect();
    let mut planes = frame.planes_data_mut();
    let views = planes.iter_mut().zip(strides).take(pixels.planes()).enumerate();
    let views = views.map(|(i, (data, stride))| PlaneMut::new(data, pixels.plane_size(i, size), stride));
    draw(view, &mut overlay::Canvas::new(views.collect(), pixels, size), mask, &[], drawing);
}

/// Repeats the last column and the last row, so that a picture of odd size fills one of even size without an
/// edge that costs bits or shows. `sample` bytes belong together.
fn extend_edges(data: &mut [u8], stride: usize, inner: Size, outer: Size, sample: usize) {
    for row in data.chunks_mut(stride).take(inner.height) {
        for x in (inner.width..outer.width).step_by(sample) {
            row.copy_within(x - sample..x, x);
        }
    }
    for y in inner.height..outer.height {
        data.copy_within((y - 1) * stride..(y - 1) * stride + outer.width, y * stride);
    }
}

/// The format of buffers of that size, with the frames' rate and pixel aspect.
fn video_info(
    format: &VideoFormat,
    size: Size,
    pixels: PixelFormat,
    even: bool,
    colours: Option<&str>,
) -> Result<gst_video::VideoInfo, gst::glib::BoolError> {
    let round = |length: usize| if even { length.next_multiple_of(2) } else { length } as u32;
    let fraction = |(n, d): (i32, i32)| gst::Fraction::new(n, d.max(1));
    let colours = colours.and_then(|text| text.parse::<gst_video::VideoColorimetry>().ok());
    let kind = pixels.name.parse::<gst_video::VideoFormat>()?;
    gst_video::VideoInfo::builder(kind, round(size.width), round(size.height))
        .fps(fraction(format.frame_rate))
        .par(fraction(format.pixel_aspect))
        .colorimetry_if_some(colours.as_ref())
        .build()
}
