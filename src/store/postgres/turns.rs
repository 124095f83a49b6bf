//! Appends of one process to one stream take turns.
//!
//! The stream's lock lets one transaction in at a time, through the flush. So appends that come while another is under way wait
//! here, without a connection, and go together in the next transaction: as many writers as there are share one flush. Streams
//! do not wait for each other.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::PostgresStore;
use super::append::{Outgoing, Stamp};
use crate::bus::StreamEvent;
use crate::store::StoreError;

/// Events of one transaction, at most.
const MOST_EVENTS: usize = 256;

/// Bytes of JSON from which on a transaction takes no further event.
const ENOUGH_BYTES: usize = 1 << 20;

/// The streams to which an append is under way, and the appends that wait for it.
#[derive(Default)]
pub(super) struct Turns(Mutex<HashMap<Arc<str>, Vec<Waiting>>>);

struct Waiting {
    outgoing: Outgoing,
    answer: oneshot::Sender<Result<Stamp, StoreError>>,
}

impl Turns {
    /// Appends that have waited, the first ones first. Without any, the stream is free.
    fn next(&self, stream_key: &str) -> Vec<Waiting> {
        let mut streams = self.0.lock();
        let Some(waiting) = streams.get_mut(stream_key) else {
            return Vec::new();
        };
        // Nobody is there any more to whom it would matter.
        waiting.retain(|waiting| !waiting.answer.is_closed());
        if waiting.is_empty() {
            streams.remove(stream_key);
            return Vec::new();
        }
        let mut bytes = 0;
        let enough = |waiting: &Waiting| {
            bytes += waiting.outgoing.payload.get().len();
            bytes >= ENOUGH_BYTES
        };
        let events = waiting.iter().position(enough).map_or(waiting.len(), |last| last + 1);
        waiting.drain(..events.min(MOST_EVENTS)).collect()
    }
}

/// A stream's turn: whoever has it appends. It goes on when it is dropped, also by a caller that does not wait for its answer.
struct Turn<E: StreamEvent> {
    store: PostgresStore<E>,
    stream_key: Arc<str>,
}

impl<E: StreamEvent> Drop for Turn<E> {
    fn drop(&mut self) {
        let next = self.store.shared.turns.next(&self.stream_key);
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

impl<E: StreamEvent> Turn<E> {
    async fn take(self, waiting: Vec<Waiting>) {
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

impl<E: StreamEvent> PostgresStore<E> {
    /// Appends an event when the stream's turn is its, alone or with others that have waited.
    pub(super) async fn append_in_turn(&self, stream_key: &str, outgoing: Outgoing) -> Result<Stamp, StoreError> {
        let answer = {
            let mut streams = self.shared.turns.0.lock();
            match streams.get_mut(stream_key) {
                Some(waiting) => {
                    let (sender, answer) = oneshot::channel();
                    waiting.push(Waiting {
                        outgoing,
                        answer: sender,
                    });
                    Err(answer)
                }
                None => {
                    let stream_key = Arc::<str>::from(stream_key);
                    streams.insert(Arc::clone(&stream_key), Vec::new());
                    Ok((
                        Turn {
                            store: self.clone(),
                            stream_key,
                        },
                        outgoing,
                    ))
                }
            }
        };
        match answer {
            Ok((_turn, outgoing)) => self.append_outgoing(stream_key, &outgoing).await,
            Err(answer) => answer.await.unwrap_or_else(|_| {
                let reason = "the runtime on which the append was to run has ended".to_owned();
                Err(StoreError::Unavailable { reason })
            }),
        }
    }
}

/// For the batch's parameters.
pub(super) fn payloads(outgoing: &[Outgoing]) -> Vec<sqlx::types::Json<&RawValue>> {
    outgoing.iter().map(|one| sqlx::types::Json(&*one.payload)).collect()
}
