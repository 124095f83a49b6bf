//! Converts between the handles of this module and those of the ring. No value is copied, and one channel can have both kinds.

use super::{Receiver, Sender};
use crate::ring::{Publisher, Subscriber};

/// Converts the ring's publisher into a sender, which returns values when there is no receiver.
///
/// The settings of the ring remain: its capacity, how receivers are woken, and where a receiver continues after a lag.
///
/// ```
/// use doorbell::broadcast::Sender;
/// use doorbell::ring;
///
/// let (publisher, subscriber) = ring::channel(8);
/// let tx = Sender::from(publisher);
/// drop(subscriber);
/// assert!(tx.send("hello").is_err());
/// ```
impl<T> From<Publisher<T>> for Sender<T> {
    fn from(publisher: Publisher<T>) -> Self {
        Self::over(publisher)
    }
}

/// Converts a sender into the ring's publisher, which publishes whether or not there is a receiver.
///
/// ```
/// use doorbell::broadcast;
/// use doorbell::ring::Publisher;
///
/// let (tx, mut rx) = broadcast::channel(8);
/// let publisher = Publisher::from(tx);
/// publisher.publish_batch(["hello", "world"]);
/// assert_eq!(rx.try_recv(), Ok("hello"));
/// ```
impl<T> From<Sender<T>> for Publisher<T> {
    fn from(sender: Sender<T>) -> Self {
        sender.publisher
    }
}

/// Converts the ring's subscriber into a receiver at the same position.
///
/// ```
/// use doorbell::broadcast::Receiver;
/// use doorbell::ring;
///
/// let (publisher, subscriber) = ring::channel(8);
/// publisher.publish("hello");
/// let mut rx = Receiver::from(subscriber);
/// assert_eq!(rx.try_recv(), Ok("hello"));
/// ```
impl<T> From<Subscriber<T>> for Receiver<T> {
    fn from(subscriber: Subscriber<T>) -> Self {
        Self::over(subscriber)
    }
}

/// Converts a receiver into the ring's subscriber at the same position. Dropping that subscriber does not drop retained values.
///
/// ```
/// use doorbell::broadcast;
/// use doorbell::ring::Subscriber;
///
/// let (tx, rx) = broadcast::channel(8);
/// tx.send("hello").unwrap();
/// let mut subscriber = Subscriber::from(rx);
/// assert_eq!(*subscriber.try_recv_ref().unwrap(), "hello");
/// ```
impl<T> From<Receiver<T>> for Subscriber<T> {
    fn from(receiver: Receiver<T>) -> Self {
        let mut subscriber = receiver.subscriber;
        subscriber.set_releasing(false);
        subscriber
    }
}

impl<T> Sender<T> {
    /// Returns the underlying publisher, for the methods that only it has.
    ///
    /// ```
    /// use doorbell::broadcast;
    ///
    /// let (tx, mut rx) = broadcast::channel(8);
    /// assert_eq!(tx.as_publisher().publish_with(|seq| seq * 10), 1);
    /// assert_eq!(rx.try_recv(), Ok(10));
    /// ```
    pub fn as_publisher(&self) -> &Publisher<T> {
        &self.publisher
    }
}

impl<T> Receiver<T> {
    /// Returns the underlying subscriber, for example for its position and statistics.
    ///
    /// ```
    /// use doorbell::broadcast;
    ///
    /// let (_tx, rx) = broadcast::channel::<u8>(8);
    /// assert_eq!(rx.as_subscriber().position(), 1);
    /// ```
    pub fn as_subscriber(&self) -> &Subscriber<T> {
        &self.subscriber
    }

    /// Returns the underlying subscriber, for the receive methods that only it has.
    ///
    /// ```
    /// use doorbell::broadcast;
    ///
    /// let (tx, mut rx) = broadcast::channel(8);
    /// tx.send(1).unwrap();
    /// tx.send(2).unwrap();
    /// let sum: i32 = rx.as_subscriber_mut().try_recv_batch(8).unwrap().sum();
    /// # let _ = sum;
    /// ```
    pub fn as_subscriber_mut(&mut self) -> &mut Subscriber<T> {
        &mut self.subscriber
    }
}
