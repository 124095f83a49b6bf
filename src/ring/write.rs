//! Publishing: from a claimed sequence to an event that subscribers can see.

use core::ops::Range;

use super::geometry::MAX_SEQ;
use super::panic_guard;
use super::shared::{RingShared, Slot};
use super::stamp::Stamp;
use crate::sync::{fault, named_fence, ord, raise};

/// A value that had to make room; the publisher drops it when it has finished with the ring.
pub(super) type Displaced<T> = Option<T>;

/// A sequence could not use its slot.
pub(super) struct Diverted;

impl<T> RingShared<T> {
    /// Claims the next sequence. Whether there is one left is seen by [`RingShared::place`].
    #[inline(always)]
    pub(super) fn claim(&self) -> u64 {
        // Acquire, pairs with `park.look`: a claim that follows a waiter's read of the tail sees that waiter's flag,
        // and that the subscriber exists.
        self.tail.fetch_add(1, ord!("claim", Acquire))
    }

    /// Claims the next sequence, for a publication that runs foreign code once it has it.
    ///
    /// # Panics
    ///
    /// When none is left.
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
    /// When fewer are left. Nothing is claimed then.
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
    /// When `seq` is beyond the last sequence. Nothing is published then, and subscribers are not held up.
    #[inline(always)]
    pub(super) fn place(&self, seq: u64, value: T) -> Displaced<T> {
        let slot = self.slot(seq);
        match self.own(slot, seq) {
            Some(before) => self.fill(slot, before, seq, value),
            None => self.place_rarely(slot, seq, value),
        }
    }

    #[cold]
    #[inline(never)]
    fn place_rarely(&self, slot: &Slot<T>, seq: u64, value: T) -> Displaced<T> {
        if seq > MAX_SEQ {
            exhausted();
        }
        match self.own_rarely(slot, seq) {
            Some(before) => self.fill(slot, before, seq, value),
            None => self.divert(seq, Some(value)),
        }
    }

    /// Publishes the items as the sequences from `claimed.start` on, which are claimed and move on with each.
    ///
    /// Ends with the items or with the claimed sequences, whichever are fewer.
    #[inline(always)]
    pub(super) fn place_all(
        &self,
        claimed: &mut Range<u64>,
        mut items: impl Iterator<Item = T>,
        drops: &panic_guard::PanicGuard,
    ) {
        let displaced = |value| drops.drop_caught(value);
        while !claimed.is_empty() {
            self.tidy_caught(drops);
            // Slots that are open without a further look; the turn of each is still to be seen.
            let open = self.open_slots(claimed);
            if open.is_empty() {
                let Some(item) = items.next() else { return };
                let seq = claimed.start;
                claimed.start += 1;
                self.place(seq, item).map(displaced);
            }
            for slot in open {
                let seq = claimed.start;
                // Before the item is made, so that it need not be kept anywhere else first.
                let Some(before) = self.in_turn(slot, seq) else {
                    let Some(item) = items.next() else { return };
                    claimed.start += 1;
                    self.place_rarely(slot, seq, item).map(displaced);
                    continue;
                };
                let Some(item) = items.next() else { return };
                claimed.start += 1;
                self.fill(slot, before, seq, item).map(displaced);
            }
        }
    }

    /// Writes `value` into its slot, which the caller owns, and which was stamped with `before`.
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
    pub(super) fn place_void(&self, seq: u64) -> Displaced<T> {
        self.count_void(1);
        // Fault, breaks the rule that a void is published like a value: subscribers would stop at the void for ever.
        if fault!("void.unmarked") {
            return None;
        }
        self.place_nothing(seq).unwrap_or(None)
    }

    /// As [`RingShared::place_void`], but the caller has counted the void. `Err` when the slot is left as it is.
    #[inline(always)]
    pub(super) fn place_nothing(&self, seq: u64) -> Result<Displaced<T>, Diverted> {
        let slot = self.slot(seq);
        let Some(before) = self.own(slot, seq).or_else(|| self.own_rarely(slot, seq)) else {
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

    /// Publishes `seq` in an overflow cell; or gives the value back, if `seq` has expired already, or if there are too many cells.
    ///
    /// There are too many only when expired ones could not be freed for long, because the thread that holds their table is
    /// suspended. Then `seq` is lost at once: publishers do not wait, and memory is bounded.
    #[cold]
    fn divert(&self, seq: u64, value: Option<T>) -> Displaced<T> {
        // Relaxed, pairs with `find.diverted` and `lost.diverted`: raised before the push, or in place of it, so that a
        // thread that must see the event looks for it.
        raise(&self.limits.diverted_below, seq + 1, ord!("divert.mark", Relaxed));
        // Relaxed, pairs with `frontier.raise`: how far expiry has come; an old value costs a cell.
        if seq >= self.limits.frontier.load(ord!("divert.frontier", Relaxed)) {
            // Relaxed, pairs with `purge.count`: a hint to clearings and to the limit on cells.
            let cells = self.limits.live_cells.fetch_add(1, ord!("divert.count", Relaxed));
            if (cells as u64) < self.most_cells() {
                self.overflow.push(seq, value);
                return None;
            }
            // Relaxed, pairs with `divert.count`: a hint to clearings and to the limit on cells.
            self.limits.live_cells.fetch_sub(1, ord!("divert.uncount", Relaxed));
        }
        // Release, pairs with `freed.slot`: a subscriber that finds the event gone finds the tail beyond it.
        raise(&self.slot_meta(seq).freed, seq, ord!("divert.lose", Release));
        value
    }

    /// The most overflow cells: all that are retained, those that expire before the next purge, and what subscribers announce.
    fn most_cells(&self) -> u64 {
        2 * self.geometry.slots() + (self.subscriber_count() as u64 + 1) * self.geometry.announced_by_batch()
    }

    /// Ends a publication that ran no foreign code after its claim: rings if somebody waits, and drops what made room.
    #[inline(always)]
    pub(super) fn finish(&self, displaced: Displaced<T>) {
        if self.wait_queue.wants_attention() {
            self.finish_attentively(displaced);
        } else {
            drop(displaced);
        }
    }

    #[cold]
    #[inline(never)]
    fn finish_attentively(&self, displaced: Displaced<T>) {
        let _tidy = PurgeLast(self);
        if self.always_fence {
            // SeqCst fence, pairs with `park.fence`: this publisher sees the waiter's flag, or the waiter sees the
            // event when it looks again.
            named_fence!("wake.fence");
        }
        self.wait_queue.wake_if_needed();
        drop(displaced);
    }

    /// Frees expired overflow cells if that is due, in the midst of several publications.
    #[inline]
    pub(super) fn tidy_caught(&self, drops: &panic_guard::PanicGuard) {
        if self.wait_queue.take_purge_request() {
            drops.run(|| self.purge());
        }
    }

    /// Rings for a publication whose value was built after the claim (`claim`), which took who knows how long.
    #[inline]
    pub(super) fn wake_built(&self) {
        // With no subscriber there is nobody to ring for. One that this look misses and that waits for the event has looked at the
        // tail after the claim, which would have acquired its counts otherwise: it finds the event claimed, and somebody comes
        // back for it (see `wait`). A ring without backstop has nobody to do so.
        // Fault, breaks the rule that a ring without a watchdog always fences: a subscriber that came while the event
        // was built would sleep through it.
        let must_fence = self.always_fence && !fault!("built.watchdog_assumed");
        if must_fence || self.counts.subscribers() != 0 {
            self.wake_fenced();
        }
    }

    /// Rings for a publication during which foreign code ran, for who knows how long.
    pub(super) fn wake_fenced(&self) {
        // SeqCst fence, pairs with `park.fence`: this publisher sees the waiter's flag, or the waiter sees the event
        // when it looks again.
        named_fence!("wake_after_foreign.fence");
        self.wait_queue.wake_if_needed();
    }
}

/// Frees expired overflow cells when dropped: last of all, and without a second panic if the drop of a displaced value panicked.
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
