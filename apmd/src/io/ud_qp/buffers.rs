// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory shared with the device.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::{self, NonNull};

/// Memory that the device reads and writes at any time: never borrowed, only copied from and to.
#[derive(Debug)]
pub(super) struct Buffers {
    base: NonNull<u8>,
    layout: Layout,
}

impl Buffers {
    pub(super) fn new(len: usize) -> io::Result<Self> {
        let layout = Layout::from_size_align(len.max(1), 4096)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: the size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(base).unwrap_or_else(|| handle_alloc_error(layout));
        Ok(Self { base, layout })
    }

    pub(super) fn len(&self) -> usize {
        self.layout.size()
    }

    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.layout.size(), "offset outside the buffers");
        // SAFETY: just checked: inside the allocation.
        unsafe { self.base.as_ptr().add(offset) }
    }

    pub(super) fn read(&self, offset: usize, into: &mut [u8]) {
        assert!(offset + into.len() <= self.layout.size());
        // Callers read receive buffers whose completion they have, so the device has done with them.
        // SAFETY: inside the allocation, as just checked, and `into` is somebody else's memory.
        unsafe { ptr::copy_nonoverlapping(self.at(offset), into.as_mut_ptr(), into.len()) };
    }

    pub(super) fn write(&self, offset: usize, from: &[u8]) {
        assert!(offset + from.len() <= self.layout.size());
        // Callers write send buffers that no work request under way uses.
        // SAFETY: inside the allocation, as just checked, and `from` is somebody else's memory.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.at(offset), from.len()) };
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; the memory region over it is gone, being an earlier
        // field of `UdQp`.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_keep_what_is_written() {
        let buffers = Buffers::new(768).unwrap();
        buffers.write(256, &[5; 256]);
        let mut read = [0; 512];
        buffers.read(256, &mut read);
        assert_eq!(read[..256], [5; 256]);
        assert_eq!(read[256..], [0; 256]);
        assert_eq!(buffers.at(0) as usize % 4096, 0);
    }
}
