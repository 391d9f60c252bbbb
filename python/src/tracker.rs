//! Tracking.

use std::sync::Arc;
use std::time::Instant;

use lockon_core::config::{Moment, TrackSpec};
use lockon_core::error::Result;
use lockon_core::frame::{Circumstances, Frame, FrameMeta, Rect, Size};
use lockon_core::locks::Ranked;
use lockon_core::orders::Order;
use lockon_core::ports::Follow;
use lockon_core::recent_frames::RecentFrames;
use lockon_core::results::Track;
use lockon_core::tracker;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::array::{Pixels, Spare};
use crate::failure::exception;

/// The fields of `lockon.Track`.
type Row = (&'static str, f64, f64, f64, f64, f64, f64);

/// Pixels of the longest side of a frame, as in videos.
const LONGEST: usize = 32768;

/// The number of the only track.
const ID: u32 = 1;

/// A box that is followed from frame to frame.
#[pyclass(frozen, module = "lockon._lockon")]
pub(crate) struct Tracker(Ranked<Following, 5>);

struct Following {
    tracker: tracker::Tracker,
    frames: u64,
    last_ns: Option<u64>,
    size: Option<Size>,
    /// The box of the next frame, if it was given.
    corrected: Option<Rect>,
    /// The planes of the frame before, for those of the next one.
    spare: Spare,
}

#[pymethods]
impl Tracker {
    #[new]
    fn new(rect: (usize, usize, usize, usize)) -> Self {
        let (x, y, w, h) = rect;
        let spec = TrackSpec::new(Rect::new(x, y, w, h), Moment::Frame(0));
        let tracker = tracker::Tracker::new(&[spec]);
        Self(Ranked::new(Following {
            tracker,
            frames: 0,
            last_ns: None,
            size: None,
            corrected: None,
            spare: Spare::default(),
        }))
    }

    /// Follows the box into the next frame. None while the box is flat: nothing can be learnt of it.
    fn update(&self, frame: &Bound<'_, PyAny>, pts_ns: Option<u64>) -> PyResult<Option<Row>> {
        let pixels = Pixels::of(frame, "frame")?;
        let longest = pixels.size().width.max(pixels.size().height);
        if longest > LONGEST {
            return Err(PyValueError::new_err(format!(
                "frame has a side of {longest} pixels; at most {LONGEST} can be followed in: scale all frames down, for \
                 example with cv2.resize(frame, None, fx=0.5, fy=0.5)"
            )));
        }
        let tracked = frame.py().detach(|| {
            let mut following = self.0.lock();
            if let (Some(now), Some(last)) = (pts_ns, following.last_ns)
                && now <= last
            {
                return Err(PyValueError::new_err(format!(
                    "pts_ns must increase: it is {now} after {last}; pass a later time, or none for 1/30 s from frame to frame"
                )));
            }
            following.step(pixels, pts_ns).map_err(exception)
        });
        Ok(tracked?.as_ref().map(row))
    }

    /// Follows the content of another box from the next frame on.
    fn correct(&self, rect: (usize, usize, usize, usize), py: Python<'_>) {
        let (x, y, w, h) = rect;
        py.detach(|| self.0.lock().corrected = Some(Rect::new(x, y, w, h)));
    }
}

impl Following {
    fn step(&mut self, pixels: Pixels, pts_ns: Option<u64>) -> Result<Option<Track>> {
        let Self { tracker, frames, last_ns, size, corrected, spare } = self;
        let format = pixels.format();
        match *size {
            None => tracker.check(format.size)?,
            Some(before) if before != format.size => tracker.rescale(before, format.size),
            Some(_) => {}
        }
        *size = Some(format.size);
        let meta = FrameMeta { index: *frames, pts_ns, duration_ns: None, arrived: Instant::now() };
        let picture = Arc::new(pixels.into_coloured_picture(std::mem::take(spare))?);
        let frame = Frame {
            meta,
            circumstances: Circumstances::default(),
            format: Arc::new(format),
            picture: picture.clone(),
        };
        if let Some(rect) = corrected.take() {
            let order = Order::Correct { id: ID, rect, at: None };
            tracker.obey(&order, &frame, &RecentFrames::default())?;
        }
        let mut tracks = Vec::new();
        tracker.step(&frame, &[], &mut tracks);
        drop(frame);
        if let Ok(picture) = Arc::try_unwrap(picture) {
            *spare = picture.into_spare();
        }
        *frames += 1;
        *last_ns = pts_ns.or(*last_ns);
        Ok(tracks.pop())
    }
}

fn row(track: &Track) -> Row {
    let &Track { state, x, y, w, h, score, second_peak_ratio, .. } = track;
    (state.name(), x, y, w, h, score, second_peak_ratio)
}
