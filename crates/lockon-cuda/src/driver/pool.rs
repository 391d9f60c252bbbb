//! Small pieces of memory, cut from large ones.
//!
//! The driver gives memory to one thread at a time, and page-locked memory takes it long: with 160 videos
//! that begin together, the targets' buffers alone took it half a second.

use std::mem::size_of;

use lockon_core::error::{DeviceFault, Error, Result};
use lockon_core::locks::Ranked;

/// Bytes of the smallest piece and of the largest one; sizes between them are powers of two.
const LEAST: usize = 256;
const MOST: usize = 1 << 20;
const SIZES: usize = (MOST / LEAST).ilog2() as usize + 1;

/// Pieces of one kind of memory that are free, and what is left of the memory that was allocated last.
#[derive(Default)]
pub(super) struct Pool(Ranked<Pieces, 117>);

#[derive(Default)]
struct Pieces {
    /// Addresses, by size.
    free: [Vec<u64>; SIZES],
    next: u64,
    left: usize,
    /// All that was allocated.
    slabs: Vec<u64>,
}

/// Where a piece belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size(usize);

impl Size {
    /// The size of pieces that have room for so many elements; `None` if there are none.
    pub(super) fn of<T>(length: usize) -> Option<Self> {
        let bytes = (length * size_of::<T>()).next_power_of_two().max(LEAST);
        (bytes <= MOST).then(|| Self((bytes / LEAST).ilog2() as usize))
    }

    fn bytes(self) -> usize {
        LEAST << self.0
    }
}

impl Pool {
    /// Takes a piece, aligned to [`LEAST`] bytes as `allocate`'s memory is, which gives so many bytes. `None`
    /// if there is no room for so many: a smaller allocation may succeed.
    pub(super) fn take(
        &self,
        size: Size,
        slab: usize,
        allocate: impl FnOnce(usize) -> Result<u64>,
    ) -> Result<Option<u64>> {
        let mut pieces = self.0.lock();
        if let Some(piece) = pieces.free[size.0].pop() {
            return Ok(Some(piece));
        }
        if pieces.left < size.bytes() {
            let next = match allocate(slab) {
                Err(error) if is_out_of_memory(&error) => return Ok(None),
                allocated => allocated?,
            };
            // The rest becomes free pieces, the largest first.
            while pieces.left >= LEAST {
                let largest = Size((pieces.left / LEAST).ilog2() as usize);
                let piece = pieces.cut(largest);
                pieces.free[largest.0].push(piece);
            }
            pieces.slabs.push(next);
            (pieces.next, pieces.left) = (next, slab);
        }
        Ok(Some(pieces.cut(size)))
    }

    /// Takes a piece back.
    pub(super) fn give(&self, size: Size, piece: u64) {
        self.0.lock().free[size.0].push(piece);
    }

    /// Returns all that was allocated, to be freed. No piece is in use any more.
    pub(super) fn end(&mut self) -> Vec<u64> {
        std::mem::take(self.0.get_mut()).slabs
    }
}

impl Pieces {
    fn cut(&mut self, size: Size) -> u64 {
        let piece = self.next;
        self.next += size.bytes() as u64;
        self.left -= size.bytes();
        piece
    }
}

fn is_out_of_memory(error: &Error) -> bool {
    let Error::Backend { fault, .. } = error else { return false };
    matches!(fault, DeviceFault::OutOfMemory { .. } | DeviceFault::OutOfHostMemory { .. })
}

/// Bytes that are allocated at a time: on the device, and page-locked ones.
pub(super) const SLAB: usize = 32 << 20;
pub(super) const PINNED_SLAB: usize = 8 << 20;

/// The pools of a device.
#[derive(Default)]
pub(super) struct Pools {
    pub(super) device: Pool,
    pub(super) pinned: Pool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_beside_each_other_and_come_back() {
        let pool = Pool::default();
        let mut allocated = 0;
        let mut take = |length: usize| {
            let size = Size::of::<u8>(length).unwrap();
            let piece = pool.take(size, MOST, |bytes| {
                allocated += 1;
                Ok((allocated * 10 * bytes) as u64)
            });
            (size, piece.unwrap().unwrap())
        };
        let mut pieces: Vec<_> = [1, 300, 70_000, 256, 500_000, 65_536].map(&mut take).into();
        let given = pieces[2];
        pool.give(given.0, given.1);
        assert_eq!(take(131_072), given, "of its size");
        pieces.extend([300_000, 1 << 20, 20_000, 262_144].map(&mut take));
        for (index, (size, piece)) in pieces.iter().enumerate() {
            for (other, at) in &pieces[..index] {
                let is_apart = piece + size.bytes() as u64 <= *at || at + other.bytes() as u64 <= *piece;
                assert!(is_apart, "{piece} of {} and {at} of {}", size.bytes(), other.bytes());
            }
        }
        assert!(Size::of::<u32>(MOST / 4 + 1).is_none());
        let mut pool = pool;
        assert_eq!(pool.end().len(), allocated);
    }

    #[test]
    fn without_room_for_many_pieces_there_is_none_and_other_errors_remain() {
        let (pool, size) = (Pool::default(), Size::of::<u8>(9).unwrap());
        let take = |fault: DeviceFault| pool.take(size, MOST, |_| Err(super::super::fault(fault)));
        assert_eq!(take(DeviceFault::OutOfHostMemory { what: "a mark", wanted: MOST }).unwrap(), None);
        take(DeviceFault::Other("no".into())).unwrap_err();
        assert_eq!(pool.take(size, MOST, |_| Ok(4096)).unwrap(), Some(4096));
    }
}
