//! Who is there: how many subscribers, and who waits until there is none.
//!
//! Anybody may read the count. It leaves zero and reaches zero only under the lock of the *door*: whoever holds the door and finds
//! the count zero knows that nobody comes in before the door is let go.

use core::task::{Context, Poll, Waker};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::release::ReleaseProgress;
use crate::sync::{AtomicUsize, Mutex, MutexGuard, ord};

/// Shared by the handles of one ring, and outlives its storage.
#[derive(Debug)]
pub(crate) struct SubscriberCount {
    subscribers: AtomicUsize,
    /// Weak senders of the drop-in, which count themselves.
    weak_senders: AtomicUsize,
    door: Mutex<CountLock>,
}

/// What the lock of the door guards.
#[derive(Debug)]
pub(super) struct CountLock {
    waiting: AbsenceWaiters,
    pub(super) release: ReleaseProgress,
}

impl SubscriberCount {
    /// Nobody, at a ring of which `first_seq` is the first sequence.
    pub(super) fn new(first_seq: u64) -> Self {
        Self {
            subscribers: AtomicUsize::new(0),
            weak_senders: AtomicUsize::new(0),
            door: Mutex::new(CountLock {
                waiting: AbsenceWaiters::default(),
                release: ReleaseProgress::new(first_seq),
            }),
        }
    }

    /// How many subscribers there are.
    #[inline(always)]
    pub(crate) fn subscribers(&self) -> usize {
        // Relaxed, pairs with `enter` and `leave`: a hint; a caller that acts on zero fences before, holds the lock, or
        // relies on `claim` (`RingShared::wake_built`).
        self.subscribers.load(ord!("subscribers.count", Relaxed))
    }

    /// Adds a subscriber, which reads the tail of the ring afterwards.
    pub(super) fn enter(&self) {
        // Relaxed, pairs with `enter`: only compared.
        let mut count = self.subscribers.load(ord!("enter.peek", Relaxed));
        while count != 0 {
            match self.subscribers.compare_exchange_weak(
                count,
                count + 1,
                // Acquire, pairs with `enter.first`: a subscriber that enters after the first finds the tail beyond
                // everything claimed while there was none.
                ord!("enter", Acquire),
                // Relaxed, pairs with `enter`: only compared again.
                ord!("enter.failed", Relaxed),
            ) {
                Ok(_) => return,
                Err(current) => count = current,
            }
        }
        let _door = self.door.lock();
        // Release, pairs with `enter`: a subscriber that enters next finds the tail beyond everything claimed while
        // there was none.
        self.subscribers.fetch_add(1, ord!("enter.first", Release));
    }

    /// Removes a subscriber, which reads nothing any more. The door, if nobody is left.
    pub(super) fn leave(&self) -> Option<MutexGuard<'_, CountLock>> {
        // Relaxed, pairs with `leave`: only compared.
        let mut count = self.subscribers.load(ord!("leave.peek", Relaxed));
        while count > 1 {
            match self.subscribers.compare_exchange_weak(
                count,
                count - 1,
                // Release, pairs with `release.fence`: the thread that releases the values sees that this subscriber no
                // longer reads.
                ord!("leave", Release),
                // Relaxed, pairs with `leave`: only compared again.
                ord!("leave.failed", Relaxed),
            ) {
                Ok(_) => return None,
                Err(current) => count = current,
            }
        }
        let door = self.door.lock();
        // Relaxed, pairs with `release.fence` by the lock: the lock orders subscribers that leave this way, and
        // `release.fence` acquires what the others released (`leave`).
        let before = self.subscribers.fetch_sub(1, ord!("leave.last", Relaxed));
        (before == 1).then_some(door)
    }

    /// The door, if nobody is there.
    pub(super) fn if_none_left(&self) -> Option<MutexGuard<'_, CountLock>> {
        let door = self.door.lock();
        (self.subscribers() == 0).then_some(door)
    }

    pub(super) fn lock_count(&self) -> MutexGuard<'_, CountLock> {
        self.door.lock()
    }

    /// Waits until nobody is there; `ticket` is the caller's, to keep and to give back by [`SubscriberCount::forget`].
    pub(crate) fn poll_absence(&self, ticket: &mut Option<AbsenceTicket>, cx: &Context<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        let mut door = self.door.lock();
        if self.subscribers() == 0 {
            return Poll::Ready(());
        }
        let replaced = door.waiting.add(ticket, waker);
        drop(door);
        drop(replaced);
        Poll::Pending
    }

    /// Ends a wait.
    pub(crate) fn forget(&self, ticket: AbsenceTicket) {
        let mut door = self.door.lock();
        let waker = door.waiting.remove(ticket);
        drop(door);
        drop(waker);
    }

    pub(crate) fn weak_senders(&self) -> usize {
        // Relaxed, pairs with `weak_senders.add`: a statistic.
        self.weak_senders.load(ord!("weak_senders.read", Relaxed))
    }

    pub(crate) fn weak_sender_added(&self) {
        // Relaxed, pairs with `weak_senders.read`: a statistic.
        self.weak_senders.fetch_add(1, ord!("weak_senders.add", Relaxed));
    }

    pub(crate) fn weak_sender_gone(&self) {
        // Relaxed, pairs with `weak_senders.read`: a statistic.
        self.weak_senders.fetch_sub(1, ord!("weak_senders.leave", Relaxed));
    }
}

impl CountLock {
    /// Takes everybody who waits for absence, to be woken when the door is let go.
    pub(super) fn take_waiting(&mut self) -> AbsenceWakers {
        self.waiting.take()
    }
}

/// The wakers of those who wait for absence.
#[derive(Debug, Default)]
struct AbsenceWaiters {
    places: Vec<Option<Waker>>,
    vacant: Vec<usize>,
    /// Counts how often all were taken, so that a ticket of before does not match.
    round: u64,
}

/// A place among those who wait.
#[derive(Debug)]
pub(crate) struct AbsenceTicket {
    place: usize,
    round: u64,
}

impl AbsenceWaiters {
    /// Adds `waker`, or puts it in the place of an earlier one, which is given back.
    fn add(&mut self, ticket: &mut Option<AbsenceTicket>, waker: Waker) -> Option<Waker> {
        if let Some(ticket) = ticket
            && ticket.round == self.round
        {
            return self.places[ticket.place].replace(waker);
        }
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[place] = Some(waker);
        *ticket = Some(AbsenceTicket {
            place,
            round: self.round,
        });
        None
    }

    fn remove(&mut self, ticket: AbsenceTicket) -> Option<Waker> {
        if ticket.round != self.round {
            return None;
        }
        self.vacant.push(ticket.place);
        self.places[ticket.place].take()
    }

    fn take(&mut self) -> AbsenceWakers {
        self.round += 1;
        self.vacant.clear();
        AbsenceWakers(core::mem::take(&mut self.places))
    }
}

/// Wakers to wake while no lock is held.
pub(super) struct AbsenceWakers(Vec<Option<Waker>>);

impl AbsenceWakers {
    /// Wakes them all. A waker that panics harms nobody else, like those of the bell.
    pub(super) fn raise(self) {
        for waker in self.0.into_iter().flatten() {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                // Dropping the payload could panic again; a leak is the lesser evil.
                core::mem::forget(panic);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::AbsenceWaiters;
    use std::task::Waker;

    #[test]
    fn a_ticket_of_an_earlier_round_removes_nobody() {
        let mut waiting = AbsenceWaiters::default();
        let (mut early, mut late) = (None, None);
        assert!(waiting.add(&mut early, Waker::noop().clone()).is_none());
        assert_eq!(waiting.take().0.len(), 1);
        assert!(waiting.add(&mut late, Waker::noop().clone()).is_none());
        assert!(waiting.remove(early.unwrap()).is_none());
        assert!(waiting.remove(late.unwrap()).is_some());
    }

    #[test]
    fn places_are_used_again() {
        let mut waiting = AbsenceWaiters::default();
        for _ in 0..1000 {
            let mut ticket = None;
            assert!(waiting.add(&mut ticket, Waker::noop().clone()).is_none());
            assert!(waiting.add(&mut ticket, Waker::noop().clone()).is_some(), "replaced");
            assert!(waiting.remove(ticket.unwrap()).is_some());
        }
        assert_eq!(waiting.places.len(), 1);
    }
}
