//! A global allocator that counts what each thread allocates.
//!
//! ```
//! use testkit::alloc::{CountingAllocator, allocations};
//!
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator;
//!
//! assert_eq!(allocations(|| Box::new(1)), 1);
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with counters per thread.
#[derive(Debug)]
pub struct CountingAllocator;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

fn count(calls: u64, bytes: i64) {
    // A thread that is being torn down has no counters left.
    let _ = CALLS.try_with(|all| all.set(all.get() + calls));
    let _ = BYTES.try_with(|all| all.set(all.get() + bytes));
}

// SAFETY: every call is forwarded unchanged to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller upholds the contract of `System.alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller upholds the contract of `System.alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, size as i64 - layout.size() as i64);
        // SAFETY: the caller upholds the contract of `System.realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, -(layout.size() as i64));
        // SAFETY: the caller upholds the contract of `System.dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Returns the number of allocations that `body` makes on this thread; 0 unless [`CountingAllocator`] is the global allocator.
pub fn allocations<R>(body: impl FnOnce() -> R) -> u64 {
    let before = CALLS.get();
    let _result = body();
    CALLS.get() - before
}

/// Returns the bytes that this thread allocated minus those that it freed, whichever thread allocated them.
pub fn live_bytes() -> i64 {
    BYTES.get()
}
