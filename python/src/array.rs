//! Arrays of numpy as pictures.

#![expect(unsafe_code, reason = "an array is described by an address, a shape and strides")]

use std::sync::OnceLock;

use lockon_core::colour;
use lockon_core::frame::{Picture, PixelFormat, Plane, PlaneRef, Size, VideoFormat};
use lockon_core::simd::Level;
use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// The pixels of an array of shape (height, width), or (height, width, 3) in the order blue, green, red.
///
/// They are read where they lie, also while other threads of Python run. Whoever writes to an array meanwhile
/// gets results of old and new pixels.
pub(crate) struct Pixels {
    address: usize,
    size: Size,
    /// Bytes from one row to the next, to the next pixel, and to the next colour.
    strides: [isize; 3],
    has_colours: bool,
    /// Keeps the memory where it is.
    _array: Py<PyAny>,
}

impl Pixels {
    /// Those of an array that is called `name` in messages.
    pub(crate) fn of(array: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        let Ok(there) = array.cast::<PyUntypedArray>() else {
            let remedy = if array.hasattr("__cuda_array_interface__")? {
                "it lies on a GPU: copy it to the host first (.get(), .cpu().numpy())"
            } else {
                "numpy.asarray makes one of most pictures"
            };
            let kind = array.get_type().name()?;
            return Err(PyTypeError::new_err(format!("{name} is no numpy array but a {kind}: {remedy}")));
        };
        let (shape, strides) = (there.shape(), there.strides());
        let dtype = there.dtype();
        if !dtype.is_equiv_to(&numpy::dtype::<u8>(array.py())) {
            let remedy = match dtype.kind() {
                b'f' => {
                    format!("of values from 0 to 1, (255 * {name}).round().astype(numpy.uint8) makes them")
                }
                b'b' => format!("{name}.astype(numpy.uint8) * 255 makes them"),
                _ if dtype.itemsize() == 2 => {
                    format!("of 16 bits, ({name} >> 8).astype(numpy.uint8) makes them")
                }
                _ => format!("{name}.astype(numpy.uint8) makes them"),
            };
            return Err(PyTypeError::new_err(format!(
                "{name} has {dtype} values, and uint8 is needed: {remedy}"
            )));
        }
        let (height, width, has_colours) = match *shape {
            [height, width] | [height, width, 1] => (height, width, false),
            [height, width, 3] => (height, width, true),
            _ => {
                let remedy = if matches!(shape, [_, _, 4]) {
                    format!(": {name}[..., :3] leaves the alpha channel out")
                } else {
                    String::new()
                };
                return Err(PyValueError::new_err(format!(
                    "{name} has the shape {shape:?}, and (height, width), or (height, width, 3) in the order blue, green, \
                     red, is needed{remedy}"
                )));
            }
        };
        if height == 0 || width == 0 {
            return Err(PyValueError::new_err(format!("{name} has the shape {shape:?}: it has no pixels")));
        }
        let colour = if has_colours { strides[2] } else { 0 };
        // SAFETY: this reads a field of the array's header.
        let address = unsafe { (*there.as_array_ptr()).fields.data as usize };
        Ok(Self {
            address,
            size: Size::new(width, height),
            strides: [strides[0], strides[1], colour],
            has_colours,
            _array: array.clone().unbind(),
        })
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

    /// A plane of the array's size, of what `value` makes of red, green and blue.
    fn plane(&self, value: impl Fn([u8; 3]) -> u8) -> Plane {
        let Size { width, height } = self.size;
        let mut data = vec![0; self.size.area()];
        let [row, pixel, colour] = self.strides;
        Level::best().run(
            #[inline(always)]
            || {
                for (y, out) in (0..height).zip(data.chunks_exact_mut(width)) {
                    if pixel == 3 && colour == 1 {
                        // SAFETY: the row's pixels lie there one after the other, and the array keeps them.
                        let pixels = unsafe {
                            let first = (self.address as *const u8).offset(y as isize * row);
                            std::slice::from_raw_parts(first, 3 * width)
                        };
                        for (out, &[blue, green, red]) in out.iter_mut().zip(pixels.as_chunks::<3>().0) {
                            *out = value([red, green, blue]);
                        }
                    } else {
                        for (x, out) in out.iter_mut().enumerate() {
                            *out = value([self.at(x, y, 2), self.at(x, y, 1), self.at(x, y, 0)]);
                        }
                    }
                }
            },
        );
        Plane::from_vec(data, self.size)
    }

    /// Luma in a plane of its own.
    pub(crate) fn to_luma(&self) -> Plane {
        if self.has_colours {
            return self.plane(colour::luma_of);
        }
        if let Some(there) = self.luma_there() {
            return there.to_plane();
        }
        let Size { width, height } = self.size;
        let pixels = (0..height).flat_map(|y| (0..width).map(move |x| self.at(x, y, 0)));
        Plane::from_vec(pixels.collect(), self.size)
    }

    /// As a picture that is read where it lies, if it can be.
    pub(crate) fn into_picture(self) -> ArrayPicture {
        let luma = OnceLock::new();
        if self.luma_there().is_none() {
            let _ = luma.set(self.to_luma());
        }
        ArrayPicture { pixels: self, luma, chroma: [OnceLock::new(), OnceLock::new()] }
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

/// An array as the engine reads pictures. Chroma is made when it is asked for.
pub(crate) struct ArrayPicture {
    pixels: Pixels,
    luma: OnceLock<Plane>,
    chroma: [OnceLock<Plane>; 2],
}

impl ArrayPicture {
    pub(crate) fn luma(&self) -> PlaneRef<'_> {
        let made = || self.luma.get().expect("made where it is not there").as_ref();
        self.pixels.luma_there().unwrap_or_else(made)
    }
}

impl Picture for ArrayPicture {
    fn plane(&self, index: usize) -> PlaneRef<'_> {
        if index == 0 {
            return self.luma();
        }
        let plane = self.chroma[index - 1].get_or_init(|| {
            self.pixels.plane(
                #[inline(always)]
                |pixel| colour::of_rgb(pixel)[index],
            )
        });
        plane.as_ref()
    }
}
