//! Decides when an append runs, and with which other appends.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::store::StoreError;
use crate::store::postgres::encode::EncodedEvent;
use crate::store::record_metadata::RecordMetadata;

/// The maximum number of concurrent transactions, not counting those that wait for a stream's lock. One is enough for throughput;
/// the others serve appends that arrive during a flush.
const MAX_TRANSACTIONS: u32 = 4;

/// The maximum number of events in one transaction.
const MAX_GROUP_EVENTS: usize = 256;

/// A transaction takes no further event once its JSON has this many bytes.
const GROUP_BYTES: usize = 1 << 20;

/// An append that waits for a transaction.
pub(super) struct QueuedAppend {
    pub(super) event: EncodedEvent,
    pub(super) reply: oneshot::Sender<Result<RecordMetadata, StoreError>>,
}

/// The appends to one stream within one transaction.
pub(super) struct StreamBatch {
    pub(super) stream_key: Arc<str>,
    pub(super) appends: Vec<QueuedAppend>,
}

/// The queued appends of a process, and the permits of its append transactions.
///
/// A stream is *in flight* while a task appends to it. No other task takes queued appends of that stream, so tasks never wait for
/// each other's stream locks.
pub(in crate::store::postgres) struct AppendQueue {
    state: Mutex<State>,
    max_permits: usize,
}

#[derive(Default)]
struct State {
    /// The queued appends of every stream that is ready or in flight.
    streams: HashMap<Arc<str>, Vec<QueuedAppend>>,
    /// Streams with queued appends that are not in flight, in order of arrival.
    ready: VecDeque<Arc<str>>,
    /// Permits that are held. A transaction holds one from before it begins, unless it waits for a stream's lock.
    permits_held: usize,
    /// Whether the latest group had more than one event.
    is_busy: bool,
}

impl AppendQueue {
    /// Creates the queue for a pool with `max_connections`. Leaves one connection for reads, if there is more than one.
    pub(in crate::store::postgres) fn new(max_connections: u32) -> Self {
        let max_permits = max_connections.saturating_sub(1).clamp(1, MAX_TRANSACTIONS);
        Self {
            state: Mutex::default(),
            max_permits: max_permits as usize,
        }
    }

    /// Claims a permit and puts the stream in flight, if the append may run now, in its own transaction. Under load it may not:
    /// callers that were just answered are likely to append again, and should share a transaction.
    pub(super) fn try_start_direct(&self, stream_key: &str) -> Option<Arc<str>> {
        let mut state = self.state.lock();
        if state.is_busy || state.permits_held >= self.max_permits || state.streams.contains_key(stream_key) {
            return None;
        }
        state.permits_held += 1;
        let stream_key = Arc::<str>::from(stream_key);
        state.streams.insert(Arc::clone(&stream_key), Vec::new());
        Some(stream_key)
    }

    /// Releases the permit of a direct append, which has ended or waits for a lock. Returns whether the caller must start a group
    /// commit, for which the permit is then claimed.
    #[must_use]
    pub(super) fn release_permit(&self) -> bool {
        let mut state = self.state.lock();
        state.permits_held -= 1;
        state.try_claim_permit(self.max_permits)
    }

    /// Queues an append. Returns whether the caller must start a group commit, for which the permit is then claimed.
    #[must_use]
    pub(super) fn enqueue(&self, stream_key: &str, append: QueuedAppend) -> bool {
        let mut state = self.state.lock();
        match state.streams.get_mut(stream_key) {
            Some(appends) => appends.push(append),
            None => {
                let stream_key = Arc::<str>::from(stream_key);
                state.ready.push_back(Arc::clone(&stream_key));
                state.streams.insert(stream_key, vec![append]);
            }
        }
        state.try_claim_permit(self.max_permits)
    }

    /// Takes the appends of the next group and puts their streams in flight. If the queue is empty, returns nothing and releases
    /// the permit of the group commit.
    pub(super) fn next_group(&self) -> Vec<StreamBatch> {
        let mut state = self.state.lock();
        let mut batches = Vec::new();
        let (mut events, mut bytes) = (0, 0);
        while events < MAX_GROUP_EVENTS && bytes < GROUP_BYTES {
            let Some(stream_key) = state.ready.pop_front() else {
                break;
            };
            let appends = state.take(&stream_key, MAX_GROUP_EVENTS - events, &mut bytes);
            events += appends.len();
            if !appends.is_empty() {
                batches.push(StreamBatch { stream_key, appends });
            }
        }
        if batches.is_empty() {
            state.permits_held -= 1;
        } else {
            state.is_busy = events > 1;
        }
        batches
    }

    /// Takes the next appends to a stream that is in flight on its own. If none is queued, returns nothing and releases the
    /// stream.
    pub(super) fn next_batch(&self, stream_key: &str) -> Vec<QueuedAppend> {
        self.state.lock().take(stream_key, MAX_GROUP_EVENTS, &mut 0)
    }

    /// Ends a stream's time in flight. It becomes ready if appends to it are queued.
    pub(super) fn release_stream(&self, stream_key: &Arc<str>) {
        let mut state = self.state.lock();
        if state.streams.get(stream_key).is_some_and(Vec::is_empty) {
            state.streams.remove(stream_key);
        } else {
            state.ready.push_back(Arc::clone(stream_key));
        }
    }

    /// Returns whether the caller must start a group commit, for which the permit is then claimed.
    #[must_use]
    pub(super) fn try_start_group_commit(&self) -> bool {
        self.state.lock().try_claim_permit(self.max_permits)
    }

    /// Releases the permit of a group commit whose runtime has shut down, and fails all appends that are ready.
    pub(super) fn abort_group_commit(&self) {
        let mut state = self.state.lock();
        state.permits_held -= 1;
        let mut aborted = Vec::new();
        while let Some(stream_key) = state.ready.pop_front() {
            aborted.push(state.streams.remove(&stream_key));
        }
        drop(state);
        drop(aborted); // wakes the callers
    }
}

impl State {
    fn try_claim_permit(&mut self, max_permits: usize) -> bool {
        let claimed = self.permits_held < max_permits && !self.ready.is_empty();
        self.permits_held += usize::from(claimed);
        claimed
    }

    /// Takes the oldest appends of a stream, at most `max_events`, and adds their size to `bytes`. Removes the stream if it has
    /// none.
    fn take(&mut self, stream_key: &str, max_events: usize, bytes: &mut usize) -> Vec<QueuedAppend> {
        let Some(appends) = self.streams.get_mut(stream_key) else {
            return Vec::new();
        };
        // Their callers have gone.
        appends.retain(|append| !append.reply.is_closed());
        if appends.is_empty() {
            self.streams.remove(stream_key);
            return Vec::new();
        }
        let fills_group = |append: &QueuedAppend| {
            *bytes += append.event.payload.get().len();
            *bytes >= GROUP_BYTES
        };
        let events = appends
            .iter()
            .position(fills_group)
            .map_or(appends.len(), |last| last + 1);
        appends.drain(..events.min(max_events)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What happens next. Numbers select among the candidates.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Append(u8),
        EndDirect(usize),
        ReleasePermit(usize),
        CancelCaller(usize),
        BeginGroup(usize),
        EndGroup(usize),
        MoveToContended(usize),
        EndContended(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..5_u8).prop_map(Step::Append),
            2 => any::<usize>().prop_map(Step::EndDirect),
            1 => any::<usize>().prop_map(Step::ReleasePermit),
            1 => any::<usize>().prop_map(Step::CancelCaller),
            2 => any::<usize>().prop_map(Step::BeginGroup),
            2 => any::<usize>().prop_map(Step::EndGroup),
            1 => any::<usize>().prop_map(Step::MoveToContended),
            1 => any::<usize>().prop_map(Step::EndContended),
        ]
    }

    fn queued(payload: &str) -> (QueuedAppend, oneshot::Receiver<Result<RecordMetadata, StoreError>>) {
        let (reply, replied) = oneshot::channel();
        let payload = serde_json::value::to_raw_value(payload).unwrap();
        let event = EncodedEvent {
            payload,
            expected_seq: 0,
        };
        (QueuedAppend { event, reply }, replied)
    }

    /// The append transactions of one process.
    struct Process {
        append_queue: AppendQueue,
        /// What each group commit has in flight.
        groups: Vec<Vec<StreamBatch>>,
        /// The streams of direct appends, and whether each append holds a permit.
        direct: Vec<(Arc<str>, bool)>,
        contended: Vec<StreamBatch>,
        callers: Vec<oneshot::Receiver<Result<RecordMetadata, StoreError>>>,
        queued: usize,
        replied: usize,
    }

    impl Process {
        fn streams_in_flight(&self) -> Vec<&str> {
            let batches = self.groups.iter().flatten().chain(&self.contended);
            let direct = self.direct.iter().map(|(stream_key, _)| &**stream_key);
            batches.map(|batch| &*batch.stream_key).chain(direct).collect()
        }

        fn reply(&mut self, appends: Vec<QueuedAppend>) {
            for append in appends {
                let any_error = StoreError::LockTimeout;
                self.replied += usize::from(append.reply.send(Err(any_error)).is_ok());
            }
        }

        /// Begins a group after its predecessor has ended.
        fn begin_group(&mut self, index: usize) {
            let batches = self.append_queue.next_group();
            if batches.is_empty() {
                self.groups.remove(index);
            } else {
                self.groups[index] = batches;
            }
        }

        fn end_group(&mut self, index: usize) {
            for batch in std::mem::take(&mut self.groups[index]) {
                self.append_queue.release_stream(&batch.stream_key);
                self.reply(batch.appends);
            }
        }

        fn end_contended(&mut self, index: usize) {
            let batch = self.contended.swap_remove(index);
            self.reply(batch.appends);
            let appends = self.append_queue.next_batch(&batch.stream_key);
            if !appends.is_empty() {
                let stream_key = batch.stream_key;
                self.contended.push(StreamBatch { stream_key, appends });
            }
        }

        fn end_direct(&mut self, index: usize) {
            let (stream_key, holds_permit) = self.direct.swap_remove(index);
            self.append_queue.release_stream(&stream_key);
            let starts_group_commit = if holds_permit {
                self.append_queue.release_permit()
            } else {
                self.append_queue.try_start_group_commit()
            };
            if starts_group_commit {
                self.groups.push(Vec::new());
            }
        }

        fn append(&mut self, stream: u8) {
            let stream_key = stream.to_string();
            if let Some(stream_key) = self.append_queue.try_start_direct(&stream_key) {
                self.direct.push((stream_key, true));
                return;
            }
            self.queued += 1;
            let (append, caller) = queued(&stream_key);
            if self.append_queue.enqueue(&stream_key, append) {
                self.groups.push(Vec::new());
            }
            self.callers.push(caller);
        }

        fn take(&mut self, step: Step) {
            let (idle, busy): (Vec<_>, Vec<_>) =
                (0..self.groups.len()).partition(|&index| self.groups[index].is_empty());
            match step {
                Step::Append(stream) => self.append(stream),
                Step::EndDirect(n) if !self.direct.is_empty() => self.end_direct(n % self.direct.len()),
                Step::ReleasePermit(n) if !self.direct.is_empty() => {
                    let n = n % self.direct.len();
                    let (_, holds_permit) = &mut self.direct[n];
                    if std::mem::take(holds_permit) && self.append_queue.release_permit() {
                        self.groups.push(Vec::new());
                    }
                }
                Step::CancelCaller(n) if !self.callers.is_empty() => {
                    let mut cancelled = self.callers.swap_remove(n % self.callers.len());
                    // Counts as a reply, unless it has had one.
                    self.replied += usize::from(
                        cancelled
                            .try_recv()
                            .is_err_and(|error| error == oneshot::error::TryRecvError::Empty),
                    );
                }
                Step::BeginGroup(n) if !idle.is_empty() => self.begin_group(idle[n % idle.len()]),
                Step::EndGroup(n) if !busy.is_empty() => self.end_group(busy[n % busy.len()]),
                Step::MoveToContended(n) if !busy.is_empty() => {
                    let index = busy[n % busy.len()];
                    let batch = self.groups[index].pop().unwrap();
                    self.contended.push(batch);
                    if self.groups[index].is_empty() {
                        self.begin_group(index);
                    }
                }
                Step::EndContended(n) if !self.contended.is_empty() => self.end_contended(n % self.contended.len()),
                _ => {}
            }
        }
    }

    proptest! {
        #[test]
        fn every_append_gets_one_reply_and_no_stream_is_in_flight_twice(
            connections in 1..7_u32,
            steps in prop::collection::vec(step(), 0..200),
        ) {
            let append_queue = AppendQueue::new(connections);
            let max_permits = append_queue.max_permits;
            let mut process = Process {
                append_queue,
                groups: Vec::new(),
                direct: Vec::new(),
                contended: Vec::new(),
                callers: Vec::new(),
                queued: 0,
                replied: 0,
            };
            for step in steps {
                process.take(step);
                let direct = process.direct.iter().filter(|(_, holds_permit)| *holds_permit).count();
                prop_assert!(process.groups.len() + direct <= max_permits);
                let mut streams = process.streams_in_flight();
                streams.sort_unstable();
                prop_assert!(streams.windows(2).all(|pair| pair[0] != pair[1]), "{streams:?}");
            }
            while !process.direct.is_empty() {
                process.end_direct(0);
            }
            while !process.contended.is_empty() {
                process.end_contended(0);
            }
            while !process.groups.is_empty() {
                process.end_group(0);
                process.begin_group(0);
            }
            prop_assert_eq!(process.replied, process.queued);
            let state = process.append_queue.state.lock();
            prop_assert!(state.streams.is_empty() && state.ready.is_empty() && state.permits_held == 0);
        }
    }

    #[test]
    fn aborting_a_group_commit_fails_the_queued_appends() {
        let append_queue = AppendQueue::new(4);
        let enqueue = |stream_key| {
            let (append, caller) = queued("x");
            (append_queue.enqueue(stream_key, append), caller)
        };
        let ((starts, mut first), (_, mut second)) = (enqueue("one"), enqueue("two"));
        assert!(starts);
        append_queue.abort_group_commit();
        assert!(first.try_recv().is_err() && second.try_recv().is_err());
        assert!(enqueue("one").0, "the permit is free again");
    }
}
