//! The time of a frame: from its segment, or continued from the frames before.

/// Gives every frame a time: its own, or one that continues the times before.
#[derive(Debug, Default)]
pub struct PtsInterpolator {
    last: Option<u64>,
    /// The last known step between two frames.
    step: Option<u64>,
    /// The own time of all frames so far: a demuxer without times gives all the same.
    stands_at: Option<u64>,
    has_moved: bool,
}

impl PtsInterpolator {
    /// True if a frame before had a time.
    pub(super) fn has_begun(&self) -> bool {
        self.last.is_some()
    }

    /// The time of the last frame that had one.
    pub(super) fn last(&self) -> Option<u64> {
        self.last
    }

    /// The frame's time in nanoseconds, and whether it was interpolated, because it has none of its `own`, or
    /// the one that every frame before it has. `frame_rate` is that of the caps, as in
    /// [`VideoFormat`](lockon_core::frame::VideoFormat). Without a rate frames have no time before the second
    /// known one.
    pub fn next(&mut self, own: Option<u64>, frame_rate: (i32, i32)) -> (Option<u64>, bool) {
        let nominal = match frame_rate {
            (frames @ 1.., seconds) => Some(1_000_000_000 * seconds as u64 / frames as u64),
            _ => None,
        };
        let own = own.filter(|time| match self.stands_at.filter(|_| nominal.is_some()) {
            Some(first) if !self.has_moved => {
                self.has_moved = *time != first;
                self.has_moved
            }
            _ => true,
        });
        self.stands_at = self.stands_at.or(own);
        let next = || match self.last {
            Some(last) => Some(last + nominal.or(self.step)?),
            // Times from a rate begin at zero.
            None => nominal.map(|_| 0),
        };
        let time = own.or_else(next);
        if let (Some(time), Some(last)) = (own, self.last)
            && time > last
        {
            self.step = Some(time - last);
        }
        self.last = time.or(self.last);
        (time, own.is_none() && time.is_some())
    }
}

/// The time to show a frame, in nanoseconds, counted from the beginning of the video rather than by the
/// file's own clock; for live sources the time of its capture, counted from the start of the run.
pub fn presentation_time(
    segment: Option<&gst::Segment>,
    pts: Option<gst::ClockTime>,
    is_real_time: bool,
) -> Option<u64> {
    let pts = pts?;
    let segment = segment.and_then(|segment| segment.downcast_ref::<gst::ClockTime>());
    let time = |segment: &gst::FormattedSegment<gst::ClockTime>| {
        if is_real_time { segment.to_running_time(pts) } else { segment.to_stream_time(pts) }
    };
    Some(segment.and_then(time).unwrap_or(pts).nseconds())
}

/// The place of a packet in the video, in nanoseconds; below zero for what an edit list cuts off in front,
/// and for frames that are decoded before the first one is shown.
pub(crate) fn stream_time(segment: &gst::Segment, time: gst::ClockTime) -> Option<i64> {
    let segment = segment.downcast_ref::<gst::ClockTime>()?;
    Some(match segment.to_stream_time_full(time)? {
        gst::Signed::Positive(time) => i64::try_from(time.nseconds()).unwrap_or(i64::MAX),
        gst::Signed::Negative(time) => -i64::try_from(time.nseconds()).unwrap_or(i64::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn frames_that_all_have_the_first_ones_time_get_those_of_the_rate() {
        let mut times = PtsInterpolator::default();
        assert_eq!(times.next(Some(0), (25, 1)), (Some(0), false));
        assert_eq!(times.next(Some(0), (25, 1)), (Some(40 * MS), true));
        assert_eq!(times.next(Some(0), (25, 1)), (Some(80 * MS), true));
    }

    #[test]
    fn a_time_that_comes_twice_in_the_middle_stays_what_it_is() {
        let mut times = PtsInterpolator::default();
        for own in [0, 40, 40, 80] {
            assert_eq!(times.next(Some(own * MS), (25, 1)), (Some(own * MS), false));
        }
    }
}
