//! The stream that a console reads: events in order, until the stream lags or the last publisher is dropped.
//!
//! An event's number is its sequence number in the ring. To suppress events, the ring's subscriber starts above them; the stream
//! itself never looks at the numbers.

use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::BoxStream;
use serde::{Deserialize, Serialize};

use crate::ring::{RecvError, Subscriber};

/// A stream fell behind by more than the capacity and has ended. Take a new snapshot.
///
/// ```
/// use doorbell::cluster::{ClusterEventPublisher, ClusterStreamLagged};
/// use futures::StreamExt;
/// use std::num::NonZeroUsize;
///
/// # futures::executor::block_on(async {
/// let publisher = ClusterEventPublisher::with_capacity(NonZeroUsize::new(4).unwrap());
/// let mut stream = publisher.subscribe(3); // the snapshot includes events 1 to 3
/// for _ in 1..=10 {
///     publisher.emit(|meta| meta.cluster_seq);
/// }
/// assert_eq!(stream.next().await, Some(Err(ClusterStreamLagged { skipped: 3 }))); // 4, 5 and 6
/// assert_eq!(stream.next().await, None);
/// # });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ClusterStreamLagged {
    /// The number of events lost. Suppressed events do not count. A number that a panic in `emit` made void counts, unless the
    /// stream has passed it before.
    pub skipped: u64,
}

impl fmt::Display for ClusterStreamLagged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cluster event stream lagged: {} events lost", self.skipped)
    }
}

impl std::error::Error for ClusterStreamLagged {}

/// The stream behind `subscribe`, `resume` and `splice`.
pub(super) struct ClusterEventStream<E: Send + Sync + 'static> {
    /// `None` once the stream has ended.
    subscriber: Option<Subscriber<E>>,
}

impl<E: Clone + Send + Sync + 'static> ClusterEventStream<E> {
    pub(super) fn boxed(subscriber: Subscriber<E>) -> BoxStream<'static, Result<E, ClusterStreamLagged>> {
        Box::pin(Self {
            subscriber: Some(subscriber),
        })
    }
}

impl<E: Clone + Send + Sync + 'static> Stream for ClusterEventStream<E> {
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
