//! Values that reveal leaks, double drops and reads after a drop.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Counts the [`Tracked`] values that it created.
#[derive(Debug, Clone, Default)]
pub struct DropCounter(Arc<Counters>);

// Relaxed throughout: the counts are compared when the threads that moved them are joined.
#[derive(Debug, Default)]
struct Counters {
    created: AtomicU64,
    alive: AtomicI64,
}

impl DropCounter {
    /// Creates a counter at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a value.
    pub fn value(&self, id: u64) -> Tracked {
        self.0.created.fetch_add(1, Ordering::Relaxed);
        self.0.alive.fetch_add(1, Ordering::Relaxed);
        Tracked {
            id,
            complement: Box::new(!id),
            counter: self.clone(),
        }
    }

    /// Returns how many were ever created, including clones.
    pub fn created(&self) -> u64 {
        self.0.created.load(Ordering::Relaxed)
    }

    /// Returns how many were created and not yet dropped.
    pub fn alive(&self) -> i64 {
        self.0.alive.load(Ordering::Relaxed)
    }
}

/// A value with an identity and some heap memory, counted while it lives.
#[derive(Debug)]
pub struct Tracked {
    id: u64,
    complement: Box<u64>,
    counter: DropCounter,
}

impl Tracked {
    /// Returns the identity. Panics if the value is torn, stale or dropped.
    #[track_caller]
    pub fn id(&self) -> u64 {
        assert_eq!(*self.complement, !self.id, "a damaged value");
        self.id
    }
}

impl Clone for Tracked {
    fn clone(&self) -> Self {
        self.counter.value(self.id())
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        assert_eq!(*self.complement, !self.id, "a damaged or twice dropped value");
        *self.complement = self.id;
        let before = self.counter.0.alive.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "more drops than values");
    }
}
