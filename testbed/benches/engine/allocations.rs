// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts what is allocated, and how much is held.

// An allocator is unsafe to write.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The system's allocator, counted. Growing counts, too: the default of `realloc` allocates.
struct Counted;

static COUNT: AtomicU64 = AtomicU64::new(0);
static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: both calls go to the system's allocator as they are.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the same contract, and the place is of `System.alloc`.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// Allocations of the process so far.
pub(crate) fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Bytes that are allocated now.
pub(crate) fn held() -> usize {
    HELD.load(Ordering::Relaxed)
}
