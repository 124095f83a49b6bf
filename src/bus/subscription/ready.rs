//! Waiting for the start of a subscription.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;

use crate::bus::BusError;
use crate::bus::gate::Opened;
use crate::bus::hub::{StartPosition, StartSignal};

/// See [`BusSubscription::ready`](super::BusSubscription::ready). Independent of the subscription, which can be moved away
/// meanwhile. If that is dropped before it is ready, this completes with [`BusError::Closed`].
#[must_use = "futures do nothing unless polled"]
pub struct Ready(Opened<Result<StartPosition, BusError>>);

impl Ready {
    pub(super) fn new(gate: StartSignal) -> Self {
        Self(gate.opened())
    }
}

impl Future for Ready {
    type Output = Result<(), BusError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_unpin(cx).map(|start| start.map(|_| ()))
    }
}

impl std::fmt::Debug for Ready {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ready").finish_non_exhaustive()
    }
}
