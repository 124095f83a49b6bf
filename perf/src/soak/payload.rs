//! The payload: heap memory that reveals torn reads and use after drop, and a count of live payloads.

use std::sync::atomic::{AtomicI64, Ordering};

static LIVE: AtomicI64 = AtomicI64::new(0);
static MOST: AtomicI64 = AtomicI64::new(0);

/// The value of every word of a dropped payload.
const DEAD: u64 = 0xDEAD_DEAD_DEAD_DEAD;

/// Eight equal words.
#[derive(Debug)]
pub(crate) struct Payload(Box<[u64; 8]>);

impl Payload {
    pub(crate) fn new(word: u64) -> Self {
        count_one();
        Self(Box::new([word; 8]))
    }

    /// Whether it is intact.
    pub(crate) fn is_whole(&self) -> bool {
        let first = self.0[0];
        first != DEAD && self.0.iter().all(|word| *word == first)
    }
}

impl Clone for Payload {
    fn clone(&self) -> Self {
        count_one();
        Self(self.0.clone())
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        // Detected by a later read or a second drop.
        std::hint::black_box(&mut self.0).fill(DEAD);
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

fn count_one() {
    let live = LIVE.fetch_add(1, Ordering::Relaxed) + 1;
    if live > MOST.load(Ordering::Relaxed) {
        MOST.fetch_max(live, Ordering::Relaxed);
    }
}

/// The highest number of live payloads.
pub(crate) fn most() -> i64 {
    MOST.load(Ordering::Relaxed)
}

/// Payloads created and not yet dropped.
pub(crate) fn live() -> i64 {
    LIVE.load(Ordering::Relaxed)
}
