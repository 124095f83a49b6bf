//! Work of one thread that belongs beside the hand-off: waking a thousand tasks of the thread's own runtime, and large events by
//! value.

use std::thread;
use std::time::Instant;

use doorbell::ring::Wake;
use doorbell_perf::bench::is_measuring;
use doorbell_perf::channels::payload::Payload;
use doorbell_perf::channels::{single_thread, tasks};
use doorbell_perf::pin::pin;
use doorbell_perf::rounds::{Contender, Rounds};

use super::current_thread_runtime::Harness;
use super::{TIME, length};

pub(crate) fn compare(rounds: &Rounds) {
    let within = |candidate, run: fn() -> [f64; 1]| Contender::new("publish_within_1000_tasks", candidate, run);
    rounds.compare(
        [TIME],
        &[
            within("doorbell", || publish_within(tasks::Doorbell)),
            within("drop_in", || publish_within(tasks::DropIn(Wake::All))),
            within("drop_in_cascade", || publish_within(tasks::DropIn(Wake::Cascade))),
            within("tokio", || publish_within(tasks::Tokio)),
            within("async_broadcast", || publish_within(tasks::AsyncBroadcast)),
        ],
    );
    let large = |candidate, run: fn() -> [f64; 1]| Contender::new("value_256_bytes", candidate, run);
    rounds.compare(
        [TIME],
        &[
            large("doorbell", || large_events(single_thread::Doorbell::open)),
            large("drop_in", || large_events(single_thread::DropIn::open)),
            large("tokio", || large_events(single_thread::Tokio::open)),
            large("photon_mp", || large_events(single_thread::PhotonMulti::open)),
            large("photon_sp", || large_events(single_thread::PhotonSingle::open)),
        ],
    );
}

/// Runs on the first core.
fn pinned<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            pin(0);
            work()
        });
        thread.join().expect("a measuring thread")
    })
}

/// A publish from inside the single-threaded runtime of a thousand waiting tasks.
fn publish_within(channel: impl tasks::Channel + Send) -> [f64; 1] {
    pinned(|| {
        let mut harness = Harness::start(channel, 1000);
        harness.run(3);
        let messages = if is_measuring() { 150 } else { 3 };
        let time = harness.run(messages);
        harness.stop();
        [time.as_nanos() as f64 / messages as f64]
    })
}

/// Publishes one event of 256 bytes and receives it, by value.
fn large_events<C: single_thread::Channel<[u64; 32]>>(open: fn(usize) -> C) -> [f64; 1] {
    pinned(|| {
        let mut channel = open(1);
        let mut number = 0;
        let mut exchange = || {
            channel.publish(std::hint::black_box(Payload::make(number)));
            assert_eq!(std::hint::black_box(channel.receive())[0], number, "the message");
            number += 1;
        };
        // Every slot has been used.
        (0..4096).for_each(|_| exchange());
        let length = length(30);
        let mut exchanges = 0;
        let started = Instant::now();
        while started.elapsed() < length {
            (0..1024).for_each(|_| exchange());
            exchanges += 1024;
        }
        [started.elapsed().as_nanos() as f64 / f64::from(exchanges)]
    })
}
