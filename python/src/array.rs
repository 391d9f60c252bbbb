//! Arrays on the host as pictures: numpy's, and others by DLPack.

#![expect(unsafe_code, reason = "an array is described by an address, a shape and strides")]

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use lockon_core::colour;
use lockon_core::error::Result;
use lockon_core::frame::{Picture, PixelFormat, Plane, PlaneRef, Rect, Size, VideoFormat};
use lockon_core::memory;
use lockon_core::still::MAX_PIXELS;
use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::dlpack::{self, Device, Taken, Tensor};

/// The pixels of an array of shape (height, width), or (height, width, 3) in the order blue, green, red.
///
/// They are read where they lie, while other threads of Python run. During a call nobody may write to the
/// array, or resize it without numpy's check of references: the module's documentation says so.
pub(crate) struct Pixels {
    address: usize,
    size: Size,
    /// Bytes from one row to the next, to the next pixel, and to the next colour.
    strides: [isize; 3],
    has_colours: bool,
    /// Keeps the memory where it is.
    _keeper: Keeper,
}

/// The owner of an array's memory.
pub(crate) enum Keeper {
    Array { _own: Py<PyAny> },
    Tensor { _own: Taken },
}

impl Pixels {
    /// Takes the pixels of an array that is called `name` in messages: numpy's, or one on the host with
    /// DLPack.
    pub(crate) fn of(array: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        let Ok(there) = array.cast::<PyUntypedArray>() else {
            return match Device::of(array)? {
                Some(device) if device.is_host() => {
                    let Tensor { address, shape, strides, keeper } = Tensor::of(array, device, name)?;
                    Self::new(address, (&shape, &strides), Keeper::Tensor { _own: keeper }, name)
                }
                Some(device) => Err(PyTypeError::new_err(format!(
                    "{name} lies on {device}; copy it to the host first, with .cpu()"
                ))),
                None => Err(PyTypeError::new_err(no_array(array, name)?)),
            };
        };
        let dtype = there.dtype();
        if !dtype.is_equiv_to(&numpy::dtype::<u8>(array.py())) {
            let remedy = match dtype.kind() {
                b'f' => "(255 * array).round().astype(numpy.uint8) converts values from 0 to 1",
                b'b' => "array.astype(numpy.uint8) * 255 converts it",
                _ if dtype.itemsize() == 2 => "(array >> 8).astype(numpy.uint8) converts values of 16 bits",
                _ => "array.astype(numpy.uint8) converts values from 0 to 255",
            };
            return Err(PyTypeError::new_err(format!("{name} must be uint8, not {dtype}: {remedy}")));
        }
        // SAFETY: this reads a field of the array's header.
        let address = unsafe { (*there.as_array_ptr()).fields.data as usize };
        let keeper = Keeper::Array { _own: array.clone().unbind() };
        Self::new(address, (there.shape(), there.strides()), keeper, name)
    }

    /// The pixels of an array of `uint8`, which is kept by its keeper.
    fn new(
        address: usize,
        (shape, strides): (&[usize], &[isize]),
        keeper: Keeper,
        name: &str,
    ) -> PyResult<Self> {
        let wrong = |what: &str| {
            Err(PyValueError::new_err(format!("{name} has the shape {}: {what}", dlpack::shown(shape))))
        };
        let (height, width, has_colours) = match *shape {
            [height, width] | [height, width, 1] => (height, width, false),
            [height, width, 3] => (height, width, true),
            _ => {
                let remedy = match (shape, &keeper) {
                    ([_, _, 4], _) => "; array[..., :3] leaves alpha out",
                    ([3, _, _], Keeper::Tensor { .. }) => {
                        "; tensor.flip(0).permute(1, 2, 0) converts red, green, blue before height and width"
                    }
                    _ => "",
                };
                return wrong(&format!(
                    "(height, width) is needed, or (height, width, 3) in the order blue, green, red{remedy}"
                ));
            }
        };
        if height == 0 || width == 0 {
            return wrong("it has no pixels; height and width must be at least 1");
        }
        if height.checked_mul(width).is_none_or(|pixels| pixels as u64 > MAX_PIXELS) {
            return wrong(&format!("at most {MAX_PIXELS} pixels can be read; pass a part of it"));
        }
        let colour = if has_colours { strides[2] } else { 0 };
        let strides = [strides[0], strides[1], colour];
        Ok(Self { address, size: Size::new(width, height), strides, has_colours, _keeper: keeper })
    }

    pub(crate) fn size(&self) -> Size {
        self.size
    }

    /// Luma, where the array has it in rows that go on from left to right.
    fn luma_there(&self) -> Option<PlaneRef<'_>> {
        let Size { width, height } = self.size;
        let [row, pixel, _] = self.strides;
        let is_plain = !self.has_colours && (pixel == 1 || width == 1);
        let stride = if height == 1 { width } else { usize::try_from(row).ok()? };
        let is_apart = is_plain && stride >= width;
        // SAFETY: these are the array's pixels, which it keeps, with gaps between the rows that lie in its
        // memory too.
        is_apart.then(|| unsafe {
            let bytes = std::slice::from_raw_parts(self.address as *const u8, (height - 1) * stride + width);
            PlaneRef::new(bytes, self.size, stride)
        })
    }

    /// A pixel's value, or one of its colours.
    #[inline(always)]
    fn at(&self, x: usize, y: usize, colour: isize) -> u8 {
        let [row, pixel, next] = self.strides;
        let offset = y as isize * row + x as isize * pixel + colour * next;
        // SAFETY: the array has this pixel, and keeps it.
        unsafe { *(self.address as *const u8).offset(offset) }
    }

    /// The pixels of a row in colour, three bytes each; `room` is for rows that lie otherwise.
    fn bgr<'a>(&'a self, y: usize, room: &'a mut Vec<u8>) -> &'a [u8] {
        let (width, [row, pixel, colour]) = (self.size.width, self.strides);
        if pixel == 3 && colour == 1 {
            // SAFETY: the row's pixels lie there one after the other, and the array keeps them.
            return unsafe {
                let first = (self.address as *const u8).offset(y as isize * row);
                std::slice::from_raw_parts(first, 3 * width)
            };
        }
        room.clear();
        room.extend((0..width).flat_map(|x| [0, 1, 2].map(|colour| self.at(x, y, colour))));
        room
    }

    fn new_plane(&self) -> Result<Plane> {
        Ok(Plane::from_vec(memory::filled("a picture", self.size.area(), 0)?, self.size))
    }

    /// Luma in a plane of its own.
    pub(crate) fn to_luma(&self) -> Result<Plane> {
        let mut luma = self.new_plane()?;
        if let Some(there) = self.luma_there() {
            luma.as_mut().copy_from(there);
            return Ok(luma);
        }
        let mut room = Vec::new();
        for y in 0..self.size.height {
            let mut luma = luma.as_mut();
            if self.has_colours {
                colour::luma_of_bgr(self.bgr(y, &mut room), luma.row(y));
            } else {
                for (x, pixel) in luma.row(y).iter_mut().enumerate() {
                    *pixel = self.at(x, y, 0);
                }
            }
        }
        Ok(luma)
    }

    /// As a picture that is read where it lies, if it can be. Its only plane is luma.
    pub(crate) fn into_picture(self) -> Result<ArrayPicture> {
        let luma = if self.luma_there().is_some() { None } else { Some(self.to_luma()?) };
        Ok(ArrayPicture { pixels: self, luma, chroma: None })
    }

    /// As above, with chroma if it has colours. `spare` is left by the picture before.
    ///
    /// Luma is made at once. Chroma is made where the picture before was asked for it, and a little around
    /// that, since both together take less time than one after the other; if more is read, all of it is made.
    pub(crate) fn into_coloured_picture(self, spare: Spare) -> Result<ArrayPicture> {
        if !self.has_colours {
            return self.into_picture();
        }
        let Size { width, height } = self.size;
        let mut planes = match <[Plane; 3]>::try_from(spare.planes) {
            Ok(planes) if planes[0].size() == self.size => planes,
            _ => [self.new_plane()?, self.new_plane()?, self.new_plane()?],
        };
        let ready = spare.asked.and_then(|asked| grown(asked).cut_to(self.size));
        let columns = ready.map_or(0..0, |ready| ready.x..ready.x + ready.w);
        let [mut luma, mut cb, mut cr] = planes.each_mut().map(Plane::as_mut);
        let mut room = Vec::new();
        for y in 0..height {
            let (pixels, luma) = (self.bgr(y, &mut room), luma.row(y));
            if !ready.is_some_and(|ready| (ready.y..ready.y + ready.h).contains(&y)) {
                colour::luma_of_bgr(pixels, luma);
                continue;
            }
            let (Range { start, end }, (cb, cr)) = (columns.clone(), (cb.row(y), cr.row(y)));
            colour::luma_of_bgr(&pixels[..3 * start], &mut luma[..start]);
            let own = [&mut luma[start..end], &mut cb[start..end], &mut cr[start..end]];
            colour::of_bgr(&pixels[3 * start..3 * end], own);
            colour::luma_of_bgr(&pixels[3 * end..3 * width], &mut luma[end..]);
        }
        let [luma, cb, cr] = planes;
        let chroma = Chroma { made: [cb, cr], ready, whole: OnceLock::new(), asked: Asked::default() };
        Ok(ArrayPicture { pixels: self, luma: Some(luma), chroma: Some(chroma) })
    }

    /// The format of its picture: grey, or luma and chroma of its size, at full range, as pictures in files
    /// are read.
    pub(crate) fn format(&self) -> VideoFormat {
        let name = if self.has_colours { "Y444" } else { "GRAY8" };
        VideoFormat {
            size: self.size,
            pixels: PixelFormat::from_name(name).expect("a known format"),
            frame_rate: (0, 1),
            pixel_aspect: (1, 1),
            colorimetry: None,
        }
    }
}

/// The message for an argument that is no array.
fn no_array(array: &Bound<'_, PyAny>, name: &str) -> PyResult<String> {
    if array.is_none() {
        return Ok(format!("{name} is None: cv2.imread returns None for a file that it cannot read"));
    }
    if array.hasattr("__cuda_array_interface__")? {
        return Ok(format!("{name} lies on a GPU; copy it to the host first, with .get() or .cpu().numpy()"));
    }
    let kind = array.get_type().name()?;
    Ok(format!(
        "{name} must be a numpy array, or another with DLPack, not {kind}: numpy.asarray(picture) converts a grey picture of \
         Pillow, numpy.asarray(picture)[..., ::-1] one in colour"
    ))
}

/// An array as the engine reads pictures.
pub(crate) struct ArrayPicture {
    pixels: Pixels,
    /// Unless it can be read where it lies.
    luma: Option<Plane>,
    /// If it is wanted.
    chroma: Option<Chroma>,
}

/// Cb and Cr.
struct Chroma {
    made: [Plane; 2],
    /// The part of them that is.
    ready: Option<Rect>,
    /// All of it, once more was read.
    whole: OnceLock<[Plane; 2]>,
    asked: Asked,
}

/// The parts of chroma that were read, by the first column and row and the last ones.
struct Asked([AtomicUsize; 4]);

impl Default for Asked {
    fn default() -> Self {
        Self([usize::MAX, usize::MAX, 0, 0].map(AtomicUsize::new))
    }
}

impl Asked {
    fn add(&self, Rect { x, y, w, h }: Rect) {
        // No memory depends on these numbers: `plane` and `part` look at `ready` alone.
        let [left, top, right, bottom] = &self.0;
        left.fetch_min(x, Ordering::Relaxed);
        top.fetch_min(y, Ordering::Relaxed);
        right.fetch_max(x + w, Ordering::Relaxed);
        bottom.fetch_max(y + h, Ordering::Relaxed);
    }

    /// A rectangle about all of them.
    fn bounds(self) -> Option<Rect> {
        let [x, y, right, bottom] = self.0.map(AtomicUsize::into_inner);
        (right > x && bottom > y).then(|| Rect::new(x, y, right - x, bottom - y))
    }
}

/// A part about another: of targets that move the next frame shows what lies a little beside it. Columns are
/// whole vectors.
fn grown(Rect { x, y, w, h }: Rect) -> Rect {
    const VECTOR: usize = 64;
    let (across, down) = (w / 16 + 16, h / 16 + 16);
    let (left, top) = (x.saturating_sub(across) / VECTOR * VECTOR, y.saturating_sub(down));
    let right = (x + w + across).next_multiple_of(VECTOR);
    Rect::new(left, top, right - left, y + h + down - top)
}

/// Planes of the previous picture in colour, which the next one of its size reuses.
#[derive(Default)]
pub(crate) struct Spare {
    planes: Vec<Plane>,
    /// Where chroma was read.
    asked: Option<Rect>,
}

impl ArrayPicture {
    pub(crate) fn into_spare(self) -> Spare {
        let Some(Chroma { made, asked, .. }) = self.chroma else { return Spare::default() };
        Spare { planes: self.luma.into_iter().chain(made).collect(), asked: asked.bounds() }
    }

    pub(crate) fn luma(&self) -> PlaneRef<'_> {
        match &self.luma {
            Some(made) => made.as_ref(),
            None => self.pixels.luma_there().expect("it was there"),
        }
    }

    fn chroma(&self) -> &Chroma {
        self.chroma.as_ref().expect("the format has chroma")
    }

    /// All of chroma.
    fn whole_chroma(&self) -> &[Plane; 2] {
        self.chroma().whole.get_or_init(|| {
            let mut planes = [(); 2].map(|()| Plane::new(self.pixels.size));
            let [mut cb, mut cr] = planes.each_mut().map(Plane::as_mut);
            let mut room = Vec::new();
            for y in 0..self.pixels.size.height {
                colour::chroma_of_bgr(self.pixels.bgr(y, &mut room), [cb.row(y), cr.row(y)]);
            }
            planes
        })
    }
}

impl Picture for ArrayPicture {
    fn plane(&self, index: usize) -> PlaneRef<'_> {
        if index == 0 {
            return self.luma();
        }
        self.chroma().asked.add(Rect::whole(self.pixels.size));
        self.whole_chroma()[index - 1].as_ref()
    }

    fn part(&self, index: usize, part: Rect) -> PlaneRef<'_> {
        if index == 0 {
            return self.luma();
        }
        let Chroma { made, ready, asked, .. } = self.chroma();
        asked.add(part);
        let is_ready = ready.is_some_and(|ready| {
            ready.x <= part.x
                && ready.y <= part.y
                && part.x + part.w <= ready.x + ready.w
                && part.y + part.h <= ready.y + ready.h
        });
        if is_ready { made[index - 1].as_ref() } else { self.whole_chroma()[index - 1].as_ref() }
    }
}
