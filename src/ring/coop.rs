//! Takes part in tokio's cooperative budget, with the feature `tokio`.

use core::task::{Context, Poll};

/// Asks for budget in this poll. Dropping the result without `made_progress` returns the budget.
#[cfg(feature = "tokio")]
pub(crate) fn poll_proceed(cx: &mut Context<'_>) -> Poll<tokio::task::coop::RestoreOnPending> {
    tokio::task::coop::poll_proceed(cx)
}

/// Without the feature, every poll may go on.
#[cfg(not(feature = "tokio"))]
pub(crate) fn poll_proceed(_: &mut Context<'_>) -> Poll<Unlimited> {
    Poll::Ready(Unlimited)
}

#[cfg(not(feature = "tokio"))]
pub(crate) struct Unlimited;

#[cfg(not(feature = "tokio"))]
impl Unlimited {
    #[expect(clippy::unused_self, reason = "mirrors tokio's type")]
    pub(crate) fn made_progress(&self) {}
}
