//! The publisher, which can be shared and cloned.

use core::fmt;
use core::ops::Range;

use super::builder::Start;
use super::shared::RingShared;
use super::stats::RingStats;
use super::subscriber::Subscriber;
use crate::sync::{Arc, Weak, downgrade};

/// The publishing half of a ring, created by [`channel`](super::channel). Clones publish to the same ring, from any thread.
///
/// Publishing never waits: not for subscribers, not for a lock, not for other publishers. It also works without subscribers;
/// events published then are retained like any other. The channel closes for good when the last publisher is dropped.
pub struct Publisher<T> {
    shared: Arc<RingShared<T>>,
}

impl<T> Publisher<T> {
    /// Wraps a ring whose count of publishers already includes the new one.
    pub(super) fn from_shared(shared: Arc<RingShared<T>>) -> Self {
        Self { shared }
    }

    pub(super) fn shared(&self) -> &RingShared<T> {
        &self.shared
    }

    /// Publishes `value` and returns its sequence.
    ///
    /// No code of the caller runs between the claim of the sequence and the publication. The overwritten value is dropped
    /// afterwards, by this call.
    ///
    /// Usually costs one atomic read-modify-write, and no lock, system call or allocation. Exceptions: parked subscribers have to be woken;
    /// one publish in many clears slots for the others, which takes a fence and, rarely, a system call; and a value that would take the
    /// place of one that a subscriber still reads is allocated (clauses C2.4 and C7.2 of the contract).
    ///
    /// ```
    /// let (publisher, mut subscriber) = doorbell::ring::channel(8);
    /// assert_eq!(publisher.publish("a"), 1);
    /// assert_eq!(publisher.publish("b"), 2);
    /// assert_eq!(subscriber.try_recv_seq(), Ok((1, "a")));
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if [`MAX_SEQ`](super::MAX_SEQ) has been used; nothing is published then. Also panics if the drop of the overwritten
    /// value panics; `value` has been published then.
    #[inline]
    pub fn publish(&self, value: T) -> u64 {
        self.shared.publish_claimed(self.shared.claim(), value)
    }

    /// Publishes the event that `build` makes from its sequence, and returns that sequence.
    ///
    /// Subscribers wait at this sequence while `build` runs (other publishers do not), so keep it short. `build` may use the
    /// channel.
    ///
    /// ```
    /// let (publisher, mut subscriber) = doorbell::ring::channel(8);
    /// publisher.publish_with(|seq| format!("event {seq}"));
    /// assert_eq!(subscriber.try_recv().as_deref(), Ok("event 1"));
    /// ```
    ///
    /// # Panics
    ///
    /// Panics under the same conditions as [`Publisher::publish`], and if `build` panics. The sequence is then
    /// [void](RingStats::void): subscribers pass over it and count it.
    #[inline]
    pub fn publish_with(&self, build: impl FnOnce(u64) -> T) -> u64 {
        self.shared.publish_built(build)
    }

    /// Publishes all items under consecutive sequences, and returns these sequences.
    ///
    /// Claims `len()` sequences at once. Items become visible one at a time; waiting subscribers are woken once, at the end. Costs
    /// one claim and one fence per batch, and about a store per item.
    ///
    /// An iterator that panics or yields fewer items than `len()` leaves [void](RingStats::void) sequences, which subscribers
    /// pass over and count; surplus items are not taken. Overwritten values are dropped between the items.
    ///
    /// ```
    /// let (publisher, mut subscriber) = doorbell::ring::channel(8);
    /// assert_eq!(publisher.publish_batch(["a", "b", "c"]), 1..4);
    /// let seen: Vec<_> = subscriber.try_recv_batch(8).unwrap().copied().collect();
    /// assert_eq!(seen, ["a", "b", "c"]);
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if fewer sequences than items are left before [`MAX_SEQ`](super::MAX_SEQ); nothing is published then. Also panics
    /// if the iterator or the drop of an overwritten value panics.
    #[inline]
    pub fn publish_batch<I>(&self, items: I) -> Range<u64>
    where
        I: IntoIterator<Item = T>,
        I::IntoIter: ExactSizeIterator,
    {
        let items = items.into_iter();
        let count = items.len() as u64;
        let first = self.shared.claim_many(count);
        self.shared.publish_all_claimed(first..first + count, items)
    }

    /// Creates a subscriber, which receives events published from now on.
    ///
    /// It does not receive events whose sequence another thread has already claimed, even if their publication is not finished.
    /// Takes a short lock that publishers never take.
    ///
    /// ```
    /// let (publisher, _) = doorbell::ring::channel(8);
    /// publisher.publish(1);
    /// let mut subscriber = publisher.subscribe();
    /// publisher.publish(2);
    /// assert_eq!(subscriber.try_recv(), Ok(2));
    /// ```
    pub fn subscribe(&self) -> Subscriber<T> {
        self.subscribe_from(Start::Latest)
    }

    /// Creates a subscriber that starts at `start`.
    ///
    /// ```
    /// use doorbell::ring::Start;
    ///
    /// let (publisher, _) = doorbell::ring::channel(8);
    /// publisher.publish_batch([10, 20, 30]);
    /// let mut subscriber = publisher.subscribe_from(Start::After(1));
    /// assert_eq!(subscriber.try_recv_seq(), Ok((2, 20)));
    /// ```
    pub fn subscribe_from(&self, start: Start) -> Subscriber<T> {
        Subscriber::new(self.shared.clone(), start)
    }

    /// Returns the sequence that the next publication will claim. Other threads may claim it meanwhile.
    ///
    /// ```
    /// let (publisher, _subscriber) = doorbell::ring::channel(8);
    /// assert_eq!(publisher.next_seq(), 1);
    /// publisher.publish(());
    /// assert_eq!(publisher.next_seq(), 2);
    /// ```
    pub fn next_seq(&self) -> u64 {
        self.shared.tail()
    }

    /// Returns the number of subscribers, which may change at any time.
    ///
    /// ```
    /// let (publisher, subscriber) = doorbell::ring::channel::<u8>(8);
    /// let another = publisher.subscribe();
    /// assert_eq!(publisher.subscriber_count(), 2);
    /// drop((subscriber, another));
    /// assert_eq!(publisher.subscriber_count(), 0);
    /// ```
    pub fn subscriber_count(&self) -> usize {
        self.shared.subscriber_count()
    }

    /// Returns the number of events that the ring retains.
    ///
    /// ```
    /// let (publisher, _subscriber) = doorbell::ring::channel::<u8>(1000);
    /// assert_eq!(publisher.capacity(), 1000);
    /// ```
    pub fn capacity(&self) -> usize {
        self.shared.geometry.capacity() as usize
    }

    /// Returns statistics of the ring. Reads the entry of each subscriber; costs publishers and subscribers nothing.
    ///
    /// ```
    /// let (publisher, mut subscriber) = doorbell::ring::channel(8);
    /// publisher.publish_batch(1..6);
    /// subscriber.try_recv().unwrap();
    /// let stats = publisher.stats();
    /// assert_eq!(stats.published, 5);
    /// assert_eq!(stats.slowest_position, Some(2));
    /// ```
    pub fn stats(&self) -> RingStats {
        self.shared.stats()
    }

    /// Creates a handle that keeps neither the channel open nor its events alive. It can be upgraded to a publisher while another
    /// one keeps the channel open.
    ///
    /// ```
    /// let (publisher, mut subscriber) = doorbell::ring::channel(8);
    /// let weak = publisher.downgrade();
    /// weak.upgrade().expect("still open").publish("a");
    /// drop(publisher);
    /// assert!(weak.upgrade().is_none());
    /// assert_eq!(subscriber.try_recv(), Ok("a"));
    /// ```
    #[must_use]
    pub fn downgrade(&self) -> WeakPublisher<T> {
        WeakPublisher {
            shared: downgrade(&self.shared),
        }
    }

    /// Returns `true` if both publish to the same ring.
    ///
    /// ```
    /// let (publisher, _subscriber) = doorbell::ring::channel::<u8>(8);
    /// assert!(publisher.same_channel(&publisher.clone()));
    /// ```
    pub fn same_channel(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl<T> Clone for Publisher<T> {
    fn clone(&self) -> Self {
        self.shared.publisher_added();
        Self::from_shared(self.shared.clone())
    }
}

impl<T> Drop for Publisher<T> {
    fn drop(&mut self) {
        self.shared.publisher_gone();
    }
}

impl<T> fmt::Debug for Publisher<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// A publisher that does not keep the channel open, created by [`Publisher::downgrade`].
pub struct WeakPublisher<T> {
    shared: Weak<RingShared<T>>,
}

impl<T> WeakPublisher<T> {
    pub(super) fn shared(&self) -> Option<Arc<RingShared<T>>> {
        self.shared.upgrade()
    }

    /// Creates a publisher, or returns `None` if the last one was dropped: a closed channel stays closed.
    ///
    /// ```
    /// let (publisher, _subscriber) = doorbell::ring::channel::<u8>(8);
    /// let weak = publisher.downgrade();
    /// assert!(weak.upgrade().is_some());
    /// ```
    pub fn upgrade(&self) -> Option<Publisher<T>> {
        let shared = self.shared.upgrade()?;
        shared.publisher_revived().then(|| Publisher::from_shared(shared))
    }
}

impl<T> Clone for WeakPublisher<T> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
        }
    }
}

impl<T> fmt::Debug for WeakPublisher<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakPublisher").finish_non_exhaustive()
    }
}
