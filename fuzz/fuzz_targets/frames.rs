//! Sizes and strides as a stranger's decoder might give them: a plane is refused, or all of its rows can be
//! read and nothing else.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use lockon::frame::{PixelFormat, PlaneMut, PlaneRef, Rect, Size, plane_bytes};

#[derive(Debug, Arbitrary)]
struct Layout<'a> {
    width: usize,
    height: usize,
    stride: usize,
    /// Numbers that are likely to fit.
    small: Option<(u8, u8, u8)>,
    crop: (u8, u8, u8, u8),
    data: &'a [u8],
}

fuzz_target!(|layout: Layout<'_>| {
    let Layout { mut width, mut height, mut stride, small, crop, data } = layout;
    if let Some((w, h, padding)) = small {
        (width, height) = (w.into(), h.into());
        stride = width + usize::from(padding);
    }
    let size = Size::new(width, height);
    let needed = if height == 0 { 0 } else { (height as u128 - 1) * stride as u128 + width as u128 };
    assert_eq!(plane_bytes(size, stride), usize::try_from(needed).ok());
    if width <= 1 << 16 && height <= 1 << 16 {
        for format in PixelFormat::ALL {
            for plane in 0..format.planes() {
                let size = format.plane_size(plane, size);
                assert!(size.area() <= 2 * (width + 1) * (height + 1));
            }
        }
    }
    // Planes that do not fit are refused by a panic, whose condition is what was just checked.
    // Rows without a byte between them can be without end.
    if stride < width || needed > data.len() as u128 || height > 1 << 16 {
        return;
    }
    let plane = PlaneRef::new(data, size, stride);
    assert!(plane.rows().all(|row| row.len() == width));
    let (x, y, w, h) = crop;
    let rect = Rect::new(x.into(), y.into(), w.into(), h.into());
    if rect.is_inside(size) {
        let part = plane.crop(rect).to_plane();
        let mut back = data.to_vec();
        PlaneMut::new(&mut back, size, stride).copy_from(plane);
        assert!(back == data && part.size() == rect.size());
        assert_eq!(part.as_ref().row(0), &plane.row(rect.y)[rect.x..][..rect.w]);
    }
});
