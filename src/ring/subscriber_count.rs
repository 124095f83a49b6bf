//! Counts the subscribers of a ring, and keeps the tasks that wait until there is none.
//!
//! Any thread may read the count. It changes from or to zero only while the lock is held. So if a thread that holds the lock
//! finds the count zero, no subscriber enters before the thread unlocks.

use core::task::{Context, Poll, Waker};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::release::ReleaseProgress;
use crate::sync::{AtomicUsize, Mutex, MutexGuard, ord};

/// Shared by the handles of one ring; outlives its storage.
#[derive(Debug)]
pub(crate) struct SubscriberCount {
    subscribers: AtomicUsize,
    /// The number of weak senders of `broadcast`.
    weak_senders: AtomicUsize,
    state: Mutex<CountState>,
}

/// The state that the lock guards.
#[derive(Debug)]
pub(super) struct CountState {
    waiting: AbsenceWaiters,
    pub(super) release: ReleaseProgress,
}

impl SubscriberCount {
    /// Creates a count of zero for a ring whose first sequence is `first_seq`.
    pub(super) fn new(first_seq: u64) -> Self {
        Self {
            subscribers: AtomicUsize::new(0),
            weak_senders: AtomicUsize::new(0),
            state: Mutex::new(CountState {
                waiting: AbsenceWaiters::default(),
                release: ReleaseProgress::new(first_seq),
            }),
        }
    }

    /// Returns the number of subscribers.
    #[inline(always)]
    pub(crate) fn subscribers(&self) -> usize {
        // Relaxed, pairs with `enter` and `leave`: a hint; a caller that acts on zero fences before, holds the lock, or
        // relies on `claim` (`RingShared::wake_built`).
        self.subscribers.load(ord!("subscribers.count", Relaxed))
    }

    /// Adds a subscriber, which must read the tail of the ring only afterwards.
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
        let _state = self.state.lock();
        // Release, pairs with `enter`: a subscriber that enters next finds the tail beyond everything claimed while
        // there was none.
        self.subscribers.fetch_add(1, ord!("enter.first", Release));
    }

    /// Removes a subscriber, which no longer reads anything. Returns the lock if it was the last.
    pub(super) fn leave(&self) -> Option<MutexGuard<'_, CountState>> {
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
        let state = self.state.lock();
        // Relaxed, pairs with `release.fence` by the lock: the lock orders subscribers that leave this way, and
        // `release.fence` acquires what the others released (`leave`).
        let before = self.subscribers.fetch_sub(1, ord!("leave.last", Relaxed));
        (before == 1).then_some(state)
    }

    /// Takes the lock if there is no subscriber.
    pub(super) fn if_none_left(&self) -> Option<MutexGuard<'_, CountState>> {
        let state = self.state.lock();
        (self.subscribers() == 0).then_some(state)
    }

    pub(super) fn lock_state(&self) -> MutexGuard<'_, CountState> {
        self.state.lock()
    }

    /// Waits until there is no subscriber. The caller keeps `ticket` and returns it with [`SubscriberCount::forget`].
    pub(crate) fn poll_absence(&self, ticket: &mut Option<AbsenceTicket>, cx: &Context<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        let mut state = self.state.lock();
        if self.subscribers() == 0 {
            return Poll::Ready(());
        }
        let replaced = state.waiting.add(ticket, waker);
        drop(state);
        drop(replaced);
        Poll::Pending
    }

    /// Ends a wait.
    pub(crate) fn forget(&self, ticket: AbsenceTicket) {
        let mut state = self.state.lock();
        let waker = state.waiting.remove(ticket);
        drop(state);
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

impl CountState {
    /// Takes the wakers of the tasks that wait until there is no subscriber. The caller wakes them after it has unlocked.
    pub(super) fn take_waiting(&mut self) -> AbsenceWakers {
        self.waiting.take()
    }
}

/// The wakers of the tasks that wait until there is no subscriber.
#[derive(Debug, Default)]
struct AbsenceWaiters {
    wakers: Vec<Option<Waker>>,
    vacant: Vec<usize>,
    /// The number of times that all wakers were taken. A ticket of an earlier round does not match.
    round: u64,
}

/// Identifies one waker among those that wait.
#[derive(Debug)]
pub(crate) struct AbsenceTicket {
    index: usize,
    round: u64,
}

impl AbsenceWaiters {
    /// Adds `waker`, or replaces the one that `ticket` identifies and returns it.
    fn add(&mut self, ticket: &mut Option<AbsenceTicket>, waker: Waker) -> Option<Waker> {
        if let Some(ticket) = ticket
            && ticket.round == self.round
        {
            return self.wakers[ticket.index].replace(waker);
        }
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.wakers.push(None);
            self.wakers.len() - 1
        });
        self.wakers[index] = Some(waker);
        *ticket = Some(AbsenceTicket {
            index,
            round: self.round,
        });
        None
    }

    fn remove(&mut self, ticket: AbsenceTicket) -> Option<Waker> {
        if ticket.round != self.round {
            return None;
        }
        self.vacant.push(ticket.index);
        self.wakers[ticket.index].take()
    }

    fn take(&mut self) -> AbsenceWakers {
        self.round += 1;
        self.vacant.clear();
        AbsenceWakers(core::mem::take(&mut self.wakers))
    }
}

/// Wakers to be woken while no lock is held.
pub(super) struct AbsenceWakers(Vec<Option<Waker>>);

impl AbsenceWakers {
    /// Wakes them all. As in the wait queue, a waker that panics does not affect the others.
    pub(super) fn wake_all(self) {
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
    fn a_ticket_of_an_earlier_round_removes_nothing() {
        let mut waiting = AbsenceWaiters::default();
        let (mut early, mut late) = (None, None);
        assert!(waiting.add(&mut early, Waker::noop().clone()).is_none());
        assert_eq!(waiting.take().0.len(), 1);
        assert!(waiting.add(&mut late, Waker::noop().clone()).is_none());
        assert!(waiting.remove(early.unwrap()).is_none());
        assert!(waiting.remove(late.unwrap()).is_some());
    }

    #[test]
    fn indices_are_reused() {
        let mut waiting = AbsenceWaiters::default();
        for _ in 0..1000 {
            let mut ticket = None;
            assert!(waiting.add(&mut ticket, Waker::noop().clone()).is_none());
            assert!(waiting.add(&mut ticket, Waker::noop().clone()).is_some(), "replaced");
            assert!(waiting.remove(ticket.unwrap()).is_some());
        }
        assert_eq!(waiting.wakers.len(), 1);
    }
}
