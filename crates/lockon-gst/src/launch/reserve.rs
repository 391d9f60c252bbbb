//! Threads of pipelines, and one in reserve for when the system gives no more.
//!
//! GStreamer 1.22 hangs where a thread of a pipeline cannot be started: it reports that and still waits, when
//! the pipeline is stopped, for what was to run on the thread, and the thread that waits hears no signal. So
//! the tasks of a pipeline get their threads here. Where there is none the pipeline fails, and the task waits
//! until the pipeline has stopped it. Then it ends on the thread in reserve, without doing anything. Before
//! that it must not run there: a task that is paused, or that waits for another one without a thread, would
//! hold the thread for ever. A pool does not know which task a request is for, so each task has its own.

use std::sync::Mutex;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;

use super::News;
use lockon_core::error::{Error, Result};
use lockon_core::locks::lock;
use lockon_core::threads;

/// As much stack as the system usually gives: codecs may need it.
const STACK: usize = 8 << 20;

/// How often a waiting task checks whether it has been stopped.
const POLL: Duration = Duration::from_millis(10);

/// A task without a thread.
struct Waiting {
    task: glib::WeakRef<gst::Task>,
    /// Lets it see that it has been stopped.
    end: Box<dyn FnOnce() + Send>,
}

/// The thread in reserve, which is started with the first pipeline. A pipeline for which it cannot be started
/// fails; the next one tries again.
static RESERVE: Mutex<Option<Sender<Waiting>>> = Mutex::new(None);

fn reserve() -> Result<Sender<Waiting>> {
    let mut reserve = lock(&RESERVE);
    if let Some(sender) = &*reserve {
        return Ok(sender.clone());
    }
    let (sender, tasks) = crossbeam_channel::unbounded();
    let work = move || end_stopped(&tasks);
    let started = std::thread::Builder::new().name("lockon-reserve".into()).stack_size(STACK).spawn(work);
    started.map_err(|error| Error::Resource {
        element: "pipeline".into(),
        message: threads::refused("the video", &error).to_string(),
        debug: String::new(),
    })?;
    Ok(reserve.insert(sender).clone())
}

/// Ends the tasks that have been stopped, for as long as there are pipelines.
fn end_stopped(tasks: &Receiver<Waiting>) {
    let mut waiting: Vec<Waiting> = Vec::new();
    loop {
        let next = if waiting.is_empty() {
            tasks.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            tasks.recv_timeout(POLL)
        };
        match next {
            Ok(task) => waiting.push(task),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let is_stopped =
            |one: &mut Waiting| one.task.upgrade().is_none_or(|task| task.state() == gst::TaskState::Stopped);
        waiting.extract_if(.., is_stopped).for_each(|stopped| (stopped.end)());
    }
}

/// Refuses to start a pipeline if there is not even the thread in reserve.
pub(super) fn check() -> Result<()> {
    reserve().map(drop)
}

/// Gives a task its thread. `news` gets a message if there is none.
fn pool(news: &Sender<News>, task: &gst::Task, stack: usize) -> gst::TaskPool {
    let pool: Pool = glib::Object::new();
    // It is new.
    let _ = pool.imp().of.set(imp::Of { news: news.clone(), task: task.downgrade(), stack });
    pool.upcast()
}

/// Lets a task of the pipeline that is about to begin get its thread from here.
pub(super) fn attend(message: &gst::message::StreamStatus, news: &Sender<News>) {
    let (kind, _) = message.get();
    let task = message.stream_status_object().and_then(|object| object.get::<gst::Task>().ok());
    if let Some(task) = task.filter(|_| kind == gst::StreamStatusType::Create) {
        task.set_pool(&pool(news, &task, STACK));
    }
}

mod imp {
    use std::sync::OnceLock;

    use super::{News, Waiting, glib, threads};
    use crossbeam_channel::Sender;
    use gst::subclass::TaskPoolFunction;
    use gst::subclass::prelude::*;
    use lockon_core::locks::lock;
    use std::sync::{Arc, Mutex};

    #[derive(Default)]
    pub struct Pool {
        pub(super) of: OnceLock<Of>,
    }

    pub(super) struct Of {
        pub(super) news: Sender<News>,
        pub(super) task: glib::WeakRef<gst::Task>,
        pub(super) stack: usize,
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
            // If a thread cannot be started, its work is lost with it.
            let task = Arc::new(Mutex::new(Some(task)));
            let taken = task.clone();
            let work = move || {
                let task = lock(&taken).take();
                if let Some(task) = task {
                    task.call();
                }
            };
            let no_thread = |what| glib::Error::new(gst::CoreError::Failed, what);
            let of = self.of.get().ok_or_else(|| no_thread("the pool has no task"))?;
            let started = std::thread::Builder::new().stack_size(of.stack).spawn(work.clone());
            if let Err(error) = started {
                let _ = of.news.send(News::Failed(threads::refused("the video", &error)));
                let no_reserve = || no_thread("no thread is in reserve");
                let reserve = super::reserve().map_err(|_| no_reserve())?;
                let waiting = Waiting { task: of.task.clone(), end: Box::new(work) };
                reserve.send(waiting).map_err(|_| no_reserve())?;
            }
            Ok(Some(()))
        }
    }
}

glib::wrapper! {
    /// A pool of threads for the tasks of a pipeline.
    pub struct Pool(ObjectSubclass<imp::Pool>) @extends gst::TaskPool, gst::Object;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn tasks_without_threads_do_nothing_and_end_when_they_are_stopped_in_any_order() {
        crate::launch::init().unwrap();
        let (news, heard) = crossbeam_channel::unbounded();
        let runs = Arc::new(AtomicUsize::new(0));
        for stops_first in [0, 1] {
            let tasks = [0; 2].map(|_| {
                let counted = runs.clone();
                let run = move |task: &gst::Task| {
                    counted.fetch_add(1, Ordering::Relaxed);
                    // As a source does that finds that its stream has ended.
                    let _ = task.pause();
                };
                let task = gst::Task::builder(run).lock(&gst::TaskLock::new()).build();
                // No address space has room for such a stack.
                task.set_pool(&pool(&news, &task, 1 << 60));
                task.start().unwrap();
                task
            });
            std::thread::sleep(20 * POLL);
            for task in [&tasks[stops_first], &tasks[1 - stops_first]] {
                task.stop().unwrap();
                let (task, (sender, ended)) = (task.clone(), crossbeam_channel::bounded(1));
                std::thread::spawn(move || sender.send(task.join()));
                let ended = ended.recv_timeout(Duration::from_secs(20));
                ended.expect("it waits for a thread").unwrap();
            }
        }
        assert_eq!(runs.load(Ordering::Relaxed), 0);
        assert_eq!(heard.try_iter().filter(|news| matches!(news, News::Failed(_))).count(), 4);
    }
}
