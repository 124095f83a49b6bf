//! One subscription to one channel.

use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;

use futures_core::Stream;
use tokio::sync::watch;

use super::channel_name::ChannelName;
use super::channels::{Ack, Registered};
use super::error::ListenError;
use super::item::ListenItem;
use super::shared::SharedListener;
use crate::ring::{self, RecvError, Subscriber, SubscriberStats};

/// Why [`ListenSubscription::try_recv`] has no item.
///
/// ```
/// use doorbell::listen::{ListenMultiplexer, TryListenError};
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let mux = ListenMultiplexer::builder().url("postgres://localhost:1/app").start().unwrap();
/// let mut jobs = mux.subscribe_lazy("jobs").unwrap();
/// assert_eq!(jobs.try_recv().unwrap_err(), TryListenError::Empty);
/// mux.shutdown().await;
/// assert_eq!(jobs.try_recv().unwrap_err(), TryListenError::Closed);
/// # });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum TryListenError {
    /// There is nothing yet.
    #[error("no notification is available yet")]
    Empty,
    /// The listener has been shut down, and everything there was has been received.
    #[error("the listener has been shut down")]
    Closed,
}

/// Yields what is notified on one channel, as a `Stream` or one by one; from
/// [`ListenMultiplexer::subscribe`](super::ListenMultiplexer::subscribe).
///
/// It survives outages: a [`ListenItem::Reconnected`] stands where notifications may be missing. It ends when the listener is
/// shut down or its runtime is.
///
/// Items wait in a ring that all subscriptions of the channel share. One that falls further behind than its capacity gets one
/// [`ListenItem::Lagged`] with the exact count, and hurts nobody else. Dropping it takes a short lock; the server is told some
/// time after the last subscription of a channel has gone.
pub struct ListenSubscription {
    shared: Arc<SharedListener>,
    name: ChannelName,
    items: Subscriber<ListenItem>,
    ack: watch::Receiver<Ack>,
    refusals_before: u64,
}

impl ListenSubscription {
    pub(super) fn new(shared: Arc<SharedListener>, name: ChannelName) -> Self {
        let Registered {
            name,
            items,
            ack,
            refusals_before,
        } = shared.channels.hold(name);
        Self {
            shared,
            name,
            items,
            ack,
            refusals_before,
        }
    }

    /// The channel.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let mux = doorbell::listen::ListenMultiplexer::builder().url("postgres://localhost:1/app").start().unwrap();
    /// assert_eq!(mux.subscribe_lazy("jobs").unwrap().channel(), "jobs");
    /// # });
    /// ```
    pub fn channel(&self) -> &str {
        self.name.as_str()
    }

    /// Waits until the server has acknowledged the LISTEN: from then on, notifications arrive. During an outage it waits for the
    /// end of it; there is no time limit but the caller's.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// [`ListenError::Listen`] when the server refused, [`ListenError::Standby`] when it is a standby: the subscription stays
    /// registered, the listener tries again every few seconds, and a later call tells the outcome by then.
    /// [`ListenError::ShutDown`] is final.
    ///
    /// ```no_run
    /// # async fn example(mux: doorbell::listen::ListenMultiplexer) -> Result<(), Box<dyn std::error::Error>> {
    /// let jobs = mux.subscribe_lazy("jobs")?; // at once, connected or not
    /// jobs.ready().await?;
    /// # Ok(()) }
    /// ```
    pub async fn ready(&self) -> Result<(), ListenError> {
        let mut ack = self.ack.clone();
        loop {
            match &*ack.borrow_and_update() {
                Ack::Listening => return Ok(()),
                Ack::Refused(number, error) if *number > self.refusals_before => return Err(error.clone()),
                Ack::Closed => return Err(ListenError::ShutDown),
                Ack::Refused(..) | Ack::Pending => {}
            }
            if ack.changed().await.is_err() {
                return Err(ListenError::ShutDown);
            }
        }
    }

    /// Whether the server has acknowledged the LISTEN on the present connection. Outdated as soon as it is known.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let mux = doorbell::listen::ListenMultiplexer::builder().url("postgres://localhost:1/app").start().unwrap();
    /// assert!(!mux.subscribe_lazy("jobs").unwrap().is_ready());
    /// # });
    /// ```
    pub fn is_ready(&self) -> bool {
        matches!(*self.ack.borrow(), Ack::Listening)
    }

    /// Waits for the next item; `None` when the listener has been shut down and everything there was has been received.
    ///
    /// Cancel-safe: an item is taken only by the call that returns it.
    ///
    /// ```no_run
    /// # use doorbell::listen::{ListenItem, ListenSubscription};
    /// # async fn example(mut jobs: ListenSubscription) {
    /// while let Some(item) = jobs.recv().await {
    ///     match item {
    ///         ListenItem::Notification(job) => println!("{}", job.payload()),
    ///         _ => println!("some may be missing: look for jobs"), // reconnected, or lagged
    ///     }
    /// }
    /// # }
    /// ```
    pub async fn recv(&mut self) -> Option<ListenItem> {
        let received = self.items.recv().await;
        self.item(received)
    }

    /// The next item, if there is one.
    ///
    /// # Errors
    ///
    /// [`TryListenError::Empty`] and [`TryListenError::Closed`].
    pub fn try_recv(&mut self) -> Result<ListenItem, TryListenError> {
        match self.items.try_recv() {
            Ok(item) => Ok(item),
            Err(ring::TryRecvError::Lagged(lagged)) => {
                self.shared.lagged(lagged.skipped);
                Ok(ListenItem::Lagged(lagged))
            }
            Err(ring::TryRecvError::Empty) => Err(TryListenError::Empty),
            Err(ring::TryRecvError::Closed) => Err(TryListenError::Closed),
        }
    }

    /// What this subscription has received and lost so far, and how much waits for it.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let mux = doorbell::listen::ListenMultiplexer::builder().url("postgres://localhost:1/app").start().unwrap();
    /// assert_eq!(mux.subscribe_lazy("jobs").unwrap().stats().backlog, 0);
    /// # });
    /// ```
    pub fn stats(&self) -> SubscriberStats {
        self.items.stats()
    }

    fn item(&self, received: Result<ListenItem, RecvError>) -> Option<ListenItem> {
        match received {
            Ok(item) => Some(item),
            Err(RecvError::Lagged(lagged)) => {
                self.shared.lagged(lagged.skipped);
                Some(ListenItem::Lagged(lagged))
            }
            Err(RecvError::Closed) => None,
        }
    }
}

impl Stream for ListenSubscription {
    type Item = ListenItem;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ListenItem>> {
        let received = core::task::ready!(self.items.poll_recv(cx));
        Poll::Ready(self.item(received))
    }
}

impl Drop for ListenSubscription {
    fn drop(&mut self) {
        self.shared.channels.release(&self.name);
    }
}

impl fmt::Debug for ListenSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenSubscription")
            .field("channel", &self.name)
            .field("ready", &self.is_ready())
            .field("backlog", &self.items.backlog())
            .finish()
    }
}
