//! Memory for a tracker's requests, on the host and on the device.

#![expect(unsafe_code, reason = "a copy reads and writes until it was waited for")]

use lockon_core::error::Result;

use super::driver::{DeviceBuffer, PinnedBuffer, Stream};
use super::surface::Shared;

/// Bytes on the host, and where they are copied to on the device.
#[derive(Default)]
pub(super) struct Staged(Option<(PinnedBuffer<u8>, DeviceBuffer<u8>)>);

impl Staged {
    /// Makes room for so many bytes. Returns where they will lie.
    pub(super) fn reserve(&mut self, device: &Shared, length: usize) -> Result<u64> {
        if let Some((_, there)) = self.0.as_ref().filter(|(here, _)| here.len() >= length) {
            return Ok(there.address());
        }
        let length = length.next_power_of_two();
        let here = device.gpu.alloc_pinned_piece("what a tracker asks", length)?;
        // SAFETY: the copy and what reads it are done when it is dropped, as `upload` asks.
        let there = unsafe { device.gpu.alloc_piece("what a tracker asks", length)? };
        let address = there.address();
        self.0 = Some((here, there));
        Ok(address)
    }

    /// Copies what `parts` have, one after the other, without waiting, to where `reserve` said.
    ///
    /// # Safety
    /// - The last copy is done, and nothing on the device reads it any more,
    /// - this is dropped only when the copy is done.
    ///
    /// # Panics
    /// If no room was reserved for them.
    pub(super) unsafe fn upload(&mut self, device: &Shared, stream: &Stream, parts: &[&[u8]]) -> Result<()> {
        let (here, there) = self.0.as_mut().expect("room was reserved");
        let mut length = 0;
        for part in parts {
            here.as_mut_slice()[length..][..part.len()].copy_from_slice(part);
            length += part.len();
        }
        device.traffic.add_up(length);
        // SAFETY: the host writes here again, and drops it, only when the copy is done, as the caller
        // promises.
        unsafe { stream.upload(here, there, length) }
    }
}
