//! Subscribers that hold references and publishers that are stuck between claim and publication, while others continue for many laps.

mod audit;

use std::sync::{Arc, Barrier};
use std::thread;

use doorbell::ring::{Builder, OnLag, Publisher, Start, Subscriber, TryRecvError, channel};
use testkit::agreement::Agreement;
use testkit::sealed::Identified;
use testkit::sealed::Sealed;
use testkit::threads::join_all;

use crate::audit::{Way, follow, publish_all};

#[test]
fn held_references_stay_valid_for_many_laps() {
    const CAPACITY: u64 = 16;
    let (publisher, subscriber) = channel::<String>(CAPACITY as usize);
    for number in 0..CAPACITY {
        publisher.publish(String::identified(9, number));
    }
    let lapped = Arc::new(Barrier::new(4));
    let holders: Vec<_> = (0..3)
        .map(|me| {
            let (mut subscriber, publisher, lapped) = (
                publisher.subscribe_from(Start::Oldest),
                publisher.clone(),
                Arc::clone(&lapped),
            );
            thread::spawn(move || {
                let kept = if me == 0 {
                    let held = subscriber.try_recv_ref().unwrap();
                    lapped.wait();
                    while publisher.next_seq() < 60 * CAPACITY {
                        assert_eq!(held.identity(), (9, 0));
                    }
                    1
                } else {
                    let held: Vec<_> = subscriber.try_recv_batch(3 * me).unwrap().collect();
                    lapped.wait();
                    while publisher.next_seq() < 60 * CAPACITY {
                        for (number, value) in (0..).zip(&held) {
                            assert_eq!(value.identity(), (9, number));
                        }
                    }
                    held.len() as u64
                };
                lapped.wait();
                let Err(TryRecvError::Lagged(lagged)) = subscriber.try_recv() else {
                    panic!("the subscriber must lag");
                };
                assert_eq!(lagged.first_missed, 1 + kept);
                let stats = subscriber.stats();
                assert_eq!(stats.received, kept);
                assert_eq!(stats.received + stats.skipped + stats.void, subscriber.position() - 1);
            })
        })
        .collect();
    lapped.wait();
    let writers: Vec<_> = (0..2)
        .map(|me| {
            let publisher = publisher.clone();
            thread::spawn(move || {
                for number in 0..40 * CAPACITY {
                    publisher.publish(String::identified(me, number));
                }
            })
        })
        .collect();
    join_all(writers);
    lapped.wait();
    join_all(holders);
    drop(subscriber);
}

#[test]
fn publishers_stuck_in_a_closure_hold_up_nobody() {
    const CAPACITY: u64 = 8;
    for stuck in [1, 2, 5, 8, 11] {
        let (publisher, mut first) = channel::<Sealed>(CAPACITY as usize);
        let claimed = Arc::new(Barrier::new(stuck + 1));
        let release = Arc::new(Barrier::new(stuck + 1));
        let stalled: Vec<_> = (0..stuck as u64)
            .map(|me| {
                let (publisher, claimed, release) = (publisher.clone(), Arc::clone(&claimed), Arc::clone(&release));
                thread::spawn(move || {
                    publisher.publish_with(|_| {
                        claimed.wait();
                        release.wait();
                        Sealed::new(100 + me, 0)
                    })
                })
            })
            .collect();
        claimed.wait();
        let stuck = stuck as u64;
        // The stuck publishers own seqs 1 to `stuck`; the others continue for many laps.
        assert_eq!(publisher.next_seq(), stuck + 1);
        assert_eq!(first.try_recv(), Err(TryRecvError::Empty));
        let agreement = Arc::new(Agreement::new(1, (stuck + 2 * 50 * CAPACITY) as usize));
        let mut late = publisher.subscribe_from(Start::After(stuck));
        let reader = {
            let agreement = Arc::clone(&agreement);
            thread::spawn(move || follow(&mut late, &agreement, Way::BlockingBatch))
        };
        let writers: Vec<_> = (0..2)
            .map(|me| {
                let (publisher, agreement) = (publisher.clone(), Arc::clone(&agreement));
                thread::spawn(move || publish_all(&publisher, me, 50 * CAPACITY, &agreement))
            })
            .collect();
        join_all(writers);
        let end = publisher.next_seq();
        assert_eq!(end, stuck + 1 + 2 * 50 * CAPACITY);
        match first.try_recv() {
            Err(TryRecvError::Lagged(lagged)) => {
                assert_eq!((lagged.first_missed, lagged.resume_at), (1, end - CAPACITY + 1))
            }
            // The seq that makes seq 1 lost is itself unfinished: seq 1 may be reported lost or `Empty`.
            Err(TryRecvError::Empty) if stuck > CAPACITY => {}
            other => panic!("{other:?} instead of lag"),
        }
        let mut fresh = publisher.subscribe_from(Start::Oldest);
        assert_eq!(fresh.position(), end - CAPACITY);
        let rest = drain(&mut fresh);
        release.wait();
        let seqs = join_all(stalled);
        assert_eq!(seqs.iter().sum::<u64>(), stuck * (stuck + 1) / 2);
        // Their old values are never delivered.
        let mut again = publisher.subscribe_from(Start::Oldest);
        assert_eq!(drain(&mut again), rest);
        assert!(rest.iter().all(|(publisher, _)| *publisher < 100));
        assert_eq!(drain(&mut fresh), []);
        assert!(matches!(first.try_recv(), Err(TryRecvError::Lagged(_))) || first.position() > stuck);
        drop(publisher);
        let account = reader.join().unwrap();
        assert_eq!(account.end, end);
    }
}

fn drain(subscriber: &mut Subscriber<Sealed>) -> Vec<(u64, u64)> {
    std::iter::from_fn(|| match subscriber.try_recv() {
        Ok(value) => Some(value.open()),
        Err(TryRecvError::Lagged(lagged)) => panic!("{lagged:?}"),
        Err(_) => None,
    })
    .collect()
}

/// Every subscriber can read all of the newest events after `publish` ran for many laps beside a held reference.
fn newest_beside_a_held_reference(what: &str, publish: impl Fn(&Publisher<u64>, u64)) {
    for capacity in [1u64, 2, 3, 5, 8, 13, 64, 100] {
        let builder = Builder::new(capacity as usize).on_lag(OnLag::Oldest);
        let (publisher, mut holder) = builder.channel::<u64>().unwrap();
        let mut follower = holder.clone();
        publisher.publish(1);
        publisher.publish(2);
        let held = loop {
            if let Ok(held) = holder.try_recv_ref() {
                break *held;
            }
        };
        assert_eq!(held, 2 - u64::from(capacity > 1));
        publish(&publisher, 60 * capacity);
        let next = publisher.next_seq();
        for mut reader in [
            publisher.subscribe_from(Start::Oldest),
            follower.clone(),
            holder.clone(),
        ] {
            let mut got = Vec::new();
            loop {
                match reader.try_recv_seq() {
                    Ok((seq, value)) => {
                        assert_eq!(seq, value);
                        got.push(seq);
                    }
                    Err(TryRecvError::Lagged(lagged)) => assert_eq!(lagged.resume_at, next - capacity, "{what}"),
                    Err(_) => break,
                }
            }
            assert_eq!(
                got,
                (next - capacity..next).collect::<Vec<_>>(),
                "{what}, capacity {capacity}"
            );
        }
        assert!(matches!(follower.try_recv(), Err(TryRecvError::Lagged(lagged)) if lagged.first_missed == 1));
    }
}

#[test]
fn the_newest_events_are_readable_after_one_long_batch() {
    newest_beside_a_held_reference("one batch", |publisher, count| {
        let values: Vec<_> = (3..3 + count).collect();
        publisher.publish_batch(values);
    });
}

#[test]
fn the_newest_events_are_readable_after_publishes_inside_a_closure() {
    newest_beside_a_held_reference("inside a closure", |publisher, count| {
        publisher.publish_with(|seq| {
            for inner in seq + 1..seq + count {
                assert_eq!(publisher.publish(inner), inner);
            }
            seq
        });
    });
}

#[test]
fn the_newest_events_are_readable_after_publishes_inside_an_iterator() {
    newest_beside_a_held_reference("inside an iterator", |publisher, count| {
        let first = publisher.next_seq();
        let inner = publisher.clone();
        publisher.publish_batch((0..2u32).map(|index| {
            for _ in 0..count / 2 {
                let seq = inner.next_seq();
                inner.publish(seq);
            }
            first + u64::from(index)
        }));
    });
}

#[test]
fn the_newest_events_are_readable_after_single_publishes() {
    newest_beside_a_held_reference("one by one", |publisher, count| {
        for seq in 3..3 + count {
            assert_eq!(publisher.publish_with(|seq| seq), seq);
        }
    });
}
