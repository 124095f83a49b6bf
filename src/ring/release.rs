//! Releasing what is retained once nobody is there to receive it: the drop-in's rule.
//!
//! Values leave the ring by being displaced, so the releasing thread publishes a void for every slot. It claims these sequences
//! while it holds the door and the count of subscribers is zero: every subscriber starts behind them, and none ever meets one.
//!
//! A send that overlaps the release either finds its value displaced, or it finds the count zero when it looks again, and releases
//! for itself: both sides fence between what they write and what they look at.

use core::ops::Range;

use super::geometry::MAX_SEQ;
use super::panic_guard;
use super::shared::RingShared;
use super::subscriber_count::CountLock;
use super::write::Diverted;
use crate::sync::{MutexGuard, fault, named_fence, ord};

/// How far releasing has come; kept behind the door.
#[derive(Debug)]
pub(super) struct ReleaseProgress {
    /// A thread is publishing voids; whoever else wants to release asks that one to go on.
    under_way: bool,
    again: bool,
    /// The end of the latest release: as long as the tail is there, there is nothing to release. Zero if it left a slot.
    until: u64,
}

impl ReleaseProgress {
    /// Of a ring whose first sequence is `first_seq`: there is nothing to release yet.
    pub(super) fn new(first_seq: u64) -> Self {
        Self {
            under_way: false,
            again: false,
            until: first_seq,
        }
    }
}

/// Looks, when a send ends in whatever way, whether the last receiver has gone meanwhile.
pub(super) struct RecheckRelease<'a, T>(pub(super) &'a RingShared<T>);

impl<T> Drop for RecheckRelease<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SeqCst fence, pairs with `release.fence`: this thread finds the count zero, or the releasing thread finds the
        // value.
        named_fence!("send.fence");
        if self.0.counts.subscribers() == 0 {
            self.0.release_late();
        }
    }
}

impl<T> RingShared<T> {
    /// Removes a subscriber, and wakes those who wait until none is there. With `releases`, releases what is retained if it was the last.
    pub(super) fn subscriber_gone(&self, releases: bool) {
        let Some(mut door) = self.counts.leave() else {
            return;
        };
        let waiting = door.take_waiting();
        let guard = panic_guard::PanicGuard::new();
        if releases && self.may_retain(&door) {
            let released = self.release(door);
            guard.run(|| self.drop_released(released));
        } else {
            drop(door);
        }
        waiting.raise();
        guard.resume();
    }

    /// May there be anything to release? Sends that this misses look again themselves. On a closed channel everything goes with the
    /// last handle, which is going.
    fn may_retain(&self, door: &CountLock) -> bool {
        if !core::mem::needs_drop::<T>() || self.is_closed() {
            return false;
        }
        // SeqCst fence, pairs with `send.fence` and `leave`: finds the value of a send that did not find the count
        // zero. Also acquires what other subscribers have released (`leave`); the lock passes that on to a thread that
        // releases later, and this thread goes on with it.
        named_fence!("release.fence");
        door.release.under_way || self.tail() != door.release.until || self.has_cells()
    }

    /// Releases what a release that is over, or under way, may have missed.
    #[cold]
    #[inline(never)]
    fn release_late(&self) {
        if let Some(door) = self.counts.if_none_left() {
            let released = self.release(door);
            self.drop_released(released);
        }
    }

    fn drop_released(&self, released: Vec<T>) {
        let guard = panic_guard::PanicGuard::new();
        // Diverted values have expired with the others.
        if self.has_cells() {
            guard.run(|| self.purge_for_certain());
        }
        for value in released {
            guard.drop_caught(value);
        }
        guard.resume();
    }

    /// Takes everything out of the ring. The caller drops it, and has found the count zero.
    fn release<'a>(&'a self, mut door: MutexGuard<'a, CountLock>) -> Vec<T> {
        let mut released = Vec::new();
        if door.release.under_way {
            door.release.again = true;
            return released;
        }
        door.release.under_way = true;
        loop {
            let seqs = self.claim_release();
            drop(door);
            self.count_void(seqs.end - seqs.start);
            let mut all = true;
            for seq in seqs.clone() {
                match self.place_nothing(seq) {
                    Ok(displaced) => released.extend(displaced),
                    Err(Diverted) => all = false,
                }
            }
            door = self.counts.lock_count();
            // A slot that was left belongs to a send under way, which releases for itself, or leaves it to the next who goes.
            door.release.until = if all { seqs.end } else { 0 };
            let again = core::mem::take(&mut door.release.again) && self.counts.subscribers() == 0;
            // Fault, breaks the rule that a release is repeated for what was sent while it ran: a value sent meanwhile
            // would stay for ever.
            if !again || fault!("release.once") {
                door.release.under_way = false;
                return released;
            }
        }
    }

    fn has_cells(&self) -> bool {
        // Relaxed, pairs with `divert.count`: a thread that diverts later looks again later.
        self.limits.live_cells.load(ord!("release.cells", Relaxed)) != 0
    }

    /// Claims one sequence for every slot; none when so many are not left.
    fn claim_release(&self) -> Range<u64> {
        // Relaxed, pairs with `claim_release`: only compared.
        let mut first = self.tail.load(ord!("claim_release.read", Relaxed));
        loop {
            let end = first + self.geometry.slots();
            if end > MAX_SEQ + 1 {
                return first..first;
            }
            match self.tail.compare_exchange_weak(
                first,
                end,
                // Relaxed, pairs with `enter` by the lock: no subscriber waits for these sequences; the lock shows them
                // to one that enters.
                ord!("claim_release", Relaxed),
                // Relaxed, pairs with `claim_release`: only compared again.
                ord!("claim_release.failed", Relaxed),
            ) {
                Ok(_) => return first..end,
                Err(current) => first = current,
            }
        }
    }
}
