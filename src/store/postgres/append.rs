//! Appending: events to JSON, to the server's functions, and back with their numbers.

use std::time::SystemTime;

use serde_json::value::RawValue;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::types::Json;
use sqlx::{PgConnection, Postgres};
use tokio::time::timeout;

use super::PostgresStore;
use super::error::{Doing, store_error};
use super::execute::{no_answer, rows};
use super::jsonb_text::escapes_nul;
use super::read::{event_id, time};
use crate::event::StreamEvent;
use crate::pg::warm_pool::PooledConnection;
use crate::store::{EventId, Record, StoreError, check_stream_key};

impl<E: StreamEvent> PostgresStore<E> {
    /// Appends within the caller's transaction, and returns the event with its number: what happened and the event that says so are
    /// committed together, or neither is. One round trip.
    ///
    /// From here until the transaction ends, other appends to the stream wait; so append late. A transaction that appends to
    /// several streams by several calls should do so in the order of their keys, byte by byte, or it may deadlock with
    /// another such one. Nobody is told of the event: after the commit, `publish` it, or wait for the sweep.
    ///
    /// # Errors
    ///
    /// As [`Store::append`](crate::store::Store::append). What the server refuses makes the whole transaction fail, as always in Postgres; what can be known
    /// before ([`StoreError::InvalidStreamKey`], [`StoreError::Encode`] of a NUL) does not reach it. A transaction that keeps one
    /// snapshot (`REPEATABLE READ`, `SERIALIZABLE`) gets [`StoreError::Serialization`] if others have appended to the stream
    /// since; then run it again.
    ///
    /// ```no_run
    /// use doorbell::bus::FleetEvent;
    /// use doorbell::store::PostgresStore;
    ///
    /// # async fn run(store: PostgresStore) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut transaction = store.pool().begin().await?;
    /// sqlx::query("UPDATE agents SET retired = true WHERE id = 'agent-1'").execute(&mut *transaction).await?;
    /// let event = FleetEvent::custom("agent-1", "retired", "");
    /// let stamped = store.append_in(&mut transaction, event).await?;
    /// transaction.commit().await?;
    /// assert!(stamped.seq > 0);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn append_in(&self, transaction: &mut PgConnection, event: E) -> Result<E, StoreError> {
        self.append_with(transaction, event, false)
            .await
            .map(|appended| appended.event)
    }

    /// [`append_in`](Self::append_in), and the doorbell rings as the transaction commits: on the builder's channel, inside the
    /// database. No bell can be lost, but all commits of the cluster that notify wait for each other's flush: a few hundred a second.
    ///
    /// # Errors
    ///
    /// As [`append_in`](Self::append_in).
    ///
    /// ```no_run
    /// # use doorbell::bus::FleetEvent;
    /// # async fn run(store: doorbell::store::PostgresStore) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut transaction = store.pool().begin().await?;
    /// store.append_in_notifying(&mut transaction, FleetEvent::custom("agent-1", "alarm", "fire")).await?;
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn append_in_notifying(&self, transaction: &mut PgConnection, event: E) -> Result<E, StoreError> {
        self.append_with(transaction, event, true)
            .await
            .map(|appended| appended.event)
    }

    /// [`append_in`](Self::append_in) for several events, of one or more streams, in one round trip. The streams are locked in
    /// the order of their keys, whatever the order of the events.
    ///
    /// # Errors
    ///
    /// As [`append_in`](Self::append_in), for the first event that does not fit.
    ///
    /// ```no_run
    /// # use doorbell::bus::FleetEvent;
    /// # async fn run(store: doorbell::store::PostgresStore) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut transaction = store.pool().begin().await?;
    /// let tick = |agent| FleetEvent::custom(agent, "tick", "");
    /// let stamped = store.append_batch_in(&mut transaction, vec![tick("agent-2"), tick("agent-1")]).await?;
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn append_batch_in(&self, transaction: &mut PgConnection, events: Vec<E>) -> Result<Vec<E>, StoreError> {
        self.append_batch_with(transaction, events, false)
            .await
            .map(only_events)
    }

    /// [`append_batch_in`](Self::append_batch_in), ringing as [`append_in_notifying`](Self::append_in_notifying) does, once for each
    /// stream.
    ///
    /// # Errors
    ///
    /// As [`append_in`](Self::append_in), for the first event that does not fit.
    ///
    /// ```no_run
    /// # use doorbell::bus::FleetEvent;
    /// # async fn run(store: doorbell::store::PostgresStore) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut transaction = store.pool().begin().await?;
    /// let alarms = vec![FleetEvent::custom("agent-1", "alarm", "fire"), FleetEvent::custom("agent-1", "alarm", "smoke")];
    /// store.append_batch_in_notifying(&mut transaction, alarms).await?;
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn append_batch_in_notifying(
        &self,
        transaction: &mut PgConnection,
        events: Vec<E>,
    ) -> Result<Vec<E>, StoreError> {
        self.append_batch_with(transaction, events, true).await.map(only_events)
    }

    /// In a transaction of its own, or with others that append to the stream at the same time.
    pub(super) async fn append_alone(&self, event: E) -> Result<Appended<E>, StoreError> {
        let outgoing = Outgoing::new(&event)?;
        let stamp = self.append_queued(event.stream_key(), outgoing).await;
        match stamp {
            Ok(stamp) => Ok(stamp.on(event)),
            Err(error) => Err(with_actual(error, &[event])),
        }
    }

    /// One event, in a transaction of its own.
    pub(super) async fn append_outgoing(&self, stream_key: &str, outgoing: &Outgoing) -> Result<Stamp, StoreError> {
        let query = self.append_one(stream_key, outgoing, false);
        let rows = self.append_on_its_own(stream_key, query).await?;
        let row = rows.first().ok_or_else(|| self.read_error(sqlx::Error::RowNotFound))?;
        self.stamp(row)
    }

    /// Several events of one stream, in a transaction of their own.
    pub(super) async fn append_outgoings(
        &self,
        stream_key: &str,
        outgoing: &[Outgoing],
    ) -> Result<Vec<Stamp>, StoreError> {
        let stream_keys = vec![stream_key; outgoing.len()];
        self.append_many_alone(&stream_keys, outgoing).await
    }

    /// In a transaction of their own.
    pub(super) async fn append_batch_alone(&self, events: Vec<E>) -> Result<Vec<Appended<E>>, StoreError> {
        let outgoing = events.iter().map(Outgoing::new).collect::<Result<Vec<_>, _>>()?;
        let stream_keys: Vec<&str> = events.iter().map(StreamEvent::stream_key).collect();
        let stamps = self.append_many_alone(&stream_keys, &outgoing).await;
        let stamps = stamps.map_err(|error| with_actual(error, &events))?;
        Ok(on_all(stamps, events))
    }

    async fn append_many_alone(&self, stream_keys: &[&str], outgoing: &[Outgoing]) -> Result<Vec<Stamp>, StoreError> {
        let Some(first) = stream_keys.first() else {
            return Ok(Vec::new());
        };
        let query = self.append_many(stream_keys, outgoing, false);
        let rows = self.append_on_its_own(first, query).await?;
        rows.iter().map(|row| self.stamp(row)).collect()
    }

    /// Runs a statement that waits for locks.
    async fn append_on_its_own(
        &self,
        stream_key: &str,
        query: Query<'_, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, StoreError> {
        let mut connection = self.acquire().await?;
        let append = rows(&mut connection, query, self.shared.transaction_pooler);
        match timeout(self.lock_limit(), append).await {
            Ok(Ok(rows)) => {
                self.shared.connections.give_back(connection);
                Ok(rows)
            }
            Ok(Err(error)) => Err(self.append_error(error, stream_key)),
            Err(_) => Err(self.give_up(&mut connection)),
        }
    }

    pub(super) async fn acquire(&self) -> Result<PooledConnection, StoreError> {
        let acquired = self.shared.connections.acquire().await;
        acquired.map_err(|error| self.read_error(error))
    }

    /// No answer came in time. It may still come, so nobody else is to have this connection.
    pub(super) fn give_up(&self, connection: &mut PooledConnection) -> StoreError {
        connection.close_on_drop();
        self.read_error(no_answer(self.lock_limit()))
    }

    pub(super) fn append_error(&self, error: sqlx::Error, stream_key: &str) -> StoreError {
        store_error(error, &self.shared.schema, Doing::Appending(stream_key))
    }

    async fn append_with(
        &self,
        transaction: &mut PgConnection,
        event: E,
        ring: bool,
    ) -> Result<Appended<E>, StoreError> {
        let outgoing = Outgoing::new(&event)?;
        let stream_key = event.stream_key();
        let appended = self
            .append_one(stream_key, &outgoing, ring)
            .fetch_one(transaction)
            .await;
        match appended.map_err(|error| self.append_error(error, stream_key)) {
            Ok(row) => Ok(self.stamp(&row)?.on(event)),
            Err(error) => Err(with_actual(error, &[event])),
        }
    }

    async fn append_batch_with(
        &self,
        transaction: &mut PgConnection,
        events: Vec<E>,
        ring: bool,
    ) -> Result<Vec<Appended<E>>, StoreError> {
        let outgoing = events.iter().map(Outgoing::new).collect::<Result<Vec<_>, _>>()?;
        let stream_keys: Vec<&str> = events.iter().map(StreamEvent::stream_key).collect();
        let Some(first) = stream_keys.first() else {
            return Ok(Vec::new());
        };
        let query = self.append_many(&stream_keys, &outgoing, ring);
        let appended = query.fetch_all(transaction).await;
        let rows = appended.map_err(|error| with_actual(self.append_error(error, first), &events))?;
        let stamps = rows.iter().map(|row| self.stamp(row)).collect::<Result<Vec<_>, _>>()?;
        Ok(on_all(stamps, events))
    }

    fn append_one<'q>(
        &'q self,
        stream_key: &'q str,
        outgoing: &'q Outgoing,
        ring: bool,
    ) -> Query<'q, Postgres, PgArguments> {
        let shared = &*self.shared;
        sqlx::query(&shared.schema.append)
            .bind(stream_key)
            .bind(Json(&outgoing.payload))
            .bind(outgoing.expected)
            .bind(ring)
            .bind(&*shared.channel)
            .bind(shared.lock_timeout_ms)
            .persistent(!shared.transaction_pooler)
    }

    fn append_many<'q>(
        &'q self,
        stream_keys: &'q [&'q str],
        outgoing: &'q [Outgoing],
        ring: bool,
    ) -> Query<'q, Postgres, PgArguments> {
        let shared = &*self.shared;
        let payloads: Vec<Json<&RawValue>> = outgoing.iter().map(|one| Json(&*one.payload)).collect();
        let expected: Vec<i64> = outgoing.iter().map(|one| one.expected).collect();
        sqlx::query(&shared.schema.append_many)
            .bind(stream_keys)
            .bind(payloads)
            .bind(expected)
            .bind(ring)
            .bind(&*shared.channel)
            .bind(shared.lock_timeout_ms)
            .persistent(!shared.transaction_pooler)
    }

    /// The stamp, or none if the stream was taken.
    pub(super) fn stamp_unless_taken(&self, row: &PgRow) -> Result<Option<Stamp>, StoreError> {
        match self.get::<Option<i64>>(row, 0)? {
            Some(_) => self.stamp(row).map(Some),
            None => Ok(None),
        }
    }

    fn stamp(&self, row: &PgRow) -> Result<Stamp, StoreError> {
        let seq: i64 = self.get(row, 0)?;
        let id: Vec<u8> = self.get(row, 1)?;
        Ok(Stamp {
            seq: seq.cast_unsigned(),
            id: event_id(&id),
            appended_at: time(self.get(row, 2)?),
        })
    }
}

/// An event as it goes to the server.
pub(super) struct Outgoing {
    pub(super) payload: Box<RawValue>,
    pub(super) expected: i64,
}

impl Outgoing {
    /// Checks everything that can be checked here, so that it cannot spoil a transaction.
    fn new<E: StreamEvent>(event: &E) -> Result<Self, StoreError> {
        Ok(Self {
            payload: encode(event)?,
            expected: expected(event.seq()),
        })
    }
}

/// What the server says of an event that it has appended.
#[derive(Clone, Copy)]
pub(super) struct Stamp {
    seq: u64,
    id: Option<EventId>,
    appended_at: Option<SystemTime>,
}

impl Stamp {
    fn on<E: StreamEvent>(self, event: E) -> Appended<E> {
        Appended {
            event: event.with_seq(self.seq),
            id: self.id,
            appended_at: self.appended_at,
        }
    }
}

fn on_all<E: StreamEvent>(stamps: Vec<Stamp>, events: Vec<E>) -> Vec<Appended<E>> {
    let stamped = events.into_iter().zip(stamps);
    stamped.map(|(event, stamp)| stamp.on(event)).collect()
}

/// An event with its number, and what the store knows of it.
pub(super) struct Appended<E> {
    pub(super) event: E,
    id: Option<EventId>,
    appended_at: Option<SystemTime>,
}

impl<E: StreamEvent> From<Appended<E>> for Record<E> {
    fn from(appended: Appended<E>) -> Self {
        Self {
            seq: appended.event.seq(),
            id: appended.id,
            appended_at: appended.appended_at,
            event: Ok(appended.event),
        }
    }
}

pub(super) fn only_events<E>(appended: Vec<Appended<E>>) -> Vec<E> {
    appended.into_iter().map(|appended| appended.event).collect()
}

/// A number as the server counts: 0 for none, and -1, which is never the next, for one beyond its reach.
fn expected(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(-1)
}

/// Puts the number that [`expected`] could not express back into the error.
fn with_actual<E: StreamEvent>(error: StoreError, events: &[E]) -> StoreError {
    match error {
        StoreError::SeqConflict {
            stream_key,
            expected,
            actual: u64::MAX,
        } => {
            let beyond = |event: &&E| event.stream_key() == stream_key && i64::try_from(event.seq()).is_err();
            let actual = events.iter().find(beyond).map_or(u64::MAX, StreamEvent::seq);
            StoreError::SeqConflict {
                stream_key,
                expected,
                actual,
            }
        }
        error => error,
    }
}

/// The event as JSON that the server can hold.
fn encode<E: StreamEvent>(event: &E) -> Result<Box<RawValue>, StoreError> {
    let stream_key = event.stream_key();
    check_stream_key(stream_key)?;
    let failed = |reason: String| StoreError::Encode {
        stream_key: stream_key.to_owned(),
        reason,
    };
    let payload = serde_json::value::to_raw_value(event).map_err(|error| failed(error.to_string()))?;
    if escapes_nul(payload.get()) {
        return Err(failed("Postgres cannot store the character NUL (\\u0000)".to_owned()));
    }
    Ok(payload)
}
