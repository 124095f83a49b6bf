//! Values that are counted, so that a leak or a double drop shows.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Counts the [`Citizen`]s that live.
#[derive(Debug, Clone, Default)]
pub(crate) struct Census(Arc<Books>);

#[derive(Debug, Default)]
struct Books {
    born: AtomicU64,
    alive: AtomicI64,
}

impl Census {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn citizen(&self, id: u64) -> Citizen {
        self.0.born.fetch_add(1, Ordering::Relaxed);
        self.0.alive.fetch_add(1, Ordering::Relaxed);
        Citizen {
            id,
            proof: Box::new(!id),
            census: self.clone(),
        }
    }

    /// How many were ever made, clones included.
    pub(crate) fn born(&self) -> u64 {
        self.0.born.load(Ordering::Relaxed)
    }

    /// How many were made and not yet dropped.
    pub(crate) fn alive(&self) -> i64 {
        self.0.alive.load(Ordering::Relaxed)
    }
}

/// A value with an identity, some heap memory and an entry in a [`Census`].
#[derive(Debug)]
pub(crate) struct Citizen {
    id: u64,
    proof: Box<u64>,
    census: Census,
}

impl Citizen {
    /// The identity; fails when the value is torn, stale or dropped.
    pub(crate) fn id(&self) -> u64 {
        assert_eq!(*self.proof, !self.id, "a damaged value");
        self.id
    }
}

impl Clone for Citizen {
    fn clone(&self) -> Self {
        self.census.citizen(self.id())
    }
}

impl Drop for Citizen {
    fn drop(&mut self) {
        assert_eq!(*self.proof, !self.id, "a damaged or twice dropped value");
        *self.proof = self.id;
        let before = self.census.0.alive.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "more drops than values");
    }
}
