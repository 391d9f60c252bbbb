//! Templates in any size and direction: made or refused, and never more of them than were promised.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use lockon::config::{Angles, Scales};
use lockon::frame::{Plane, Size};
use lockon::template::{Bank, Template};

#[derive(Debug, Arbitrary)]
struct Asked<'a> {
    width: u8,
    pixels: &'a [u8],
    mask: Option<&'a [u8]>,
    scales: &'a str,
    angles: &'a str,
}

fuzz_target!(|asked: Asked<'_>| {
    let width = usize::from(asked.width).max(1);
    let plane = |bytes: &[u8]| {
        let rows = bytes.len() / width;
        Plane::from_vec(bytes[..rows * width].to_vec(), Size::new(width, rows))
    };
    let (luma, mask) = (plane(asked.pixels), asked.mask.map(plane));
    let Ok(template) = Template::new("fuzz", luma, mask.as_ref()) else { return };
    assert!(template.sums().variance() > 0 && template.sums().n >= 2);
    let scales = asked.scales.parse().unwrap_or(Scales(vec![0.5, 1.0, 1.7]));
    let angles = asked.angles.parse().unwrap_or(Angles(vec![-30.0, 0.0, 90.0]));
    // Inputs that take long are no finding.
    let (longest, widest) =
        (scales.0.last().copied().unwrap_or(1.0), template.size().width.max(template.size().height));
    let smallest = scales.0.first().copied().unwrap_or(1.0);
    if scales.0.len() * angles.0.len() > 40 || longest * widest as f64 > 300.0 || smallest < 0.05 {
        return;
    }
    if let Ok(bank) = Bank::expanded(&[template], &scales, &angles) {
        assert!(bank.members().len() <= scales.0.len() * angles.0.len());
        assert!(bank.members().iter().all(|member| member.sums().variance() > 0));
    }
});
