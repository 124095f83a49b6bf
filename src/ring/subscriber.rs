//! The subscriber, with all its receive methods.

use core::fmt;
use core::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::batch::Batch;
use super::builder::Start;
use super::cursor::{Found, ReadCursor};
use super::error::{RecvError, RecvTimeoutError, TryRecvError};
use super::future::{Recv, RecvBatch, RecvLossy, RecvRef, RecvSeq};
use super::iter::{Iter, TryIter};
use super::recv_ref::Ref;
use super::shared::RingShared;
use super::stats::SubscriberStats;
use super::stream::SubscriberStream;
use super::wait::{Find, Wait};
use crate::sync::Arc;

/// Receives every event of a ring, in order, from its own position.
///
/// Created by [`channel`](super::channel) or [`Publisher::subscribe`](super::Publisher::subscribe), or by cloning a subscriber;
/// the clone has the same position.
///
/// A subscriber that falls more than the capacity behind gets one [`Lagged`](super::Lagged) that says exactly what it missed, and
/// can continue. A loop that handles lag:
///
/// ```
/// use doorbell::ring::{self, RecvError};
///
/// # futures::executor::block_on(async {
/// let (publisher, mut subscriber) = ring::channel(4);
/// publisher.publish_batch(1..7);
/// drop(publisher);
/// let mut seen = Vec::new();
/// let mut lost = 0;
/// loop {
///     match subscriber.recv().await {
///         Ok(event) => seen.push(event),
///         Err(RecvError::Lagged(lagged)) => lost += lagged.skipped,
///         Err(RecvError::Closed) => break,
///     }
/// }
/// assert_eq!((seen, lost), (vec![3, 4, 5, 6], 2));
/// # });
/// ```
///
/// There are shorter forms. [`Subscriber::into_stream`] and [`Subscriber::iter`] have results as items and end when the channel
/// is closed. [`Subscriber::recv_lossy`] passes over lag and counts it.
///
/// Receives by value clone the event. Receives by reference and in batches do not, and do not need `Clone`.
///
/// Dropping a subscriber takes a short lock, whatever its lag.
pub struct Subscriber<T> {
    wait: Wait,
    cursor: ReadCursor<T>,
}

impl<T> Subscriber<T> {
    pub(super) fn new(shared: Arc<RingShared<T>>, start: Start) -> Self {
        Self {
            wait: Wait::default(),
            cursor: ReadCursor::new(shared, start),
        }
    }

    pub(super) fn cursor(&self) -> &ReadCursor<T> {
        &self.cursor
    }

    pub(super) fn cursor_mut(&mut self) -> &mut ReadCursor<T> {
        &mut self.cursor
    }

    /// Finds the next event, or registers the task to be woken for it.
    #[inline]
    pub(super) fn poll_found(&mut self, cx: &mut Context<'_>, find: impl Find<T>) -> Poll<Result<Found<T>, RecvError>> {
        self.wait.poll(&mut self.cursor, cx, find)
    }

    /// Ends the wait that a dropped future leaves behind.
    pub(super) fn cancel_wait(&mut self) {
        self.wait.cancel(&self.cursor);
    }

    pub(super) fn block(&mut self, deadline: Option<Instant>) -> Result<Found<T>, RecvTimeoutError> {
        self.wait.block(&mut self.cursor, deadline, ReadCursor::next)
    }
}

impl<T: Send + Sync + 'static> Subscriber<T> {
    /// Receives the event that was found last.
    pub(super) fn take_ref(&mut self, found: Found<T>) -> Ref<'_, T> {
        self.cursor.advance(found);
        Ref::new(&mut self.cursor, found)
    }

    /// Receives the next event by reference, if there is one.
    ///
    /// ```
    /// let (publisher, mut subscriber) = doorbell::ring::channel(8);
    /// publisher.publish(String::from("a"));
    /// assert_eq!(*subscriber.try_recv_ref().unwrap(), "a");
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Subscriber::try_recv`].
    #[inline]
    pub fn try_recv_ref(&mut self) -> Result<Ref<'_, T>, TryRecvError> {
        let found = self.cursor.next()?;
        Ok(self.take_ref(found))
    }

    /// Waits for the next event and receives it by reference. Cancel-safe, like [`Subscriber::recv`].
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// let (publisher, mut subscriber) = doorbell::ring::channel(8);
    /// publisher.publish(String::from("a"));
    /// assert_eq!(*subscriber.recv_ref().await.unwrap(), "a");
    /// # });
    /// ```
    pub fn recv_ref(&mut self) -> RecvRef<'_, T> {
        RecvRef::new(self)
    }

    /// Blocks the thread until there is an event and receives it by reference.
    ///
    /// ```
    /// let (publisher, mut subscriber) = doorbell::ring::channel(8);
    /// publisher.publish(String::from("a"));
    /// assert_eq!(*subscriber.recv_ref_blocking().unwrap(), "a");
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Subscriber::recv`].
    pub fn recv_ref_blocking(&mut self) -> Result<Ref<'_, T>, RecvError> {
        let found = without_timeout(self.block(None))?;
        Ok(self.take_ref(found))
    }

    /// Receives a run of up to `max` events by reference, if there is at least one.
    ///
    /// A batch holds at most 64 events. Whether its events are lost is decided when the batch begins. If `max` is zero, the batch
    /// is empty.
    ///
    /// Costs one fence per batch, and one check per event.
    ///
    /// ```
    /// let (publisher, mut subscriber) = doorbell::ring::channel(8);
    /// publisher.publish_batch([1, 2, 3]);
    /// assert_eq!(subscriber.try_recv_batch(64).unwrap().sum::<i32>(), 6);
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Subscriber::try_recv`].
    #[inline]
    pub fn try_recv_batch(&mut self, max: usize) -> Result<Batch<'_, T>, TryRecvError> {
        self.cursor.next_for_batch(max as u64)?;
        Ok(Batch::new(self, max))
    }

    /// Waits for at least one event and receives a run of up to `max`, like [`Subscriber::try_recv_batch`]. Cancel-safe.
    ///
    /// A loop that handles lag:
    ///
    /// ```
    /// use doorbell::ring::{self, RecvError};
    ///
    /// # futures::executor::block_on(async {
    /// let (publisher, mut subscriber) = ring::channel(4);
    /// publisher.publish_batch([1, 2, 3, 4, 5, 6]);
    /// drop(publisher);
    /// let (mut sum, mut lost) = (0, 0);
    /// loop {
    ///     match subscriber.recv_batch(64).await {
    ///         Ok(batch) => sum += batch.sum::<i32>(),
    ///         Err(RecvError::Lagged(lagged)) => lost += lagged.skipped,
    ///         Err(RecvError::Closed) => break,
    ///     }
    /// }
    /// assert_eq!((sum, lost), (18, 2));
    /// # });
    /// ```
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// let (publisher, mut subscriber) = doorbell::ring::channel(8);
    /// publisher.publish_batch([1, 2, 3]);
    /// assert_eq!(subscriber.recv_batch(64).await.unwrap().count(), 3);
    /// # });
    /// ```
    pub fn recv_batch(&mut self, max: usize) -> RecvBatch<'_, T> {
        RecvBatch::new(self, max)
    }

    /// Blocks the thread until there is at least one event and receives a run of up to `max`, like
    /// [`Subscriber::try_recv_batch`].
    ///
    /// ```
    /// let (publisher, mut subscriber) = doorbell::ring::channel(8);
    /// publisher.publish_batch([1, 2, 3]);
    /// assert_eq!(subscriber.recv_batch_blocking(2).unwrap().count(), 2);
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Subscriber::recv`].
    pub fn recv_batch_blocking(&mut self, max: usize) -> Result<Batch<'_, T>, RecvError> {
        let find = move |cursor: &mut ReadCursor<T>| cursor.next_for_batch(max as u64);
        without_timeout(self.wait.block(&mut self.cursor, None, find))?;
        Ok(Batch::new(self, max))
    }

    /// Returns the sequence of the next receive.
    ///
    /// ```
    /// let (publisher, mut subscriber) = doorbell::ring::channel(8);
    /// publisher.publish(());
    /// assert_eq!(subscriber.position(), 1);
    /// subscriber.try_recv().unwrap();
    /// assert_eq!(subscriber.position(), 2);
    /// ```
    pub fn position(&self) -> u64 {
        self.cursor.position()
    }

    /// Returns the number of sequences claimed from the position on.
    ///
    /// It is more than the capacity if the next receive will report a lag. Publishers may increase it at any time.
    ///
    /// ```
    /// let (publisher, subscriber) = doorbell::ring::channel(8);
    /// publisher.publish_batch(0..10);
    /// assert_eq!(subscriber.backlog(), 10);
    /// ```
    pub fn backlog(&self) -> u64 {
        self.cursor.backlog()
    }

    /// Returns statistics of this subscriber. Costs nothing unless called.
    ///
    /// ```
    /// let (publisher, mut subscriber) = doorbell::ring::channel(2);
    /// publisher.publish_batch(0..5);
    /// subscriber.try_recv().unwrap_err();
    /// subscriber.try_recv().unwrap();
    /// let stats = subscriber.stats();
    /// assert_eq!((stats.received, stats.skipped, stats.void), (1, 3, 0));
    /// ```
    pub fn stats(&self) -> SubscriberStats {
        self.cursor.stats()
    }

    /// Returns the number of events that the ring retains.
    ///
    /// ```
    /// let (_publisher, subscriber) = doorbell::ring::channel::<u8>(1000);
    /// assert_eq!(subscriber.capacity(), 1000);
    /// ```
    pub fn capacity(&self) -> usize {
        self.cursor.shared().geometry.capacity() as usize
    }

    /// Returns `true` if every publisher was dropped. There may still be events to receive.
    ///
    /// ```
    /// let (publisher, subscriber) = doorbell::ring::channel::<u8>(8);
    /// assert!(!subscriber.is_closed());
    /// drop(publisher);
    /// assert!(subscriber.is_closed());
    /// ```
    pub fn is_closed(&self) -> bool {
        self.cursor.shared().is_closed()
    }

    /// Creates another subscriber of the same ring, which receives events published from now on. (A clone has the same position.)
    ///
    /// ```
    /// let (publisher, subscriber) = doorbell::ring::channel(8);
    /// publisher.publish(1);
    /// let mut fresh = subscriber.resubscribe();
    /// publisher.publish(2);
    /// assert_eq!(fresh.try_recv(), Ok(2));
    /// ```
    #[must_use]
    pub fn resubscribe(&self) -> Self {
        self.resubscribe_from(Start::Latest)
    }

    /// Creates another subscriber of the same ring, which starts at `start`, like
    /// [`Publisher::subscribe_from`](super::Publisher::subscribe_from).
    ///
    /// ```
    /// use doorbell::ring::{self, Start};
    ///
    /// let (publisher, mut subscriber) = ring::channel(8);
    /// publisher.publish_batch([10, 20, 30]);
    /// assert_eq!(subscriber.recv_blocking(), Ok(10));
    /// let mut again = subscriber.resubscribe_from(Start::After(0));
    /// assert_eq!(again.try_recv(), Ok(10));
    /// ```
    #[must_use]
    pub fn resubscribe_from(&self, start: Start) -> Self {
        Self::new(self.cursor.shared().clone(), start)
    }
}

/// The receives by value.
impl<T: Clone + Send + Sync + 'static> Subscriber<T> {
    /// Receives a clone of the event that was found last. If the clone panics, nothing was received.
    #[inline(always)]
    pub(super) fn take_clone(&mut self, found: Found<T>) -> T {
        let reading = EndOfRead(&mut self.cursor);
        // SAFETY: the cursor says that it reads the event until `reading` is dropped.
        let value = unsafe { found.with(T::clone) };
        reading.0.advance(found);
        value
    }

    /// Receives the next event, if there is one.
    ///
    /// ```
    /// use doorbell::ring::{self, TryRecvError};
    ///
    /// let (publisher, mut subscriber) = ring::channel(8);
    /// assert_eq!(subscriber.try_recv(), Err(TryRecvError::Empty));
    /// publisher.publish("a");
    /// assert_eq!(subscriber.try_recv(), Ok("a"));
    /// drop(publisher);
    /// assert_eq!(subscriber.try_recv(), Err(TryRecvError::Closed));
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`TryRecvError::Empty`] if the next event is not published yet, [`TryRecvError::Lagged`] if it and possibly others
    /// are lost (the position has moved past them), and [`TryRecvError::Closed`] if everything is received and every publisher
    /// was dropped.
    ///
    /// # Panics
    ///
    /// Panics if the clone panics; the event can then be received again.
    #[inline]
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        let found = self.cursor.next()?;
        Ok(self.take_clone(found))
    }

    /// Receives the next event with its sequence, if there is one, like [`Subscriber::try_recv`].
    ///
    /// ```
    /// let (publisher, mut subscriber) = doorbell::ring::channel(8);
    /// publisher.publish("a");
    /// assert_eq!(subscriber.try_recv_seq(), Ok((1, "a")));
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Subscriber::try_recv`].
    #[inline]
    pub fn try_recv_seq(&mut self) -> Result<(u64, T), TryRecvError> {
        let found = self.cursor.next()?;
        Ok((found.seq, self.take_clone(found)))
    }

    /// Waits for the next event. Runs on any executor.
    ///
    /// With the feature `tokio`, it takes part in tokio's cooperative budget.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel-safe: a dropped future has received nothing and leaves no waker behind.
    ///
    /// # Errors
    ///
    /// Returns [`RecvError::Lagged`] if events were lost, in which case the next call continues after them, and
    /// [`RecvError::Closed`] if the channel is closed and every retained event has been received.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// let (publisher, mut subscriber) = doorbell::ring::channel(8);
    /// publisher.publish("a");
    /// assert_eq!(subscriber.recv().await, Ok("a"));
    /// # });
    /// ```
    pub fn recv(&mut self) -> Recv<'_, T> {
        Recv::new(self)
    }

    /// Waits for the next event and its sequence, like [`Subscriber::recv`].
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// let (publisher, mut subscriber) = doorbell::ring::channel(8);
    /// publisher.publish("a");
    /// assert_eq!(subscriber.recv_seq().await, Ok((1, "a")));
    /// # });
    /// ```
    pub fn recv_seq(&mut self) -> RecvSeq<'_, T> {
        RecvSeq::new(self)
    }

    /// Waits for the next event and passes over lag, which [`Subscriber::stats`] counts.
    ///
    /// Returns `None` when the channel is closed. Cancel-safe, like [`Subscriber::recv`].
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// let (publisher, mut subscriber) = doorbell::ring::channel(2);
    /// publisher.publish_batch(1..6);
    /// drop(publisher);
    /// let mut seen = Vec::new();
    /// while let Some(event) = subscriber.recv_lossy().await {
    ///     seen.push(event);
    /// }
    /// assert_eq!(seen, [4, 5]);
    /// assert_eq!(subscriber.stats().skipped, 3);
    /// # });
    /// ```
    pub fn recv_lossy(&mut self) -> RecvLossy<'_, T> {
        RecvLossy::new(self)
    }

    /// Polls for the next event, for hand-written futures; otherwise like [`Subscriber::recv`].
    ///
    /// If pending, the task of `cx` is woken for the next event, unless another receive of this subscriber is called first or the
    /// subscriber is dropped.
    ///
    /// ```
    /// use std::task::Poll;
    ///
    /// # futures::executor::block_on(async {
    /// let (publisher, mut subscriber) = doorbell::ring::channel(8);
    /// publisher.publish("a");
    /// let event = std::future::poll_fn(|cx| subscriber.poll_recv(cx)).await;
    /// assert_eq!(event, Ok("a"));
    /// # });
    /// ```
    #[inline]
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, RecvError>> {
        self.poll_found(cx, ReadCursor::next)
            .map_ok(|found| self.take_clone(found))
    }

    /// Blocks the thread until it receives the next event.
    ///
    /// The ring's [`WaitStrategy`](super::WaitStrategy) determines how it waits. Do not call it from async code: it would block
    /// the executor's thread.
    ///
    /// ```
    /// let (publisher, mut subscriber) = doorbell::ring::channel(8);
    /// std::thread::spawn(move || publisher.publish("a"));
    /// assert_eq!(subscriber.recv_blocking(), Ok("a"));
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Subscriber::recv`].
    pub fn recv_blocking(&mut self) -> Result<T, RecvError> {
        let found = without_timeout(self.block(None))?;
        Ok(self.take_clone(found))
    }

    /// Blocks the thread until it receives the next event, at most for `timeout`.
    ///
    /// ```
    /// use doorbell::ring::{self, RecvTimeoutError};
    /// use std::time::Duration;
    ///
    /// let (publisher, mut subscriber) = ring::channel::<u8>(8);
    /// let received = subscriber.recv_timeout(Duration::from_millis(1));
    /// assert_eq!(received, Err(RecvTimeoutError::Timeout));
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Subscriber::recv_blocking`], and [`RecvTimeoutError::Timeout`] if the time runs out. An
    /// available event is received even with a zero `timeout`.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        // A deadline that overflows is no limit.
        let found = self.block(Instant::now().checked_add(timeout))?;
        Ok(self.take_clone(found))
    }

    /// Blocks the thread until it receives the next event, at most until `deadline`.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let (publisher, mut subscriber) = doorbell::ring::channel(8);
    /// publisher.publish("a");
    /// let deadline = Instant::now() + Duration::from_secs(1);
    /// assert_eq!(subscriber.recv_deadline(deadline), Ok("a"));
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Subscriber::recv_timeout`].
    pub fn recv_deadline(&mut self, deadline: Instant) -> Result<T, RecvTimeoutError> {
        let found = self.block(Some(deadline))?;
        Ok(self.take_clone(found))
    }

    /// Returns a blocking iterator over the events. A lag is an item; the iterator ends when the channel is closed.
    ///
    /// ```
    /// let (publisher, mut subscriber) = doorbell::ring::channel(2);
    /// publisher.publish_batch(1..6);
    /// drop(publisher);
    /// let mut seen = Vec::new();
    /// for event in subscriber.iter() {
    ///     match event {
    ///         Ok(event) => seen.push(event),
    ///         Err(lagged) => assert_eq!(lagged.skipped, 3),
    ///     }
    /// }
    /// assert_eq!(seen, [4, 5]);
    /// ```
    pub fn iter(&mut self) -> Iter<'_, T> {
        Iter::new(self)
    }

    /// Returns an iterator over the available events. A lag is an item; the iterator ends where a receive would have to wait.
    ///
    /// ```
    /// let (publisher, mut subscriber) = doorbell::ring::channel(8);
    /// publisher.publish_batch(1..4);
    /// let seen: Vec<_> = subscriber.try_iter().flatten().collect();
    /// assert_eq!(seen, [1, 2, 3]);
    /// ```
    pub fn try_iter(&mut self) -> TryIter<'_, T> {
        TryIter::new(self)
    }

    /// Converts the subscriber into a stream of the events. A lag is an item; the stream ends when the channel is closed.
    ///
    /// ```
    /// use futures::StreamExt;
    ///
    /// # futures::executor::block_on(async {
    /// let (publisher, subscriber) = doorbell::ring::channel(2);
    /// publisher.publish_batch(1..6);
    /// drop(publisher);
    /// let mut stream = subscriber.into_stream();
    /// assert_eq!(stream.next().await.unwrap().unwrap_err().skipped, 3);
    /// assert_eq!(stream.next().await, Some(Ok(4)));
    /// assert_eq!(stream.next().await, Some(Ok(5)));
    /// assert_eq!(stream.next().await, None);
    /// # });
    /// ```
    pub fn into_stream(self) -> SubscriberStream<T> {
        SubscriberStream::new(self)
    }
}

/// Ends the read of an event when it is dropped, even if the clone panics.
pub(super) struct EndOfRead<'a, T>(pub(super) &'a mut ReadCursor<T>);

impl<T> Drop for EndOfRead<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The result of a blocking receive without a deadline.
pub(super) fn without_timeout<F>(result: Result<F, RecvTimeoutError>) -> Result<F, RecvError> {
    result.map_err(|error| match error {
        RecvTimeoutError::Lagged(lagged) => RecvError::Lagged(lagged),
        RecvTimeoutError::Closed => RecvError::Closed,
        RecvTimeoutError::Timeout => unreachable!("there is no deadline"),
    })
}

impl<T> Clone for Subscriber<T> {
    fn clone(&self) -> Self {
        Self {
            wait: Wait::default(),
            cursor: self.cursor.fork(),
        }
    }
}

impl<T> Drop for Subscriber<T> {
    fn drop(&mut self) {
        self.wait.finish(&self.cursor);
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for Subscriber<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber")
            .field("position", &self.position())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
