//! Waits until there is no receiver.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use crate::ring::{AbsenceTicket, SubscriberCount};

/// The future returned by [`Sender::closed`](super::Sender::closed). Dropping it leaves no waker behind.
#[must_use = "futures do nothing unless polled"]
pub struct Closed<'a> {
    counts: &'a SubscriberCount,
    ticket: Option<AbsenceTicket>,
}

impl<'a> Closed<'a> {
    pub(super) fn new(counts: &'a SubscriberCount) -> Self {
        Self { counts, ticket: None }
    }
}

impl Future for Closed<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let counts = self.counts;
        counts.poll_absence(&mut self.ticket, cx)
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.counts.forget(ticket);
        }
    }
}

impl fmt::Debug for Closed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closed").finish_non_exhaustive()
    }
}
