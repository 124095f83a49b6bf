//! A subscription to one channel.

use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;

use futures_core::Stream;
use tokio::sync::watch;

use super::channel_name::ChannelName;
use super::channels::{Ack, Registration};
use super::error::ListenError;
use super::item::ListenItem;
use super::shared::SharedListener;
use crate::ring::{self, RecvError, Subscriber, SubscriberStats};

/// The error returned by [`ListenSubscription::try_recv`].
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
    /// No item is available yet.
    #[error("no item is available yet")]
    Empty,
    /// The listener has been shut down, and every item has been received.
    #[error("the listener has been shut down")]
    Closed,
}

/// Receives the notifications on one channel, as a `Stream` or with [`recv`](Self::recv).
///
/// Created by [`ListenMultiplexer::subscribe`](super::ListenMultiplexer::subscribe) and
/// [`subscribe_lazy`](super::ListenMultiplexer::subscribe_lazy).
///
/// A subscription survives outages: a [`ListenItem::Reconnected`] marks where notifications may be missing. It ends when the
/// listener or its runtime is shut down.
///
/// All subscriptions to a channel share one ring. A subscription that falls behind by more than the ring's capacity receives one
/// [`ListenItem::Lagged`] with the exact number of items it lost, and does not slow the others down. Dropping a subscription
/// takes a short lock. UNLISTEN is sent a [delay](super::ListenBuilder::unlisten_delay) after the last subscription to the
/// channel is dropped.
pub struct ListenSubscription {
    shared: Arc<SharedListener>,
    name: ChannelName,
    items: Subscriber<ListenItem>,
    ack: watch::Receiver<Ack>,
    refusals_before: u64,
}

impl ListenSubscription {
    pub(super) fn new(shared: Arc<SharedListener>, name: ChannelName) -> Self {
        let Registration {
            name,
            items,
            ack,
            refusals_before,
        } = shared.channels.subscribe(name);
        Self {
            shared,
            name,
            items,
            ack,
            refusals_before,
        }
    }

    /// Returns the name of the channel.
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

    /// Waits until the server has acknowledged the LISTEN. Notifications arrive from then on.
    ///
    /// This method also waits during outages, without a time limit.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel-safe.
    ///
    /// # Errors
    ///
    /// After all errors but the last, the subscription stays registered, and the listener tries again every few seconds; a later
    /// call returns the new outcome. Returns:
    ///
    /// - [`ListenError::Listen`] if the server refused
    /// - [`ListenError::Standby`] if it is a standby
    /// - [`ListenError::NotDelivered`] behind a pooler in transaction mode
    /// - [`ListenError::ShutDown`]
    ///
    /// ```no_run
    /// # async fn example(mux: doorbell::listen::ListenMultiplexer) -> Result<(), Box<dyn std::error::Error>> {
    /// let jobs = mux.subscribe_lazy("jobs")?; // returns at once, connected or not
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

    /// Returns `true` if the server has acknowledged the LISTEN on the current connection.
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

    /// Waits for the next item. Returns `None` once the listener has been shut down and every item has been received.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel-safe: a dropped future does not lose an item.
    ///
    /// ```no_run
    /// # use doorbell::listen::{ListenItem, ListenSubscription};
    /// # async fn example(mut jobs: ListenSubscription) {
    /// while let Some(item) = jobs.recv().await {
    ///     match item {
    ///         ListenItem::Notification(job) => println!("{}", job.payload()),
    ///         _ => println!("query the jobs table"), // reconnected or lagged: some may be lost
    ///     }
    /// }
    /// # }
    /// ```
    pub async fn recv(&mut self) -> Option<ListenItem> {
        let received = self.items.recv().await;
        self.item(received)
    }

    /// Returns the next item, if one is available.
    ///
    /// # Errors
    ///
    /// Returns [`TryListenError::Empty`] if there is none yet, and [`TryListenError::Closed`] once the subscription has ended.
    ///
    /// ```no_run
    /// # use doorbell::listen::ListenSubscription;
    /// # fn example(mut jobs: ListenSubscription) {
    /// while let Ok(item) = jobs.try_recv() {
    ///     println!("{item:?}");
    /// }
    /// # }
    /// ```
    pub fn try_recv(&mut self) -> Result<ListenItem, TryListenError> {
        match self.items.try_recv() {
            Ok(item) => Ok(item),
            Err(ring::TryRecvError::Lagged(lagged)) => {
                self.shared.record_lag(lagged.skipped);
                Ok(ListenItem::Lagged(lagged))
            }
            Err(ring::TryRecvError::Empty) => Err(TryListenError::Empty),
            Err(ring::TryRecvError::Closed) => Err(TryListenError::Closed),
        }
    }

    /// Returns the numbers of items received, lost and waiting.
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
                self.shared.record_lag(lagged.skipped);
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
        self.shared.channels.unsubscribe(&self.name);
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
