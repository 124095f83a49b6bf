//! From the drop-in's handles to the ring's own, and back: nothing is copied, and both kinds can serve one channel.

use super::{Receiver, Sender};
use crate::ring::{Publisher, Subscriber};

/// The ring's publisher becomes a sender: it gives values back when nobody is there.
///
/// The rules of the ring stay: which capacity it has, who is woken by whom, and where a receiver that lagged goes on.
///
/// ```
/// use doorbell::broadcast::Sender;
/// use doorbell::ring;
///
/// let (publisher, subscriber) = ring::channel(8);
/// let tx = Sender::from(publisher);
/// drop(subscriber);
/// assert!(tx.send("ding").is_err());
/// ```
impl<T> From<Publisher<T>> for Sender<T> {
    fn from(publisher: Publisher<T>) -> Self {
        Self::over(publisher)
    }
}

/// A sender becomes the ring's publisher, which publishes whether or not anybody is there.
///
/// ```
/// use doorbell::broadcast;
/// use doorbell::ring::Publisher;
///
/// let (tx, mut rx) = broadcast::channel(8);
/// let publisher = Publisher::from(tx);
/// publisher.publish_batch(["ding", "dong"]);
/// assert_eq!(rx.try_recv(), Ok("ding"));
/// ```
impl<T> From<Sender<T>> for Publisher<T> {
    fn from(sender: Sender<T>) -> Self {
        sender.publisher
    }
}

/// The ring's subscriber becomes a receiver, at its position.
///
/// ```
/// use doorbell::broadcast::Receiver;
/// use doorbell::ring;
///
/// let (publisher, subscriber) = ring::channel(8);
/// publisher.publish("ding");
/// let mut rx = Receiver::from(subscriber);
/// assert_eq!(rx.try_recv(), Ok("ding"));
/// ```
impl<T> From<Subscriber<T>> for Receiver<T> {
    fn from(subscriber: Subscriber<T>) -> Self {
        Self::over(subscriber)
    }
}

/// A receiver becomes the ring's subscriber, at its position. Its drop does not release what is retained.
///
/// ```
/// use doorbell::broadcast;
/// use doorbell::ring::Subscriber;
///
/// let (tx, rx) = broadcast::channel(8);
/// tx.send("ding").unwrap();
/// let mut subscriber = Subscriber::from(rx);
/// assert_eq!(*subscriber.try_recv_ref().unwrap(), "ding");
/// ```
impl<T> From<Receiver<T>> for Subscriber<T> {
    fn from(receiver: Receiver<T>) -> Self {
        let mut subscriber = receiver.subscriber;
        subscriber.set_releasing(false);
        subscriber
    }
}

impl<T> Sender<T> {
    /// The publisher underneath, for what only it can do.
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
    /// The subscriber underneath, to look at its position and figures.
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

    /// The subscriber underneath, for the receives that only it has.
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
