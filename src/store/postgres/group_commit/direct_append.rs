//! An append that runs without queueing, because few others are in flight.

use std::sync::Arc;

use crate::event::StreamEvent;
use crate::store::postgres::encode::EncodedEvent;
use crate::store::record_metadata::RecordMetadata;
use crate::store::{PostgresStore, StoreError};

/// Keeps the stream in flight and holds a permit of the [`AppendQueue`](super::AppendQueue). Dropping it releases both.
pub(super) struct DirectAppend<E: StreamEvent> {
    store: PostgresStore<E>,
    stream_key: Arc<str>,
    holds_permit: bool,
}

impl<E: StreamEvent> PostgresStore<E> {
    /// Starts a direct append. Returns `None` if the append must be queued.
    pub(super) fn try_direct_append(&self, stream_key: &str) -> Option<DirectAppend<E>> {
        let stream_key = self.inner.append_queue.try_start_direct(stream_key)?;
        Some(DirectAppend {
            store: self.clone(),
            stream_key,
            holds_permit: true,
        })
    }
}

impl<E: StreamEvent> DirectAppend<E> {
    pub(super) async fn run(mut self, event: EncodedEvent) -> Result<RecordMetadata, StoreError> {
        let connection = self.store.acquire().await?;
        let events = [(&*self.stream_key, &event)];
        let metadata = self.store.try_append_records(connection, &events).await?;
        if let Some(Some(metadata)) = metadata.into_iter().next() {
            return Ok(metadata);
        }
        // Another session has locked the stream, perhaps for long.
        self.release_permit();
        self.store.append_one(&self.stream_key, &event).await
    }

    fn release_permit(&mut self) {
        self.holds_permit = false;
        if self.store.inner.append_queue.release_permit() {
            self.store.spawn_group_commit();
        }
    }
}

impl<E: StreamEvent> Drop for DirectAppend<E> {
    fn drop(&mut self) {
        self.store.inner.append_queue.release_stream(&self.stream_key);
        if self.holds_permit {
            self.release_permit();
        } else if self.store.inner.append_queue.try_start_group_commit() {
            self.store.spawn_group_commit();
        }
    }
}
