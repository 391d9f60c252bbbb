//! Pictures in memory: planes with a stride, pixel formats, and a frame's identity.

use std::sync::Arc;
use std::time::Instant;

pub mod correlator;
pub mod outlines;
pub mod surface;

pub use crate::geometry::{Rect, Size, iou, visible};
use surface::Surface;

/// A view of one plane of bytes. Row `y` starts at byte `y * stride`; bytes past `width` in a row are
/// padding.
#[derive(Clone, Copy)]
pub struct PlaneRef<'a> {
    data: &'a [u8],
    size: Size,
    stride: usize,
}

impl<'a> PlaneRef<'a> {
    /// Views `data` as a plane.
    ///
    /// # Panics
    /// If the stride is less than the width, or the data end before the last row does.
    pub fn new(data: &'a [u8], size: Size, stride: usize) -> Self {
        check_layout(data.len(), size, stride);
        Self { data, size, stride }
    }

    /// True if so many bytes have such a plane in them.
    pub fn fits(bytes: usize, size: Size, stride: usize) -> bool {
        stride >= size.width && plane_bytes(size, stride).is_some_and(|needed| bytes >= needed)
    }

    /// Width and height.
    pub fn size(self) -> Size {
        self.size
    }

    /// Bytes from one row to the next.
    pub fn stride(self) -> usize {
        self.stride
    }

    /// Where it begins.
    pub fn first_byte(self) -> *const u8 {
        self.data.as_ptr()
    }

    /// Row `y` without its padding.
    pub fn row(self, y: usize) -> &'a [u8] {
        &self.data[y * self.stride..][..self.size.width]
    }

    /// All rows, top to bottom, without their padding.
    pub fn rows(self) -> impl ExactSizeIterator<Item = &'a [u8]> + DoubleEndedIterator {
        (0..self.size.height).map(move |y| self.row(y))
    }

    /// The part of the plane inside `rect`, sharing the same bytes.
    ///
    /// # Panics
    /// If `rect` is not inside the plane.
    pub fn crop(self, rect: Rect) -> Self {
        assert!(rect.is_inside(self.size), "crop {rect} of a {} plane", self.size);
        Self::new(&self.data[rect.y * self.stride + rect.x..], rect.size(), self.stride)
    }

    /// A copy without padding.
    pub fn to_plane(self) -> Plane {
        let mut copy = Plane::new(self.size);
        copy.as_mut().copy_from(self);
        copy
    }
}

/// A writable view of one plane of bytes; see [`PlaneRef`].
pub struct PlaneMut<'a> {
    data: &'a mut [u8],
    size: Size,
    stride: usize,
}

impl<'a> PlaneMut<'a> {
    /// Views `data` as a writable plane.
    ///
    /// # Panics
    /// As [`PlaneRef::new`].
    pub fn new(data: &'a mut [u8], size: Size, stride: usize) -> Self {
        check_layout(data.len(), size, stride);
        Self { data, size, stride }
    }

    /// Width and height.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Row `y` without its padding.
    pub fn row(&mut self, y: usize) -> &mut [u8] {
        &mut self.data[y * self.stride..][..self.size.width]
    }

    /// Its first rows, as a plane of that size.
    ///
    /// # Panics
    /// If they lie outside of it.
    pub fn top(&mut self, size: Size) -> PlaneMut<'_> {
        assert!(size.width <= self.size.width && size.height <= self.size.height, "more than the plane");
        PlaneMut::new(self.data, size, self.stride)
    }

    /// Copies a plane of the same size, row by row, since strides differ between allocators.
    ///
    /// # Panics
    /// If the sizes differ.
    pub fn copy_from(&mut self, source: PlaneRef<'_>) {
        assert_eq!(self.size, source.size, "planes of different size");
        for (y, row) in source.rows().enumerate() {
            self.row(y).copy_from_slice(row);
        }
    }

    /// As [`Self::copy_from`], with each pixel changed by `change`.
    ///
    /// # Panics
    /// If the sizes differ.
    pub fn copy_changed(&mut self, source: PlaneRef<'_>, change: impl Fn(u8) -> u8) {
        assert_eq!(self.size, source.size, "planes of different size");
        for (y, row) in source.rows().enumerate() {
            self.row(y).iter_mut().zip(row).for_each(|(to, &from)| *to = change(from));
        }
    }
}

/// A plane that owns its bytes, without padding (stride = width).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plane {
    data: Vec<u8>,
    size: Size,
}

impl Default for Plane {
    /// A plane without pixels, to be resized.
    fn default() -> Self {
        Self::new(Size::new(0, 0))
    }
}

impl Plane {
    /// A plane of zeros.
    pub fn new(size: Size) -> Self {
        Self { data: vec![0; size.area()], size }
    }

    /// A plane of `data`, row by row.
    ///
    /// # Panics
    /// If there are not `size.area()` bytes.
    pub fn from_vec(data: Vec<u8>, size: Size) -> Self {
        assert_eq!(data.len(), size.area(), "bytes for a {size} plane");
        Self { data, size }
    }

    /// All samples, row by row.
    pub fn into_vec(self) -> Vec<u8> {
        self.data
    }

    /// Width and height.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Changes the size, keeping the allocation where it is large enough. The contents are then unspecified.
    pub fn resize(&mut self, size: Size) {
        self.data.resize(size.area(), 0);
        self.size = size;
    }

    /// The bytes, row by row without padding.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// The bytes, writable.
    pub fn data_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }

    /// A view.
    pub fn as_ref(&self) -> PlaneRef<'_> {
        PlaneRef::new(&self.data, self.size, self.size.width)
    }

    /// A writable view.
    pub fn as_mut(&mut self) -> PlaneMut<'_> {
        PlaneMut::new(&mut self.data, self.size, self.size.width)
    }
}

/// The bytes from a plane's first pixel to its last; `None` if no memory has so many.
pub fn plane_bytes(size: Size, stride: usize) -> Option<usize> {
    if size.height == 0 {
        return Some(0);
    }
    (size.height - 1).checked_mul(stride)?.checked_add(size.width)
}

fn check_layout(len: usize, size: Size, stride: usize) {
    assert!(stride >= size.width, "stride {stride} is less than the width of a {size} plane");
    // Where the product leaves the range of numbers, there are not so many bytes.
    let needed = plane_bytes(size, stride).unwrap_or(usize::MAX);
    assert!(
        PlaneRef::fits(len, size, stride),
        "{len} bytes for a {size} plane of stride {stride}, which needs {needed}"
    );
}

/// How a picture's chroma lies behind its luma plane. Plane 0 is always 8-bit luma.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Chroma {
    /// Luma only.
    None,
    /// Two planes, one byte a sample. `u` and `v` are their indices.
    Planar {
        /// Plane of Cb.
        u: usize,
        /// Plane of Cr.
        v: usize,
    },
    /// One plane (index 1) of byte pairs.
    Interleaved {
        /// Position of Cb in a pair, 0 or 1; Cr has the other.
        u: usize,
    },
}

/// The raw formats that lockon takes as they are decoded: those with an 8-bit luma plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PixelFormat {
    /// GStreamer's name: `I420`, `NV12`.
    pub name: &'static str,
    /// Where chroma lies.
    pub chroma: Chroma,
    /// Chroma is `width >> x_shift` wide, rounded up.
    pub x_shift: usize,
    /// Chroma is `height >> y_shift` high, rounded up.
    pub y_shift: usize,
}

impl PixelFormat {
    /// All of them, the usual ones first.
    pub const ALL: [Self; 12] = [
        Self::planar("I420", 1, 2, 1, 1),
        Self::interleaved("NV12", 0, 1, 1),
        Self::GRAY8,
        Self::planar("YV12", 2, 1, 1, 1),
        Self::interleaved("NV21", 1, 1, 1),
        Self::planar("Y42B", 1, 2, 1, 0),
        Self::Y444,
        Self::interleaved("NV16", 0, 1, 0),
        Self::interleaved("NV61", 1, 1, 0),
        Self::interleaved("NV24", 0, 0, 0),
        Self::planar("Y41B", 1, 2, 2, 0),
        Self::planar("YUV9", 1, 2, 2, 2),
    ];

    /// Luma only.
    pub const GRAY8: Self = Self { name: "GRAY8", chroma: Chroma::None, x_shift: 0, y_shift: 0 };

    /// Chroma at full resolution.
    pub const Y444: Self = Self::planar("Y444", 1, 2, 0, 0);

    const fn planar(name: &'static str, u: usize, v: usize, x_shift: usize, y_shift: usize) -> Self {
        Self { name, chroma: Chroma::Planar { u, v }, x_shift, y_shift }
    }

    const fn interleaved(name: &'static str, u: usize, x_shift: usize, y_shift: usize) -> Self {
        Self { name, chroma: Chroma::Interleaved { u }, x_shift, y_shift }
    }

    /// The format of that GStreamer name, or `None` if it has no 8-bit luma plane.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|f| f.name == name)
    }

    /// Number of planes.
    pub fn planes(self) -> usize {
        match self.chroma {
            Chroma::None => 1,
            Chroma::Interleaved { .. } => 2,
            Chroma::Planar { .. } => 3,
        }
    }

    /// Where the samples of Cb (0) or Cr (1) lie: plane, place of the first in a row, bytes from one to the
    /// next. `None` where there is no chroma.
    pub fn chroma_samples(self, component: usize) -> Option<(usize, usize, usize)> {
        match self.chroma {
            Chroma::None => None,
            Chroma::Planar { u, v } => Some(([u, v][component], 0, 1)),
            Chroma::Interleaved { u } => Some((1, [u, 1 - u][component], 2)),
        }
    }

    /// Size in bytes of a row and in rows of plane `index` of a picture of this size.
    pub fn plane_size(self, index: usize, picture: Size) -> Size {
        if index == 0 {
            return picture;
        }
        let samples = picture.width.div_ceil(1 << self.x_shift);
        let height = picture.height.div_ceil(1 << self.y_shift);
        let per_sample = if matches!(self.chroma, Chroma::Interleaved { .. }) { 2 } else { 1 };
        Size::new(samples * per_sample, height)
    }
}

/// The format that a decoder announces for its pictures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VideoFormat {
    /// Size of the upright picture.
    pub size: Size,
    /// How its planes lie.
    pub pixels: PixelFormat,
    /// Frames a second as a fraction; (0, 1) where it varies or is unknown.
    pub frame_rate: (i32, i32),
    /// Width of a pixel over its height, as a fraction.
    pub pixel_aspect: (i32, i32),
    /// GStreamer's colorimetry text, where it is known.
    pub colorimetry: Option<String>,
}

impl VideoFormat {
    /// True if luma goes from 16 (black) to 235 (white), false if from 0 to 255. Where caps do not say, YUV
    /// is limited and grey is full, as in GStreamer.
    pub fn is_limited_range(&self) -> bool {
        match self.colorimetry.as_deref().unwrap_or_default() {
            "" => self.pixels.chroma != Chroma::None,
            "sRGB" => false,
            said => !said.starts_with("1:"),
        }
    }

    /// Bytes of all planes of a picture, without the padding between rows.
    pub fn bytes(&self) -> usize {
        (0..self.pixels.planes()).map(|plane| self.pixels.plane_size(plane, self.size).area()).sum()
    }
}

/// Planes that stay where the decoder put them for as long as the picture is held.
pub trait Picture: Send + Sync {
    /// Plane `index`, below `PixelFormat::planes`, in the host's memory; plane 0 is luma. A plane on a device
    /// is copied to the host as a whole at the first call, and stays there.
    fn plane(&self, index: usize) -> PlaneRef<'_>;

    /// As [`Self::plane`], for code that reads no bytes of it but those in `part`. The others are
    /// unspecified: a picture that is made of other colours makes no more than is read.
    fn part(&self, index: usize, _part: Rect) -> PlaneRef<'_> {
        self.plane(index)
    }

    /// The picture on the device, if its pixels are there. Callers that need a part of it read it there.
    fn surface(&self) -> Option<&(dyn Surface + 'static)> {
        None
    }
}

impl Picture for Plane {
    fn plane(&self, index: usize) -> PlaneRef<'_> {
        assert_eq!(index, 0, "a plane is a picture of one plane");
        self.as_ref()
    }
}

/// The number and times of a frame.
#[derive(Debug, Clone, Copy)]
pub struct FrameMeta {
    /// Zero-based count of frames that the source delivered, dropped ones included.
    pub index: u64,
    /// Presentation time in nanoseconds, where the source has one.
    pub pts_ns: Option<u64>,
    /// Its duration, in nanoseconds, where the source reports one.
    pub duration_ns: Option<u64>,
    /// When it arrived from the source, for latencies.
    pub arrived: Instant,
}

/// Nanoseconds from one frame to the next if neither times nor a rate are known.
pub const USUAL_INTERVAL_NS: u64 = 40_000_000;

/// Facts about a frame beside its picture and time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Circumstances {
    /// The time of its capture, if a live source reports it.
    pub captured: Option<Instant>,
    /// The source gave no time, and the one that it has continues those before.
    pub is_pts_interpolated: bool,
    /// Data before it are missing or damaged.
    pub is_discontinuity: bool,
}

/// One decoded frame. Cloning shares the picture.
#[derive(Clone)]
pub struct Frame {
    /// Its number and times.
    pub meta: FrameMeta,
    /// Other facts from the source.
    pub circumstances: Circumstances,
    /// The announced format; the same `Arc` until it changes.
    pub format: Arc<VideoFormat>,
    /// The planes.
    pub picture: Arc<dyn Picture>,
}

impl Frame {
    /// The luma plane as decoded, range untouched. One that lies on a device comes to the host as a whole.
    pub fn luma(&self) -> PlaneRef<'_> {
        self.picture.plane(0)
    }

    /// The part `rect` of the luma plane; if the plane is on a device, only that part is copied to the host.
    ///
    /// # Panics
    /// If `rect` is not inside the frame.
    pub fn with_luma_of<T>(&self, rect: Rect, look: impl FnOnce(PlaneRef<'_>) -> T) -> T {
        match self.picture.surface() {
            Some(surface) => look(surface.fetch(rect).as_ref()),
            None => look(self.luma().crop(rect)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_of_a_row_is_never_seen() {
        let data = [1, 2, 3, 9, 4, 5, 6, 9, 7, 8, 9];
        let plane = PlaneRef::new(&data, Size::new(3, 3), 4);
        assert_eq!(plane.rows().flatten().copied().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(plane.crop(Rect::new(1, 1, 2, 2)).to_plane().data(), [5, 6, 8, 9]);
    }

    #[test]
    #[should_panic(expected = "10 bytes for a 3x3 plane of stride 4")]
    fn a_plane_that_ends_early_is_refused() {
        let _ = PlaneRef::new(&[0; 10], Size::new(3, 3), 4);
    }

    #[test]
    #[should_panic(expected = "100 bytes for a 2x3 plane of stride 9223372036854775808, which needs")]
    fn a_stride_whose_product_wraps_round_is_refused() {
        let _ = PlaneRef::new(&[0; 100], Size::new(2, 3), 1 << 63);
    }

    #[test]
    #[should_panic(expected = "0 bytes for a 0x3 plane of stride 7, which needs 14")]
    fn rows_without_pixels_lie_in_the_data_too() {
        let _ = PlaneRef::new(&[], Size::new(0, 3), 7);
    }

    #[test]
    fn chroma_of_odd_pictures_is_rounded_up() {
        let odd = Size::new(5, 3);
        let size = |name| PixelFormat::from_name(name).expect("known format").plane_size(1, odd);
        assert_eq!(size("I420"), Size::new(3, 2));
        assert_eq!(size("NV12"), Size::new(6, 2));
        assert_eq!(size("Y444"), Size::new(5, 3));
        assert_eq!(size("NV16"), Size::new(6, 3));
    }
}
