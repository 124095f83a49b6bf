//! An append that begins at once: few others are under way.

use std::sync::Arc;

use super::PostgresStore;
use super::append::{Outgoing, Stamp};
use crate::event::StreamEvent;
use crate::store::StoreError;

/// The append's stream, and its place among the transactions. Both are free again when this is dropped.
pub(super) struct DirectAppend<E: StreamEvent> {
    store: PostgresStore<E>,
    stream_key: Arc<str>,
    counts: bool,
}

impl<E: StreamEvent> PostgresStore<E> {
    /// If the append may begin at once.
    pub(super) fn direct_append(&self, stream_key: &str) -> Option<DirectAppend<E>> {
        let stream_key = self.shared.append_queue.begin_at_once(stream_key)?;
        Some(DirectAppend {
            store: self.clone(),
            stream_key,
            counts: true,
        })
    }
}

impl<E: StreamEvent> DirectAppend<E> {
    pub(super) async fn append(mut self, outgoing: Outgoing) -> Result<Stamp, StoreError> {
        let mut connection = self.store.acquire().await?;
        let event = [(&*self.stream_key, &outgoing)];
        let stamps = self.store.try_append_records(&mut connection, &event).await?;
        self.store.shared.connections.give_back(connection);
        if let Some(Some(stamp)) = stamps.into_iter().next() {
            return Ok(stamp);
        }
        // Somebody else has the stream, perhaps for long.
        self.stop_counting();
        self.store.append_outgoing(&self.stream_key, &outgoing).await
    }

    fn stop_counting(&mut self) {
        self.counts = false;
        if self.store.shared.append_queue.ends() {
            self.store.append_in_group();
        }
    }
}

impl<E: StreamEvent> Drop for DirectAppend<E> {
    fn drop(&mut self) {
        self.store.shared.append_queue.is_done(&self.stream_key);
        if self.counts {
            self.stop_counting();
        } else if self.store.shared.append_queue.begins() {
            self.store.append_in_group();
        }
    }
}
