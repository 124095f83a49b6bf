//! Several events received by reference at once.

use core::fmt;

use super::core::Slot;
use super::cursor::Found;
use super::subscriber::Subscriber;

/// A run of events, yielded by reference; made by the batch receives.
///
/// Only what the iterator yields counts as received: drop it half-way and the rest is received next time. The events stay readable
/// until the subscriber is used again, also after the batch itself is gone.
///
/// Events that are published while the batch is read may extend it, up to its limit. Void sequences are passed over.
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
    /// The slots of the next events, as many as may be yielded without further checks.
    run: core::slice::Iter<'a, Slot<T>>,
    /// How many events may be yielded besides the run.
    left: usize,
    none_yet: bool,
}

// SAFETY: a batch is a `&mut Subscriber` and slots of its ring, which are shared between threads as the ring itself is.
unsafe impl<T: Send + Sync + 'static> Send for Batch<'_, T> {}
// SAFETY: as above; `&Batch` gives access to nothing.
unsafe impl<T: Send + Sync + 'static> Sync for Batch<'_, T> {}

impl<'a, T: Send + Sync + 'static> Batch<'a, T> {
    /// A batch of at most `most` events that starts with the one that the cursor has just found for it.
    pub(super) fn new(subscriber: &'a mut Subscriber<T>, most: usize) -> Self {
        let mut batch = Self {
            subscriber,
            run: [].iter(),
            left: most,
            none_yet: true,
        };
        batch.start_run();
        batch
    }

    /// Takes as long a run as can be had at the position. Empty when the next event needs a closer look.
    fn start_run(&mut self) {
        self.left += self.run.len();
        let run = self.subscriber.cursor_mut().slots_in_batch(self.left);
        // SAFETY: the slots belong to the ring, which the subscriber keeps for `'a`, being borrowed; what may be done with a slot is
        // checked slot by slot.
        self.run = unsafe { core::slice::from_raw_parts(run.as_ptr(), run.len()) }.iter();
        self.left -= self.run.len();
    }

    /// The next event, with its sequence.
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
        let found = match self.run.as_slice().first() {
            Some(slot) => self.subscriber.cursor_mut().published_in(slot),
            None => None,
        };
        match found {
            Some(found) => {
                self.run.next();
                Some(self.consume(found))
            }
            None => self.next_rarely(),
        }
    }

    /// Where the run ends: at a void or diverted event, at the end of the slots, or at the end of what is published.
    #[cold]
    fn next_rarely(&mut self) -> Option<(u64, &'a T)> {
        self.left += self.run.len();
        self.run = [].iter();
        if self.left == 0 {
            return None;
        }
        let found = self.subscriber.cursor_mut().next_in_batch()?;
        self.left -= 1;
        let yielded = self.consume(found);
        self.start_run();
        Some(yielded)
    }

    #[inline(always)]
    fn consume(&mut self, found: Found<T>) -> (u64, &'a T) {
        self.none_yet = false;
        // SAFETY: the announcement covers the event until the subscriber is used again, which the borrow of the result excludes;
        // nothing in this batch withdraws it.
        let storage = unsafe { found.storage() };
        let value = storage.with(|value| {
            // SAFETY: announced storage is not written.
            let value = unsafe { &*value };
            // SAFETY: the cursor found an event with a value there.
            unsafe { value.assume_init_ref() }
        });
        self.subscriber.cursor_mut().advance_in_batch();
        (found.seq, value)
    }
}

impl<'a, T: Send + Sync + 'static> Iterator for Batch<'a, T> {
    type Item = &'a T;

    #[inline]
    fn next(&mut self) -> Option<&'a T> {
        self.next_seq().map(|(_, value)| value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let most = self.run.len() + self.left;
        (usize::from(self.none_yet && most != 0), Some(most))
    }
}

impl<T: Send + Sync + 'static> Drop for Batch<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.subscriber.cursor_mut().show_position();
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for Batch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("most", &(self.run.len() + self.left))
            .finish_non_exhaustive()
    }
}
