//! Receives an event by reference.

use core::fmt;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ops::Deref;

use super::announcements::Entry;
use super::cursor::{Found, ReadCursor};
use crate::sync::HeldRead;

/// An event that stays in the ring while it is read. Created by the receives by reference, such as
/// [`Subscriber::recv_ref`](super::Subscriber::recv_ref).
///
/// Publishers continue in the meantime: a publisher that reaches the event's slot publishes elsewhere. While the reference lives,
/// the ring keeps the event, even if it is lost to all other subscribers. (If the reference is leaked, until the subscriber
/// receives again or is dropped.)
///
/// ```
/// use doorbell::ring;
///
/// struct NotClone(&'static str);
/// let (publisher, mut subscriber) = ring::channel(8);
/// publisher.publish(NotClone("a"));
/// let event = subscriber.try_recv_ref().unwrap();
/// assert_eq!(event.seq(), 1);
/// assert_eq!(event.0, "a");
/// ```
pub struct Ref<'a, T> {
    seq: u64,
    held: ManuallyDrop<HeldRead<MaybeUninit<T>>>,
    /// Where the subscriber says that it reads the event.
    entry: &'a Entry,
}

impl<'a, T> Ref<'a, T> {
    /// Creates a reference to the event that `cursor` has found last and moved past.
    #[inline(always)]
    pub(super) fn new(cursor: &'a mut ReadCursor<T>, found: Found<T>) -> Self {
        // SAFETY: the result borrows the cursor, which is therefore not used before the read has ended.
        let storage = unsafe { found.storage() };
        Self {
            seq: found.seq,
            held: ManuallyDrop::new(storage.hold()),
            entry: cursor.entry(),
        }
    }

    /// Returns the sequence of the event.
    ///
    /// ```
    /// let (publisher, mut subscriber) = doorbell::ring::channel(8);
    /// publisher.publish("a");
    /// assert_eq!(subscriber.try_recv_ref().unwrap().seq(), 1);
    /// ```
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.seq
    }
}

impl<T> Drop for Ref<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.held) };
        self.entry.end(self.seq + 1);
    }
}

// SAFETY: a `Ref` is a shared reference to `T`, and the read it holds may end on any thread.
unsafe impl<T: Sync> Send for Ref<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Ref<'_, T> {}

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the subscriber says that it reads the event, so no thread writes the storage while `self` lives.
        let value: &MaybeUninit<T> = unsafe { &*self.held.pointer() };
        // SAFETY: the cursor found an event with a value there.
        unsafe { value.assume_init_ref() }
    }
}

impl<T: fmt::Debug> fmt::Debug for Ref<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ref")
            .field("seq", &self.seq)
            .field("value", &**self)
            .finish()
    }
}
