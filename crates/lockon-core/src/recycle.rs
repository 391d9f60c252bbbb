//! Shared buffers that return by themselves, so that the frame path allocates nothing after its first frames.
//!
//! Three things still allocate later: the CPU makes exact maps when the first frame needs one; a pyramid
//! search keeps lists of places, and makes variants of templates as it reaches them; a GPU's list of
//! candidates grows if it was too short.

use std::sync::Arc;

/// Lends shared values, and reuses each once all other holders have dropped it.
///
/// It grows to as many values as were ever held at the same time.
#[derive(Debug)]
pub struct Recycler<T> {
    values: Vec<Arc<T>>,
}

impl<T> Default for Recycler<T> {
    fn default() -> Self {
        Self { values: Vec::new() }
    }
}

impl<T: Default> Recycler<T> {
    /// Returns a value that has no other holder, after `fill` wrote it. `fill` gets it with the contents that
    /// its last user left.
    pub fn share(&mut self, fill: impl FnOnce(&mut T)) -> Arc<T> {
        let free = self.values.iter_mut().position(|value| Arc::get_mut(value).is_some());
        let index = free.unwrap_or_else(|| {
            self.values.push(Arc::default());
            self.values.len() - 1
        });
        fill(Arc::get_mut(&mut self.values[index]).expect("the free value is held by nobody else"));
        self.values[index].clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_reused_only_after_everybody_dropped_it() {
        let mut recycler = Recycler::<Vec<u8>>::default();
        let first = recycler.share(|v| v.push(1));
        let second = recycler.share(|v| v.push(2));
        assert_eq!((first.as_slice(), second.as_slice()), ([1].as_slice(), [2].as_slice()));
        let kept = first.clone();
        drop(first);
        assert_eq!(recycler.share(|v| v.push(3)).as_slice(), [3]);
        drop(kept);
        assert_eq!(recycler.share(|v| v.push(4)).as_slice(), [1, 4]);
        assert_eq!(recycler.values.len(), 3);
    }
}
