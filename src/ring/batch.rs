//! Several events received by reference at once.

use core::fmt;

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
    /// Found already, not yielded yet.
    first: Option<Found<T>>,
    left: usize,
}

// SAFETY: what was found is storage that the subscriber's announcement protects: the batch is a `&mut Subscriber` and shared
// references to `T`, both of which may be sent.
unsafe impl<T: Send + Sync + 'static> Send for Batch<'_, T> {}
// SAFETY: as above; `&Batch` gives access to nothing.
unsafe impl<T: Send + Sync + 'static> Sync for Batch<'_, T> {}

impl<'a, T: Send + Sync + 'static> Batch<'a, T> {
    /// A batch of at most `most` events that starts with the one found last.
    pub(super) fn new(subscriber: &'a mut Subscriber<T>, first: Found<T>, most: usize) -> Self {
        Self {
            subscriber,
            first: Some(first),
            left: most,
        }
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
        if self.left == 0 {
            return None;
        }
        let cursor = self.subscriber.cursor_mut();
        let found = match self.first.take() {
            Some(first) => first,
            None => cursor.next_in_batch()?,
        };
        self.left -= 1;
        // SAFETY: the announcement covers the event until the subscriber is used again, which the borrow of the result excludes;
        // nothing in this batch withdraws it.
        let storage = unsafe { found.storage() };
        let value = storage.with(|value| {
            // SAFETY: announced storage is not written.
            let value = unsafe { &*value };
            // SAFETY: the cursor found an event with a value there.
            unsafe { value.assume_init_ref() }
        });
        cursor.advance();
        Some((found.seq, value))
    }
}

impl<'a, T: Send + Sync + 'static> Iterator for Batch<'a, T> {
    type Item = &'a T;

    #[inline]
    fn next(&mut self) -> Option<&'a T> {
        self.next_seq().map(|(_, value)| value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.first.is_some() && self.left != 0), Some(self.left))
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for Batch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}
