//! The numbered problems that users of other channels reported, for the drop-in. `field_reports.rs` has them for the ring.
//! (R15 is a documentation test: `src/compile_fail.rs`.)

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::thread;

use doorbell::broadcast::error::{RecvError, TryRecvError};
use doorbell::broadcast::{self, Sender, channel};
use futures::StreamExt;
use testkit::alloc::{CountingAllocator, live_bytes};
#[cfg(feature = "tokio")]
use testkit::panics::panic_message;
use testkit::panics::{must_panic, planned_panic};
use testkit::threads::{block_on, join_all, must_end};
use testkit::wakers::{WakeCounter, callback_waker};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Resubscribing on a closed channel gives a receiver that returns `Closed` at once.
#[test]
fn r01_resubscribing_after_close_returns_closed() {
    must_end(|| {
        let (tx, mut rx) = channel(4);
        tx.send(1).unwrap();
        drop(tx);
        let mut late = rx.resubscribe();
        assert_eq!(block_on(late.recv()), Err(RecvError::Closed));
        assert_eq!(late.try_recv(), Err(TryRecvError::Closed));
        assert_eq!(late.blocking_recv(), Err(RecvError::Closed));
        assert_eq!(block_on(rx.recv()), Ok(1));
        assert_eq!(block_on(rx.recv()), Err(RecvError::Closed));
    });
}

/// One receiver is dropped while it waits; the others get every message.
#[test]
fn r02_dropping_a_waiting_receiver_loses_no_message() {
    let (tx, first) = channel(4);
    let (mut second, mut third) = (tx.subscribe(), tx.subscribe());
    let mut waits: Vec<_> = [first, tx.subscribe()]
        .into_iter()
        .map(|mut rx| Box::pin(async move { rx.recv().await }))
        .collect();
    let wake_counter = WakeCounter::new();
    let waker = wake_counter.waker();
    for wait in &mut waits {
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    let mut wait = pin!(second.recv());
    assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waits.remove(0));
    assert_eq!(tx.send(1).unwrap(), 3);
    drop(waits);
    assert_eq!(wait.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Ready(Ok(1)));
    assert_eq!(tx.send(2).unwrap(), 2);
    assert_eq!((third.try_recv(), third.try_recv()), (Ok(1), Ok(2)));
}

/// Closing a full channel overwrites nothing.
#[test]
fn r03_closing_a_full_channel_overwrites_nothing() {
    let (tx, mut rx) = channel(1);
    tx.send(1).unwrap();
    drop(tx);
    assert_eq!(rx.try_recv(), Ok(1));
    assert_eq!(rx.try_recv(), Err(TryRecvError::Closed));
}

/// Lag of exactly k rings, and of one message less and more, is counted exactly.
#[test]
fn r04_lag_of_whole_rings_is_exact() {
    for capacity in [1_u64, 2, 4, 64] {
        for rings in 1..5 {
            for beyond in [-1_i64, 0, 1] {
                let sent = (capacity * rings).saturating_add_signed(beyond);
                let (tx, mut rx) = channel(capacity as usize);
                for number in 0..sent {
                    tx.send(number).unwrap();
                }
                let skipped = sent.saturating_sub(capacity);
                if skipped > 0 {
                    assert_eq!(rx.try_recv(), Err(TryRecvError::Lagged(skipped)));
                }
                for number in skipped..sent {
                    assert_eq!(rx.try_recv(), Ok(number));
                }
                assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
            }
        }
    }
}

/// A loop over the stream survives lag.
#[test]
fn r07_loops_survive_a_lag() {
    let (tx, rx) = channel(4);
    for number in 0..10 {
        tx.send(number).unwrap();
    }
    drop(tx);
    let items: Vec<_> = block_on(rx.into_stream().collect());
    let (received, lags): (Vec<_>, Vec<_>) = items.into_iter().partition(Result::is_ok);
    assert_eq!(received, [Ok(6), Ok(7), Ok(8), Ok(9)]);
    assert_eq!(
        lags,
        [Err(broadcast::wrappers::errors::BroadcastStreamRecvError::Lagged(6))]
    );
}

/// With many parked receivers, a send wakes each of them once.
#[test]
fn r08_each_send_wakes_each_waiter_once() {
    let tx = Sender::new(64);
    let mut receivers: Vec<_> = (0..50).map(|_| tx.subscribe()).collect();
    let wake_counter = WakeCounter::new();
    let waker = wake_counter.waker();
    let mut waits: Vec<_> = receivers.iter_mut().map(|rx| Box::pin(rx.recv())).collect();
    for wait in &mut waits {
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    for number in 0..1000 {
        tx.send(number).unwrap();
    }
    assert_eq!(wake_counter.wakes(), 50, "only the first send finds receivers to wake");
}

/// A task that always finds a message still lets the others on its runtime run.
#[cfg(feature = "tokio")]
#[test]
fn r09_a_busy_receiver_yields() {
    must_end(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (tx, mut rx) = channel(8);
            let stop = Arc::new(AtomicU64::new(0));
            let stopped = stop.clone();
            let busy = tokio::spawn(async move {
                let mut received = 0_u64;
                while stopped.load(Ordering::Relaxed) == 0 {
                    tx.send(received).unwrap();
                    assert_eq!(rx.recv().await, Ok(received));
                    received += 1;
                }
                received
            });
            tokio::spawn(async move { stop.store(1, Ordering::Relaxed) })
                .await
                .unwrap();
            assert!(busy.await.unwrap() > 0);
        });
    });
}

/// As in tokio, a blocking receive panics inside a task.
#[cfg(feature = "tokio")]
#[test]
fn blocking_recv_panics_inside_a_task() {
    let (tx, mut rx) = channel(8);
    tx.send(1).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let message = runtime.block_on(async { panic_message(|| rx.blocking_recv()) });
    assert!(!message.is_empty());
    let (received, mut rx) = runtime
        .block_on(async { tokio::task::spawn_blocking(move || (rx.blocking_recv(), rx)).await })
        .unwrap();
    assert_eq!(received, Ok(1), "a thread of the runtime that may block");
    drop(tx);
    assert_eq!(rx.blocking_recv(), Err(RecvError::Closed));
}

/// A million cancelled `recv` and `closed` futures do not grow memory.
#[test]
fn r10_cancelled_receives_leak_no_memory() {
    let (tx, mut rx) = channel::<u64>(8);
    let wake_counter = WakeCounter::new();
    let waker = wake_counter.waker();
    let mut before = 0;
    for round in 0..500_000 {
        let mut wait = pin!(rx.recv());
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let mut closed = pin!(tx.closed());
        assert!(closed.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        if round == 100 {
            before = live_bytes();
        }
    }
    assert_eq!(live_bytes() - before, 0);
    drop(waker);
    assert_eq!(Arc::strong_count(&wake_counter), 1);
}

/// Wakers may send and subscribe, when woken and when dropped.
#[test]
fn r11_wakers_may_use_the_channel() {
    must_end(|| {
        let tx = Sender::new(64);
        let wakes = Arc::new(AtomicU64::new(0));
        let mut receivers: Vec<_> = (0..5).map(|_| tx.subscribe()).collect();
        let mut waits = Vec::new();
        for rx in &mut receivers {
            let (on_wake, on_drop, wakes) = (tx.clone(), tx.clone(), wakes.clone());
            let waker = callback_waker(
                move || {
                    on_wake.send(100).unwrap();
                    drop(on_wake.subscribe());
                    wakes.fetch_add(1, Ordering::Relaxed);
                },
                move || {
                    on_drop.send(200).unwrap();
                    drop(on_drop.subscribe());
                },
            );
            let mut wait = Box::pin(rx.recv());
            assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            waits.push(wait);
        }
        tx.send(1).unwrap();
        assert_eq!(wakes.load(Ordering::Relaxed), 5, "all are woken within the send");
        for wait in waits {
            assert_eq!(block_on(wait), Ok(1));
        }
    });
}

/// A message whose drop sends another, while the sender exists.
#[derive(Clone)]
struct SendsInDrop(Option<(broadcast::WeakSender<SendsInDrop>, Arc<AtomicU64>)>);

impl Drop for SendsInDrop {
    fn drop(&mut self) {
        if let Some((tx, drops)) = self.0.take() {
            drops.fetch_add(1, Ordering::Relaxed);
            if let Some(tx) = tx.upgrade() {
                let _refused = tx.send(SendsInDrop(None));
            }
        }
    }
}

#[test]
fn r12_a_message_may_send_when_dropped() {
    must_end(|| {
        let drops = Arc::new(AtomicU64::new(0));
        let (tx, rx) = channel(2);
        for _ in 0..100 {
            let message = SendsInDrop(Some((tx.downgrade(), drops.clone())));
            assert!(tx.send(message).is_ok());
        }
        drop(rx);
        assert_eq!(drops.load(Ordering::Relaxed), 100);
    });
}

/// Receivers that lag far behind are dropped while others keep sending.
#[test]
fn r13_lagging_receivers_may_be_dropped_under_load() {
    must_end(|| {
        let (tx, keeps_open) = channel(16);
        let senders: Vec<_> = (0..2)
            .map(|_| {
                let tx = tx.clone();
                thread::spawn(move || {
                    for number in 0..100_000_u64 {
                        tx.send(number).unwrap();
                    }
                })
            })
            .collect();
        let droppers: Vec<_> = (0..2)
            .map(|_| {
                let tx = tx.clone();
                thread::spawn(move || {
                    for round in 0..2_000 {
                        let mut rx = tx.subscribe();
                        if round % 2 == 0 {
                            thread::yield_now();
                            let _whatever = rx.try_recv();
                        }
                        drop(rx);
                    }
                })
            })
            .collect();
        join_all(droppers);
        join_all(senders);
        assert_eq!(keeps_open.len(), 200_000);
        assert_eq!(tx.receiver_count(), 1);
    });
}

/// Its clone panics when it is odd.
#[derive(Debug, PartialEq)]
struct Odd(u64);

impl Clone for Odd {
    fn clone(&self) -> Self {
        if self.0 % 2 == 1 {
            planned_panic();
        }
        Self(self.0)
    }
}

/// As in tokio, a message whose clone panicked counts as received. Other receivers are not affected.
#[test]
fn r14_a_clone_that_panics_has_received_its_message() {
    let (tx, mut rx) = channel(8);
    let mut stream = tx.subscribe().into_stream();
    let mut blocking = tx.subscribe();
    for number in 0..4 {
        tx.send(Odd(number)).unwrap();
    }
    assert_eq!(rx.try_recv(), Ok(Odd(0)));
    must_panic(|| rx.try_recv());
    assert_eq!(rx.len(), 2);
    assert_eq!(block_on(rx.recv()), Ok(Odd(2)));
    must_panic(|| block_on(rx.recv()));
    assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(block_on(stream.next()), Some(Ok(Odd(0))));
    must_panic(|| block_on(stream.next()));
    assert_eq!(block_on(stream.next()), Some(Ok(Odd(2))));
    assert_eq!(blocking.blocking_recv(), Ok(Odd(0)));
    must_panic(|| blocking.blocking_recv());
    assert_eq!(blocking.blocking_recv(), Ok(Odd(2)));
    drop(tx.send(Odd(4)));
    assert_eq!(rx.try_recv(), Ok(Odd(4)));
}
