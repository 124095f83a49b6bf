//! Group commit: concurrent appends of a process share transactions.
//!
//! Every transaction costs the server a flush, and a stream's lock is held until that flush is done. So a process runs few append
//! transactions at a time. Appends that arrive during them wait in the [`AppendQueue`] without a connection, and the next
//! transaction takes all of them, whatever their streams: any number of writers share one flush.
//!
//! - When there are few appends, each runs in its own transaction, without queueing ([`direct_append`]).
//! - Under load, tasks take groups of appends from the queue ([`GroupCommitTask`]).
//! - A stream that another session has locked, and a group in which an append was refused, continue in transactions per stream
//!   ([`contended_append`]), so that they neither delay nor fail the others.

mod append_queue;
mod contended_append;
mod direct_append;

use std::time::Duration;

use serde_json::value::RawValue;
use sqlx::types::Json;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::yield_now;

pub(super) use self::append_queue::AppendQueue;
use self::append_queue::{QueuedAppend, StreamBatch};
use super::PostgresStore;
use super::encode::EncodedEvent;
use super::execute::{lock_timeout_ms, only_row};
use crate::event::{StreamEvent, foreign};
use crate::pg::warm_pool::PooledConnection;
use crate::store::StoreError;
use crate::store::record_metadata::RecordMetadata;

/// Commits one group after another until the queue is empty. Holds a permit of the [`AppendQueue`].
struct GroupCommitTask<E: StreamEvent> {
    store: PostgresStore<E>,
    finished: bool,
}

/// The appends of one transaction, by stream. Its streams are in flight.
struct Group<'a, E: StreamEvent> {
    store: &'a PostgresStore<E>,
    batches: Vec<StreamBatch>,
}

impl<E: StreamEvent> PostgresStore<E> {
    /// Appends an event, directly when there are few appends, otherwise grouped with other queued appends.
    pub(super) async fn append_encoded(
        &self,
        stream_key: &str,
        event: EncodedEvent,
    ) -> Result<RecordMetadata, StoreError> {
        let unavailable = |reason: &str| StoreError::Unavailable {
            reason: reason.to_owned(),
        };
        let shut_down = || unavailable("the runtime shut down before the append finished");
        let runtime = Handle::try_current().map_err(|_| StoreError::NoRuntime)?;
        // In a task of its own: other appends may wait for this one, and the caller may drop its future or stop polling it.
        if let Some(direct_append) = self.try_direct_append(stream_key) {
            let task = runtime.spawn(direct_append.run(event));
            return task.await.map_err(|error| match error.try_into_panic() {
                Ok(panic) => StoreError::Panicked {
                    message: foreign::message_of(panic),
                },
                Err(_) => shut_down(),
            })?;
        }
        let (reply, replied) = oneshot::channel();
        let append = QueuedAppend { event, reply };
        if self.inner.append_queue.enqueue(stream_key, append) {
            self.spawn_group_commit();
        }
        replied.await.map_err(|_| shut_down())?
    }

    /// Starts a [`GroupCommitTask`], for which the caller has claimed a permit.
    fn spawn_group_commit(&self) {
        let task = GroupCommitTask {
            store: self.clone(),
            finished: false,
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(task.run())),
            // The runtime has shut down, and its callers with it.
            Err(_) => drop(task),
        }
    }

    /// Appends the events whose streams are not locked, all or none, and gives back the connection. `None` for an event whose stream is locked.
    async fn try_append_records(
        &self,
        connection: PooledConnection,
        events: &[(&str, &EncodedEvent)],
    ) -> Result<Vec<Option<RecordMetadata>>, StoreError> {
        let stream_keys: Vec<&str> = events.iter().map(|(stream_key, _)| *stream_key).collect();
        let payloads: Vec<_> = events
            .iter()
            .map(|(_, event)| Json::<&RawValue>(&event.payload))
            .collect();
        let expected_seqs: Vec<i64> = events.iter().map(|(_, event)| event.expected_seq).collect();
        // For the locks of tables. The server gives up before this store does, which could not tell it.
        let lock_wait = Duration::from_millis(self.inner.lock_timeout_ms.unsigned_abs().into());
        let lock_wait = lock_timeout_ms(lock_wait.min(self.inner.response_timeout / 2));
        let query = |server| {
            sqlx::query(&self.inner.schema.try_append_records)
                .bind(&stream_keys)
                .bind(&payloads)
                .bind(&expected_seqs)
                .bind(lock_wait)
                .bind(server)
        };
        let rows = self
            .fetch_on(connection, self.inner.response_timeout, true, query)
            .await;
        match rows.and_then(only_row) {
            Ok(row) => self.metadata_unless_skipped(&row),
            Err(error) => Err(self.append_error(error, events[0].0)),
        }
    }
}

impl<E: StreamEvent> GroupCommitTask<E> {
    async fn run(mut self) {
        let store = self.store.clone();
        let append_queue = &store.inner.append_queue;
        loop {
            // Appends that arrive while this waits for a connection join the group.
            let connection = store.acquire().await;
            // So do callers that were just answered and append again at once.
            yield_now().await;
            let batches = append_queue.next_group();
            if batches.is_empty() {
                if let Ok(connection) = connection {
                    store.inner.connections.give_back(connection);
                }
                self.finished = true;
                return;
            }
            let group = Group { store: &store, batches };
            match connection {
                Ok(connection) => group.commit(connection).await,
                Err(error) => group.fail(&error),
            }
        }
    }
}

impl<E: StreamEvent> Drop for GroupCommitTask<E> {
    /// Unfinished only if the runtime shuts down.
    fn drop(&mut self) {
        if !self.finished {
            self.store.inner.append_queue.abort_group_commit();
        }
    }
}

impl<E: StreamEvent> Group<'_, E> {
    /// Appends the events and replies to the callers.
    async fn commit(mut self, connection: PooledConnection) {
        let mut events = Vec::new();
        for StreamBatch { stream_key, appends } in &self.batches {
            events.extend(appends.iter().map(|append| (&**stream_key, &append.event)));
        }
        match self.store.try_append_records(connection, &events).await {
            Ok(metadata) => self.reply(metadata),
            // Nothing was written. A single append may be to blame, so retry stream by stream.
            Err(error) if !concerns_all(&error) && events.len() > 1 => {
                for batch in std::mem::take(&mut self.batches) {
                    self.store.spawn_contended_append(batch);
                }
            }
            Err(error) => self.fail(&error),
        }
    }

    fn reply(&mut self, metadata: Vec<Option<RecordMetadata>>) {
        let mut metadata = metadata.into_iter();
        for batch in std::mem::take(&mut self.batches) {
            let assigned: Vec<_> = metadata.by_ref().take(batch.appends.len()).collect();
            let Some(assigned) = assigned.into_iter().collect::<Option<Vec<_>>>() else {
                self.store.spawn_contended_append(batch);
                continue;
            };
            self.store.inner.append_queue.release_stream(&batch.stream_key);
            for (append, metadata) in batch.appends.into_iter().zip(assigned) {
                let _ = append.reply.send(Ok(metadata)); // appended even if the caller has gone
            }
        }
    }

    fn fail(mut self, error: &StoreError) {
        for batch in std::mem::take(&mut self.batches) {
            self.store.inner.append_queue.release_stream(&batch.stream_key);
            for append in batch.appends {
                let _ = append.reply.send(Err(error.clone()));
            }
        }
    }
}

/// Returns `true` if an error would also occur for each append of a group on its own.
fn concerns_all(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable { .. } | StoreError::ReadOnly)
}

impl<E: StreamEvent> Drop for Group<'_, E> {
    /// Has batches left only if the runtime shuts down.
    fn drop(&mut self) {
        for batch in self.batches.drain(..) {
            self.store.inner.append_queue.release_stream(&batch.stream_key);
        }
    }
}
