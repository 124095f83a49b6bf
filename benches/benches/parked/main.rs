//! Waking: all subscribers are tokio tasks that wait on two workers. Measures the cost of a publish, and the time until the last
//! task has the message.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, SamplingMode};
use doorbell::ring::Wake;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use doorbell_perf::bench::run_bench;
use doorbell_perf::channels::settings::{message, sum_of_numbers};
use doorbell_perf::channels::tasks::{
    AsyncBroadcast, Channel, Doorbell, DropIn, Publisher, Subscriber, Taken, Tokio, two_workers,
};

fn main() {
    run_bench("parked", 15, Duration::from_millis(1_000), bench);
}

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parked");
    group.sampling_mode(SamplingMode::Flat);
    for tasks in [1, 64, 1000, 4096] {
        for measure in [Measure::Publish, Measure::Last] {
            parked(&mut group, "doorbell", tasks, measure, || Doorbell);
            parked(&mut group, "drop_in", tasks, measure, || DropIn(Wake::All));
            parked(&mut group, "drop_in_cascade", tasks, measure, || DropIn(Wake::Cascade));
            parked(&mut group, "tokio", tasks, measure, || Tokio);
            parked(&mut group, "async_broadcast", tasks, measure, || AsyncBroadcast);
        }
    }
    group.finish();
}

/// What is timed, from just before the publish.
#[derive(Clone, Copy)]
enum Measure {
    /// Until the publish returns.
    Publish,
    /// Until the last task has the message.
    Last,
}

impl Measure {
    fn name(self) -> &'static str {
        match self {
            Measure::Publish => "publish",
            Measure::Last => "last_has_it",
        }
    }
}

fn parked<C: Channel>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    candidate: &str,
    tasks: usize,
    measure: Measure,
    channel: impl Fn() -> C,
) {
    let mut harness = None;
    let work = format!("{}_{tasks}_tasks", measure.name());
    group.bench_function(BenchmarkId::new(work, candidate), |bencher| {
        let harness = harness.get_or_insert_with(|| Harness::start(channel(), tasks));
        bencher.iter_custom(|messages| harness.run(messages, measure));
    });
    if let Some(harness) = harness {
        harness.stop();
    }
}

/// Subscriber tasks that wait for single messages; starting and stopping them is not timed.
struct Harness<P> {
    runtime: Runtime,
    publisher: P,
    subscribers: Vec<JoinHandle<Taken>>,
    progress: Arc<Progress>,
    published: u64,
}

/// The progress of the subscribers.
struct Progress {
    subscribers: u64,
    /// Messages received by all subscribers.
    received: AtomicU64,
    /// When the last of them received the message.
    last_received: Mutex<Instant>,
    /// How often subscribers have begun to wait.
    parked: AtomicU64,
    /// The thread that waits until all of them wait.
    publisher: Thread,
}

impl Progress {
    fn begins_to_wait(&self) {
        let parked = self.parked.fetch_add(1, Ordering::AcqRel) + 1;
        if parked.is_multiple_of(self.subscribers) {
            self.publisher.unpark();
        }
    }

    /// Returns when every subscriber has begun to wait this many times.
    fn wait_until_parked(&self, times: u64) {
        while self.parked.load(Ordering::Acquire) < times * self.subscribers {
            thread::park();
        }
    }

    fn has_received(&self) {
        let received = self.received.fetch_add(1, Ordering::AcqRel) + 1;
        if received.is_multiple_of(self.subscribers) {
            *self.last_received.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
    }

    fn time_to_last(&self, started: Instant) -> Duration {
        self.last_received
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .duration_since(started)
    }
}

/// The time for the workers to go to sleep before a publish, so that the runtime is always idle.
const SETTLE: Duration = Duration::from_micros(50);

impl<P: Publisher> Harness<P> {
    fn start<C: Channel<Publisher = P>>(channel: C, tasks: usize) -> Self {
        let runtime = two_workers();
        let (publisher, subscribers) = channel.open(tasks);
        let progress = Arc::new(Progress {
            subscribers: tasks as u64,
            received: AtomicU64::new(0),
            last_received: Mutex::new(Instant::now()),
            parked: AtomicU64::new(0),
            publisher: thread::current(),
        });
        let subscribers = subscribers
            .into_iter()
            .map(|subscriber| runtime.spawn(subscribe(subscriber, progress.clone())))
            .collect();
        progress.wait_until_parked(1);
        Self {
            runtime,
            publisher,
            subscribers,
            progress,
            published: 0,
        }
    }

    /// The time of `messages` messages, each published when every task waits again. This thread publishes, because from inside
    /// the runtime a publish to one task costs next to nothing or a system call, by chance.
    fn run(&mut self, messages: u64, measure: Measure) -> Duration {
        let mut elapsed = Duration::ZERO;
        for _ in 0..messages {
            settle();
            let started = Instant::now();
            self.publisher.publish(message(self.published));
            let published = started.elapsed();
            self.published += 1;
            self.progress.wait_until_parked(self.published + 1);
            let received = self.progress.received.load(Ordering::Acquire);
            assert_eq!(
                received,
                self.published * self.progress.subscribers,
                "messages received"
            );
            elapsed += match measure {
                Measure::Publish => published,
                Measure::Last => self.progress.time_to_last(started),
            };
        }
        elapsed
    }

    /// Ends the tasks and checks that each received every message once.
    fn stop(self) {
        drop(self.publisher);
        for subscriber in self.subscribers {
            let taken = self.runtime.block_on(subscriber).expect("a subscriber's task");
            assert_eq!(taken.count, self.published, "messages that a subscriber got");
            assert_eq!(taken.sum, sum_of_numbers(0, self.published), "sum of their numbers");
        }
    }
}

fn settle() {
    let started = Instant::now();
    while started.elapsed() < SETTLE {
        std::hint::spin_loop();
    }
}

async fn subscribe(mut subscriber: impl Subscriber, progress: Arc<Progress>) -> Taken {
    let mut all = Taken::default();
    while let Some(taken) = take(&mut subscriber, &progress).await {
        progress.has_received();
        all.add(taken);
    }
    all
}

/// Takes the next message, and reports once that the task has begun to wait for it, however often it is polled.
async fn take(subscriber: &mut impl Subscriber, progress: &Progress) -> Option<Taken> {
    let mut next = pin!(subscriber.take());
    let mut waits = false;
    std::future::poll_fn(|context| {
        let polled = next.as_mut().poll(context);
        if polled.is_pending() && !waits {
            waits = true;
            progress.begins_to_wait();
        }
        polled
    })
    .await
}
