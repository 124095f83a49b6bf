//! The drop-in drops every value once, and retains none after its last receiver was dropped.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use doorbell::broadcast::{self, Sender};
use testkit::panics::{must_panic, planned_panic};
use testkit::threads::{block_on, join_all, must_end};
use testkit::tracked::{DropCounter, Tracked};

/// A listed difference: a value that every receiver has read lives until its slot is reused, or until the last receiver is dropped.
#[test]
fn a_read_value_lives_until_overwritten() {
    let counter = DropCounter::new();
    let (tx, mut rx) = broadcast::channel(4);
    for id in 0..100 {
        tx.send(counter.value(id)).unwrap();
        assert_eq!(rx.try_recv().unwrap().id(), id);
        assert!(counter.alive() <= 8, "twice the capacity");
    }
    assert_eq!(counter.alive(), 8);
    drop(rx);
    assert_eq!(counter.alive(), 0);
}

#[test]
fn unread_values_are_dropped_with_the_last_receiver() {
    let counter = DropCounter::new();
    for capacity in [1, 2, 3, 16, 1000] {
        for sent in [1, 2, 3, 5, 17, 1000, 4000] {
            let (tx, rx) = broadcast::channel(capacity);
            let other = tx.subscribe();
            for id in 0..sent {
                tx.send(counter.value(id)).unwrap();
            }
            drop(rx);
            assert!(counter.alive() > 0, "one receiver is left");
            drop(other);
            assert_eq!(counter.alive(), 0, "capacity {capacity}, {sent} sent");
            assert_eq!(tx.len(), 0);
            assert_eq!(tx.send(counter.value(0)).unwrap_err().0.id(), 0);
        }
    }
}

/// A release uses seqs, but a later receiver counts messages only.
#[test]
fn counts_are_exact_after_a_release() {
    let counter = DropCounter::new();
    let tx = Sender::new(4);
    for round in 0..50 {
        let mut rx = tx.subscribe();
        assert_eq!((rx.len(), tx.len()), (0, 0));
        for id in 0..round {
            tx.send(counter.value(id)).unwrap();
        }
        assert_eq!(rx.len() as u64, round);
        assert_eq!(tx.len() as u64, round.min(4));
        if round > 4 {
            let lagged = broadcast::error::TryRecvError::Lagged(round - 4);
            assert_eq!(rx.try_recv().map(|tracked| tracked.id()), Err(lagged));
        }
        for id in round.saturating_sub(4)..round {
            assert_eq!(rx.try_recv().unwrap().id(), id);
        }
        drop(rx);
        assert_eq!(counter.alive(), 0);
    }
}

/// The last receiver is dropped while others send: whichever ends last, no value is left.
#[test]
fn no_value_is_left_when_the_last_receiver_leaves_during_sends() {
    must_end(|| {
        let counter = DropCounter::new();
        for round in 0..2000 {
            let (tx, rx) = broadcast::channel(1 << (round % 4));
            let start = Arc::new(Barrier::new(3));
            let senders: Vec<_> = (0..2)
                .map(|_| {
                    let (tx, counter, start) = (tx.clone(), counter.clone(), start.clone());
                    thread::spawn(move || {
                        start.wait();
                        let sent = (0..6).filter(|&id| tx.send(counter.value(id)).is_ok());
                        sent.count()
                    })
                })
                .collect();
            start.wait();
            drop(rx);
            join_all(senders);
            assert_eq!(counter.alive(), 0, "round {round}");
        }
    });
}

/// Receivers come and go while others send: each counts exactly, and at the end no value is left.
#[test]
fn receivers_that_come_and_go_count_exactly() {
    must_end(|| {
        let counter = DropCounter::new();
        let (tx, _) = broadcast::channel(4);
        let threads: Vec<_> = (0..3)
            .map(|number| {
                let (tx, counter) = (tx.clone(), counter.clone());
                thread::spawn(move || {
                    for round in 0..3000 {
                        let mut rx = tx.subscribe();
                        drop(tx.send(counter.value(round)));
                        let (mut received, mut skipped) = (0, 0);
                        let sent = rx.len() as u64;
                        assert!(sent > 0, "it has sent no message");
                        while received + skipped < sent {
                            match rx.try_recv() {
                                Ok(tracked) => received += u64::from(tracked.id() < 3000),
                                Err(broadcast::error::TryRecvError::Lagged(count)) => skipped += count,
                                // `len` counts it, but another thread is still publishing it.
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
        assert_eq!(counter.alive(), 0);
    });
}

/// A value that uses its own channel when it is dropped.
#[derive(Clone)]
struct UsesChannelInDrop {
    tx: broadcast::WeakSender<Option<UsesChannelInDrop>>,
    drops: Arc<AtomicU64>,
}

impl Drop for UsesChannelInDrop {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
        if let Some(tx) = self.tx.upgrade() {
            let _refused = tx.send(None);
            drop(tx.subscribe());
        }
    }
}

#[test]
fn values_may_use_the_channel_when_dropped() {
    must_end(|| {
        let drops = Arc::new(AtomicU64::new(0));
        let (tx, rx) = broadcast::channel(2);
        for _ in 0..10 {
            let value = UsesChannelInDrop {
                tx: tx.downgrade(),
                drops: drops.clone(),
            };
            tx.send(Some(value)).unwrap_or_else(|_| panic!("there is a receiver"));
        }
        drop(rx);
        assert_eq!(drops.load(Ordering::Relaxed), 10);
        assert_eq!(tx.receiver_count(), 0);
    });
}

/// A value whose drop panics.
#[derive(Clone)]
struct PanicsInDrop(#[allow(dead_code, reason = "counts itself")] Arc<Tracked>);

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        if !thread::panicking() {
            planned_panic();
        }
    }
}

#[test]
fn every_value_is_dropped_although_drops_panic() {
    let counter = DropCounter::new();
    let (tx, rx) = broadcast::channel(4);
    let closed = async { tx.closed().await };
    for id in 0..4 {
        assert!(tx.send(PanicsInDrop(Arc::new(counter.value(id)))).is_ok());
    }
    must_panic(|| drop(rx));
    assert_eq!(counter.alive(), 0, "every value is dropped, whichever drop panicked");
    assert_eq!(tx.receiver_count(), 0);
    block_on(closed);
    let mut rx = tx.subscribe();
    drop(tx.send(PanicsInDrop(Arc::new(counter.value(9)))));
    assert_eq!(rx.len(), 1);
    must_panic(|| drop(rx.try_recv()));
    must_panic(|| drop(rx));
    assert_eq!(counter.alive(), 0);
}

/// A weak sender keeps no value alive.
#[test]
fn weak_senders_keep_no_value_alive() {
    let counter = DropCounter::new();
    let (tx, rx) = broadcast::channel(4);
    tx.send(counter.value(1)).unwrap();
    let weak = tx.downgrade();
    drop((tx, rx));
    assert_eq!(counter.alive(), 0);
    assert_eq!((weak.strong_count(), weak.weak_count()), (0, 1));
    assert!(weak.clone().upgrade().is_none());
}
