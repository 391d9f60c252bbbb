//! Threads of pipelines, and one in reserve for when the system gives no more.
//!
//! GStreamer 1.22 hangs where a thread of a pipeline cannot be started: it reports that and still waits, when
//! the pipeline is stopped, for what was to run on the thread, and the thread that waits hears no signal.
//! So the tasks of a pipeline get their threads here. Where there is none the pipeline fails, and the task
//! runs on the thread in reserve, one after the other, where it finds that the pipeline has stopped.

use std::sync::{Mutex, PoisonError};

use crossbeam_channel::Sender;
use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;

use super::News;
use lockon_core::error::{Error, Result};
use lockon_core::threads;

/// As much stack as the system usually gives: codecs may need it.
const STACK: usize = 8 << 20;

type Task = Box<dyn FnOnce() + Send>;

/// The thread in reserve, which is started with the first pipeline. A pipeline for which it cannot be started
/// fails; the next one tries again.
static RESERVE: Mutex<Option<Sender<Task>>> = Mutex::new(None);

fn reserve() -> Result<Sender<Task>> {
    let mut reserve = RESERVE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(sender) = &*reserve {
        return Ok(sender.clone());
    }
    let (sender, tasks) = crossbeam_channel::unbounded::<Task>();
    let work = move || tasks.into_iter().for_each(|task| task());
    let started = std::thread::Builder::new().name("lockon-reserve".into()).stack_size(STACK).spawn(work);
    started.map_err(|error| Error::Resource {
        element: "pipeline".into(),
        message: threads::refused("the video", &error).to_string(),
        debug: String::new(),
    })?;
    Ok(reserve.insert(sender).clone())
}

/// Refuses to start a pipeline if there is not even the thread in reserve.
pub(super) fn check() -> Result<()> {
    reserve().map(drop)
}

/// Gives the tasks of one pipeline their threads. `news` hears of one that gets none.
pub(super) fn pool(news: Sender<News>) -> gst::TaskPool {
    let pool: Pool = glib::Object::new();
    // It is new.
    let _ = pool.imp().news.set(news);
    pool.upcast()
}

/// Lets a task of the pipeline that is about to begin get its thread from a pool.
pub(super) fn attend(message: &gst::message::StreamStatus, pool: &gst::TaskPool) {
    let (kind, _) = message.get();
    let task = message.stream_status_object().and_then(|object| object.get::<gst::Task>().ok());
    if let Some(task) = task.filter(|_| kind == gst::StreamStatusType::Create) {
        task.set_pool(pool);
    }
}

mod imp {
    use std::sync::OnceLock;

    use super::{News, STACK, Task, glib, threads};
    use crossbeam_channel::Sender;
    use gst::subclass::TaskPoolFunction;
    use gst::subclass::prelude::*;
    use std::sync::{Arc, Mutex, PoisonError};

    #[derive(Default)]
    pub struct Pool {
        pub(super) news: OnceLock<Sender<News>>,
    }

    #[glib::object_subclass]
    impl ObjectSubclass for Pool {
        const NAME: &'static str = "LockonTaskPool";
        type Type = super::Pool;
        type ParentType = gst::TaskPool;
    }

    impl ObjectImpl for Pool {}
    impl GstObjectImpl for Pool {}

    impl TaskPoolImpl for Pool {
        type Handle = ();

        fn push(&self, task: TaskPoolFunction) -> Result<Option<()>, glib::Error> {
            // A thread that cannot be started takes what it was to do with it.
            let task = Arc::new(Mutex::new(Some(task)));
            let taken = task.clone();
            let work = move || {
                let task = taken.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(task) = task {
                    task.call();
                }
            };
            let started = std::thread::Builder::new().stack_size(STACK).spawn(work.clone());
            if let Err(error) = started {
                let refused = threads::refused("the video", &error);
                if let Some(news) = self.news.get() {
                    let _ = news.send(News::Failed(refused));
                }
                let no_reserve = || glib::Error::new(gst::CoreError::Failed, "no thread is in reserve");
                let reserve = super::reserve().map_err(|_| no_reserve())?;
                reserve.send(Box::new(work) as Task).map_err(|_| no_reserve())?;
            }
            Ok(Some(()))
        }
    }
}

glib::wrapper! {
    /// A pool of threads for the tasks of a pipeline.
    pub struct Pool(ObjectSubclass<imp::Pool>) @extends gst::TaskPool, gst::Object;
}
