//! When frames are decoded, found from when they are shown.
//!
//! B-frames are shown before frames that are decoded earlier, because they need them. Matroska stores packets
//! in the order of decoding, with the times of showing alone.

/// A frame is shown at most so many frames later than it is decoded (H.264 and H.265: 16 pictures are kept).
pub(crate) const MOST_REORDERED: usize = 16;

/// Returns when frames are decoded that are shown at these times, in the order of decoding.
///
/// One after the other, at the pace at which they are shown, and so early that none is shown before it is
/// decoded.
pub(crate) fn decoded(shown: &[i64]) -> Vec<i64> {
    let mut times = shown.to_vec();
    times.sort_unstable();
    let late = times.iter().zip(shown).map(|(decoded, shown)| decoded - shown).max().unwrap_or(0);
    times.into_iter().map(|time| time - late).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_decoded_in_order_and_none_after_it_is_shown() {
        assert!(decoded(&[]).is_empty());
        assert_eq!(decoded(&[0, 40, 80]), [0, 40, 80]);
        // I P B B P B B
        let shown = [20, 140, 60, 100, 260, 180, 220];
        let times = decoded(&shown);
        assert_eq!(times, [-20, 20, 60, 100, 140, 180, 220]);
        assert!(times.iter().zip(&shown).all(|(decoded, shown)| decoded <= shown));
        // A pyramid of B-frames, at a varying rate.
        let shown = [0, 160, 80, 40, 120, 700, 400, 300, 500];
        let times = decoded(&shown);
        assert!(times.is_sorted() && times.iter().zip(&shown).all(|(decoded, shown)| decoded <= shown));
    }
}
