//! The bus of a cluster: a doorbell over the durable store.

mod builder;
mod health;
mod history_divergence;
mod history_reader;
mod notification_listener;
mod notifier;
mod notify_queue;
mod reader;
mod runtime;
mod shared;
mod subscription_start;
mod sweeper;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tokio::sync::watch;

pub use self::builder::DistributedBusBuilder;
pub use self::health::{BusHealth, BusState};
use self::shared::SharedBus;
use super::hub::Attached;
use super::{BusError, BusStats, BusSubscription, EventBus, FleetEvent, StreamEvent, SubscribeOptions};
use crate::listen::ListenState;
pub use crate::store::DEFAULT_CHANNEL;
use crate::store::{Record, Store, check_stream_key};

/// An event bus for any number of processes: events are in the durable store, and a NOTIFY is only the doorbell that says so.
///
/// One connection per process listens, whatever the number of subscriptions; one read of the store serves them all, and
/// streams that nobody here subscribes to are not read. A doorbell that is lost, by a crash, an outage or a pooler, costs time and never
/// an event: on every reconnect and on a timer the bus looks in the store for what it was not told.
///
/// Handles are cheap to clone. When the last one is dropped, or [`shutdown`](Self::shutdown) is called, subscriptions end. Only
/// `shutdown` still sends the bells that are waiting; without it the last events reach other processes by their sweep.
///
/// # Runtime
///
/// The bus lives on the tokio runtime from inside which it is first called; it ends with it. Outside a runtime it can be made with
/// [`new`](Self::new), subscribed to and published on: everything waits until a call comes from inside one ([`start`](Self::start)
/// is such a call). Subscriptions can be polled on any executor, and so can everything that is awaited once the bus has started.
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
    inner: Arc<SharedBus<E>>,
    alive: Arc<Alive<E>>,
}

/// Closes the bus with the last handle.
struct Alive<E: StreamEvent>(Arc<SharedBus<E>>);

impl<E: StreamEvent> Drop for Alive<E> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<E: StreamEvent> Clone for DistributedBus<E> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            alive: Arc::clone(&self.alive),
        }
    }
}

impl DistributedBus {
    /// A bus for [`FleetEvent`]s: connects to the server for doorbells, and returns when it listens.
    ///
    /// Opens one connection that listens and, for the first bell, one that rings; the store has its own. For events of another type
    /// there is `DistributedBus::builder(store).url(url).connect()`.
    ///
    /// # Errors
    ///
    /// The first connection cannot be made, or the server does not acknowledge the LISTEN within 10 s. To keep trying instead, take
    /// [`new`](Self::new), or [`start`](DistributedBusBuilder::start) of the builder. The store is not asked for anything: whether it is
    /// ready, [`PostgresStore::check_migrated`](crate::store::PostgresStore::check_migrated) says.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use doorbell::bus::DistributedBus;
    /// use doorbell::store::MemoryStore;
    ///
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let refused = DistributedBus::connect("postgres://localhost:1/nowhere", Arc::new(MemoryStore::new())).await;
    /// assert!(refused.unwrap_err().to_string().starts_with("the bus does not hear doorbells"));
    /// # });
    /// ```
    pub async fn connect(url: &str, store: Arc<dyn Store>) -> Result<Self, BusError> {
        Self::builder(store).url(url).connect().await
    }

    /// A bus for [`FleetEvent`]s that rings through `pool`, and listens on a connection of its own with the pool's options. Connects in
    /// the background.
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
    /// A bus for any events, with settings.
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

    /// Starts the bus's tasks, if nothing has yet. Every method does so by itself when called inside a runtime.
    ///
    /// # Errors
    ///
    /// [`BusError::NoRuntime`]: this is not inside a tokio runtime.
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
        if self.inner.runtime.is_closed() {
            return Err(BusError::Closed);
        }
        self.inner.start()
    }

    /// Completes when the server has acknowledged the LISTEN.
    pub(super) async fn listening(&self) -> Result<(), BusError> {
        self.start()?;
        let inner = Arc::clone(&self.inner);
        let listening = self.inner.runtime.run(async move {
            let listener = inner.listener()?;
            drop(listener.subscribe(&inner.settings.channel).await?);
            Ok(())
        });
        listening.await.unwrap_or(Err(BusError::Closed))
    }

    /// Completes when the listening connection was tried and could not be made; with why.
    async fn first_failure(&self) -> BusError {
        let Ok(listener) = self.inner.listener() else {
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

    /// As [`subscribe_all`](EventBus::subscribe_all), and returns when the subscription is ready: every event that is committed from
    /// now on will be delivered, and so will an event that was appended before and whose doorbell rings after.
    ///
    /// # Errors
    ///
    /// The listening connection cannot be made, or the server does not acknowledge the LISTEN (a standby does not, and behind a pooler in transaction mode it would be in vain). Use
    /// `subscribe_all` for a subscription that starts with polling then. A store that does not answer, or that lacks its tables, is no
    /// error: this waits until it does, and [`health`](Self::health) says for what.
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

    /// As [`subscribe`](EventBus::subscribe), but starting after event number `after`, with what the store holds from there on: history
    /// and live events without a gap and without repetition.
    ///
    /// ```no_run
    /// # use doorbell::bus::DistributedBus;
    /// # fn example(bus: DistributedBus) {
    /// let from_the_beginning = bus.subscribe_from("agent-1", 0);
    /// let after_what_i_had = bus.subscribe_from("agent-1", 41);
    /// # }
    /// ```
    #[must_use]
    pub fn subscribe_from(&self, stream_key: &str, after: u64) -> BusSubscription<E> {
        self.subscribe_with(stream_key, SubscribeOptions::new().after(after))
    }

    /// As [`subscribe`](EventBus::subscribe), with options.
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
            Ok(()) => self.subscription(self.inner.hub.attach_one(stream_key), options),
            Err(error) => BusSubscription::refused(error.into()),
        }
    }

    /// As [`subscribe_all`](EventBus::subscribe_all), with options.
    ///
    /// ```no_run
    /// # use doorbell::bus::{DistributedBus, OnSlow, SubscribeOptions};
    /// # fn example(bus: DistributedBus) {
    /// let subscription = bus.subscribe_all_with(SubscribeOptions::new().on_slow(OnSlow::Report));
    /// # }
    /// ```
    #[must_use]
    pub fn subscribe_all_with(&self, options: SubscribeOptions) -> BusSubscription<E> {
        self.subscription(self.inner.hub.attach_all(), options)
    }

    fn subscription(&self, attached: Result<Attached<E>, BusError>, options: SubscribeOptions) -> BusSubscription<E> {
        let _ = self.start(); // outside a runtime: later
        let (hub, pages) = (Arc::clone(&self.inner.hub), Arc::clone(&self.inner.pages));
        if let (
            Ok(Attached {
                stream: Some(stream), ..
            }),
            Some(_),
        ) = (&attached, options.after)
        {
            hub.check(stream);
        }
        match attached {
            Ok(attached) => BusSubscription::new(hub, pages, attached, options.after, options.on_slow),
            Err(error) => BusSubscription::refused(error),
        }
    }

    /// Appends an event to the store, rings for it, and returns it with its number. When this returns the event is durable. Subscribers
    /// in this process get it without a read; the doorbell for the others goes out right after.
    ///
    /// Cancel-safe as far as can be: dropped before it completes, the event is appended and delivered, or neither; which, only
    /// the store knows, and the bell may be left to the sweep.
    ///
    /// # Errors
    ///
    /// What the store says; the event is not appended then, unless that is [`Unavailable`](crate::store::StoreError::Unavailable), which
    /// leaves it open.
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
        if self.inner.runtime.is_closed() {
            return Err(BusError::Closed);
        }
        let store = Arc::clone(&self.inner.store);
        let append = self.inner.runtime.run(async move { store.append_record(event).await });
        let record = append.await.ok_or(BusError::NoRuntime)??;
        self.announce(std::slice::from_ref(&record));
        decoded(record)
    }

    /// Appends several events, of one or more streams, and rings once for each stream. All or none are appended, where the store
    /// can do that; [`PostgresStore`](crate::store::PostgresStore) can, in one round trip.
    ///
    /// # Errors
    ///
    /// As for [`append_and_publish`](Self::append_and_publish).
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
        if self.inner.runtime.is_closed() {
            return Err(BusError::Closed);
        }
        let store = Arc::clone(&self.inner.store);
        let append = self
            .inner
            .runtime
            .run(async move { store.append_records(events).await });
        let records = append.await.ok_or(BusError::NoRuntime)??;
        self.announce(&records);
        records.into_iter().map(decoded).collect()
    }

    /// Delivers here, and rings for the others.
    fn announce(&self, records: &[Record<E>]) {
        let inner = &self.inner;
        for record in records {
            let Ok(event) = &record.event else { continue };
            if inner.wakeups.is_in_doubt() {
                // Its number may follow on another history than the one that was delivered.
                inner.hub.announced(event.stream_key(), record.seq..=record.seq);
            } else if inner.hub.enqueue(event.stream_key(), record) {
                inner.counters.events_delivered.add(1);
                inner.counters.events_local.add(1);
                inner.health.delivered(None);
            }
            inner.notify_queue.ring(event.stream_key(), record.seq..=record.seq);
        }
        inner.hub.flush();
    }

    /// How the bus is doing.
    ///
    /// ```no_run
    /// # fn example(bus: doorbell::bus::DistributedBus) {
    /// let health = bus.health();
    /// println!("{:?} since {:?}: {:?}", health.state, health.since, health.reason);
    /// # }
    /// ```
    #[must_use]
    pub fn health(&self) -> BusHealth {
        let mut health = self.inner.health.read();
        health.unpersisted = self.inner.counters.unpersisted.get();
        health
    }

    /// Follows the changes of [`BusHealth::state`].
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
        self.inner.health.changes()
    }

    /// What the bus has done so far.
    ///
    /// ```no_run
    /// # fn example(bus: doorbell::bus::DistributedBus) {
    /// let stats = bus.stats();
    /// println!("{} reads for {} events", stats.reads, stats.events_delivered);
    /// # }
    /// ```
    #[must_use]
    pub fn stats(&self) -> BusStats {
        self.inner.counters.read()
    }

    /// What the listening connection has done so far: connects, failures, notifications. None before the bus has
    /// [started](Self::start).
    ///
    /// ```no_run
    /// # fn example(bus: doorbell::bus::DistributedBus) {
    /// println!("{:?}", bus.listen_stats());
    /// # }
    /// ```
    #[must_use]
    pub fn listen_stats(&self) -> Option<crate::listen::ListenStats> {
        self.inner.listener().ok().map(crate::listen::ListenMultiplexer::stats)
    }

    /// Sends the bells that are waiting, for a second at most, then ends subscriptions and tasks and closes the connections.
    /// Other handles find the bus [closed](BusError::Closed).
    ///
    /// ```no_run
    /// # async fn example(bus: doorbell::bus::DistributedBus) {
    /// bus.shutdown().await;
    /// # }
    /// ```
    pub async fn shutdown(&self) {
        const LAST_BELLS: Duration = Duration::from_secs(1);
        let inner = Arc::clone(&self.inner);
        let end = async move {
            let batch = inner.notify_queue.take();
            if !batch.is_empty() && !inner.runtime.is_closed() {
                let _ = tokio::time::timeout(LAST_BELLS, notifier::send(&inner, &batch.payloads())).await;
            }
            inner.close();
            if let Ok(listener) = inner.listener() {
                listener.shutdown().await;
            }
            inner.runtime.ended().await;
        };
        if self.inner.runtime.run(end).await.is_none() {
            self.inner.close(); // it has never started, or its runtime is gone
        }
    }
}

/// An event that was appended just now.
fn decoded<E: StreamEvent>(record: Record<E>) -> Result<E, BusError> {
    record
        .event
        .map_err(|error| crate::store::StoreError::other(error).into())
}

impl<E: StreamEvent> EventBus<E> for DistributedBus<E> {
    /// Rings for an event that the store holds. Takes a lock for a moment and returns; the bell goes out in the background, merged
    /// with others of its stream. An event without a number, or with a key that cannot name a stream, is
    /// [counted](BusStats::unpersisted) and dropped; use [`append_and_publish`](DistributedBus::append_and_publish) for what is not
    /// in the store.
    fn publish(&self, event: E) {
        let _ = self.start();
        let (key, seq) = (event.stream_key(), event.seq());
        if seq == 0 || check_stream_key(key).is_err() {
            self.inner.counters.unpersisted.add(1);
            return;
        }
        self.inner.hub.announced(key, seq..=seq);
        self.inner.notify_queue.ring(key, seq..=seq);
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
            .field("state", &self.inner.health.read().state)
            .field("streams", &self.inner.hub.streams())
            .field("subscriptions", &self.inner.hub.subscriptions())
            .finish_non_exhaustive()
    }
}
