//! The patterns that are searched: one template, and a bank of them in several sizes and directions.

use std::sync::Arc;

use crate::config::{Angles, Scales};
use crate::error::{Bytes, Error, Result, TemplateFault};
use crate::frame::{Plane, Size};
use crate::message::{Message, PYRAMID, Setting};

mod written;

/// Maximum pixels of a template: with more, the exact sums of products of 8-bit pixels could exceed 64 bits.
pub const MAX_PIXELS: u64 = 1 << 22;

/// Maximum members of a bank, and maximum variants of a search from coarse to fine.
pub const MAX_MEMBERS: usize = 1 << 20;

/// Maximum pixels of all members of a bank together: with their masks they use 1 GiB.
pub const MAX_BANK_PIXELS: u64 = 1 << 29;

/// Refuses more than [`MAX_MEMBERS`] of `templates`, each in all sizes and directions, before there is one of
/// them.
///
/// # Errors
/// `Usage` if there would be more.
pub fn check_count(templates: usize, scales: &Scales, angles: &Angles) -> Result<()> {
    let (scales, angles) = (scales.0.len(), angles.0.len());
    let members = templates.saturating_mul(scales).saturating_mul(angles);
    if members > MAX_MEMBERS {
        return Err(Error::Usage(format!(
            "templates in {scales} sizes and {angles} directions are {members}: {MAX_MEMBERS} at most are searched"
        )));
    }
    Ok(())
}

/// A pattern: luma pixels, the mask that says which of them count, and their sums. Clones share the pixels.
///
/// As text it has `name`, `w`, `h` and its pixels in base64: `png`, a grey PNG whose alpha channel is the
/// mask, or, where that would be longer, `luma` and perhaps `mask`, a byte a pixel, row by row.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    name: Arc<str>,
    luma: Arc<Plane>,
    mask: Option<Arc<Plane>>,
    /// The columns that count in each row of a mask, as half-open ranges; none if some row has gaps.
    spans: Option<Arc<[(u32, u32)]>>,
    sums: TemplateSums,
    scale: f64,
    angle: f64,
    /// The pixels as records have them.
    written: written::Cache,
}

/// The sums of a template over its counted pixels, exact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TemplateSums {
    /// n, the number of counted pixels.
    pub n: i64,
    /// t1, the sum of T.
    pub t1: i64,
    /// t2, the sum of T * T.
    pub t2: i64,
}

impl TemplateSums {
    /// The sums of a plane without a mask.
    pub fn of(luma: &Plane) -> Self {
        let sum = |f: fn(i64) -> i64| luma.data().iter().map(|&v| f(i64::from(v))).sum();
        Self { n: luma.data().len() as i64, t1: sum(|v| v), t2: sum(|v| v * v) }
    }

    /// n * t2 - t1 * t1, the template's part of the denominator of NCC; 0 if it is flat.
    pub fn variance(self) -> i64 {
        self.n * self.t2 - self.t1 * self.t1
    }
}

impl Template {
    /// Returns a template of `luma`. Only pixels whose `mask` is 128 or more count; all, if there is no mask.
    ///
    /// # Errors
    /// `Template` if it is empty, flat, too large, or if the mask is of another size or leaves fewer than two
    /// pixels.
    pub fn new(name: impl Into<Arc<str>>, luma: Plane, mask: Option<&Plane>) -> Result<Self> {
        let name = name.into();
        let mask =
            mask.map(|m| Plane::from_vec(m.data().iter().map(|&v| u8::from(v >= 128)).collect(), m.size()));
        Self::with_counted(name, luma, mask, 1.0, 0.0)
    }

    fn with_counted(
        name: Arc<str>,
        mut luma: Plane,
        counted: Option<Plane>,
        scale: f64,
        angle: f64,
    ) -> Result<Self> {
        let fault = |fault| Err(Error::Template { name: name.to_string(), fault });
        let size = luma.size();
        if let Err(refused) = check_size(size) {
            return fault(refused);
        }
        if let Some(mask) = counted.as_ref().filter(|m| m.size() != size) {
            return fault(TemplateFault::MaskSize { template: size, mask: mask.size() });
        }
        // A mask that leaves out nothing is no mask: the search without one is cheaper and the same.
        let mask = counted.filter(|m| m.data().contains(&0));
        let mut any_counted = luma.data()[0];
        if let Some(mask) = &mask {
            for (pixel, &counts) in luma.data_mut().iter_mut().zip(mask.data()) {
                any_counted = if counts == 1 { *pixel } else { any_counted };
                *pixel *= counts;
            }
        }
        // Pixels that do not count are 0 by now, so only n depends on the mask.
        let mut sums = TemplateSums::of(&luma);
        if let Some(mask) = &mask {
            sums.n = mask.data().iter().map(|&c| i64::from(c)).sum();
            if sums.n < 2 {
                return fault(TemplateFault::MaskTooSmall(sums.n as u64));
            }
        }
        if sums.variance() == 0 {
            return fault(TemplateFault::Flat(any_counted));
        }
        let spans = mask.as_ref().and_then(spans);
        let (luma, mask, written) = (Arc::new(luma), mask.map(Arc::new), written::Cache::default());
        Ok(Self { name, luma, mask, spans, sums, scale, angle, written })
    }

    /// A copy under another name.
    pub fn renamed(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Its name in matches.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Width and height of its box.
    pub fn size(&self) -> Size {
        self.luma.size()
    }

    /// Its pixels; those that do not count are 0.
    pub fn luma(&self) -> &Plane {
        &self.luma
    }

    /// 1 where a pixel counts and 0 where not, or `None` if all count.
    pub fn mask(&self) -> Option<&Plane> {
        self.mask.as_deref()
    }

    /// The columns that count in each row of the mask, as half-open ranges. `None` without a mask, or if some
    /// row has gaps: a turned rectangle has none.
    pub(crate) fn spans(&self) -> Option<&[(u32, u32)]> {
        self.spans.as_deref()
    }

    /// Its exact sums.
    pub fn sums(&self) -> TemplateSums {
        self.sums
    }

    /// Its size relative to the picture it was made from.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Its direction relative to that picture, in degrees, counter-clockwise positive.
    pub fn angle(&self) -> f64 {
        self.angle
    }

    /// The template scaled by `scale` and turned by `angle` degrees about its centre, in the smallest box
    /// around it.
    ///
    /// Bilinear, averaged over `ceil(1/scale)` squared samples a pixel where it shrinks, in integers
    /// throughout (sine and cosine come from `libm`, rounded to 20 fraction bits): the same pixels on every
    /// machine. A pixel counts if at least half of its source counts and lies in the template, so turned
    /// corners are masked out.
    ///
    /// # Errors
    /// As [`Template::new`]: at a small scale nothing may be left, or only flat pixels.
    pub fn resampled(&self, scale: f64, angle: f64) -> Result<Self> {
        if scale == 1.0 && angle == 0.0 {
            return Ok(self.clone());
        }
        // Asked before its pixels are made: there may be more of them than there is memory.
        let pixels = resampled_size(self.size(), scale, angle).area() as u64;
        if pixels > MAX_PIXELS {
            let fault = TemplateFault::TooManyPixels { pixels, max: MAX_PIXELS };
            return Err(Error::Template { name: self.name.to_string(), fault });
        }
        let (luma, counted) = resample(&self.luma, self.mask.as_deref(), scale, angle);
        Self::with_counted(self.name.clone(), luma, Some(counted), scale, angle)
    }
}

/// Refuses sizes for which sums would not be exact, or are none.
fn check_size(size: Size) -> Result<(), TemplateFault> {
    match size.area() as u64 {
        0 => Err(TemplateFault::Empty(size)),
        1 => Err(TemplateFault::OnePixel),
        pixels if pixels > MAX_PIXELS => Err(TemplateFault::TooManyPixels { pixels, max: MAX_PIXELS }),
        _ => Ok(()),
    }
}

/// The smallest box around a picture of this size that is scaled and turned.
pub fn resampled_size(size: Size, scale: f64, angle: f64) -> Size {
    let (sin, cos) = sin_cos_degrees(angle);
    let (wide, high) = (size.width as f64 * scale, size.height as f64 * scale);
    let pixels = |length: f64| (libm::round(length) as usize).max(1);
    Size::new(pixels(wide * cos.abs() + high * sin.abs()), pixels(wide * sin.abs() + high * cos.abs()))
}

/// The columns that count in each row of a 0/1 mask; `None` if those of some row have gaps.
fn spans(mask: &Plane) -> Option<Arc<[(u32, u32)]>> {
    let span = |row: &[u8]| {
        let Some(from) = row.iter().position(|&counts| counts == 1) else { return Some((0, 0)) };
        let to = row.iter().rposition(|&counts| counts == 1).map_or(from, |last| last + 1);
        row[from..to].iter().all(|&counts| counts == 1).then_some((from as u32, to as u32))
    };
    mask.as_ref().rows().map(span).collect()
}

/// Pixels and 0/1 mask of a picture scaled and turned about its centre; see [`Template::resampled`].
fn resample(luma: &Plane, mask: Option<&Plane>, scale: f64, angle: f64) -> (Plane, Plane) {
    let (sin, cos) = sin_cos_degrees(angle);
    let Size { width: w, height: h } = luma.size();
    let turned = resampled_size(luma.size(), scale, angle);
    // Source pixels per turned pixel along each axis, in 20 fraction bits.
    let fixed = |v: f64| libm::round(v / scale * f64::from(1 << 20)) as i64;
    let (cos, sin) = (fixed(cos), fixed(sin));
    let samples = if scale < 1.0 { libm::ceil(1.0 / scale - 1e-9) as i64 } else { 1 };
    let (mut out, mut counted) = (Plane::new(turned), Plane::new(turned));
    let full_coverage = (samples * samples) << 16;
    for (index, (out, counted)) in out.data_mut().iter_mut().zip(counted.data_mut()).enumerate() {
        let (i, j) = ((index % turned.width) as i64, (index / turned.width) as i64);
        let (mut value, mut coverage) = (0_i64, 0_i64);
        for b in 0..samples {
            for a in 0..samples {
                // The sample's offset from the centre, in units of 1 / (2 * samples) pixel.
                let u = 2 * (i * samples + a) + 1 - turned.width as i64 * samples;
                let v = 2 * (j * samples + b) + 1 - turned.height as i64 * samples;
                // The source position, in 16 fraction bits: turned back clockwise (rows count downwards).
                let sx = (cos * u - sin * v).div_euclid((2 * samples) << 4) + ((w as i64) << 15);
                let sy = (sin * u + cos * v).div_euclid((2 * samples) << 4) + ((h as i64) << 15);
                if !(0..(w as i64) << 16).contains(&sx) || !(0..(h as i64) << 16).contains(&sy) {
                    continue;
                }
                // Pixel centres lie at halves; eight bits of the fraction weigh the four neighbours.
                let (px, py) = (sx - (1 << 15), sy - (1 << 15));
                let (fx, fy) = ((px & 0xffff) >> 8, (py & 0xffff) >> 8);
                for (dy, wy) in [(0, 256 - fy), (1, fy)] {
                    for (dx, wx) in [(0, 256 - fx), (1, fx)] {
                        let x = ((px >> 16) + dx).clamp(0, w as i64 - 1) as usize;
                        let y = ((py >> 16) + dy).clamp(0, h as i64 - 1) as usize;
                        let counts = mask.map_or(1, |m| i64::from(m.data()[y * w + x]));
                        coverage += wx * wy * counts;
                        value += wx * wy * counts * i64::from(luma.data()[y * w + x]);
                    }
                }
            }
        }
        if coverage > 0 && 2 * coverage >= full_coverage {
            (*out, *counted) = (((2 * value + coverage) / (2 * coverage)) as u8, 1);
        }
    }
    (out, counted)
}

/// Sine and cosine, exact for quarter turns, so that these move pixels without mixing them.
pub fn sin_cos_degrees(angle: f64) -> (f64, f64) {
    match angle.rem_euclid(360.0) {
        0.0 => (0.0, 1.0),
        90.0 => (1.0, 0.0),
        180.0 => (0.0, -1.0),
        270.0 => (-1.0, 0.0),
        turned => {
            let radians = turned * std::f64::consts::PI / 180.0;
            (libm::sin(radians), libm::cos(radians))
        }
    }
}

/// The templates that are searched in one pass over a frame. A member's index is its place in the tie order.
#[derive(Debug, Clone)]
pub struct Bank {
    members: Vec<Template>,
}

impl Bank {
    /// A bank of these members. Those of one name compete with each other: limits and overlap count per name.
    ///
    /// # Errors
    /// `Usage` if there are none.
    pub fn new(members: Vec<Template>) -> Result<Self> {
        if members.is_empty() {
            return Err(Error::Usage("a bank without templates".into()));
        }
        Ok(Self { members })
    }

    /// Every template at every scale and angle: for each template in order, for each scale, for each angle.
    ///
    /// Members that vanish or become flat are left out, with one warning for each template.
    ///
    /// # Errors
    /// `Template` if no member of some template is left; `Usage` if they would be more than [`MAX_MEMBERS`],
    /// or have more than [`MAX_BANK_PIXELS`].
    pub fn expanded(templates: &[Template], scales: &Scales, angles: &Angles) -> Result<Self> {
        Self::expanded_within(templates, scales, angles, || Ok(()), Bytes(u64::MAX))
    }

    /// Refuses members that would be too many, or would take too much memory, before there is one of them.
    ///
    /// # Errors
    /// `Usage` if there would be more than [`MAX_MEMBERS`] or [`MAX_BANK_PIXELS`]; `MemoryLimit` if pixels
    /// and masks of all of them would take more than `limit`.
    pub fn check_expanded(
        templates: &[Template],
        scales: &Scales,
        angles: &Angles,
        limit: Bytes,
    ) -> Result<()> {
        check_count(templates.len(), scales, angles)?;
        let mut pixels = 0;
        for template in templates {
            for &scale in &scales.0 {
                for &angle in &angles.0 {
                    let member = resampled_size(template.size(), scale, angle).area() as u64;
                    // A member that is too large by itself is left out below.
                    pixels += if member > MAX_PIXELS { 0 } else { member };
                }
            }
        }
        if pixels > MAX_BANK_PIXELS {
            let text = format!(
                "templates in all sizes and directions have {pixels} pixels, more than {MAX_BANK_PIXELS}: "
            );
            let remedy = Message::new("{} makes them as it needs them", [PYRAMID]);
            return Err(Error::Settings(Message::new("", []).followed_by(&text).and(remedy)));
        }
        let wanted = Bytes(2 * pixels);
        if wanted > limit {
            return Err(Error::MemoryLimit {
                what: "a bank of the templates in all sizes and directions".into(),
                wanted,
                limit,
                remedy: Message::new(
                    "give more {}, or {}, which makes them as it needs them",
                    [Setting::named("memory"), PYRAMID],
                ),
            });
        }
        Ok(())
    }

    /// As [`Self::expanded`], with at most `limit` of memory, and ended by `check`.
    ///
    /// # Errors
    /// As [`Self::expanded`]; `MemoryLimit` if the pixels and masks of all members would use more;
    /// the errors of `check`.
    pub fn expanded_within(
        templates: &[Template],
        scales: &Scales,
        angles: &Angles,
        check: impl Fn() -> Result<()>,
        limit: Bytes,
    ) -> Result<Self> {
        Self::check_expanded(templates, scales, angles, limit)?;
        let mut members = Vec::new();
        for template in templates {
            let (mut made, mut faults) = (0, Vec::new());
            for &scale in &scales.0 {
                for &angle in &angles.0 {
                    check()?;
                    match template.resampled(scale, angle) {
                        Ok(member) => {
                            members.push(member);
                            made += 1;
                        }
                        Err(fault) => faults.push((scale, angle, fault)),
                    }
                }
            }
            let left_out = faults.len();
            if let Some((scale, angle, fault)) = faults.into_iter().next() {
                if made == 0 {
                    return Err(fault);
                }
                tracing::warn!("{fault} at scale {scale}, angle {angle}: {left_out} members are left out");
            }
        }
        Self::new(members)
    }

    /// The bank without the members that do not fit in `area`, with one warning if there are any.
    ///
    /// # Errors
    /// `NothingFits` if no member does.
    pub fn fitting(mut self, area: Size) -> Result<Self> {
        let smallest = self.members.iter().map(Template::size).min_by_key(|s| s.area());
        let before = self.members.len();
        self.members.retain(|m| m.size().fits_in(area));
        match (self.members.len(), smallest) {
            (0, Some(smallest)) => Err(Error::NothingFits { smallest, area }),
            (after, _) => {
                if after < before {
                    tracing::warn!(
                        "{} of {before} bank members are larger than {area} and left out",
                        before - after
                    );
                }
                Ok(self)
            }
        }
    }

    /// Bytes that the members take: their pixels, and their masks.
    pub fn bytes(&self) -> u64 {
        let planes = |member: &Template| if member.mask.is_some() { 2 } else { 1 };
        self.members.iter().map(|member| planes(member) * member.size().area() as u64).sum()
    }

    /// The members, in the tie order.
    pub fn members(&self) -> &[Template] {
        &self.members
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(w: usize, h: usize) -> Plane {
        Plane::from_vec((0..w * h).map(|i| (i * 37 % 251) as u8).collect(), Size::new(w, h))
    }

    fn template(w: usize, h: usize) -> Template {
        Template::new("t", picture(w, h), None).unwrap()
    }

    #[test]
    fn flat_template_is_rejected() {
        let said = Template::new("grey", Plane::from_vec(vec![7; 12], Size::new(4, 3)), None)
            .unwrap_err()
            .to_string();
        assert_eq!(
            said,
            "template \"grey\" is flat: all of its pixels have the value 7, so nothing can be recognised"
        );
    }

    #[test]
    fn a_template_that_is_flat_under_its_mask_is_rejected() {
        let luma = Plane::from_vec(vec![1, 9, 9, 200], Size::new(2, 2));
        let mask = Plane::from_vec(vec![127, 128, 255, 0], Size::new(2, 2));
        let said = Template::new("t", luma, Some(&mask)).unwrap_err();
        assert!(matches!(said, Error::Template { fault: TemplateFault::Flat(9), .. }), "{said}");
    }

    #[test]
    fn a_mask_that_leaves_one_pixel_is_rejected() {
        let mask = Plane::from_vec(vec![255, 0, 0, 0], Size::new(2, 2));
        let said = Template::new("t", picture(2, 2), Some(&mask)).unwrap_err();
        assert!(matches!(said, Error::Template { fault: TemplateFault::MaskTooSmall(1), .. }), "{said}");
    }

    #[test]
    fn pixels_outside_the_mask_do_not_count_in_the_sums() {
        let mask = Plane::from_vec(vec![255, 255, 0, 128], Size::new(2, 2));
        let t = Template::new("t", Plane::from_vec(vec![1, 2, 99, 4], Size::new(2, 2)), Some(&mask)).unwrap();
        assert_eq!(t.sums(), TemplateSums { n: 3, t1: 7, t2: 21 });
        assert_eq!(t.luma().data(), [1, 2, 0, 4]);
    }

    #[test]
    fn quarter_turns_move_pixels_counter_clockwise() {
        let t = Template::new("t", Plane::from_vec(vec![1, 2, 3, 4, 5, 6], Size::new(3, 2)), None).unwrap();
        let turned = t.resampled(1.0, 90.0).unwrap();
        assert_eq!((turned.size(), turned.luma().data()), (Size::new(2, 3), [3, 6, 2, 5, 1, 4].as_slice()));
        assert_eq!(t.resampled(1.0, 180.0).unwrap().luma().data(), [6, 5, 4, 3, 2, 1]);
        assert_eq!(t.resampled(1.0, -90.0).unwrap().luma().data(), [4, 1, 5, 2, 6, 3]);
        assert!(turned.mask().is_none());
    }

    #[test]
    fn halving_averages_each_two_by_two_pixels() {
        // Two samples a pixel and axis, each in the middle of one source pixel.
        let t =
            Template::new("t", Plane::from_vec(vec![10, 20, 30, 41, 10, 20, 30, 40], Size::new(4, 2)), None)
                .unwrap();
        let half = t.resampled(0.5, 0.0).unwrap();
        assert_eq!((half.size(), half.luma().data()), (Size::new(2, 1), [15, 35].as_slice()));
    }

    #[test]
    fn a_scale_that_leaves_no_room_for_exact_sums_is_refused_before_it_is_made() {
        let said = template(100, 100).resampled(100.0, 45.0).unwrap_err();
        assert!(matches!(said, Error::Template { fault: TemplateFault::TooManyPixels { .. }, .. }), "{said}");
    }

    #[test]
    fn more_templates_than_there_is_memory_for_are_refused_before_they_are_made() {
        let (scales, angles) = ("0.01..100/1.001".parse().unwrap(), "-180..180/0.01".parse().unwrap());
        let said = Bank::expanded(&[template(9, 9)], &scales, &angles).unwrap_err().to_string();
        assert!(said.contains("are 331740000: 1048576 at most are searched"), "{said}");
        let (scales, angles) = ("1..1/2".parse().unwrap(), "-180..180/0.1".parse().unwrap());
        let said = Bank::expanded(&[template(500, 500)], &scales, &angles).unwrap_err().to_string();
        assert!(said.contains("more than 536870912") && said.contains("--search pyramid"), "{said}");
    }

    #[test]
    fn turned_corners_are_masked_out() {
        let turned = template(31, 17).resampled(1.0, 30.0).unwrap();
        let mask = turned.mask().expect("corners are outside");
        let Size { width: w, height: h } = turned.size();
        assert_eq!(turned.size(), Size::new(35, 30));
        assert_eq!([mask.data()[0], mask.data()[w - 1], mask.data()[w * h - 1]], [0, 0, 0]);
        let share = turned.sums().n as f64 / (31.0 * 17.0);
        assert!((share - 1.0).abs() < 0.05, "the turned template has {share} times its pixels");
    }

    #[test]
    fn a_bank_has_every_scale_and_angle_and_skips_what_does_not_fit() {
        let bank = Bank::expanded(&[template(9, 9)], &Scales(vec![0.5, 1.0, 2.0]), &Angles(vec![0.0, 45.0]))
            .unwrap();
        assert_eq!(bank.members().len(), 6);
        assert_eq!(bank.clone().fitting(Size::new(13, 13)).unwrap().members().len(), 4);
        assert!(matches!(bank.fitting(Size::new(2, 2)), Err(Error::NothingFits { .. })));
    }
}
