//! The handle to a listener.

use core::fmt;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};

use super::builder::{ConfigSource, ListenBuilder, Settings};
use super::channel_name::{ChannelName, InvalidChannel, check_payload};
use super::channels::Channels;
use super::error::ListenError;
use super::health::{HealthChanges, ListenHealth};
use super::shared::SharedListener;
use super::stats::ListenStats;
use super::subscription::ListenSubscription;
use super::worker::{NotifyRequest, Worker};
use crate::pg::deadline::deadline_in;

/// The maximum number of notifications that wait to be sent. Further callers wait for room, within their time limit.
const NOTIFY_QUEUE: usize = 64;

/// A handle to one LISTEN connection that serves any number of subscriptions; see the [module documentation](super).
///
/// Clones are handles to the same connection. The connection is closed, and every subscription ends, when the last handle is
/// dropped or [`shutdown`](Self::shutdown) is called.
#[derive(Clone)]
pub struct ListenMultiplexer {
    handle: Arc<Running>,
}

/// Dropping this drops the sender of `stop`, which ends the worker.
struct Running {
    shared: Arc<SharedListener>,
    settings: Settings,
    requests: mpsc::Sender<NotifyRequest>,
    health: watch::Receiver<ListenHealth>,
    stop: watch::Sender<bool>,
}

impl ListenMultiplexer {
    /// Connects with the default settings, and returns once notifications are known to arrive; see
    /// [`ListenBuilder::connect`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`ListenBuilder::connect`].
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), doorbell::listen::ListenError> {
    /// use doorbell::listen::{ListenItem, ListenMultiplexer};
    ///
    /// let mux = ListenMultiplexer::connect("postgres://app@localhost/app").await?;
    /// let mut jobs = mux.subscribe("jobs").await?;
    /// mux.notify("jobs", "17").await?;
    /// let item = jobs.recv().await;
    /// assert_eq!(item.as_ref().and_then(ListenItem::notification).unwrap().payload(), "17");
    /// # Ok(()) }
    /// ```
    pub async fn connect(url: &str) -> Result<Self, ListenError> {
        Self::builder().url(url).connect().await
    }

    /// Returns a builder with the default settings.
    ///
    /// ```
    /// use doorbell::listen::ListenMultiplexer;
    ///
    /// let builder = ListenMultiplexer::builder().url("postgres://app@localhost/app").application_name("worker");
    /// ```
    pub fn builder() -> ListenBuilder {
        ListenBuilder::default()
    }

    pub(super) fn start(
        settings: Settings,
        source: ConfigSource,
        first_attempt: Option<oneshot::Sender<Result<(), ListenError>>>,
    ) -> Result<Self, ListenError> {
        let runtime = Handle::try_current().map_err(|_| ListenError::NoRuntime)?;
        let channels = Channels::new(settings.channel_capacity, settings.unlisten_delay);
        let shared = Arc::new(SharedListener::new(channels));
        let (requests, queue) = mpsc::channel(NOTIFY_QUEUE);
        let (stop, stopped) = watch::channel(false);
        let (health_sender, health) = watch::channel(ListenHealth::new());
        let worker = Worker::new(
            settings.clone(),
            source,
            shared.clone(),
            queue,
            health_sender,
            first_attempt,
        );
        runtime.spawn(worker.run(stopped));
        Ok(Self {
            handle: Arc::new(Running {
                shared,
                settings,
                requests,
                health,
                stop,
            }),
        })
    }

    /// Makes the listener connect again, because new connections lead to another primary than its own does.
    pub(crate) fn supersede(&self) {
        self.handle.shared.superseded.notify_one();
    }

    /// Subscribes to a channel, and returns once the server has acknowledged the LISTEN.
    ///
    /// The subscription receives every notification that is committed from then on.
    ///
    /// All subscriptions of a channel share one LISTEN. Callers that subscribe while it is in flight wait for the same
    /// acknowledgement and share its error. If the connection is lost meanwhile, the call waits for the next one, within
    /// [`ListenBuilder::subscribe_timeout`].
    ///
    /// # Cancel safety
    ///
    /// This method is cancel-safe: a dropped future leaves no registration.
    ///
    /// # Errors
    ///
    /// Nothing stays registered after an error. Returns:
    ///
    /// - [`ListenError::InvalidChannel`]
    /// - [`ListenError::Listen`] if the server refused
    /// - [`ListenError::Standby`] if the server is a standby
    /// - [`ListenError::NotDelivered`] behind a pooler in transaction mode
    /// - [`ListenError::NotReady`] after the time limit
    /// - [`ListenError::ShutDown`]
    /// - [`ListenError::NoRuntime`] if this method is polled outside a tokio runtime
    ///
    /// ```no_run
    /// # async fn example(mux: doorbell::listen::ListenMultiplexer) -> Result<(), doorbell::listen::ListenError> {
    /// let jobs = mux.subscribe("jobs").await?;
    /// // Now read the jobs that exist already. Later ones are notified.
    /// # Ok(()) }
    /// ```
    pub async fn subscribe(&self, channel: &str) -> Result<ListenSubscription, ListenError> {
        let subscription = self.subscribe_lazy(channel)?;
        check_runtime()?;
        let waited = self.handle.settings.subscribe_timeout;
        match tokio::time::timeout(waited, subscription.ready()).await {
            Ok(Ok(())) => Ok(subscription),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ListenError::NotReady {
                waited,
                reason: self.health().reason.map(Box::new),
            }),
        }
    }

    /// Subscribes to a channel without waiting, even while there is no connection.
    ///
    /// Notifications arrive once the server has acknowledged the LISTEN; [`ListenSubscription::ready`] waits for that. If the
    /// server refuses, the subscription stays, and the listener tries again every 5 s.
    ///
    /// After a shutdown the returned subscription has already ended.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidChannel`] if `channel` is not a valid channel name.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let mux = doorbell::listen::ListenMultiplexer::builder().url("postgres://localhost:1/app").start().unwrap();
    /// let jobs = mux.subscribe_lazy("jobs").unwrap(); // no server needed yet
    /// # });
    /// ```
    pub fn subscribe_lazy(&self, channel: &str) -> Result<ListenSubscription, InvalidChannel> {
        let name = ChannelName::new(channel)?;
        Ok(ListenSubscription::new(self.handle.shared.clone(), name))
    }

    /// Sends a notification over the listening connection, and returns once the server has committed it.
    ///
    /// This method is meant for programs without a connection pool.
    ///
    /// Notifications are sent one at a time, in the order of the calls. During an outage the call waits for the next connection,
    /// within [`ListenBuilder::notify_timeout`].
    ///
    /// # Cancel safety
    ///
    /// This method is not cancel-safe: if the future is dropped, the notification may or may not be sent.
    ///
    /// # Errors
    ///
    /// After these errors the notification was not sent:
    ///
    /// - [`ListenError::InvalidChannel`], [`ListenError::InvalidPayload`]
    /// - [`ListenError::Notify`] if the server refused: it is a standby, its queue is full, another transaction held the
    ///   notification lock for too long, or its encoding lacks a character
    /// - [`ListenError::NotReady`] if there was no connection in time
    /// - [`ListenError::NoRuntime`] if this method is polled outside a tokio runtime
    ///
    /// After these errors it may or may not have been sent:
    ///
    /// - [`ListenError::NotifyUnknown`] if the connection was lost
    /// - [`ListenError::Timeout`] if the server did not answer in time
    /// - [`ListenError::ShutDown`]
    ///
    /// ```no_run
    /// # async fn example(mux: doorbell::listen::ListenMultiplexer) -> Result<(), doorbell::listen::ListenError> {
    /// mux.notify("jobs", "17").await?;
    /// # Ok(()) }
    /// ```
    pub async fn notify(&self, channel: &str, payload: &str) -> Result<(), ListenError> {
        let channel = ChannelName::new(channel)?;
        check_payload(payload)?;
        check_runtime()?;
        let waited = self.handle.settings.notify_timeout;
        let deadline = deadline_in(waited);
        let (reply, outcome) = oneshot::channel();
        let (started, is_started) = watch::channel(false);
        let request = NotifyRequest {
            channel,
            payload: payload.to_owned(),
            started,
            reply,
        };
        let exchange = async {
            let sent = self.handle.requests.send(request).await;
            sent.map_err(|_| ListenError::ShutDown)?;
            // The worker drops the request when it ends.
            outcome.await.unwrap_or(Err(ListenError::ShutDown))
        };
        match tokio::time::timeout_at(deadline, exchange).await {
            Ok(outcome) => outcome,
            Err(_) if *is_started.borrow() => Err(ListenError::Timeout {
                what: "a notification",
                after: waited,
            }),
            Err(_) => Err(ListenError::NotReady {
                waited,
                reason: self.health().reason.map(Box::new),
            }),
        }
    }

    /// Returns the current health; [`health_changes`](Self::health_changes) waits for changes.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// use doorbell::listen::ListenMultiplexer;
    ///
    /// let mux = ListenMultiplexer::builder().url("postgres://localhost:1/app").start().unwrap();
    /// assert!(mux.health().server.is_none()); // not connected
    /// # });
    /// ```
    pub fn health(&self) -> ListenHealth {
        let mut health = self.handle.health.borrow().clone();
        health.last_received = self.handle.shared.last_received();
        health
    }

    /// Returns a watcher of the health. Its first change is the first one after this call.
    ///
    /// ```no_run
    /// # async fn example(mux: doorbell::listen::ListenMultiplexer) {
    /// let mut changes = mux.health_changes();
    /// while let Some(health) = changes.changed().await {
    ///     println!("{:?} since {:?}: {:?}", health.state, health.since, health.reason);
    /// }
    /// # }
    /// ```
    pub fn health_changes(&self) -> HealthChanges {
        let mut receiver = self.handle.health.clone();
        receiver.mark_unchanged();
        HealthChanges { receiver }
    }

    /// Returns the listener's counters. Costs a walk over the channels, under a lock.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// use doorbell::listen::ListenMultiplexer;
    ///
    /// let mux = ListenMultiplexer::builder().url("postgres://localhost:1/app").start().unwrap();
    /// assert_eq!(mux.stats().notifications_received, 0);
    /// # });
    /// ```
    pub fn stats(&self) -> ListenStats {
        self.handle.shared.stats()
    }

    /// Shuts the listener down, and returns when this is done, after about a second at most.
    ///
    /// Terminates the session, closes the connection, ends every subscription once it has received what has already arrived, and
    /// fails pending calls with [`ListenError::ShutDown`]. May be called repeatedly and from several handles.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the shutdown proceeds even if the future is dropped.
    ///
    /// ```
    /// use doorbell::listen::{ListenMultiplexer, ListenState};
    ///
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let mux = ListenMultiplexer::builder().url("postgres://localhost:1/app").start().unwrap();
    /// let mut jobs = mux.subscribe_lazy("jobs").unwrap();
    /// mux.shutdown().await;
    /// assert!(jobs.recv().await.is_none());
    /// assert_eq!(mux.health().state, ListenState::Closed);
    /// # });
    /// ```
    pub async fn shutdown(&self) {
        self.handle.stop.send_replace(true);
        let mut health = self.handle.health.clone();
        // The worker drops the sender last.
        while health.changed().await.is_ok() {}
    }
}

/// Timeouts need a runtime.
fn check_runtime() -> Result<(), ListenError> {
    Handle::try_current().map(drop).map_err(|_| ListenError::NoRuntime)
}

impl fmt::Debug for ListenMultiplexer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenMultiplexer")
            .field("health", &self.health())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
