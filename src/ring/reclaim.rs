//! Decides when a publisher may write into a slot, by turns, announcements and expired events.
//!
//! A slot serves the sequences s, s + M, s + 2M and so on, M being the number of slots. The publisher of s may use it when
//!
//! 1. **it is its turn**: the publisher of s - M has stamped the slot, or every publisher since the stamped one has *diverted* its
//!    event elsewhere and recorded that it will never touch the slot; and
//! 2. **no subscriber reads** what the slot holds. Subscribers announce an interval before they read there, and check after a fence
//!    that the *frontier* has not passed it. Publishers raise the frontier, fence, and then scan the announcements: at least one
//!    of the two sees the other. Before each read, a subscriber also says which event it reads, and checks the frontier after a
//!    light barrier. A publisher that finds an expired event announced *revokes* the announcement by a heavy barrier: what is
//!    then said to be read is all that is read. An expired event that is being read, or that is announced and not yet revoked,
//!    becomes a *suspect*.
//!
//! A publisher that may not use its slot diverts. It never waits.
//!
//! Condition 2 is established for many sequences at a time ([`RingShared::clear`]), so that a publication pays one comparison.

use core::ops::Range;
use core::ptr::NonNull;

use super::announcements::{Announcement, Entry};
use super::geometry::MAX_SEQ;
use super::overflow::Place;
use super::shared::{RingShared, Slot, SlotMeta};
use super::slots::Run;
use super::stamp::Stamp;
use crate::sync::{REVOKE_BURST, REVOKE_EVERY, fault, heavy_barrier, named_fence, ord, raise};

impl<T> RingShared<T> {
    /// Makes the calling publisher of `seq` the owner of its slot, if the fast checks suffice, and returns the stamp found there.
    #[inline(always)]
    pub(super) fn own(&self, slot: &Slot<T>, seq: u64) -> Option<Stamp> {
        // Acquire, pairs with `clear.writable`: reads of what expired are over, and suspects are marked.
        let writable = self.limits.writable.load(ord!("own.writable", Acquire));
        // Relaxed, pairs with `careful.raise` through `own.writable`: set before the `writable` that was acquired.
        let careful_until = self.limits.careful_until.load(ord!("own.careful", Relaxed));
        if seq < writable && seq >= careful_until {
            self.in_turn(slot, seq)
        } else {
            None
        }
    }

    /// Returns the slots from that of `claimed.start` on that are open to their publishers when it is their turn. Returns none if
    /// the fast checks do not suffice.
    #[inline]
    pub(super) fn open_slots(&self, claimed: &Range<u64>) -> Run<'_, T> {
        // Acquire, pairs with `clear.writable`: reads of what expired are over, and suspects are marked.
        let writable = self.limits.writable.load(ord!("open.writable", Acquire));
        // Relaxed, pairs with `careful.raise` through `open.writable`: set before the `writable` that was acquired;
        // what is marked later concerns later sequences.
        let careful_until = self.limits.careful_until.load(ord!("open.careful", Relaxed));
        if claimed.start < careful_until {
            return Run::EMPTY;
        }
        let open = claimed.end.min(writable).saturating_sub(claimed.start);
        self.slots_from(claimed.start, open as usize)
    }

    /// Returns the stamp of the slot of `seq`, if the publisher of `seq` is next after that of the stamp.
    #[inline(always)]
    pub(super) fn in_turn(&self, slot: &Slot<T>, seq: u64) -> Option<Stamp> {
        // Acquire, pairs with `publish.stamp` and `publish.void`: the value of the previous owner is complete, and this
        // thread may move it out.
        let stamp = Stamp::from_word(slot.stamp.load(ord!("own.stamp", Acquire)));
        stamp.is_of(self.lap_before(seq)).then_some(stamp)
    }

    /// Does the same as [`RingShared::own`], with all checks. If the event must be diverted, records that and returns `None`.
    #[cold]
    #[inline(never)]
    pub(super) fn own_slow(&self, slot: &Slot<T>, seq: u64) -> Option<Stamp> {
        // Acquire, pairs with `clear.writable`: as `own.writable`; if this thread has cleared, its own scan has
        // acquired it.
        if seq >= self.limits.writable.load(ord!("own.writable_again", Acquire)) {
            self.clear();
        }
        let meta = self.slot_meta(seq);
        // Acquire, pairs with `publish.stamp` and `publish.void`: the value of the previous owner is complete, and this
        // thread may move it out.
        let stamp = Stamp::from_word(slot.stamp.load(ord!("own.stamp_again", Acquire)));
        let in_turn = stamp.is_of(self.lap_before(seq));
        // Relaxed, pairs with `divert.record`: only counts; a stale count is too low, and then the exchange is not
        // tried.
        let diverted = Diverted(meta.diverted.load(ord!("turn.read", Relaxed)));
        // Fault, breaks the rule that a publisher takes its turn only when all before it have given theirs up: two
        // publishers would write into one slot.
        if !in_turn && !fault!("turn.unchecked") {
            let laps = self.geometry.laps_between(stamp, seq);
            if !diverted.accounts_for(laps - 1, self.geometry.lap(seq)) {
                self.record_diverted(meta, seq);
                return None;
            }
        }
        if self.is_read(meta, stamp, seq) {
            self.record_diverted(meta, seq);
            return None;
        }
        if !in_turn
            && meta
                .diverted
                .compare_exchange(
                    diverted.0,
                    0,
                    // Relaxed, pairs with `divert.record`: every earlier publisher of this slot has given up its turn,
                    // and no later one can take its own before our stamp.
                    ord!("turn.take", Relaxed),
                    // Relaxed, pairs with `turn.take`: only compared; the event is then diverted.
                    ord!("turn.take_failed", Relaxed),
                )
                .is_err()
        {
            self.record_diverted(meta, seq);
            return None;
        }
        Some(stamp)
    }

    /// Returns `true` if a subscriber may be reading what the slot of `seq` holds under `stamp`.
    fn is_read(&self, meta: &SlotMeta, stamp: Stamp, seq: u64) -> bool {
        // Fault, breaks the rule that announced storage is not written: a slot would be written while it is read.
        if fault!("suspect.ignored") {
            return false;
        }
        let held = seq - stamp.distance_to(seq).min(seq);
        if stamp.is_void() || held < self.first_seq() {
            return false;
        }
        // Relaxed, pairs with `suspect.mark` through `own.writable`: marked before the `writable` that was acquired.
        if meta.suspect.load(ord!("suspect.read", Relaxed)) < held {
            return false;
        }
        // Acquire, pairs with `suspect.reader`: the entry is complete.
        let reader = NonNull::new(meta.suspect_reader.load(ord!("suspect.reader_read", Acquire)));
        // SAFETY: entries live as long as the ring.
        let reader = reader.map(|reader| unsafe { reader.as_ref() });
        // The subscriber that was reading it probably still is. No fence is needed: if it is not, the event is diverted in vain.
        let still_reads = reader
            .and_then(|entry| self.announcements.announcement(entry))
            .is_some_and(|announced| Self::may_read(&announced, self.revoked_below(), held));
        if still_reads {
            return true;
        }
        let mut read = false;
        self.reads_below(held + 1, |reads, entry| {
            if reads.contains(&held) {
                read = true;
                Self::suspect(meta, held, entry);
            }
        });
        read
    }

    /// Marks `seq`, which uses the slot of `meta`, as possibly being read by the subscriber of `reader`.
    fn suspect(meta: &SlotMeta, seq: u64, reader: &Entry) {
        // Release, pairs with `suspect.reader_read`: the entry is complete.
        meta.suspect_reader
            .store(core::ptr::from_ref(reader).cast_mut(), ord!("suspect.reader", Release));
        // Relaxed, pairs with `suspect.read` through `clear.writable`: becomes visible with `clear.writable`.
        raise(&meta.suspect, seq, ord!("suspect.mark", Relaxed));
    }

    fn record_diverted(&self, meta: &SlotMeta, seq: u64) {
        // Fault, breaks the rule that a publisher that diverts records it: the slot would never be used again.
        if fault!("divert.unrecorded") {
            return;
        }
        let lap = self.geometry.lap(seq);
        // Relaxed, pairs with `divert.record`: only counts; exchanged against.
        let mut word = meta.diverted.load(ord!("divert.read", Relaxed));
        while let Err(current) = meta.diverted.compare_exchange_weak(
            word,
            Diverted(word).with(lap).0,
            // Relaxed, pairs with `turn.read` and `turn.take`: only counts: the thread that records touches the slot no
            // more, and the one that takes the turn has acquired the stamp.
            ord!("divert.record", Relaxed),
            // Relaxed, pairs with `divert.record`: only compared again.
            ord!("divert.record_failed", Relaxed),
        ) {
            word = current;
        }
    }

    /// Makes room: raises the frontier past everything that has expired, marks what is still being read, and opens the slots.
    ///
    /// Any number of publishers may do this concurrently.
    fn clear(&self) {
        let slots = self.geometry.slots();
        let expired = self.tail() - self.geometry.capacity();
        // Acquire, pairs with `clear.writable`: the threads that opened the slots so far have marked the suspects
        // below.
        let from = self.limits.writable.load(ord!("clear.from", Acquire)) - slots;
        if expired <= from {
            return;
        }
        self.raise_frontier(expired);
        self.scan_reads(expired, true, |reads, reader| {
            for seq in from.max(reads.start)..expired.min(reads.end) {
                Self::suspect(self.slot_meta(seq), seq, reader);
                raise(
                    &self.limits.careful_until,
                    seq + slots + 1,
                    // Relaxed, pairs with `own.careful` through `clear.writable`: becomes visible with
                    // `clear.writable`.
                    ord!("careful.raise", Relaxed),
                );
            }
        });
        let writable = (expired + slots).min(MAX_SEQ + 1);
        // Release, pairs with `own.writable`, `own.writable_again`, `open.writable` and `clear.from`: a
        // read-modify-write, so that it also passes on what earlier clearings released.
        raise(&self.limits.writable, writable, ord!("clear.writable", Release));
        // What is missed now is found after the next clearing.
        if !self.overflow.is_empty() {
            self.wait_queue.ask_purge();
        }
    }

    /// Revokes what is announced below `expired`, where the frontier is, if it is time for that.
    #[cold]
    #[inline(never)]
    fn revoke_below(&self, expired: u64) {
        let until = &self.limits.rare.revocations_until;
        // Relaxed, pairs with `revoke.spend`: only bounds the cost.
        let next = until.load(ord!("revoke.spent", Relaxed)).max(expired) + REVOKE_EVERY;
        if next > expired + REVOKE_BURST * REVOKE_EVERY {
            return;
        }
        // Relaxed, pairs with `revoke.spent`: only bounds the cost.
        raise(until, next, ord!("revoke.spend", Relaxed));
        // SeqCst heavy barrier, pairs with `receive.barrier` and `begin.barrier`: a receive that begins sees the
        // frontier, or this thread sees that it has begun.
        if heavy_barrier!("revoke.barrier", self.asymmetric) {
            // Release, pairs with `revoked.see`: a thread that sees it sees what had begun when the barrier was executed.
            raise(&self.limits.rare.revoked_below, expired, ord!("revoke", Release));
        }
    }

    fn revoked_below(&self) -> u64 {
        // Acquire, pairs with `revoke`: this thread sees what had begun when the barrier was executed.
        self.limits.rare.revoked_below.load(ord!("revoked.see", Acquire))
    }

    /// Returns the part of an announced interval that lies below `expired` and is not revoked.
    fn unrevoked(announced: &Announcement<'_>, revoked: u64, expired: u64) -> Range<u64> {
        announced.interval.start.max(revoked)..announced.interval.end.min(expired)
    }

    /// Returns whether the subscriber may be reading `seq`, which lies below the frontier.
    fn may_read(announced: &Announcement<'_>, revoked: u64, seq: u64) -> bool {
        // What is not revoked may be read at any time.
        seq >= revoked && announced.interval.contains(&seq) || announced.reads().contains(&seq)
    }

    fn raise_frontier(&self, expired: u64) {
        // Release, pairs with `announce.check` and `begin.check`: a subscriber that finds the frontier beyond a sequence
        // finds the tail beyond its expiry.
        raise(&self.limits.frontier, expired, ord!("frontier.raise", Release));
        // Relaxed, pairs with `receive.direct`: a subscriber that sees it looks at the frontier.
        raise(&self.limits.direct_from, expired, ord!("direct.raise", Relaxed));
        // SeqCst fence, pairs with `announce.fence` and `list.fence`: the announcing subscriber sees the frontier, or the
        // scan sees the announcement.
        named_fence!("frontier.fence");
    }

    /// Raises the frontier to `expired`, then calls `found` with everything below it that a subscriber may be reading, and maybe
    /// with more.
    fn reads_below(&self, expired: u64, found: impl FnMut(Range<u64>, &Entry)) {
        self.raise_frontier(expired);
        self.scan_reads(expired, false, found);
    }

    /// Calls `found` with everything below `expired`, where the frontier is, that a subscriber may be reading, and maybe with more.
    /// May `revoke` what is announced there.
    ///
    /// What is not among that below `expired` is either no longer read, or its subscriber will refuse to read it.
    fn scan_reads(&self, expired: u64, mut revoke: bool, mut found: impl FnMut(Range<u64>, &Entry)) {
        let mut revoked = self.revoked_below();
        self.announcements.announcements(|announced| {
            if announced.interval.start >= expired {
                return None;
            }
            if revoke && !Self::unrevoked(&announced, revoked, expired).is_empty() {
                // The entries so far announce nothing that this revokes.
                revoke = false;
                self.revoke_below(expired);
                revoked = self.revoked_below();
            }
            let unrevoked = Self::unrevoked(&announced, revoked, expired);
            if !unrevoked.is_empty() {
                found(unrevoked, announced.entry);
            }
            // Fault, breaks the rule that what is being read is not revoked: a slot would be written while it is read.
            if announced.interval.start >= revoked || fault!("revoke.unchecked") {
                return None;
            }
            let reads = announced.reads();
            let rests = announced.interval.end <= revoked && reads.is_empty();
            found(reads, announced.entry);
            rests.then_some(revoked)
        });
    }

    /// Frees the overflow cells that have expired and are not being read. Done once for each move of the frontier.
    #[cold]
    #[inline(never)]
    pub(super) fn purge(&self) {
        // Relaxed, pairs with `frontier.raise`: only says how far to go; the scan below makes it safe.
        let frontier = self.limits.frontier.load(ord!("purge.frontier", Relaxed));
        // Relaxed, pairs with `purge.mark`: saves a scan; a stale value costs one.
        if self.limits.rare.purged.load(ord!("purge.done", Relaxed)) >= frontier {
            return;
        }
        let Some(expired) = self.overflow.try_purge(self.expired_before(frontier)) else {
            // The next publisher tries again.
            self.wait_queue.ask_purge();
            return;
        };
        // Relaxed, pairs with `purge.done`: saves a scan; a stale value costs one.
        raise(&self.limits.rare.purged, frontier, ord!("purge.mark", Relaxed));
        drop(expired);
    }

    /// Does the same as [`RingShared::purge`], but waits for a thread that is at it, because a release must leave no value.
    pub(super) fn purge_for_certain(&self) {
        // Relaxed, pairs with `frontier.raise`: this thread has opened, or has seen opened, the slots of all its voids.
        let frontier = self.limits.frontier.load(ord!("release.frontier", Relaxed));
        drop(self.overflow.purge(self.expired_before(frontier)));
    }

    /// Returns a function that returns the place of a sequence if its cell has expired (is below `frontier`) and is not being read,
    /// and then marks it as freed.
    fn expired_before<'a>(&'a self, frontier: u64) -> impl Fn(u64) -> Option<Place<'a>> + use<'a, T> {
        let mut read = Vec::new();
        self.reads_below(frontier, |reads, _| read.push(reads));
        let read = Ranges::new(read);
        move |seq| {
            (seq < frontier && !read.contains(seq)).then(|| {
                // Relaxed, pairs with `freed.slot` through `overflow.unlink`: marked before it can no longer be found.
                raise(&self.slot_meta(seq).freed, seq, ord!("freed.mark", Relaxed));
                self.place(seq)
            })
        }
    }

    /// Returns the sequence that used the slot of `seq` before. Below the first lap it wraps, as the stamps there do.
    #[inline(always)]
    fn lap_before(&self, seq: u64) -> u64 {
        seq.wrapping_sub(self.geometry.slots())
    }
}

/// A set of sequences.
struct Ranges(Vec<Range<u64>>);

impl Ranges {
    fn new(mut ranges: Vec<Range<u64>>) -> Self {
        ranges.sort_unstable_by_key(|range| range.start);
        ranges.dedup_by(|later, earlier| {
            let joined = later.start <= earlier.end;
            if joined {
                earlier.end = earlier.end.max(later.end);
            }
            joined
        });
        Self(ranges)
    }

    fn contains(&self, seq: u64) -> bool {
        let after = self.0.partition_point(|range| range.start <= seq);
        after != 0 && self.0[after - 1].contains(&seq)
    }
}

/// The sequences of a slot that were diverted since the slot was last taken by exchange: their number, and the lap of the latest.
///
/// The publisher of s may take its turn in a slot stamped q if all sequences between were diverted: as many as there are between,
/// and none of them after s. A publisher that has taken its turn but not yet stamped is never counted, so the count then falls
/// short.
#[derive(Clone, Copy)]
struct Diverted(u64);

const LAP_BITS: u32 = 32;

impl Diverted {
    fn count(self) -> u64 {
        self.0 >> LAP_BITS
    }

    fn latest_lap(self) -> u32 {
        self.0 as u32
    }

    /// Compares laps by their wrapping distance.
    fn is_before(earlier: u32, later: u32) -> bool {
        earlier.wrapping_sub(later).cast_signed() < 0
    }

    fn accounts_for(self, need: u64, lap: u64) -> bool {
        self.count() == need && Self::is_before(self.latest_lap(), lap as u32)
    }

    /// Counts one more, in `lap`. A full count stays full; such a slot diverts from then on.
    fn with(self, lap: u64) -> Self {
        let lap = lap as u32;
        let latest = if self.count() != 0 && Self::is_before(lap, self.latest_lap()) {
            self.latest_lap()
        } else {
            lap
        };
        let count = (self.count() + 1).min(u64::from(u32::MAX));
        Self(count << LAP_BITS | u64::from(latest))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Builder, RecvTimeoutError};
    use super::{Diverted, Ranges};

    /// What a ring does where the system has no asymmetric barrier.
    #[test]
    fn receives_that_fence_see_what_was_published() {
        const EVENTS: u64 = if cfg!(miri) { 100 } else { 20_000 };
        for capacity in [1, 16, 1024] {
            let mut builder = Builder::new(capacity);
            builder.asymmetric = false;
            let (publisher, mut subscriber) = builder.channel::<[u64; 4]>().unwrap();
            let reader = std::thread::spawn(move || {
                loop {
                    match subscriber.recv_timeout(Duration::from_secs(30)) {
                        Ok([seq, rest @ ..]) => assert_eq!((seq + 1, rest), (subscriber.position(), [seq; 3])),
                        Err(RecvTimeoutError::Lagged(_)) => {}
                        Err(RecvTimeoutError::Closed) => return subscriber.stats(),
                        Err(RecvTimeoutError::Timeout) => panic!("a lost wake-up"),
                    }
                }
            });
            (1..=EVENTS).for_each(|seq| drop_seq(publisher.publish([seq; 4])));
            drop(publisher);
            let stats = reader.join().unwrap();
            assert_eq!(stats.received + stats.skipped, EVENTS, "capacity {capacity}");
        }
    }

    fn drop_seq(seq: u64) {
        assert_ne!(seq, 0);
    }

    #[test]
    fn ranges_contain_what_any_of_them_contains() {
        let ranges = Ranges::new(vec![7..9, 1..3, 2..5, 0..0, 12..13]);
        let contained: Vec<u64> = (0..15).filter(|seq| ranges.contains(*seq)).collect();
        assert_eq!(contained, [1, 2, 3, 4, 7, 8, 12]);
        assert!(!Ranges::new(Vec::new()).contains(0));
    }

    #[test]
    fn all_diverted_between_means_as_many_and_none_later() {
        let two = Diverted(0).with(7).with(8);
        assert!(two.accounts_for(2, 9));
        assert!(!two.accounts_for(3, 10), "one is missing");
        let out_of_order = Diverted(0).with(9).with(7);
        assert!(!out_of_order.accounts_for(2, 9), "the latest is not before lap 9");
        assert!(!out_of_order.accounts_for(2, 8));
        assert!(out_of_order.accounts_for(2, 10));
    }

    #[test]
    fn laps_wrap_and_a_full_count_stays_full() {
        let wrapped = Diverted(0).with(u64::from(u32::MAX)).with(1 << 32);
        assert!(wrapped.accounts_for(2, (1 << 32) + 1));
        let full = Diverted(u64::MAX << 32).with(3);
        assert_eq!(full.count(), u64::from(u32::MAX));
    }
}
