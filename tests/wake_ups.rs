//! Thousands of waits and publishes race each other: no wake-up is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use doorbell::ring::{Builder, Subscriber, Wake, channel};
use testkit::random::Rng;
use testkit::threads::{PATIENCE, block_on, join_all, must_end};

/// Threads park for each message, thousands of times; the publisher pauses only to let them park.
fn park_and_publish(make: impl Fn() -> (Box<dyn FnMut(u64) + Send>, Subscriber<u64>), readers: usize, rounds: u64) {
    let (mut publish, subscriber) = make();
    let arrived = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..readers)
        .map(|reader| {
            let (mut subscriber, arrived) = (subscriber.clone(), Arc::clone(&arrived));
            thread::spawn(move || {
                for round in 0..rounds {
                    let got = if reader % 2 == 0 {
                        subscriber.recv_blocking()
                    } else {
                        block_on(subscriber.recv())
                    };
                    assert_eq!(got, Ok(round));
                    arrived.fetch_add(1, Ordering::Release);
                }
            })
        })
        .collect();
    let mut rng = Rng::with_seed(readers as u64);
    for round in 0..rounds {
        publish(round);
        let give_up = Instant::now() + PATIENCE;
        while arrived.load(Ordering::Acquire) < (round + 1) * readers as u64 {
            assert!(Instant::now() < give_up, "a lost wake-up in round {round}");
            // At the next message, the readers sometimes have parked long ago, and sometimes are about to.
            if rng.u64(..4) == 0 {
                thread::yield_now()
            } else {
                std::hint::spin_loop()
            }
        }
    }
    join_all(threads);
}

#[test]
fn no_wake_up_is_lost_in_thousands_of_rounds() {
    const ROUNDS: u64 = if cfg!(miri) { 10 } else { 2_000 };
    must_end(|| {
        for (wake, wake_watchdog) in [(Wake::Cascade, true), (Wake::Cascade, false), (Wake::All, false)] {
            let make = || -> (Box<dyn FnMut(u64) + Send>, _) {
                let (publisher, subscriber) = Builder::new(4)
                    .wake(wake)
                    .wake_watchdog(wake_watchdog)
                    .channel()
                    .unwrap();
                (Box::new(move |value| drop_seq(publisher.publish(value))), subscriber)
            };
            park_and_publish(make, 2, ROUNDS);
            park_and_publish(make, 5, ROUNDS / 4);
        }
    });
}

#[test]
fn no_wake_up_is_lost_by_any_way_to_publish() {
    const ROUNDS: u64 = if cfg!(miri) { 10 } else { 1_000 };
    must_end(|| {
        let with = || -> (Box<dyn FnMut(u64) + Send>, _) {
            let (publisher, subscriber) = channel(4);
            (
                Box::new(move |value| drop_seq(publisher.publish_with(|_| value))),
                subscriber,
            )
        };
        park_and_publish(with, 2, ROUNDS);
        let batch = || -> (Box<dyn FnMut(u64) + Send>, _) {
            let (publisher, subscriber) = channel(4);
            (
                Box::new(move |value| assert_eq!(publisher.publish_batch([value]).count(), 1)),
                subscriber,
            )
        };
        park_and_publish(batch, 2, ROUNDS);
    });
}

fn drop_seq(seq: u64) {
    assert!(seq > 0);
}

#[test]
fn no_wake_up_is_lost_with_several_publishers() {
    const EACH: u64 = if cfg!(miri) { 10 } else { 1_500 };
    must_end(|| {
        let (publisher, subscriber) = channel::<u64>((3 * EACH) as usize);
        let readers: Vec<_> = (0..6)
            .map(|reader| {
                let mut subscriber = subscriber.clone();
                thread::spawn(move || {
                    let mut sum = 0;
                    for _ in 0..3 * EACH {
                        sum += if reader % 2 == 0 {
                            subscriber.recv_blocking().unwrap()
                        } else {
                            block_on(subscriber.recv()).unwrap()
                        };
                    }
                    sum
                })
            })
            .collect();
        let writers: Vec<_> = (0..3)
            .map(|_| {
                let publisher = publisher.clone();
                thread::spawn(move || {
                    for value in 1..=EACH {
                        publisher.publish(value);
                        if value % 3 == 0 {
                            thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        join_all(writers);
        // The publishers stay alive, so that closing cannot make up for a lost wake-up.
        let sums = join_all(readers);
        assert_eq!(sums, [3 * EACH * (EACH + 1) / 2; 6]);
        assert!(!subscriber.is_closed());
        drop(publisher);
    });
}
