//! How many events a stretch of the ring of all streams stands for.
//!
//! Nearly every item is one event. The others are noted here while the ring holds them, so that a subscription that was passed over can
//! be told how many events that were.

use std::collections::VecDeque;

use super::Item;

/// The items of a ring that are not one event each.
pub(super) struct LagAccounting {
    /// The position that the next item gets.
    next: u64,
    /// How many more events than items there were in all. Mostly less than none, since most such items are no event.
    more: i64,
    /// Of the items that the ring may still hold: the position, and how many more events than one.
    recent: VecDeque<(u64, i64)>,
}

impl LagAccounting {
    /// Of a ring whose next item gets this position.
    pub(super) fn starting_at(next: u64) -> Self {
        Self {
            next,
            more: 0,
            recent: VecDeque::new(),
        }
    }

    /// Takes down items that are on their way into the ring, which holds nothing before `oldest` any more.
    pub(super) fn note<E>(&mut self, items: &[Item<E>], oldest: u64) {
        for (position, item) in (self.next..).zip(items) {
            let more = item.events().cast_signed() - 1;
            if more != 0 {
                self.more += more;
                self.recent.push_back((position, more));
            }
        }
        self.next += items.len() as u64;
        while self.recent.front().is_some_and(|&(position, _)| position < oldest) {
            self.recent.pop_front();
        }
    }

    /// How many more events than items there were before a position. Items that the ring no longer holds count, wherever they were.
    pub(super) fn more_before(&self, position: u64) -> i64 {
        let from_there = self.recent.iter().rev().take_while(|&&(at, _)| at >= position);
        self.more - from_there.map(|&(_, more)| more).sum::<i64>()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Era, StreamNoticeKind, StreamSlot};
    use super::*;

    #[test]
    fn what_is_not_one_event_is_counted_before_and_after_it_has_left_the_ring() {
        let slot = StreamSlot(0);
        let era = Era::default();
        let event = |seq| Item::Event {
            slot,
            era,
            seq,
            event: Arc::new(()),
        };
        let mut lag_accounting = LagAccounting::starting_at(1);
        lag_accounting.note(
            &[
                event(1),
                StreamNoticeKind::Lowered { to: 0, delivered: 1 }.on(slot, era),
                event(2),
            ],
            1,
        );
        lag_accounting.note::<()>(&[StreamNoticeKind::Trimmed { after: 2, through: 7 }.on(slot, era)], 1);
        let all = || {
            (1..=5)
                .map(|position| lag_accounting.more_before(position))
                .collect::<Vec<_>>()
        };
        assert_eq!(all(), [0, 0, -1, -1, 3]);
        lag_accounting.note(&[event(8)], 4);
        assert_eq!(lag_accounting.more_before(4), -1);
        assert_eq!(lag_accounting.more_before(6), 3);
    }
}
