//! Weak senders, which do not keep the channel open.

use core::fmt;

use super::sender::Sender;
use crate::ring::{SubscriberCount, WeakPublisher};
use crate::sync::Arc;

/// A sender that does not keep the channel open, created by [`Sender::downgrade`].
///
/// ```
/// use doorbell::broadcast;
///
/// let (tx, mut rx) = broadcast::channel(16);
/// let weak = tx.downgrade();
/// weak.upgrade().expect("still open").send("hello").unwrap();
/// assert_eq!(rx.try_recv(), Ok("hello"));
/// ```
pub struct WeakSender<T> {
    publisher: WeakPublisher<T>,
    counts: Arc<SubscriberCount>,
}

impl<T> WeakSender<T> {
    pub(super) fn of(sender: &Sender<T>) -> Self {
        let counts = sender.publisher.counts().clone();
        counts.weak_sender_added();
        Self {
            publisher: sender.publisher.downgrade(),
            counts,
        }
    }

    /// Creates a sender, or returns `None` if the last one was dropped: a closed channel stays closed.
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
    #[must_use]
    pub fn upgrade(&self) -> Option<Sender<T>> {
        self.publisher.upgrade().map(Sender::over)
    }

    /// Returns the number of senders.
    ///
    /// ```
    /// use doorbell::broadcast;
    ///
    /// let (tx, _rx) = broadcast::channel::<u8>(16);
    /// let weak = tx.downgrade();
    /// assert_eq!(weak.strong_count(), 1);
    /// drop(tx);
    /// assert_eq!(weak.strong_count(), 0);
    /// ```
    pub fn strong_count(&self) -> usize {
        self.publisher.publisher_count()
    }

    /// Returns the number of weak senders, including this one.
    ///
    /// ```
    /// use doorbell::broadcast;
    ///
    /// let (tx, _rx) = broadcast::channel::<u8>(16);
    /// let weak = tx.downgrade();
    /// assert_eq!(weak.clone().weak_count(), 2);
    /// assert_eq!(weak.weak_count(), 1);
    /// ```
    pub fn weak_count(&self) -> usize {
        self.counts.weak_senders()
    }
}

impl<T> Clone for WeakSender<T> {
    fn clone(&self) -> Self {
        self.counts.weak_sender_added();
        Self {
            publisher: self.publisher.clone(),
            counts: self.counts.clone(),
        }
    }
}

impl<T> Drop for WeakSender<T> {
    fn drop(&mut self) {
        self.counts.weak_sender_gone();
    }
}

impl<T> fmt::Debug for WeakSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakSender")
            .field("senders", &self.strong_count())
            .finish_non_exhaustive()
    }
}
