//! A drawing for programs that lay pictures over each other: small pictures with transparency, instead of
//! changed pixels.

use super::canvas::mix;
use super::drawing::{Drawing, Ink, Step};
use crate::frame::{PlaneRef, Rect, Size};

/// Steps no farther from each other than so many pixels share a layer: a label and its box, the dots of a
/// trail. Each layer is a texture where a GPU lays them over the picture.
const NEAR: usize = 16;

/// With more than so many layers one of them has everything.
const MOST: usize = 32;

/// A small picture that lies over a large one: four bytes a pixel, which are alpha, luma, Cb and Cr (`AYUV`),
/// not multiplied with alpha; rows without padding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// Its area.
    pub area: Rect,
    /// Its pixels.
    pub pixels: Vec<u8>,
}

impl Layer {
    /// A thresholded frame from column `first_column` on, which hides everything under it.
    ///
    /// # Panics
    /// If there is no such column.
    pub fn of_mask(mask: PlaneRef<'_>, first_column: usize) -> Self {
        let Size { width, height } = mask.size();
        let area = Rect::new(first_column, 0, width - first_column, height);
        let pixels = mask.crop(area).rows().flatten().flat_map(|&luma| [255, luma, 128, 128]).collect();
        Self { area, pixels }
    }

    fn transparent(area: Rect) -> Self {
        Self { area, pixels: [0, 0, 128, 128].repeat(area.size().area()) }
    }

    /// Lays a colour over the layer, or luma alone: then existing colours stay, and new parts have none.
    fn mix(&mut self, x: usize, y: usize, luma: u8, chroma: Option<(u8, u8)>, opacity: u8) {
        let at = 4 * ((y - self.area.y) * self.area.w + x - self.area.x);
        let [alpha, own_luma, own_chroma @ ..] = &mut self.pixels[at..][..4] else {
            unreachable!("a pixel is four bytes")
        };
        // Shares of 255 x 255.
        let over = 255 * u32::from(opacity);
        let total = over + u32::from(*alpha) * u32::from(255 - opacity);
        if total == 0 {
            return;
        }
        let mixed = |own: u8, new: u8, over: u32| {
            ((u32::from(new) * over + u32::from(own) * (total - over) + total / 2) / total) as u8
        };
        *own_luma = mixed(*own_luma, luma, over);
        let (over, (cb, cr)) = match chroma {
            Some(chroma) => (over, chroma),
            None => (total - 255 * u32::from(*alpha), (128, 128)),
        };
        for (own, new) in own_chroma.iter_mut().zip([cb, cr]) {
            *own = mixed(*own, new, over);
        }
        *alpha = mix(*alpha, 255, opacity);
    }

    fn take(&mut self, Step { area, ink }: &Step, coverage: &[u8]) {
        for y in area.y..area.y + area.h {
            for x in area.x..area.x + area.w {
                match *ink {
                    Ink::Colour { colour, opacity } => {
                        self.mix(x, y, colour.luma, Some((colour.cb, colour.cr)), opacity);
                    }
                    Ink::Luma { luma, opacity } => self.mix(x, y, luma, None, opacity),
                    Ink::Letter { luma, first, zoom } => {
                        let at = (y - area.y) / zoom * (area.w / zoom) + (x - area.x) / zoom;
                        self.mix(x, y, luma, None, coverage[first + at]);
                    }
                }
            }
        }
    }
}

/// Returns the steps of a drawing as layers that do not touch each other. Laid over a picture they look like
/// the result of [`Canvas::paint`](super::Canvas::paint), within some steps of rounding, except for the
/// picture's own colours under shadows and letters: a painter leaves them, while a layer covers luma and
/// chroma alike.
pub fn layers(drawing: &Drawing) -> Vec<Layer> {
    let mut areas: Vec<Rect> = Vec::new();
    for step in drawing.steps() {
        let mut joined = step.area;
        // A larger area may reach others.
        while let Some(near) = areas.iter().position(|area| are_near(*area, joined)) {
            joined = around(joined, areas.swap_remove(near));
        }
        areas.push(joined);
    }
    if areas.len() > MOST {
        areas = areas.into_iter().reduce(around).into_iter().collect();
    }
    let mut layers: Vec<_> = areas.into_iter().map(Layer::transparent).collect();
    for step in drawing.steps() {
        let is_on = |layer: &&mut Layer| are_near(layer.area, step.area);
        let layer = layers.iter_mut().find(is_on).expect("each step is in an area");
        layer.take(step, drawing.coverage());
    }
    layers
}

fn are_near(a: Rect, b: Rect) -> bool {
    let are_near = |a: usize, a_length: usize, b: usize, b_length: usize| {
        a < b + b_length + NEAR && b < a + a_length + NEAR
    };
    are_near(a.x, a.w, b.x, b.w) && are_near(a.y, a.h, b.y, b.h)
}

/// The smallest box around both.
fn around(a: Rect, b: Rect) -> Rect {
    let (x, y) = (a.x.min(b.x), a.y.min(b.y));
    let (right, bottom) = ((a.x + a.w).max(b.x + b.w), (a.y + a.h).max(b.y + b.h));
    Rect::new(x, y, right - x, bottom - y)
}
