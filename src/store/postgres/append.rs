//! Appending in the store's own transactions, and the statements for it.

use std::sync::Arc;

use serde_json::value::RawValue;
use sqlx::Postgres;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::types::Json;

use super::PostgresStore;
use super::encode::{EncodedEvent, restore_actual_seq, restore_stream};
use super::error::{Operation, store_error};
use super::read::{event_id, time};
use crate::event::StreamEvent;
use crate::pg::warm_pool::PooledConnection;
use crate::store::StoreError;
use crate::store::record_metadata::RecordMetadata;

impl<E: StreamEvent> PostgresStore<E> {
    /// Appends an event in a transaction that it may share with other appends of this process.
    pub(super) async fn append_event(&self, event: &E) -> Result<RecordMetadata, StoreError> {
        let encoded = EncodedEvent::new(event)?;
        let appended = self.append_encoded(event.stream_key(), encoded).await;
        appended.map_err(|error| restore_actual_seq(error, std::slice::from_ref(event)))
    }

    /// Appends events in one transaction, which they share with no others.
    pub(super) async fn append_events(&self, events: &[E]) -> Result<Vec<RecordMetadata>, StoreError> {
        let encoded = EncodedEvent::new_all(events)?;
        let stream_keys: Vec<&str> = events.iter().map(StreamEvent::stream_key).collect();
        let appended = self.append_many(&stream_keys, &encoded).await;
        appended.map_err(|error| restore_actual_seq(error, events))
    }

    /// Appends one event, in its own transaction.
    pub(super) async fn append_one(
        &self,
        stream_key: &str,
        event: &EncodedEvent,
    ) -> Result<RecordMetadata, StoreError> {
        let query =
            |server, lock_timeout_ms| self.append_record_query(stream_key, event, false, lock_timeout_ms, server);
        let row = self.run_append(stream_key, query).await?;
        self.metadata(&row)
    }

    /// Appends several events of one stream, in their own transaction.
    pub(super) async fn append_to_stream(
        &self,
        stream_key: &str,
        events: &[EncodedEvent],
    ) -> Result<Vec<RecordMetadata>, StoreError> {
        self.append_many(&vec![stream_key; events.len()], events).await
    }

    async fn append_many(
        &self,
        stream_keys: &[&str],
        events: &[EncodedEvent],
    ) -> Result<Vec<RecordMetadata>, StoreError> {
        let Some(first) = stream_keys.first() else {
            return Ok(Vec::new());
        };
        let query =
            |server, lock_timeout_ms| self.append_records_query(stream_keys, events, false, lock_timeout_ms, server);
        let appended = self.run_append(first, query).await;
        let row = appended.map_err(|error| restore_stream(error, stream_keys, events))?;
        self.metadata_of_all(&row)
    }

    async fn run_append<'q>(
        &self,
        stream_key: &str,
        query: impl Fn(Option<Arc<str>>, i32) -> Query<'q, Postgres, PgArguments>,
    ) -> Result<PgRow, StoreError> {
        let appended = self.fetch_one_locking(query).await;
        appended.map_err(|error| self.append_error(error, stream_key))
    }

    pub(super) async fn acquire(&self) -> Result<PooledConnection, StoreError> {
        let acquired = self.inner.connections.acquire().await;
        acquired.map_err(|error| self.read_error(error))
    }

    pub(super) fn append_error(&self, error: sqlx::Error, stream_key: &str) -> StoreError {
        store_error(error, &self.inner.schema, Operation::Append(stream_key))
    }

    pub(super) fn append_record_query<'q>(
        &'q self,
        stream_key: &'q str,
        event: &'q EncodedEvent,
        notify: bool,
        lock_timeout_ms: i32,
        server: Option<Arc<str>>,
    ) -> Query<'q, Postgres, PgArguments> {
        let inner = &*self.inner;
        sqlx::query(&inner.schema.append_record)
            .bind(stream_key)
            .bind(Json(&event.payload))
            .bind(event.expected_seq)
            .bind(notify)
            .bind(&*inner.channel)
            .bind(lock_timeout_ms)
            .bind(server)
            .persistent(!inner.transaction_pooler)
    }

    pub(super) fn append_records_query<'q>(
        &'q self,
        stream_keys: &'q [&'q str],
        events: &'q [EncodedEvent],
        notify: bool,
        lock_timeout_ms: i32,
        server: Option<Arc<str>>,
    ) -> Query<'q, Postgres, PgArguments> {
        let inner = &*self.inner;
        let payloads: Vec<Json<&RawValue>> = events.iter().map(|event| Json(&*event.payload)).collect();
        let expected_seqs: Vec<i64> = events.iter().map(|event| event.expected_seq).collect();
        sqlx::query(&inner.schema.append_records)
            .bind(stream_keys)
            .bind(payloads)
            .bind(expected_seqs)
            .bind(notify)
            .bind(&*inner.channel)
            .bind(lock_timeout_ms)
            .bind(server)
            .persistent(!inner.transaction_pooler)
    }

    /// Returns what was assigned to each of several events.
    pub(super) fn metadata_of_all(&self, row: &PgRow) -> Result<Vec<RecordMetadata>, StoreError> {
        let metadata = self.metadata_unless_skipped(row)?;
        let metadata: Option<Vec<_>> = metadata.into_iter().collect();
        metadata.ok_or_else(|| self.read_error(sqlx::Error::RowNotFound))
    }

    /// Returns what was assigned to each of several events, or `None` for an event that was skipped because its stream is locked.
    pub(super) fn metadata_unless_skipped(&self, row: &PgRow) -> Result<Vec<Option<RecordMetadata>>, StoreError> {
        let seqs: Vec<Option<i64>> = self.get(row, 0)?;
        let ids: Vec<Option<Vec<u8>>> = self.get(row, 1)?;
        let previous_ids: Vec<Option<Vec<u8>>> = self.get(row, 2)?;
        let appended_at: Option<f64> = self.get(row, 3)?;
        let metadata = seqs.into_iter().zip(ids.into_iter().zip(previous_ids));
        let metadata = metadata.map(|(seq, (id, previous_id))| {
            Some(RecordMetadata {
                seq: seq?.cast_unsigned(),
                id: event_id(&id?),
                previous_id: previous_id.and_then(|id| event_id(&id)),
                appended_at: appended_at.and_then(time),
            })
        });
        Ok(metadata.collect())
    }

    pub(super) fn metadata(&self, row: &PgRow) -> Result<RecordMetadata, StoreError> {
        let seq: i64 = self.get(row, 0)?;
        let id: Vec<u8> = self.get(row, 1)?;
        let previous_id: Option<Vec<u8>> = self.get(row, 2)?;
        Ok(RecordMetadata {
            seq: seq.cast_unsigned(),
            id: event_id(&id),
            previous_id: previous_id.and_then(|id| event_id(&id)),
            appended_at: time(self.get(row, 3)?),
        })
    }
}
