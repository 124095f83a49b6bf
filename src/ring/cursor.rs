//! Finds a subscriber's next event without blocking publishers, and counts exactly what was lost.

use core::fmt;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ptr::NonNull;

use super::announcements::{Entry, Reach, Reads, Seat};
use super::builder::{OnLag, Start};
use super::error::{Lagged, TryRecvError};
use super::shared::{RingShared, Slot, Value};
use super::slots::{Run, Slots};
use super::stamp::{Distance, Stamp};
use super::stats::SubscriberStats;
use crate::sync::{Arc, fault, light_barrier, ord};

/// The read position of one subscriber.
pub(super) struct ReadCursor<T> {
    shared: Arc<RingShared<T>>,
    /// Given back when the cursor is dropped.
    seat: ManuallyDrop<Seat>,
    /// The sequence of the next receive.
    position: u64,
    /// Sequences below this one are passed over silently: set by a start beyond the end of the ring.
    suppressed_below: u64,
    /// An event expires this many sequences later.
    capacity: u64,
    /// The same.
    expires_after: Distance,
    /// From the position up to here, the slot of a sequence is found by adding it to `slot_base`. Zero unless barriers are
    /// asymmetric: a direct receive does not fence.
    direct_until: u64,
    slot_base: *const Slot<T>,
    /// Like `slot_base`, for the slot of the sequence with which that one expires.
    expiry_base: *const Slot<T>,
    /// The end of the announced interval, which covers every sequence from `position` on; zero when nothing is announced. A publisher
    /// may have revoked it.
    announced_until: u64,
    /// How far the next announcement reaches.
    reach: Reach,
    /// What the next receive reads.
    reads: Reads,
    /// The first event of the current batch, which was found not to be lost.
    batch_first: u64,
    /// Later events of the current batch may have been lost before it began if they are below this sequence.
    batch_doubtful_below: u64,
    start: u64,
    skipped: u64,
    void: u64,
    lag_events: u64,
    backlog_high_water: u64,
    /// If this cursor is the last to be dropped, it drops the retained values, as `broadcast` requires.
    pub(super) releases: bool,
}

/// An event that was found; valid until the cursor is asked for the next one.
pub(super) struct Found<T> {
    pub(super) seq: u64,
    value: NonNull<Value<T>>,
}

impl<T> Clone for Found<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Found<T> {}

impl<T> Found<T> {
    /// Returns the storage of the value, which is protected because the cursor says that it reads it.
    ///
    /// # Safety
    ///
    /// The cursor that found it must still exist and must not have been asked for another event, except within a batch.
    #[inline(always)]
    pub(super) unsafe fn storage<'a>(self) -> &'a Value<T> {
        // SAFETY: the cursor still says that it reads it, and then the storage is neither written nor freed.
        unsafe { self.value.as_ref() }
    }

    /// Runs `read` on the value.
    ///
    /// # Safety
    ///
    /// The same as for [`Found::storage`].
    #[inline(always)]
    pub(super) unsafe fn with<R>(self, read: impl FnOnce(&T) -> R) -> R {
        // SAFETY: passed on to the caller.
        let storage = unsafe { self.storage() };
        storage.with(|value| {
            // SAFETY: storage that is being read is not written.
            let value: &MaybeUninit<T> = unsafe { &*value };
            // SAFETY: `locate` found the stamp, or the cell, of an event with a value.
            read(unsafe { value.assume_init_ref() })
        })
    }
}

/// The known state of a sequence. The storage of a value may be used only while the cursor says that it reads it.
enum Located<T> {
    Value(NonNull<Value<T>>),
    Void,
    Lost,
    Unpublished,
}

impl<T> ReadCursor<T> {
    pub(super) fn new(shared: Arc<RingShared<T>>, start: Start) -> Self {
        // Must come first: what is claimed to release the ring is then claimed before this, and so lies below the position.
        shared.counts.enter();
        let tail = shared.tail();
        let (position, suppressed_below) = match start {
            Start::Latest => (tail, 0),
            Start::Oldest => (shared.oldest(), 0),
            Start::After(seq) => {
                let next = seq.saturating_add(1).max(shared.first_seq());
                (next.min(tail), next)
            }
        };
        let seat = shared.announcements.join(position.max(suppressed_below));
        Self::at(shared, seat, position, suppressed_below)
    }

    fn at(shared: Arc<RingShared<T>>, seat: Seat, position: u64, suppressed_below: u64) -> Self {
        let capacity = shared.geometry.capacity();
        Self {
            shared,
            seat: ManuallyDrop::new(seat),
            position,
            suppressed_below,
            capacity,
            expires_after: Distance::new(capacity),
            direct_until: 0,
            slot_base: core::ptr::null(),
            expiry_base: core::ptr::null(),
            announced_until: 0,
            reach: Reach::Short,
            reads: Reads::One,
            batch_first: 0,
            batch_doubtful_below: 0,
            start: position.max(suppressed_below),
            skipped: 0,
            void: 0,
            lag_events: 0,
            backlog_high_water: 0,
            releases: false,
        }
    }

    /// Creates another cursor at the same position, with its own statistics.
    pub(super) fn fork(&self) -> Self {
        self.shared.counts.enter();
        let seat = self.shared.announcements.join(self.position());
        Self::at(self.shared.clone(), seat, self.position, self.suppressed_below)
    }

    pub(super) fn shared(&self) -> &Arc<RingShared<T>> {
        &self.shared
    }

    /// Returns the number of this cursor's seat.
    pub(super) fn number(&self) -> usize {
        self.seat.number()
    }

    #[inline(always)]
    pub(super) fn position(&self) -> u64 {
        self.position.max(self.suppressed_below)
    }

    pub(super) fn backlog(&self) -> u64 {
        self.shared.tail().saturating_sub(self.position())
    }

    pub(super) fn stats(&self) -> SubscriberStats {
        let backlog = self.backlog();
        SubscriberStats {
            received: self.position() - self.start - self.skipped - self.void,
            skipped: self.skipped,
            void: self.void,
            lag_events: self.lag_events,
            backlog,
            backlog_high_water: self.backlog_high_water.max(backlog),
        }
    }

    /// Finds the next event without consuming it; [`ReadCursor::advance`] consumes it.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Result<Found<T>, TryRecvError> {
        let seq = self.position;
        if seq < self.direct_until {
            // SAFETY: `prepare_direct` found both slots, and those of the sequences up to `direct_until`, within the ring.
            let slot = unsafe { &*Self::direct(self.slot_base, seq) };
            // SAFETY: as above.
            let expiry = unsafe { &*Self::direct(self.expiry_base, seq) };
            // Acquire, pairs with `publish.stamp`: the value is complete.
            if slot.stamp.load(ord!("locate.stamp", Acquire)) == Stamp::value(seq).word()
                && !Self::is_stamped(expiry, Stamp::value(seq).later(self.expires_after))
            {
                self.seat.begin(seq, Reads::One);
                // SeqCst light barrier, pairs with `revoke.barrier`: this thread sees the frontier, or the publisher
                // that revokes sees that this thread reads.
                light_barrier!("receive.barrier", true);
                // Relaxed, pairs with `direct.raise` and `divert.direct`: what it says is acquired by `next_slow`.
                if seq >= self.shared.limits.direct_from.load(ord!("receive.direct", Relaxed)) {
                    // The slot still holds the event: a publisher raises the frontier before it writes there.
                    return Ok(Found {
                        seq,
                        value: NonNull::from(&slot.value),
                    });
                }
            }
        }
        self.next_slow()
    }

    #[inline(always)]
    fn direct(base: *const Slot<T>, seq: u64) -> *const Slot<T> {
        base.wrapping_byte_add((seq as usize).wrapping_mul(Slots::<T>::STRIDE))
    }

    /// Prepares direct access to the sequences from the position on, as far as they are announced and neither their slots nor
    /// those of the sequences with which they expire wrap around.
    fn prepare_direct(&mut self) {
        let seq = self.position;
        if !self.shared.asymmetric || seq < self.direct_until {
            return;
        }
        let slot = self.shared.slots_from(seq, usize::MAX);
        let expiry = self.shared.slots_from(seq + self.capacity, usize::MAX);
        let base = |first: *const Slot<T>| first.wrapping_byte_sub((seq as usize).wrapping_mul(Slots::<T>::STRIDE));
        self.slot_base = base(slot.as_ptr());
        self.expiry_base = base(expiry.as_ptr());
        let direct = slot.len().min(expiry.len()) as u64;
        self.direct_until = self.announced_until.min(seq + direct);
    }

    /// Finds the next event like [`ReadCursor::next`], for a batch of up to `wanted`. Announces again if the current announcement
    /// covers fewer, and there are more.
    pub(super) fn next_for_batch(&mut self, wanted: u64) -> Result<Found<T>, TryRecvError> {
        let covers = wanted.min(self.shared.geometry.announced_by_batch());
        let ends = self.announced_until;
        if ends < self.position + covers && (ends <= self.position || self.find_published(ends).is_some()) {
            self.announced_until = 0;
            self.direct_until = 0;
        }
        self.seat.show_position_in_batch(self.position);
        self.reach = Reach::Long;
        self.reads = Reads::Many;
        let first = self.next_slow();
        self.reach = Reach::Short;
        self.reads = Reads::One;
        let first = first?;
        self.batch_first = first.seq;
        // What is published lies below `writable`. If not even the first event can have expired by then, the tail need not be read.
        // Relaxed, pairs with `clear.writable`: raised before what lies below it was published.
        let writable = self.shared.limits.writable.load(ord!("batch.writable", Relaxed));
        self.batch_doubtful_below = if self.batch_first + self.capacity < writable {
            self.shared.tail().saturating_sub(self.capacity)
        } else {
            0
        };
        Ok(first)
    }

    /// Finds the next event of a batch whose first was found: inside the announced interval, and not lost when the batch began.
    pub(super) fn next_in_batch(&mut self) -> Option<Found<T>> {
        while self.position < self.announced_until {
            let seq = self.position;
            if seq < self.batch_doubtful_below && seq != self.batch_first && self.is_lost(seq) {
                return None;
            }
            match self.find_published(seq)? {
                Located::Value(value) => return Some(Found { seq, value }),
                Located::Void => self.pass_void(),
                Located::Lost | Located::Unpublished => return None,
            }
        }
        None
    }

    /// Returns `true` if the next event is the first of the current batch, which is known to be there.
    pub(super) fn is_at_first_of_batch(&self) -> bool {
        self.position == self.batch_first
    }

    /// Returns the slots of the next `most` events of a batch, or fewer: up to where the slots or the announcement end. Returns
    /// none if an event may be lost and each must be checked.
    #[inline]
    pub(super) fn slots_in_batch(&self, most: usize) -> Run<'_, T> {
        let first = self.position;
        if first < self.batch_doubtful_below {
            return Run::EMPTY;
        }
        let announced = self.announced_until.saturating_sub(first);
        self.shared.slots_from(first, announced.min(most as u64) as usize)
    }

    /// Returns `true` if `seq` is published in `slot`, one of [`ReadCursor::slots_in_batch`].
    #[inline(always)]
    pub(super) fn holds(slot: &Slot<T>, seq: u64) -> bool {
        // Acquire, pairs with `publish.stamp`: the value is complete.
        slot.stamp.load(ord!("batch.stamp", Acquire)) == Stamp::value(seq).word()
    }

    /// Moves past the event that [`ReadCursor::next`] found, which may still be used until [`ReadCursor::end`].
    #[inline(always)]
    pub(super) fn advance(&mut self, found: Found<T>) {
        self.position = found.seq + 1;
    }

    /// Ends the use of the event that [`ReadCursor::next`] found.
    #[inline(always)]
    pub(super) fn end(&self) {
        self.seat.entry().end(self.position);
    }

    /// Returns the entry where the end of a reference is noted.
    pub(super) fn entry(&self) -> &Entry {
        self.seat.entry()
    }

    /// Moves to `position` within a batch, like [`ReadCursor::advance`]. The batch shows the position at its end.
    #[inline(always)]
    pub(super) fn advance_in_batch(&mut self, position: u64) {
        debug_assert!(position >= self.position, "nothing is received twice");
        self.position = position;
    }

    /// Shows the position to statistics when a batch ends. Its events may still be read.
    #[inline(always)]
    pub(super) fn show_position_in_batch(&self) {
        self.seat.show_position_in_batch(self.position);
    }

    /// Returns the sequence that a wait is for; `suppressed_below` does not affect it.
    pub(super) fn cursor_position(&self) -> u64 {
        self.position
    }

    /// Returns `true` if a publisher has claimed the next event, so that its publication is in progress or done.
    pub(super) fn is_claimed(&self) -> bool {
        self.position < self.shared.tail()
    }

    #[cold]
    #[inline(never)]
    fn next_slow(&mut self) -> Result<Found<T>, TryRecvError> {
        loop {
            let seq = self.position;
            if seq < self.suppressed_below {
                // Events below `suppressed_below` count as never sent. If the tail has not reached it, wait at the tail.
                self.position = self.suppressed_below.min(self.shared.tail());
                if self.position != seq {
                    continue;
                }
            }
            match if seq < self.suppressed_below {
                Located::Unpublished
            } else {
                self.locate(seq)
            } {
                Located::Value(value) => {
                    self.prepare_direct();
                    return Ok(Found { seq, value });
                }
                Located::Void => self.pass_void(),
                Located::Lost => return Err(TryRecvError::Lagged(self.lag())),
                Located::Unpublished => {
                    // The order matters: what was published before the close is seen after it.
                    let closed = self.shared.is_closed();
                    if closed && seq < self.shared.tail() {
                        continue;
                    }
                    self.seat.end(self.position());
                    if self.announced_until <= seq {
                        self.withdraw();
                    }
                    return Err(if closed {
                        TryRecvError::Closed
                    } else {
                        TryRecvError::Empty
                    });
                }
            }
        }
    }

    /// Determines the state of `seq`. If there is something to read, announces that, and says that it is being read.
    fn locate(&mut self, seq: u64) -> Located<T> {
        let mut begun = false;
        loop {
            match self.find_published(seq) {
                None if self.is_freed(seq) => return Located::Lost,
                None if self.is_published(seq + self.capacity) => return Located::Lost,
                None => return Located::Unpublished,
                Some(Located::Lost) => return Located::Lost,
                // What was found without an announcement may be overwritten by now: look again under one.
                Some(_) if seq >= self.announced_until => {
                    if !self.announce() {
                        return Located::Lost;
                    }
                    begun = true;
                }
                Some(_) if !begun && !self.begin(seq) => return Located::Lost,
                Some(_) if self.is_lost(seq) => return Located::Lost,
                Some(located) => return located,
            }
        }
    }

    fn withdraw(&mut self) {
        if self.announced_until != 0 {
            self.announced_until = 0;
            self.direct_until = 0;
            self.seat.withdraw();
        }
    }

    /// Announces the interval that starts at the position, and says that the position is being read. Returns `false` if the
    /// frontier has already passed it.
    fn announce(&mut self) -> bool {
        let seq = self.position;
        let backlog = self.backlog();
        self.backlog_high_water = self.backlog_high_water.max(backlog);
        self.seat.announce(seq, self.reach, self.reads);
        // Acquire, pairs with `frontier.raise`: a subscriber whose announcement is refused finds the tail beyond the
        // expiry of `seq`.
        let refused = self.shared.limits.frontier.load(ord!("announce.check", Acquire)) > seq;
        // Fault, breaks the rule that a refused announcement protects nothing: the slot may be written while it is
        // read.
        if refused && !fault!("announce.unchecked") {
            self.announced_until = 0;
            self.direct_until = 0;
            self.seat.withdraw();
            return false;
        }
        self.direct_until = 0;
        self.announced_until = seq
            + match self.reach {
                Reach::Short => self.shared.geometry.announced(),
                Reach::Long => self.shared.geometry.announced_by_batch(),
            };
        true
    }

    /// Says that `seq`, which is announced, is being read. Returns `false` if the announcement was revoked for it.
    fn begin(&self, seq: u64) -> bool {
        self.seat.begin(seq, self.reads);
        // SeqCst light barrier, pairs with `revoke.barrier`: this thread sees the frontier, or the publisher that
        // revokes sees that this thread reads.
        light_barrier!("begin.barrier", self.shared.asymmetric);
        // Acquire, pairs with `frontier.raise`: a subscriber whose announcement is revoked finds the tail beyond the
        // expiry of `seq`.
        let revoked = self.shared.limits.frontier.load(ord!("begin.check", Acquire)) > seq;
        // Fault, breaks the rule that a revoked announcement protects nothing: the slot may be written while it is read.
        !revoked || fault!("begin.unchecked")
    }

    /// Finds `seq` if it is published. Returns `Lost` if its slot holds a later sequence.
    fn find_published(&self, seq: u64) -> Option<Located<T>> {
        let slot = self.shared.slot(seq);
        // Acquire, pairs with `publish.stamp` and `publish.void`: the value is complete.
        let stamp = Stamp::from_word(slot.stamp.load(ord!("find.stamp", Acquire)));
        if stamp == Stamp::value(seq) {
            return Some(Located::Value(NonNull::from(&slot.value)));
        }
        if stamp == Stamp::void(seq) {
            return Some(Located::Void);
        }
        if stamp.reaches(seq) {
            return Some(Located::Lost);
        }
        // Relaxed, pairs with `divert.mark`: marked before the push, so a thread that must see the cell sees the mark.
        if self.shared.limits.diverted_below.load(ord!("find.diverted", Relaxed)) <= seq {
            return None;
        }
        Some(
            self.shared
                .overflow
                .find(self.shared.place(seq))?
                .map_or(Located::Void, Located::Value),
        )
    }

    /// Returns `true` if a published `seq` is lost because `seq + capacity` is published. If that one is only claimed, the result
    /// may be either.
    fn is_lost(&self, seq: u64) -> bool {
        let expires_with = seq + self.capacity;
        if Self::is_stamped(self.shared.slot(expires_with), Stamp::value(expires_with)) {
            return true;
        }
        // Relaxed, pairs with `divert.mark`: marked before the push, so a thread that must see the cell sees the mark.
        let diverted_below = self.shared.limits.diverted_below.load(ord!("lost.diverted", Relaxed));
        expires_with < diverted_below && self.shared.tail() > expires_with
    }

    /// Returns `true` if the sequence that gets the stamp `wanted`, or a later one, is published in `slot`, its slot.
    #[inline(always)]
    fn is_stamped(slot: &Slot<T>, wanted: Stamp) -> bool {
        // Acquire, pairs with `publish.stamp`: a subscriber that reports a loss finds the tail beyond that sequence.
        let stamp = Stamp::from_word(slot.stamp.load(ord!("lost.stamp", Acquire)));
        // Fault, breaks the rule that a lost event is not delivered: an expired event would be delivered.
        stamp.reaches_stamp(wanted) && !fault!("lost.unchecked")
    }

    /// Returns `true` if `seq` was published, in its slot or elsewhere, whether or not it is still there.
    fn is_published(&self, seq: u64) -> bool {
        self.find_published(seq).is_some() || self.is_freed(seq)
    }

    /// Returns `true` if `seq` (or a later sequence of its slot) was published in an overflow cell that has been freed.
    fn is_freed(&self, seq: u64) -> bool {
        // Relaxed, pairs with `divert.mark` through `overflow.unlink`: marked before the cell was freed, and the caller has not
        // found it.
        // Acquire, pairs with `divert.lose`: a subscriber that finds that an event never had a cell finds the tail
        // beyond the event.
        self.shared.limits.diverted_below.load(ord!("freed.diverted", Relaxed)) > seq
            && self.shared.slot_meta(seq).freed.load(ord!("freed.slot", Acquire)) >= seq
    }

    fn pass_void(&mut self) {
        self.void += 1;
        self.position += 1;
    }

    /// Moves past the lost events.
    fn lag(&mut self) -> Lagged {
        let first_missed = self.position;
        let tail = self.shared.tail();
        self.backlog_high_water = self.backlog_high_water.max(tail - first_missed);
        // An event that was lost at once (`RingShared::divert`) may lie above the oldest.
        let oldest = tail.saturating_sub(self.capacity).max(first_missed + 1);
        let resume_at = match self.shared.on_lag {
            OnLag::Oldest => oldest,
            OnLag::Headroom(headroom) => oldest.saturating_add(headroom).min(tail),
            OnLag::Latest => tail,
        };
        debug_assert!(resume_at > first_missed, "what is lost was claimed");
        self.position = resume_at;
        self.end();
        self.withdraw();
        let skipped = resume_at - first_missed;
        self.skipped += skipped;
        self.lag_events += 1;
        Lagged {
            skipped,
            first_missed,
            resume_at,
        }
    }
}

// SAFETY: the pointers lead into the slots of `shared`, which the cursor keeps alive, and are used like references to them.
unsafe impl<T: Send + Sync> Send for ReadCursor<T> {}
// SAFETY: as above; `&ReadCursor` reads slots only through atomics.
unsafe impl<T: Send + Sync> Sync for ReadCursor<T> {}

impl<T> Drop for ReadCursor<T> {
    fn drop(&mut self) {
        // SAFETY: taken once, here, and the cursor is not used afterwards.
        let seat = unsafe { ManuallyDrop::take(&mut self.seat) };
        self.shared.announcements.leave(seat);
        self.shared.subscriber_gone(self.releases);
    }
}

impl<T> fmt::Debug for ReadCursor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadCursor")
            .field("position", &self.position())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
