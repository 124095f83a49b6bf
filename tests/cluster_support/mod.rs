//! Shared by the cluster tests: a service whose state reveals every lost, repeated or reordered event.

use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use doorbell::cluster::{ClusterEventMeta, ClusterEventPublisher, ClusterStreamLagged, Seam};
use futures::Stream;
use futures::stream::BoxStream;

/// The stream that a console reads.
pub(crate) type Deltas<E> = BoxStream<'static, Result<E, ClusterStreamLagged>>;

/// A change of [`State`], with its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    pub(crate) seq: u64,
    pub(crate) value: u64,
}

impl Change {
    pub(crate) fn new(meta: ClusterEventMeta, value: u64) -> Self {
        Self {
            seq: meta.cluster_seq,
            value,
        }
    }
}

/// Depends on every change and on the order of changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct State {
    changes: u64,
    digest: u64,
}

impl State {
    /// The number of changes applied.
    pub(crate) fn changes(self) -> u64 {
        self.changes
    }

    pub(crate) fn apply(&mut self, value: u64) {
        self.changes += 1;
        self.digest = self.digest.wrapping_mul(0x0100_0000_01b3).wrapping_add(value + 1);
    }
}

/// A service that changes its state and emits under one lock.
pub(crate) struct Service {
    pub(crate) publisher: ClusterEventPublisher<Change>,
    state: Mutex<State>,
}

impl Service {
    pub(crate) fn new(publisher: ClusterEventPublisher<Change>) -> Self {
        Self {
            publisher,
            state: Mutex::new(State::default()),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no change panics under the lock")
    }

    /// Changes the state and emits.
    pub(crate) fn change(&self, value: u64) -> Change {
        let mut state = self.lock();
        state.apply(value);
        self.publisher.emit(|meta| Change::new(meta, value))
    }

    /// The snapshot function of a marked splice.
    pub(crate) fn marked(&self, seam: &Seam) -> State {
        let state = self.lock();
        seam.mark();
        *state
    }
}

pub(crate) fn capacity(capacity: usize) -> NonZeroUsize {
    NonZeroUsize::new(capacity).expect("not zero")
}

/// Polls once, with a waker that does nothing.
pub(crate) fn poll<S: Stream + ?Sized>(stream: &mut Pin<Box<S>>) -> Poll<Option<S::Item>> {
    stream.as_mut().poll_next(&mut Context::from_waker(Waker::noop()))
}

/// Returns every item that is ready, up to a lag or the end.
pub(crate) fn drain<E>(stream: &mut Deltas<E>) -> Vec<Result<E, ClusterStreamLagged>> {
    std::iter::from_fn(|| match poll(stream) {
        Poll::Ready(item) => item,
        Poll::Pending => None,
    })
    .collect()
}
