//! Settings of a listener.

use core::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use super::error::ListenError;
use super::mux::ListenMultiplexer;
use crate::pg::backoff::Backoff;
use crate::pg::config::{ConfigError, ListenConfig};

/// The maximum of [`ListenBuilder::channel_capacity`].
pub(super) const MAX_CHANNEL_CAPACITY: usize = 1 << 20;

/// The minimum of the heartbeat's settings and of [`ListenBuilder::connect_timeout`].
const MIN_TIMEOUT: Duration = Duration::from_millis(10);

/// Returns the connection options for each attempt to connect.
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

/// Configures and starts a [`ListenMultiplexer`].
///
/// One of [`url`](Self::url), [`config`](Self::config) and [`config_source`](Self::config_source) is required; everything else
/// has a default.
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
    /// The error in the settings, if any. Returned at the start.
    error: Option<ListenError>,
}

impl ListenBuilder {
    /// Sets the server to connect to, by a connection string; see [`ListenConfig`] for its parameters. If it is invalid,
    /// [`start`](Self::start) and [`connect`](Self::connect) return the error.
    ///
    /// ```
    /// use doorbell::listen::ListenMultiplexer;
    ///
    /// let builder = ListenMultiplexer::builder().url("postgres://app@db.internal/app?sslmode=verify-full");
    /// ```
    pub fn url(self, url: &str) -> Self {
        match url.parse::<ListenConfig>() {
            Ok(config) => self.config(config),
            Err(error) => Self {
                error: Some(error.into()),
                ..self
            },
        }
    }

    /// Sets the server to connect to, by a [`ListenConfig`] or a [`tokio_postgres::Config`]. The latter uses TLS according to its
    /// `sslmode`, without verifying certificates.
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

    /// Sets a function that returns the connection options for each attempt to connect, such as one that reads a rotated password.
    /// It runs on the runtime and must not block. An error or a panic counts as a failed attempt.
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

    /// Sets how many items each channel retains for its slowest subscription. Default: 1024. Range: 1 to 2^20.
    ///
    /// Costs about 150 bytes per item while the channel has subscriptions.
    pub fn channel_capacity(mut self, capacity: NonZeroUsize) -> Self {
        self.settings.channel_capacity = capacity;
        self
    }

    /// Sets the interval of the listener's heartbeats, and how long the server may take to answer. Default: 5 s each. Range: at least
    /// 10 ms each; `Duration::MAX` means no heartbeats, or no limit.
    ///
    /// Each heartbeat queries the channels on which the session listens. If the server does not answer, or a channel is missing,
    /// the listener reconnects. The interval starts with the answer to the previous heartbeat, so a frozen or unreachable peer is
    /// detected within interval plus deadline (10 s by default). The deadline also applies to every other statement.
    pub fn heartbeat(mut self, interval: Duration, deadline: Duration) -> Self {
        self.settings.heartbeat_interval = interval;
        self.settings.heartbeat_deadline = deadline;
        self
    }

    /// Sets the time limit for one attempt to connect, over all hosts and including authentication. Default: 5 s.
    /// Range: at least 10 ms; `Duration::MAX` means no limit.
    ///
    /// A `connect_timeout` in the connection string limits the opening of each socket within it.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// Sets how long [`ListenMultiplexer::subscribe`] waits for the server's acknowledgement, outages included. Default: 10 s.
    /// Range: any; zero does not wait, and `Duration::MAX` waits without a limit.
    pub fn subscribe_timeout(mut self, timeout: Duration) -> Self {
        self.settings.subscribe_timeout = timeout;
        self
    }

    /// Sets the time limit for [`ListenMultiplexer::notify`], outages included. Default: 5 s. Range: any; with zero,
    /// every call fails, and `Duration::MAX` means no limit.
    pub fn notify_timeout(mut self, timeout: Duration) -> Self {
        self.settings.notify_timeout = timeout;
        self
    }

    /// Sets how long the session listens on a channel after its last subscription is dropped. Default: 5 s. Range: any;
    /// `Duration::MAX` means for as long as the session lasts.
    ///
    /// Subscribing again within that time sends no statement.
    ///
    /// At most 1024 channels wait for their UNLISTEN; for further ones, it is sent at once.
    pub fn unlisten_delay(mut self, unlisten_delay: Duration) -> Self {
        self.settings.unlisten_delay = unlisten_delay;
        self
    }

    /// Sets the delays between attempts to connect; see [`Backoff`].
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.settings.backoff = backoff;
        self
    }

    /// Sets whether each new connection checks that notifications arrive, by sending one to itself. Default: true.
    ///
    /// This is the only way to detect a pooler in transaction mode. Through any pooler, the probe briefly uses a second connection.
    pub fn self_probe(mut self, self_probe: bool) -> Self {
        self.settings.self_probe = self_probe;
        self
    }

    /// Sets the session's `application_name`, as shown in `pg_stat_activity`. Default: the one in the connection options, or else
    /// `doorbell listen`.
    pub fn application_name(mut self, name: impl Into<String>) -> Self {
        self.settings.application_name = Some(name.into());
        self
    }

    /// Starts the listener without waiting for a connection.
    ///
    /// It connects in the background, on the current tokio runtime, and keeps trying until it is shut down;
    /// [`health`](ListenMultiplexer::health) reports its state. Subscribe with
    /// [`subscribe_lazy`](ListenMultiplexer::subscribe_lazy), or wait with [`subscribe`](ListenMultiplexer::subscribe).
    ///
    /// The runtime must have time and I/O enabled (`enable_all`). When it shuts down, the listener and all its subscriptions end.
    ///
    /// # Errors
    ///
    /// Returns [`ListenError::NoRuntime`] outside a tokio runtime, and [`ListenError::Config`] if the settings are missing or
    /// invalid.
    ///
    /// ```
    /// use doorbell::listen::{ListenError, ListenMultiplexer};
    ///
    /// let builder = ListenMultiplexer::builder().url("postgres://localhost/app");
    /// assert!(matches!(builder.start(), Err(ListenError::NoRuntime))); // outside a runtime
    /// ```
    pub fn start(self) -> Result<ListenMultiplexer, ListenError> {
        let (settings, source) = self.validate()?;
        ListenMultiplexer::start(settings, source, None)
    }

    /// Starts the listener, and waits until it is connected and, unless [`self_probe`](Self::self_probe) is off, a notification
    /// to itself has arrived. If the first attempt fails, the listener is shut down.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel-safe: a dropped future leaves nothing behind.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`start`](Self::start), and the error of a failed first attempt: [`ListenError::Connect`],
    /// [`ListenError::Lost`], [`ListenError::Timeout`], [`ListenError::Standby`] or [`ListenError::NotDelivered`]. Use `start` to
    /// keep trying despite these.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), doorbell::listen::ListenError> {
    /// use doorbell::listen::ListenMultiplexer;
    ///
    /// let mux = ListenMultiplexer::builder().url("postgres://localhost/app").connect().await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect(self) -> Result<ListenMultiplexer, ListenError> {
        let (settings, source) = self.validate()?;
        let (first_attempt, outcome) = tokio::sync::oneshot::channel();
        let mux = ListenMultiplexer::start(settings, source, Some(first_attempt))?;
        match outcome.await {
            Ok(Ok(())) => Ok(mux),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ListenError::ShutDown),
        }
    }

    fn validate(self) -> Result<(Settings, ConfigSource), ListenError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let capacity = self.settings.channel_capacity.get();
        if capacity > MAX_CHANNEL_CAPACITY {
            return Err(ConfigError::new(format!(
                "channel_capacity is {capacity}; the limit is {MAX_CHANNEL_CAPACITY}"
            ))
            .into());
        }
        for (setting, value) in [
            ("the heartbeat's interval", self.settings.heartbeat_interval),
            ("the heartbeat's deadline", self.settings.heartbeat_deadline),
            ("connect_timeout", self.settings.connect_timeout),
        ] {
            if value < MIN_TIMEOUT {
                return Err(ConfigError::new(format!("{setting} is {value:?}; the minimum is {MIN_TIMEOUT:?}")).into());
            }
        }
        let missing = || ConfigError::new("no server is set: call `url`, `config` or `config_source`");
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
