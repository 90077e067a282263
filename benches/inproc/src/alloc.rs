//! An allocator that counts: calls, and bytes alive.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::os::allocated_bytes;

static CALLS: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, with counters.
pub struct Counting;

/// Returns the number of allocations.
pub fn calls() -> u64 {
    CALLS.load(Relaxed)
}

/// Returns the live bytes, including the allocator's own overhead.
pub fn live_bytes() -> u64 {
    LIVE.load(Relaxed)
}

fn taken(pointer: *mut u8) -> *mut u8 {
    if !pointer.is_null() {
        CALLS.fetch_add(1, Relaxed);
        LIVE.fetch_add(allocated_bytes(pointer) as u64, Relaxed);
    }
    pointer
}

fn given_back(pointer: *mut u8) {
    LIVE.fetch_sub(allocated_bytes(pointer) as u64, Relaxed);
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        taken(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        given_back(pointer);
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        given_back(pointer);
        let moved = unsafe { System.realloc(pointer, layout, size) };
        // A failed realloc leaves the old memory alive.
        taken(if moved.is_null() { pointer } else { moved });
        moved
    }
}
