//! The ids of a stream's last delivered events, by which a replaced history is recognized.

use std::collections::VecDeque;

use crate::store::EventId;

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
}
