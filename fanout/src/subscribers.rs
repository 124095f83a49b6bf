//! The subscribers: three receive loops, and the thread or tasks that run them.
//!
//! Copy the shape of the loops: an event, a lag and the end of the channel are three different results, and a lag is not the
//! end. `while let Ok(event) = events.recv().await` would stop at the first lag.

use std::io;
use std::panic::resume_unwind;
use std::thread;
use std::time::{Duration, Instant};

use doorbell::ring::{Lagged, RecvError, Subscriber, SubscriberStats};
use serde::Serialize;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task;
use tokio::time::timeout;

use crate::Event;
use crate::latency::Latency;
use crate::options::Options;

/// Events that a batch holds at most.
const BATCH: usize = 64;

/// A tokio task that receives by reference, in batches: the fastest way, with no clone and one wait per batch.
async fn receive_in_batches(mut events: Subscriber<Event>) -> Outcome {
    let mut outcome = Outcome::new(Kind::Task);
    loop {
        match events.recv_batch(BATCH).await {
            Ok(batch) => {
                let now = Instant::now();
                for event in batch {
                    outcome.received(event, now);
                }
            }
            Err(RecvError::Lagged(lagged)) => outcome.lagged(lagged),
            Err(RecvError::Closed) => break,
        }
    }
    outcome.finish(events.stats())
}

/// A plain thread that iterates. The iterator waits for the next event and ends when the channel is closed and drained.
fn iterate(mut events: Subscriber<Event>) -> Outcome {
    let mut outcome = Outcome::new(Kind::Thread);
    for event in events.iter() {
        match event {
            Ok(event) => outcome.received(&event, Instant::now()),
            Err(lagged) => outcome.lagged(lagged),
        }
    }
    outcome.finish(events.stats())
}

/// A tokio task that receives one event at a time and sleeps too long after each.
///
/// It slows down nobody else: it learns exactly what it missed, and continues from there.
async fn receive_slowly(
    mut events: Subscriber<Event>,
    delay: Duration,
    mut interrupt: watch::Receiver<bool>,
) -> Outcome {
    let mut outcome = Outcome::new(Kind::Slow);
    loop {
        match events.recv().await {
            Ok(event) => {
                outcome.received(&event, Instant::now());
                // What the ring retains when the input has ended is drained without delay.
                if !events.is_closed() {
                    let _ = timeout(delay, interrupt.wait_for(|raised| *raised)).await;
                }
            }
            Err(RecvError::Lagged(lagged)) => outcome.lagged(lagged),
            Err(RecvError::Closed) => break,
        }
    }
    outcome.finish(events.stats())
}

/// How a subscriber receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Task,
    Thread,
    Slow,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Thread => "thread",
            Self::Slow => "slow",
        }
    }
}

/// What one subscriber received, counted apart from the ring's own statistics so that each checks the other. Serialized, it
/// is the subscriber's part of the JSON report.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) kind: Kind,
    /// Counts the subscribers of a kind from 1.
    pub(crate) number: usize,
    pub(crate) received: u64,
    pub(crate) skipped: u64,
    /// Known to the ring alone: subscribers pass over sequence numbers whose publication failed.
    pub(crate) void: u64,
    pub(crate) lag_events: u64,
    #[serde(rename = "latency_ns")]
    pub(crate) latency: Latency,
    /// Whether every event is accounted for, in order, and the ring's statistics agree.
    pub(crate) adds_up: bool,
    #[serde(skip)]
    pub(crate) bytes: u64,
    /// When the subscriber had drained the closed channel.
    #[serde(skip)]
    pub(crate) ended: Instant,
    /// The number of the next event.
    #[serde(skip)]
    expected: u64,
}

impl Outcome {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            number: 0,
            received: 0,
            skipped: 0,
            void: 0,
            lag_events: 0,
            latency: Latency::default(),
            adds_up: true,
            bytes: 0,
            ended: Instant::now(),
            expected: 1,
        }
    }

    fn received(&mut self, event: &Event, now: Instant) {
        self.received += 1;
        self.bytes += event.line.len() as u64;
        self.adds_up &= event.number == self.expected;
        self.expected = event.number + 1;
        self.latency.record(now.saturating_duration_since(event.due));
    }

    /// The ring reports exactly which events were missed; the next receive continues at `resume_at`.
    fn lagged(&mut self, lagged: Lagged) {
        self.skipped += lagged.skipped;
        self.lag_events += 1;
        self.adds_up &= lagged.first_missed == self.expected;
        self.expected = lagged.resume_at;
    }

    fn finish(mut self, ring: SubscriberStats) -> Self {
        self.ended = Instant::now();
        self.void = ring.void;
        self.adds_up &=
            (ring.received, ring.skipped, ring.lag_events) == (self.received, self.skipped, self.lag_events);
        self
    }

    /// Compares the counts with the number of published events.
    pub(crate) fn check(&mut self, published: u64) {
        self.adds_up &= self.received + self.skipped + self.void == published;
    }

    /// Both together; keeps the kind and the number.
    pub(crate) fn plus(mut self, other: &Self) -> Self {
        self.received += other.received;
        self.skipped += other.skipped;
        self.void += other.void;
        self.lag_events += other.lag_events;
        self.latency.0 += &other.latency.0;
        self.adds_up &= other.adds_up;
        self.bytes += other.bytes;
        self.ended = self.ended.max(other.ended);
        self
    }
}

/// All subscribers, running.
#[derive(Debug)]
pub(crate) struct Subscribers {
    runtime: Runtime,
    tasks: Vec<task::JoinHandle<Outcome>>,
    threads: Vec<thread::JoinHandle<Outcome>>,
}

impl Subscribers {
    /// Clones `first` for each subscriber, so that all start at the same event.
    pub(crate) fn start(
        options: &Options,
        first: &Subscriber<Event>,
        interrupt: &watch::Receiver<bool>,
    ) -> io::Result<Self> {
        let runtime = Runtime::new()?;
        let delay = Duration::from_millis(options.delay_ms);
        let prompt = (0..options.tasks).map(|_| runtime.spawn(receive_in_batches(first.clone())));
        let slow = (0..options.slow).map(|_| runtime.spawn(receive_slowly(first.clone(), delay, interrupt.clone())));
        let tasks = prompt.chain(slow).collect();
        let threads = (0..options.threads)
            .map(|_| {
                let events = first.clone();
                thread::Builder::new().spawn(move || iterate(events))
            })
            .collect::<io::Result<_>>()?;
        Ok(Self {
            runtime,
            tasks,
            threads,
        })
    }

    /// Waits until all have drained the closed channel. Tasks come first, then threads, then the slow ones.
    pub(crate) fn join(self) -> Vec<Outcome> {
        let join_task = |handle| {
            let outcome: Result<_, task::JoinError> = self.runtime.block_on(handle);
            outcome.unwrap_or_else(|error| resume_unwind(error.into_panic()))
        };
        let join_thread = |handle: thread::JoinHandle<_>| handle.join().unwrap_or_else(|panic| resume_unwind(panic));
        let mut outcomes: Vec<Outcome> = self.threads.into_iter().map(join_thread).collect();
        outcomes.extend(self.tasks.into_iter().map(join_task));
        outcomes.sort_by_key(|outcome| outcome.kind);
        for group in outcomes.chunk_by_mut(|a, b| a.kind == b.kind) {
            for (outcome, number) in group.iter_mut().zip(1..) {
                outcome.number = number;
            }
        }
        outcomes
    }
}
