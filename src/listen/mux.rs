//! The handle of a listener.

use core::fmt;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::builder::{ConfigSource, ListenBuilder, Settings};
use super::channel_name::{ChannelName, InvalidChannel, check_payload};
use super::channels::Channels;
use super::error::ListenError;
use super::health::{HealthChanges, ListenHealth};
use super::shared::SharedListener;
use super::stats::ListenStats;
use super::subscription::ListenSubscription;
use super::worker::{NotifyRequest, Worker};

/// How many notifications may wait for the connection; further callers wait for room, within their time limit.
const WAITING_NOTIFICATIONS: usize = 64;

/// One LISTEN connection to Postgres for any number of subscriptions; see the [module](super).
///
/// A clone is another handle to the same connection. When the last handle is dropped, or on [`shutdown`](Self::shutdown), the
/// connection is closed and every subscription ends.
#[derive(Clone)]
pub struct ListenMultiplexer {
    handle: Arc<Running>,
}

/// Dropping it tells the owner to stop, since the sender of `stop` goes with it.
struct Running {
    shared: Arc<SharedListener>,
    settings: Settings,
    requests: mpsc::Sender<NotifyRequest>,
    health: watch::Receiver<ListenHealth>,
    stop: watch::Sender<bool>,
}

impl ListenMultiplexer {
    /// Connects with the usual settings, and returns once the connection stands and is known to deliver; see
    /// [`ListenBuilder::connect`].
    ///
    /// # Errors
    ///
    /// As [`ListenBuilder::connect`].
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

    /// All the settings.
    pub fn builder() -> ListenBuilder {
        ListenBuilder::default()
    }

    pub(super) fn start(
        settings: Settings,
        source: ConfigSource,
        first: Option<oneshot::Sender<Result<(), ListenError>>>,
    ) -> Result<Self, ListenError> {
        let runtime = Handle::try_current().map_err(|_| ListenError::NoRuntime)?;
        let channels = Channels::new(settings.channel_capacity, settings.unlisten_delay);
        let shared = Arc::new(SharedListener::new(channels));
        let (requests, waiting) = mpsc::channel(WAITING_NOTIFICATIONS);
        let (stop, stopped) = watch::channel(false);
        let (health_sender, health) = watch::channel(ListenHealth::new());
        let worker = Worker::new(settings.clone(), source, shared.clone(), waiting, health_sender, first);
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

    /// Subscribes to a channel, and returns once the server has acknowledged the LISTEN: whatever is notified from then on
    /// arrives.
    ///
    /// All subscriptions of a channel share one LISTEN. Who comes while it is on its way waits for the same acknowledgement,
    /// and shares its failure. If the connection is lost meanwhile, it goes on waiting for the next one, within
    /// [`ListenBuilder::subscribe_timeout`].
    ///
    /// Cancel-safe: a dropped future leaves no registration.
    ///
    /// # Errors
    ///
    /// [`ListenError::InvalidChannel`]; [`ListenError::Listen`] when the server refused; [`ListenError::Standby`];
    /// [`ListenError::NotReady`] when the time is over; [`ListenError::ShutDown`]. Nothing stays registered then.
    ///
    /// ```no_run
    /// # async fn example(mux: doorbell::listen::ListenMultiplexer) -> Result<(), doorbell::listen::ListenError> {
    /// let jobs = mux.subscribe("jobs").await?;
    /// // Now read what there is already: what comes later is notified.
    /// # Ok(()) }
    /// ```
    pub async fn subscribe(&self, channel: &str) -> Result<ListenSubscription, ListenError> {
        let subscription = self.subscribe_lazy(channel)?;
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

    /// Subscribes to a channel at once, whether there is a connection or not. The server acknowledges later
    /// ([`ListenSubscription::ready`]); what is notified before is not received. A refusal of the server does not end the
    /// subscription: the listener tries again every few seconds.
    ///
    /// After a shutdown the subscription has ended already.
    ///
    /// # Errors
    ///
    /// When the text cannot name a channel.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let mux = doorbell::listen::ListenMultiplexer::builder().url("postgres://localhost:1/app").start().unwrap();
    /// let jobs = mux.subscribe_lazy("jobs").unwrap(); // although nobody answers there
    /// # });
    /// ```
    pub fn subscribe_lazy(&self, channel: &str) -> Result<ListenSubscription, InvalidChannel> {
        let name = ChannelName::new(channel)?;
        Ok(ListenSubscription::new(self.handle.shared.clone(), name))
    }

    /// Notifies a channel over the listening connection, and returns once the server has done it: for those who have no pool.
    /// One is sent at a time, in the order of the calls; an outage is waited for, within [`ListenBuilder::notify_timeout`].
    ///
    /// A dropped future may have sent it or not.
    ///
    /// # Errors
    ///
    /// [`ListenError::InvalidChannel`] and [`ListenError::InvalidPayload`] before anything is sent; [`ListenError::Notify`] when
    /// the server refused (a standby, a full queue, another transaction holding the notification lock for too long, a character
    /// that the database's encoding lacks); [`ListenError::NotReady`] when there was no connection in time; in these cases nothing
    /// was sent. [`ListenError::NotifyUnknown`] and [`ListenError::Timeout`] when it was on its way.
    ///
    /// ```no_run
    /// # async fn example(mux: doorbell::listen::ListenMultiplexer) -> Result<(), doorbell::listen::ListenError> {
    /// mux.notify("jobs", "17").await?;
    /// # Ok(()) }
    /// ```
    pub async fn notify(&self, channel: &str, payload: &str) -> Result<(), ListenError> {
        let channel = ChannelName::new(channel)?;
        check_payload(payload)?;
        let waited = self.handle.settings.notify_timeout;
        let deadline = Instant::now() + waited;
        let (reply, outcome) = oneshot::channel();
        let (taken, is_taken) = watch::channel(false);
        let request = NotifyRequest {
            channel,
            payload: payload.to_owned(),
            taken,
            reply,
        };
        let exchange = async {
            let sent = self.handle.requests.send(request).await;
            sent.map_err(|_| ListenError::ShutDown)?;
            // Dropped without a reply when the owner ends.
            outcome.await.unwrap_or(Err(ListenError::ShutDown))
        };
        match tokio::time::timeout_at(deadline, exchange).await {
            Ok(outcome) => outcome,
            Err(_) if *is_taken.borrow() => Err(ListenError::Timeout {
                what: "a notification",
                after: waited,
            }),
            Err(_) => Err(ListenError::NotReady {
                waited,
                reason: self.health().reason.map(Box::new),
            }),
        }
    }

    /// How the listener is doing. Outdated as soon as it is known; [`health_changes`](Self::health_changes) follows it.
    pub fn health(&self) -> ListenHealth {
        let mut health = self.handle.health.borrow().clone();
        health.last_received = self.handle.shared.last_received();
        health
    }

    /// Follows the health; the first change is the first after this call.
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

    /// What the listener has done so far. Costs a walk over the channels.
    pub fn stats(&self) -> ListenStats {
        self.handle.shared.stats()
    }

    /// Ends the listener in order: the server is told, the connection closed, every subscription ends after what it has not
    /// received yet, waiting calls fail with [`ListenError::ShutDown`]. Returns when that is done, at most about a second later;
    /// may be called from several handles, and again.
    ///
    /// Cancel-safe: once called, it goes on whether it is awaited or not.
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
        // The owner drops the sender as the last thing it does.
        while health.changed().await.is_ok() {}
    }
}

impl fmt::Debug for ListenMultiplexer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenMultiplexer")
            .field("health", &self.health())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
