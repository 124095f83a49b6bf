//! The identities of the events that were delivered last, by which a rewritten history is noticed.

use std::collections::VecDeque;

use crate::store::EventId;

/// How many identities a stream remembers: as far back the point where two histories part is found exactly.
const REMEMBERED: usize = 64;

#[derive(Default)]
pub(super) struct Recent(VecDeque<(u64, EventId)>);

impl Recent {
    pub(super) fn note(&mut self, seq: u64, id: EventId) {
        if self.0.back().is_some_and(|&(last, _)| last >= seq) {
            return;
        }
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((seq, id));
    }

    /// The identity at `seq`, if it is remembered.
    pub(super) fn at(&self, seq: u64) -> Option<EventId> {
        let at = self.0.binary_search_by_key(&seq, |&(seq, _)| seq).ok()?;
        Some(self.0[at].1)
    }

    pub(super) fn all(&self) -> Vec<(u64, EventId)> {
        self.0.iter().copied().collect()
    }

    /// Forgets what is above `seq`.
    pub(super) fn truncate(&mut self, seq: u64) {
        while self.0.back().is_some_and(|&(last, _)| last > seq) {
            self.0.pop_back();
        }
    }
}
