//! Runs over videos, whose frames Python takes one after the other.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, SendTimeoutError, Sender};
use lockon_core::colour;
use lockon_core::control::{Control, STOP_CHECK};
use lockon_core::error::{Error, Result, catch_panic};
use lockon_core::frame::{Rect, Size, VideoFormat};
use lockon_core::locks::Ranked;
use lockon_core::ports::{Delivery, Sink};
use lockon_core::results::{Record, RunRecord, Summary};
use lockon_core::threads;
use lockon_run::request::{Field, Request};
use lockon_run::{run, setup};
use numpy::{PyArray1, PyArray3, PyArrayMethods};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;

use crate::failure::exception;
use crate::process::Owned;

/// Frames that wait for Python. More would only take memory: a run that is faster than that waits.
const WAITING: usize = 2;

/// How often Python is asked whether Ctrl-C was pressed.
const SIGNALS: Duration = Duration::from_millis(100);

/// A line of JSON, as in a results file, and the pixels of a frame.
type Item = (String, Option<(Vec<u8>, Size)>);

/// A run over a video.
#[pyclass(frozen, module = "lockon._lockon")]
pub(crate) struct Run {
    /// None once it has ended.
    running: Ranked<Option<Owned<Running>>, 5>,
    control: Control,
    has_pixels: Arc<AtomicBool>,
    format: Arc<VideoFormat>,
}

/// The thread of a run, and what it sends.
struct Running {
    /// Lets it begin, once it is open.
    begin: Option<Sender<()>>,
    lines: Receiver<Item>,
    thread: Option<JoinHandle<Result<()>>>,
    control: Control,
}

impl Running {
    /// Opens a video on a thread of its own, which then waits. Also returns a channel that gets the format,
    /// or the error.
    fn open(
        request: Request,
        control: &Control,
        has_pixels: &Arc<AtomicBool>,
    ) -> Result<(Self, Receiver<Result<Arc<VideoFormat>>>)> {
        let (begin, begun) = crossbeam_channel::bounded(1);
        let (lines, taken) = crossbeam_channel::bounded(WAITING);
        let (told, format) = crossbeam_channel::bounded(1);
        let lines = Lines { to: lines, control: control.clone(), has_pixels: has_pixels.clone() };
        let of_run = control.clone();
        let work = move || {
            let mut run = match run::Run::start(&request, &of_run) {
                Ok(run) => run,
                Err(error) => {
                    let _ = told.send(Err(error));
                    return Ok(());
                }
            };
            let _ = told.send(Ok(run.format()));
            if begun.recv().is_err() {
                return Ok(());
            }
            run.add_sink(Box::new(lines));
            run.finish().1
        };
        let panicked = |message| Err(Error::Panicked { what: "the run".into(), message });
        let thread = std::thread::Builder::new().name("lockon-run".into());
        let thread = thread
            .spawn(move || catch_panic(work).unwrap_or_else(panicked))
            .map_err(|error| threads::refused("the run", &error))?;
        let control = control.clone();
        Ok((Self { begin: Some(begin), lines: taken, thread: Some(thread), control }, format))
    }

    /// Waits for the end of a run that sends nothing any more.
    fn join(&mut self) -> Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let ended = thread.join().unwrap_or_else(|_| {
            Err(Error::Panicked { what: "the run".into(), message: "its thread panicked".into() })
        });
        match ended {
            Err(Error::Stopped) => Ok(()),
            ended => ended,
        }
    }

    /// Ends the run, and waits until its outputs are complete. Returns the last line that it sends, which is
    /// the summary of a run that had begun.
    fn end(&mut self) -> Result<Option<String>> {
        self.control.stop();
        self.begin = None;
        // It must not wait for a place for what it still sends.
        let last = self.lines.iter().last().map(|(line, _)| line);
        self.join()?;
        Ok(last)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Errors are ignored here: nothing can return them.
        let _ = self.end();
    }
}

#[pymethods]
impl Run {
    /// Opens a video. `options` are names of fields of a request, and their values as texts.
    #[new]
    fn new(options: Vec<(String, Vec<OsString>)>, py: Python<'_>) -> PyResult<Self> {
        let mut request = Request::default();
        for (name, texts) in options {
            let field = Field::named(&name.replace('_', "-")).ok_or_else(|| {
                PyTypeError::new_err(format!(
                    "run() has no option {name}: `lockon run --help` says which there are"
                ))
            })?;
            let shown: Vec<_> = texts.iter().map(|text| text.to_string_lossy()).collect();
            field.give(&mut request, &texts, &shown.join(" ")).map_err(exception)?;
        }
        let (control, has_pixels) = (Control::new(), Arc::default());
        let (running, format) = Running::open(request, &control, &has_pixels).map_err(exception)?;
        let opened = loop {
            match py.detach(|| format.recv_timeout(SIGNALS)) {
                Ok(opened) => break opened.map_err(exception),
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(interrupt) = py.check_signals() {
                        break Err(interrupt);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break Err(exception(Error::Stopped)),
            }
        };
        match opened {
            Ok(format) => {
                Ok(Self { running: Ranked::new(Some(Owned::new(running))), control, has_pixels, format })
            }
            Err(error) => {
                py.detach(|| drop(running));
                Err(error)
            }
        }
    }

    /// Width, height, and frames a second, 0 where that is not known.
    fn format(&self) -> (usize, usize, f64) {
        let Size { width, height } = self.format.size;
        (width, height, setup::frame_rate(&self.format))
    }

    /// Later frames come with their pixels, or without.
    fn give_pixels(&self, has_pixels: bool) {
        self.has_pixels.store(has_pixels, Ordering::Relaxed);
    }

    /// The next record, as a line of JSON, and the pixels of a frame, in the order blue, green, red. None at
    /// the end.
    #[expect(clippy::type_complexity, reason = "a record and what may come with it")]
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<(String, Option<Bound<'py, PyArray3<u8>>>)>> {
        loop {
            match py.detach(|| self.take()).map_err(exception)? {
                Taken::Item((line, pixels)) => {
                    let array = |(pixels, size): (Vec<u8>, Size)| {
                        PyArray1::from_vec(py, pixels).reshape([size.height, size.width, 3])
                    };
                    return Ok(Some((line, pixels.map(array).transpose()?)));
                }
                Taken::End => return Ok(None),
                Taken::Elsewhere => {
                    let words = "this run belongs to the process that made it, and this is one that was forked: call \
                                 lockon.run() here for one of its own";
                    return Err(PyRuntimeError::new_err(words));
                }
                Taken::Nothing => py.check_signals()?,
            }
        }
    }

    /// Ends the run, completes its outputs, and waits for that. Returns the summary as a line of JSON, if it
    /// was not taken before.
    fn close(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let end = || {
            // A call that waits for the next frame has the lock until that has come.
            self.control.stop();
            let mut running = self.running.lock();
            let ended = running.as_mut().and_then(Owned::get).map_or(Ok(None), Running::end);
            *running = None;
            ended
        };
        py.detach(end).map_err(exception)
    }
}

impl Drop for Run {
    /// The run may wait for a thread of Python, which must not wait for this one meanwhile.
    fn drop(&mut self) {
        let running = self.running.lock().take();
        let end = |py: Python<'_>| py.detach(|| drop(running));
        // None while Python ends: no other thread of it works then.
        let _ = Python::try_attach(end);
    }
}

/// The result of waiting for the next item.
enum Taken {
    Item(Item),
    End,
    /// It belongs to another process.
    Elsewhere,
    /// Nothing came for a while.
    Nothing,
}

impl Run {
    /// The next item, if it comes soon. The first call begins the run, and the one that meets its end has its
    /// error.
    fn take(&self) -> Result<Taken> {
        let mut running = self.running.lock();
        let Some(owned) = &mut *running else { return Ok(Taken::End) };
        let Some(own) = owned.get() else { return Ok(Taken::Elsewhere) };
        if let Some(begin) = own.begin.take() {
            let _ = begin.send(());
        }
        match own.lines.recv_timeout(SIGNALS) {
            Ok(item) => Ok(Taken::Item(item)),
            Err(RecvTimeoutError::Timeout) => Ok(Taken::Nothing),
            Err(RecvTimeoutError::Disconnected) => {
                let ended = own.join();
                *running = None;
                ended.map(|()| Taken::End)
            }
        }
    }
}

/// Passes records on.
struct Lines {
    to: Sender<Item>,
    control: Control,
    has_pixels: Arc<AtomicBool>,
}

impl Lines {
    /// Waits until Python has taken the items before. After a stop it gives up.
    fn send(&self, record: &Record<'_>, pixels: Option<(Vec<u8>, Size)>) -> Result<()> {
        let line = serde_json::to_string(record)
            .map_err(|error| Error::Panicked { what: "a record".into(), message: error.to_string() })?;
        let mut item = (line, pixels);
        while let Err(SendTimeoutError::Timeout(back)) = self.to.send_timeout(item, STOP_CHECK) {
            if self.control.is_stopped() {
                break;
            }
            item = back;
        }
        Ok(())
    }
}

impl Sink for Lines {
    fn name(&self) -> &'static str {
        "Python"
    }

    fn begin(&mut self, run: &RunRecord, _: &VideoFormat) -> Result<()> {
        self.send(&Record::Run(run), None)
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<()> {
        let pixels = self.has_pixels.load(Ordering::Relaxed).then(|| {
            let size = delivery.frame.format.size;
            let mut pixels = colour::rgb(delivery.frame, Rect::new(0, 0, size.width, size.height));
            for pixel in pixels.as_chunks_mut::<3>().0 {
                pixel.swap(0, 2);
            }
            (pixels, size)
        });
        self.send(&Record::Frame(delivery.record), pixels)
    }

    fn finish(&mut self, summary: &Summary) -> Result<()> {
        self.send(&Record::Summary(summary), None)
    }
}
