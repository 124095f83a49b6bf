//! The receiving side.

use core::fmt;
use core::task::{Context, Poll};

use super::error::{RecvError, TryRecvError};
use super::recv::Recv;
use super::wrappers::BroadcastStream;
use crate::ring::Subscriber;

/// The receiving half of a channel.
///
/// Created by [`channel`](super::channel), [`Sender::subscribe`](super::Sender::subscribe) and [`Receiver::resubscribe`].
///
/// A receiver that falls more than the capacity behind gets one [`RecvError::Lagged`] with the exact number of messages it
/// missed, and continues with the oldest retained message. A loop that handles lag must not end at the first error:
///
/// ```
/// use doorbell::broadcast::{self, error::RecvError};
///
/// # futures::executor::block_on(async {
/// let (tx, mut rx) = broadcast::channel(4);
/// for number in 1..=6 {
///     tx.send(number).unwrap();
/// }
/// drop(tx);
/// let (mut seen, mut missed) = (Vec::new(), 0);
/// loop {
///     match rx.recv().await {
///         Ok(number) => seen.push(number),
///         Err(RecvError::Lagged(skipped)) => missed += skipped,
///         Err(RecvError::Closed) => break,
///     }
/// }
/// assert_eq!((seen, missed), (vec![3, 4, 5, 6], 2));
/// # });
/// ```
///
/// [`Receiver::into_stream`] simplifies that loop: its items are results, and it ends when the channel is closed.
///
/// Dropping the last receiver drops the retained messages.
pub struct Receiver<T> {
    pub(super) subscriber: Subscriber<T>,
}

impl<T> Receiver<T> {
    pub(super) fn over(mut subscriber: Subscriber<T>) -> Self {
        subscriber.set_releasing(true);
        Self { subscriber }
    }

    /// Returns the number of messages that were sent and that this receiver has not received.
    ///
    /// It is more than the capacity if the next receive will report a lag. Senders may increase it at any time.
    ///
    /// ```
    /// use doorbell::broadcast;
    ///
    /// let (tx, mut rx) = broadcast::channel(16);
    /// tx.send(1).unwrap();
    /// tx.send(2).unwrap();
    /// assert_eq!(rx.len(), 2);
    /// rx.try_recv().unwrap();
    /// assert_eq!(rx.len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.subscriber.unread()
    }

    /// Returns `true` if this receiver has received everything that was sent.
    ///
    /// ```
    /// use doorbell::broadcast;
    ///
    /// let (tx, rx) = broadcast::channel(16);
    /// assert!(rx.is_empty());
    /// tx.send(1).unwrap();
    /// assert!(!rx.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns `true` if both receive from the same channel.
    ///
    /// ```
    /// use doorbell::broadcast;
    ///
    /// let (tx, rx) = broadcast::channel::<u8>(16);
    /// assert!(rx.same_channel(&tx.subscribe()));
    /// ```
    pub fn same_channel(&self, other: &Self) -> bool {
        self.subscriber.shares_ring_with(&other.subscriber)
    }

    /// Returns `true` if every sender was dropped. There may still be messages to receive.
    ///
    /// ```
    /// use doorbell::broadcast;
    ///
    /// let (tx, rx) = broadcast::channel::<u8>(16);
    /// assert!(!rx.is_closed());
    /// drop(tx);
    /// assert!(rx.is_closed());
    /// ```
    pub fn is_closed(&self) -> bool {
        self.sender_strong_count() == 0
    }

    /// Returns the number of senders.
    ///
    /// ```
    /// use doorbell::broadcast;
    ///
    /// let (tx, rx) = broadcast::channel::<u8>(16);
    /// assert_eq!(rx.sender_strong_count(), 1);
    /// # drop(tx);
    /// ```
    pub fn sender_strong_count(&self) -> usize {
        self.subscriber.publisher_count()
    }

    /// Returns the number of weak senders.
    ///
    /// ```
    /// use doorbell::broadcast;
    ///
    /// let (tx, rx) = broadcast::channel::<u8>(16);
    /// let weak = tx.downgrade();
    /// assert_eq!(rx.sender_weak_count(), 1);
    /// # drop(weak);
    /// ```
    pub fn sender_weak_count(&self) -> usize {
        self.subscriber.counts().weak_senders()
    }

    pub(super) fn stop_waiting(&mut self) {
        self.subscriber.stop_waiting();
    }
}

/// The receive methods.
///
/// A message counts as received before it is cloned: if the clone panics, the next call receives the next message.
impl<T: Clone> Receiver<T> {
    /// Creates another receiver of the same channel, which receives messages sent from now on.
    ///
    /// ```
    /// use doorbell::broadcast;
    ///
    /// let (tx, mut rx) = broadcast::channel(16);
    /// tx.send(1).unwrap();
    /// let mut fresh = rx.resubscribe();
    /// tx.send(2).unwrap();
    /// assert_eq!(fresh.try_recv(), Ok(2));
    /// assert_eq!(rx.try_recv(), Ok(1));
    /// ```
    #[must_use]
    pub fn resubscribe(&self) -> Self {
        Self::over(self.subscriber.sibling())
    }

    /// Waits for the next message. Runs on any executor.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel-safe: a dropped future has received nothing and leaves no waker behind.
    ///
    /// # Errors
    ///
    /// Returns [`RecvError::Lagged`] if messages were missed, in which case the next call continues after them, and
    /// [`RecvError::Closed`] if every sender was dropped and no message is left.
    ///
    /// ```
    /// use doorbell::broadcast;
    ///
    /// # futures::executor::block_on(async {
    /// let (tx, mut rx) = broadcast::channel(16);
    /// tx.send("hello").unwrap();
    /// assert_eq!(rx.recv().await, Ok("hello"));
    /// # });
    /// ```
    pub fn recv(&mut self) -> Recv<'_, T> {
        Recv::new(self)
    }

    /// Receives the next message, if there is one.
    ///
    /// ```
    /// use doorbell::broadcast::{self, error::TryRecvError};
    ///
    /// let (tx, mut rx) = broadcast::channel(16);
    /// assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
    /// tx.send("hello").unwrap();
    /// assert_eq!(rx.try_recv(), Ok("hello"));
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`TryRecvError::Empty`] if there is no message yet; [`TryRecvError::Lagged`] if messages were missed, in which
    /// case the next call continues after them; and [`TryRecvError::Closed`] if every sender was dropped and no message is left.
    #[inline]
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        self.subscriber.try_take().map_err(TryRecvError::from)
    }

    /// Blocks the thread until it receives the next message.
    ///
    /// ```
    /// use doorbell::broadcast;
    ///
    /// let (tx, mut rx) = broadcast::channel(16);
    /// std::thread::spawn(move || tx.send("hello"));
    /// assert_eq!(rx.blocking_recv(), Ok("hello"));
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Receiver::recv`].
    ///
    /// # Panics
    ///
    /// With the feature `tokio`, panics inside a tokio task, whose worker thread must not be blocked.
    #[track_caller]
    pub fn blocking_recv(&mut self) -> Result<T, RecvError> {
        #[cfg(feature = "tokio")]
        refuse_within_a_task();
        self.subscriber.take_blocking().map_err(RecvError::from)
    }

    /// Converts the receiver into a stream of its messages. A lag is an item; the stream ends when the channel is closed.
    ///
    /// ```
    /// use doorbell::broadcast;
    /// use futures::StreamExt;
    ///
    /// # futures::executor::block_on(async {
    /// let (tx, rx) = broadcast::channel(16);
    /// tx.send(1).unwrap();
    /// tx.send(2).unwrap();
    /// drop(tx);
    /// let items: Vec<_> = rx.into_stream().collect().await;
    /// assert_eq!(items, [Ok(1), Ok(2)]);
    /// # });
    /// ```
    pub fn into_stream(self) -> BroadcastStream<T> {
        BroadcastStream::new(self)
    }

    #[inline]
    pub(super) fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, RecvError>> {
        self.subscriber.poll_take(cx).map_err(RecvError::from)
    }
}

/// Panics inside a tokio task, as every blocking call of tokio does: this function makes one, on a free lock.
#[cfg(feature = "tokio")]
#[track_caller]
fn refuse_within_a_task() {
    drop(tokio::sync::Mutex::const_new(()).blocking_lock());
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("len", &self.len())
            .field("senders", &self.sender_strong_count())
            .finish_non_exhaustive()
    }
}
