//! Receivers as streams, with the module and type names of `tokio_stream::wrappers`.

use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};

use futures_core::Stream;

use super::error::RecvError;
use super::receiver::Receiver;
use errors::BroadcastStreamRecvError;

/// The error items of streams.
pub mod errors {
    use core::fmt;

    /// The error items of a [`BroadcastStream`](super::BroadcastStream).
    ///
    /// ```
    /// use doorbell::broadcast::wrappers::errors::BroadcastStreamRecvError;
    ///
    /// let error = BroadcastStreamRecvError::Lagged(3);
    /// assert_eq!(error.to_string(), "the receiver fell behind and missed 3 messages");
    /// ```
    #[derive(Debug, PartialEq, Eq, Clone)]
    pub enum BroadcastStreamRecvError {
        /// This many messages were overwritten before the stream reached them. It continues with the oldest retained message.
        Lagged(u64),
    }

    impl fmt::Display for BroadcastStreamRecvError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let Self::Lagged(skipped) = self;
            super::RecvError::Lagged(*skipped).fmt(f)
        }
    }

    impl std::error::Error for BroadcastStreamRecvError {}
}

/// A stream of a receiver's messages. A lag is an item, after which the stream continues; the stream ends when the channel is
/// closed.
///
/// ```
/// use doorbell::broadcast::{self, wrappers::{BroadcastStream, errors::BroadcastStreamRecvError}};
/// use futures::StreamExt;
///
/// # futures::executor::block_on(async {
/// let (tx, rx) = broadcast::channel(2);
/// for number in 1..=5 {
///     tx.send(number).unwrap();
/// }
/// drop(tx);
/// let items: Vec<_> = BroadcastStream::new(rx).collect().await;
/// assert_eq!(items, [Err(BroadcastStreamRecvError::Lagged(3)), Ok(4), Ok(5)]);
/// # });
/// ```
pub struct BroadcastStream<T> {
    receiver: Receiver<T>,
}

impl<T> BroadcastStream<T> {
    /// Creates a stream from a receiver.
    ///
    /// ```
    /// use doorbell::broadcast::{self, wrappers::BroadcastStream};
    ///
    /// let (_tx, rx) = broadcast::channel::<u8>(2);
    /// let stream = BroadcastStream::new(rx);
    /// # drop(stream);
    /// ```
    pub fn new(receiver: Receiver<T>) -> Self {
        Self { receiver }
    }

    /// Returns the receiver, at the position of the next item.
    ///
    /// ```
    /// use doorbell::broadcast;
    ///
    /// let (tx, rx) = broadcast::channel(2);
    /// tx.send(1).unwrap();
    /// let mut rx = rx.into_stream().into_inner();
    /// assert_eq!(rx.try_recv(), Ok(1));
    /// ```
    pub fn into_inner(mut self) -> Receiver<T> {
        self.receiver.stop_waiting();
        self.receiver
    }
}

impl<T: Clone> Stream for BroadcastStream<T> {
    type Item = Result<T, BroadcastStreamRecvError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.receiver.poll_recv(cx).map(|received| match received {
            Ok(value) => Some(Ok(value)),
            Err(RecvError::Lagged(skipped)) => Some(Err(BroadcastStreamRecvError::Lagged(skipped))),
            Err(RecvError::Closed) => None,
        })
    }
}

impl<T> From<Receiver<T>> for BroadcastStream<T> {
    fn from(receiver: Receiver<T>) -> Self {
        Self::new(receiver)
    }
}

impl<T> fmt::Debug for BroadcastStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BroadcastStream")
            .field("receiver", &self.receiver)
            .finish()
    }
}
