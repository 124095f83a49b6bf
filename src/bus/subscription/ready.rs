//! Waits for the start of a subscription.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::bus::BusError;
use crate::bus::hub::StartWait;

/// The future returned by [`BusSubscription::ready`](super::BusSubscription::ready).
///
/// It does not borrow the subscription. If the subscription is dropped before it is ready, the future completes with
/// [`BusError::Closed`].
#[must_use = "futures do nothing unless polled"]
pub struct Ready(StartWait);

impl Ready {
    pub(super) fn new(start: StartWait) -> Self {
        Self(start)
    }
}

impl Future for Ready {
    type Output = Result<(), BusError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx).map_ok(|_| ())
    }
}

impl std::fmt::Debug for Ready {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ready").finish_non_exhaustive()
    }
}
