//! Iterators over the events of a subscriber.

use super::error::{Lagged, RecvError, TryRecvError};
use super::subscriber::Subscriber;

/// A blocking iterator over events, created by [`Subscriber::iter`].
///
/// ```
/// let (publisher, mut subscriber) = doorbell::ring::channel(8);
/// publisher.publish(1);
/// drop(publisher);
/// assert_eq!(subscriber.iter().next(), Some(Ok(1)));
/// ```
#[derive(Debug)]
pub struct Iter<'a, T: Send + Sync + 'static>(&'a mut Subscriber<T>);

impl<'a, T: Send + Sync + 'static> Iter<'a, T> {
    pub(super) fn new(subscriber: &'a mut Subscriber<T>) -> Self {
        Self(subscriber)
    }
}

impl<T: Clone + Send + Sync + 'static> Iterator for Iter<'_, T> {
    type Item = Result<T, Lagged>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.0.recv_blocking() {
            Ok(value) => Some(Ok(value)),
            Err(RecvError::Lagged(lagged)) => Some(Err(lagged)),
            Err(RecvError::Closed) => None,
        }
    }
}

/// An iterator over the available events, created by [`Subscriber::try_iter`].
///
/// ```
/// let (publisher, mut subscriber) = doorbell::ring::channel(8);
/// publisher.publish(1);
/// assert_eq!(subscriber.try_iter().count(), 1);
/// ```
#[derive(Debug)]
pub struct TryIter<'a, T: Send + Sync + 'static>(&'a mut Subscriber<T>);

impl<'a, T: Send + Sync + 'static> TryIter<'a, T> {
    pub(super) fn new(subscriber: &'a mut Subscriber<T>) -> Self {
        Self(subscriber)
    }
}

impl<T: Clone + Send + Sync + 'static> Iterator for TryIter<'_, T> {
    type Item = Result<T, Lagged>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.0.try_recv() {
            Ok(value) => Some(Ok(value)),
            Err(TryRecvError::Lagged(lagged)) => Some(Err(lagged)),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }
}
