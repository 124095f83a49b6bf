//! Publishers and subscribers on threads, also more of them than cores: paced, so that no message is lost, and flat out, where
//! the loss is part of the result.

use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, SamplingMode, Throughput};
use disruptor::{BusySpin, BusySpinWithSpinLoopHint, Sleep};
use doorbell::ring;
use photon_ring::WaitStrategy;

use doorbell_perf::bench;
use doorbell_perf::bench::run_bench;
mod threads;

use threads::{
    AsyncBroadcast, Channel, Disruptor, Doorbell, DoorbellBatch, DropIn, DropInYielding, Harness, NoChannel, Pace,
    Photon, Tokio, TokioYielding,
};

fn main() {
    run_bench("contended", 10, Duration::from_millis(700), bench);
}

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("contended");
    group.sampling_mode(SamplingMode::Flat);
    for publishers in [1, 2, 4] {
        for subscribers in [1, 2, 4] {
            let mut setting = Setting {
                group: &mut group,
                publishers,
                subscribers,
                pace: Pace::Bursts,
            };
            setting.bench_all();
            if publishers == subscribers {
                setting.bench_every_strategy();
                setting.pace = Pace::FlatOut;
                setting.bench_all();
            }
        }
    }
    group.finish();
}

struct Setting<'a, 'g> {
    group: &'a mut BenchmarkGroup<'g, WallTime>,
    publishers: usize,
    subscribers: usize,
    pace: Pace,
}

impl Setting<'_, '_> {
    /// Every channel once. Peers that only spin use their default strategy.
    fn bench_all(&mut self) {
        self.bench("no_channel", || NoChannel);
        self.bench("doorbell", || Doorbell(ring::WaitStrategy::Park));
        self.bench("doorbell_batch", || DoorbellBatch(ring::WaitStrategy::Park));
        self.bench("drop_in", || DropIn);
        self.bench("drop_in_yield", || DropInYielding);
        self.bench("tokio", || Tokio);
        self.bench("tokio_yield", || TokioYielding);
        self.bench("async_broadcast", || AsyncBroadcast);
        self.bench("photon_mp", || Photon(WaitStrategy::default()));
        self.bench("disruptor_mp", || Disruptor(BusySpinWithSpinLoopHint));
    }

    /// The other wait strategies.
    fn bench_every_strategy(&mut self) {
        self.bench("doorbell_yield", || Doorbell(ring::WaitStrategy::Yield));
        self.bench("doorbell_spin", || Doorbell(ring::WaitStrategy::Spin));
        self.bench("photon_mp_busy_spin", || Photon(WaitStrategy::BusySpin));
        self.bench("photon_mp_yield_spin", || Photon(WaitStrategy::YieldSpin));
        self.bench("photon_mp_backoff_spin", || Photon(WaitStrategy::BackoffSpin));
        self.bench("photon_mp_monitor_wait", || Photon(WaitStrategy::MonitorWaitFallback));
        self.bench("disruptor_mp_busy_spin", || Disruptor(BusySpin));
        self.bench("disruptor_mp_sleep", || Disruptor(Sleep::new(Duration::from_micros(1))));
    }

    fn bench<C: Channel>(&mut self, candidate: &str, channel: impl Fn() -> C) {
        let (publishers, subscribers, pace) = (self.publishers, self.subscribers, self.pace);
        let work = match pace {
            Pace::Bursts => format!("{publishers}_to_{subscribers}_paced"),
            Pace::FlatOut => format!("{publishers}_to_{subscribers}_flat_out"),
        };
        self.group.throughput(Throughput::Elements(match pace {
            Pace::Bursts => pace.round() * subscribers as u64,
            Pace::FlatOut => pace.round(),
        }));
        let mut harness = None;
        self.group
            .bench_function(BenchmarkId::new(&work, candidate), |bencher| {
                let harness = harness.get_or_insert_with(|| Harness::start(channel(), publishers, subscribers, pace));
                bencher.iter_custom(|rounds| harness.run(rounds));
            });
        if let Some(harness) = harness {
            let lost = harness.stop();
            if pace == Pace::FlatOut {
                bench::remark(
                    &format!("contended/{work}/{candidate}"),
                    &format!("{:.1} % lost", lost * 100.0),
                );
            }
        }
    }
}
