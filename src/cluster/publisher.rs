//! The publisher: stamps, publishes, and opens streams.

use core::fmt;
use core::num::NonZeroUsize;

use futures_core::stream::BoxStream;

use super::builder::ClusterEventPublisherBuilder;
use super::clock::Clock;
use super::event::{ClusterEvent, ClusterEventMeta};
use super::seam::{self, Seam, Spliced};
use super::stream::{ClusterStreamLagged, Deltas};
use crate::ring::{Publisher, Start, Subscriber};

/// Broadcasts the events of a cluster, numbered from 1 in the order in which everybody sees them.
///
/// Clones are handles to the same publisher, for any thread. The streams end when the last of them is dropped, after what is still
/// to be read.
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

/// The usual publisher, of [`ClusterEvent`]s.
impl ClusterEventPublisher {
    /// A publisher that keeps the last `capacity` events for its streams. Room for up to twice as many is allocated at once.
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
    /// When `capacity` is beyond what memory can hold ([`ClusterEventPublisher::builder`] returns an error instead).
    #[must_use]
    pub fn new(capacity: NonZeroUsize) -> Self {
        Self::with_capacity(capacity)
    }
}

impl<E: Clone + Send + Sync + 'static> ClusterEventPublisher<E> {
    /// As [`ClusterEventPublisher::new`], for events of any type.
    ///
    /// ```
    /// use doorbell::cluster::{ClusterEventMeta, ClusterEventPublisher};
    /// use std::num::NonZeroUsize;
    ///
    /// #[derive(Clone)]
    /// enum CountLock {
    ///     Opened { meta: ClusterEventMeta, number: u32 },
    /// }
    ///
    /// let publisher = ClusterEventPublisher::with_capacity(NonZeroUsize::new(64).unwrap());
    /// let CountLock::Opened { meta, number } = publisher.emit(|meta| CountLock::Opened { meta, number: 3 });
    /// assert_eq!((meta.cluster_seq, number), (1, 3));
    /// ```
    ///
    /// # Panics
    ///
    /// As [`ClusterEventPublisher::new`].
    #[must_use]
    pub fn with_capacity(capacity: NonZeroUsize) -> Self {
        Self::builder(capacity)
            .build()
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Starts with a publisher that keeps `capacity` events, and the usual settings. See [`ClusterEventPublisherBuilder`].
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

    /// Stamps the next number and the present instant, broadcasts what `build` makes of them, and returns it.
    ///
    /// Number, instant and place in the order are one: no stream ever sees a higher number before a lower one, whoever else is
    /// emitting. Never waits. That nobody listens is no error; the number is used all the same.
    ///
    /// Streams wait at this number while `build` and the clone that is returned are made (other emitters do not), so keep `build`
    /// short. It may use the publisher itself: what it emits is numbered above its own event, and published before it.
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
    /// When `build` or the event's `clone` does: the number is void then; streams pass over it, and nobody is held up. When the
    /// clock does, or all numbers are used up: nothing has happened then. When the drop of the event that had to make room does:
    /// the new one has been broadcast then.
    #[inline]
    pub fn emit<F>(&self, build: F) -> E
    where
        F: FnOnce(ClusterEventMeta) -> E,
    {
        // Before the claim: streams need not wait for the clock, and it may panic.
        let observed_at = self.clock.now();
        let mut emitted = None;
        self.ring.publish_with(|cluster_seq| {
            let event = build(ClusterEventMeta {
                cluster_seq,
                observed_at,
            });
            // There have to be two before one is given away. If this panics nobody gets any.
            emitted = Some(event.clone());
            event
        });
        emitted.expect("publish_with has called the closure")
    }

    /// A stream of the events that are emitted from now on and numbered above `after_seq`.
    ///
    /// It is attached when this returns, whether it is polled or not. `after_seq` is what a snapshot holds already, and may be any
    /// number: if it lies in the future, everything up to it is suppressed. **Attach first, read the snapshot then** (and suppress
    /// what it holds) is what [`ClusterEventPublisher::splice`] does; an `after_seq` that was read before is right as well, if
    /// nothing was emitted in between. To go on after an event seen earlier, use [`ClusterEventPublisher::resume`].
    ///
    /// A stream that falls behind by more than the capacity yields one [`ClusterStreamLagged`] and ends.
    ///
    /// ```
    /// use doorbell::cluster::ClusterEventPublisher;
    /// use futures::StreamExt;
    /// use std::num::NonZeroUsize;
    ///
    /// # futures::executor::block_on(async {
    /// let publisher = ClusterEventPublisher::with_capacity(NonZeroUsize::new(64).unwrap());
    /// publisher.emit(|meta| meta.cluster_seq); // 1: sent before the stream attaches
    /// let mut stream = publisher.subscribe(2);
    /// publisher.emit(|meta| meta.cluster_seq); // 2: suppressed
    /// publisher.emit(|meta| meta.cluster_seq);
    /// assert_eq!(stream.next().await, Some(Ok(3)));
    /// # });
    /// ```
    #[must_use = "the stream loses what it is not read for"]
    pub fn subscribe(&self, after_seq: u64) -> BoxStream<'static, Result<E, ClusterStreamLagged>> {
        let start = if after_seq < self.ring.next_seq() {
            // All that is emitted from now on lies above.
            Start::Latest
        } else {
            Start::After(after_seq)
        };
        Deltas::boxed(self.ring.subscribe_from(start))
    }

    /// A stream of all events numbered above `after_seq`, those that are still kept included: for a console that comes back after
    /// a short absence, with the number of the last event it has seen.
    ///
    /// If some of them are not kept any more, the first item is [`ClusterStreamLagged`] with their number, and the last.
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
    #[must_use = "the stream loses what it is not read for"]
    pub fn resume(&self, after_seq: u64) -> BoxStream<'static, Result<E, ClusterStreamLagged>> {
        Deltas::boxed(self.ring.subscribe_from(Start::After(after_seq)))
    }

    /// The number that the next event will get: 1 at first, and always one past the last stamped. Others may emit meanwhile.
    ///
    /// **Not** what a snapshot holds: as `after_seq` of a stream it would suppress one event too many. That is
    /// [`ClusterEventPublisher::as_of_seq`].
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

    /// The number stamped last, 0 at first: `current_seq() - 1`. Others may emit meanwhile.
    ///
    /// Read under the lock under which a service changes its state *and* emits, it is exactly what a snapshot taken under that same
    /// lock holds, and so the `after_seq` of the stream to follow it with.
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

    /// How many events are kept.
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

    /// How many streams are open. Others may come and go meanwhile.
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

/// Snapshots, and the events that follow them.
impl<E: Clone + Send + Sync + 'static> ClusterEventPublisher<E> {
    /// Takes a snapshot, and a stream of what happens from there on.
    ///
    /// Attaches first, then calls `snapshot`, and suppresses what the snapshot holds already. That is known exactly if `snapshot`
    /// calls [`Seam::mark`] under the lock under which the service changes its state and emits: then each change is in the snapshot
    /// or in the stream, and in one of them only. Without a mark the stream has everything that was emitted since *before* the
    /// call; nothing is lost if the service changes first and emits then, but the stream may repeat what the snapshot holds, so
    /// applying an event twice must be the same as once.
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
    /// When `snapshot` does.
    pub fn splice<S>(&self, snapshot: impl FnOnce(Seam) -> S) -> Spliced<S, E> {
        let (seam, attachment) = seam::attach(self.attach());
        let snapshot = snapshot(seam);
        attachment.detach(snapshot)
    }

    /// As [`ClusterEventPublisher::splice`], with a snapshot that may fail.
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
    /// When the snapshot fails; nothing is left of the attempt then.
    ///
    /// # Panics
    ///
    /// When `snapshot` does.
    pub fn try_splice<S, X>(&self, snapshot: impl FnOnce(Seam) -> Result<S, X>) -> Result<Spliced<S, E>, X> {
        let (seam, attachment) = seam::attach(self.attach());
        let snapshot = snapshot(seam)?;
        Ok(attachment.detach(snapshot))
    }

    /// As [`ClusterEventPublisher::splice`], with a snapshot that is waited for.
    ///
    /// It attaches when it is first polled. Dropping the future leaves nothing behind.
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
        attachment.detach(snapshot)
    }

    /// As [`ClusterEventPublisher::splice_async`], with a snapshot that may fail.
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
    /// When the snapshot fails; nothing is left of the attempt then.
    pub async fn try_splice_async<S, X, F>(&self, snapshot: impl FnOnce(Seam) -> F) -> Result<Spliced<S, E>, X>
    where
        F: Future<Output = Result<S, X>>,
    {
        let (seam, attachment) = seam::attach(self.attach());
        let snapshot = snapshot(seam).await?;
        Ok(attachment.detach(snapshot))
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
