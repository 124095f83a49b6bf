//! The seam between a snapshot and the events that follow it.
//!
//! A splice attaches to the ring, takes the snapshot, and then reads the events that the snapshot does not include. The ring
//! retains what is emitted meanwhile, so suppressing the included events only takes starting the subscriber after the mark. If
//! that position is overwritten before the first read, the stream lags and counts from the mark.

use core::fmt;
use std::sync::Arc;

use futures_core::stream::BoxStream;

use super::stream::{ClusterEventStream, ClusterStreamLagged};
use crate::ring::{Start, Subscriber};
use crate::sync::Mutex;

/// Passed to a snapshot function, to mark the exact point at which the snapshot is taken.
///
/// See [`ClusterEventPublisher::splice`](super::ClusterEventPublisher::splice).
pub struct Seam {
    attachment: Arc<dyn Mark>,
}

impl Seam {
    /// Declares that the snapshot includes exactly the events emitted so far. Returns the number of the last one, like
    /// [`as_of_seq`](super::ClusterEventPublisher::as_of_seq).
    ///
    /// Call it while holding the lock under which the service changes its state and emits, and read the state before releasing
    /// that lock. While the lock is held, no other thread emits under it, so every numbered event is published and included in
    /// the state, and every later event is neither. This does not hold for events emitted *outside* the lock: such an event can
    /// be numbered, and therefore suppressed, before its change is in the state.
    ///
    /// If it is called more than once, for example because the snapshot had to be read again, the last call counts. A call after
    /// the snapshot function has finished has no effect.
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

/// A snapshot and the events that follow it.
pub struct Spliced<S, E> {
    /// What the snapshot function returned.
    pub snapshot: S,
    /// The number of the last event that the snapshot is known to include. The deltas begin after it. If the seam was marked, the
    /// snapshot includes no later event.
    pub as_of_seq: u64,
    /// The events after `as_of_seq`. The stream ends after a lag; splice again.
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

/// An attachment with its event type erased.
trait Mark: Send + Sync {
    fn mark(&self) -> u64;
}

/// A subscriber at the position before the snapshot, and the mark made since.
pub(super) struct Attachment<E: Send + Sync + 'static> {
    subscriber: Subscriber<E>,
    marked: Mutex<Option<u64>>,
}

impl<E: Send + Sync + 'static> Mark for Attachment<E> {
    fn mark(&self) -> u64 {
        // The subscriber has received nothing, so its position plus its backlog is the next number to be claimed.
        let as_of_seq = self.subscriber.position() + self.subscriber.backlog() - 1;
        *self.marked.lock() = Some(as_of_seq);
        as_of_seq
    }
}

/// Returns the seam for the snapshot function, and the attachment to hold while it runs.
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
    /// Completes a splice.
    pub(super) fn finish<S>(&self, snapshot: S) -> Spliced<S, E> {
        let (as_of_seq, subscriber) = self.after_snapshot();
        Spliced {
            snapshot,
            as_of_seq,
            deltas: ClusterEventStream::boxed(subscriber),
        }
    }

    /// Returns the last number that the snapshot is known to include, and a subscriber that starts after it.
    pub(super) fn after_snapshot(&self) -> (u64, Subscriber<E>) {
        let marked = *self.marked.lock();
        match marked {
            Some(as_of_seq) => (as_of_seq, self.subscriber.resubscribe_from(Start::After(as_of_seq))),
            None => (self.subscriber.position() - 1, self.subscriber.clone()),
        }
    }
}
