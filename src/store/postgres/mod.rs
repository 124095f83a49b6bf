//! The store over Postgres.

mod append;
mod append_in;
mod builder;
mod channel;
mod encode;
mod error;
mod execute;
mod group_commit;
pub(crate) mod jsonb_text;
mod migrate;
mod migration_script;
mod primary;
mod read;
mod retention;
mod schema;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::PgPool;
use tokio::sync::Semaphore;

pub use self::builder::{DEFAULT_CHANNEL, DEFAULT_SCHEMA, PostgresStoreBuilder};
use self::group_commit::AppendQueue;
pub use self::migration_script::migration_sql;
use self::primary::Primary;
pub use self::schema::InvalidSchemaName;
use self::schema::Schema;
use super::{
    ChangedStream, Changes, EventId, Heads, Page, RecentRange, Record, ReplayRange, Store, StoreError, Watermark,
};
use crate::event::{FleetEvent, StreamEvent};
use crate::pg::encoding::Untranslatable;
use crate::pg::warm_pool::WarmPool;

/// A [`Store`] in a Postgres database, shared by any number of processes. Clones share one connection pool.
///
/// [`migrate`](Self::migrate) creates the tables and functions. The functions can also be called from psql and from triggers; see
/// `migrations/README.md`.
///
/// # Costs
///
/// | method | round trips | work |
/// |---|---|---|
/// | [`append`](Store::append) | 1 | one transaction and flush, which concurrent appends share; 2 round trips if another session has locked the stream |
/// | [`append_batch`](Store::append_batch) | 1 | one transaction and flush |
/// | [`append_in`](Self::append_in), [`append_batch_in`](Self::append_batch_in) | 1 | part of the caller's transaction |
/// | [`replay`](Store::replay), [`replay_many`](Store::replay_many) | 1 | one query and snapshot for any number of streams; at most 2 MiB and the event after them |
/// | [`high_water`](Store::high_water), [`heads`](Store::heads), [`event_ids`](Store::event_ids) | 1 | one probe of the primary key per stream or event |
/// | [`changed_since`](Store::changed_since) | 1 | one index probe per event since the watermark; when it lists all streams, per stream |
///
/// A statement takes one more round trip if its connection has not prepared it yet or, with [`connect`](Self::connect), has been
/// idle for a second. With [`transaction_pooler`](PostgresStoreBuilder::transaction_pooler), all methods except the `_in` methods
/// take 4 round trips.
///
/// # Concurrency
///
/// Appends to one stream are serialized from their first statement to their commit, so sequence numbers follow the commit order
/// and have no gaps. Reads never block. An open transaction that has appended blocks appends to its own streams, and nothing else.
///
/// A process runs at most four append transactions at a time. If its pool has four connections or fewer, the limit is one fewer
/// than that, but at least one. Appends that arrive during these transactions wait without a connection, and the next transaction
/// takes them, whatever their streams, so hundreds of writers share one flush. Appends still succeed or fail individually: if one
/// is refused, or another session has locked its stream, the affected streams continue in their own transactions. Those do not
/// count towards the limit, and each occupies a connection.
///
/// # Timeouts
///
/// If the server does not respond within the [response timeout](PostgresStoreBuilder::response_timeout), because it is frozen or
/// the network path is dead, the operation fails and its connection is closed.
///
/// # Examples
///
/// ```no_run
/// use doorbell::bus::FleetEvent;
/// use doorbell::store::{PostgresStore, Store};
///
/// # async fn run() -> Result<(), doorbell::store::StoreError> {
/// let store = PostgresStore::connect("postgres://localhost/app").await?;
/// store.migrate().await?;
/// let stamped = store.append(FleetEvent::custom("agent-1", "note", "hello")).await?;
/// assert_eq!(store.high_water("agent-1").await?, stamped.seq);
/// # Ok(())
/// # }
/// ```
pub struct PostgresStore<E = FleetEvent> {
    inner: Arc<Inner>,
    event: PhantomData<fn() -> E>,
}

struct Inner {
    connections: WarmPool,
    primary: Primary,
    schema: Schema,
    lock_timeout_ms: i32,
    response_timeout: Duration,
    transaction_pooler: bool,
    channel: Arc<str>,
    append_queue: AppendQueue,
    untranslatable: Untranslatable,
    /// A permit for each connection on which a statement may wait for a stream's lock.
    lock_waits: Semaphore,
}

impl<E> Clone for PostgresStore<E> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            event: PhantomData,
        }
    }
}

impl<E> fmt::Debug for PostgresStore<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("schema", &self.inner.schema.name())
            .field("connections", &self.inner.connections.pool.size())
            .finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Connects with a new pool, of at most 3 connections, and uses the schema [`DEFAULT_SCHEMA`].
    ///
    /// Use the [`builder`](Self::builder) for other event types and settings.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`PostgresStoreBuilder::connect`].
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), doorbell::store::StoreError> {
    /// let store = doorbell::store::PostgresStore::connect("postgres://localhost/app").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::builder().connect(url).await
    }

    /// Creates a store that uses an existing pool and the schema [`DEFAULT_SCHEMA`].
    ///
    /// ```no_run
    /// # fn run(pool: sqlx::PgPool) {
    /// let store = doorbell::store::PostgresStore::new(pool);
    /// # }
    /// ```
    #[must_use]
    pub fn new(pool: PgPool) -> Self {
        Self::builder().build(pool)
    }
}

impl<E> PostgresStore<E> {
    /// Returns a builder, with which to set the event type, the schema, the timeouts and the notification channel.
    ///
    /// ```
    /// use doorbell::bus::FleetEvent;
    /// use doorbell::store::PostgresStore;
    ///
    /// let builder = PostgresStore::<FleetEvent>::builder();
    /// # let _ = builder;
    /// ```
    #[must_use]
    pub fn builder() -> PostgresStoreBuilder<E> {
        PostgresStoreBuilder::new()
    }

    /// Returns the store's pool, for example to begin a transaction.
    ///
    /// ```no_run
    /// # async fn run(store: doorbell::store::PostgresStore) -> Result<(), sqlx::Error> {
    /// let transaction = store.pool().begin().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn pool(&self) -> &PgPool {
        &self.inner.connections.pool
    }

    /// Returns the name of the store's schema, unquoted.
    ///
    /// ```no_run
    /// # fn run(store: doorbell::store::PostgresStore) {
    /// assert_eq!(store.schema(), doorbell::store::DEFAULT_SCHEMA);
    /// # }
    /// ```
    #[must_use]
    pub fn schema(&self) -> &str {
        self.inner.schema.name()
    }
}

#[async_trait]
impl<E: StreamEvent> Store<E> for PostgresStore<E> {
    async fn append(&self, event: E) -> Result<E, StoreError> {
        let metadata = self.append_event(&event).await?;
        Ok(metadata.stamp(event))
    }

    async fn append_record(&self, event: E) -> Result<Record<E>, StoreError> {
        let metadata = self.append_event(&event).await?;
        Ok(metadata.into_record(event))
    }

    async fn replay(&self, stream_key: &str, after: u64, limit: usize) -> Result<Page<E>, StoreError> {
        let range = ReplayRange {
            stream_key: stream_key.into(),
            after,
        };
        let mut pages = self.read_pages(&[range], limit).await?;
        Ok(pages.pop().unwrap_or_else(|| Page::from_events(Vec::new())))
    }

    async fn high_water(&self, stream_key: &str) -> Result<u64, StoreError> {
        self.read_high_water(stream_key).await
    }

    async fn append_batch(&self, events: Vec<E>) -> Result<Vec<E>, StoreError> {
        let metadata = self.append_events(&events).await?;
        let stamped = events.into_iter().zip(metadata);
        Ok(stamped.map(|(event, metadata)| metadata.stamp(event)).collect())
    }

    async fn append_records(&self, events: Vec<E>) -> Result<Vec<Record<E>>, StoreError> {
        let metadata = self.append_events(&events).await?;
        let appended = events.into_iter().zip(metadata);
        Ok(appended.map(|(event, metadata)| metadata.into_record(event)).collect())
    }

    async fn replay_many(&self, ranges: &[ReplayRange], limit: usize) -> Result<Vec<Page<E>>, StoreError> {
        self.read_pages(ranges, limit).await
    }

    async fn heads(&self, stream_keys: &[Arc<str>]) -> Result<Heads, StoreError> {
        let stream_keys: Vec<&str> = stream_keys.iter().map(|key| &**key).collect();
        self.read_heads(&stream_keys).await
    }

    async fn first_recent(&self, ranges: &[RecentRange]) -> Result<Vec<Option<u64>>, StoreError> {
        self.read_first_recent(ranges).await
    }

    async fn changed_since(&self, since: Option<&Watermark>, limit: usize) -> Result<Option<Changes>, StoreError> {
        let since = read::usable(since);
        let limit = i32::try_from(limit.max(1)).unwrap_or(i32::MAX - 1).min(i32::MAX - 1);
        let query = |server| {
            sqlx::query(&self.inner.schema.changed_since)
                .bind(since)
                .bind(limit)
                .bind(server)
        };
        let row = self.fetch_one(query).await.map_err(|error| self.read_error(error))?;
        let stream_keys: Vec<String> = self.get(&row, 0)?;
        let streams = stream_keys.into_iter().zip(self.heads_in(&row, 1)?);
        Ok(Some(Changes {
            streams: streams
                .map(|(stream_key, head)| ChangedStream {
                    stream_key: stream_key.into(),
                    head,
                })
                .collect(),
            watermark: Watermark::new(self.get::<String>(&row, 3)?),
            more: self.get(&row, 4)?,
            complete: self.get(&row, 5)?,
        }))
    }

    async fn event_ids(&self, positions: &[(Arc<str>, u64)]) -> Result<Vec<Option<EventId>>, StoreError> {
        self.read_event_ids(positions).await
    }

    fn notification_channel(&self) -> Option<&str> {
        Some(&self.inner.channel)
    }

    fn on_reconnect(&self) {
        self.inner.connections.on_reconnect();
    }

    fn follow_server(&self, bus: u64, server: Option<&str>) {
        self.inner.primary.expect(bus, server);
    }
}
