//! Receives several events by reference at once.

use core::fmt;

use super::cursor::{Found, ReadCursor};
use super::shared::Value;
use super::slots::Run;
use super::subscriber::Subscriber;

/// An iterator over a run of events, by reference. Created by the batch receives, such as [`Subscriber::recv_batch`].
///
/// Only events that the iterator yields count as received: if it is dropped early, the next receive returns the rest. The events
/// stay readable until the subscriber is used again, even after the batch is dropped.
///
/// Events that are published while the batch is read may extend it, up to its limit. The batch passes over sequences that [carry
/// no event](super::RingStats::void).
///
/// The methods of [`Iterator`] that consume the whole batch, such as `for_each`, `fold`, `sum` or `max`, are the fastest: they check
/// each event once, and count what was received at the end.
///
/// ```
/// let (publisher, mut subscriber) = doorbell::ring::channel(8);
/// publisher.publish_batch(["a", "b", "c"]);
/// let mut batch = subscriber.try_recv_batch(8).unwrap();
/// assert_eq!(batch.next(), Some(&"a"));
/// drop(batch);
/// assert_eq!(subscriber.try_recv(), Ok("b"));
/// ```
pub struct Batch<'a, T: Send + Sync + 'static> {
    subscriber: &'a mut Subscriber<T>,
    /// The slots of the next events, all published: these are yielded without further checks.
    run: Run<'a, T>,
    /// The sequence of the next event of the run.
    seq: u64,
    /// How many events may be yielded after the run.
    left: usize,
}

// SAFETY: a batch is a `&mut Subscriber` and slots of its ring, which are shared between threads as the ring itself is.
unsafe impl<T: Send + Sync + 'static> Send for Batch<'_, T> {}
// SAFETY: as above; `&Batch` gives access to nothing.
unsafe impl<T: Send + Sync + 'static> Sync for Batch<'_, T> {}

impl<'a, T: Send + Sync + 'static> Batch<'a, T> {
    /// Creates a batch of at most `most` events that starts with the one that the cursor has just found for it.
    #[inline]
    pub(super) fn new(subscriber: &'a mut Subscriber<T>, most: usize) -> Self {
        Self {
            seq: 0,
            subscriber,
            run: Run::EMPTY,
            left: most,
        }
    }

    /// Returns the next event with its sequence.
    ///
    /// ```
    /// let (publisher, mut subscriber) = doorbell::ring::channel(8);
    /// publisher.publish("a");
    /// let mut batch = subscriber.try_recv_batch(8).unwrap();
    /// assert_eq!(batch.next_seq(), Some((1, &"a")));
    /// assert_eq!(batch.next_seq(), None);
    /// ```
    #[inline]
    pub fn next_seq(&mut self) -> Option<(u64, &'a T)> {
        if let Some(slot) = self.run.next() {
            let seq = self.seq;
            self.seq = seq + 1;
            self.subscriber.cursor_mut().advance_in_batch(self.seq);
            // SAFETY: the slots of a run are published, and the batch reads them.
            return Some((seq, unsafe { show(&slot.value) }));
        }
        if self.left == 0 {
            return None;
        }
        // The fields stay in registers, which a call that borrows all of `self` would prevent.
        // SAFETY: this batch borrows the subscriber for `'a`.
        let (found, run) = unsafe { next_run(self.subscriber, self.left) };
        let found = found?;
        self.seq = found.seq + 1;
        self.left -= 1 + run.len();
        self.run = run;
        // SAFETY: the batch is read until the subscriber is used again.
        let storage = unsafe { found.storage() };
        // SAFETY: the cursor has found it, within what the batch reads.
        Some((found.seq, unsafe { show(storage) }))
    }

    /// Folds the events that are published from the position on without a gap. Checks each of them only once.
    #[inline(always)]
    fn fold_direct<B>(&mut self, mut folded: B, fold: &mut impl FnMut(B, &'a T) -> B) -> B {
        self.left += self.run.len();
        self.run = Run::EMPTY;
        // SAFETY: this batch borrows the subscriber for `'a`.
        let slots = unsafe { slots(self.subscriber, self.left) };
        let first = self.subscriber.cursor().cursor_position();
        let mut received = Received {
            seq: first,
            subscriber: self.subscriber,
        };
        for slot in slots {
            if !ReadCursor::holds(slot, received.seq) {
                break;
            }
            received.seq += 1;
            // SAFETY: the batch reads its slots, and this one is published.
            folded = fold(folded, unsafe { show(&slot.value) });
        }
        self.left -= (received.seq - first) as usize;
        folded
    }
}

/// Counts events as received when it is dropped: at the end of a run, or when the caller's closure panics.
struct Received<'s, T: Send + Sync + 'static> {
    subscriber: &'s mut Subscriber<T>,
    /// The sequence of the next event.
    seq: u64,
}

impl<T: Send + Sync + 'static> Drop for Received<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.subscriber.cursor_mut().advance_in_batch(self.seq);
    }
}

/// Returns the value of an event of a batch that borrows its subscriber for `'a`.
///
/// # Safety
///
/// The cursor has found that an event with a value is published in `storage`, within what the batch reads.
#[inline(always)]
unsafe fn show<T>(storage: &Value<T>) -> &T {
    storage.with(|value| {
        // SAFETY: storage that is being read is not written, and the batch is read until the subscriber is used again, which the
        // borrow of the result excludes.
        let value = unsafe { &*value };
        // SAFETY: the caller says that there is a value.
        unsafe { value.assume_init_ref() }
    })
}

/// Returns the slots of the next `most` events of a batch, as [`ReadCursor::slots_in_batch`] does.
///
/// # Safety
///
/// The batch that calls this borrows the subscriber for `'a`.
#[inline(always)]
unsafe fn slots<'a, T: Send + Sync + 'static>(subscriber: &Subscriber<T>, most: usize) -> Run<'a, T> {
    let slots = subscriber.cursor().slots_in_batch(most);
    // SAFETY: the slots belong to the ring, which the subscriber keeps for as long as it is borrowed.
    unsafe { slots.extend() }
}

/// Returns the next event after the end of a run, and the run that follows it. The event is already counted as received. The run
/// is empty if the event after it needs further checks.
///
/// # Safety
///
/// The same as for [`slots`].
#[cold]
#[inline(never)]
unsafe fn next_run<'a, T: Send + Sync + 'static>(
    subscriber: &mut Subscriber<T>,
    left: usize,
) -> (Option<Found<T>>, Run<'a, T>) {
    let found = subscriber.cursor_mut().next_in_batch();
    let Some(event) = found else { return (None, Run::EMPTY) };
    let seq = event.seq + 1;
    subscriber.cursor_mut().advance_in_batch(seq);
    // SAFETY: passed on to the caller.
    let slots = unsafe { slots(subscriber, left - 1) };
    let mut published = 0;
    for slot in slots {
        if !ReadCursor::holds(slot, seq + published) {
            break;
        }
        published += 1;
    }
    (found, slots.limited(published as usize))
}

impl<'a, T: Send + Sync + 'static> Iterator for Batch<'a, T> {
    type Item = &'a T;

    #[inline]
    fn next(&mut self) -> Option<&'a T> {
        self.next_seq().map(|(_, value)| value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let most = self.run.len() + self.left;
        let at_first = most != 0 && self.subscriber.cursor().is_at_first_of_batch();
        (self.run.len().max(usize::from(at_first)), Some(most))
    }

    /// Folds the events like a loop over [`Batch::next`], but faster.
    #[inline]
    fn fold<B, F>(mut self, init: B, mut fold: F) -> B
    where
        F: FnMut(B, &'a T) -> B,
    {
        let mut folded = init;
        loop {
            folded = self.fold_direct(folded, &mut fold);
            let Some((_, value)) = self.next_seq() else {
                return folded;
            };
            folded = fold(folded, value);
        }
    }
}

impl<T: Send + Sync + 'static> Drop for Batch<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.subscriber.cursor_mut().show_position_in_batch();
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for Batch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("most", &(self.run.len() + self.left))
            .finish_non_exhaustive()
    }
}
