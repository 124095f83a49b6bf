//! Clients of a service: 20,000 events a second on two tokio workers, to 50 healthy receivers beside others that have stopped or
//! take one event a second. How much the healthy ones get.

use std::mem;
use std::time::{Duration, Instant};

use doorbell_perf::bench::is_measuring;
use doorbell_perf::channels::lossy::{Doorbell, DropIn, Join, Received, Tokio, Wait};
use doorbell_perf::channels::settings::message;
use doorbell_perf::pin::pinned_workers;
use doorbell_perf::rounds::{Contender, Rounds};
use tokio::time;

use super::kinds::{self, Kind};
use super::{DELIVERED, LOST};

const RATE: u32 = 20_000;
const HEALTHY: usize = 50;

pub(crate) fn compare(rounds: &Rounds) {
    let settings = [
        ("clients_beside_64_stopped", Others::Stopped(64), 1_024),
        ("clients_beside_128_stopped", Others::Stopped(128), 4_096),
        ("clients_beside_1000_stopped", Others::Stopped(1_000), 16_384),
        ("clients_beside_1000_slow", Others::Slow(1_000), 1_024),
    ];
    for (work, others, capacity) in settings {
        rounds.compare(
            [DELIVERED, LOST],
            &[
                Contender::new(work, "doorbell", move || run::<Doorbell>(others, capacity)),
                Contender::new(work, "drop_in", move || run::<DropIn>(others, capacity)),
                Contender::new(work, "tokio", move || run::<Tokio>(others, capacity)),
            ],
        );
    }
}

/// The receivers beside the healthy ones.
#[derive(Clone, Copy)]
enum Others {
    /// They stopped at different places in the midst of a backlog.
    Stopped(usize),
    /// They receive once a second.
    Slow(usize),
}

/// Nanoseconds per delivery to a healthy receiver, as if the publisher had never been late; and the fraction lost.
fn run<C: Join + Wait>(others: Others, capacity: usize) -> [f64; 2] {
    let events = if is_measuring() { RATE / 2 } else { RATE / 100 };
    let (stopped, slow) = match others {
        Others::Stopped(count) => (count, 0),
        Others::Slow(count) => (0, count),
    };
    let channel = kinds::Channel::<C>::open(capacity, Kind::AtDifferentPlaces, stopped);
    let mut publisher = channel.publisher;
    let runtime = pinned_workers(2);
    let subscribe = || C::subscribe(&publisher);
    let healthy: Vec<_> = (0..HEALTHY).map(|_| runtime.spawn(receive::<C>(subscribe()))).collect();
    for index in 0..slow {
        let first = Duration::from_secs(1) * index as u32 / slow as u32;
        runtime.spawn(receive_slowly::<C>(subscribe(), first));
    }
    let publishing = runtime.spawn(async move {
        let mut ticks = time::interval(Duration::from_millis(1));
        let started = Instant::now();
        let mut number = 0;
        while number < events {
            ticks.tick().await;
            let due = (started.elapsed().as_secs_f64() * f64::from(RATE)) as u32;
            while number < due.min(events) {
                C::publish(&mut publisher, message(u64::from(number)));
                number += 1;
            }
        }
    });
    runtime.block_on(publishing).expect("the publisher's task");
    let (mut received, mut lost) = (0, 0);
    for receiver in healthy {
        let counts = runtime.block_on(receiver).expect("a receiver's task");
        assert_eq!(
            counts.0 + counts.1,
            u64::from(events),
            "messages received or reported as lost"
        );
        received += counts.0;
        lost += counts.1;
    }
    // As in `one_thread`.
    mem::forget(channel.crowd);
    let published_in = f64::from(events) * 1e9 / f64::from(RATE);
    [published_in / received as f64, lost as f64 / (received + lost) as f64]
}

/// Returns the numbers of messages received and lost.
async fn receive<C: Wait>(mut subscriber: C::Subscriber) -> (u64, u64) {
    let (mut received, mut lost) = (0, 0);
    loop {
        match C::receive(&mut subscriber).await {
            Received::Message(message) => {
                assert_eq!(message[0], received + lost, "the next message");
                received += 1;
            }
            Received::Lost(count) => lost += count,
            Received::Empty => {}
            Received::Closed => return (received, lost),
        }
    }
}

async fn receive_slowly<C: Wait>(mut subscriber: C::Subscriber, first: Duration) {
    time::sleep(first).await;
    while !matches!(C::receive(&mut subscriber).await, Received::Closed) {
        time::sleep(Duration::from_secs(1)).await;
    }
}
