//! A console that never gives up: snapshot, deltas, and after a lag the same again.

use core::convert::Infallible;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::sync::Arc;

use futures_core::Stream;
use futures_core::stream::BoxStream;

use super::publisher::ClusterEventPublisher;
use super::seam::{self, Attachment, Seam};
use crate::ring::{RecvError, Subscriber};

/// An item of [`ClusterEventPublisher::resync`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(clippy::exhaustive_enums, reason = "a state and its changes: there is no third kind")]
pub enum Resync<S, E> {
    /// The state to start from: what was known before is to be forgotten.
    Snapshot(S),
    /// A change to it.
    Delta(E),
}

impl<E: Clone + Send + Sync + 'static> ClusterEventPublisher<E> {
    /// A stream of snapshots and of the events that follow them: begins with a snapshot, and takes a new one after each lag.
    ///
    /// `snapshot` is called, and its future polled, by the polls of the stream; about [`Seam::mark`] the same holds as in
    /// [`ClusterEventPublisher::splice`]. Ends when the last publisher is gone, after what is still to be read; the stream itself is
    /// none. (A lag that is found only then still gives a last snapshot.)
    ///
    /// Let `snapshot` capture the state, not the service: a publisher that it holds is never gone, and the stream never ends.
    ///
    /// If more than the capacity is emitted in the time that each snapshot takes, snapshots follow one another: choose the capacity
    /// accordingly.
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
    /// (1..=3).for_each(add); // one too many for the capacity
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
        Box::pin(Unfailing { inner })
    }

    /// As [`ClusterEventPublisher::resync`], with a snapshot that may fail.
    ///
    /// A failure is an item, and not the end: the next poll tries again. Wait as long as suits the failure before you ask for the
    /// next item, or drop the stream.
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
            step: Step::Due,
        })
    }
}

struct Resyncing<E: Send + Sync + 'static, F, Fut> {
    snapshot: F,
    /// Delivers the deltas; leads to the ring when they are lost. `None` once the stream has ended.
    subscriber: Option<Subscriber<E>>,
    step: Step<E, Fut>,
}

enum Step<E: Send + Sync + 'static, Fut> {
    /// A snapshot is to be taken.
    Due,
    /// It is being taken.
    Taking(Arc<Attachment<E>>, Pin<Box<Fut>>),
    /// The deltas are being read.
    Reading,
}

// Nothing in it is pinned but the boxed future.
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
            // A panic of the snapshot function leaves `Due`, so that the next poll tries again.
            match core::mem::replace(&mut this.step, Step::Due) {
                Step::Due => {
                    let (seam, attachment) = seam::attach(subscriber.resubscribe());
                    let snapshot = Box::pin((this.snapshot)(seam));
                    this.step = Step::Taking(attachment, snapshot);
                }
                Step::Taking(attachment, mut snapshot) => match snapshot.as_mut().poll(cx) {
                    Poll::Pending => {
                        this.step = Step::Taking(attachment, snapshot);
                        return Poll::Pending;
                    }
                    Poll::Ready(Ok(snapshot)) => {
                        (_, *subscriber) = attachment.after_snapshot();
                        this.step = Step::Reading;
                        return Poll::Ready(Some(Ok(Resync::Snapshot(snapshot))));
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                },
                Step::Reading => {
                    this.step = Step::Reading;
                    match ready!(subscriber.poll_recv(cx)) {
                        Ok(event) => return Poll::Ready(Some(Ok(Resync::Delta(event)))),
                        Err(RecvError::Lagged(_)) => this.step = Step::Due,
                        Err(RecvError::Closed) => this.subscriber = None,
                    }
                }
            }
        }
    }
}

/// A stream that cannot fail, without its results.
struct Unfailing<T> {
    inner: BoxStream<'static, Result<T, Infallible>>,
}

impl<T> Stream for Unfailing<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.inner.as_mut().poll_next(cx).map(|item| match item? {
            Ok(item) => Some(item),
        })
    }
}
