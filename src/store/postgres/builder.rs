//! Configures a store and connects it.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::sync::Semaphore;

use super::group_commit::AppendQueue;
use super::primary::Primary;
use super::schema::{InvalidSchemaName, Schema};
use super::{Inner, PostgresStore, channel};
use crate::event::{FleetEvent, StreamEvent};
use crate::pg::config::{ConfigError, ConnectionString};
use crate::pg::encoding::Untranslatable;
use crate::pg::warm_pool::WarmPool;
use crate::store::StoreError;

/// The default schema.
pub const DEFAULT_SCHEMA: &str = "doorbell";

/// The notification channel of the default schema. To notify from SQL: `SELECT doorbell.notify_events('agent-1', 7)`.
///
/// A store in another schema has another channel: `doorbell_` and the schema's name, or `doorbell-` and a hash of it if that is longer
/// than 63 bytes. The SQL function `notification_channel()` returns it.
pub const DEFAULT_CHANNEL: &str = "doorbell";

/// The size of the pool that [`connect`](PostgresStoreBuilder::connect) creates.
const POOL_SIZE: u32 = 3;

/// The time for which an operation waits for a connection of that pool, including the time to connect.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) const DEFAULT_LOCK_TIMEOUT: Duration = Duration::from_secs(5);

const DEFAULT_RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection that has been idle for this long is pinged before it is used, because its server may have gone.
const PING_AFTER_IDLE: Duration = Duration::from_secs(1);

/// Configures a [`PostgresStore`]. Created by [`PostgresStore::builder`].
///
/// ```no_run
/// use std::time::Duration;
///
/// use doorbell::bus::FleetEvent;
/// use doorbell::store::PostgresStore;
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let store = PostgresStore::<FleetEvent>::builder()
///     .schema("fleet")?
///     .lock_timeout(Duration::from_secs(2))
///     .connect("postgres://localhost/app")
///     .await?;
/// store.migrate().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PostgresStoreBuilder<E = FleetEvent> {
    schema: Option<Schema>,
    lock_timeout: Duration,
    response_timeout: Duration,
    channel: Option<Arc<str>>,
    transaction_pooler: bool,
    event: PhantomData<fn() -> E>,
}

impl<E> PostgresStoreBuilder<E> {
    pub(super) fn new() -> Self {
        Self {
            schema: None,
            lock_timeout: DEFAULT_LOCK_TIMEOUT,
            response_timeout: DEFAULT_RESPONSE_TIMEOUT,
            channel: None,
            transaction_pooler: false,
            event: PhantomData,
        }
    }

    /// Sets the schema that contains the store's tables and functions.
    ///
    /// The name is always quoted, so case and spaces are significant. Stores in different schemas are independent.
    ///
    /// Default: [`DEFAULT_SCHEMA`].
    ///
    /// # Errors
    ///
    /// Returns [`InvalidSchemaName`] if Postgres would refuse or truncate the name.
    ///
    /// ```
    /// use doorbell::bus::FleetEvent;
    /// use doorbell::store::PostgresStore;
    ///
    /// assert!(PostgresStore::<FleetEvent>::builder().schema("fleet").is_ok());
    /// assert!(PostgresStore::<FleetEvent>::builder().schema("pg_fleet").is_err());
    /// ```
    pub fn schema(mut self, name: &str) -> Result<Self, InvalidSchemaName> {
        self.schema = Some(Schema::new(name)?);
        Ok(self)
    }

    /// Sets how long an append or a trim waits for a stream that another transaction has locked. After that, it fails with
    /// [`StoreError::LockTimeout`]. Appends that were queued behind it in this process fail at most one lock timeout later.
    ///
    /// Waits occupy at most half of the pool's connections, and others for at most 10 ms, so that other streams are not delayed.
    ///
    /// This applies only to the store's own statements; the session's `lock_timeout` is left unchanged.
    ///
    /// Default: 5 s. Range: 1 ms to 24 days; values beyond count as the limit.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use doorbell::bus::FleetEvent;
    /// use doorbell::store::PostgresStore;
    ///
    /// let builder = PostgresStore::<FleetEvent>::builder().lock_timeout(Duration::from_millis(500));
    /// # let _ = builder;
    /// ```
    #[must_use]
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// Sets how long the server may take to respond to a statement. After that, the statement fails with
    /// [`StoreError::Unavailable`] and its connection is closed.
    ///
    /// This detects a frozen server and a dead network path; the next statement uses another connection. For appends and trims,
    /// the lock timeout is added. Statements in a caller's transaction and [`migrate`](PostgresStore::migrate) have no limit.
    ///
    /// Default: 10 s. Range: at least 1 ms, and less counts as that; `Duration::MAX` means no limit.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use doorbell::bus::FleetEvent;
    /// use doorbell::store::PostgresStore;
    ///
    /// let builder = PostgresStore::<FleetEvent>::builder().response_timeout(Duration::from_secs(3));
    /// # let _ = builder;
    /// ```
    #[must_use]
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// Sets the channel on which [`append_in_notifying`](PostgresStore::append_in_notifying) and the buses over this store send
    /// notifications. The SQL functions do not know it: pass it to them.
    ///
    /// Default: the channel of the schema, see [`DEFAULT_CHANNEL`]. Range: 1 to 63 bytes, without NUL.
    ///
    /// ```
    /// use doorbell::bus::FleetEvent;
    /// use doorbell::store::PostgresStore;
    ///
    /// let builder = PostgresStore::<FleetEvent>::builder().channel("fleet");
    /// # let _ = builder;
    /// ```
    #[must_use]
    pub fn channel(mut self, channel: impl Into<Arc<str>>) -> Self {
        self.channel = Some(channel.into());
        self
    }

    /// Sets whether the server is reached through a pooler in transaction mode (pgbouncer's `pool_mode = transaction`).
    ///
    /// If so, the store keeps no session state, and runs every statement in its own transaction, which takes 4 round trips
    /// instead of 1. A pool that is passed to [`build`](Self::build) must have connect options with
    /// `statement_cache_capacity(0)`.
    ///
    /// This is not needed with pgbouncer 1.21 or later if `max_prepared_statements` is set.
    ///
    /// Default: `false`.
    ///
    /// ```
    /// use doorbell::bus::FleetEvent;
    /// use doorbell::store::PostgresStore;
    ///
    /// let builder = PostgresStore::<FleetEvent>::builder().transaction_pooler(true);
    /// # let _ = builder;
    /// ```
    #[must_use]
    pub fn transaction_pooler(mut self, enabled: bool) -> Self {
        self.transaction_pooler = enabled;
        self
    }

    /// Creates a store that uses an existing pool, with the pool's limits and timeouts. Does not connect.
    ///
    /// ```no_run
    /// use doorbell::bus::FleetEvent;
    /// use doorbell::store::PostgresStore;
    ///
    /// # fn run(pool: sqlx::PgPool) {
    /// let store = PostgresStore::<FleetEvent>::builder().build(pool);
    /// # }
    /// ```
    #[must_use]
    pub fn build(self, pool: PgPool) -> PostgresStore<E> {
        self.over(WarmPool::shared(pool))
    }

    fn over(self, connections: WarmPool) -> PostgresStore<E> {
        let schema = self.schema.unwrap_or_else(Schema::default_name);
        let max_connections = connections.pool.options().get_max_connections();
        PostgresStore {
            inner: Arc::new(Inner {
                append_queue: AppendQueue::new(max_connections),
                untranslatable: Untranslatable::default(),
                lock_waits: Semaphore::new((max_connections as usize / 2).max(1)),
                connections,
                primary: Primary::default(),
                lock_timeout_ms: i32::try_from(self.lock_timeout.as_millis()).unwrap_or(i32::MAX).max(1),
                response_timeout: self.response_timeout.max(Duration::from_millis(1)),
                channel: self.channel.unwrap_or_else(|| channel::of_schema(schema.name())),
                transaction_pooler: self.transaction_pooler,
                schema,
            }),
            event: PhantomData,
        }
    }
}

impl<E: StreamEvent> PostgresStoreBuilder<E> {
    /// Connects with a new pool, of at most 3 connections, each of which must be acquired within 5 s.
    ///
    /// `url` is a URL or libpq's `key=value` pairs, as for the listening connection; see [`ListenConfig`](crate::listen::ListenConfig). With
    /// several hosts, or with `target_session_attrs`, the store looks for the server before it opens a connection, which takes a second, short
    /// session. [`pool`](PostgresStore::pool) leads to the server that was found last.
    ///
    /// A connection that has been idle for a second is pinged before it is used, which takes a round trip.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::NoRuntime`] outside a tokio runtime, and [`StoreError::Unavailable`] if no server can be reached within 5 s. Immediately returns [`StoreError::LoginRefused`]
    /// if a server refuses the user or the database, and [`StoreError::Other`] if `url` is invalid.
    ///
    /// ```no_run
    /// use doorbell::bus::FleetEvent;
    /// use doorbell::store::PostgresStore;
    ///
    /// # async fn run() -> Result<(), doorbell::store::StoreError> {
    /// let store = PostgresStore::<FleetEvent>::builder().connect("postgres://localhost/app").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(self, url: &str) -> Result<PostgresStore<E>, StoreError> {
        tokio::runtime::Handle::try_current().map_err(|_| StoreError::NoRuntime)?;
        let connection_string: ConnectionString = url.parse().map_err(|error: ConfigError| StoreError::other(error))?;
        let options = PgPoolOptions::new()
            .max_connections(POOL_SIZE)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .test_before_acquire(false)
            .before_acquire(|connection, metadata| {
                Box::pin(async move {
                    if metadata.idle_for >= PING_AFTER_IDLE {
                        sqlx::Connection::ping(connection).await?;
                    }
                    Ok(true)
                })
            });
        let connections = WarmPool::connect_lazy(&connection_string, options, self.transaction_pooler);
        let store = self.over(connections.map_err(StoreError::other)?);
        let connections = &store.inner.connections;
        match connections.acquire().await {
            Ok(connection) => connections.give_back(connection),
            Err(sqlx::Error::PoolTimedOut) => return Err(store.read_error(connections.diagnose().await)),
            Err(error) => return Err(store.read_error(error)),
        }
        Ok(store)
    }
}
