//! Who appends when: the appends of one process share transactions.
//!
//! A stream's lock lets one transaction in at a time, through the flush, and every transaction costs the server a commit. So a
//! process has few appends under way ([`Turns::most`]). What comes meanwhile waits here, without a connection, and goes together
//! in the next transaction, whatever its stream: as many writers as there are share one flush. A stream whose lock somebody else
//! has is left out of it, and waits for the lock in a transaction of its own.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::append::{Outgoing, Stamp};
use crate::store::StoreError;

/// Transactions in which several streams are appended to, at most. One is enough for the rate; more are there for what comes
/// while it is being flushed.
const MOST_SHARED: u32 = 4;

/// Events of one transaction, at most.
const MOST_EVENTS: usize = 256;

/// Bytes of JSON from which on a transaction takes no further event.
const ENOUGH_BYTES: usize = 1 << 20;

/// An append that waits for its turn.
pub(super) struct Waiting {
    pub(super) outgoing: Outgoing,
    pub(super) answer: oneshot::Sender<Result<Stamp, StoreError>>,
}

/// Appends to one stream, for one transaction.
pub(super) struct Share {
    pub(super) stream_key: Arc<str>,
    pub(super) waiting: Vec<Waiting>,
}

pub(super) struct Turns {
    state: Mutex<State>,
    most: usize,
    /// Whether a connection may be kept from one transaction to the next: there are others.
    pub(super) keeps_connection: bool,
}

#[derive(Default)]
struct State {
    /// The streams to which an append waits or is under way, and the appends that wait.
    streams: HashMap<Arc<str>, Vec<Waiting>>,
    /// Those of them of which none is under way, first come, first served.
    queue: VecDeque<Arc<str>>,
    /// Shared transactions that are under way, or about to be.
    running: usize,
}

impl Turns {
    /// For a pool of so many connections: one is left for readers, if there is more than one.
    pub(super) fn new(max_connections: u32) -> Self {
        let most = max_connections.saturating_sub(1).clamp(1, MOST_SHARED);
        Self {
            state: Mutex::default(),
            most: most as usize,
            keeps_connection: max_connections > most,
        }
    }

    /// Lines up. Whether one more shared transaction is to begin.
    #[must_use]
    pub(super) fn line_up(&self, stream_key: &str, waiting: Waiting) -> bool {
        let mut state = self.state.lock();
        match state.streams.get_mut(stream_key) {
            Some(others) => others.push(waiting),
            None => {
                let stream_key = Arc::<str>::from(stream_key);
                state.queue.push_back(Arc::clone(&stream_key));
                state.streams.insert(stream_key, vec![waiting]);
            }
        }
        state.begins(self.most)
    }

    /// What goes together in the next shared transaction; its streams are under way. Nothing, if nobody waits: then the caller's
    /// shared transactions are over.
    pub(super) fn next_shared(&self) -> Vec<Share> {
        let mut state = self.state.lock();
        let mut shares = Vec::new();
        let (mut events, mut bytes) = (0, 0);
        while events < MOST_EVENTS && bytes < ENOUGH_BYTES {
            let Some(stream_key) = state.queue.pop_front() else {
                break;
            };
            let waiting = state.take(&stream_key, MOST_EVENTS - events, &mut bytes);
            events += waiting.len();
            if !waiting.is_empty() {
                shares.push(Share { stream_key, waiting });
            }
        }
        if shares.is_empty() {
            state.running -= 1;
        }
        shares
    }

    /// What goes next of a stream that is under way by itself. Nothing, if nobody waits: then it is under way no more.
    pub(super) fn next_of(&self, stream_key: &str) -> Vec<Waiting> {
        self.state.lock().take(stream_key, MOST_EVENTS, &mut 0)
    }

    /// The stream is under way no more.
    pub(super) fn is_done(&self, stream_key: &Arc<str>) {
        let mut state = self.state.lock();
        if state.streams.get(stream_key).is_some_and(Vec::is_empty) {
            state.streams.remove(stream_key);
        } else {
            state.queue.push_back(Arc::clone(stream_key));
        }
    }

    /// A shared transaction has ended before its time, with its runtime, on which whoever waits has relied.
    pub(super) fn give_up(&self) {
        let mut state = self.state.lock();
        state.running -= 1;
        let mut given_up = Vec::new();
        while let Some(stream_key) = state.queue.pop_front() {
            given_up.push(state.streams.remove(&stream_key));
        }
        drop(state);
        drop(given_up); // wakes those who waited
    }
}

impl State {
    fn begins(&mut self, most: usize) -> bool {
        let begins = self.running < most && !self.queue.is_empty();
        self.running += usize::from(begins);
        begins
    }

    /// Takes appends of a stream, the first ones first. Without any, the stream is forgotten.
    fn take(&mut self, stream_key: &str, most: usize, bytes: &mut usize) -> Vec<Waiting> {
        let Some(waiting) = self.streams.get_mut(stream_key) else {
            return Vec::new();
        };
        // Nobody is there any more to whom it would matter.
        waiting.retain(|waiting| !waiting.answer.is_closed());
        if waiting.is_empty() {
            self.streams.remove(stream_key);
            return Vec::new();
        }
        let enough = |waiting: &Waiting| {
            *bytes += waiting.outgoing.payload.get().len();
            *bytes >= ENOUGH_BYTES
        };
        let events = waiting.iter().position(enough).map_or(waiting.len(), |last| last + 1);
        waiting.drain(..events.min(most)).collect()
    }
}
