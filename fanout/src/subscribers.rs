//! The subscribers: three receive loops, and the threads and tasks that run them.
//!
//! Copy the shape of the loops: an event, a lag and the end of the channel are three different results, and a lag is not the
//! end. `while let Ok(event) = events.recv().await` would stop at the first lag.

use std::io;
use std::time::{Duration, Instant};

use doorbell::ring::{Lagged, RecvError, Subscriber, SubscriberStats};
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::Event;
use crate::latency::Latency;
use crate::options::Options;

/// The kinds of subscribers.
pub(crate) const TASK: &str = "task";
pub(crate) const THREAD: &str = "thread";
pub(crate) const SLOW: &str = "slow";

/// Events that a batch holds at most.
const BATCH: usize = 64;

/// A tokio task that receives by reference, in batches: the fastest way, with no clone and one wait per batch.
async fn receive_in_batches(mut events: Subscriber<Event>, mut outcome: Outcome) -> Outcome {
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
fn iterate(mut events: Subscriber<Event>, mut outcome: Outcome) -> Outcome {
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
/// It does not slow down any other subscriber: it gets the exact number of missed events, and continues from there.
async fn receive_slowly(
    mut events: Subscriber<Event>,
    delay: Duration,
    mut interrupt: watch::Receiver<bool>,
    mut outcome: Outcome,
) -> Outcome {
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

/// What one subscriber received, counted apart from the ring's own statistics so that each checks the other. Serialized, it
/// is the subscriber's part of the JSON report.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) kind: &'static str,
    /// Counts the subscribers of a kind from 1.
    pub(crate) number: usize,
    pub(crate) received: u64,
    pub(crate) skipped: u64,
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
    fn new(kind: &'static str, number: usize) -> Self {
        Self {
            kind,
            number,
            received: 0,
            skipped: 0,
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
        self.adds_up &=
            (ring.received, ring.skipped, ring.lag_events) == (self.received, self.skipped, self.lag_events);
        self
    }

    /// Compares the counts with the number of published events.
    pub(crate) fn check(&mut self, published: u64) {
        self.adds_up &= self.received + self.skipped == published;
    }

    /// Both together; keeps the kind and the number.
    pub(crate) fn plus(mut self, other: &Self) -> Self {
        self.received += other.received;
        self.skipped += other.skipped;
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
    running: JoinSet<Outcome>,
}

impl Subscribers {
    /// Clones `first` for each subscriber, so that all start at the same event.
    pub(crate) fn start(
        options: &Options,
        first: &Subscriber<Event>,
        interrupt: &watch::Receiver<bool>,
    ) -> io::Result<Self> {
        let threads = options.threads.max(1);
        let runtime = Builder::new_multi_thread()
            .enable_time()
            .max_blocking_threads(threads)
            .build()?;
        let handle = runtime.handle();
        let mut running = JoinSet::new();
        for number in 1..=options.tasks {
            running.spawn_on(receive_in_batches(first.clone(), Outcome::new(TASK, number)), handle);
        }
        for number in 1..=options.threads {
            let events = first.clone();
            running.spawn_blocking_on(move || iterate(events, Outcome::new(THREAD, number)), handle);
        }
        for number in 1..=options.slow {
            let delay = Duration::from_millis(options.delay_ms);
            let outcome = Outcome::new(SLOW, number);
            running.spawn_on(receive_slowly(first.clone(), delay, interrupt.clone(), outcome), handle);
        }
        Ok(Self { runtime, running })
    }

    /// Waits until all have drained the closed channel. Sorts them by kind and number.
    pub(crate) fn join(self) -> Vec<Outcome> {
        let mut outcomes = self.runtime.block_on(self.running.join_all());
        let order = [TASK, THREAD, SLOW];
        outcomes.sort_by_key(|outcome| (order.iter().position(|kind| *kind == outcome.kind), outcome.number));
        outcomes
    }
}
