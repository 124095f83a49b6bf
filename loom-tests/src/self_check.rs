//! Checks the checker: through this crate's facade, loom explores orders that plain loom omits.

use crate::sync::{Arc, AtomicU64, Ordering};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// A reader of two words against a writer that loads each word before it stores it, the reader being first to run or second.
///
/// # Errors
/// Names the outcome that is missing.
pub fn every_order_is_explored() -> Result<(), String> {
    for reader_first in [true, false] {
        let seen = std::sync::Arc::new(Mutex::new(BTreeSet::new()));
        let outcomes = seen.clone();
        loom::model::Builder::new().check(move || {
            let outcome = race(reader_first);
            outcomes.lock().unwrap_or_else(PoisonError::into_inner).insert(outcome);
        });
        let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        for expected in [(0, 0), (0, 1), (1, 1)] {
            if !seen.contains(&expected) {
                return Err(format!(
                    "no execution read {expected:?}, with the reader first: {reader_first}"
                ));
            }
        }
    }
    Ok(())
}

/// What the reader finds in the first and in the second word.
fn race(reader_first: bool) -> (u64, u64) {
    let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let theirs = words.clone();
    let read = |words: &[AtomicU64; 2]| (words[0].load(Ordering::Acquire), words[1].load(Ordering::Acquire));
    let write = |words: &[AtomicU64; 2]| {
        for word in words {
            let value = word.load(Ordering::Acquire);
            word.store(value + 1, Ordering::Release);
        }
    };
    if reader_first {
        let writer = loom::thread::spawn(move || write(&theirs));
        let outcome = read(&words);
        writer.join().expect("loom's joins never fail");
        outcome
    } else {
        let reader = loom::thread::spawn(move || read(&theirs));
        write(&words);
        reader.join().expect("loom's joins never fail")
    }
}
