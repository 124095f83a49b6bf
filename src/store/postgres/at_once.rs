//! An append that begins at once: few others are under way.

use std::sync::Arc;

use super::PostgresStore;
use super::append::{Outgoing, Stamp};
use crate::bus::StreamEvent;
use crate::store::StoreError;

/// The append's stream, and its place among the transactions. Both are free again when this is dropped.
pub(super) struct AtOnce<E: StreamEvent> {
    store: PostgresStore<E>,
    stream_key: Arc<str>,
    counts: bool,
}

impl<E: StreamEvent> PostgresStore<E> {
    /// If the append may begin at once.
    pub(super) fn at_once(&self, stream_key: &str) -> Option<AtOnce<E>> {
        let stream_key = self.shared.turns.begin_at_once(stream_key)?;
        Some(AtOnce {
            store: self.clone(),
            stream_key,
            counts: true,
        })
    }
}

impl<E: StreamEvent> AtOnce<E> {
    pub(super) async fn append(mut self, outgoing: Outgoing) -> Result<Stamp, StoreError> {
        let mut connection = self.store.acquire().await?;
        let event = [(&*self.stream_key, &outgoing)];
        let stamps = self.store.append_free(&mut connection, &event).await?;
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
        if self.store.shared.turns.ends() {
            self.store.append_together();
        }
    }
}

impl<E: StreamEvent> Drop for AtOnce<E> {
    fn drop(&mut self) {
        self.store.shared.turns.is_done(&self.stream_key);
        if self.counts {
            self.stop_counting();
        } else if self.store.shared.turns.begins() {
            self.store.append_together();
        }
    }
}
