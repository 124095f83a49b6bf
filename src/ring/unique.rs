//! The publisher that is the only one.

use core::fmt;
use core::ops::Range;

use super::builder::Start;
use super::publisher::Publisher;
use super::stats::RingStats;
use super::subscriber::Subscriber;

/// The only publisher of a ring; made by [`spmc`](super::spmc).
///
/// That nobody else publishes is checked at compile time: sequences that one call returns and the next are consecutive, and nothing
/// can come between two publications. Everything else said of [`Publisher`] holds here, the cost too.
pub struct UniquePublisher<T: Send + Sync + 'static> {
    publisher: Publisher<T>,
}

impl<T: Send + Sync + 'static> UniquePublisher<T> {
    /// Wraps a publisher that nobody else has.
    pub(super) fn new(publisher: Publisher<T>) -> Self {
        Self { publisher }
    }

    /// Publishes `value` and returns its sequence. As [`Publisher::publish`](super::Publisher::publish).
    ///
    /// ```
    /// let (mut publisher, mut subscriber) = doorbell::ring::spmc(8);
    /// assert_eq!(publisher.publish("a"), 1);
    /// assert_eq!(subscriber.try_recv(), Ok("a"));
    /// ```
    ///
    /// # Panics
    ///
    /// As [`Publisher::publish`](super::Publisher::publish).
    #[inline]
    pub fn publish(&mut self, value: T) -> u64 {
        self.publisher.publish(value)
    }

    /// Publishes what `build` makes of the sequence. As [`Publisher::publish_with`](super::Publisher::publish_with).
    ///
    /// ```
    /// let (mut publisher, mut subscriber) = doorbell::ring::spmc(8);
    /// publisher.publish_with(|seq| seq * 10);
    /// assert_eq!(subscriber.try_recv(), Ok(10));
    /// ```
    ///
    /// # Panics
    ///
    /// As [`Publisher::publish_with`](super::Publisher::publish_with).
    #[inline]
    pub fn publish_with(&mut self, build: impl FnOnce(u64) -> T) -> u64 {
        self.publisher.publish_with(build)
    }

    /// Publishes all items under consecutive sequences. As [`Publisher::publish_batch`](super::Publisher::publish_batch).
    ///
    /// ```
    /// let (mut publisher, mut subscriber) = doorbell::ring::spmc(8);
    /// assert_eq!(publisher.publish_batch([1, 2, 3]), 1..4);
    /// assert_eq!(subscriber.try_recv_batch(8).unwrap().sum::<i32>(), 6);
    /// ```
    ///
    /// # Panics
    ///
    /// As [`Publisher::publish_batch`](super::Publisher::publish_batch).
    #[inline]
    pub fn publish_batch<I>(&mut self, items: I) -> Range<u64>
    where
        I: IntoIterator<Item = T>,
        I::IntoIter: ExactSizeIterator,
    {
        self.publisher.publish_batch(items)
    }

    /// A new subscriber, which sees what is published from now on.
    ///
    /// ```
    /// let (mut publisher, _) = doorbell::ring::spmc(8);
    /// let mut subscriber = publisher.subscribe();
    /// publisher.publish(1);
    /// assert_eq!(subscriber.try_recv(), Ok(1));
    /// ```
    pub fn subscribe(&self) -> Subscriber<T> {
        self.publisher.subscribe()
    }

    /// A new subscriber that starts where `start` says.
    ///
    /// ```
    /// use doorbell::ring::Start;
    ///
    /// let (mut publisher, _) = doorbell::ring::spmc(8);
    /// publisher.publish(1);
    /// let mut subscriber = publisher.subscribe_from(Start::Oldest);
    /// assert_eq!(subscriber.try_recv(), Ok(1));
    /// ```
    pub fn subscribe_from(&self, start: Start) -> Subscriber<T> {
        self.publisher.subscribe_from(start)
    }

    /// The sequence that the next publication will claim.
    ///
    /// ```
    /// let (publisher, _subscriber) = doorbell::ring::spmc::<u8>(8);
    /// assert_eq!(publisher.next_seq(), 1);
    /// ```
    pub fn next_seq(&self) -> u64 {
        self.publisher.next_seq()
    }

    /// How many subscribers there are. Others may come and go meanwhile.
    ///
    /// ```
    /// let (publisher, _subscriber) = doorbell::ring::spmc::<u8>(8);
    /// assert_eq!(publisher.subscriber_count(), 1);
    /// ```
    pub fn subscriber_count(&self) -> usize {
        self.publisher.subscriber_count()
    }

    /// How many events the ring retains.
    ///
    /// ```
    /// let (publisher, _subscriber) = doorbell::ring::spmc::<u8>(1000);
    /// assert_eq!(publisher.capacity(), 1000);
    /// ```
    pub fn capacity(&self) -> usize {
        self.publisher.capacity()
    }

    /// Figures about the ring. As [`Publisher::stats`](super::Publisher::stats).
    ///
    /// ```
    /// let (mut publisher, _subscriber) = doorbell::ring::spmc(8);
    /// publisher.publish(1);
    /// assert_eq!(publisher.stats().published, 1);
    /// ```
    pub fn stats(&self) -> RingStats {
        self.publisher.stats()
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for UniquePublisher<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UniquePublisher")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
