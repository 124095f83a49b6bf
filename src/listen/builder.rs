//! The settings of a listener.

use core::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use super::error::ListenError;
use super::mux::ListenMultiplexer;
use crate::pg::backoff::Backoff;
use crate::pg::config::{ConfigError, ListenConfig};

/// The most that [`ListenBuilder::channel_capacity`] takes.
pub(super) const MAX_CHANNEL_CAPACITY: usize = 1 << 20;

/// Where the settings for each attempt to connect come from.
pub(super) type ConfigSource = Arc<dyn Fn() -> Result<ListenConfig, ConfigError> + Send + Sync>;

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) channel_capacity: NonZeroUsize,
    pub(super) heartbeat_interval: Duration,
    pub(super) heartbeat_deadline: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) subscribe_timeout: Duration,
    pub(super) notify_timeout: Duration,
    pub(super) unlisten_delay: Duration,
    pub(super) backoff: Backoff,
    pub(super) self_probe: bool,
    pub(super) application_name: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            channel_capacity: NonZeroUsize::new(1024).unwrap_or(NonZeroUsize::MIN),
            heartbeat_interval: Duration::from_secs(5),
            heartbeat_deadline: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(5),
            subscribe_timeout: Duration::from_secs(10),
            notify_timeout: Duration::from_secs(5),
            unlisten_delay: Duration::from_secs(5),
            backoff: Backoff::default(),
            self_probe: true,
            application_name: None,
        }
    }
}

/// Settings of a [`ListenMultiplexer`]; one of [`url`](Self::url), [`config`](Self::config) and
/// [`config_source`](Self::config_source) is needed, the rest has defaults.
///
/// ```
/// use doorbell::listen::ListenMultiplexer;
/// use std::num::NonZeroUsize;
/// use std::time::Duration;
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let mux = ListenMultiplexer::builder()
///     .url("postgres://localhost:1/app")
///     .channel_capacity(NonZeroUsize::new(256).unwrap())
///     .heartbeat(Duration::from_secs(20), Duration::from_secs(5))
///     .application_name("worker")
///     .start()?;
/// # Ok::<_, doorbell::listen::ListenError>(()) }).unwrap();
/// ```
#[derive(Clone, Default)]
#[must_use = "a builder does nothing until it is started"]
pub struct ListenBuilder {
    settings: Settings,
    source: Option<ConfigSource>,
    /// What was wrong with the settings, told when it is started.
    error: Option<ListenError>,
}

impl ListenBuilder {
    /// Where to connect to, as a connection string: see [`ListenConfig`]. It is parsed at once; what is wrong with it, `start`
    /// and `connect` tell.
    pub fn url(self, url: &str) -> Self {
        match url.parse::<ListenConfig>() {
            Ok(config) => self.config(config),
            Err(error) => Self {
                error: Some(error.into()),
                ..self
            },
        }
    }

    /// Where to connect to, as settings: a [`ListenConfig`], or a [`tokio_postgres::Config`], whose TLS then follows its
    /// `sslmode` without verification of certificates.
    ///
    /// ```
    /// use doorbell::listen::ListenMultiplexer;
    ///
    /// let mut config = tokio_postgres::Config::new();
    /// config.host("db.internal").user("app").dbname("app");
    /// let builder = ListenMultiplexer::builder().config(config);
    /// ```
    pub fn config(self, config: impl Into<ListenConfig>) -> Self {
        let config = config.into();
        self.config_source(move || Ok(config.clone()))
    }

    /// Asks for the settings at every attempt to connect: for passwords that change, and pools whose options do. The function is
    /// called on the runtime and must not block; an error of it counts as a failed attempt.
    ///
    /// ```no_run
    /// # fn example(pool: sqlx::PgPool) -> Result<(), doorbell::listen::ListenError> {
    /// use doorbell::listen::{ListenConfig, ListenMultiplexer};
    ///
    /// let mux = ListenMultiplexer::builder()
    ///     .config_source(move || ListenConfig::from_sqlx(&pool.connect_options()))
    ///     .start()?;
    /// # Ok(()) }
    /// ```
    pub fn config_source(self, source: impl Fn() -> Result<ListenConfig, ConfigError> + Send + Sync + 'static) -> Self {
        Self {
            source: Some(Arc::new(source)),
            error: None,
            ..self
        }
    }

    /// How many items the ring of each channel retains for its subscriptions; 1024 unless set, at most 1,048,576. A ring costs
    /// about 100 bytes for each, while anybody subscribes to the channel.
    pub fn channel_capacity(mut self, capacity: NonZeroUsize) -> Self {
        self.settings.channel_capacity = capacity;
        self
    }

    /// Every `interval` the server is asked which channels the session listens on, and has until `deadline` to answer; 5 s and
    /// 5 s unless set. No answer, or a missing channel, and the listener reconnects. The deadline holds for every other statement
    /// too. So a peer that is frozen or cut off is noticed within the sum of both.
    pub fn heartbeat(mut self, interval: Duration, deadline: Duration) -> Self {
        self.settings.heartbeat_interval = interval;
        self.settings.heartbeat_deadline = deadline;
        self
    }

    /// How long one attempt to connect may take as a whole, over all hosts, with authentication; 5 s unless set. (A
    /// `connect_timeout` in the connection string bounds the opening of each socket within it.)
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// How long [`ListenMultiplexer::subscribe`] waits for the server's acknowledgement, outages included; 10 s unless set.
    pub fn subscribe_timeout(mut self, timeout: Duration) -> Self {
        self.settings.subscribe_timeout = timeout;
        self
    }

    /// How long [`ListenMultiplexer::notify`] may take as a whole; 5 s unless set.
    pub fn notify_timeout(mut self, timeout: Duration) -> Self {
        self.settings.notify_timeout = timeout;
        self
    }

    /// How long the server goes on listening on a channel after its last subscription has gone, so that coming and going costs
    /// it nothing; 5 s unless set. (Beyond 1024 such channels, the further ones are given up at once.)
    pub fn unlisten_delay(mut self, unlisten_delay: Duration) -> Self {
        self.settings.unlisten_delay = unlisten_delay;
        self
    }

    /// How far apart attempts to connect are.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.settings.backoff = backoff;
        self
    }

    /// Whether each new connection proves that notifications arrive by sending one to itself; true unless set. It is the only
    /// way to notice a pooler in transaction mode. Through a pooler, of whatever kind, the probe takes a second connection for a
    /// moment.
    pub fn self_probe(mut self, self_probe: bool) -> Self {
        self.settings.self_probe = self_probe;
        self
    }

    /// The `application_name` of the session, for `pg_stat_activity`; if unset, that of the connection settings, or else
    /// `doorbell listen`.
    pub fn application_name(mut self, name: impl Into<String>) -> Self {
        self.settings.application_name = Some(name.into());
        self
    }

    /// Starts the listener at once. It connects in the background, on the tokio runtime that this is called in, and goes on
    /// trying for as long as it lives; its [health](ListenMultiplexer::health) tells how that goes. Subscribe with
    /// [`subscribe_lazy`](ListenMultiplexer::subscribe_lazy), or wait with [`subscribe`](ListenMultiplexer::subscribe).
    ///
    /// The runtime needs its time and I/O drivers enabled (`enable_all`). When it is shut down, the listener and all its
    /// subscriptions end.
    ///
    /// # Errors
    ///
    /// [`ListenError::NoRuntime`] outside a tokio runtime, [`ListenError::Config`] when the settings are missing or wrong.
    ///
    /// ```
    /// use doorbell::listen::{ListenError, ListenMultiplexer};
    ///
    /// let builder = ListenMultiplexer::builder().url("postgres://localhost/app");
    /// assert!(matches!(builder.start(), Err(ListenError::NoRuntime))); // not inside a runtime
    /// ```
    pub fn start(self) -> Result<ListenMultiplexer, ListenError> {
        let (settings, source) = self.checked()?;
        ListenMultiplexer::start(settings, source, None)
    }

    /// Starts the listener and waits until its first connection stands and, unless the probe is switched off, is known to
    /// deliver. If the first attempt fails, nothing is left of it.
    ///
    /// Cancel-safe: a dropped future leaves nothing behind.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start), and whatever the first attempt ran into: [`ListenError::Connect`], [`ListenError::Timeout`],
    /// [`ListenError::Standby`], [`ListenError::NotDelivered`]. Use `start` to go on in spite of these.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), doorbell::listen::ListenError> {
    /// use doorbell::listen::ListenMultiplexer;
    ///
    /// let mux = ListenMultiplexer::builder().url("postgres://localhost/app").connect().await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect(self) -> Result<ListenMultiplexer, ListenError> {
        let (settings, source) = self.checked()?;
        let (first, outcome) = tokio::sync::oneshot::channel();
        let mux = ListenMultiplexer::start(settings, source, Some(first))?;
        match outcome.await {
            Ok(Ok(())) => Ok(mux),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ListenError::ShutDown),
        }
    }

    fn checked(self) -> Result<(Settings, ConfigSource), ListenError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let capacity = self.settings.channel_capacity.get();
        if capacity > MAX_CHANNEL_CAPACITY {
            return Err(ConfigError::new(format!(
                "a channel capacity of {capacity} is above {MAX_CHANNEL_CAPACITY}"
            ))
            .into());
        }
        let missing = || ConfigError::new("there is nothing to connect to: set `url`, `config` or `config_source`");
        Ok((self.settings, self.source.ok_or_else(missing)?))
    }
}

impl fmt::Debug for ListenBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenBuilder")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
