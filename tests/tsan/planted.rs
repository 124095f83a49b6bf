//! A race on purpose, in the shape of the ring's own publication but with an ordering that is too weak.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::shared;

struct Slot {
    stamp: AtomicBool,
    value: UnsafeCell<u64>,
}

// SAFETY: it is not sound, and the sanitizer has to say so; the program is run for that alone.
unsafe impl Sync for Slot {}

/// Ends the process with the sanitizer's report, or with an ordinary success if that is missing.
pub(crate) fn race() {
    let slot = shared(Slot {
        stamp: AtomicBool::new(false),
        value: UnsafeCell::new(0),
    });
    let writer = thread::spawn(move || {
        // SAFETY: nobody reads before the stamp; what follows it does not make that known, though.
        unsafe { *slot.value.get() = 7 };
        slot.stamp.store(true, Ordering::Relaxed);
    });
    let reader = thread::spawn(move || {
        while !slot.stamp.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        // SAFETY: on this machine the write is there; the ordering does not promise it.
        unsafe { *slot.value.get() }
    });
    writer.join().expect("the writer ends");
    println!("the planted race gave {}", reader.join().expect("the reader ends"));
}
