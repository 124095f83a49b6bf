//! The store over Postgres.

mod append;
mod append_queue;
mod builder;
mod contended_append;
mod direct_append;
mod error;
mod execute;
mod group_commit;
mod jsonb_text;
mod migrate;
mod read;
mod retention;
mod schema;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::{PgPool, Row as _};

use self::append_queue::AppendQueue;
pub use self::builder::{DEFAULT_SCHEMA, PostgresStoreBuilder};
pub use self::schema::InvalidSchemaName;
use self::schema::Schema;
use super::{ChangedStream, Changes, EventId, Page, Record, ReplayRange, Store, StoreError, Watermark};
use crate::event::{FleetEvent, StreamEvent};
use crate::pg::warm_pool::WarmPool;

/// A [`Store`] over Postgres, for any number of processes. Clones are handles of the same pool.
///
/// [`migrate`](Self::migrate) brings its tables and functions into being; the functions can be called from psql and from
/// triggers, too (`migrations/README.md`).
///
/// # What it costs
///
/// | | round trips | |
/// |---|---|---|
/// | [`append`](Store::append) | 1 | one transaction, one flush, shared where many append at once; one more round trip if another process has the stream |
/// | [`append_batch`](Store::append_batch) | 1 | one transaction, one flush; all or nothing |
/// | [`append_in`](Self::append_in), [`append_batch_in`](Self::append_batch_in) | 1 | in the caller's transaction |
/// | [`replay`](Store::replay), [`replay_many`](Store::replay_many) | 1 | one query, one snapshot, whatever the number of streams |
/// | [`high_water`](Store::high_water), [`high_waters`](Store::high_waters), [`identities`](Store::identities) | 1 | a probe of the primary key for each stream |
/// | [`changed_since`](Store::changed_since) | 1 | a probe of an index for each event since the watermark; of all streams: for each stream |
///
/// And one before each, if the connection has been idle for a second (with [`connect`](Self::connect)), or if it has not prepared
/// the statement yet. Behind a pooler that hands out connections by transaction
/// ([`transaction_pooler`](PostgresStoreBuilder::transaction_pooler)) everything but the `_in` methods costs 4.
///
/// # Who waits for whom
///
/// Appends to one stream follow one another from the first statement to the commit, so that their numbers are in the order of
/// commit and have no gap. Readers wait for nobody. An open transaction that has appended holds up its own streams and nothing else.
///
/// A process has at most four appends under way, and one fewer than its pool has connections. What comes meanwhile waits without a
/// connection, and goes together in the next transaction, whatever its streams, so that hundreds of writers share one flush. Each
/// fails or succeeds by itself all the same: whoever would spoil the others', or would have to wait for a stream that somebody
/// else has, gets a transaction of its own.
///
/// Nobody waits for a server that does not answer, because it stands still or the line to it is dead: what has no answer within
/// the [time limit](PostgresStoreBuilder::answer_timeout) fails, and its connection is given up.
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
    shared: Arc<SharedStore>,
    event: PhantomData<fn() -> E>,
}

struct SharedStore {
    connections: WarmPool,
    schema: Schema,
    lock_timeout_ms: i32,
    answer_timeout: Duration,
    transaction_pooler: bool,
    channel: Arc<str>,
    append_queue: AppendQueue,
}

impl<E> Clone for PostgresStore<E> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            event: PhantomData,
        }
    }
}

impl<E> fmt::Debug for PostgresStore<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("schema", &self.shared.schema.name())
            .field("connections", &self.shared.connections.pool.size())
            .finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Connects: to the schema [`DEFAULT_SCHEMA`], by a pool of its own of at most 3 connections. For events of another type, and for
    /// everything that can be chosen, there is the [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// As [`PostgresStoreBuilder::connect`].
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

    /// A store over a pool of one's own, in the schema [`DEFAULT_SCHEMA`].
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
    /// To choose the type of event, the schema, the lock timeout, the channel.
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

    /// The pool, for transactions of one's own.
    ///
    /// ```no_run
    /// # async fn run(store: doorbell::store::PostgresStore) -> Result<(), sqlx::Error> {
    /// let transaction = store.pool().begin().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn pool(&self) -> &PgPool {
        &self.shared.connections.pool
    }

    /// The schema's name, as it was given.
    ///
    /// ```no_run
    /// # fn run(store: doorbell::store::PostgresStore) {
    /// assert_eq!(store.schema(), doorbell::store::DEFAULT_SCHEMA);
    /// # }
    /// ```
    #[must_use]
    pub fn schema(&self) -> &str {
        self.shared.schema.name()
    }

    /// Creates the schema, its tables and its functions, or brings them up to date. Any number of processes may do it at once:
    /// one works, the others wait and find it done. One transaction, so it happens as a whole or not at all.
    ///
    /// Call it after a dump was restored, too: transaction numbers from elsewhere mean nothing here, and until then
    /// [`changed_since`](Store::changed_since) can only list all streams.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`]; [`StoreError::ReadOnly`] on a standby; [`StoreError::Other`] if the role may not create them, or
    /// if a migration that has been run is not the one that this build knows by its number.
    ///
    /// ```no_run
    /// # async fn run(store: doorbell::store::PostgresStore) -> Result<(), doorbell::store::StoreError> {
    /// store.migrate().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn migrate(&self) -> Result<(), StoreError> {
        let mut connection = self
            .shared
            .connections
            .acquire()
            .await
            .map_err(|error| self.read_error(error))?;
        migrate::migrate(&mut connection, &self.shared.schema, self.shared.transaction_pooler).await
    }

    /// Whether everything is there that this build needs, in one round trip. What a newer build has added does no harm.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotMigrated`] says what is missing.
    ///
    /// ```no_run
    /// # async fn run(store: doorbell::store::PostgresStore) -> Result<(), doorbell::store::StoreError> {
    /// store.check_migrated().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn check_migrated(&self) -> Result<(), StoreError> {
        let row = self.run_one(sqlx::query(&self.shared.schema.migrated_to)).await;
        let there = row.and_then(|row| row.try_get::<Option<i64>, _>(0));
        migrate::check(there.map_err(|error| self.read_error(error))?, &self.shared.schema)
    }
}

#[async_trait]
impl<E: StreamEvent> Store<E> for PostgresStore<E> {
    async fn append(&self, event: E) -> Result<E, StoreError> {
        self.append_alone(event).await.map(|appended| appended.event)
    }

    async fn append_record(&self, event: E) -> Result<Record<E>, StoreError> {
        self.append_alone(event).await.map(Record::from)
    }

    async fn replay(&self, stream_key: &str, after: u64, limit: usize) -> Result<Page<E>, StoreError> {
        let range = ReplayRange {
            stream_key: stream_key.into(),
            after,
        };
        let mut pages = self.read(&[range], limit).await?;
        Ok(pages.pop().unwrap_or(Page {
            records: Vec::new(),
            low_water: 0,
        }))
    }

    async fn high_water(&self, stream_key: &str) -> Result<u64, StoreError> {
        let high_waters = self.read_high_waters(&[stream_key]).await?;
        Ok(high_waters.first().copied().unwrap_or(0))
    }

    async fn append_batch(&self, events: Vec<E>) -> Result<Vec<E>, StoreError> {
        self.append_batch_alone(events).await.map(append::only_events)
    }

    async fn append_records(&self, events: Vec<E>) -> Result<Vec<Record<E>>, StoreError> {
        let appended = self.append_batch_alone(events).await?;
        Ok(appended.into_iter().map(Record::from).collect())
    }

    async fn replay_many(&self, ranges: &[ReplayRange], limit: usize) -> Result<Vec<Page<E>>, StoreError> {
        self.read(ranges, limit).await
    }

    async fn high_waters(&self, stream_keys: &[Arc<str>]) -> Result<Vec<u64>, StoreError> {
        let stream_keys: Vec<&str> = stream_keys.iter().map(|key| &**key).collect();
        self.read_high_waters(&stream_keys).await
    }

    async fn changed_since(&self, since: Option<&Watermark>, limit: usize) -> Result<Option<Changes>, StoreError> {
        let since = since
            .map(Watermark::as_str)
            // Anything else is some other store's.
            .filter(|text| serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text).is_ok());
        let query = sqlx::query(&self.shared.schema.changed_since)
            .bind(since)
            .bind(i32::try_from(limit.max(1)).unwrap_or(i32::MAX - 1).min(i32::MAX - 1));
        let row = self.run_one(query).await.map_err(|error| self.read_error(error))?;
        let stream_keys: Vec<String> = self.get(&row, 0)?;
        let high_waters: Vec<i64> = self.get(&row, 1)?;
        let streams = stream_keys.into_iter().zip(high_waters);
        Ok(Some(Changes {
            streams: streams
                .map(|(stream_key, high_water)| ChangedStream {
                    stream_key: stream_key.into(),
                    high_water: high_water.cast_unsigned(),
                })
                .collect(),
            watermark: Watermark::new(self.get::<String>(&row, 2)?),
            more: self.get(&row, 3)?,
            complete: self.get(&row, 4)?,
        }))
    }

    async fn identities(&self, places: &[(Arc<str>, u64)]) -> Result<Vec<Option<EventId>>, StoreError> {
        self.read_identities(places).await
    }

    fn on_reconnect(&self) {
        self.shared.connections.on_reconnect();
    }
}
