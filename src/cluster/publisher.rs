//! The publisher: numbers events, publishes them, and opens streams.

use core::fmt;
use core::num::NonZeroUsize;

use futures_core::stream::BoxStream;

use super::builder::ClusterEventPublisherBuilder;
use super::clock::Clock;
use super::event::{ClusterEvent, ClusterEventMeta};
use super::seam::{self, Seam, Spliced};
use super::stream::{ClusterEventStream, ClusterStreamLagged};
use crate::ring::{Publisher, Start, Subscriber};

/// Broadcasts the events of a cluster, numbered from 1 in the order in which every stream sees them.
///
/// Clones are handles to the same publisher, for use on any thread. When the last handle is dropped, each stream yields the events
/// that it has not read yet, then ends.
///
/// ```
/// use doorbell::cluster::{ClusterEvent, ClusterEventPublisher};
/// use futures::StreamExt;
/// use std::num::NonZeroUsize;
///
/// # futures::executor::block_on(async {
/// let publisher = ClusterEventPublisher::new(NonZeroUsize::new(1024).unwrap());
/// let mut console = publisher.subscribe(0);
/// let event = publisher.emit(|meta| ClusterEvent::PeerConnected { meta, peer: "alpha".into() });
/// assert_eq!(event.meta().cluster_seq, 1);
/// assert_eq!(console.next().await, Some(Ok(event)));
/// drop(publisher);
/// assert_eq!(console.next().await, None);
/// # });
/// ```
pub struct ClusterEventPublisher<E: Send + Sync + 'static = ClusterEvent> {
    ring: Publisher<E>,
    clock: Clock,
}

/// Creating a publisher of [`ClusterEvent`]s.
impl ClusterEventPublisher {
    /// Creates a publisher that retains the last `capacity` events for its streams. Range: 1 to 2^31.
    ///
    /// Allocates space for up to twice as many events at once. Use [`ClusterEventPublisher::builder`] to handle a capacity that is too
    /// large, or to set the first number or the clock.
    ///
    /// ```
    /// use doorbell::cluster::ClusterEventPublisher;
    /// use std::num::NonZeroUsize;
    ///
    /// let publisher = ClusterEventPublisher::new(NonZeroUsize::new(1024).unwrap());
    /// assert_eq!(publisher.current_seq(), 1);
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if `capacity` exceeds 2^31, or if the events would take more than `isize::MAX` bytes.
    #[must_use]
    pub fn new(capacity: NonZeroUsize) -> Self {
        Self::with_capacity(capacity)
    }
}

impl<E: Clone + Send + Sync + 'static> ClusterEventPublisher<E> {
    /// Creates a publisher of events of any type. Otherwise like [`ClusterEventPublisher::new`].
    ///
    /// ```
    /// use doorbell::cluster::{ClusterEventMeta, ClusterEventPublisher};
    /// use std::num::NonZeroUsize;
    ///
    /// #[derive(Clone)]
    /// enum DoorEvent {
    ///     Opened { meta: ClusterEventMeta, door: u32 },
    /// }
    ///
    /// let publisher = ClusterEventPublisher::with_capacity(NonZeroUsize::new(64).unwrap());
    /// let DoorEvent::Opened { meta, door } = publisher.emit(|meta| DoorEvent::Opened { meta, door: 3 });
    /// assert_eq!((meta.cluster_seq, door), (1, 3));
    /// ```
    ///
    /// # Panics
    ///
    /// See [`ClusterEventPublisher::new`].
    #[must_use]
    pub fn with_capacity(capacity: NonZeroUsize) -> Self {
        Self::builder(capacity)
            .build()
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Returns a builder of a publisher that retains `capacity` events. See [`ClusterEventPublisherBuilder`].
    ///
    /// ```
    /// use doorbell::cluster::{ClusterEvent, ClusterEventPublisher};
    /// use std::num::NonZeroUsize;
    ///
    /// let capacity = NonZeroUsize::new(1024).unwrap();
    /// let publisher = ClusterEventPublisher::<ClusterEvent>::builder(capacity).first_seq(500).build()?;
    /// assert_eq!(publisher.current_seq(), 500);
    /// # Ok::<(), doorbell::ring::BuildError>(())
    /// ```
    pub fn builder(capacity: NonZeroUsize) -> ClusterEventPublisherBuilder<E> {
        ClusterEventPublisherBuilder::new(capacity)
    }

    /// Calls `build` with the next number and the current time, broadcasts the event that it returns, and returns a clone.
    ///
    /// Numbers give the order: however many threads emit, no stream sees a higher number before a lower one. Never waits, and
    /// needs no subscriber.
    ///
    /// Streams, but not other emitters, wait for this event while `build` and the event's `clone` run, so keep `build` short.
    /// `build` may use the publisher: events that it emits get numbers above its own event and are published before it.
    ///
    /// ```
    /// use doorbell::cluster::{ClusterEvent, ClusterEventPublisher};
    /// use std::num::NonZeroUsize;
    ///
    /// let publisher = ClusterEventPublisher::new(NonZeroUsize::new(1024).unwrap());
    /// let event = publisher.emit(|meta| ClusterEvent::ShardAdopted {
    ///     meta,
    ///     shard: "s-17".into(),
    ///     peer: "alpha".into(),
    /// });
    /// assert_eq!(event.meta().cluster_seq, 1);
    /// assert_eq!(publisher.current_seq(), 2);
    /// ```
    ///
    /// # Panics
    ///
    /// - If `build` or the event's `clone` panics. The number is then void: no event has it, and streams skip it.
    /// - If the clock panics, or if no number is left. No number is used.
    /// - If dropping the event displaced by this one panics. The new event has been broadcast.
    #[inline]
    pub fn emit<F>(&self, build: F) -> E
    where
        F: FnOnce(ClusterEventMeta) -> E,
    {
        // Read before the number is claimed: streams do not wait for the clock, and a clock that panics uses no number.
        let observed_at = self.clock.now();
        let mut emitted = None;
        self.ring.publish_with(|cluster_seq| {
            let event = build(ClusterEventMeta {
                cluster_seq,
                observed_at,
            });
            // Clone before publishing: if `clone` panics, no stream sees the event.
            emitted = Some(event.clone());
            event
        });
        emitted.expect("publish_with has called the closure")
    }

    /// Returns a stream of the events that are emitted from now on and numbered above `after_seq`.
    ///
    /// The stream is attached when this method returns, whether or not it is polled. `after_seq` is the last number that a
    /// snapshot includes. Any number is allowed: if it lies in the future, events up to it are suppressed.
    ///
    /// **Attach before reading the snapshot**, then suppress the events that it includes, as [`ClusterEventPublisher::splice`]
    /// does. An `after_seq` read before subscribing is correct only if nothing is emitted in between. To continue after an event
    /// seen earlier, use [`ClusterEventPublisher::resume`].
    ///
    /// A stream that falls behind by more than the capacity yields one [`ClusterStreamLagged`] and ends. Dropping a pending
    /// `next()` loses no event.
    ///
    /// ```
    /// use doorbell::cluster::ClusterEventPublisher;
    /// use futures::StreamExt;
    /// use std::num::NonZeroUsize;
    ///
    /// # futures::executor::block_on(async {
    /// let publisher = ClusterEventPublisher::with_capacity(NonZeroUsize::new(64).unwrap());
    /// publisher.emit(|meta| meta.cluster_seq); // 1: emitted before the stream attaches
    /// let mut stream = publisher.subscribe(2);
    /// publisher.emit(|meta| meta.cluster_seq); // 2: suppressed
    /// publisher.emit(|meta| meta.cluster_seq);
    /// assert_eq!(stream.next().await, Some(Ok(3)));
    /// # });
    /// ```
    #[must_use = "dropping the stream detaches it"]
    pub fn subscribe(&self, after_seq: u64) -> BoxStream<'static, Result<E, ClusterStreamLagged>> {
        let start = if after_seq < self.ring.next_seq() {
            // Every event emitted from now on has a higher number.
            Start::Latest
        } else {
            Start::After(after_seq)
        };
        ClusterEventStream::boxed(self.ring.subscribe_from(start))
    }

    /// Returns a stream of all events numbered above `after_seq`, including those still retained. Use it when a console
    /// reconnects with the number of the last event it saw.
    ///
    /// If some of these events are no longer retained, the stream yields only a [`ClusterStreamLagged`] with their count, then
    /// ends.
    ///
    /// ```
    /// use doorbell::cluster::{ClusterEventPublisher, ClusterStreamLagged};
    /// use futures::StreamExt;
    /// use std::num::NonZeroUsize;
    ///
    /// # futures::executor::block_on(async {
    /// let publisher = ClusterEventPublisher::with_capacity(NonZeroUsize::new(2).unwrap());
    /// for _ in 1..=5 {
    ///     publisher.emit(|meta| meta.cluster_seq);
    /// }
    /// assert_eq!(publisher.resume(4).next().await, Some(Ok(5)));
    /// assert_eq!(publisher.resume(1).next().await, Some(Err(ClusterStreamLagged { skipped: 2 })));
    /// # });
    /// ```
    #[must_use = "dropping the stream detaches it"]
    pub fn resume(&self, after_seq: u64) -> BoxStream<'static, Result<E, ClusterStreamLagged>> {
        ClusterEventStream::boxed(self.ring.subscribe_from(Start::After(after_seq)))
    }

    /// Returns the number that the next event will get: one above the last number claimed, 1 at first. Other threads may emit at
    /// any time.
    ///
    /// Do **not** pass it as `after_seq`, which would suppress one event too many. Use [`ClusterEventPublisher::as_of_seq`].
    ///
    /// ```
    /// use doorbell::cluster::ClusterEventPublisher;
    /// use std::num::NonZeroUsize;
    ///
    /// let publisher = ClusterEventPublisher::with_capacity(NonZeroUsize::new(64).unwrap());
    /// assert_eq!(publisher.current_seq(), 1);
    /// publisher.emit(|meta| meta);
    /// assert_eq!(publisher.current_seq(), 2);
    /// ```
    #[must_use]
    pub fn current_seq(&self) -> u64 {
        self.ring.next_seq()
    }

    /// Returns the last number claimed, 0 at first: `current_seq() - 1`. Other threads may emit at any time.
    ///
    /// If it is read under the lock under which the service changes its state *and* emits, a snapshot taken under the same hold of
    /// the lock includes exactly the events up to it. Pass it as the `after_seq` of the stream that follows the snapshot.
    ///
    /// ```
    /// use doorbell::cluster::ClusterEventPublisher;
    /// use std::num::NonZeroUsize;
    ///
    /// let publisher = ClusterEventPublisher::with_capacity(NonZeroUsize::new(64).unwrap());
    /// assert_eq!(publisher.as_of_seq(), 0);
    /// publisher.emit(|meta| meta);
    /// assert_eq!(publisher.as_of_seq(), 1);
    /// ```
    #[must_use]
    pub fn as_of_seq(&self) -> u64 {
        self.ring.next_seq() - 1
    }

    /// Returns the number of events retained.
    ///
    /// ```
    /// use doorbell::cluster::ClusterEventPublisher;
    /// use std::num::NonZeroUsize;
    ///
    /// let publisher = ClusterEventPublisher::new(NonZeroUsize::new(1000).unwrap());
    /// assert_eq!(publisher.capacity(), 1000);
    /// ```
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// Returns the number of open streams. Other threads may open and close streams at any time.
    ///
    /// ```
    /// use doorbell::cluster::ClusterEventPublisher;
    /// use std::num::NonZeroUsize;
    ///
    /// let publisher = ClusterEventPublisher::new(NonZeroUsize::new(64).unwrap());
    /// let stream = publisher.subscribe(0);
    /// assert_eq!(publisher.subscriber_count(), 1);
    /// drop(stream);
    /// assert_eq!(publisher.subscriber_count(), 0);
    /// ```
    #[must_use]
    pub fn subscriber_count(&self) -> usize {
        self.ring.subscriber_count()
    }

    pub(super) fn from_parts(ring: Publisher<E>, clock: Clock) -> Self {
        Self { ring, clock }
    }

    pub(super) fn attach(&self) -> Subscriber<E> {
        self.ring.subscribe()
    }
}

/// Joining snapshots to the events that follow them.
impl<E: Clone + Send + Sync + 'static> ClusterEventPublisher<E> {
    /// Takes a snapshot and returns it with a stream of the events that follow it.
    ///
    /// Attaches a stream, calls `snapshot`, then suppresses the events that the snapshot includes.
    ///
    /// If `snapshot` calls [`Seam::mark`] under the lock under which the service changes its state and emits, each change is in
    /// exactly one of the snapshot and the stream. Without a mark, the stream has every event emitted since *before* the call. No
    /// change is then missing if the service changes its state before it emits, but the stream may repeat changes that the
    /// snapshot includes, so applying an event twice must have the same effect as applying it once.
    ///
    /// ```
    /// use doorbell::cluster::ClusterEventPublisher;
    /// use futures::StreamExt;
    /// use std::num::NonZeroUsize;
    /// use std::sync::Mutex;
    ///
    /// # futures::executor::block_on(async {
    /// let publisher = ClusterEventPublisher::with_capacity(NonZeroUsize::new(64).unwrap());
    /// let total = Mutex::new(0);
    /// let add = |amount: i32| {
    ///     let mut total = total.lock().unwrap();
    ///     *total += amount;
    ///     publisher.emit(|_| amount);
    /// };
    /// add(5);
    /// let mut spliced = publisher.splice(|seam| {
    ///     let total = total.lock().unwrap();
    ///     seam.mark();
    ///     *total
    /// });
    /// add(2);
    /// assert_eq!((spliced.snapshot, spliced.as_of_seq), (5, 1));
    /// assert_eq!(spliced.deltas.next().await, Some(Ok(2)));
    /// # });
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if `snapshot` panics. Nothing remains attached.
    pub fn splice<S>(&self, snapshot: impl FnOnce(Seam) -> S) -> Spliced<S, E> {
        let (seam, attachment) = seam::attach(self.attach());
        let snapshot = snapshot(seam);
        attachment.finish(snapshot)
    }

    /// Like [`ClusterEventPublisher::splice`], for snapshots that can fail.
    ///
    /// ```
    /// use doorbell::cluster::ClusterEventPublisher;
    /// use std::num::NonZeroUsize;
    ///
    /// let publisher = ClusterEventPublisher::<u64>::with_capacity(NonZeroUsize::new(64).unwrap());
    /// let failed = publisher.try_splice(|_seam| "seven".parse::<u64>());
    /// assert!(failed.is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the error of `snapshot`. Nothing remains attached.
    ///
    /// # Panics
    ///
    /// Panics if `snapshot` panics. Nothing remains attached.
    pub fn try_splice<S, X>(&self, snapshot: impl FnOnce(Seam) -> Result<S, X>) -> Result<Spliced<S, E>, X> {
        let (seam, attachment) = seam::attach(self.attach());
        let snapshot = snapshot(seam)?;
        Ok(attachment.finish(snapshot))
    }

    /// Like [`ClusterEventPublisher::splice`], for asynchronous snapshots.
    ///
    /// Attaches when the future is first polled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future detaches the stream and leaves nothing behind.
    ///
    /// ```
    /// use doorbell::cluster::ClusterEventPublisher;
    /// use std::num::NonZeroUsize;
    /// use tokio::sync::Mutex;
    ///
    /// # futures::executor::block_on(async {
    /// let publisher = ClusterEventPublisher::<u64>::with_capacity(NonZeroUsize::new(64).unwrap());
    /// let state = Mutex::new(7);
    /// let spliced = publisher
    ///     .splice_async(async |seam| {
    ///         let state = state.lock().await;
    ///         seam.mark();
    ///         *state
    ///     })
    ///     .await;
    /// assert_eq!(spliced.snapshot, 7);
    /// # });
    /// ```
    pub async fn splice_async<S, F>(&self, snapshot: impl FnOnce(Seam) -> F) -> Spliced<S, E>
    where
        F: Future<Output = S>,
    {
        let (seam, attachment) = seam::attach(self.attach());
        let snapshot = snapshot(seam).await;
        attachment.finish(snapshot)
    }

    /// Like [`ClusterEventPublisher::splice_async`], for snapshots that can fail.
    ///
    /// ```
    /// use doorbell::cluster::ClusterEventPublisher;
    /// use std::num::NonZeroUsize;
    ///
    /// # futures::executor::block_on(async {
    /// let publisher = ClusterEventPublisher::<u64>::with_capacity(NonZeroUsize::new(64).unwrap());
    /// let failed = publisher.try_splice_async(async |_seam| "seven".parse::<u64>()).await;
    /// assert!(failed.is_err());
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the error of `snapshot`. Nothing remains attached.
    pub async fn try_splice_async<S, X, F>(&self, snapshot: impl FnOnce(Seam) -> F) -> Result<Spliced<S, E>, X>
    where
        F: Future<Output = Result<S, X>>,
    {
        let (seam, attachment) = seam::attach(self.attach());
        let snapshot = snapshot(seam).await?;
        Ok(attachment.finish(snapshot))
    }
}

impl<E: Send + Sync + 'static> Clone for ClusterEventPublisher<E> {
    fn clone(&self) -> Self {
        Self {
            ring: self.ring.clone(),
            clock: self.clock.clone(),
        }
    }
}

impl<E: Send + Sync + 'static> fmt::Debug for ClusterEventPublisher<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterEventPublisher")
            .field("current_seq", &self.ring.next_seq())
            .field("capacity", &self.ring.capacity())
            .field("subscribers", &self.ring.subscriber_count())
            .field("clock", &self.clock)
            .finish()
    }
}
