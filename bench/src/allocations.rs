//! Counts the bytes that are allocated, to say what a parked session costs.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

static BYTES: AtomicIsize = AtomicIsize::new(0);

/// The system's allocator, with a counter. What the allocator itself adds is estimated: 16 bytes each.
#[derive(Debug)]
pub struct Counting;

const OVERHEAD: isize = 16;

/// Bytes that are allocated now.
pub fn bytes() -> isize {
    BYTES.load(Ordering::Relaxed)
}

fn size(layout: Layout) -> isize {
    layout.size() as isize + OVERHEAD
}

#[expect(unsafe_code, reason = "an allocator is unsafe by its trait; this one only counts")]
// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(size(layout), Ordering::Relaxed);
        // SAFETY: the caller's promises are the ones `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.fetch_sub(size(layout), Ordering::Relaxed);
        // SAFETY: the caller's promises are the ones `System` asks for.
        unsafe { System.dealloc(pointer, layout) }
    }
}
