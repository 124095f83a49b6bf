//! With the feature `tokio`, takes part in tokio's cooperative budget.

use core::task::{Context, Poll};

/// Asks for budget in this poll. Dropping the result without `made_progress` returns the budget.
#[cfg(feature = "tokio")]
pub(crate) fn poll_proceed(cx: &mut Context<'_>) -> Poll<tokio::task::coop::RestoreOnPending> {
    tokio::task::coop::poll_proceed(cx)
}

/// Without the feature, lets every poll proceed.
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
