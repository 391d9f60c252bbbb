//! Objects of the masks of a device that finds none: the host finds them, in the masks that it gets from the
//! device and in the decoded pictures.
//!
//! The device thresholds; the host cleans its masks and finds their objects by the code of the CPU backend.
//! Masks are equal on all devices, so objects are, too.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use rayon::ThreadPool;

use super::lists_of_objects;
use super::objects::ObjectFinder;
use crate::backend::ring::Poison;
use crate::backend::{Backend, Device, Findings, Options, Standing};
use crate::colour;
use crate::config::ObjectSpec;
use crate::error::{DeviceFault, Error, Result};
use crate::frame::{FrameMeta, Picture, Plane};
use crate::recycle::Recycler;
use crate::surface::Surface;
use crate::workers;

/// A backend that finds objects on the host, around one that finds none.
pub struct HostObjects {
    inner: Box<dyn Backend>,
    /// The decoded pictures of the frames in flight.
    pictures: VecDeque<Arc<dyn Picture>>,
    work: Work,
    poison: Poison,
}

/// The work on every mask.
struct Work {
    standing: Standing,
    spec: ObjectSpec,
    finder: ObjectFinder,
    pool: Arc<ThreadPool>,
    /// Luma in full range, where that is expanded.
    luma: Plane,
    masks: Recycler<Plane>,
}

impl HostObjects {
    /// Opens a backend by `open`, and finds in its masks what `standing` asks for. Without such work the
    /// opened backend itself is returned.
    ///
    /// # Errors
    /// The errors of `open` and of [`ObjectFinder::new`]; `Backend` if the system gives no more threads.
    pub fn around(
        standing: Standing,
        options: &Options,
        open: impl FnOnce(Standing) -> Result<Box<dyn Backend>>,
    ) -> Result<Box<dyn Backend>> {
        let Some(spec) = standing.work_on_masks() else {
            return open(Standing { objects: None, ..standing });
        };
        let inner = open(Standing { wants_mask: true, objects: None, ..standing.clone() })?;
        let name = inner.describe().backend;
        let failed = |fault: String| Error::Backend { backend: name, fault: DeviceFault::Other(fault) };
        let finder = ObjectFinder::new(&spec, standing.frame, options.memory)?;
        let finder = finder.with_lists(lists_of_objects(inner.depth()));
        let pool = workers::pool("objects", options.threads).map_err(|error| failed(error.to_string()))?;
        let pictures = VecDeque::with_capacity(inner.depth());
        let (luma, masks) = (Plane::default(), Recycler::default());
        let work = Work { standing, spec, finder, pool, luma, masks };
        Ok(Box::new(Self { inner, pictures, work, poison: Poison::new(name) }))
    }
}

impl Work {
    /// Adds to `findings` what is found in their mask.
    fn run(&mut self, picture: &dyn Picture, findings: &mut Findings) -> Result<()> {
        let Self { standing, spec, finder, pool, luma, masks } = self;
        let started = Instant::now();
        let mask = findings.mask.take().expect("it was opened for masks");
        pool.install(|| {
            finder.clean(mask.plane(0))?;
            if spec.reports {
                let mut decoded = picture.plane(0);
                // A picture that could not be fetched from a device would be black.
                picture.surface().map_or(Ok(()), Surface::check)?;
                if standing.expands {
                    luma.resize(standing.frame);
                    luma.as_mut().copy_changed(decoded, colour::expanded);
                    decoded = luma.as_ref();
                }
                findings.more_objects = finder.find(decoded, findings.objects.get_or_insert_default())?;
            } else {
                findings.objects = None;
            }
            if standing.wants_mask {
                let is_changed = !spec.cleaning.is_none();
                findings.mask =
                    Some(if is_changed { masks.share(|cleaned| finder.cleaned(cleaned)) } else { mask });
            }
            Ok(())
        })?;
        findings.standing_us += started.elapsed().as_micros() as u64;
        Ok(())
    }
}

impl Backend for HostObjects {
    fn describe(&self) -> Device {
        self.inner.describe()
    }

    fn depth(&self) -> usize {
        self.inner.depth()
    }

    fn submit(&mut self, meta: FrameMeta, picture: &Arc<dyn Picture>) -> Result<()> {
        self.poison.check()?;
        self.inner.submit(meta, picture)?;
        self.pictures.push_back(picture.clone());
        Ok(())
    }

    fn wait_next(&mut self, findings: &mut Findings) -> Result<Option<FrameMeta>> {
        self.poison.check()?;
        // The backend inside empties what it does not fill.
        let used = findings.objects.take();
        let waited = self.inner.wait_next(findings);
        let picture = match &waited {
            Ok(Some(_)) | Err(Error::Stopped) => self.pictures.pop_front(),
            Ok(None) | Err(_) => None,
        };
        let (Some(meta), Some(picture)) = (waited?, picture) else { return Ok(None) };
        findings.objects = used;
        self.poison.run(|| self.work.run(&*picture, findings))?;
        Ok(Some(meta))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::Cpu;
    use crate::config::BackendChoice;
    use crate::error::Bytes;
    use crate::frame::Size;
    use crate::results::Object;

    const SIZE: Size = Size::new(97, 61);

    fn options(threads: usize) -> Options {
        Options { choice: BackendChoice::Cpu, depth: 2, threads, ..Options::default() }
    }

    fn standing(spec: &str, wants_mask: bool) -> Standing {
        let objects: ObjectSpec = serde_json::from_str(spec).unwrap();
        let threshold = Some("mean:15:3".parse().unwrap());
        Standing::new(SIZE).thresholding(threshold, wants_mask).finding(Some(objects))
    }

    fn host(standing: Standing, options: &Options) -> Result<Box<dyn Backend>> {
        HostObjects::around(standing, options, |standing| {
            assert_eq!(standing.objects, None);
            Ok(Box::new(Cpu::open(standing, options)?))
        })
    }

    type Found = (Option<f64>, Option<Vec<u8>>, Option<Vec<Object>>, u64);

    /// The results of three pictures.
    fn found(mut backend: Box<dyn Backend>) -> Vec<Found> {
        let mut findings = Findings::default();
        let mut all = Vec::new();
        for index in 0..3 {
            let meta = FrameMeta { index, pts_ns: None, duration_ns: None, arrived: Instant::now() };
            let mut picture = crate::reference::picture(SIZE);
            picture.data_mut().rotate_left(37 * index as usize);
            backend.submit(meta, &(Arc::new(picture) as Arc<dyn Picture>)).unwrap();
            assert_eq!(backend.wait_next(&mut findings).unwrap().unwrap().index, index);
            let mask = findings.mask.take().map(|mask| mask.plane(0).to_plane().into_vec());
            all.push((findings.foreground, mask, findings.objects.clone(), findings.more_objects));
        }
        all
    }

    #[test]
    fn the_host_finds_what_the_cpu_backend_finds_for_any_number_of_threads() {
        for spec in [
            "{}",
            r#"{"colour":"black","connect":"4","open":"3","fill_holes":true,"max":3}"#,
            r#"{"reports":false,"close":"3"}"#,
        ] {
            for (wants_mask, expands) in [(false, false), (true, false), (true, true)] {
                let standing = standing(spec, wants_mask).expanding(expands);
                let cpu = |threads| found(Box::new(Cpu::open(standing.clone(), &options(threads)).unwrap()));
                let expected = cpu(1);
                assert!(expected.iter().all(|frame| frame.0.is_some() && frame.1.is_some() == wants_mask));
                for threads in [1, 3] {
                    assert_eq!(cpu(threads), expected, "{spec} {threads}");
                    let host = found(host(standing.clone(), &options(threads)).unwrap());
                    assert_eq!(host, expected, "{spec} {threads}");
                }
                let reports = standing.objects.unwrap().reports;
                assert!(expected.iter().all(|frame| frame.2.is_some() == reports));
                assert!(!reports || expected.iter().any(|frame| frame.2 != expected[0].2), "{spec}");
            }
        }
    }

    #[test]
    fn too_many_objects_for_the_memory_are_an_error_that_every_later_call_repeats() {
        let memory = Some(Bytes(80_000));
        for mut backend in [
            host(standing("{}", false), &Options { memory, ..options(2) }).unwrap(),
            Box::new(Cpu::open(standing("{}", false), &Options { memory, ..options(2) }).unwrap()),
        ] {
            let meta = FrameMeta { index: 0, pts_ns: None, duration_ns: None, arrived: Instant::now() };
            let dots = (0..SIZE.area())
                .map(|at| if at.is_multiple_of(2) && (at / SIZE.width).is_multiple_of(2) { 255 } else { 0 });
            let picture: Arc<dyn Picture> = Arc::new(Plane::from_vec(dots.collect(), SIZE));
            backend.submit(meta, &picture).unwrap();
            for _ in 0..2 {
                let error = backend.wait_next(&mut Findings::default()).unwrap_err();
                assert!(matches!(error, Error::MemoryLimit { .. }), "{error}");
            }
            assert!(matches!(backend.submit(meta, &picture), Err(Error::MemoryLimit { .. })));
        }
    }
}
