//! The seam between a snapshot and the events that follow it.
//!
//! A splice attaches to the ring, takes the snapshot, and then needs the events above what the snapshot holds. What was emitted
//! while the snapshot was taken has been kept by the ring like everything else, so suppressing is nothing but starting behind the
//! mark. If that start is overwritten before the first event is read, the stream lags, and counts from the mark.

use core::fmt;
use std::sync::Arc;

use futures_core::stream::BoxStream;

use super::stream::{ClusterStreamLagged, Deltas};
use crate::ring::{Start, Subscriber};
use crate::sync::Mutex;

/// Given to a snapshot function, to say when exactly the snapshot is taken.
///
/// See [`ClusterEventPublisher::splice`](super::ClusterEventPublisher::splice).
pub struct Seam {
    attachment: Arc<dyn Mark>,
}

impl Seam {
    /// Says that the snapshot holds exactly what has been emitted until now: call it under the lock under which the service changes
    /// its state and emits, and read the state under the same hold of the lock. Returns the number of the last event that the
    /// snapshot holds, as [`as_of_seq`](super::ClusterEventPublisher::as_of_seq) does.
    ///
    /// Nobody emits under that lock meanwhile, so what has been numbered is finished and in the state, and what comes later is
    /// neither. Of events that are emitted *outside* of the lock this cannot be said: one may be numbered, and suppressed, and its
    /// change not yet be in the state.
    ///
    /// If called more than once (the snapshot had to be read again), the last call counts. After the snapshot function has ended
    /// it changes nothing.
    ///
    /// ```
    /// use doorbell::cluster::ClusterEventPublisher;
    /// use std::num::NonZeroUsize;
    ///
    /// let publisher = ClusterEventPublisher::with_capacity(NonZeroUsize::new(64).unwrap());
    /// publisher.emit(|meta| meta);
    /// let spliced = publisher.splice(|seam| seam.mark());
    /// assert_eq!((spliced.snapshot, spliced.as_of_seq), (1, 1));
    /// ```
    pub fn mark(&self) -> u64 {
        self.attachment.mark()
    }
}

impl fmt::Debug for Seam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seam").finish_non_exhaustive()
    }
}

/// A snapshot, and the events that follow it.
pub struct Spliced<S, E> {
    /// What the snapshot function returned.
    pub snapshot: S,
    /// The number of the last event that the snapshot is known to hold; the deltas begin above it. If the seam was marked, that is
    /// all that the snapshot holds.
    pub as_of_seq: u64,
    /// What has happened since, and happens from now on. Ends after a lag; then it is time for another splice.
    pub deltas: BoxStream<'static, Result<E, ClusterStreamLagged>>,
}

impl<S: fmt::Debug, E> fmt::Debug for Spliced<S, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spliced")
            .field("snapshot", &self.snapshot)
            .field("as_of_seq", &self.as_of_seq)
            .finish_non_exhaustive()
    }
}

/// An attachment, whatever its events are.
trait Mark: Send + Sync {
    fn mark(&self) -> u64;
}

/// A subscriber at the position from before the snapshot, and the mark that was made since.
pub(super) struct Attachment<E: Send + Sync + 'static> {
    subscriber: Subscriber<E>,
    marked: Mutex<Option<u64>>,
}

impl<E: Send + Sync + 'static> Mark for Attachment<E> {
    fn mark(&self) -> u64 {
        // It has received nothing, so it stands at or before the end of the ring.
        let as_of_seq = self.subscriber.position() + self.subscriber.backlog() - 1;
        *self.marked.lock() = Some(as_of_seq);
        as_of_seq
    }
}

/// The seam for the snapshot function, and the attachment to be kept meanwhile.
pub(super) fn attach<E: Send + Sync + 'static>(subscriber: Subscriber<E>) -> (Seam, Arc<Attachment<E>>) {
    let attachment = Arc::new(Attachment {
        subscriber,
        marked: Mutex::new(None),
    });
    let seam = Seam {
        attachment: attachment.clone(),
    };
    (seam, attachment)
}

impl<E: Clone + Send + Sync + 'static> Attachment<E> {
    /// The end of a splice.
    pub(super) fn detach<S>(&self, snapshot: S) -> Spliced<S, E> {
        let (as_of_seq, subscriber) = self.after_snapshot();
        Spliced {
            snapshot,
            as_of_seq,
            deltas: Deltas::boxed(subscriber),
        }
    }

    /// What the snapshot is known to hold, and a subscriber to what it may not hold.
    pub(super) fn after_snapshot(&self) -> (u64, Subscriber<E>) {
        let marked = *self.marked.lock();
        match marked {
            Some(as_of_seq) => (as_of_seq, self.subscriber.resubscribe_from(Start::After(as_of_seq))),
            None => (self.subscriber.position() - 1, self.subscriber.clone()),
        }
    }
}
