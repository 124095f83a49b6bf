//! The cost of publishing while no subscriber receives: 0, 1 or 64 subscribers exist and are idle.

use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};

use doorbell_perf::bench::run_bench;
use doorbell_perf::channels::settings::{BATCH, Message, message};
use doorbell_perf::channels::single_thread::{
    AsyncBroadcast, Channel, Doorbell, DropIn, Lossy, PhotonMulti, PhotonSingle, Tokio,
};

fn main() {
    run_bench("publish", 30, Duration::from_millis(700), bench);
}

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("publish");
    for idle in [0, 1, 64] {
        one_by_one(&mut group, "doorbell", idle, Doorbell::open);
        by_batch(&mut group, "doorbell_batch", idle, Doorbell::open);
        if idle > 0 {
            one_by_one(&mut group, "drop_in", idle, DropIn::open);
            one_by_one(&mut group, "tokio", idle, Tokio::open);
            one_by_one(&mut group, "async_broadcast", idle, AsyncBroadcast::open);
        }
        one_by_one(&mut group, "photon_mp", idle, PhotonMulti::open);
        one_by_one(&mut group, "photon_sp", idle, PhotonSingle::open);
        by_batch(&mut group, "photon_sp_batch", idle, PhotonSingle::open);
    }
    group.finish();
}

fn one_by_one<C>(group: &mut BenchmarkGroup<'_, WallTime>, candidate: &str, idle: usize, open: impl Fn(usize) -> C)
where
    C: Channel<Message> + Lossy,
{
    let mut channel = None;
    let mut number = 0;
    group.throughput(Throughput::Elements(1));
    group.bench_function(id(candidate, idle), |bencher| {
        let channel = channel.get_or_insert_with(|| open(idle));
        bencher.iter(|| {
            channel.publish(black_box(message(number)));
            number += 1;
        });
    });
    check(channel, idle, number);
}

fn by_batch<C>(group: &mut BenchmarkGroup<'_, WallTime>, candidate: &str, idle: usize, open: impl Fn(usize) -> C)
where
    C: Channel<Message> + Lossy,
{
    let mut channel = None;
    let mut number = 0;
    group.throughput(Throughput::Elements(BATCH));
    group.bench_function(id(candidate, idle), |bencher| {
        let channel = channel.get_or_insert_with(|| open(idle));
        bencher.iter(|| {
            channel.publish_batch(black_box(number));
            number += BATCH;
        });
    });
    check(channel, idle, number);
}

fn id(candidate: &str, idle: usize) -> BenchmarkId {
    BenchmarkId::new(format!("{idle}_idle"), candidate)
}

/// Checks that every message was published: the idle subscribers account for each one.
fn check<C: Lossy>(channel: Option<C>, idle: usize, published: u64) {
    if let Some(mut channel) = channel
        && idle > 0
    {
        assert_eq!(channel.account(), published, "messages accounted for");
    }
}
