//! The drop-in: values are dropped once, and are gone when the last receiver is.

mod common;

use common::census::{Census, Citizen};
use common::{join_all, must_end, must_panic, panic_as_told};
use doorbell::broadcast::{self, Sender};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

/// A listed difference: a value that everybody has read stays until its place is used again, or until the last receiver goes.
#[test]
fn a_read_value_lives_until_overwritten() {
    let census = Census::new();
    let (tx, mut rx) = broadcast::channel(4);
    for id in 0..100 {
        tx.send(census.citizen(id)).unwrap();
        assert_eq!(rx.try_recv().unwrap().id(), id);
        assert!(census.alive() <= 8, "twice the capacity");
    }
    assert_eq!(census.alive(), 8);
    drop(rx);
    assert_eq!(census.alive(), 0);
}

#[test]
fn unread_values_go_with_the_last_receiver() {
    let census = Census::new();
    for capacity in [1, 2, 3, 16, 1000] {
        for sent in [1, 2, 3, 5, 17, 1000, 4000] {
            let (tx, rx) = broadcast::channel(capacity);
            let other = tx.subscribe();
            for id in 0..sent {
                tx.send(census.citizen(id)).unwrap();
            }
            drop(rx);
            assert!(census.alive() > 0, "one receiver is left");
            drop(other);
            assert_eq!(census.alive(), 0, "capacity {capacity}, {sent} sent");
            assert_eq!(tx.len(), 0);
            assert_eq!(tx.send(census.citizen(0)).unwrap_err().0.id(), 0);
        }
    }
}

/// Releasing uses sequences, and nobody notices: a receiver that comes afterwards counts messages only.
#[test]
fn after_a_release_counts_are_exact() {
    let census = Census::new();
    let tx = Sender::new(4);
    for round in 0..50 {
        let mut rx = tx.subscribe();
        assert_eq!((rx.len(), tx.len()), (0, 0));
        for id in 0..round {
            tx.send(census.citizen(id)).unwrap();
        }
        assert_eq!(rx.len() as u64, round);
        assert_eq!(tx.len() as u64, round.min(4));
        if round > 4 {
            let lagged = broadcast::error::TryRecvError::Lagged(round - 4);
            assert_eq!(rx.try_recv().map(|citizen| citizen.id()), Err(lagged));
        }
        for id in round.saturating_sub(4)..round {
            assert_eq!(rx.try_recv().unwrap().id(), id);
        }
        drop(rx);
        assert_eq!(census.alive(), 0);
    }
}

/// The last receiver goes while others send: whichever comes last, nothing is left.
#[test]
fn the_last_receiver_goes_while_others_send() {
    must_end(|| {
        let census = Census::new();
        for round in 0..2000 {
            let (tx, rx) = broadcast::channel(1 << (round % 4));
            let start = Arc::new(Barrier::new(3));
            let senders: Vec<_> = (0..2)
                .map(|_| {
                    let (tx, census, start) = (tx.clone(), census.clone(), start.clone());
                    thread::spawn(move || {
                        start.wait();
                        let sent = (0..6).filter(|&id| tx.send(census.citizen(id)).is_ok());
                        sent.count()
                    })
                })
                .collect();
            start.wait();
            drop(rx);
            join_all(senders);
            assert_eq!(census.alive(), 0, "round {round}");
        }
    });
}

/// Receivers come and go while others send: each counts exactly, and at the end nothing is left.
#[test]
fn receivers_come_and_go_while_others_send() {
    must_end(|| {
        let census = Census::new();
        let (tx, _) = broadcast::channel(4);
        let threads: Vec<_> = (0..3)
            .map(|number| {
                let (tx, census) = (tx.clone(), census.clone());
                thread::spawn(move || {
                    for round in 0..3000 {
                        let mut rx = tx.subscribe();
                        drop(tx.send(census.citizen(round)));
                        let (mut received, mut skipped) = (0, 0);
                        let sent = rx.len() as u64;
                        assert!(sent > 0, "its own message at least");
                        while received + skipped < sent {
                            match rx.try_recv() {
                                Ok(citizen) => received += u64::from(citizen.id() < 3000),
                                Err(broadcast::error::TryRecvError::Lagged(count)) => skipped += count,
                                // Counted, and its publication is still under way on another thread.
                                Err(broadcast::error::TryRecvError::Empty) => thread::yield_now(),
                                Err(broadcast::error::TryRecvError::Closed) => panic!("thread {number} holds a sender"),
                            }
                        }
                    }
                })
            })
            .collect();
        join_all(threads);
        assert_eq!(tx.receiver_count(), 0);
        assert_eq!(census.alive(), 0);
    });
}

/// A value that uses its own channel when it is dropped.
#[derive(Clone)]
struct Meddler {
    tx: broadcast::WeakSender<Option<Meddler>>,
    drops: Arc<AtomicU64>,
}

impl Drop for Meddler {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
        if let Some(tx) = self.tx.upgrade() {
            let _refused = tx.send(None);
            drop(tx.subscribe());
        }
    }
}

#[test]
fn values_that_use_the_channel_when_they_are_dropped() {
    must_end(|| {
        let drops = Arc::new(AtomicU64::new(0));
        let (tx, rx) = broadcast::channel(2);
        for _ in 0..10 {
            let meddler = Meddler {
                tx: tx.downgrade(),
                drops: drops.clone(),
            };
            tx.send(Some(meddler)).unwrap_or_else(|_| panic!("there is a receiver"));
        }
        drop(rx);
        assert_eq!(drops.load(Ordering::Relaxed), 10);
        assert_eq!(tx.receiver_count(), 0);
    });
}

/// A value whose drop panics.
#[derive(Clone)]
struct Bomb(#[allow(dead_code, reason = "counts itself")] Arc<Citizen>);

impl Drop for Bomb {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic_as_told();
        }
    }
}

#[test]
fn drops_that_panic_lose_nothing() {
    let census = Census::new();
    let (tx, rx) = broadcast::channel(4);
    let closed = async { tx.closed().await };
    for id in 0..4 {
        assert!(tx.send(Bomb(Arc::new(census.citizen(id)))).is_ok());
    }
    must_panic(|| drop(rx));
    assert_eq!(census.alive(), 0, "all are dropped, whichever panicked");
    assert_eq!(tx.receiver_count(), 0);
    common::block_on(closed);
    let mut rx = tx.subscribe();
    drop(tx.send(Bomb(Arc::new(census.citizen(9)))));
    assert_eq!(rx.len(), 1);
    must_panic(|| drop(rx.try_recv()));
    must_panic(|| drop(rx));
    assert_eq!(census.alive(), 0);
}

/// What a weak sender keeps is nothing.
#[test]
fn weak_senders_keep_no_value() {
    let census = Census::new();
    let (tx, rx) = broadcast::channel(4);
    tx.send(census.citizen(1)).unwrap();
    let weak = tx.downgrade();
    drop((tx, rx));
    assert_eq!(census.alive(), 0);
    assert_eq!((weak.strong_count(), weak.weak_count()), (0, 1));
    assert!(weak.clone().upgrade().is_none());
}
