//! The builder of a bus.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::PgPool;

use super::guarded_store::GuardedStore;
use super::health::HealthTracker;
use super::history_reader::HistoryReader;
use super::isolated_reads::IsolatedReads;
use super::notify_queue::NotifyQueue;
use super::read_permits::ReadPermits;
use super::runtime::Runtime;
use super::shared::{Settings, SharedBus, next_id};
use super::wakeups::Wakeups;
use super::{CloseOnDrop, DEFAULT_CHANNEL, DistributedBus};
use crate::bus::history_cache::HistoryCache;
use crate::bus::hub::{Hub, HubSettings, Work};
use crate::bus::stats::Counters;
use crate::bus::{BusError, StreamEvent};
use crate::listen::{ListenBuilder, ListenConfig, ListenMultiplexer, check_channel};
use crate::pg::config::ConnectionString;
use crate::pg::warm_pool::WarmPool;
use crate::store::Store;

/// How long history that was read is cached for other subscriptions. For that long they may get events that retention has removed.
const KEEP_HISTORY: Duration = Duration::from_secs(10);

/// A builder for [`DistributedBus`], returned by [`DistributedBus::builder`].
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
    /// Whether `listen` was set explicitly, so that `pool` does not replace it.
    listen_is_explicit: bool,
    /// If none is set, the store's.
    channel: Option<String>,
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
            listen_is_explicit: false,
            channel: None,
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

    /// Sets the server, by a libpq connection string: `postgres://…` or `host=… user=…`. The bus opens one connection for listening and,
    /// when the first notification is sent, one for notifications.
    pub fn url(mut self, url: &str) -> Self {
        self.listen = Some(ListenMultiplexer::builder().url(url));
        self.pool = None;
        self.notify_url = Some(url.to_owned());
        self
    }

    /// Sets the pool for notifications. If it has no free connection within 50 ms, notifications are sent over the listening connection.
    ///
    /// The listening connection is not part of the pool. It uses the pool's options, unless [`listen_url`](Self::listen_url) or
    /// [`listen`](Self::listen) is set. The options are read again at each reconnect, so a rotated password takes effect.
    pub fn pool(mut self, pool: PgPool) -> Self {
        if !self.listen_is_explicit {
            let options = pool.clone();
            self.listen = Some(
                ListenMultiplexer::builder().config_source(move || ListenConfig::from_sqlx(&options.connect_options())),
            );
        }
        self.pool = Some(pool);
        self.notify_url = None;
        self
    }

    /// Sets another URL for the listening connection, to bypass a pooler in transaction mode: such poolers do not pass notifications on.
    pub fn listen_url(mut self, url: &str) -> Self {
        self.listen = Some(ListenMultiplexer::builder().url(url));
        self.listen_is_explicit = true;
        self
    }

    /// Sets all options of the listening connection, such as its heartbeat, timeouts and TLS.
    pub fn listen(mut self, listen: ListenBuilder) -> Self {
        self.listen = Some(listen);
        self.listen_is_explicit = true;
        self
    }

    /// Sets the notification channel, for a store that has none. Buses that share a database exchange notifications if they use the
    /// same channel. Default: the store's ([`Store::notification_channel`]), which for a `PostgresStore` follows from its schema, or
    /// else [`DEFAULT_CHANNEL`]. Range: 1 to 63 bytes, without NUL.
    ///
    /// To choose the channel of a `PostgresStore`, use
    /// [`PostgresStoreBuilder::channel`](crate::store::PostgresStoreBuilder::channel). A bus that is set to another channel than its
    /// store's is refused: it would not get the notifications that SQL and other buses send.
    pub fn channel(mut self, channel: &str) -> Self {
        self.channel = Some(channel.to_owned());
        self
    }

    /// Sets the interval of sweeps while the bus receives notifications. It bounds the delay of an event whose notification was lost, for
    /// example because its publisher died after the commit. Default: 5 s. Range: at least 10 ms; `Duration::MAX` means never. Jitter: a tenth
    /// of the interval.
    pub fn sweep_interval(mut self, interval: Duration) -> Self {
        self.settings.sweep_interval = interval;
        self
    }

    /// Sets the interval of sweeps while the bus receives no notifications. Default: 250 ms. Range: at least 10 ms; `Duration::MAX` means
    /// never. Jitter: a tenth of the interval.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.settings.poll_interval = interval;
        self
    }

    /// Sets the minimum interval between notifications under load. Events of the interval are sent together. An idle bus sends at once.
    /// Default: 1 ms. Range: 0 to 60 s.
    pub fn notify_interval(mut self, interval: Duration) -> Self {
        self.settings.notify_interval = interval;
        self
    }

    /// Sets the number of events of one stream that are kept in memory for its subscriptions. A subscription that falls further behind
    /// reads the store. Default: 256. Range: 2 to 2^20. Cost: about 130 bytes per event, for every stream that is subscribed to by key.
    pub fn stream_capacity(mut self, capacity: usize) -> Self {
        self.hub.stream_capacity = capacity;
        self
    }

    /// Sets the number of events that are kept in memory for all subscriptions to all streams together. Default: 4096. Range: 2 to 2^20.
    pub fn all_capacity(mut self, capacity: usize) -> Self {
        self.hub.all_capacity = capacity;
        self
    }

    /// Sets the maximum number of events of one stream in one read. Default: 512. Range: at least 1.
    pub fn page(mut self, events: usize) -> Self {
        self.settings.page = events;
        self
    }

    /// Builds the bus. It connects in the background: at once if this is called from inside a tokio runtime, otherwise when one of its
    /// methods is. Subscriptions become ready when the server has answered; see [`BusHealth`](super::BusHealth).
    ///
    /// # Errors
    ///
    /// [`BusError::InvalidSetting`] if a setting is out of range, or no server is set; [`BusError::ChannelMismatch`] if the
    /// [channel](Self::channel) is not the store's.
    pub fn start(mut self) -> Result<DistributedBus<E>, BusError> {
        self.settings.channel = self.resolve_channel()?;
        self.check()?;
        let listen = self
            .listen
            .ok_or_else(|| invalid("server", "not set", "a URL, a pool or a listener"))?;
        let counters = Arc::<Counters>::default();
        let wakeups = Arc::<Wakeups>::default();
        let runtime = Arc::new(Runtime::new());
        let wakeup = {
            let wakeups = Arc::clone(&wakeups);
            Box::new(move |work| match work {
                Work::Read => {
                    wakeups.reader.notify_one();
                    wakeups.subscription_start.notify_one();
                }
                Work::Sweep => wakeups.sweeper.notify_one(),
            })
        };
        let health = Arc::new(HealthTracker::new(Arc::clone(&counters)));
        let store: Arc<dyn Store<E>> = Arc::new(GuardedStore(self.store));
        let read_permits = Arc::new(ReadPermits::new());
        let history = HistoryReader::new(
            Arc::clone(&store),
            Arc::clone(&runtime),
            Arc::clone(&read_permits),
            Arc::clone(&counters),
            Arc::clone(&health),
        );
        let shared = Arc::new(SharedBus {
            id: next_id(),
            hub: Arc::new(Hub::new(self.hub, Arc::clone(&counters), wakeup)),
            history: HistoryCache::new(Arc::new(history), KEEP_HISTORY),
            store,
            isolated_reads: IsolatedReads::default(),
            read_permits,
            notify_queue: NotifyQueue::new(self.hub.pending_streams, Arc::clone(&counters)),
            counters,
            settings: self.settings,
            notify_pool: self
                .pool
                .map(WarmPool::shared)
                .map_or_else(OnceLock::new, OnceLock::from),
            notify_url: self.notify_url,
            runtime,
            health,
            wakeups,
            watermark: tokio::sync::Mutex::new(None),
            listen,
            listener: OnceLock::new(),
            starting: Mutex::new(()),
        });
        let _ = shared.start(); // outside a runtime, a later call starts it
        Ok(DistributedBus {
            close_on_drop: Arc::new(CloseOnDrop(Arc::clone(&shared))),
            shared,
        })
    }

    /// Builds the bus like [`start`](Self::start), and waits until the server has acknowledged the LISTEN.
    ///
    /// # Errors
    ///
    /// The errors of `start`, and [`BusError::Listen`] if the first connection cannot be made or the server does not acknowledge the LISTEN
    /// within 10 s ([`ListenBuilder::subscribe_timeout`]). On an error, all tasks end and all connections are closed.
    pub async fn connect(self) -> Result<DistributedBus<E>, BusError> {
        let bus = self.start()?;
        tokio::select! {
            listening = bus.listening() => listening?,
            reason = bus.first_failure() => return Err(reason),
        }
        Ok(bus)
    }

    fn resolve_channel(&self) -> Result<String, BusError> {
        match (self.channel.as_deref(), self.store.notification_channel()) {
            (Some(bus), Some(store)) if bus != store => Err(BusError::ChannelMismatch {
                bus: bus.to_owned(),
                store: store.to_owned(),
            }),
            (bus, store) => Ok(bus.or(store).unwrap_or(DEFAULT_CHANNEL).to_owned()),
        }
    }

    fn check(&self) -> Result<(), BusError> {
        let minimum = Duration::from_millis(10);
        for (setting, value) in [
            ("sweep_interval", self.settings.sweep_interval),
            ("poll_interval", self.settings.poll_interval),
        ] {
            if value < minimum {
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

/// A pool of one connection for notifications, opened when the first one is sent. `None` if the connection string is not valid, of which the
/// listener informs, or sqlx cannot use it: then notifications are sent over the listening connection. Must be called from inside a runtime.
pub(super) fn notify_pool(url: &str) -> Option<WarmPool> {
    let connection_string: ConnectionString = url.parse().ok()?;
    let options = sqlx::postgres::PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(Duration::from_secs(2))
        .test_before_acquire(false);
    WarmPool::connect_lazy(&connection_string, options, false).ok()
}

impl<E: StreamEvent> fmt::Debug for DistributedBusBuilder<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedBusBuilder")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
