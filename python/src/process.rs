//! Values with threads or a device, which a call needs ready for its picture's size, and which a process that
//! was forked must not end.

use std::mem::ManuallyDrop;

use lockon_core::error::Result;
use lockon_core::frame::Size;
use lockon_core::locks::Ranked;

/// A value that belongs to the process that made it. In another process it can only be forgotten: to end it
/// would wait for threads that are not there.
pub(crate) struct Owned<T> {
    process: u32,
    value: ManuallyDrop<T>,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { process: std::process::id(), value: ManuallyDrop::new(value) }
    }

    /// The value, if this process made it.
    pub(crate) fn get(&mut self) -> Option<&mut T> {
        (self.process == std::process::id()).then_some(&mut *self.value)
    }
}

impl<T> Drop for Owned<T> {
    #[expect(unsafe_code, reason = "a value that is not always dropped")]
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // SAFETY: nothing uses it after this.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

/// A value that is ready for pictures of one size, for one caller after the other.
pub(crate) struct ForSize<T>(Ranked<Option<Owned<(Size, T)>>, 5>);

impl<T> Default for ForSize<T> {
    fn default() -> Self {
        Self(Ranked::default())
    }
}

impl<T> ForSize<T> {
    /// Works with the value, which is made by `open` if the last one was for another size or is of another
    /// process. After an error it is not used again.
    pub(crate) fn with<R>(
        &self,
        size: Size,
        open: impl FnOnce() -> Result<T>,
        work: impl FnOnce(&mut T) -> Result<R>,
    ) -> Result<R> {
        let mut kept = self.0.lock();
        let before = kept.as_mut().and_then(Owned::get);
        let worked = if let Some((_, value)) = before.filter(|(own, _)| *own == size) {
            work(value)
        } else {
            // Ended before the next one takes memory.
            *kept = None;
            work(&mut kept.insert(Owned::new((size, open()?))).value.1)
        };
        if worked.is_err() {
            *kept = None;
        }
        worked
    }

    /// Looks at the value, if this process has made one.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
        self.0.lock().as_mut()?.get().map(|(_, value)| look(value))
    }
}
