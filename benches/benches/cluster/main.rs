//! Cluster events: the cost of `emit`, and how fast consoles receive events; beside the usual two steps, a counter and then a send.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, SamplingMode, Throughput};
use doorbell::cluster::{ClusterEvent, ClusterEventMeta};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

mod consoles;

use consoles::{Bare, Console, Emitter, Moved, Source, Stamped, TwoStep, doorbell};
use doorbell_perf::bench::run_bench;
use doorbell_perf::channels::settings::{BURST, sum_of_numbers};

fn main() {
    run_bench("cluster", 30, Duration::from_millis(700), bench);
}

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cluster");
    group.throughput(Throughput::Elements(1));
    let plain = |meta| Moved::new(meta, 7, 3);
    let source: &'static Source = Box::leak(Box::new(Source::new()));
    let texts = |meta| source.event(meta);
    for idle in [0, 1, 64] {
        let work = format!("emit_plain_{idle}_idle");
        emit(&mut group, &work, "doorbell", idle, doorbell::<Moved>(), plain);
        emit(&mut group, &work, "two_step", idle, TwoStep::<Moved>::new(), plain);
        let work = format!("emit_texts_{idle}_idle");
        emit(&mut group, &work, "doorbell", idle, doorbell::<ClusterEvent>(), texts);
        emit(
            &mut group,
            &work,
            "two_step",
            idle,
            TwoStep::<ClusterEvent>::new(),
            texts,
        );
    }
    group.sampling_mode(SamplingMode::Flat).sample_size(15);
    for consoles in [1, 8] {
        let work = format!("{consoles}_consoles_plain");
        paced(&mut group, &work, "doorbell", consoles, doorbell, plain);
        paced(&mut group, &work, "two_step", consoles, TwoStep::new, plain);
        paced(
            &mut group,
            &work,
            "two_step_recv",
            consoles,
            || Bare(TwoStep::new()),
            plain,
        );
        let work = format!("{consoles}_consoles_texts");
        paced(&mut group, &work, "doorbell", consoles, doorbell, texts);
        paced(&mut group, &work, "two_step", consoles, TwoStep::new, texts);
        paced(
            &mut group,
            &work,
            "two_step_recv",
            consoles,
            || Bare(TwoStep::new()),
            texts,
        );
    }
    group.finish();
}

/// The cost of one `emit` while `idle` consoles are attached and do not read.
fn emit<E>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    work: &str,
    candidate: &str,
    idle: usize,
    emitter: impl Emitter<E>,
    build: impl Fn(ClusterEventMeta) -> E,
) {
    let consoles: Vec<_> = (0..idle).map(|_| emitter.attach()).collect();
    group.bench_function(BenchmarkId::new(work, candidate), |bencher| {
        bencher.iter(|| black_box(emitter.emit(&build)));
    });
    drop(consoles);
}

/// Consoles on two workers that read what is emitted in bursts of half the capacity; the next burst begins when all have read it.
fn paced<P: Emitter<E>, E: Stamped>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    work: &str,
    candidate: &str,
    consoles: usize,
    open: impl Fn() -> P,
    build: impl Fn(ClusterEventMeta) -> E + Copy + Send + 'static,
) {
    let mut harness = None;
    group.throughput(Throughput::Elements(BURST * consoles as u64));
    group.bench_function(BenchmarkId::new(work, candidate), |bencher| {
        let harness = harness.get_or_insert_with(|| Harness::start(open(), consoles));
        bencher.iter_custom(|bursts| harness.run(bursts, build));
    });
    if let Some(harness) = harness {
        harness.stop();
    }
}

struct Harness<P> {
    runtime: Runtime,
    emitter: Arc<P>,
    consoles: Vec<JoinHandle<u64>>,
    /// One permit for each burst that a console has read.
    read: Arc<Semaphore>,
    bursts: u64,
}

impl<P> Harness<P> {
    fn start<E: Stamped>(emitter: P, consoles: usize) -> Self
    where
        P: Emitter<E>,
    {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .expect("a runtime");
        let read = Arc::new(Semaphore::new(0));
        let consoles = (0..consoles)
            .map(|_| runtime.spawn(watch(emitter.attach(), read.clone())))
            .collect();
        Self {
            runtime,
            emitter: Arc::new(emitter),
            consoles,
            read,
            bursts: 0,
        }
    }

    /// The time of `bursts` bursts, from the first `emit` until the last console has the last event. The emitter is a task
    /// too, so two threads do all the work.
    fn run<E>(&mut self, bursts: u64, build: impl Fn(ClusterEventMeta) -> E + Send + 'static) -> Duration
    where
        P: Emitter<E>,
    {
        let (emitter, read) = (self.emitter.clone(), self.read.clone());
        let consoles = self.consoles.len() as u32;
        self.bursts += bursts;
        let run = async move {
            let started = Instant::now();
            for _ in 0..bursts {
                for _ in 0..BURST {
                    black_box(emitter.emit(&build));
                }
                let all = read.acquire_many(consoles).await.expect("it stays open");
                all.forget();
            }
            started.elapsed()
        };
        self.runtime
            .block_on(self.runtime.spawn(run))
            .expect("the emitter's task")
    }

    /// Ends the tasks and checks that each console received every event once.
    fn stop(self) {
        drop(self.emitter);
        let emitted = self.bursts * BURST;
        for console in self.consoles {
            let sum = self.runtime.block_on(console).expect("a console's task");
            assert_eq!(sum, sum_of_numbers(1, emitted), "sum of the numbers");
        }
    }
}

/// Reads to the end and adds up the numbers.
async fn watch<E: Stamped>(mut console: impl Console<E>, read: Arc<Semaphore>) -> u64 {
    let (mut sum, mut count) = (0_u64, 0);
    while let Some(event) = console.next().await {
        sum = sum.wrapping_add(event.seq());
        count += 1;
        if count % BURST == 0 {
            read.add_permits(1);
        }
    }
    sum
}
