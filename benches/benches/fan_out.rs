//! Deliveries to many tokio tasks on two workers, with a publisher paced so that no subscriber lags: it sends a burst of half the
//! capacity and waits until every task has it all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, SamplingMode, Throughput};
use doorbell::ring::Wake;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use doorbell_perf::bench::run_bench;
use doorbell_perf::channels::settings::{BURST, message, sum_of_numbers};
use doorbell_perf::channels::tasks::{
    AsyncBroadcast, Channel, Doorbell, DoorbellBatch, Drained, DropIn, Publisher, Subscriber, Taken, Tokio, two_workers,
};

fn main() {
    run_bench("fan_out", 10, Duration::from_millis(1_500), bench);
}

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fan_out");
    group.sampling_mode(SamplingMode::Flat);
    for tasks in [1, 8, 64, 512, 4096] {
        group.throughput(Throughput::Elements(BURST * tasks as u64));
        fan_out(&mut group, "doorbell", tasks, || Doorbell);
        fan_out(&mut group, "doorbell_drained", tasks, || Drained(Doorbell));
        fan_out(&mut group, "doorbell_batch", tasks, || DoorbellBatch);
        fan_out(&mut group, "drop_in", tasks, || DropIn(Wake::All));
        fan_out(&mut group, "drop_in_drained", tasks, || Drained(DropIn(Wake::All)));
        fan_out(&mut group, "drop_in_cascade", tasks, || DropIn(Wake::Cascade));
        fan_out(&mut group, "tokio", tasks, || Tokio);
        fan_out(&mut group, "tokio_drained", tasks, || Drained(Tokio));
        fan_out(&mut group, "async_broadcast", tasks, || AsyncBroadcast);
        fan_out(&mut group, "async_broadcast_drained", tasks, || Drained(AsyncBroadcast));
    }
    group.finish();
}

fn fan_out<C: Channel>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    candidate: &str,
    tasks: usize,
    channel: impl Fn() -> C,
) {
    let mut harness = None;
    group.bench_function(BenchmarkId::new(format!("{tasks}_tasks"), candidate), |bencher| {
        let harness = harness.get_or_insert_with(|| Harness::start(channel(), tasks));
        bencher.iter_custom(|bursts| harness.run(bursts));
    });
    if let Some(harness) = harness {
        harness.stop();
    }
}

/// Subscriber tasks that wait for bursts; starting and stopping them is not timed.
struct Harness<P> {
    runtime: Runtime,
    publisher: Option<P>,
    subscribers: Vec<JoinHandle<Taken>>,
    progress: Arc<Progress>,
    bursts: u64,
}

/// The progress of the subscribers.
struct Progress {
    /// Bursts received by all subscribers.
    finished: AtomicU64,
    subscribers: u64,
    burst_is_over: Notify,
}

impl<P: Publisher> Harness<P> {
    fn start<C: Channel<Publisher = P>>(channel: C, tasks: usize) -> Self {
        let runtime = two_workers();
        let (publisher, subscribers) = channel.open(tasks);
        let progress = Arc::new(Progress {
            finished: AtomicU64::new(0),
            subscribers: tasks as u64,
            burst_is_over: Notify::new(),
        });
        let subscribers = subscribers
            .into_iter()
            .map(|subscriber| runtime.spawn(subscribe(subscriber, progress.clone())))
            .collect();
        Self {
            runtime,
            publisher: Some(publisher),
            subscribers,
            progress,
            bursts: 0,
        }
    }

    /// The time of `bursts` bursts, from the first publish until the last task has the last message. The publisher is a
    /// task too, so two threads do all the work.
    fn run(&mut self, bursts: u64) -> Duration {
        let mut publisher = self.publisher.take().expect("the publisher comes back from each run");
        let progress = self.progress.clone();
        let first = self.bursts;
        self.bursts += bursts;
        let run = async move {
            let started = Instant::now();
            for burst in first..first + bursts {
                for number in burst * BURST..(burst + 1) * BURST {
                    publisher.publish(message(number));
                }
                progress.burst_is_over.notified().await;
                let finished = progress.finished.load(Ordering::Relaxed);
                assert_eq!(
                    finished,
                    (burst + 1) * progress.subscribers,
                    "subscribers that finished a burst"
                );
            }
            (started.elapsed(), publisher)
        };
        let (elapsed, publisher) = self
            .runtime
            .block_on(self.runtime.spawn(run))
            .expect("the publisher's task");
        self.publisher = Some(publisher);
        elapsed
    }

    /// Ends the tasks and checks that each received every message once.
    fn stop(self) {
        drop(self.publisher);
        let published = self.bursts * BURST;
        for subscriber in self.subscribers {
            let taken = self.runtime.block_on(subscriber).expect("a subscriber's task");
            assert_eq!(taken.count, published, "messages that a subscriber got");
            assert_eq!(taken.sum, sum_of_numbers(0, published), "sum of their numbers");
        }
    }
}

async fn subscribe(mut subscriber: impl Subscriber, progress: Arc<Progress>) -> Taken {
    let mut all = Taken::default();
    let mut burst_ends = BURST;
    while let Some(taken) = subscriber.take().await {
        all.add(taken);
        if all.count == burst_ends {
            burst_ends += BURST;
            let finished = progress.finished.fetch_add(1, Ordering::Relaxed) + 1;
            if finished.is_multiple_of(progress.subscribers) {
                progress.burst_is_over.notify_one();
            }
        }
    }
    all
}
