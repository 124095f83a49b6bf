//! `resync`: a snapshot and its deltas, then a new snapshot after each lag.

use core::convert::Infallible;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::sync::Arc;

use futures_core::Stream;
use futures_core::stream::BoxStream;

use super::publisher::ClusterEventPublisher;
use super::seam::{self, Attachment, Seam};
use crate::ring::{RecvError, Subscriber};

/// An item of a [`ClusterEventPublisher::resync`] stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a state and its changes: a third kind is not possible"
)]
pub enum Resync<S, E> {
    /// A new state. Discard the previous one.
    Snapshot(S),
    /// A change to the state.
    Delta(E),
}

impl<E: Clone + Send + Sync + 'static> ClusterEventPublisher<E> {
    /// Returns a stream that yields a snapshot, then the events that follow it, and a new snapshot after each lag.
    ///
    /// Polling the stream calls `snapshot` and polls its future. [`Seam::mark`] works as in [`ClusterEventPublisher::splice`].
    ///
    /// Once the last publisher has been dropped, the stream yields the retained events and ends. If it finds only then that it
    /// lagged, it yields a last snapshot first. The stream does not count as a publisher, but a publisher captured by `snapshot`
    /// does and would keep the stream from ever ending. Capture the state instead of the service.
    ///
    /// Choose a capacity larger than the number of events emitted while a snapshot is taken. Otherwise, the stream lags after
    /// every snapshot.
    ///
    /// ```
    /// use doorbell::cluster::{ClusterEventPublisher, Resync};
    /// use futures::StreamExt;
    /// use std::num::NonZeroUsize;
    /// use std::sync::{Arc, Mutex};
    ///
    /// # futures::executor::block_on(async {
    /// let publisher = ClusterEventPublisher::with_capacity(NonZeroUsize::new(2).unwrap());
    /// let total = Arc::new(Mutex::new(0));
    /// let add = |amount: i32| {
    ///     let mut total = total.lock().unwrap();
    ///     *total += amount;
    ///     publisher.emit(|_| amount);
    /// };
    /// let source = total.clone();
    /// let mut console = publisher.resync(move |seam| {
    ///     let source = source.clone();
    ///     async move {
    ///         let total = source.lock().unwrap();
    ///         seam.mark();
    ///         *total
    ///     }
    /// });
    /// assert_eq!(console.next().await, Some(Resync::Snapshot(0)));
    /// add(5);
    /// assert_eq!(console.next().await, Some(Resync::Delta(5)));
    /// (1..=3).for_each(add); // one more than the capacity
    /// assert_eq!(console.next().await, Some(Resync::Snapshot(11)));
    /// # });
    /// ```
    pub fn resync<S, F, Fut>(&self, mut snapshot: F) -> BoxStream<'static, Resync<S, E>>
    where
        S: Send + 'static,
        F: FnMut(Seam) -> Fut + Send + 'static,
        Fut: Future<Output = S> + Send + 'static,
    {
        let inner = self.try_resync(move |seam| {
            let snapshot = snapshot(seam);
            async move { Ok::<S, Infallible>(snapshot.await) }
        });
        Box::pin(UnwrapInfallible { inner })
    }

    /// Like [`ClusterEventPublisher::resync`], for snapshots that can fail.
    ///
    /// A failed snapshot is an `Err` item and does not end the stream: the next poll tries again. Back off before polling again,
    /// or drop the stream.
    ///
    /// ```
    /// use doorbell::cluster::{ClusterEventPublisher, Resync};
    /// use futures::StreamExt;
    /// use std::num::NonZeroUsize;
    ///
    /// # futures::executor::block_on(async {
    /// let publisher = ClusterEventPublisher::<u64>::with_capacity(NonZeroUsize::new(2).unwrap());
    /// let mut answers = ["seven", "7"].into_iter();
    /// let mut console = publisher.try_resync(move |seam| {
    ///     seam.mark();
    ///     std::future::ready(answers.next().unwrap().parse::<u64>())
    /// });
    /// assert!(console.next().await.unwrap().is_err());
    /// assert_eq!(console.next().await, Some(Ok(Resync::Snapshot(7))));
    /// # });
    /// ```
    pub fn try_resync<S, X, F, Fut>(&self, snapshot: F) -> BoxStream<'static, Result<Resync<S, E>, X>>
    where
        S: Send + 'static,
        X: Send + 'static,
        F: FnMut(Seam) -> Fut + Send + 'static,
        Fut: Future<Output = Result<S, X>> + Send + 'static,
    {
        Box::pin(Resyncing {
            snapshot,
            subscriber: Some(self.attach()),
            state: State::Due,
        })
    }
}

struct Resyncing<E: Send + Sync + 'static, F, Fut> {
    snapshot: F,
    /// Reads the deltas. While a snapshot is due, serves only to attach to the ring again. `None` once the stream has ended.
    subscriber: Option<Subscriber<E>>,
    state: State<E, Fut>,
}

enum State<E: Send + Sync + 'static, Fut> {
    /// The next poll starts a snapshot.
    Due,
    /// The snapshot function's future is being polled.
    Taking(Arc<Attachment<E>>, Pin<Box<Fut>>),
    /// Deltas are being read.
    Reading,
}

// Only the boxed future is pinned.
impl<E: Send + Sync + 'static, F, Fut> Unpin for Resyncing<E, F, Fut> {}

impl<S, X, E, F, Fut> Stream for Resyncing<E, F, Fut>
where
    E: Clone + Send + Sync + 'static,
    F: FnMut(Seam) -> Fut,
    Fut: Future<Output = Result<S, X>>,
{
    type Item = Result<Resync<S, E>, X>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            let Some(subscriber) = &mut this.subscriber else {
                return Poll::Ready(None);
            };
            // If the snapshot function panics, `Due` stays behind, and the next poll tries again.
            match core::mem::replace(&mut this.state, State::Due) {
                State::Due => {
                    let (seam, attachment) = seam::attach(subscriber.resubscribe());
                    let snapshot = Box::pin((this.snapshot)(seam));
                    this.state = State::Taking(attachment, snapshot);
                }
                State::Taking(attachment, mut snapshot) => match snapshot.as_mut().poll(cx) {
                    Poll::Pending => {
                        this.state = State::Taking(attachment, snapshot);
                        return Poll::Pending;
                    }
                    Poll::Ready(Ok(snapshot)) => {
                        (_, *subscriber) = attachment.after_snapshot();
                        this.state = State::Reading;
                        return Poll::Ready(Some(Ok(Resync::Snapshot(snapshot))));
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                },
                State::Reading => {
                    this.state = State::Reading;
                    match ready!(subscriber.poll_recv(cx)) {
                        Ok(event) => return Poll::Ready(Some(Ok(Resync::Delta(event)))),
                        Err(RecvError::Lagged(_)) => this.state = State::Due,
                        Err(RecvError::Closed) => this.subscriber = None,
                    }
                }
            }
        }
    }
}

/// Unwraps the items of a stream that cannot fail.
struct UnwrapInfallible<T> {
    inner: BoxStream<'static, Result<T, Infallible>>,
}

impl<T> Stream for UnwrapInfallible<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.inner.as_mut().poll_next(cx).map(|item| match item? {
            Ok(item) => Some(item),
        })
    }
}
