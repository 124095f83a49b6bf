//! The stream that a console reads: events in order, until it ends or has lagged.
//!
//! What an event's number is, the stream need not know: an event's number is its sequence in the ring, so whatever has to be
//! suppressed lies below the position at which the ring's subscriber starts.

use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::BoxStream;
use serde::{Deserialize, Serialize};

use crate::ring::{RecvError, Subscriber};

/// A stream fell behind by more than the capacity, and has ended: time for a new snapshot.
///
/// ```
/// use doorbell::cluster::{ClusterEventPublisher, ClusterStreamLagged};
/// use futures::StreamExt;
/// use std::num::NonZeroUsize;
///
/// # futures::executor::block_on(async {
/// let publisher = ClusterEventPublisher::with_capacity(NonZeroUsize::new(4).unwrap());
/// let mut stream = publisher.subscribe(3); // events 1 to 3 are known already
/// for _ in 1..=10 {
///     publisher.emit(|meta| meta.cluster_seq);
/// }
/// assert_eq!(stream.next().await, Some(Err(ClusterStreamLagged { skipped: 3 }))); // 4, 5 and 6
/// assert_eq!(stream.next().await, None);
/// # });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ClusterStreamLagged {
    /// How many events the stream has lost. Those it had to suppress anyway do not count; numbers that became void unseen do.
    pub skipped: u64,
}

impl fmt::Display for ClusterStreamLagged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cluster event stream lagged: {} events lost", self.skipped)
    }
}

impl std::error::Error for ClusterStreamLagged {}

pub(super) struct Deltas<E: Send + Sync + 'static> {
    /// `None` once the stream has ended.
    subscriber: Option<Subscriber<E>>,
}

impl<E: Clone + Send + Sync + 'static> Deltas<E> {
    pub(super) fn boxed(subscriber: Subscriber<E>) -> BoxStream<'static, Result<E, ClusterStreamLagged>> {
        Box::pin(Self {
            subscriber: Some(subscriber),
        })
    }
}

impl<E: Clone + Send + Sync + 'static> Stream for Deltas<E> {
    type Item = Result<E, ClusterStreamLagged>;

    #[inline]
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(subscriber) = &mut self.subscriber else {
            return Poll::Ready(None);
        };
        let last = match ready!(subscriber.poll_recv(cx)) {
            Ok(event) => return Poll::Ready(Some(Ok(event))),
            Err(RecvError::Lagged(lagged)) => Some(Err(ClusterStreamLagged {
                skipped: lagged.skipped,
            })),
            Err(RecvError::Closed) => None,
        };
        self.subscriber = None;
        Poll::Ready(last)
    }
}
