//! Receives an event by reference.

use core::fmt;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ops::Deref;

use super::cursor::Found;
use crate::sync::HeldRead;

/// An event that stays in the ring while it is read. Created by the receives by reference, such as
/// [`Subscriber::recv_ref`](super::Subscriber::recv_ref).
///
/// Publishers continue in the meantime: a publisher that reaches the event's slot publishes elsewhere. Until the subscriber receives
/// again, waits or is dropped, the ring keeps the events of the interval that the subscriber has announced (at most 64 sequences
/// and an eighth of the capacity; after a batch at most 64 sequences), even if they are lost to all other subscribers.
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
    held: HeldRead<MaybeUninit<T>>,
    subscriber: PhantomData<&'a T>,
}

impl<T> Ref<'_, T> {
    /// # Safety
    ///
    /// For the lifetime of the result, the cursor that found the event must not be used.
    pub(super) unsafe fn new(found: Found<T>) -> Self {
        // SAFETY: the caller does not use the cursor.
        let storage = unsafe { found.storage() };
        Self {
            seq: found.seq,
            held: storage.hold(),
            subscriber: PhantomData,
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

// SAFETY: a `Ref` is a shared reference to `T`, and the read it holds may end on any thread.
unsafe impl<T: Sync> Send for Ref<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Ref<'_, T> {}

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the storage is announced, so no thread writes it while `self` lives.
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
