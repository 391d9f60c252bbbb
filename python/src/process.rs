//! Values of a process that was forked: the child has copies of them, but none of their threads.

use std::mem::ManuallyDrop;

/// A value with threads or a device, which belongs to the process that made it. In another process it can
/// only be forgotten: to end it would wait for threads that are not there.
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
