//! Counts the events in a section of the ring of all streams.
//!
//! Nearly every item is one event. The other items are recorded here while the ring holds them, so that a subscription that
//! lagged can report how many events it missed.

use std::collections::VecDeque;

use super::RingItem;

/// The items of a ring that do not stand for exactly one event.
pub(super) struct LagAccounting {
    /// The position of the next item.
    next: u64,
    /// The number of events minus the number of items, over the ring's whole life. It is usually negative, since most of the
    /// recorded items stand for no event. One gap may stand for 2^63 events.
    surplus: i128,
    /// The position and the surplus of such items that the ring may still hold.
    recent: VecDeque<(u64, i128)>,
}

impl LagAccounting {
    /// Creates the accounting for a ring whose next item gets position `next`.
    pub(super) fn starting_at(next: u64) -> Self {
        Self {
            next,
            surplus: 0,
            recent: VecDeque::new(),
        }
    }

    /// Records items that are about to be published. The ring no longer holds anything before `oldest`.
    pub(super) fn record<E>(&mut self, items: &[RingItem<E>], oldest: u64) {
        for (position, item) in (self.next..).zip(items) {
            let surplus = i128::from(item.events()) - 1;
            if surplus != 0 {
                self.surplus += surplus;
                self.recent.push_back((position, surplus));
            }
        }
        self.next += items.len() as u64;
        while self.recent.front().is_some_and(|&(position, _)| position < oldest) {
            self.recent.pop_front();
        }
    }

    /// Returns the number of events minus the number of items before a position. Includes items that the ring no longer holds,
    /// wherever they were.
    pub(super) fn surplus_before(&self, position: u64) -> i128 {
        let from_there = self.recent.iter().rev().take_while(|&&(at, _)| at >= position);
        self.surplus - from_there.map(|&(_, surplus)| surplus).sum::<i128>()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Era, StreamIndex, StreamNoticeKind};
    use super::*;

    #[test]
    fn the_surplus_is_exact_before_and_after_items_leave_the_ring() {
        let index = StreamIndex(0);
        let era = Era::default();
        let event = |seq| RingItem::Event {
            index,
            era,
            seq,
            event: Arc::new(()),
        };
        let mut accounting = LagAccounting::starting_at(1);
        accounting.record(
            &[
                event(1),
                StreamNoticeKind::Lowered { to: 0, delivered: 1 }.on(index, era),
                event(2),
            ],
            1,
        );
        accounting.record::<()>(&[StreamNoticeKind::Missing { after: 2, through: 7 }.on(index, era)], 1);
        let surpluses: Vec<_> = (1..=5).map(|position| accounting.surplus_before(position)).collect();
        assert_eq!(surpluses, [0, 0, -1, -1, 3]);
        accounting.record(&[event(8)], 4);
        assert_eq!(accounting.surplus_before(4), -1);
        assert_eq!(accounting.surplus_before(6), 3);
    }

    #[test]
    fn gaps_of_any_size_are_counted() {
        let mut accounting = LagAccounting::starting_at(1);
        let gap = |index| {
            let through = u64::MAX >> 1;
            StreamNoticeKind::Missing { after: 0, through }.on::<()>(StreamIndex(index), Era::default())
        };
        accounting.record(&[gap(0), gap(1), gap(2), gap(3)], 1);
        assert_eq!(accounting.surplus_before(5), 4 * (i128::from(u64::MAX >> 1) - 1));
    }
}
