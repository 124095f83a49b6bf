//! What the drop-in needs of the ring beyond the ring's own interface.
//!
//! Nothing here bounds `T`: making a channel does, and the drop-in's handles can then be named and used without repeating it, as
//! tokio's can.

use core::task::{Context, Poll, ready};

use super::builder::{Builder, Start};
use super::cursor::{Found, ReadCursor};
use super::error::{BuildError, RecvError, TryRecvError};
use super::publisher::{Publisher, WeakPublisher};
use super::release::RecheckRelease;
use super::shared::RingShared;
use super::subscriber::{Subscriber, without_timeout};
use super::subscriber_count::SubscriberCount;
use crate::sync::Arc;

/// Makes a ring; `T` need not be `'static`, since nothing but its handles keeps it.
pub(crate) fn open<T: Send + Sync>(builder: &Builder) -> Result<(Publisher<T>, Subscriber<T>), BuildError> {
    let core = Arc::new(RingShared::new(builder.checked::<T>()?));
    let subscriber = Subscriber::new(core.clone(), Start::Latest);
    Ok((Publisher::from_core(core), subscriber))
}

impl<T> Publisher<T> {
    /// Publishes for those who are there and says how many these are; gives the value back when nobody is.
    #[inline]
    pub(crate) fn send(&self, value: T) -> Result<usize, T> {
        let core = self.core();
        let subscribers = core.counts.subscribers();
        if subscribers == 0 {
            return Err(value);
        }
        let look_again = core::mem::needs_drop::<T>().then(|| RecheckRelease(core));
        core.publish_claimed(core.claim(), value);
        drop(look_again);
        Ok(subscribers)
    }

    /// How many events are retained that somebody has yet to receive.
    pub(crate) fn unread(&self) -> usize {
        let core = self.core();
        let mut slowest = u64::MAX;
        core.announcements.positions(|position| slowest = slowest.min(position));
        core.tail().saturating_sub(slowest).min(core.geometry.capacity()) as usize
    }

    pub(crate) fn counts(&self) -> &Arc<SubscriberCount> {
        &self.core().counts
    }

    pub(crate) fn publisher_count(&self) -> usize {
        self.core().publisher_count()
    }
}

impl<T> WeakPublisher<T> {
    pub(crate) fn publisher_count(&self) -> usize {
        self.core().map_or(0, |core| core.publisher_count())
    }
}

impl<T> Subscriber<T> {
    /// From now on, if this subscriber is the last to go, it takes what is retained with it; or no longer.
    pub(crate) fn set_releasing(&mut self, releases: bool) {
        self.cursor_mut().releases = releases;
    }

    /// A new subscriber of the same ring.
    pub(crate) fn sibling(&self) -> Self {
        Self::new(self.cursor().core().clone(), Start::Latest)
    }

    pub(crate) fn unread(&self) -> usize {
        self.cursor().backlog() as usize
    }

    pub(crate) fn counts(&self) -> &SubscriberCount {
        &self.cursor().core().counts
    }

    pub(crate) fn publisher_count(&self) -> usize {
        self.cursor().core().publisher_count()
    }

    pub(crate) fn shares_ring_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.cursor().core(), other.cursor().core())
    }

    /// Ends the wait of a future that is dropped.
    pub(crate) fn stop_waiting(&mut self) {
        self.cancel_wait();
    }
}

/// Receives that consume the event before they clone it: if the clone panics, the event is passed over.
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
        self.cursor_mut().advance();
        // SAFETY: the cursor is not asked for another event before the end of this call.
        unsafe { found.with(T::clone) }
    }
}
