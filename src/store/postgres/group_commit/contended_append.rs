//! Appends to one stream in transactions that wait for its lock, after another session has locked the stream or an append was
//! refused.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::append_queue::{QueuedAppend, StreamBatch};
use crate::event::StreamEvent;
use crate::store::{PostgresStore, StoreError};

/// A stream that is in flight on its own. Dropping it starts the stream's next batch, or releases the stream if none is queued.
struct ContendedStream<E: StreamEvent> {
    store: PostgresStore<E>,
    stream_key: Arc<str>,
}

impl<E: StreamEvent> Drop for ContendedStream<E> {
    fn drop(&mut self) {
        let appends = self.store.inner.append_queue.next_batch(&self.stream_key);
        if appends.is_empty() {
            return;
        }
        let stream = Self {
            store: self.store.clone(),
            stream_key: Arc::clone(&self.stream_key),
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(stream.append(appends))),
            // The runtime has shut down, and its callers with it. Dropping `stream` drains the rest of the queue.
            Err(_) => drop((appends, stream)),
        }
    }
}

impl<E: StreamEvent> PostgresStore<E> {
    /// Appends to a stream that is in flight, waiting for its lock in the background.
    pub(super) fn spawn_contended_append(&self, batch: StreamBatch) {
        let stream = ContendedStream {
            store: self.clone(),
            stream_key: batch.stream_key,
        };
        tokio::spawn(stream.append(batch.appends));
    }
}

impl<E: StreamEvent> ContendedStream<E> {
    async fn append(self, appends: Vec<QueuedAppend>) {
        let (events, replies): (Vec<_>, Vec<_>) =
            appends.into_iter().map(|append| (append.event, append.reply)).unzip();
        let store = &self.store;
        // Fails all appends, which would otherwise wait as long, one after the other.
        let mut failed = None;
        if events.len() > 1 {
            match store.append_to_stream(&self.stream_key, &events).await {
                Ok(metadata) => {
                    for (reply, metadata) in replies.into_iter().zip(metadata) {
                        let _ = reply.send(Ok(metadata)); // appended even if the caller has gone
                    }
                    return;
                }
                // Otherwise a single append may be to blame, so retry one by one. Nothing was written.
                Err(error) => failed = Some(error).filter(concerns_stream),
            }
        }
        for (event, reply) in events.iter().zip(replies) {
            let appended = match &failed {
                Some(error) => Err(error.clone()),
                None => store.append_one(&self.stream_key, event).await,
            };
            failed = failed.or_else(|| appended.as_ref().err().filter(|error| concerns_stream(error)).cloned());
            let _ = reply.send(appended);
        }
    }
}

/// Whether an error would also occur for each append to the same stream.
fn concerns_stream(error: &StoreError) -> bool {
    super::concerns_all(error) || matches!(error, StoreError::LockTimeout)
}
