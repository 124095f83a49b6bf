//! Appending within a caller's transaction.

use sqlx::PgConnection;

use super::PostgresStore;
use super::encode::{EncodedEvent, restore_actual_seq, restore_stream};
use crate::event::StreamEvent;
use crate::store::StoreError;

impl<E: StreamEvent> PostgresStore<E> {
    /// Appends an event within the caller's transaction, and returns the event with its sequence number.
    ///
    /// The event is committed or rolled back with everything else in the transaction. This takes one round trip.
    ///
    /// The stream is locked against other appends until the transaction ends, so append late in the transaction. Transactions that
    /// append to several streams with several calls should do so in byte order of the stream keys, or they may deadlock.
    ///
    /// No notification is sent. After the commit, publish the event on a bus; otherwise subscribers get it with the next
    /// [sweep](crate::bus#notifications).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Store::append`](crate::store::Store::append). As always in Postgres, an error from the server
    /// aborts the whole transaction. [`StoreError::InvalidStreamKey`], and [`StoreError::Encode`] for a NUL character, are
    /// detected before anything is sent, and leave the transaction intact.
    ///
    /// In a transaction with one snapshot (`REPEATABLE READ`, `SERIALIZABLE`), returns [`StoreError::Serialization`] if the
    /// stream has changed since the snapshot. Run the transaction again.
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
        self.append_event_in(transaction, event, false).await
    }

    /// Appends an event like [`append_in`](Self::append_in), and sends a notification on the builder's channel when the
    /// transaction commits.
    ///
    /// The notification is part of the transaction and cannot be lost. However, Postgres serializes all commits of the cluster
    /// that notify: expect a few hundred per second.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`append_in`](Self::append_in).
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
        self.append_event_in(transaction, event, true).await
    }

    /// Appends several events of one or more streams, like [`append_in`](Self::append_in).
    ///
    /// This takes one round trip. Streams are locked in byte order of their keys, whatever the order of the events.
    ///
    /// # Errors
    ///
    /// Returns the error of [`append_in`](Self::append_in) for the first event that is refused.
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
        self.append_events_in(transaction, events, false).await
    }

    /// Appends several events like [`append_batch_in`](Self::append_batch_in), and sends one notification per stream, like
    /// [`append_in_notifying`](Self::append_in_notifying).
    ///
    /// # Errors
    ///
    /// Returns the error of [`append_in`](Self::append_in) for the first event that is refused.
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
        self.append_events_in(transaction, events, true).await
    }

    async fn append_event_in(&self, transaction: &mut PgConnection, event: E, notify: bool) -> Result<E, StoreError> {
        let encoded = EncodedEvent::new(&event)?;
        let stream_key = event.stream_key();
        let query = self.append_record_query(stream_key, &encoded, notify, self.inner.lock_timeout_ms, None);
        let appended = query.fetch_one(transaction).await;
        match appended.map_err(|error| self.append_error(error, stream_key)) {
            Ok(row) => Ok(self.metadata(&row)?.stamp(event)),
            Err(error) => Err(restore_actual_seq(error, &[event])),
        }
    }

    async fn append_events_in(
        &self,
        transaction: &mut PgConnection,
        events: Vec<E>,
        notify: bool,
    ) -> Result<Vec<E>, StoreError> {
        let encoded = EncodedEvent::new_all(&events)?;
        let stream_keys: Vec<&str> = events.iter().map(StreamEvent::stream_key).collect();
        let Some(first) = stream_keys.first() else {
            return Ok(Vec::new());
        };
        let query = self.append_records_query(&stream_keys, &encoded, notify, self.inner.lock_timeout_ms, None);
        let appended = query.fetch_one(transaction).await;
        let row = appended.map_err(|error| {
            let error = restore_stream(self.append_error(error, first), &stream_keys, &encoded);
            restore_actual_seq(error, &events)
        })?;
        let stamped = events.into_iter().zip(self.metadata_of_all(&row)?);
        Ok(stamped.map(|(event, metadata)| metadata.stamp(event)).collect())
    }
}
