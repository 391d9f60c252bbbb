//! Slow work on threads that may wait, limited by a number of places.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, spawn_blocking};

/// Runs `what` on a thread that may wait. The place is free again when it is done, also if the client is gone
/// before: clients that disconnect leave no more work behind than there are places.
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

/// Takes a place, if one is free.
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
            assert!(place(&places).is_none(), "the work is still running");
            go_on.send(()).unwrap();
            let again = places.clone().acquire_owned().await.unwrap();
            // A panic frees its place, too.
            assert!(work(again, || panic!("on purpose")).await.is_err());
            assert!(place(&places).is_some());
        });
    }
}
