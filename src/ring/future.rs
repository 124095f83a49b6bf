//! The futures of the async receives. All are cancel-safe: dropping one ends its wait; it has then received nothing.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use super::batch::Batch;
use super::cursor::{Found, ReadCursor};
use super::error::RecvError;
use super::recv_ref::Ref;
use super::subscriber::Subscriber;
use super::wait::Find;

/// The result of a future: its subscriber, and the event that it found.
type FoundBy<'a, T> = Result<(&'a mut Subscriber<T>, Found<T>), RecvError>;

/// The subscriber that a future waits with, until the future completes.
struct PendingRecv<'a, T: Send + Sync + 'static>(Option<&'a mut Subscriber<T>>);

impl<'a, T: Send + Sync + 'static> PendingRecv<'a, T> {
    /// Polls for an event, and returns the subscriber with it.
    ///
    /// # Panics
    ///
    /// Panics if it has already returned the subscriber.
    #[inline]
    fn poll(&mut self, cx: &mut Context<'_>, find: impl Find<T>) -> Poll<FoundBy<'a, T>> {
        let subscriber = self.0.as_mut().expect("a future was polled after it had completed");
        let found = ready!(subscriber.poll_found(cx, find));
        let subscriber = self.0.take().expect("it was there a moment ago");
        Poll::Ready(found.map(|found| (subscriber, found)))
    }
}

impl<T: Send + Sync + 'static> Drop for PendingRecv<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(subscriber) = &mut self.0 {
            subscriber.cancel_wait();
        }
    }
}

macro_rules! future {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[must_use = "futures do nothing unless polled"]
        pub struct $name<'a, T: Send + Sync + 'static>(PendingRecv<'a, T>);

        impl<'a, T: Send + Sync + 'static> $name<'a, T> {
            pub(super) fn new(subscriber: &'a mut Subscriber<T>) -> Self {
                Self(PendingRecv(Some(subscriber)))
            }
        }

        impl<T: Send + Sync + 'static> fmt::Debug for $name<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    };
}

future!(
    /// The future returned by [`Subscriber::recv`].
    Recv
);
future!(
    /// The future returned by [`Subscriber::recv_seq`].
    RecvSeq
);
future!(
    /// The future returned by [`Subscriber::recv_ref`].
    RecvRef
);

impl<T: Clone + Send + Sync + 'static> Future for Recv<'_, T> {
    type Output = Result<T, RecvError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0
            .poll(cx, ReadCursor::next)
            .map_ok(|(subscriber, found)| subscriber.take_clone(found))
    }
}

impl<T: Clone + Send + Sync + 'static> Future for RecvSeq<'_, T> {
    type Output = Result<(u64, T), RecvError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0
            .poll(cx, ReadCursor::next)
            .map_ok(|(subscriber, found)| (found.seq, subscriber.take_clone(found)))
    }
}

impl<'a, T: Send + Sync + 'static> Future for RecvRef<'a, T> {
    type Output = Result<Ref<'a, T>, RecvError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0
            .poll(cx, ReadCursor::next)
            .map_ok(|(subscriber, found)| subscriber.take_ref(found))
    }
}

/// The future returned by [`Subscriber::recv_batch`].
#[must_use = "futures do nothing unless polled"]
pub struct RecvBatch<'a, T: Send + Sync + 'static> {
    waiting: PendingRecv<'a, T>,
    max: usize,
}

impl<'a, T: Send + Sync + 'static> RecvBatch<'a, T> {
    pub(super) fn new(subscriber: &'a mut Subscriber<T>, max: usize) -> Self {
        Self {
            waiting: PendingRecv(Some(subscriber)),
            max,
        }
    }
}

impl<'a, T: Send + Sync + 'static> Future for RecvBatch<'a, T> {
    type Output = Result<Batch<'a, T>, RecvError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let max = self.max;
        let find = move |cursor: &mut ReadCursor<T>| cursor.next_for_batch(max as u64);
        self.waiting
            .poll(cx, find)
            .map_ok(|(subscriber, _)| Batch::new(subscriber, max))
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for RecvBatch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvBatch")
            .field("max", &self.max)
            .finish_non_exhaustive()
    }
}

/// The future returned by [`Subscriber::recv_lossy`].
#[must_use = "futures do nothing unless polled"]
pub struct RecvLossy<'a, T: Send + Sync + 'static> {
    subscriber: &'a mut Subscriber<T>,
}

impl<'a, T: Send + Sync + 'static> RecvLossy<'a, T> {
    pub(super) fn new(subscriber: &'a mut Subscriber<T>) -> Self {
        Self { subscriber }
    }
}

impl<T: Clone + Send + Sync + 'static> Future for RecvLossy<'_, T> {
    type Output = Option<T>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match ready!(self.subscriber.poll_recv(cx)) {
                Ok(value) => return Poll::Ready(Some(value)),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return Poll::Ready(None),
            }
        }
    }
}

impl<T: Send + Sync + 'static> Drop for RecvLossy<'_, T> {
    fn drop(&mut self) {
        self.subscriber.cancel_wait();
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for RecvLossy<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvLossy").finish_non_exhaustive()
    }
}
