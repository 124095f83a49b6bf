//! The event bus of a cluster. It delivers the events of a durable store, and learns of new ones from notifications.

mod builder;
mod guarded_store;
mod health;
mod history_divergence;
mod history_reader;
mod isolated_reads;
mod notification_listener;
mod notifier;
pub(crate) mod notify_queue;
mod read_permits;
mod reader;
mod runtime;
mod shared;
mod store_operation;
mod subscription_start;
mod sweeper;
mod wakeups;

use std::fmt;
use std::sync::Arc;

use sqlx::PgPool;
use tokio::sync::watch;

pub use self::builder::DistributedBusBuilder;
pub use self::health::{BusHealth, BusState};
use self::shared::{LAST_WORK, SharedBus};
pub use self::store_operation::StoreOperation;
use super::hub::Attached;
use super::{BusError, BusStats, BusSubscription, EventBus, FleetEvent, StreamEvent, SubscribeOptions};
use crate::listen::ListenState;
pub use crate::store::DEFAULT_CHANNEL;
use crate::store::{Record, Store, check_stream_key};

/// An event bus for any number of processes. Events are kept in a durable store; Postgres notifications report new ones to the
/// processes.
///
/// One connection per process listens, and one read of the store serves every subscription of the process. Streams without a
/// subscription are not read. If a notification is lost because of a crash, an outage or a pooler, its event is only delayed:
/// after each reconnect, and at an interval, the bus [searches the store](crate::bus#notifications) for events that no
/// notification has named.
///
/// Handles are cheap to clone. When the last handle is dropped, or [`shutdown`](Self::shutdown) is called, subscriptions end.
/// Only `shutdown` sends the notifications that are still queued; without it, other processes find the last events with their
/// next sweep.
///
/// # Runtime
///
/// The tasks of the bus run on the tokio runtime from which it is first called, and the bus ends with that runtime. Outside a
/// runtime, a bus can be created with [`new`](Self::new), subscribed to and published on. It connects when it is first called
/// from inside a runtime, for example by [`start`](Self::start). Subscriptions can be polled on any executor, and so can the
/// bus's async methods once it has started.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use doorbell::bus::{BusEvent, DistributedBus, FleetEvent};
/// use doorbell::store::PostgresStore;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let url = "postgres://app@localhost/app";
/// let store = PostgresStore::connect(url).await?;
/// store.migrate().await?;
/// let bus = DistributedBus::connect(url, Arc::new(store)).await?;
///
/// let mut subscription = bus.subscribe_all_ready().await?;
/// bus.append_and_publish(FleetEvent::custom("agent-1", "note", "hello")).await?;
/// if let Some(BusEvent::Event(event)) = subscription.recv().await {
///     println!("{} number {}", event.agent_id, event.seq);
/// }
/// # Ok(()) }
/// ```
pub struct DistributedBus<E: StreamEvent = FleetEvent> {
    shared: Arc<SharedBus<E>>,
    close_on_drop: Arc<CloseOnDrop<E>>,
}

/// Closes the bus when the last handle is dropped.
struct CloseOnDrop<E: StreamEvent>(Arc<SharedBus<E>>);

impl<E: StreamEvent> Drop for CloseOnDrop<E> {
    fn drop(&mut self) {
        let shared = Arc::clone(&self.0);
        if shared.hub.subscriptions() == 0 || shared.runtime.is_closed() {
            shared.close();
            return;
        }
        // An append that has returned may still have to be read for the subscriptions of this process.
        let task = async move {
            shared.deliver_pending().await;
            shared.close();
        };
        if !self.0.runtime.spawn("the last delivery", task) {
            self.0.close();
        }
    }
}

impl<E: StreamEvent> Clone for DistributedBus<E> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            close_on_drop: Arc::clone(&self.close_on_drop),
        }
    }
}

impl DistributedBus {
    /// Creates a bus for [`FleetEvent`]s, connects to the server, and returns when the bus listens for notifications.
    ///
    /// Opens one connection for listening and, when the first notification is sent, one for notifications. The store has its own
    /// connections. For another event type, use `DistributedBus::builder(store).url(url).connect()`.
    ///
    /// # Errors
    ///
    /// Returns [`BusError::Listen`] if the first connection cannot be opened, or the server does not acknowledge the LISTEN
    /// within 10 s. To retry in the background instead, use [`new`](Self::new) or [`DistributedBusBuilder::start`]. This method
    /// does not query the store; check its tables with
    /// [`PostgresStore::check_migrated`](crate::store::PostgresStore::check_migrated).
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use doorbell::bus::DistributedBus;
    /// use doorbell::store::MemoryStore;
    ///
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let refused = DistributedBus::connect("postgres://localhost:1/nowhere", Arc::new(MemoryStore::new())).await;
    /// assert!(refused.unwrap_err().to_string().starts_with("the bus receives no notifications"));
    /// # });
    /// ```
    pub async fn connect(url: &str, store: Arc<dyn Store>) -> Result<Self, BusError> {
        Self::builder(store).url(url).connect().await
    }

    /// Creates a bus for [`FleetEvent`]s that sends notifications through `pool`.
    ///
    /// It listens on a separate connection with the pool's options, and connects in the background.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use doorbell::bus::{DistributedBus, EventBus};
    /// use doorbell::store::MemoryStore;
    ///
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let pool = sqlx::PgPool::connect_lazy("postgres://localhost:1/nowhere").unwrap();
    /// let bus = DistributedBus::new(pool, Arc::new(MemoryStore::new()));
    /// let subscription = bus.subscribe("agent-1"); // ready when the server has answered
    /// assert_eq!(subscription.stream_key(), Some("agent-1"));
    /// # });
    /// ```
    #[must_use]
    pub fn new(pool: PgPool, store: Arc<dyn Store>) -> Self {
        Self::builder(store)
            .pool(pool)
            .start()
            .expect("the default settings are within their bounds")
    }
}

impl<E: StreamEvent> DistributedBus<E> {
    /// Returns a builder for a bus with other settings or another event type.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use doorbell::bus::{BusError, DistributedBus, FleetEvent};
    /// use doorbell::store::MemoryStore;
    ///
    /// let store = Arc::new(MemoryStore::<FleetEvent>::new());
    /// let error = DistributedBus::builder(store).url("postgres://localhost/app").page(0).start().unwrap_err();
    /// assert!(matches!(error, BusError::InvalidSetting { setting: "page", .. }));
    /// ```
    pub fn builder(store: Arc<dyn Store<E>>) -> DistributedBusBuilder<E> {
        DistributedBusBuilder::new(store)
    }

    /// Starts the tasks of the bus, unless they are running. Every other method also does this if it is called from inside a
    /// runtime.
    ///
    /// # Errors
    ///
    /// - [`BusError::NoRuntime`] if this method is called from outside a tokio runtime.
    /// - [`BusError::Closed`] if the bus is shut down.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use doorbell::bus::{BusError, DistributedBus, FleetEvent};
    /// use doorbell::store::MemoryStore;
    ///
    /// let store = Arc::new(MemoryStore::<FleetEvent>::new());
    /// let bus = DistributedBus::builder(store).listen_url("postgres://localhost/app").start().unwrap();
    /// assert!(matches!(bus.start(), Err(BusError::NoRuntime)));
    /// ```
    pub fn start(&self) -> Result<(), BusError> {
        if self.shared.runtime.is_closed() {
            return Err(BusError::Closed);
        }
        self.shared.start()
    }

    /// Completes when the server has acknowledged the LISTEN.
    pub(super) async fn listening(&self) -> Result<(), BusError> {
        self.start()?;
        let shared = Arc::clone(&self.shared);
        let listening = self.shared.runtime.run(async move {
            let listener = shared.listener()?;
            drop(listener.subscribe(&shared.settings.channel).await?);
            Ok(())
        });
        listening.await.unwrap_or(Err(BusError::Closed))
    }

    /// Completes with the reason when the first attempt to open the listening connection has failed.
    async fn first_failure(&self) -> BusError {
        let Ok(listener) = self.shared.listener() else {
            return std::future::pending().await;
        };
        let mut changes = listener.health_changes();
        loop {
            let health = changes.latest();
            if health.state == ListenState::Disconnected
                && let Some(reason) = health.reason
            {
                return reason.into();
            }
            if changes.changed().await.is_none() {
                return BusError::Closed;
            }
        }
    }

    /// Subscribes like [`subscribe_all`](EventBus::subscribe_all), and returns when the subscription is ready.
    ///
    /// The subscription delivers every event that is committed from then on. It also delivers events that were appended earlier
    /// if their notification arrives later.
    ///
    /// This method waits for as long as the store does not answer or lacks its tables; [`health`](Self::health) then reports the
    /// reason.
    ///
    /// # Errors
    ///
    /// Returns [`BusError::Listen`] if the listening connection cannot be opened, or the server does not acknowledge the LISTEN,
    /// as on a standby and behind a pooler in transaction mode. There, use `subscribe_all`, which starts with polling.
    ///
    /// ```no_run
    /// # async fn example(bus: doorbell::bus::DistributedBus) -> Result<(), doorbell::bus::BusError> {
    /// let mut subscription = bus.subscribe_all_ready().await?;
    /// while let Some(item) = subscription.recv().await {
    ///     println!("{item:?}");
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn subscribe_all_ready(&self) -> Result<BusSubscription<E>, BusError> {
        self.listening().await?;
        let subscription = self.subscribe_all();
        subscription.ready().await?;
        Ok(subscription)
    }

    /// Subscribes like [`subscribe`](EventBus::subscribe), but starts after event number `after`.
    ///
    /// The subscription delivers the later events of the store, then live events, without a gap and without repetition. If the store has
    /// no event number `after` when the subscription starts, its first item is a [`Rewound`](super::Rewound); see
    /// [`SubscribeOptions::after`].
    ///
    /// ```no_run
    /// # use doorbell::bus::DistributedBus;
    /// # fn example(bus: DistributedBus) {
    /// let from_the_beginning = bus.subscribe_from("agent-1", 0);
    /// let after_number_41 = bus.subscribe_from("agent-1", 41);
    /// # }
    /// ```
    #[must_use]
    pub fn subscribe_from(&self, stream_key: &str, after: u64) -> BusSubscription<E> {
        self.subscribe_with(stream_key, SubscribeOptions::new().after(after))
    }

    /// Subscribes like [`subscribe`](EventBus::subscribe), with options.
    ///
    /// ```no_run
    /// # use doorbell::bus::{DistributedBus, OnSlow, SubscribeOptions};
    /// # fn example(bus: DistributedBus) {
    /// let subscription = bus.subscribe_with("agent-1", SubscribeOptions::new().on_slow(OnSlow::Report));
    /// # }
    /// ```
    #[must_use]
    pub fn subscribe_with(&self, stream_key: &str, options: SubscribeOptions) -> BusSubscription<E> {
        match check_stream_key(stream_key) {
            Ok(()) => self.subscription(self.shared.hub.attach_one(stream_key, options.after), options),
            Err(error) => BusSubscription::refused(error.into()),
        }
    }

    /// Subscribes like [`subscribe_all`](EventBus::subscribe_all), with options.
    ///
    /// ```no_run
    /// # use doorbell::bus::{DistributedBus, OnSlow, SubscribeOptions};
    /// # fn example(bus: DistributedBus) {
    /// let subscription = bus.subscribe_all_with(SubscribeOptions::new().on_slow(OnSlow::Report));
    /// # }
    /// ```
    #[must_use]
    pub fn subscribe_all_with(&self, options: SubscribeOptions) -> BusSubscription<E> {
        match options.check_for_all() {
            Ok(()) => self.subscription(self.shared.hub.attach_all(), options),
            Err(error) => BusSubscription::refused(error),
        }
    }

    fn subscription(&self, attached: Result<Attached<E>, BusError>, options: SubscribeOptions) -> BusSubscription<E> {
        let _ = self.start(); // outside a runtime, a later call starts it
        let attached = match attached {
            Ok(attached) => attached,
            Err(error) => return BusSubscription::refused(error),
        };
        let shared = &self.shared;
        let (hub, history) = (Arc::clone(&shared.hub), Arc::clone(&shared.history));
        BusSubscription::new(hub, history, attached, options.after, options.on_slow)
    }

    /// Appends an event to the store, delivers it in this process, queues a notification for the others, and returns the event
    /// with its number.
    ///
    /// When this method returns, the event is durable. Subscriptions of this process get it without a read of the store.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it completes, the event may or may not be appended. If it is, it is delivered, possibly only by
    /// the next sweep.
    ///
    /// # Errors
    ///
    /// - [`BusError::Store`] if the store returned an error. The event is not appended, except that after
    ///   [`StoreError::Unavailable`](crate::store::StoreError::Unavailable) it may be.
    /// - [`BusError::Closed`] if the bus is shut down.
    /// - [`BusError::NoRuntime`] if the bus has no runtime, or its runtime has shut down.
    ///
    /// ```no_run
    /// # use doorbell::bus::{BusError, DistributedBus, FleetEvent};
    /// # async fn example(bus: DistributedBus) -> Result<(), BusError> {
    /// let stamped = bus.append_and_publish(FleetEvent::custom("agent-1", "note", "hello")).await?;
    /// println!("number {}", stamped.seq);
    /// # Ok(()) }
    /// ```
    pub async fn append_and_publish(&self, event: E) -> Result<E, BusError> {
        let _ = self.start();
        if self.shared.runtime.is_closed() {
            return Err(BusError::Closed);
        }
        let store = Arc::clone(&self.shared.store);
        let append = self.shared.runtime.run(async move { store.append_record(event).await });
        let appended = append.await.ok_or(BusError::NoRuntime)?;
        self.shared.health.append_result(appended.as_ref().err());
        let record = appended?;
        self.deliver_and_notify(std::slice::from_ref(&record));
        decoded(record)
    }

    /// Appends several events, of one or more streams, and queues one notification per stream.
    ///
    /// Appends all events or none if the store supports that. [`PostgresStore`](crate::store::PostgresStore) does, in one round
    /// trip.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`append_and_publish`](Self::append_and_publish).
    ///
    /// ```no_run
    /// # use doorbell::bus::{BusError, DistributedBus, FleetEvent};
    /// # async fn example(bus: DistributedBus) -> Result<(), BusError> {
    /// let events = (0..32).map(|n| FleetEvent::custom("agent-1", "reading", n.to_string())).collect();
    /// let stamped = bus.append_batch_and_publish(events).await?;
    /// assert_eq!(stamped.len(), 32);
    /// # Ok(()) }
    /// ```
    pub async fn append_batch_and_publish(&self, events: Vec<E>) -> Result<Vec<E>, BusError> {
        let _ = self.start();
        if self.shared.runtime.is_closed() {
            return Err(BusError::Closed);
        }
        let store = Arc::clone(&self.shared.store);
        let append = self
            .shared
            .runtime
            .run(async move { store.append_records(events).await });
        let appended = append.await.ok_or(BusError::NoRuntime)?;
        self.shared.health.append_result(appended.as_ref().err());
        let records = appended?;
        self.deliver_and_notify(&records);
        records.into_iter().map(decoded).collect()
    }

    /// Delivers appended events in this process, and queues notifications for the others.
    fn deliver_and_notify(&self, records: &[Record<E>]) {
        let shared = &self.shared;
        for record in records {
            let Ok(event) = &record.event else { continue };
            if shared.wakeups.needs_history_check() {
                // The event may belong to another history than the delivered ones, so it is read after the check.
                shared.hub.on_notification(event.stream_key(), record.seq..=record.seq);
            } else if shared.hub.enqueue(event.stream_key(), record.seq, || record.clone()) {
                shared.counters.events_delivered.add(1);
                shared.counters.events_local.add(1);
                shared.health.delivered(None);
            }
            shared.notify_queue.push(event.stream_key(), record.seq..=record.seq);
        }
        shared.hub.flush();
    }

    /// Returns the health of the bus.
    ///
    /// ```no_run
    /// # fn example(bus: doorbell::bus::DistributedBus) {
    /// let health = bus.health();
    /// println!("{:?} since {:?}: {:?}", health.state, health.since, health.reason);
    /// # }
    /// ```
    #[must_use]
    pub fn health(&self) -> BusHealth {
        let mut health = self.shared.health.read();
        health.unpersisted = self.shared.counters.unpersisted.get();
        health
    }

    /// Returns a receiver that is notified when [`BusHealth::state`], [`BusHealth::reason`] or [`BusHealth::failing`] changes.
    ///
    /// In what it returns, the figures that change all the time (`last_delivery`, `last_latency` and `unpersisted`) are not set: ask
    /// [`health`](Self::health) for them.
    ///
    /// ```no_run
    /// # use doorbell::bus::BusState;
    /// # async fn example(bus: doorbell::bus::DistributedBus) {
    /// let mut changes = bus.health_changes();
    /// let live = changes.wait_for(|health| health.state == BusState::Live).await;
    /// # }
    /// ```
    #[must_use]
    pub fn health_changes(&self) -> watch::Receiver<BusHealth> {
        self.shared.health.changes()
    }

    /// Returns the counters of the bus.
    ///
    /// ```no_run
    /// # fn example(bus: doorbell::bus::DistributedBus) {
    /// let stats = bus.stats();
    /// println!("{} reads for {} events", stats.reads, stats.events_delivered);
    /// # }
    /// ```
    #[must_use]
    pub fn stats(&self) -> BusStats {
        self.shared.counters.read()
    }

    /// Returns the counters of the listening connection, or `None` if the bus has not [started](Self::start).
    ///
    /// ```no_run
    /// # fn example(bus: doorbell::bus::DistributedBus) {
    /// println!("{:?}", bus.listen_stats());
    /// # }
    /// ```
    #[must_use]
    pub fn listen_stats(&self) -> Option<crate::listen::ListenStats> {
        self.shared.listener().ok().map(crate::listen::ListenMultiplexer::stats)
    }

    /// Shuts the bus down.
    ///
    /// Sends the queued notifications, for at most 1 s, then ends subscriptions and tasks and closes the bus's connections. Other
    /// handles of the bus then return [`BusError::Closed`].
    ///
    /// ```no_run
    /// # async fn example(bus: doorbell::bus::DistributedBus) {
    /// bus.shutdown().await;
    /// # }
    /// ```
    pub async fn shutdown(&self) {
        let shared = Arc::clone(&self.shared);
        let end = async move {
            if !shared.runtime.is_closed() {
                let batch = shared.notify_queue.take();
                let notify = async {
                    if !batch.is_empty() {
                        let _ = tokio::time::timeout(LAST_WORK, notifier::send(&shared, &batch.payloads())).await;
                    }
                };
                let deliver = async {
                    if shared.hub.subscriptions() > 0 {
                        shared.deliver_pending().await;
                    }
                };
                tokio::join!(notify, deliver);
            }
            shared.close();
            if let Ok(listener) = shared.listener() {
                listener.shutdown().await;
            }
            shared.runtime.ended().await;
        };
        if self.shared.runtime.run(end).await.is_none() {
            self.shared.close(); // the bus has not started, or its runtime has shut down
        }
    }
}

/// Returns the event of a record that was just appended.
fn decoded<E: StreamEvent>(record: Record<E>) -> Result<E, BusError> {
    record
        .event
        .map_err(|error| crate::store::StoreError::other(error).into())
}

impl<E: StreamEvent> EventBus<E> for DistributedBus<E> {
    /// Delivers an event that is in the store: reads it for subscriptions of this process, and queues a notification for the
    /// others.
    ///
    /// Takes a short lock and never waits; the notification is sent in the background, together with others.
    ///
    /// An event without a number, or with an invalid key, is dropped and counted in [`BusStats::unpersisted`]. To append an event, use
    /// [`append_and_publish`](DistributedBus::append_and_publish).
    fn publish(&self, event: E) {
        let _ = self.start();
        let (key, seq) = (event.stream_key(), event.seq());
        if seq == 0 || check_stream_key(key).is_err() {
            self.shared.counters.unpersisted.add(1);
            return;
        }
        self.shared.hub.on_notification(key, seq..=seq);
        self.shared.notify_queue.push(key, seq..=seq);
    }

    fn subscribe(&self, stream_key: &str) -> BusSubscription<E> {
        self.subscribe_with(stream_key, SubscribeOptions::new())
    }

    fn subscribe_all(&self) -> BusSubscription<E> {
        self.subscribe_all_with(SubscribeOptions::new())
    }
}

impl<E: StreamEvent> fmt::Debug for DistributedBus<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedBus")
            .field("state", &self.shared.health.read().state)
            .field("streams", &self.shared.hub.streams())
            .field("subscriptions", &self.shared.hub.subscriptions())
            .finish_non_exhaustive()
    }
}
