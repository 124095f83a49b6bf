//! More threads than cores: order, exactly-once delivery, exact counts, integrity, and every value dropped once.

mod audit;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use doorbell::ring::{Builder, OnLag, Publisher, Start, Subscriber, TryRecvError, channel};
use testkit::agreement::Agreement;
use testkit::random::Rng;
use testkit::sealed::{Identified, Sealed};
use testkit::threads::join_all;
use testkit::tracked::DropCounter;

use crate::audit::{Outcome, WAYS, Way, follow, publish_all};

/// The number of events; fewer under Miri, where every step is slow.
const EVENTS: u64 = if cfg!(miri) { 50 } else { 40_000 };

/// Several publishers and one subscriber for each way to receive.
fn many_to_many<T: Identified>(capacity: usize, publishers: u64, on_lag: OnLag, first_seq: u64, events: u64) {
    let total = publishers * events;
    let agreement = Arc::new(Agreement::new(first_seq, total as usize));
    let builder = Builder::new(capacity).on_lag(on_lag).first_seq(first_seq);
    let (publisher, subscriber) = builder.channel::<T>().unwrap();
    let readers: Vec<_> = WAYS
        .iter()
        .map(|way| {
            let (mut subscriber, agreement, way) = (subscriber.clone(), Arc::clone(&agreement), *way);
            thread::spawn(move || follow(&mut subscriber, &agreement, way))
        })
        .collect();
    drop(subscriber);
    let writers: Vec<_> = (0..publishers)
        .map(|me| {
            let (publisher, agreement) = (publisher.clone(), Arc::clone(&agreement));
            thread::spawn(move || publish_all(&publisher, me, events, &agreement))
        })
        .collect();
    let voids: u64 = join_all(writers).into_iter().sum();
    let stats = publisher.stats();
    assert_eq!((stats.published, stats.void), (total - voids, voids));
    drop(publisher);
    for account in join_all(readers) {
        assert_eq!(account.end, first_seq + total);
        assert!(account.void <= voids);
        if account.lag_events == 0 {
            assert_eq!((account.received, account.void), (total - voids, voids));
        }
    }
}

#[test]
fn plain_words_arrive_once_and_in_order() {
    many_to_many::<Sealed>(64, 4, OnLag::Headroom(8), 1, EVENTS);
}

#[test]
fn strings_arrive_once_and_in_order() {
    many_to_many::<String>(100, 3, OnLag::Oldest, 1, EVENTS / 2);
}

#[test]
fn tiny_capacities_count_exactly_under_contention() {
    for (capacity, on_lag) in [
        (1, OnLag::Oldest),
        (2, OnLag::Latest),
        (3, OnLag::Oldest),
        (5, OnLag::Headroom(2)),
    ] {
        many_to_many::<Sealed>(capacity, 3, on_lag, (1 << 32) - 1_000, EVENTS / 6);
        many_to_many::<String>(capacity, 2, on_lag, 1, EVENTS / 12);
    }
}

#[test]
fn nothing_is_lost_while_everything_fits() {
    let total = 3 * EVENTS / 4;
    let agreement = Arc::new(Agreement::new(1, total as usize));
    let (publisher, subscriber) = channel::<Sealed>(total as usize);
    let readers: Vec<_> = WAYS
        .iter()
        .map(|way| {
            let (mut subscriber, agreement, way) = (subscriber.clone(), Arc::clone(&agreement), *way);
            thread::spawn(move || follow(&mut subscriber, &agreement, way))
        })
        .collect();
    let writers: Vec<_> = (0..3)
        .map(|me| {
            let (publisher, agreement) = (publisher.clone(), Arc::clone(&agreement));
            thread::spawn(move || publish_all(&publisher, me, total / 3, &agreement))
        })
        .collect();
    let void: u64 = join_all(writers).into_iter().sum();
    drop(publisher);
    let whole = Outcome {
        received: total - void,
        skipped: 0,
        void,
        lag_events: 0,
        end: total + 1,
    };
    for account in join_all(readers) {
        assert_eq!(account, whole);
    }
}

#[test]
fn ten_subscribers_follow_one_publisher() {
    let total = 4 * EVENTS;
    let agreement = Arc::new(Agreement::new(1, total as usize));
    let (publisher, subscriber) = channel::<String>(128);
    let readers: Vec<_> = WAYS
        .iter()
        .map(|way| {
            let (mut subscriber, agreement, way) = (subscriber.clone(), Arc::clone(&agreement), *way);
            thread::spawn(move || follow(&mut subscriber, &agreement, way))
        })
        .collect();
    let mut number = 0;
    while number < total {
        if number % 7 == 0 {
            let batch: Vec<_> = (number..total.min(number + 20))
                .map(|number| String::identified(0, number))
                .collect();
            let seqs = publisher.publish_batch(batch);
            assert_eq!(seqs.start, number + 1);
            number = seqs.end - 1;
        } else {
            let seq = publisher.publish(String::identified(0, number));
            agreement.value(seq, (0, number));
            number += 1;
        }
    }
    drop(publisher);
    for account in join_all(readers) {
        assert_eq!((account.end, account.void), (total + 1, 0));
    }
}

/// Publishes until `stop` is set, and returns how many.
fn publish_until(publisher: Publisher<Sealed>, me: u64, stop: Arc<AtomicBool>) -> thread::JoinHandle<u64> {
    thread::spawn(move || {
        let mut number = 0;
        while !stop.load(Ordering::Relaxed) {
            publisher.publish(Sealed::new(me, number));
            number += 1;
        }
        number
    })
}

#[test]
fn subscribers_may_come_and_go_under_load() {
    const ROUNDS: u64 = if cfg!(miri) { 5 } else { 400 };
    let (publisher, subscriber) = channel::<Sealed>(50);
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..2)
        .map(|me| publish_until(publisher.clone(), me, Arc::clone(&stop)))
        .collect();
    let visitors: Vec<_> = (0..4)
        .map(|me| {
            let (publisher, mut subscriber) = (publisher.clone(), subscriber.clone());
            thread::spawn(move || {
                let mut rng = Rng::with_seed(me);
                for _ in 0..ROUNDS {
                    let next = publisher.next_seq();
                    subscriber = match rng.u64(..5) {
                        0 => publisher.subscribe(),
                        1 => publisher.subscribe_from(Start::Oldest),
                        2 => publisher.subscribe_from(Start::After(next.saturating_sub(1 + rng.u64(..200)))),
                        3 => subscriber.clone(),
                        _ => subscriber.resubscribe(),
                    };
                    visit(&mut subscriber, WAYS[rng.u64(..10) as usize], rng.u64(..120));
                }
            })
        })
        .collect();
    join_all(visitors);
    stop.store(true, Ordering::Relaxed);
    let published: u64 = join_all(writers).into_iter().sum();
    assert_eq!(publisher.stats().published, published);
    assert_eq!(publisher.subscriber_count(), 1);
}

/// Receives a few events. Completeness is not checked, because the seqs have no end.
fn visit(subscriber: &mut Subscriber<Sealed>, way: Way, enough: u64) {
    let start = subscriber.position();
    let before = subscriber.stats();
    let mut got = 0;
    while got < enough {
        match way {
            Way::TryBatch | Way::BlockingBatch | Way::FutureBatch => {
                if let Ok(mut batch) = subscriber.try_recv_batch(64) {
                    let held: Vec<_> = batch.by_ref().take((enough - got) as usize).collect();
                    held.iter().for_each(|value| assert!(value.open().0 < 2));
                }
            }
            Way::TryRef | Way::BlockingRef => drop(subscriber.recv_ref_blocking().map(|held| held.open())),
            _ => drop(subscriber.recv_blocking().map(|value| value.open())),
        }
        got += 1;
    }
    let after = subscriber.stats();
    let seen = after.received - before.received + after.skipped - before.skipped + after.void - before.void;
    assert_eq!(seen, subscriber.position() - start);
}

#[test]
fn every_value_is_dropped_once() {
    let counter = DropCounter::new();
    let next = Arc::new(AtomicU64::new(0));
    for capacity in [1, 4, 33] {
        let (publisher, subscriber) = channel(capacity);
        let writers: Vec<_> = (0..3)
            .map(|_| {
                let (publisher, counter, next) = (publisher.clone(), counter.clone(), Arc::clone(&next));
                thread::spawn(move || {
                    for turn in 0..EVENTS / 6 {
                        let id = next.fetch_add(1, Ordering::Relaxed);
                        if turn % 50 == 0 {
                            let batch: Vec<_> = (0..20).map(|_| counter.value(id)).collect();
                            publisher.publish_batch(batch);
                        } else {
                            publisher.publish(counter.value(id));
                        }
                    }
                })
            })
            .collect();
        let readers: Vec<_> = (0..4)
            .map(|me| {
                let mut subscriber = subscriber.clone();
                thread::spawn(move || {
                    let mut sum = 0u64;
                    loop {
                        match subscriber.try_recv_batch(1 + 16 * me) {
                            Ok(batch) => sum += batch.take(1 + 5 * me).map(|value| value.id()).sum::<u64>(),
                            Err(TryRecvError::Closed) => return sum,
                            Err(TryRecvError::Empty) => thread::yield_now(),
                            Err(TryRecvError::Lagged(_)) => {}
                        }
                        if let Ok(value) = subscriber.try_recv() {
                            sum += value.id();
                        }
                    }
                })
            })
            .collect();
        drop((publisher, subscriber));
        join_all(writers);
        join_all(readers);
        assert_eq!(counter.alive(), 0);
    }
    assert!(counter.created() >= EVENTS);
}
