//! What a fork leaves behind: a child process has none of the threads of its parent.

/// A value of threads or of a device, which belongs to the process that made it.
pub(crate) struct Owned<T> {
    process: u32,
    value: T,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { process: std::process::id(), value }
    }

    /// The value, if this process made it.
    pub(crate) fn get(&mut self) -> Option<&mut T> {
        (self.process == std::process::id()).then_some(&mut self.value)
    }

    /// Ends the value. One of another process is left as it is, since its threads are not here: to end them
    /// would last for ever.
    pub(crate) fn close(self) {
        if self.process != std::process::id() {
            std::mem::forget(self.value);
        }
    }
}
