//! A stream by itself: its lock is somebody else's for now, or one of its events was refused.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::PostgresStore;
use super::append_queue::{QueuedAppend, Share};
use crate::event::StreamEvent;
use crate::store::StoreError;

/// A stream's turn. It goes on when it is dropped, for as long as somebody waits.
struct ContendedStream<E: StreamEvent> {
    store: PostgresStore<E>,
    stream_key: Arc<str>,
}

impl<E: StreamEvent> Drop for ContendedStream<E> {
    fn drop(&mut self) {
        let next = self.store.shared.append_queue.next_of(&self.stream_key);
        if next.is_empty() {
            return;
        }
        let turn = Self {
            store: self.store.clone(),
            stream_key: Arc::clone(&self.stream_key),
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(turn.take(next))),
            // The runtime is gone, and with it whoever waits: `next` is dropped, then the rest in the same way.
            Err(_) => drop((next, turn)),
        }
    }
}

impl<E: StreamEvent> PostgresStore<E> {
    /// Appends to a stream that is under way, and waits for its lock, in the background.
    pub(super) fn append_contended(&self, share: Share) {
        let turn = ContendedStream {
            store: self.clone(),
            stream_key: share.stream_key,
        };
        tokio::spawn(turn.take(share.waiting));
    }
}

impl<E: StreamEvent> ContendedStream<E> {
    async fn take(self, waiting: Vec<QueuedAppend>) {
        let (outgoing, answers): (Vec<_>, Vec<_>) = waiting.into_iter().map(|one| (one.outgoing, one.answer)).unzip();
        let store = &self.store;
        if outgoing.len() > 1 {
            match store.append_outgoings(&self.stream_key, &outgoing).await {
                Ok(stamps) => {
                    for (answer, stamp) in answers.into_iter().zip(stamps) {
                        let _ = answer.send(Ok(stamp)); // if nobody waits it is appended all the same
                    }
                    return;
                }
                Err(error @ StoreError::Unavailable { .. }) => {
                    for answer in answers {
                        let _ = answer.send(Err(error.clone()));
                    }
                    return;
                }
                Err(_) => {} // nothing was written, and perhaps only one of them is to blame
            }
        }
        for (outgoing, answer) in outgoing.iter().zip(answers) {
            let _ = answer.send(store.append_outgoing(&self.stream_key, outgoing).await);
        }
    }
}
