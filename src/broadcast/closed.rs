//! Waiting until there is no receiver.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use crate::ring::{Presence, Ticket};

/// The future of [`Sender::closed`](super::Sender::closed). Dropping it leaves no waker behind.
#[must_use = "futures do nothing unless polled"]
pub struct Closed<'a> {
    presence: &'a Presence,
    ticket: Option<Ticket>,
}

impl<'a> Closed<'a> {
    pub(super) fn new(presence: &'a Presence) -> Self {
        Self { presence, ticket: None }
    }
}

impl Future for Closed<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let presence = self.presence;
        presence.poll_absence(&mut self.ticket, cx)
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.presence.forget(ticket);
        }
    }
}

impl fmt::Debug for Closed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closed").finish_non_exhaustive()
    }
}
