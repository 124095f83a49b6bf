//! The cost of a message from publish to receive on one thread: one by one or in batches, by value or by reference.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};

use doorbell_perf::bench::run_bench;
use doorbell_perf::channels::payload::{Event, Payload};
use doorbell_perf::channels::settings::{BATCH, Message};
use doorbell_perf::channels::single_thread::{
    AsyncBroadcast, Channel, DisruptorMulti, DisruptorSingle, Doorbell, DropIn, PhotonMulti, PhotonSingle, Tokio,
    broken,
};

fn main() {
    run_bench("receive", 30, Duration::from_millis(500), bench);
}

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("receive");
    for work in [Work::Value, Work::Reference, Work::Batch, Work::Batches] {
        any_payload::<Message>(&mut group, work);
        plain_data(&mut group, work);
        any_payload::<Arc<Message>>(&mut group, work);
        any_payload::<Event>(&mut group, work);
    }
    group.finish();
}

/// The peers that take any payload. A peer without references receives by value; one without batches publishes or receives 64
/// times.
fn any_payload<T: Payload>(group: &mut BenchmarkGroup<'_, WallTime>, work: Work) {
    work.bench(group, "doorbell", || Doorbell::<T>::open(1));
    work.bench(group, "drop_in", || DropIn::<T>::open(1));
    work.bench(group, "tokio", || Tokio::<T>::open(1));
    work.bench(group, "async_broadcast", || AsyncBroadcast::<T>::open(1));
    work.bench(group, "disruptor_mp", DisruptorMulti::<T>::open);
    work.bench(group, "disruptor_sp", DisruptorSingle::<T>::open);
}

fn plain_data(group: &mut BenchmarkGroup<'_, WallTime>, work: Work) {
    work.bench(group, "photon_mp", || PhotonMulti::<Message>::open(1));
    work.bench(group, "photon_sp", || PhotonSingle::<Message>::open(1));
}

#[derive(Clone, Copy)]
enum Work {
    /// Publish one, receive it by value.
    Value,
    /// Publish one, read it by reference.
    Reference,
    /// Publish 64 one by one, read them as a batch.
    Batch,
    /// Publish 64 as a batch, read them as a batch.
    Batches,
}

impl Work {
    fn name(self) -> &'static str {
        match self {
            Work::Value => "value",
            Work::Reference => "reference",
            Work::Batch => "batch64",
            Work::Batches => "publish_batch64",
        }
    }

    fn bench<T, C>(self, group: &mut BenchmarkGroup<'_, WallTime>, candidate: &str, open: impl Fn() -> C)
    where
        T: Payload,
        C: Channel<T>,
    {
        let messages = match self {
            Work::Value | Work::Reference => 1,
            Work::Batch | Work::Batches => BATCH,
        };
        group.throughput(Throughput::Elements(messages));
        let id = BenchmarkId::new(format!("{}_{}", self.name(), T::NAME), candidate);
        group.bench_function(id, |bencher| {
            let mut channel = open();
            let mut number = 0;
            match self {
                Work::Value => bencher.iter(|| {
                    channel.publish(black_box(T::make(number)));
                    expect(black_box(channel.receive()).number(), number);
                    number += 1;
                }),
                Work::Reference => bencher.iter(|| {
                    channel.publish(black_box(T::make(number)));
                    expect(channel.read(), number);
                    number += 1;
                }),
                Work::Batch => bencher.iter(|| {
                    for number in number..number + BATCH {
                        channel.publish(black_box(T::make(number)));
                    }
                    expect(channel.read_batch(), sum_of_batch(number));
                    number += BATCH;
                }),
                Work::Batches => bencher.iter(|| {
                    channel.publish_batch(black_box(number));
                    expect(channel.read_batch(), sum_of_batch(number));
                    number += BATCH;
                }),
            }
        });
    }
}

#[inline]
fn sum_of_batch(first: u64) -> u64 {
    first * BATCH + const { BATCH * (BATCH - 1) / 2 }
}

/// Checks that the last messages published were received: none was lost, repeated or reordered.
#[inline]
fn expect(received: u64, published: u64) {
    if received != published {
        broken((received, published));
    }
}
