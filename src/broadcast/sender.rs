//! The sending side.

use core::fmt;

use super::closed::Closed;
use super::error::SendError;
use super::receiver::Receiver;
use super::weak::WeakSender;
use crate::ring::{Publisher, Wake};

/// The sending half of a channel, created by [`channel`](super::channel). Clones send to the same channel, from any thread.
///
/// ```
/// use doorbell::broadcast;
///
/// let (tx, mut rx) = broadcast::channel(16);
/// let other = tx.clone();
/// std::thread::spawn(move || other.send("from another thread")).join().unwrap().unwrap();
/// assert_eq!(rx.try_recv(), Ok("from another thread"));
/// ```
pub struct Sender<T> {
    pub(super) publisher: Publisher<T>,
}

impl<T> Sender<T> {
    pub(super) fn over(publisher: Publisher<T>) -> Self {
        Self { publisher }
    }

    /// Creates a channel without receivers; [`Sender::subscribe`] adds them.
    ///
    /// ```
    /// use doorbell::broadcast::Sender;
    ///
    /// let tx = Sender::new(16);
    /// assert!(tx.send(1).is_err());
    /// let mut rx = tx.subscribe();
    /// assert_eq!(tx.send(2).unwrap(), 1);
    /// assert_eq!(rx.try_recv(), Ok(2));
    /// ```
    ///
    /// # Panics
    ///
    /// Panics under the same conditions as [`channel`](super::channel).
    #[must_use]
    #[track_caller]
    pub fn new(capacity: usize) -> Self
    where
        T: Send + Sync,
    {
        Self::over(super::open(capacity, Wake::All).0)
    }

    /// Sends `value` to every receiver, and returns their number.
    ///
    /// Never waits for a receiver: a full channel overwrites its oldest message. Wakes every receiver
    /// that waits, normally before it returns: if another call is waking receivers at that moment, that call wakes these too. (With
    /// [`Wake::Cascade`], see [`channel_with`](super::channel_with), it wakes a few, and these wake the rest.)
    ///
    /// A message that was sent is not necessarily received: a receiver may be dropped or fall behind.
    ///
    /// ```
    /// use doorbell::broadcast;
    ///
    /// let (tx, mut first) = broadcast::channel(16);
    /// let second = tx.subscribe();
    /// assert_eq!(tx.send("hello").unwrap(), 2);
    /// assert_eq!(first.try_recv(), Ok("hello"));
    /// # drop(second);
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`SendError`], which contains the value, if there is no receiver. A later subscription
    /// opens the channel again.
    #[inline]
    pub fn send(&self, value: T) -> Result<usize, SendError<T>> {
        self.publisher.send(value).map_err(SendError)
    }

    /// Creates a receiver, which receives messages sent from now on.
    ///
    /// ```
    /// use doorbell::broadcast;
    ///
    /// let (tx, _rx) = broadcast::channel(16);
    /// tx.send("before").unwrap();
    /// let mut rx = tx.subscribe();
    /// tx.send("after").unwrap();
    /// assert_eq!(rx.try_recv(), Ok("after"));
    /// ```
    pub fn subscribe(&self) -> Receiver<T> {
        Receiver::over(self.publisher.subscribe())
    }

    /// Creates a handle that does not keep the channel open.
    ///
    /// ```
    /// use doorbell::broadcast;
    ///
    /// let (tx, _rx) = broadcast::channel::<u8>(16);
    /// let weak = tx.downgrade();
    /// assert!(weak.upgrade().is_some());
    /// drop(tx);
    /// assert!(weak.upgrade().is_none());
    /// ```
    #[must_use = "this returns a weak handle and does not change the sender"]
    pub fn downgrade(&self) -> WeakSender<T> {
        WeakSender::of(self)
    }

    /// Returns the number of retained messages that at least one receiver has yet to receive. It may change at any time.
    ///
    /// This method reads the position of each receiver.
    ///
    /// ```
    /// use doorbell::broadcast;
    ///
    /// let (tx, mut quick) = broadcast::channel(16);
    /// let mut slow = tx.subscribe();
    /// tx.send(1).unwrap();
    /// tx.send(2).unwrap();
    /// quick.try_recv().unwrap();
    /// assert_eq!(tx.len(), 2);
    /// slow.try_recv().unwrap();
    /// assert_eq!(tx.len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.publisher.unread()
    }

    /// Returns `true` if every receiver has received everything.
    ///
    /// ```
    /// use doorbell::broadcast;
    ///
    /// let (tx, mut rx) = broadcast::channel(16);
    /// tx.send(1).unwrap();
    /// assert!(!tx.is_empty());
    /// rx.try_recv().unwrap();
    /// assert!(tx.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of receivers, which may change at any time.
    ///
    /// ```
    /// use doorbell::broadcast;
    ///
    /// let (tx, rx) = broadcast::channel::<u8>(16);
    /// let other = tx.subscribe();
    /// assert_eq!(tx.receiver_count(), 2);
    /// drop((rx, other));
    /// assert_eq!(tx.receiver_count(), 0);
    /// ```
    pub fn receiver_count(&self) -> usize {
        self.publisher.counts().subscribers()
    }

    /// Returns `true` if both send to the same channel.
    ///
    /// ```
    /// use doorbell::broadcast;
    ///
    /// let (tx, _rx) = broadcast::channel::<u8>(16);
    /// assert!(tx.same_channel(&tx.clone()));
    /// ```
    pub fn same_channel(&self, other: &Self) -> bool {
        self.publisher.same_channel(&other.publisher)
    }

    /// Waits until there is no receiver.
    ///
    /// The future completes when it is polled while there is no receiver. Receivers may be added again, even between the drop of
    /// the last one and that poll.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel-safe.
    ///
    /// ```
    /// use doorbell::broadcast;
    ///
    /// # futures::executor::block_on(async {
    /// let (tx, rx) = broadcast::channel::<u8>(16);
    /// let reader = std::thread::spawn(move || drop(rx));
    /// tx.closed().await;
    /// assert_eq!(tx.receiver_count(), 0);
    /// # reader.join().unwrap();
    /// # });
    /// ```
    pub fn closed(&self) -> Closed<'_> {
        Closed::new(self.publisher.counts())
    }

    /// Returns the number of senders.
    ///
    /// ```
    /// use doorbell::broadcast;
    ///
    /// let (tx, _rx) = broadcast::channel::<u8>(16);
    /// let other = tx.clone();
    /// assert_eq!(tx.strong_count(), 2);
    /// # drop(other);
    /// ```
    pub fn strong_count(&self) -> usize {
        self.publisher.publisher_count()
    }

    /// Returns the number of weak senders.
    ///
    /// ```
    /// use doorbell::broadcast;
    ///
    /// let (tx, _rx) = broadcast::channel::<u8>(16);
    /// let weak = tx.downgrade();
    /// assert_eq!(tx.weak_count(), 1);
    /// # drop(weak);
    /// ```
    pub fn weak_count(&self) -> usize {
        self.publisher.counts().weak_senders()
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self::over(self.publisher.clone())
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("receivers", &self.receiver_count())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
