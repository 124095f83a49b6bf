//! A planted race: the ring's own publication with an ordering that is too weak.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::shared;

struct Slot {
    stamp: AtomicBool,
    value: UnsafeCell<u64>,
}

// SAFETY: this is unsound on purpose; the sanitizer must report it.
unsafe impl Sync for Slot {}

/// Ends the process with the sanitizer's report, or returns normally if there is none.
pub(crate) fn race() {
    let slot = shared(Slot {
        stamp: AtomicBool::new(false),
        value: UnsafeCell::new(0),
    });
    let writer = thread::spawn(move || {
        // SAFETY: nobody reads before the stamp is stored. (The ordering of that store is the planted fault.)
        unsafe { *slot.value.get() = 7 };
        slot.stamp.store(true, Ordering::Relaxed);
    });
    let reader = thread::spawn(move || {
        while !slot.stamp.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        // SAFETY: the write has happened in practice, but the ordering does not guarantee it (the planted fault).
        unsafe { *slot.value.get() }
    });
    writer.join().expect("the writer ends");
    println!("the planted race gave {}", reader.join().expect("the reader ends"));
}
