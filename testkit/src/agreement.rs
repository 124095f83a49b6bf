//! Checks that subscribers agree on what each sequence number carries.

use std::sync::atomic::{AtomicU64, Ordering};

/// The value that each sequence number of a channel carries, as first recorded. Every later record must be the same.
#[derive(Debug)]
pub struct Agreement {
    first_seq: u64,
    seen: Box<[AtomicU64]>,
}

/// Marks a number that never got a value.
const VOID: u64 = u64::MAX;

impl Agreement {
    /// Creates a record of `seqs` sequence numbers from `first_seq` on.
    pub fn new(first_seq: u64, seqs: usize) -> Self {
        Self {
            first_seq,
            seen: (0..seqs).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    #[track_caller]
    fn record(&self, seq: u64, word: u64) {
        let recorded = &self.seen[(seq - self.first_seq) as usize];
        // Relaxed: each word is compared separately.
        if let Err(first) = recorded.compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed) {
            assert_eq!(first, word, "seq {seq} carries different values");
        }
    }

    /// Records a value by its publisher and number. Panics if another was recorded.
    #[track_caller]
    pub fn value(&self, seq: u64, (publisher, number): (u64, u64)) {
        self.record(seq, (publisher + 1) << 40 | number);
    }

    /// Records that the sequence number is void. Panics if a value was recorded.
    #[track_caller]
    pub fn void(&self, seq: u64) {
        self.record(seq, VOID);
    }
}
