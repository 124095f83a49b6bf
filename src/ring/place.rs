//! Publishing: from a claimed sequence to an event that subscribers can see.

use super::core::Core;
use super::geometry::MAX_SEQ;
use super::stamp::Stamp;
use crate::sync::{named_fence, ord};

/// A value that had to make room; the publisher drops it when it has finished with the ring.
pub(super) type Displaced<T> = Option<T>;

impl<T> Core<T> {
    /// Claims the next sequence.
    ///
    /// # Panics
    ///
    /// When the sequences are used up. Nothing is published then, and subscribers are not held up.
    #[inline(always)]
    pub(super) fn claim(&self) -> u64 {
        // Acquire: a claim that follows a waiter's look at the tail (`park.look`) sees that waiter's flag.
        let seq = self.tail.fetch_add(1, ord!("claim", Acquire));
        if seq > MAX_SEQ {
            exhausted();
        }
        seq
    }

    /// Claims `count` sequences and returns the first.
    ///
    /// # Panics
    ///
    /// When fewer are left. Nothing is claimed then.
    pub(super) fn claim_many(&self, count: u64) -> u64 {
        if count == 0 {
            return self.tail();
        }
        // Relaxed: only compared.
        let mut seq = self.tail.load(ord!("claim_many.read", Relaxed));
        loop {
            if seq.saturating_add(count) > MAX_SEQ + 1 {
                exhausted();
            }
            // Acquire: as `claim`.
            match self.tail.compare_exchange_weak(
                seq,
                seq + count,
                ord!("claim_many", Acquire),
                ord!("claim_many.failed", Relaxed),
            ) {
                Ok(_) => return seq,
                Err(current) => seq = current,
            }
        }
    }

    /// Publishes `value` as `seq`, which the caller has claimed.
    #[inline(always)]
    pub(super) fn place(&self, seq: u64, value: T) -> Displaced<T> {
        let slot = self.slot(seq);
        let Some(before) = self.own(slot, seq) else {
            self.divert(seq, Some(value));
            return None;
        };
        let displaced = slot.value.with_mut(|storage| {
            // SAFETY: `own` made this thread the only one that touches the slot, until the stamp is stored.
            let storage = unsafe { &mut *storage };
            let displaced = if core::mem::needs_drop::<T>() && !before.is_void() {
                // SAFETY: the stamp says that the slot holds a value. It is moved out once, being overwritten below.
                Some(unsafe { storage.assume_init_read() })
            } else {
                None
            };
            storage.write(value);
            displaced
        });
        // Release: pairs with the subscribers' `locate.stamp` and the next owner's `own.stamp`.
        slot.stamp
            .store(Stamp::value(seq).word(), ord!("publish.stamp", Release));
        displaced
    }

    /// Publishes that `seq`, which the caller has claimed, carries no event.
    pub(super) fn place_void(&self, seq: u64) -> Displaced<T> {
        self.count_void(1);
        if crate::sync::fault!("void.unmarked") {
            return None;
        }
        let slot = self.slot(seq);
        let Some(before) = self.own(slot, seq) else {
            self.divert(seq, None);
            return None;
        };
        let displaced = slot.value.with_mut(|storage| {
            // SAFETY: `own` made this thread the only one that touches the slot, until the stamp is stored.
            let storage = unsafe { &mut *storage };
            // SAFETY: the stamp says that the slot holds a value. It is moved out once: the new stamp is void.
            (!before.is_void()).then(|| unsafe { storage.assume_init_read() })
        });
        // Release: pairs with the subscribers' `locate.stamp` and the next owner's `own.stamp`.
        slot.stamp.store(Stamp::void(seq).word(), ord!("publish.void", Release));
        displaced
    }

    #[cold]
    fn divert(&self, seq: u64, value: Option<T>) {
        // Relaxed: counted before the push, so that whoever must see the cell sees the count.
        self.limits.live_cells.fetch_add(1, ord!("divert.count", Relaxed));
        self.overflow.push(seq, value);
    }

    /// Rings for what has just been placed, if somebody waits. For publications that ran no foreign code after the claim.
    #[inline(always)]
    pub(super) fn ring(&self) {
        if self.always_fence {
            // SeqCst: either this publisher sees the waiter's flag, or the waiter sees the event when it looks again (`park.fence`).
            named_fence!("ring.fence");
        }
        // Relaxed: without the fence, the claim has acquired the flag of every waiter that may rely on it.
        if self.bell.has_waiters() {
            self.bell.ring();
        }
    }

    /// Rings for what has just been placed. For publications during which foreign code ran, for who knows how long.
    #[inline(always)]
    pub(super) fn ring_fenced(&self) {
        // SeqCst: as `ring.fence`.
        named_fence!("ring_after_foreign.fence");
        if self.bell.has_waiters() {
            self.bell.ring();
        }
    }

    /// Frees overflow cells, if there are any that have expired. Their drops run here.
    #[inline(always)]
    pub(super) fn tidy(&self) {
        // Relaxed: a hint; a cell missed now is found by a later publication.
        if self.limits.live_cells.load(ord!("tidy.hint", Relaxed)) != 0 {
            self.purge();
        }
    }
}

#[cold]
#[inline(never)]
fn exhausted() -> ! {
    panic!("the sequences of this ring are used up: {MAX_SEQ} was the last")
}
