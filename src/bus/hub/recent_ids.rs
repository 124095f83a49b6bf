//! The ids of a stream's last delivered events, by which a replaced history is recognized.

use std::collections::VecDeque;

use crate::store::{EventId, StreamHead};

/// The number of ids that a stream remembers. The point where two histories diverge is found exactly if it lies within these.
pub(crate) const MAX_REMEMBERED: usize = 64;

/// Numbers and ids, the oldest first.
#[derive(Default)]
pub(super) struct RecentIds(pub(super) VecDeque<(u64, EventId)>);

impl RecentIds {
    pub(super) fn push(&mut self, seq: u64, id: EventId) {
        if self.0.back().is_some_and(|&(last, _)| last >= seq) {
            return;
        }
        if self.0.len() == MAX_REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((seq, id));
    }

    /// Remembers the event up to which a stream counts as delivered.
    pub(super) fn push_head(&mut self, head: Option<StreamHead>) {
        // Whatever a store answers, there is no event with the number 0.
        if let Some(StreamHead {
            seq: seq @ 1..,
            id: Some(id),
        }) = head
        {
            self.push(seq, id);
        }
    }

    /// Returns the id of number `seq`, if it is remembered.
    pub(super) fn get(&self, seq: u64) -> Option<EventId> {
        let at = self.0.binary_search_by_key(&seq, |&(seq, _)| seq).ok()?;
        Some(self.0[at].1)
    }
}
