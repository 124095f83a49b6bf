//! Turns a subscriber into a stream.

use core::pin::Pin;
use core::task::{Context, Poll};

use futures_core::Stream;

use super::error::{Lagged, RecvError};
use super::subscriber::Subscriber;

/// A stream of events, created by [`Subscriber::into_stream`].
///
/// A lag is an item, after which the stream continues. The stream ends when the channel is closed.
///
/// ```
/// use futures::StreamExt;
///
/// # futures::executor::block_on(async {
/// let (publisher, subscriber) = doorbell::ring::channel(8);
/// publisher.publish(1);
/// drop(publisher);
/// let items: Vec<_> = subscriber.into_stream().collect().await;
/// assert_eq!(items, [Ok(1)]);
/// # });
/// ```
#[derive(Debug)]
pub struct SubscriberStream<T: Send + Sync + 'static> {
    subscriber: Subscriber<T>,
}

impl<T: Send + Sync + 'static> SubscriberStream<T> {
    pub(super) fn new(subscriber: Subscriber<T>) -> Self {
        Self { subscriber }
    }

    /// Returns the subscriber, at the position of the next item.
    ///
    /// ```
    /// let (publisher, subscriber) = doorbell::ring::channel(8);
    /// publisher.publish(1);
    /// let mut subscriber = subscriber.into_stream().into_inner();
    /// assert_eq!(subscriber.try_recv(), Ok(1));
    /// ```
    pub fn into_inner(mut self) -> Subscriber<T> {
        self.subscriber.cancel_wait();
        self.subscriber
    }

    /// Returns the subscriber, for example for its position and statistics.
    ///
    /// ```
    /// let (_publisher, subscriber) = doorbell::ring::channel::<u8>(8);
    /// assert_eq!(subscriber.into_stream().get_ref().position(), 1);
    /// ```
    pub fn get_ref(&self) -> &Subscriber<T> {
        &self.subscriber
    }
}

impl<T: Clone + Send + Sync + 'static> Stream for SubscriberStream<T> {
    type Item = Result<T, Lagged>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.subscriber.poll_recv(cx).map(|received| match received {
            Ok(value) => Some(Ok(value)),
            Err(RecvError::Lagged(lagged)) => Some(Err(lagged)),
            Err(RecvError::Closed) => None,
        })
    }
}
