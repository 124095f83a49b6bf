//! How a store over Postgres is made.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, PgPool};
use thiserror::Error;

use super::append_queue::AppendQueue;
use super::error::{Doing, store_error};
use super::schema::{InvalidSchemaName, Schema};
use super::{PostgresStore, SharedStore};
use crate::bus::{DEFAULT_CHANNEL, FleetEvent, StreamEvent};
use crate::pg::warm_pool::WarmPool;
use crate::store::StoreError;

/// The schema, unless another is chosen.
pub const DEFAULT_SCHEMA: &str = "doorbell";

/// The most connections of the pool that [`connect`](PostgresStoreBuilder::connect) makes.
const POOL_SIZE: u32 = 3;

/// How long an operation waits for a connection of that pool, connecting included.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the server may take to say why it takes no connection.
const ASK_AGAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// How long another transaction may hold a stream before an append gives up.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the server may take over a statement.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection that was idle for longer is tried before it is used: its server may have gone meanwhile.
const TRY_AFTER_IDLE: Duration = Duration::from_secs(1);

/// Makes a [`PostgresStore`]; from [`PostgresStore::builder`].
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
    answer_timeout: Duration,
    channel: Arc<str>,
    transaction_pooler: bool,
    event: PhantomData<fn() -> E>,
}

impl<E> PostgresStoreBuilder<E> {
    pub(super) fn new() -> Self {
        Self {
            schema: None,
            lock_timeout: LOCK_TIMEOUT,
            answer_timeout: ANSWER_TIMEOUT,
            channel: DEFAULT_CHANNEL.into(),
            transaction_pooler: false,
            event: PhantomData,
        }
    }

    /// The schema with the store's tables and functions; [`DEFAULT_SCHEMA`] if none is chosen. It is quoted wherever it is used,
    /// so case and spaces count. Stores in different schemas share nothing.
    ///
    /// # Errors
    ///
    /// Postgres would not take the name, or would cut it.
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

    /// How long an append, or a trim, waits for another transaction that holds the stream, before it fails with
    /// [`StoreError::LockTimeout`]: 5 s by default, at least 1 ms, at most 24 days. It holds for the store's own statements only; the
    /// session's `lock_timeout` is left as it is.
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

    /// How long the server may take over a statement of the store, before that fails with [`StoreError::Unavailable`] and the
    /// connection is given up: 10 s by default. For an append or a trim the lock timeout is added. So a server that stands still, or
    /// a line that has gone dead without a word, is noticed, and the next statement goes over a new connection. What runs in a
    /// caller's transaction, and [`migrate`](PostgresStore::migrate), take as long as they take.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use doorbell::bus::FleetEvent;
    /// use doorbell::store::PostgresStore;
    ///
    /// let builder = PostgresStore::<FleetEvent>::builder().answer_timeout(Duration::from_secs(3));
    /// # let _ = builder;
    /// ```
    #[must_use]
    pub fn answer_timeout(mut self, timeout: Duration) -> Self {
        self.answer_timeout = timeout;
        self
    }

    /// The channel on which [`append_in_notifying`](PostgresStore::append_in_notifying) rings; [`DEFAULT_CHANNEL`] if none is chosen.
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
        self.channel = channel.into();
        self
    }

    /// The server is reached through a pooler that hands out connections by transaction (pgbouncer's `pool_mode = transaction`): keep
    /// nothing in the session, and run every statement in a transaction of its own, 4 round trips instead of 1. A pool given to
    /// [`build`](Self::build) has to have connect options with `statement_cache_capacity(0)`.
    ///
    /// Where pgbouncer is 1.21 or later and has `max_prepared_statements`, this is not needed.
    ///
    /// ```
    /// use doorbell::bus::FleetEvent;
    /// use doorbell::store::PostgresStore;
    ///
    /// let builder = PostgresStore::<FleetEvent>::builder().transaction_pooler(true);
    /// # let _ = builder;
    /// ```
    #[must_use]
    pub fn transaction_pooler(mut self, there_is_one: bool) -> Self {
        self.transaction_pooler = there_is_one;
        self
    }

    /// A store over a pool of one's own: with its limits, its timeouts, its settings.
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
        let schema = self.schema.unwrap_or_else(Schema::default_name);
        PostgresStore {
            shared: Arc::new(SharedStore {
                append_queue: AppendQueue::new(pool.options().get_max_connections()),
                connections: WarmPool::shared(pool),
                schema,
                lock_timeout_ms: i32::try_from(self.lock_timeout.as_millis()).unwrap_or(i32::MAX).max(1),
                answer_timeout: self.answer_timeout,
                channel: self.channel,
                transaction_pooler: self.transaction_pooler,
            }),
            event: PhantomData,
        }
    }
}

impl<E: StreamEvent> PostgresStoreBuilder<E> {
    /// Connects, with a pool of the store's own: at most 3 connections, 5 s for an operation to get one. Connections that were
    /// idle for a second are tried before they are used, which costs a round trip then.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] if the server cannot be reached, after 5 s of trying; [`StoreError::Other`] at once if it refuses
    /// the user or the database, or if `url` is not a URL such as `postgres://app@localhost/app`. (The other form that libpq
    /// knows, `host=… user=…`, is for the listening connection only.)
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
        let schema = self.schema.unwrap_or_else(Schema::default_name);
        let failed = |error| store_error(error, &schema, Doing::Reading);
        let mut options: PgConnectOptions = url.parse().map_err(|error| StoreError::other(UnreadableUrl(error)))?;
        if self.transaction_pooler {
            options = options.statement_cache_capacity(0);
        }
        let pool = PgPoolOptions::new()
            .max_connections(POOL_SIZE)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .test_before_acquire(false)
            .before_acquire(|connection, metadata| {
                Box::pin(async move {
                    if metadata.idle_for >= TRY_AFTER_IDLE {
                        sqlx::Connection::ping(connection).await?;
                    }
                    Ok(true)
                })
            })
            .connect_with(options.clone())
            .await;
        let pool = match pool {
            Ok(pool) => pool,
            Err(sqlx::Error::PoolTimedOut) => return Err(failed(why_not(&options).await)),
            Err(error) => return Err(failed(error)),
        };
        let builder = Self {
            schema: Some(schema),
            ..self
        };
        Ok(builder.build(pool))
    }
}

/// A connection string that is none, or not of the form that the pool knows.
#[derive(Debug, Error)]
#[error("the connection string cannot be read as a URL such as postgres://app@localhost/app: {0}")]
struct UnreadableUrl(#[source] sqlx::Error);

/// Why the pool got no connection in time. It tries again while a server refuses, and in the end knows only that time is over.
async fn why_not(options: &PgConnectOptions) -> sqlx::Error {
    match tokio::time::timeout(ASK_AGAIN_TIMEOUT, options.connect()).await {
        Ok(Err(error)) => error,
        Ok(Ok(_)) | Err(_) => sqlx::Error::PoolTimedOut,
    }
}
