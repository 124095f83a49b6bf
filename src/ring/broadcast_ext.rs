//! Functions for `broadcast`, the drop-in replacement for tokio's channel, that the ring's public interface does not have.
//!
//! Only creating a channel bounds `T`; nothing else here does. So the handles of `broadcast` can be named and used without
//! repeating the bound, as tokio's can.

use core::task::{Context, Poll, ready};

use super::builder::{Builder, Start};
use super::cursor::{Found, ReadCursor};
use super::error::{BuildError, RecvError, TryRecvError};
use super::publisher::{Publisher, WeakPublisher};
use super::release::RecheckRelease;
use super::shared::RingShared;
use super::subscriber::{EndOfRead, Subscriber, without_timeout};
use super::subscriber_count::SubscriberCount;
use crate::sync::Arc;

/// Creates a ring. `T` need not be `'static`, since only the handles keep the ring alive.
pub(crate) fn open<T: Send + Sync>(builder: &Builder) -> Result<(Publisher<T>, Subscriber<T>), BuildError> {
    let shared = Arc::new(RingShared::new(builder.checked::<T>()?));
    let subscriber = Subscriber::new(shared.clone(), Start::Latest);
    Ok((Publisher::from_shared(shared), subscriber))
}

impl<T> Publisher<T> {
    /// Publishes and returns the number of subscribers; returns the value if there is none.
    #[inline]
    pub(crate) fn send(&self, value: T) -> Result<usize, T> {
        let shared = self.shared();
        let subscribers = shared.counts.subscribers();
        if subscribers == 0 {
            return Err(value);
        }
        let recheck = core::mem::needs_drop::<T>().then(|| RecheckRelease(shared));
        shared.publish_claimed(shared.claim(), value);
        drop(recheck);
        Ok(subscribers)
    }

    /// Returns the number of retained events that at least one subscriber has yet to receive.
    pub(crate) fn unread(&self) -> usize {
        let shared = self.shared();
        let mut slowest = u64::MAX;
        shared
            .announcements
            .positions(|position| slowest = slowest.min(position));
        shared.tail().saturating_sub(slowest).min(shared.geometry.capacity()) as usize
    }

    pub(crate) fn counts(&self) -> &Arc<SubscriberCount> {
        &self.shared().counts
    }

    pub(crate) fn publisher_count(&self) -> usize {
        self.shared().publisher_count()
    }
}

impl<T> WeakPublisher<T> {
    pub(crate) fn publisher_count(&self) -> usize {
        self.shared().map_or(0, |shared| shared.publisher_count())
    }
}

impl<T> Subscriber<T> {
    /// Sets whether this subscriber, if it is the last to be dropped, drops the retained values.
    pub(crate) fn set_releasing(&mut self, releases: bool) {
        self.cursor_mut().releases = releases;
    }

    /// Creates a subscriber of the same ring.
    pub(crate) fn sibling(&self) -> Self {
        Self::new(self.cursor().shared().clone(), Start::Latest)
    }

    pub(crate) fn unread(&self) -> usize {
        self.cursor().backlog() as usize
    }

    pub(crate) fn counts(&self) -> &SubscriberCount {
        &self.cursor().shared().counts
    }

    pub(crate) fn publisher_count(&self) -> usize {
        self.cursor().shared().publisher_count()
    }

    pub(crate) fn shares_ring_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.cursor().shared(), other.cursor().shared())
    }

    /// Ends the wait of a future that is dropped.
    pub(crate) fn stop_waiting(&mut self) {
        self.cancel_wait();
    }
}

/// Receive methods that consume the event before they clone it: if the clone panics, the event counts as received.
impl<T: Clone> Subscriber<T> {
    #[inline]
    pub(crate) fn try_take(&mut self) -> Result<T, TryRecvError> {
        let found = self.cursor_mut().next()?;
        Ok(self.consume(found))
    }

    #[inline]
    pub(crate) fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, RecvError>> {
        let found = ready!(self.poll_found(cx, ReadCursor::next));
        Poll::Ready(found.map(|found| self.consume(found)))
    }

    pub(crate) fn take_blocking(&mut self) -> Result<T, RecvError> {
        let found = without_timeout(self.block(None))?;
        Ok(self.consume(found))
    }

    #[inline(always)]
    fn consume(&mut self, found: Found<T>) -> T {
        let reading = EndOfRead(self.cursor_mut());
        reading.0.advance(found);
        // SAFETY: the cursor says that it reads the event until `reading` is dropped.
        unsafe { found.with(T::clone) }
    }
}
