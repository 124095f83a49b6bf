//! An event bus within one process, over a store in memory.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::FutureExt as _;
use parking_lot::Mutex;

use super::history_cache::{HistoryCache, HistorySource};
use super::hub::{Attached, Hub, HubSettings, Started, StreamRef};
use super::{BusError, BusStats, BusSubscription, EventBus, FleetEvent, StreamEvent, SubscribeOptions};
use crate::store::{MemoryStore, Page, Record, Store as _, StreamHead, check_stream_key};

const SETTINGS: HubSettings = HubSettings {
    stream_capacity: 256,
    all_capacity: 1024,
    pending_streams: usize::MAX,
};

/// An event bus within one process, over a [`MemoryStore`].
///
/// Use it in tests, in embedded services, and in services that may move to a `DistributedBus` later, which behaves in the same
/// way, except that its `publish` does not append: use [`append_and_publish`](Self::append_and_publish).
///
/// Delivery is synchronous: when a publish returns, subscriptions have the event, unless another thread is publishing at the same
/// time; that thread then delivers it. The bus needs no runtime, starts no threads and does no I/O.
///
/// Handles are cheap to clone. When the last handle is dropped, subscriptions deliver the items in memory and end.
///
/// ```
/// use doorbell::bus::{BusEvent, EventBus, FleetEvent, LocalBus};
///
/// # futures::executor::block_on(async {
/// let bus = LocalBus::new();
/// let mut subscription = bus.subscribe("agent-1");
/// let stamped = bus.append_and_publish(FleetEvent::custom("agent-1", "note", "hello")).await.unwrap();
/// assert_eq!(stamped.seq, 1);
/// assert_eq!(subscription.recv().await, Some(BusEvent::Event(stamped.into())));
/// # });
/// ```
pub struct LocalBus<E: StreamEvent = FleetEvent> {
    bus: Arc<Bus<E>>,
    handle: Arc<Handle<E>>,
}

struct Bus<E: StreamEvent> {
    hub: Arc<Hub<E>>,
    history: Arc<HistoryCache<E>>,
    store: MemoryStore<E>,
    /// Held while a subscription gets its start, so that it has one when it is returned, and not only once another thread has
    /// signalled it. No [foreign code](crate::event::foreign) runs under it.
    starting: Mutex<()>,
}

/// Closes the bus when the last handle is dropped.
struct Handle<E: StreamEvent>(Arc<Bus<E>>);

impl<E: StreamEvent> Drop for Handle<E> {
    fn drop(&mut self) {
        self.0.hub.close();
    }
}

impl<E: StreamEvent> Clone for LocalBus<E> {
    fn clone(&self) -> Self {
        Self {
            bus: Arc::clone(&self.bus),
            handle: Arc::clone(&self.handle),
        }
    }
}

impl LocalBus {
    /// Creates a bus for [`FleetEvent`]s with an empty store. For another event type, use `LocalBus::<Event>::default()`.
    ///
    /// ```
    /// let bus = doorbell::bus::LocalBus::new();
    /// assert!(bus.store().is_empty());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl<E: StreamEvent> Default for LocalBus<E> {
    /// Creates a bus for any event type with an empty store.
    fn default() -> Self {
        Self::over(MemoryStore::default())
    }
}

impl<E: StreamEvent> LocalBus<E> {
    /// Creates a bus over a store. Events that are appended to the store directly are delivered together with the next event of their
    /// stream that is appended through this bus.
    ///
    /// ```
    /// use doorbell::bus::{FleetEvent, LocalBus};
    /// use doorbell::store::{MemoryRetention, MemoryStore};
    ///
    /// let store = MemoryStore::<FleetEvent>::with_retention(MemoryRetention::default());
    /// let bus = LocalBus::over(store);
    /// assert_eq!(bus.store().stream_count(), 0);
    /// ```
    #[must_use]
    pub fn over(store: MemoryStore<E>) -> Self {
        let bus = Arc::new(Bus {
            hub: Arc::new(Hub::new(SETTINGS, Arc::default(), Box::new(|_| {}))),
            history: HistoryCache::new(Arc::new(MemorySource(store.clone())), Duration::ZERO), // all of it is in memory
            store,
            starting: Mutex::new(()),
        });
        Self {
            handle: Arc::new(Handle(Arc::clone(&bus))),
            bus,
        }
    }

    /// Returns the store.
    ///
    /// ```
    /// use doorbell::bus::{EventBus, FleetEvent, LocalBus};
    ///
    /// let bus = LocalBus::new();
    /// bus.publish(FleetEvent::custom("agent-1", "note", "hello"));
    /// assert_eq!(bus.store().high_water_now("agent-1"), 1);
    /// ```
    #[must_use]
    pub fn store(&self) -> &MemoryStore<E> {
        &self.bus.store
    }

    /// Appends an event to the store, delivers it, and returns it with its number.
    ///
    /// This method never waits. It is `async` so that the same code compiles with a bus over Postgres.
    ///
    /// # Errors
    ///
    /// Returns [`BusError::Store`] if the key cannot name a stream, or the event has a number that is not the next of its stream.
    /// Nothing is appended then.
    ///
    /// ```
    /// use doorbell::bus::{FleetEvent, LocalBus, StreamEvent};
    ///
    /// # futures::executor::block_on(async {
    /// let bus = LocalBus::new();
    /// let event = FleetEvent::custom("agent-1", "note", "hello");
    /// assert_eq!(bus.append_and_publish(event.clone()).await.unwrap().seq, 1);
    /// assert!(bus.append_and_publish(event.with_seq(7)).await.is_err());
    /// # });
    /// ```
    pub async fn append_and_publish(&self, event: E) -> Result<E, BusError> {
        self.append_now(event)
    }

    /// Appends several events, of one or more streams, delivers them, and returns them with their numbers.
    ///
    /// Appends all of them or none, and never waits.
    ///
    /// # Errors
    ///
    /// See [`append_and_publish`](Self::append_and_publish). The error is that of the first invalid event, and nothing is appended.
    ///
    /// ```
    /// use doorbell::bus::{FleetEvent, LocalBus};
    ///
    /// # futures::executor::block_on(async {
    /// let bus = LocalBus::new();
    /// let events = ["agent-1", "agent-2", "agent-1"].map(|agent| FleetEvent::custom(agent, "note", "hello"));
    /// let stamped = bus.append_batch_and_publish(events.into()).await.unwrap();
    /// assert_eq!(stamped.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 1, 2]);
    /// # });
    /// ```
    pub async fn append_batch_and_publish(&self, events: Vec<E>) -> Result<Vec<E>, BusError> {
        let events = self.bus.store.append_batch_now(events)?;
        events.iter().for_each(|event| self.enqueue(event));
        self.deliver();
        Ok(events)
    }

    fn append_now(&self, event: E) -> Result<E, BusError> {
        let event = self.bus.store.append_now(event)?;
        self.enqueue(&event);
        self.deliver();
        Ok(event)
    }

    /// Queues an event that was just appended. If another thread's later event has come first, [`catch_up`](Self::catch_up) reads both.
    fn enqueue(&self, event: &E) {
        let hub = &self.bus.hub;
        let record = || Record::from_event(event.clone());
        if hub.enqueue(event.stream_key(), event.seq(), record) {
            hub.counters.events_delivered.add(1);
            hub.counters.events_local.add(1);
        }
    }

    fn deliver(&self) {
        self.catch_up();
        self.bus.hub.flush();
    }

    /// Delivers events that were appended to the store directly, or out of order by several threads.
    fn catch_up(&self) {
        const LIMIT: usize = 256;
        loop {
            let checks = self.bus.hub.take_late_checks(LIMIT);
            for check in &checks {
                let recent = self.bus.store.first_recent_now(&check.range);
                self.bus.hub.decide_late(check, recent);
            }
            let reads = self.bus.hub.take_reads(LIMIT, |_| true);
            if checks.is_empty() && reads.is_empty() {
                return;
            }
            for read in reads {
                let page = self.bus.store.replay_now(&read.key, read.after, LIMIT);
                self.bus.hub.counters.reads.add(1);
                let delivered = self.bus.hub.deliver(read, page, LIMIT);
                self.bus.hub.counters.events_delivered.add(delivered.events);
            }
        }
    }

    /// Subscribes like [`subscribe`](EventBus::subscribe), but starts after event number `after`.
    ///
    /// The subscription delivers the later events of the store, then live events. If the store has no event number `after`, its first
    /// item is a [`Rewound`](super::Rewound); see [`SubscribeOptions::after`].
    ///
    /// ```
    /// use doorbell::bus::{BusEvent, EventBus, FleetEvent, LocalBus};
    ///
    /// # futures::executor::block_on(async {
    /// let bus = LocalBus::new();
    /// for text in ["one", "two"] {
    ///     bus.publish(FleetEvent::custom("agent-1", "note", text));
    /// }
    /// let mut subscription = bus.subscribe_from("agent-1", 1);
    /// let Some(BusEvent::Event(event)) = subscription.recv().await else { panic!() };
    /// assert_eq!(event.seq, 2);
    /// # });
    /// ```
    #[must_use]
    pub fn subscribe_from(&self, stream_key: &str, after: u64) -> BusSubscription<E> {
        self.subscribe_with(stream_key, SubscribeOptions::new().after(after))
    }

    /// Subscribes like [`subscribe`](EventBus::subscribe), with options.
    ///
    /// ```
    /// use doorbell::bus::{LocalBus, OnSlow, SubscribeOptions};
    ///
    /// let bus = LocalBus::new();
    /// let subscription = bus.subscribe_with("agent-1", SubscribeOptions::new().on_slow(OnSlow::Report));
    /// assert_eq!(subscription.stream_key(), Some("agent-1"));
    /// ```
    #[must_use]
    pub fn subscribe_with(&self, stream_key: &str, options: SubscribeOptions) -> BusSubscription<E> {
        if let Err(error) = check_stream_key(stream_key) {
            return BusSubscription::refused(error.into());
        }
        let hub = &self.bus.hub;
        hub.collect_if_grown();
        let (attached, started) = {
            let _starting = self.bus.starting.lock();
            let attached = hub.attach_one(stream_key, options.after);
            let head = |stream: StreamRef| {
                let seq = self.bus.store.high_water_now(&stream.key);
                (stream, StreamHead { seq, id: None }) // this history is never replaced
            };
            let heads: Vec<_> = hub.unstarted(usize::MAX).into_iter().map(head).collect();
            (attached, hub.start(heads))
        };
        self.subscription(attached, started, options)
    }

    /// Subscribes like [`subscribe_all`](EventBus::subscribe_all), with options.
    ///
    /// ```
    /// use doorbell::bus::{LocalBus, OnSlow, SubscribeOptions};
    ///
    /// let bus = LocalBus::new();
    /// let subscription = bus.subscribe_all_with(SubscribeOptions::new().on_slow(OnSlow::Report));
    /// assert_eq!(subscription.stream_key(), None);
    /// ```
    #[must_use]
    pub fn subscribe_all_with(&self, options: SubscribeOptions) -> BusSubscription<E> {
        if let Err(error) = options.check_for_all() {
            return BusSubscription::refused(error);
        }
        let hub = &self.bus.hub;
        let (attached, started) = {
            let _starting = self.bus.starting.lock();
            let attached = hub.attach_all();
            let started = if hub.needs_baseline() {
                hub.set_baseline(Some(self.heads()))
            } else {
                Started::default()
            };
            (attached, started)
        };
        self.subscription(attached, started, options)
    }

    fn heads(&self) -> HashMap<Arc<str>, StreamHead> {
        let listing = self.bus.store.changed_since(None, usize::MAX).now_or_never();
        let changes = listing
            .and_then(Result::ok)
            .flatten()
            .expect("a store in memory answers at once, and can list its streams");
        changes
            .streams
            .into_iter()
            .map(|stream| (stream.stream_key, stream.head))
            .collect()
    }

    fn subscription(
        &self,
        attached: Result<Attached<E>, BusError>,
        started: Started,
        options: SubscribeOptions,
    ) -> BusSubscription<E> {
        self.bus.hub.signal(started);
        self.catch_up(); // events that were appended in the meantime
        let (hub, history) = (Arc::clone(&self.bus.hub), Arc::clone(&self.bus.history));
        match attached {
            Ok(attached) => BusSubscription::new(hub, history, attached, options.after, options.on_slow),
            Err(error) => BusSubscription::refused(error),
        }
    }

    /// Returns the counters of the bus.
    ///
    /// ```
    /// assert_eq!(doorbell::bus::LocalBus::new().stats().events_delivered, 0);
    /// ```
    #[must_use]
    pub fn stats(&self) -> BusStats {
        self.bus.hub.counters.read()
    }
}

impl<E: StreamEvent> EventBus<E> for LocalBus<E> {
    /// Delivers an event that is in the store.
    ///
    /// An event that is not in the store is appended if it has no number or is the next of its stream. Otherwise it is dropped,
    /// and counted in [`BusStats::unpersisted`].
    fn publish(&self, event: E) {
        let (key, seq) = (event.stream_key(), event.seq());
        if seq > 0 && seq <= self.bus.store.high_water_now(key) {
            self.bus.hub.on_notification(key, seq..=seq);
            self.catch_up();
            return;
        }
        if self.append_now(event).is_err() {
            self.bus.hub.counters.unpersisted.add(1);
        }
    }

    fn subscribe(&self, stream_key: &str) -> BusSubscription<E> {
        self.subscribe_with(stream_key, SubscribeOptions::new())
    }

    fn subscribe_all(&self) -> BusSubscription<E> {
        self.subscribe_all_with(SubscribeOptions::new())
    }
}

impl<E: StreamEvent> fmt::Debug for LocalBus<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalBus")
            .field("streams", &self.bus.hub.streams())
            .field("subscriptions", &self.bus.hub.subscriptions())
            .finish_non_exhaustive()
    }
}

struct MemorySource<E: StreamEvent>(MemoryStore<E>);

impl<E: StreamEvent> HistorySource<E> for MemorySource<E> {
    fn read(&self, key: Arc<str>, after: u64, limit: usize, _: u32) -> BoxFuture<'static, Option<Page<E>>> {
        let store = self.0.clone();
        Box::pin(async move { Some(store.replay_now(&key, after, limit)) })
    }
}
