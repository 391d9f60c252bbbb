//! lockon finds and follows known patterns in live or recorded video.
//!
//! A frame's path, file by file: `media::source` decodes → [`engine`] loops → [`backend`] matches and
//! thresholds → [`tracker`] follows → `media::sink` and [`output`] draw, encode and write. ARCHITECTURE.md
//! describes it in two pages.
//!
//! Matching is zero-mean normalised cross-correlation (NCC, OpenCV's `TM_CCOEFF_NORMED`) by exact integer
//! sums: what is reported is the same to the bit on every backend and for every number of threads.
//! [`mod@reference`] is the definition.
//!
//! Finding a template in one picture takes a [`template::Bank`] and a [`backend::Backend`]:
//!
//! ```
//! use std::{sync::Arc, time::Instant};
//! use lockon::backend::{self, Findings, Options, Standing};
//! use lockon::config::{BackendChoice, Limits};
//! use lockon::frame::{FrameMeta, Picture, Plane, Rect, Size};
//! use lockon::template::{Bank, Template};
//!
//! let size = Size::new(40, 30);
//! let picture = Plane::from_vec((0..size.area()).map(|i| (i * 2_654_435_761 >> 13) as u8).collect(), size);
//! let pattern = picture.as_ref().crop(Rect::new(21, 8, 9, 7)).to_plane();
//! let bank = Bank::new(vec![Template::new("pattern", pattern, None)?])?;
//! let standing = Standing {
//!     frame: size,
//!     bank: Some(Arc::new(bank)),
//!     roi: Rect::whole(size),
//!     limits: Limits::default(),
//!     ..Standing::new(size)
//! };
//! let options = Options { choice: BackendChoice::Cpu, ..Options::default() };
//! let mut backend = backend::open(&options, &standing)?;
//! let meta = FrameMeta { index: 0, pts_ns: None, duration_ns: None, arrived: Instant::now() };
//! let picture: Arc<dyn Picture> = Arc::new(picture);
//! backend.submit(meta, &picture)?;
//! let mut findings = Findings::default();
//! backend.wait_next(&mut findings)?;
//! assert_eq!((findings.matches[0].rect(), findings.matches[0].score), (Rect::new(21, 8, 9, 7), 1.0));
//! # Ok::<(), lockon::Error>(())
//! ```

pub use lockon_core::{
    Error, Result, appearances, change, colour, config, control, device_memory, distinctiveness, engine,
    error, excerpt, files, frame, locks, memory, message, metrics, orders, output, overlay, paced, ports,
    recent_frames, recycle, reference, results, search, shell, simd, stats, still, surface, tally, template,
    text, track_events, tracker, workers,
};
#[cfg(feature = "events")]
pub use lockon_events as events;
#[cfg(feature = "farm")]
pub use lockon_farm as farm;
#[cfg(feature = "gst")]
pub use lockon_gst as media;
#[cfg(feature = "page")]
pub use lockon_page as page;
pub use lockon_run::{backend, devices, setup};
#[cfg(feature = "gst")]
pub use lockon_run::{fleet, request, run};
