//! Work that waits or takes long, by threads that may: no more of it at a time than there are places.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, spawn_blocking};

/// Has something done in a place, which is free again when it is done: not before, also if nobody waits for
/// it any more. Who goes away leaves no more behind than there are places.
pub(super) fn work<T: Send + 'static>(
    place: OwnedSemaphorePermit,
    what: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    spawn_blocking(move || {
        let done = what();
        drop(place);
        done
    })
}

/// A place, if one is free.
pub(super) fn place(places: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    places.clone().try_acquire_owned().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_when_the_work_is_done_and_not_when_nobody_waits_any_more() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let places = Arc::new(Semaphore::new(1));
            let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
            let waits = work(place(&places).unwrap(), move || may_go_on.recv());
            drop(waits);
            assert!(place(&places).is_none(), "what was begun still goes on");
            go_on.send(()).unwrap();
            let again = places.clone().acquire_owned().await.unwrap();
            // What panics leaves its place, too.
            assert!(work(again, || panic!("as it was told")).await.is_err());
            assert!(place(&places).is_some());
        });
    }
}
