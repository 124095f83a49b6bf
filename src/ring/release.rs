//! Drops the retained values when the last subscriber is dropped, as `broadcast` guarantees.
//!
//! A value leaves the ring only when another one takes its slot. The releasing thread therefore publishes a *void*, a sequence
//! without an event, into every slot. It claims these sequences while it holds the lock of the subscriber count and the count is
//! zero. Every later subscriber starts after them, so none ever receives one.
//!
//! A send that overlaps the release either has its value displaced, or finds the count zero when it checks again, and releases by
//! itself: both sides fence between their write and their read.

use core::ops::Range;

use super::geometry::MAX_SEQ;
use super::panic_guard;
use super::shared::RingShared;
use super::subscriber_count::CountState;
use super::write::Diverted;
use crate::sync::{MutexGuard, fault, named_fence, ord};

/// The progress of releasing, kept under the lock of the subscriber count.
#[derive(Debug)]
pub(super) struct ReleaseProgress {
    /// A thread is publishing voids. Another thread that wants to release asks it to repeat that.
    under_way: bool,
    /// The thread that publishes voids must repeat it.
    again: bool,
    /// The end of the latest release: while the tail is there, there is nothing to release. It is zero if a slot was left.
    until: u64,
}

impl ReleaseProgress {
    /// Creates the state of a ring whose first sequence is `first_seq`, with nothing to release.
    pub(super) fn new(first_seq: u64) -> Self {
        Self {
            under_way: false,
            again: false,
            until: first_seq,
        }
    }
}

/// Checks at the end of a send, even if it panics, whether the last receiver was dropped meanwhile.
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
    /// Removes a subscriber. If it was the last, wakes the tasks that wait for that and, with `releases`, drops the retained
    /// values.
    pub(super) fn subscriber_gone(&self, releases: bool) {
        let Some(mut state) = self.counts.leave() else {
            return;
        };
        let waiting = state.take_waiting();
        let guard = panic_guard::PanicGuard::new();
        if releases && self.may_retain(&state) {
            let released = self.release(state);
            guard.run(|| self.drop_released(released));
        } else {
            drop(state);
        }
        waiting.wake_all();
        guard.resume();
    }

    /// Returns `true` if there may be anything to release. A send that this misses checks again itself. On a closed channel, the
    /// drop of the last handle, which is in progress, frees everything.
    fn may_retain(&self, state: &CountState) -> bool {
        if !core::mem::needs_drop::<T>() || self.is_closed() {
            return false;
        }
        // SeqCst fence, pairs with `send.fence` and `leave`: finds the value of a send that did not find the count
        // zero. Also acquires what other subscribers have released (`leave`); the lock passes that on to a thread that
        // releases later, and this thread continues with it.
        named_fence!("release.fence");
        state.release.under_way || self.tail() != state.release.until || self.has_cells()
    }

    /// Releases the values that another release, ended or in progress, may have missed.
    #[cold]
    #[inline(never)]
    fn release_late(&self) {
        if let Some(state) = self.counts.if_none_left() {
            let released = self.release(state);
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

    /// Takes every value out of the ring. The caller has found the count zero, and drops them.
    fn release<'a>(&'a self, mut state: MutexGuard<'a, CountState>) -> Vec<T> {
        let mut released = Vec::new();
        if state.release.under_way {
            state.release.again = true;
            return released;
        }
        state.release.under_way = true;
        loop {
            let seqs = self.claim_release();
            drop(state);
            self.count_void(seqs.end - seqs.start);
            let mut all = true;
            for seq in seqs.clone() {
                match self.write_counted_void(seq) {
                    Ok(displaced) => released.extend(displaced),
                    Err(Diverted) => all = false,
                }
            }
            state = self.counts.lock_state();
            // A slot that was left belongs to a send under way, which releases by itself or leaves that to the next subscriber to go.
            state.release.until = if all { seqs.end } else { 0 };
            let again = core::mem::take(&mut state.release.again) && self.counts.subscribers() == 0;
            // Fault, breaks the rule that a release is repeated for what was sent while it ran: a value sent in the meantime
            // would stay forever.
            if !again || fault!("release.once") {
                state.release.under_way = false;
                return released;
            }
        }
    }

    fn has_cells(&self) -> bool {
        // A thread that diverts later looks again later.
        !self.overflow.is_empty()
    }

    /// Claims one sequence for every slot, or none if too few are left.
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
