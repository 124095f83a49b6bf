//! Who appends when: the appends of one process share transactions.
//!
//! A stream's lock lets one transaction in at a time, through the flush, and every transaction costs the server a commit. So a
//! process has few appends under way ([`AppendQueue::most`]). What comes meanwhile waits here, without a connection, and goes together
//! in the next transaction, whatever its stream: as many writers as there are share one flush. A stream whose lock somebody else
//! has is left out of it, and waits for the lock in a transaction of its own. Where few append, each does so at once, and shares
//! with nobody.

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
pub(super) struct QueuedAppend {
    pub(super) outgoing: Outgoing,
    pub(super) answer: oneshot::Sender<Result<Stamp, StoreError>>,
}

/// Appends to one stream, for one transaction.
pub(super) struct Share {
    pub(super) stream_key: Arc<str>,
    pub(super) waiting: Vec<QueuedAppend>,
}

pub(super) struct AppendQueue {
    state: Mutex<State>,
    most: usize,
}

#[derive(Default)]
struct State {
    /// The streams to which an append waits or is under way, and the appends that wait.
    streams: HashMap<Arc<str>, Vec<QueuedAppend>>,
    /// Those of them of which none is under way, first come, first served.
    queue: VecDeque<Arc<str>>,
    /// Transactions that are under way, or about to be, without waiting for a lock.
    running: usize,
    /// Whether the latest shared transaction has had more than one event.
    many: bool,
}

impl AppendQueue {
    /// For a pool of so many connections: one is left for readers, if there is more than one.
    pub(super) fn new(max_connections: u32) -> Self {
        let most = max_connections.saturating_sub(1).clamp(1, MOST_SHARED);
        Self {
            state: Mutex::default(),
            most: most as usize,
        }
    }

    /// Whether an append may begin at once, in a transaction of its own. Then its stream is under way, and the transaction counts
    /// until [`ends`](Self::ends). Where many append it may not: those who have just been answered will come, too.
    pub(super) fn begin_at_once(&self, stream_key: &str) -> Option<Arc<str>> {
        let mut state = self.state.lock();
        if state.many || state.running >= self.most || state.streams.contains_key(stream_key) {
            return None;
        }
        state.running += 1;
        let stream_key = Arc::<str>::from(stream_key);
        state.streams.insert(Arc::clone(&stream_key), Vec::new());
        Some(stream_key)
    }

    /// A transaction that has begun at once has ended, or waits for a lock. Whether a shared one is to begin in its place.
    #[must_use]
    pub(super) fn ends(&self) -> bool {
        let mut state = self.state.lock();
        state.running -= 1;
        state.begins(self.most)
    }

    /// Lines up. Whether one more shared transaction is to begin.
    #[must_use]
    pub(super) fn enqueue(&self, stream_key: &str, waiting: QueuedAppend) -> bool {
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
        } else {
            state.many = events > 1;
        }
        shares
    }

    /// What goes next of a stream that is under way by itself. Nothing, if nobody waits: then it is under way no more.
    pub(super) fn next_of(&self, stream_key: &str) -> Vec<QueuedAppend> {
        self.state.lock().take(stream_key, MOST_EVENTS, &mut 0)
    }

    /// The stream is under way no more; whoever waits for it is in the queue.
    pub(super) fn is_done(&self, stream_key: &Arc<str>) {
        let mut state = self.state.lock();
        if state.streams.get(stream_key).is_some_and(Vec::is_empty) {
            state.streams.remove(stream_key);
        } else {
            state.queue.push_back(Arc::clone(stream_key));
        }
    }

    /// Whether a shared transaction is to begin.
    #[must_use]
    pub(super) fn begins(&self) -> bool {
        self.state.lock().begins(self.most)
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
    fn take(&mut self, stream_key: &str, most: usize, bytes: &mut usize) -> Vec<QueuedAppend> {
        let Some(waiting) = self.streams.get_mut(stream_key) else {
            return Vec::new();
        };
        // Nobody is there any more to whom it would matter.
        waiting.retain(|waiting| !waiting.answer.is_closed());
        if waiting.is_empty() {
            self.streams.remove(stream_key);
            return Vec::new();
        }
        let enough = |waiting: &QueuedAppend| {
            *bytes += waiting.outgoing.payload.get().len();
            *bytes >= ENOUGH_BYTES
        };
        let events = waiting.iter().position(enough).map_or(waiting.len(), |last| last + 1);
        waiting.drain(..events.min(most)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What may happen next. Numbers choose among what there is.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Append(u8),
        EndAtOnce(usize),
        StopCounting(usize),
        GoAway(usize),
        Begin(usize),
        End(usize),
        LeaveAlone(usize),
        EndAlone(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..5_u8).prop_map(Step::Append),
            2 => any::<usize>().prop_map(Step::EndAtOnce),
            1 => any::<usize>().prop_map(Step::StopCounting),
            1 => any::<usize>().prop_map(Step::GoAway),
            2 => any::<usize>().prop_map(Step::Begin),
            2 => any::<usize>().prop_map(Step::End),
            1 => any::<usize>().prop_map(Step::LeaveAlone),
            1 => any::<usize>().prop_map(Step::EndAlone),
        ]
    }

    /// The transactions of one process, step by step.
    struct Process {
        append_queue: AppendQueue,
        /// SharedStore transactions, with what is under way in each.
        shared: Vec<Vec<Share>>,
        /// Those that have begun at once, and whether each counts.
        direct_append: Vec<(Arc<str>, bool)>,
        alone: Vec<Share>,
        waiting: Vec<oneshot::Receiver<Result<Stamp, StoreError>>>,
        lined_up: usize,
        answered: usize,
    }

    impl Process {
        fn streams_under_way(&self) -> Vec<&str> {
            let shares = self.shared.iter().flatten().chain(&self.alone);
            let direct_append = self.direct_append.iter().map(|(stream_key, _)| &**stream_key);
            shares.map(|share| &*share.stream_key).chain(direct_append).collect()
        }

        fn answer(&mut self, waiting: Vec<QueuedAppend>) {
            for one in waiting {
                let error = StoreError::LockTimeout; // anything will do
                self.answered += usize::from(one.answer.send(Err(error)).is_ok());
            }
        }

        /// A shared transaction begins, after its predecessor has ended.
        fn begin(&mut self, place: usize) {
            let shares = self.append_queue.next_shared();
            if shares.is_empty() {
                self.shared.remove(place);
            } else {
                self.shared[place] = shares;
            }
        }

        fn end(&mut self, place: usize) {
            for share in std::mem::take(&mut self.shared[place]) {
                self.append_queue.is_done(&share.stream_key);
                self.answer(share.waiting);
            }
        }

        fn end_alone(&mut self, place: usize) {
            let share = self.alone.swap_remove(place);
            self.answer(share.waiting);
            let waiting = self.append_queue.next_of(&share.stream_key);
            if !waiting.is_empty() {
                let stream_key = share.stream_key;
                self.alone.push(Share { stream_key, waiting });
            }
        }

        fn end_at_once(&mut self, place: usize) {
            let (stream_key, counts) = self.direct_append.swap_remove(place);
            self.append_queue.is_done(&stream_key);
            if if counts {
                self.append_queue.ends()
            } else {
                self.append_queue.begins()
            } {
                self.shared.push(Vec::new());
            }
        }

        fn take(&mut self, step: Step) {
            let idle: Vec<_> = (0..self.shared.len())
                .filter(|&place| self.shared[place].is_empty())
                .collect();
            let busy: Vec<_> = (0..self.shared.len())
                .filter(|&place| !self.shared[place].is_empty())
                .collect();
            match step {
                Step::Append(stream) => {
                    if let Some(stream_key) = self.append_queue.begin_at_once(&stream.to_string()) {
                        self.direct_append.push((stream_key, true));
                        return;
                    }
                    self.lined_up += 1;
                    let (answer, waiting) = oneshot::channel();
                    let payload = serde_json::value::to_raw_value(&stream).unwrap();
                    let outgoing = Outgoing { payload, expected: 0 };
                    if self
                        .append_queue
                        .enqueue(&stream.to_string(), QueuedAppend { outgoing, answer })
                    {
                        self.shared.push(Vec::new());
                    }
                    self.waiting.push(waiting);
                }
                Step::EndAtOnce(which) if !self.direct_append.is_empty() => {
                    self.end_at_once(which % self.direct_append.len())
                }
                Step::StopCounting(which) if !self.direct_append.is_empty() => {
                    let which = which % self.direct_append.len();
                    let (_, counts) = &mut self.direct_append[which];
                    if std::mem::take(counts) && self.append_queue.ends() {
                        self.shared.push(Vec::new());
                    }
                }
                Step::GoAway(which) if !self.waiting.is_empty() => {
                    let mut gone = self.waiting.swap_remove(which % self.waiting.len());
                    // Counted as an answer, if it has not had one.
                    self.answered += usize::from(
                        gone.try_recv()
                            .is_err_and(|error| error == oneshot::error::TryRecvError::Empty),
                    );
                }
                Step::Begin(which) if !idle.is_empty() => self.begin(idle[which % idle.len()]),
                Step::End(which) if !busy.is_empty() => self.end(busy[which % busy.len()]),
                Step::LeaveAlone(which) if !busy.is_empty() => {
                    let place = busy[which % busy.len()];
                    let share = self.shared[place].pop().unwrap();
                    self.alone.push(share);
                    if self.shared[place].is_empty() {
                        self.begin(place);
                    }
                }
                Step::EndAlone(which) if !self.alone.is_empty() => self.end_alone(which % self.alone.len()),
                _ => {}
            }
        }
    }

    proptest! {
        /// Whatever the order: everybody is answered once, a stream is under way once, and nobody is left waiting.
        #[test]
        fn everybody_has_a_turn(connections in 1..7_u32, steps in prop::collection::vec(step(), 0..200)) {
            let append_queue = AppendQueue::new(connections);
            let most = append_queue.most;
            let mut process = Process {
                append_queue,
                shared: Vec::new(),
                direct_append: Vec::new(),
                alone: Vec::new(),
                waiting: Vec::new(),
                lined_up: 0,
                answered: 0,
            };
            for step in steps {
                process.take(step);
                let direct_append = process.direct_append.iter().filter(|(_, counts)| *counts).count();
                prop_assert!(process.shared.len() + direct_append <= most);
                let mut streams = process.streams_under_way();
                streams.sort_unstable();
                prop_assert!(streams.windows(2).all(|pair| pair[0] != pair[1]), "{streams:?}");
            }
            while !process.direct_append.is_empty() {
                process.end_at_once(0);
            }
            while !process.alone.is_empty() {
                process.end_alone(0);
            }
            while !process.shared.is_empty() {
                process.end(0);
                process.begin(0);
            }
            prop_assert_eq!(process.answered, process.lined_up);
            let state = process.append_queue.state.lock();
            prop_assert!(state.streams.is_empty() && state.queue.is_empty() && state.running == 0);
        }
    }

    #[test]
    fn whose_runtime_has_ended_is_told() {
        let append_queue = AppendQueue::new(4);
        let enqueue = |stream| {
            let (answer, waiting) = oneshot::channel();
            let payload = serde_json::value::to_raw_value("x").unwrap();
            let outgoing = Outgoing { payload, expected: 0 };
            (append_queue.enqueue(stream, QueuedAppend { outgoing, answer }), waiting)
        };
        let ((begins, mut first), (_, mut second)) = (enqueue("one"), enqueue("two"));
        assert!(begins);
        append_queue.give_up();
        assert!(first.try_recv().is_err() && second.try_recv().is_err());
        assert!(enqueue("one").0, "another may begin");
    }
}
