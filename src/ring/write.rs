//! Claims sequences, and publishes them as events that subscribers can see.

use core::ops::Range;

use super::geometry::MAX_SEQ;
use super::panic_guard;
use super::shared::{RingShared, Slot};
use super::stamp::Stamp;
use crate::sync::{fault, named_fence, ord, raise};

/// A value that was overwritten. The publisher drops it when it has finished with the ring.
pub(super) type Displaced<T> = Option<T>;

/// The error for a sequence that could not use its slot.
pub(super) struct Diverted;

impl<T> RingShared<T> {
    /// Claims the next sequence. [`RingShared::write`] checks whether there was one left.
    #[inline(always)]
    pub(super) fn claim(&self) -> u64 {
        // Acquire, pairs with `park.look`: a claim that follows a waiter's read of the tail sees that waiter's flag,
        // and that the subscriber exists.
        self.tail.fetch_add(1, ord!("claim", Acquire))
    }

    /// Claims the next sequence, for a publication that runs foreign code after the claim.
    ///
    /// # Panics
    ///
    /// Panics if none is left.
    #[inline(always)]
    pub(super) fn claim_checked(&self) -> u64 {
        let seq = self.claim();
        if seq > MAX_SEQ {
            exhausted();
        }
        seq
    }

    /// Claims `count` sequences and returns the first.
    ///
    /// # Panics
    ///
    /// Panics if fewer are left. Nothing is claimed then.
    pub(super) fn claim_many(&self, count: u64) -> u64 {
        if count == 0 {
            return self.tail();
        }
        // Relaxed, pairs with `claim_many`: only compared.
        let mut seq = self.tail.load(ord!("claim_many.read", Relaxed));
        loop {
            if seq.saturating_add(count) > MAX_SEQ + 1 {
                exhausted();
            }
            match self.tail.compare_exchange_weak(
                seq,
                seq + count,
                // Relaxed, pairs with `park.look` through `wake_after_foreign.fence`: the publisher of what is claimed
                // here fences before it reads the flags.
                ord!("claim_many", Relaxed),
                // Relaxed, pairs with `claim_many`: only compared again.
                ord!("claim_many.failed", Relaxed),
            ) {
                Ok(_) => return seq,
                Err(current) => seq = current,
            }
        }
    }

    /// Publishes `value` as `seq`, which the caller has claimed.
    ///
    /// # Panics
    ///
    /// Panics if `seq` is beyond the last sequence. Nothing is published then, and subscribers are not blocked.
    #[inline(always)]
    pub(super) fn write(&self, seq: u64, value: T) -> Displaced<T> {
        let slot = self.slot(seq);
        match self.own(slot, seq) {
            Some(before) => self.fill(slot, before, seq, value),
            None => self.write_slow(slot, seq, value),
        }
    }

    #[cold]
    #[inline(never)]
    fn write_slow(&self, slot: &Slot<T>, seq: u64, value: T) -> Displaced<T> {
        if seq > MAX_SEQ {
            exhausted();
        }
        match self.own_slow(slot, seq) {
            Some(before) => self.fill(slot, before, seq, value),
            None => self.divert(seq, Some(value)),
        }
    }

    /// Publishes the items as the claimed sequences, and advances `claimed.start` past each.
    ///
    /// Ends with the items or with the claimed sequences, whichever are fewer.
    #[inline(always)]
    pub(super) fn write_all(
        &self,
        claimed: &mut Range<u64>,
        mut items: impl Iterator<Item = T>,
        panics: &panic_guard::PanicGuard,
    ) {
        let displaced = |value| panics.drop_caught(value);
        while !claimed.is_empty() {
            self.purge_if_asked(panics);
            // Slots that are open without further checks, but for the turn of each.
            let open = self.open_slots(claimed);
            if open.len() == 0 {
                let Some(item) = items.next() else { return };
                let seq = claimed.start;
                claimed.start += 1;
                self.write(seq, item).map(displaced);
            }
            for slot in open {
                let seq = claimed.start;
                // Checked before the item is made, so that the item goes straight into its slot.
                let Some(before) = self.in_turn(slot, seq) else {
                    let Some(item) = items.next() else { return };
                    claimed.start += 1;
                    self.write_slow(slot, seq, item).map(displaced);
                    continue;
                };
                let Some(item) = items.next() else { return };
                claimed.start += 1;
                self.fill(slot, before, seq, item).map(displaced);
            }
        }
    }

    /// Writes `value` into its slot, which the caller owns and which is stamped with `before`.
    #[inline(always)]
    fn fill(&self, slot: &Slot<T>, before: Stamp, seq: u64, value: T) -> Displaced<T> {
        let displaced = slot.value.with_mut(|storage| {
            // SAFETY: this thread owns the slot: it is the only one that touches it, until the stamp is stored.
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
        // Release, pairs with `locate.stamp` and `own.stamp`: subscribers and the next publisher of this slot find the
        // value complete.
        slot.stamp
            .store(Stamp::value(seq).word(), ord!("publish.stamp", Release));
        displaced
    }

    /// Publishes that `seq`, which the caller has claimed, carries no event.
    pub(super) fn write_void(&self, seq: u64) -> Displaced<T> {
        self.count_void(1);
        // Fault, breaks the rule that a void is published like a value: subscribers would stop at the void forever.
        if fault!("void.unmarked") {
            return None;
        }
        self.write_counted_void(seq).unwrap_or(None)
    }

    /// Does the same as [`RingShared::write_void`], for a void that the caller has counted. Returns `Err` if it leaves the slot
    /// unchanged.
    #[inline(always)]
    pub(super) fn write_counted_void(&self, seq: u64) -> Result<Displaced<T>, Diverted> {
        let slot = self.slot(seq);
        let Some(before) = self.own(slot, seq).or_else(|| self.own_slow(slot, seq)) else {
            self.divert(seq, None);
            return Err(Diverted);
        };
        let displaced = slot.value.with_mut(|storage| {
            // SAFETY: `own` made this thread the only one that touches the slot, until the stamp is stored.
            let storage = unsafe { &mut *storage };
            // SAFETY: the stamp says that the slot holds a value. It is moved out once: the new stamp is void.
            (!before.is_void()).then(|| unsafe { storage.assume_init_read() })
        });
        // Release, pairs with `locate.stamp` and `own.stamp`: subscribers and the next publisher of this slot find the
        // slot vacated.
        slot.stamp.store(Stamp::void(seq).word(), ord!("publish.void", Release));
        Ok(displaced)
    }

    /// Publishes `seq` in an overflow cell. Returns the value if `seq` has already expired or if there are too many cells.
    ///
    /// There are too many only if expired cells could not be freed for a long time, because the thread that holds their table is
    /// suspended. Then `seq` is lost at once, so that publishers need not wait and memory stays bounded.
    #[cold]
    fn divert(&self, seq: u64, value: Option<T>) -> Displaced<T> {
        // Relaxed, pairs with `find.diverted` and `lost.diverted`: raised before the push, or in place of it, so that a
        // thread that must see the event looks for it.
        raise(&self.limits.diverted_below, seq + 1, ord!("divert.mark", Relaxed));
        let expires = (seq + 1).saturating_sub(self.geometry.capacity());
        // Relaxed, pairs with `receive.direct`: as `divert.mark`, for receives of what expires with `seq`.
        raise(&self.limits.direct_from, expires, ord!("divert.direct", Relaxed));
        let place = self.place(seq);
        // Relaxed, pairs with `frontier.raise` through `overflow.peek`: an old value costs a cell, and the publisher of a later
        // event of the slot has seen the frontier beyond `seq`.
        let has_expired = || self.limits.frontier.load(ord!("divert.frontier", Relaxed)) > seq;
        let replaces = |lap| {
            let before = seq - (place.lap - lap) * self.geometry.slots();
            // Relaxed, pairs with `freed.slot` through `overflow.publish`: marked before it can no longer be found.
            raise(&self.slot_meta(seq).freed, before, ord!("divert.replace", Relaxed));
        };
        let refused = match self
            .overflow
            .publish(place, value, self.max_cells(), has_expired, replaces)
        {
            Ok(()) => return None,
            Err(refused) => refused,
        };
        // Release, pairs with `freed.slot`: a subscriber that finds the event gone finds the tail beyond it.
        raise(&self.slot_meta(seq).freed, seq, ord!("divert.lose", Release));
        refused
    }

    /// Returns the limit on overflow cells: all that are retained, those that expire before the next purge, and those that
    /// subscribers announce.
    fn max_cells(&self) -> u64 {
        2 * self.geometry.slots() + (self.subscriber_count() as u64 + 1) * self.geometry.announced_by_batch()
    }

    /// Ends a publication that ran no foreign code after its claim: wakes waiters and drops the displaced value.
    #[inline(always)]
    pub(super) fn finish(&self, displaced: Displaced<T>) {
        // No fence: the claim has acquired the flag of every waiter that may rely on this read (`flags.glance`).
        if self.wait_queue.needs_attention() {
            self.finish_slow(displaced);
        } else {
            drop(displaced);
        }
    }

    #[cold]
    #[inline(never)]
    fn finish_slow(&self, displaced: Displaced<T>) {
        let _purge_last = PurgeLast(self);
        if self.always_fence {
            // SeqCst fence, pairs with `park.fence`: this publisher sees the waiter's flag, or the waiter sees the
            // event when it looks again.
            named_fence!("wake.fence");
        }
        self.wait_queue.wake_if_needed();
        drop(displaced);
    }

    /// Frees expired overflow cells if requested, between the publications of a batch.
    #[inline]
    pub(super) fn purge_if_asked(&self, panics: &panic_guard::PanicGuard) {
        if self.wait_queue.take_purge_request() {
            panics.run(|| self.purge());
        }
    }

    /// Wakes waiters after a publication whose value was built after its claim, which may have taken any time.
    #[inline]
    pub(super) fn wake_built(&self) {
        // With no subscriber there is none to wake. A subscriber that this read misses and that waits for the event has read the
        // tail after the claim (otherwise `claim` would have acquired its count): it finds the event claimed, and the watchdog
        // wakes it (see `wait`). A ring without a watchdog must fence.
        // Fault, breaks the rule that a ring without a watchdog always fences: a subscriber that came while the event
        // was built would sleep through it.
        let must_fence = self.always_fence && !fault!("built.watchdog_assumed");
        if must_fence || self.counts.subscribers() != 0 {
            self.wake_fenced();
        }
    }

    /// Wakes waiters after a publication during which foreign code ran, which may have taken any time.
    pub(super) fn wake_fenced(&self) {
        // SeqCst fence, pairs with `park.fence`: this publisher sees the waiter's flag, or the waiter sees the event
        // when it looks again.
        named_fence!("wake_after_foreign.fence");
        self.wait_queue.wake_if_needed();
    }
}

/// Frees expired overflow cells when dropped: last, and without a second panic if the drop of a displaced value panicked.
pub(super) struct PurgeLast<'a, T>(pub(super) &'a RingShared<T>);

impl<T> Drop for PurgeLast<'_, T> {
    fn drop(&mut self) {
        if self.0.wait_queue.take_purge_request() {
            self.0.purge();
        }
    }
}

#[cold]
#[inline(never)]
fn exhausted() -> ! {
    panic!("the sequences of this ring are used up: {MAX_SEQ} was the last")
}
