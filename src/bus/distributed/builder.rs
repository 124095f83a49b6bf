//! The settings of a bus.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::PgPool;

use super::health::HealthBoard;
use super::history_reader::HistoryReader;
use super::notify_queue::NotifyQueue;
use super::runtime::Runtime;
use super::shared::{Settings, SharedBus, Wakeups};
use super::{Alive, DEFAULT_CHANNEL, DistributedBus};
use crate::bus::history_cache::HistoryCache;
use crate::bus::hub::{Hub, HubSettings};
use crate::bus::stats::Counters;
use crate::bus::{BusError, StreamEvent};
use crate::listen::{ListenBuilder, ListenConfig, ListenMultiplexer, check_channel};
use crate::pg::warm_pool::WarmPool;
use crate::store::Store;

/// How long history that was read stays in memory for other subscriptions; for so long they may get what retention has removed.
const KEEP_HISTORY: Duration = Duration::from_secs(10);

/// Builds a [`DistributedBus`]; from [`DistributedBus::builder`].
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use doorbell::bus::{DistributedBus, FleetEvent};
/// use doorbell::store::MemoryStore;
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let store = Arc::new(MemoryStore::<FleetEvent>::new());
/// let bus = DistributedBus::builder(store)
///     .url("postgres://app@db.example:5432/app")
///     .channel("fleet")
///     .sweep_interval(Duration::from_secs(10))
///     .start()
///     .unwrap();
/// # drop(bus);
/// # });
/// ```
#[must_use = "a builder does nothing until it is started"]
pub struct DistributedBusBuilder<E: StreamEvent> {
    store: Arc<dyn Store<E>>,
    pool: Option<PgPool>,
    notify_url: Option<String>,
    listen: Option<ListenBuilder>,
    listen_set: bool,
    settings: Settings,
    hub: HubSettings,
}

impl<E: StreamEvent> DistributedBusBuilder<E> {
    pub(super) fn new(store: Arc<dyn Store<E>>) -> Self {
        Self {
            store,
            pool: None,
            notify_url: None,
            listen: None,
            listen_set: false,
            settings: Settings {
                channel: DEFAULT_CHANNEL.to_owned(),
                sweep_interval: Duration::from_secs(5),
                poll_interval: Duration::from_millis(250),
                notify_interval: Duration::from_millis(1),
                page: 512,
                streams_per_read: 256,
            },
            hub: HubSettings {
                stream_capacity: 256,
                all_capacity: 4096,
                pending_streams: 10_000,
            },
        }
    }

    /// The server, for listening and for ringing: a connection string as libpq knows it, `postgres://…` or `host=… user=…`. The bus opens one connection that listens, and
    /// lazily one that rings.
    pub fn url(mut self, url: &str) -> Self {
        self.listen = Some(ListenMultiplexer::builder().url(url));
        self.pool = None;
        self.notify_url = Some(url.to_owned());
        self
    }

    /// The pool through which bells go. Unless [`listen_url`](Self::listen_url) says otherwise, its options are also those of
    /// the listening connection, which is a connection of its own and takes no place in the pool. They are read again at each
    /// reconnect, so that a rotated password is found. When the pool has no free connection a bell waits 50 ms, and then
    /// goes over the listening connection.
    pub fn pool(mut self, pool: PgPool) -> Self {
        if !self.listen_set {
            let options = pool.clone();
            self.listen = Some(
                ListenMultiplexer::builder().config_source(move || ListenConfig::from_sqlx(&options.connect_options())),
            );
        }
        self.pool = Some(pool);
        self.notify_url = None;
        self
    }

    /// Another way to the server for the listening connection: past a pooler in transaction mode, through which no notification comes.
    pub fn listen_url(mut self, url: &str) -> Self {
        self.listen = Some(ListenMultiplexer::builder().url(url));
        self.listen_set = true;
        self
    }

    /// Everything about the listening connection: heartbeat, time limits, TLS.
    pub fn listen(mut self, listen: ListenBuilder) -> Self {
        self.listen = Some(listen);
        self.listen_set = true;
        self
    }

    /// The notification channel; [`DEFAULT_CHANNEL`] if nothing is said. 1 to 63 bytes.
    pub fn channel(mut self, channel: &str) -> Self {
        channel.clone_into(&mut self.settings.channel);
        self
    }

    /// How often the bus looks for events whose doorbell it has not heard, while it hears doorbells. 5 s if nothing is said, at
    /// least 10 ms. How long an event can be late when its publisher died between commit and doorbell.
    pub fn sweep_interval(mut self, interval: Duration) -> Self {
        self.settings.sweep_interval = interval;
        self
    }

    /// How often the bus looks for events while it hears no doorbells. 250 ms if nothing is said, at least 10 ms.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.settings.poll_interval = interval;
        self
    }

    /// How far apart bells are sent under load, at least; 1 ms if nothing is said. An idle bus rings at once whatever this says.
    pub fn notify_interval(mut self, spacing: Duration) -> Self {
        self.settings.notify_interval = spacing;
        self
    }

    /// How many events of one stream are kept in memory for its subscriptions, 256 if nothing is said, 2 to 2^20. A subscription that
    /// falls further behind reads the store. Costs about 100 bytes each for every stream that is subscribed to by key.
    pub fn stream_capacity(mut self, capacity: usize) -> Self {
        self.hub.stream_capacity = capacity;
        self
    }

    /// The same for the subscriptions to all streams together, 4096 if nothing is said, 2 to 2^20.
    pub fn all_capacity(mut self, capacity: usize) -> Self {
        self.hub.all_capacity = capacity;
        self
    }

    /// How many events of one stream the bus reads at a time, 512 if nothing is said, at least 1.
    pub fn page(mut self, events: usize) -> Self {
        self.settings.page = events;
        self
    }

    /// Makes the bus. It connects in the background, starting now if this is called from inside a tokio runtime, else as soon as a
    /// method of the bus is. Subscriptions become ready when the server has answered; see [`BusHealth`](super::BusHealth).
    ///
    /// # Errors
    ///
    /// A setting is outside its bounds, or nothing says where the server is.
    pub fn start(self) -> Result<DistributedBus<E>, BusError> {
        self.check()?;
        let listen = self
            .listen
            .ok_or_else(|| invalid("server", "not set", "a url, a pool or a listener"))?;
        let counters = Arc::<Counters>::default();
        let wakeups = Arc::<Wakeups>::default();
        let runtime = Arc::new(Runtime::new());
        let wakeup = {
            let wakeups = Arc::clone(&wakeups);
            Box::new(move || {
                wakeups.reader.notify_one();
                wakeups.starter.notify_one();
            })
        };
        let source = HistoryReader::new(Arc::clone(&self.store), Arc::clone(&runtime), Arc::clone(&counters));
        let inner = Arc::new(SharedBus {
            hub: Arc::new(Hub::new(self.hub, Arc::clone(&counters), wakeup)),
            pages: HistoryCache::new(Arc::new(source), KEEP_HISTORY),
            store: self.store,
            notify_queue: NotifyQueue::new(self.hub.pending_streams, Arc::clone(&counters)),
            counters,
            settings: self.settings,
            connections: self
                .pool
                .map(WarmPool::shared)
                .map_or_else(OnceLock::new, OnceLock::from),
            notify_url: self.notify_url,
            runtime,
            health: HealthBoard::new(),
            wakeups,
            watermark: tokio::sync::Mutex::new(None),
            listen,
            listener: OnceLock::new(),
            starting: Mutex::new(()),
        });
        let _ = inner.start(); // outside a runtime: later
        Ok(DistributedBus {
            alive: Arc::new(Alive(Arc::clone(&inner))),
            inner,
        })
    }

    /// As [`start`](Self::start), and waits until the listening connection stands.
    ///
    /// # Errors
    ///
    /// As `start`; and the first connection cannot be made, or the server does not acknowledge the LISTEN within 10 s
    /// ([`ListenBuilder::subscribe_timeout`]). Then nothing is left behind.
    pub async fn connect(self) -> Result<DistributedBus<E>, BusError> {
        let bus = self.start()?;
        tokio::select! {
            listening = bus.listening() => listening?,
            reason = bus.first_failure() => return Err(reason),
        }
        Ok(bus)
    }

    fn check(&self) -> Result<(), BusError> {
        let shortest = Duration::from_millis(10);
        for (setting, value) in [
            ("sweep_interval", self.settings.sweep_interval),
            ("poll_interval", self.settings.poll_interval),
        ] {
            if value < shortest {
                return Err(invalid(setting, format!("{value:?}"), "at least 10 ms"));
            }
        }
        for (setting, value) in [
            ("stream_capacity", self.hub.stream_capacity),
            ("all_capacity", self.hub.all_capacity),
        ] {
            if !(2..=1 << 20).contains(&value) {
                return Err(invalid(setting, value.to_string(), "2 to 2^20"));
            }
        }
        if self.settings.page == 0 {
            return Err(invalid("page", "0", "at least 1"));
        }
        if self.settings.notify_interval > Duration::from_secs(60) {
            return Err(invalid(
                "notify_interval",
                format!("{:?}", self.settings.notify_interval),
                "at most 60 s",
            ));
        }
        if check_channel(&self.settings.channel).is_err() {
            return Err(invalid(
                "channel",
                format!("{:?}", self.settings.channel),
                "1 to 63 bytes without NUL",
            ));
        }
        Ok(())
    }
}

fn invalid(setting: &'static str, value: impl Into<String>, bounds: &'static str) -> BusError {
    BusError::InvalidSetting {
        setting,
        value: value.into(),
        bounds,
    }
}

/// One connection for bells, opened when the first one rings. None if the url is one that only the listener understands; then bells go
/// over its connection.
///
/// Inside a runtime only.
pub(super) fn notify_pool(url: &str) -> Option<PgPool> {
    sqlx::postgres::PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(Duration::from_secs(2))
        .test_before_acquire(false)
        .connect_lazy(url)
        .ok()
}

impl<E: StreamEvent> fmt::Debug for DistributedBusBuilder<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedBusBuilder")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
