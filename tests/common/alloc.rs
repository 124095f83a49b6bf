//! A global allocator that counts what each thread asks of it.
#![allow(dead_code, reason = "every test program uses its own part of the counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

fn count(calls: u64, bytes: i64) {
    // A thread that is being torn down has no counters any more, and nobody asks for them.
    let _ = CALLS.try_with(|all| all.set(all.get() + calls));
    let _ = BYTES.try_with(|all| all.set(all.get() + bytes));
}

// SAFETY: every call goes on to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller's promises go on unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller's promises go on unchanged.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, size as i64 - layout.size() as i64);
        // SAFETY: the caller's promises go on unchanged.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, -(layout.size() as i64));
        // SAFETY: the caller's promises go on unchanged.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// How often `body` asks for memory on this thread.
pub(crate) fn allocations<R>(body: impl FnOnce() -> R) -> u64 {
    let before = CALLS.get();
    let _result = body();
    CALLS.get() - before
}

/// The bytes that this thread has asked for and not given back (others may have given back some of them).
pub(crate) fn live_bytes() -> i64 {
    BYTES.get()
}
