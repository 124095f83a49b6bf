//! Subscribers that rest cost nobody anything: those that have drained the ring, have stopped in the midst of it, or are slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use doorbell::ring::{Publisher, Subscriber, TryRecvError, channel};
use testkit::alloc::{CountingAllocator, allocations, live_bytes};
use testkit::random::Rng;
use testkit::sealed::Sealed;
use testkit::threads::{join_all, must_end};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const CAPACITY: usize = 1024;

/// Where the subscribers of a crowd stop.
#[derive(Clone, Copy, Debug)]
enum Stopped {
    Drained,
    AtOnePlace,
    AtDifferentPlaces,
    NeverRead,
}

const EVERYWHERE: [Stopped; 4] = [
    Stopped::Drained,
    Stopped::AtOnePlace,
    Stopped::AtDifferentPlaces,
    Stopped::NeverRead,
];

/// Fills the ring and lets `count` subscribers receive until they stop.
fn crowd(
    publisher: &Publisher<u64>,
    subscriber: &Subscriber<u64>,
    count: usize,
    stopped: Stopped,
) -> Vec<Subscriber<u64>> {
    let mut crowd: Vec<_> = (0..count).map(|_| subscriber.clone()).collect();
    for number in 0..CAPACITY as u64 {
        publisher.publish(number);
    }
    for (index, resting) in crowd.iter_mut().enumerate() {
        let receives = match stopped {
            Stopped::Drained => CAPACITY + 1,
            Stopped::AtOnePlace => CAPACITY / 2 + 1,
            Stopped::AtDifferentPlaces => index * CAPACITY / count + 1,
            Stopped::NeverRead => 0,
        };
        assert!((0..receives).all(|_| resting.try_recv().is_ok() || receives > CAPACITY));
    }
    crowd
}

#[test]
fn resting_subscribers_pin_nothing() {
    for stopped in EVERYWHERE {
        for count in [1, 16, 64, 1_000] {
            let (publisher, subscriber) = channel(CAPACITY);
            let crowd = crowd(&publisher, &subscriber, count, stopped);
            let mut healthy = publisher.subscribe();
            let allocated = allocations(|| {
                for number in 0..20 * CAPACITY as u64 {
                    publisher.publish(number);
                    assert_eq!(healthy.try_recv(), Ok(number));
                }
            });
            assert_eq!(allocated, 0, "{count} {stopped:?}");
            drop(crowd);
        }
    }
}

#[test]
fn small_rings_pin_nothing_for_long() {
    for capacity in [1, 2, 16, 100, 300] {
        let (publisher, subscriber) = channel(capacity);
        let mut crowd: Vec<_> = (0..32).map(|_| subscriber.clone()).collect();
        let before = live_bytes();
        for number in 0..20_000 {
            publisher.publish(number);
            if number % 1_000 < 32 {
                let _ = crowd[number % 32].try_recv();
            }
        }
        // More than 1,024 sequences and a lap after the last receive.
        let allocated = allocations(|| {
            for number in 0..10_000 {
                publisher.publish(number);
            }
        });
        assert!(allocated <= 8_000, "capacity {capacity}: {allocated}");
        let allocated = allocations(|| {
            for number in 0..10_000 {
                publisher.publish(number);
            }
        });
        assert_eq!(allocated, 0, "capacity {capacity}");
        assert!(live_bytes() - before <= 1_024, "capacity {capacity}: cells are left");
    }
}

#[test]
fn slow_subscribers_cost_no_healthy_one_an_event() {
    let (publisher, subscriber) = channel(CAPACITY);
    let mut slow = crowd(&publisher, &subscriber, 500, Stopped::AtDifferentPlaces);
    let mut healthy = publisher.subscribe();
    let mut run = |events: std::ops::Range<u64>| {
        for number in events {
            publisher.publish(number);
            assert_eq!(healthy.try_recv(), Ok(number));
            if number % 7 == 0 {
                let _ = slow[number as usize / 7 % 500].try_recv();
            }
        }
    };
    run(0..5_000);
    assert_eq!(allocations(|| run(5_000..50_000)), 0);
    let stats = healthy.stats();
    assert_eq!((stats.received, stats.lag_events), (50_000, 0));
}

#[test]
fn references_of_slow_subscribers_stay_valid_while_announcements_are_revoked() {
    must_end(|| {
        let (publisher, subscriber) = channel::<Sealed>(64);
        let stop = Arc::new(AtomicBool::new(false));
        let readers: Vec<_> = (0..3)
            .map(|me| {
                let (stop, mut crowd) = (Arc::clone(&stop), vec![]);
                crowd.extend((0..40).map(|_| subscriber.clone()));
                thread::spawn(move || {
                    let mut random = Rng::with_seed(me);
                    let mut received = 0u64;
                    while !stop.load(Ordering::Relaxed) {
                        thread::yield_now();
                        let index = random.usize(..crowd.len());
                        let subscriber: &mut Subscriber<Sealed> = &mut crowd[index];
                        match random.u32(..3) {
                            0 => {
                                if let Ok(held) = subscriber.try_recv_ref() {
                                    let before = held.open();
                                    thread::yield_now();
                                    assert_eq!(held.open(), before);
                                    received += 1;
                                }
                            }
                            1 => {
                                if let Ok(batch) = subscriber.try_recv_batch(5) {
                                    let held: Vec<_> = batch.map(|value| (value, value.open())).collect();
                                    thread::yield_now();
                                    assert!(held.iter().all(|(value, before)| value.open() == *before));
                                    received += held.len() as u64;
                                }
                            }
                            _ => {
                                for _ in 0..random.u32(..9) {
                                    if let Ok(value) = subscriber.try_recv() {
                                        value.open();
                                        received += 1;
                                    }
                                }
                            }
                        }
                    }
                    received
                })
            })
            .collect();
        let mut healthy = publisher.subscribe();
        for number in 0..20_000 {
            publisher.publish(Sealed::new(0, number));
            if number % 64 == 0 {
                while match healthy.try_recv() {
                    Ok(value) => value.open().1 <= number,
                    Err(TryRecvError::Empty) => false,
                    Err(error) => panic!("{error}"),
                } {}
                thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(join_all(readers).into_iter().sum::<u64>() > 0);
        assert_eq!(healthy.stats().lag_events, 0);
    });
}
