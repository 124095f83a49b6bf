//! Payloads that know whether they were dropped.
//!
//! Not `testkit::tracked`, which finds a read after a drop only in the dropped value itself: the ledger outlives the payloads.
//! It uses the standard library's types, which loom does not see: all threads of a model run on one.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Records the payloads of one execution and whether each was dropped.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<Vec<bool>>>);

/// A payload; its clones are recorded in the ledger, too.
pub(crate) struct Token {
    label: u64,
    entry: usize,
    ledger: Ledger,
}

impl Ledger {
    /// A payload with a unique label, and that label.
    pub(crate) fn fresh(&self) -> (Token, u64) {
        let label = self.0.lock().unwrap_or_else(PoisonError::into_inner).len() as u64;
        (self.token(label), label)
    }

    /// A payload that carries `label`.
    fn token(&self, label: u64) -> Token {
        let mut alive = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        alive.push(true);
        Token {
            label,
            entry: alive.len() - 1,
            ledger: self.clone(),
        }
    }

    /// How many payloads exist at the moment.
    pub(crate) fn alive(&self) -> usize {
        let alive = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        alive.iter().filter(|alive| **alive).count()
    }

    /// Asserts that every payload was dropped. Called when every handle of the channel was dropped.
    pub(crate) fn settle(&self) {
        assert_eq!(self.alive(), 0, "values that were never dropped");
    }
}

impl Token {
    pub(crate) fn label(&self) -> u64 {
        let alive = self.ledger.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(alive[self.entry], "value {} was read after its drop", self.label);
        self.label
    }
}

impl Clone for Token {
    fn clone(&self) -> Self {
        self.ledger.token(self.label())
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        let mut alive = self.ledger.0.lock().unwrap_or_else(PoisonError::into_inner);
        let was_alive = std::mem::replace(&mut alive[self.entry], false);
        drop(alive);
        assert!(was_alive, "value {} was dropped twice", self.label);
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.label)
    }
}
