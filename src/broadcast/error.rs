//! The errors of sending and receiving.

use core::fmt;

use crate::ring;

/// The error returned when there is no receiver. Contains the value.
///
/// ```
/// use doorbell::broadcast::{self, error::SendError};
///
/// let (tx, rx) = broadcast::channel(4);
/// drop(rx);
/// let SendError(value) = tx.send("hello").unwrap_err();
/// assert_eq!(value, "hello");
/// ```
#[derive(Debug)]
pub struct SendError<T>(pub T);

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing was sent: the channel has no receiver")
    }
}

impl<T: fmt::Debug> std::error::Error for SendError<T> {}

/// The error returned by receive methods that wait.
///
/// ```
/// use doorbell::broadcast::{self, error::RecvError};
///
/// # futures::executor::block_on(async {
/// let (tx, mut rx) = broadcast::channel(2);
/// for number in 1..=5 {
///     tx.send(number).unwrap();
/// }
/// drop(tx);
/// assert_eq!(rx.recv().await, Err(RecvError::Lagged(3)));
/// assert_eq!(rx.recv().await, Ok(4));
/// assert_eq!(rx.recv().await, Ok(5));
/// assert_eq!(rx.recv().await, Err(RecvError::Closed));
/// # });
/// ```
#[derive(Debug, PartialEq, Eq, Clone)]
pub enum RecvError {
    /// Every sender was dropped, and every retained message has been received.
    Closed,
    /// This many messages were overwritten before the receiver reached them. The next call receives the oldest retained message.
    Lagged(u64),
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the channel is closed: every sender was dropped"),
            Self::Lagged(skipped) => write!(f, "the receiver fell behind and missed {skipped} messages"),
        }
    }
}

impl std::error::Error for RecvError {}

impl From<ring::RecvError> for RecvError {
    fn from(error: ring::RecvError) -> Self {
        match error {
            ring::RecvError::Closed => Self::Closed,
            ring::RecvError::Lagged(lagged) => Self::Lagged(lagged.skipped),
        }
    }
}

/// The error returned by receive methods that do not wait.
///
/// ```
/// use doorbell::broadcast::{self, error::TryRecvError};
///
/// let (tx, mut rx) = broadcast::channel::<u8>(2);
/// assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
/// drop(tx);
/// assert_eq!(rx.try_recv(), Err(TryRecvError::Closed));
/// ```
#[derive(Debug, PartialEq, Eq, Clone)]
pub enum TryRecvError {
    /// There is no message yet.
    Empty,
    /// Every sender was dropped, and every retained message has been received.
    Closed,
    /// This many messages were overwritten before the receiver reached them. The next call receives the oldest retained message.
    Lagged(u64),
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("there is no message yet"),
            Self::Closed => RecvError::Closed.fmt(f),
            Self::Lagged(skipped) => RecvError::Lagged(*skipped).fmt(f),
        }
    }
}

impl std::error::Error for TryRecvError {}

impl From<ring::TryRecvError> for TryRecvError {
    fn from(error: ring::TryRecvError) -> Self {
        match error {
            ring::TryRecvError::Empty => Self::Empty,
            ring::TryRecvError::Closed => Self::Closed,
            ring::TryRecvError::Lagged(lagged) => Self::Lagged(lagged.skipped),
        }
    }
}
