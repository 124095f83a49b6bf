//! Threads on every path of the ring, for ThreadSanitizer (`tests/tsan/run.sh`).
//!
//! In an ordinary run it is one more stress test. It has no test harness, joins every thread that it spawns, and keeps shared state
//! alive until then, because the sanitizer sees neither into the standard library nor through fences. With the argument `must-race`
//! it runs a planted race instead: if that is not reported, the suppressions hide too much.

mod audit;
#[path = "tsan/planted.rs"]
mod planted;
#[path = "tsan/waiting.rs"]
mod waiting;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use doorbell::ring::{Builder, OnLag, Start, TryRecvError, Wake, channel};
use testkit::agreement::Agreement;
use testkit::sealed::{Identified, Sealed};
use testkit::threads::join_all;
use testkit::tracked::DropCounter;

use crate::audit::{Outcome, Way, follow, publish_all};

/// The ways to receive that need no waker. `waiting` has the others.
const WAYS: [Way; 7] = [
    Way::Try,
    Way::TryRef,
    Way::TryBatch,
    Way::Timeout,
    Way::Blocking,
    Way::BlockingRef,
    Way::BlockingBatch,
];

const EVENTS: u64 = 1_200;

fn main() {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("must-race") => return planted::race(),
        Some("--list") => return println!("tsan: test"),
        _ => {}
    }
    for capacity in [1, 2, 3, 8, 64] {
        everything_against_everything::<Sealed>(capacity, OnLag::Oldest);
        everything_against_everything::<String>(capacity, OnLag::Headroom(capacity as u64 / 2));
    }
    one_publisher(5);
    held_and_overwritten(4);
    stuck_publishers(3);
    values_that_are_dropped();
    handles_that_come_and_go();
    for (wake, wake_watchdog) in [(Wake::Cascade, true), (Wake::Cascade, false), (Wake::All, true)] {
        waiting::tasks_and_threads(wake, wake_watchdog);
    }
    println!("tsan harness: every thread has joined");
}

/// Lives until the process ends, so the sanitizer cannot misjudge a last drop.
fn shared<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

fn everything_against_everything<T: Identified>(capacity: usize, on_lag: OnLag) {
    let agreement = shared(Agreement::new(1, 3 * EVENTS as usize));
    let (publisher, subscriber) = Builder::new(capacity).on_lag(on_lag).channel::<T>().unwrap();
    let readers: Vec<_> = WAYS
        .into_iter()
        .map(|way| {
            let mut subscriber = subscriber.clone();
            thread::spawn(move || follow(&mut subscriber, agreement, way))
        })
        .collect();
    let writers: Vec<_> = (0..3)
        .map(|me| {
            let publisher = publisher.clone();
            thread::spawn(move || publish_all(&publisher, me, EVENTS, agreement))
        })
        .collect();
    let voids: u64 = join_all(writers).into_iter().sum();
    assert_eq!(publisher.stats().void, voids);
    drop(publisher);
    for account in join_all(readers) {
        assert_eq!(account.end, 3 * EVENTS + 1);
    }
    drop(subscriber);
}

fn one_publisher(capacity: usize) {
    let agreement = shared(Agreement::new(1, 2 * EVENTS as usize));
    let (publisher, subscriber) = channel::<String>(capacity);
    let readers: Vec<_> = WAYS
        .into_iter()
        .map(|way| {
            let mut subscriber = subscriber.clone();
            thread::spawn(move || follow(&mut subscriber, agreement, way))
        })
        .collect();
    for number in 0..EVENTS {
        publisher.publish(String::identified(0, number));
        publisher.publish_batch([String::identified(1, number)]);
    }
    drop(publisher);
    let accounts: Vec<Outcome> = join_all(readers);
    assert!(accounts.iter().all(|account| account.end == 2 * EVENTS + 1));
    drop(subscriber);
}

/// Subscribers hold references while publishers overwrite the ring many times.
fn held_and_overwritten(capacity: usize) {
    let (publisher, subscriber) = channel::<String>(capacity);
    let holders: Vec<_> = (0..3)
        .map(|me| {
            let mut subscriber = subscriber.clone();
            thread::spawn(move || {
                let mut seen = 0;
                loop {
                    match subscriber.try_recv_batch(1 + me) {
                        Ok(batch) => {
                            let held: Vec<_> = batch.collect();
                            let before: Vec<_> = held.iter().map(|value| value.identity()).collect();
                            for _ in 0..3 {
                                thread::yield_now();
                                assert!(
                                    held.iter()
                                        .zip(&before)
                                        .all(|(value, before)| value.identity() == *before)
                                );
                            }
                            seen += held.len();
                        }
                        Err(TryRecvError::Closed) => return seen,
                        Err(_) => thread::yield_now(),
                    }
                }
            })
        })
        .collect();
    let writers: Vec<_> = (0..2)
        .map(|me| {
            let publisher = publisher.clone();
            thread::spawn(move || {
                for number in 0..EVENTS {
                    publisher.publish(String::identified(me, number));
                    if number % 16 == 0 {
                        thread::yield_now();
                    }
                }
            })
        })
        .collect();
    join_all(writers);
    drop(publisher);
    join_all(holders);
    drop(subscriber);
}

/// Publishers are overtaken by whole laps between claim and publication.
fn stuck_publishers(capacity: usize) {
    let (publisher, subscriber) = channel::<String>(capacity);
    let claimed = shared(AtomicU64::new(0));
    let stuck: Vec<_> = (0..3)
        .map(|me| {
            let publisher = publisher.clone();
            thread::spawn(move || {
                for number in 0..10 {
                    publisher.publish_with(|seq| {
                        claimed.fetch_add(1, Ordering::AcqRel);
                        while publisher.next_seq() < seq + 5 * capacity as u64 {
                            thread::yield_now();
                        }
                        String::identified(me, number)
                    });
                }
                claimed.fetch_add(1_000, Ordering::AcqRel);
            })
        })
        .collect();
    let reader = {
        let mut subscriber = subscriber.clone();
        thread::spawn(move || {
            while subscriber.try_recv_ref().map(|held| held.identity()) != Err(TryRecvError::Closed) {
                thread::yield_now();
            }
        })
    };
    let mut number = 0;
    while claimed.load(Ordering::Acquire) < 3_000 {
        publisher.publish(String::identified(9, number));
        number += 1;
        thread::yield_now();
    }
    join_all(stuck);
    drop(publisher);
    join_all([reader]);
    drop(subscriber);
}

fn values_that_are_dropped() {
    let counter = DropCounter::new();
    let (publisher, subscriber) = channel(6);
    let mut threads = Vec::new();
    for me in 0..3 {
        let (publisher, counter) = (publisher.clone(), counter.clone());
        threads.push(thread::spawn(move || {
            for number in 0..EVENTS {
                publisher.publish(counter.value(me << 32 | number));
            }
        }));
        let mut subscriber = subscriber.clone();
        threads.push(thread::spawn(move || {
            for _ in 0..EVENTS {
                match subscriber.try_recv() {
                    Ok(value) => assert!(value.id() >> 32 < 3),
                    Err(_) => thread::yield_now(),
                }
            }
        }));
    }
    join_all(threads);
    drop((publisher, subscriber));
    assert_eq!(counter.alive(), 0);
}

fn handles_that_come_and_go() {
    let (publisher, subscriber) = channel::<Sealed>(16);
    let mut threads = Vec::new();
    for me in 0..2 {
        let publisher = publisher.clone();
        threads.push(thread::spawn(move || {
            for number in 0..EVENTS {
                publisher.clone().publish(Sealed::new(me, number));
            }
        }));
        let subscriber = subscriber.clone();
        threads.push(thread::spawn(move || {
            for _ in 0..EVENTS / 4 {
                let mut fresh = subscriber.clone();
                let _ = fresh.try_recv().map(|value| value.open());
                let _ = fresh.resubscribe().try_recv();
            }
        }));
    }
    join_all(threads);
    let mut late = publisher.subscribe_from(Start::Oldest);
    assert!(late.try_recv().is_ok());
    drop((publisher, subscriber, late));
}
