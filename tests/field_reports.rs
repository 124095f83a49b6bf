//! Numbered problems that users of other channels reported. (R15 is a documentation test: `src/compile_fail.rs`.)

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;

use doorbell::ring::{
    Builder, Lagged, MAX_SEQ, OnLag, RecvError, Start, Subscriber, TryRecvError, WeakPublisher, channel,
};
use futures::StreamExt;
use testkit::alloc::{CountingAllocator, live_bytes};
use testkit::panics::{must_panic, planned_panic};
use testkit::threads::{block_on, eventually, join_all, must_end};
use testkit::tracked::{DropCounter, Tracked};
use testkit::wakers::{WakeCounter, callback_waker};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Resubscribing on a channel without publishers returns `Closed` at once.
#[test]
fn r01_resubscribing_after_close_returns_closed() {
    must_end(|| {
        let (publisher, subscriber) = channel::<u64>(4);
        publisher.publish(1);
        drop(publisher);
        let mut again = subscriber.resubscribe();
        assert_eq!(block_on(again.recv()), Err(RecvError::Closed));
        assert_eq!(again.recv_blocking(), Err(RecvError::Closed));
        assert_eq!(again.try_recv(), Err(TryRecvError::Closed));
    });
}

/// Dropping a waiting subscriber loses no other subscriber's message.
#[test]
fn r02_dropping_a_waiting_receiver_loses_no_message() {
    must_end(|| {
        let (publisher, subscriber) = channel(64);
        let waiters: Vec<_> = (0..6)
            .map(|_| {
                let mut subscriber = subscriber.clone();
                thread::spawn(move || {
                    (0..50)
                        .map(|_| subscriber.recv_blocking().unwrap())
                        .collect::<Vec<u64>>()
                })
            })
            .collect();
        for value in 0..50 {
            let mut leaving: Vec<_> = (0..3).map(|_| publisher.subscribe()).collect();
            for one in &mut leaving {
                assert!(one.poll_recv(&mut Context::from_waker(Waker::noop())).is_pending());
            }
            leaving.pop();
            publisher.publish(value);
        }
        let all: Vec<u64> = (0..50).collect();
        assert!(join_all(waiters).into_iter().all(|got| got == all));
    });
}

/// Closing a full channel of capacity 1 overwrites nothing.
#[test]
fn r03_closing_a_full_channel_overwrites_nothing() {
    let (publisher, mut subscriber) = channel(1);
    publisher.publish("only");
    drop(publisher);
    assert_eq!(subscriber.try_recv(), Ok("only"));
    assert_eq!(subscriber.try_recv(), Err(TryRecvError::Closed));
    assert_eq!(subscriber.stats().lag_events, 0);
}

/// Lag is exact after exactly k whole rings, for the capacity and for any size that the storage may have.
#[test]
fn r04_lag_of_whole_rings_is_exact() {
    for capacity in 1..=17u64 {
        for ring in capacity..=2 * capacity {
            for laps in [1, 2, 3, 8] {
                let builder = Builder::new(capacity as usize).on_lag(OnLag::Oldest);
                let (publisher, mut subscriber) = builder.channel().unwrap();
                publisher.publish(1);
                assert_eq!(subscriber.try_recv(), Ok(1));
                let behind = ring * laps;
                for seq in 2..2 + behind {
                    publisher.publish(seq);
                }
                if behind > capacity {
                    let skipped = behind - capacity;
                    let lagged = Lagged {
                        skipped,
                        first_missed: 2,
                        resume_at: 2 + skipped,
                    };
                    assert_eq!(subscriber.try_recv(), Err(TryRecvError::Lagged(lagged)));
                }
                let expected = 2 + behind - capacity.min(behind);
                assert_eq!(subscriber.try_recv_seq(), Ok((expected, expected)));
            }
        }
    }
}

/// A claimed, unfinished seq is `Empty` until p + capacity is published.
#[test]
fn r05_an_unfinished_seq_is_empty_until_it_is_lost() {
    for capacity in [1, 2, 3, 8u64] {
        let (publisher, mut subscriber) = channel::<u64>(capacity as usize);
        let inner = publisher.clone();
        publisher.publish_with(|seq| {
            for number in 1..capacity {
                inner.publish(number);
                assert_eq!(
                    subscriber.try_recv(),
                    Err(TryRecvError::Empty),
                    "only {number} after {seq}"
                );
            }
            assert_eq!(inner.publish(capacity), seq + capacity);
            assert!(matches!(subscriber.try_recv(), Err(TryRecvError::Lagged(lagged)) if lagged.first_missed == seq));
            0
        });
        assert_eq!(subscriber.stats().skipped, subscriber.position() - 1);
    }
}

/// Near the last seq and where laps exceed 32 bits. `seq_wraparound.rs` covers every boundary.
#[test]
fn r06_counters_work_near_their_limits() {
    for first in [MAX_SEQ - 30, (1 << 32) * 8 - 5, (1 << 61) - 5, u64::from(u32::MAX) - 3] {
        let (publisher, mut subscriber) = Builder::new(8)
            .on_lag(OnLag::Oldest)
            .first_seq(first)
            .channel()
            .unwrap();
        let mut never = publisher.subscribe_from(Start::After(u64::MAX));
        for seq in first..first + 20 {
            assert_eq!(publisher.publish(seq), seq);
        }
        let lagged = Lagged {
            skipped: 12,
            first_missed: first,
            resume_at: first + 12,
        };
        assert_eq!(subscriber.try_recv(), Err(TryRecvError::Lagged(lagged)));
        let got: Vec<_> = subscriber.try_iter().map(Result::unwrap).collect();
        assert_eq!(got, (first + 12..first + 20).collect::<Vec<_>>());
        assert_eq!(never.try_recv(), Err(TryRecvError::Empty));
        drop(publisher);
        assert_eq!(subscriber.try_recv(), Err(TryRecvError::Closed));
        assert_eq!(never.try_recv(), Err(TryRecvError::Closed));
    }
}

/// The obvious loops survive a lag: iterator and stream report it and continue; `recv_lossy` counts it.
#[test]
fn r07_loops_survive_a_lag() {
    must_end(|| {
        let (publisher, subscriber) = Builder::new(4).on_lag(OnLag::Oldest).channel().unwrap();
        for value in 1..=10u64 {
            publisher.publish(value);
        }
        drop(publisher);
        let lagged = Err(Lagged {
            skipped: 6,
            first_missed: 1,
            resume_at: 7,
        });
        let expected = [lagged, Ok(7), Ok(8), Ok(9), Ok(10)];
        assert_eq!(subscriber.clone().iter().collect::<Vec<_>>(), expected);
        assert_eq!(subscriber.clone().try_iter().collect::<Vec<_>>(), expected);
        assert_eq!(block_on(subscriber.clone().into_stream().collect::<Vec<_>>()), expected);
        let mut lossy = subscriber;
        let mut got = Vec::new();
        while let Some(value) = block_on(lossy.recv_lossy()) {
            got.push(value);
        }
        assert_eq!(got, [7, 8, 9, 10]);
        assert_eq!((lossy.stats().skipped, lossy.stats().lag_events), (6, 1));
    });
}

/// However many subscribers wait, a publish wakes at most two, and none is woken twice before it runs.
#[test]
fn r08_a_publish_wakes_a_few_of_many_parked() {
    for count in [40, 400] {
        let (publisher, subscriber) = Builder::new(1_024).wake_watchdog(false).channel::<u64>().unwrap();
        let wake_counter = WakeCounter::new();
        let waker = wake_counter.waker();
        let mut waiting: Vec<_> = (0..count).map(|_| subscriber.clone()).collect();
        for waiting in &mut waiting {
            assert!(waiting.poll_recv(&mut Context::from_waker(&waker)).is_pending());
        }
        let mut before = 0;
        for value in 0..500 {
            publisher.publish(value);
            let wakes = wake_counter.wakes();
            assert!(wakes - before <= 2, "one publish woke {} waiters", wakes - before);
            before = wakes;
        }
        assert!(before <= count, "{before} wake-ups of {count} waiters that never ran");
        for waiting in &mut waiting {
            assert_eq!(waiting.poll_recv(&mut Context::from_waker(&waker)), Poll::Ready(Ok(0)));
        }
        assert_eq!(wake_counter.wakes(), count);
    }
}

/// A task that always finds an event still lets the others on its runtime run.
#[cfg(feature = "tokio")]
#[test]
fn r09_a_busy_receiver_yields() {
    must_end(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (publisher, mut subscriber) = channel::<u64>(8);
            let stop = Arc::new(AtomicBool::new(false));
            let stopped = Arc::clone(&stop);
            let busy = tokio::spawn(async move {
                let mut received = 0u64;
                while !stopped.load(Ordering::Relaxed) {
                    publisher.publish(received);
                    assert_eq!(subscriber.recv().await, Ok(received));
                    received += 1;
                }
                received
            });
            let other = tokio::spawn(async move {
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                stop.store(true, Ordering::Relaxed);
            });
            other.await.unwrap();
            assert!(busy.await.unwrap() > 0);
        });
    });
}

/// A million cancelled receives do not grow memory.
#[test]
fn r10_cancelled_receives_leak_no_memory() {
    const ROUNDS: u64 = if cfg!(miri) { 100 } else { 500_000 };
    let (publisher, mut subscriber) = channel::<u64>(8);
    let wake_counter = WakeCounter::new();
    let waker = wake_counter.waker();
    let mut before = 0;
    for round in 0..ROUNDS {
        drop(subscriber.recv());
        let mut wait = pin!(subscriber.recv());
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        if round == 100 {
            before = live_bytes();
        }
    }
    assert_eq!(live_bytes() - before, 0);
    drop(waker);
    assert_eq!(Arc::strong_count(&wake_counter), 1);
    publisher.publish(1);
    assert_eq!(subscriber.try_recv(), Ok(1));
}

/// Wakers may publish and subscribe, when woken and when dropped.
#[test]
fn r11_wakers_may_use_the_channel() {
    must_end(|| {
        let (publisher, subscriber) = channel::<u64>(64);
        let wakes = Arc::new(AtomicU64::new(0));
        let mut waiting: Vec<_> = (0..5).map(|_| subscriber.clone()).collect();
        for waiting in &mut waiting {
            let (on_wake, on_drop, wakes) = (publisher.clone(), publisher.clone(), Arc::clone(&wakes));
            let waker = callback_waker(
                move || {
                    on_wake.publish(100);
                    drop(on_wake.subscribe());
                    wakes.fetch_add(1, Ordering::SeqCst);
                },
                move || {
                    on_drop.publish(200);
                    drop(on_drop.subscribe_from(Start::Oldest));
                },
            );
            assert!(waiting.poll_recv(&mut Context::from_waker(&waker)).is_pending());
        }
        publisher.publish(1);
        eventually("all are woken", || wakes.load(Ordering::SeqCst) == 5);
        for waiting in &mut waiting {
            assert_eq!(waiting.try_recv(), Ok(1));
        }
    });
}

/// Publishes another message when it is dropped, if `next` is set.
struct PublishesInDrop {
    _tracked: Tracked,
    next: Mutex<Option<(WeakPublisher<PublishesInDrop>, Tracked)>>,
}

impl Drop for PublishesInDrop {
    fn drop(&mut self) {
        if let Some((publisher, tracked)) = self.next.get_mut().unwrap().take()
            && let Some(publisher) = publisher.upgrade()
        {
            publisher.publish(PublishesInDrop {
                _tracked: tracked,
                next: Mutex::new(None),
            });
        }
    }
}

/// A message whose drop publishes.
#[test]
fn r12_a_message_may_publish_when_dropped() {
    must_end(|| {
        let counter = DropCounter::new();
        let (publisher, mut subscriber) = channel(4);
        for id in 0..100 {
            publisher.publish(PublishesInDrop {
                _tracked: counter.value(id),
                next: Mutex::new(Some((publisher.downgrade(), counter.value(1_000 + id)))),
            });
            while subscriber.try_recv_ref().is_ok() {}
        }
        assert!(publisher.next_seq() > 150, "no drop has published a message");
        drop((publisher, subscriber));
        assert_eq!(counter.alive(), 0);
    });
}

/// Subscribers that lag far behind are dropped while publishers race them.
#[test]
fn r13_dropping_lagging_receivers_touches_no_message() {
    must_end(|| {
        let counter = DropCounter::new();
        let (publisher, subscriber) = channel(8);
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let (publisher, stop, counter) = (publisher.clone(), Arc::clone(&stop), counter.clone());
                thread::spawn(move || {
                    let mut id = 0;
                    while !stop.load(Ordering::Relaxed) {
                        publisher.publish(counter.value(id));
                        id += 1;
                    }
                })
            })
            .collect();
        for _ in 0..20 {
            let mut lagging: Vec<Subscriber<Tracked>> = (0..50).map(|_| subscriber.clone()).collect();
            let _ = lagging[0].try_recv();
            let target = publisher.next_seq() + 500;
            eventually("the subscribers lag by hundreds", || publisher.next_seq() > target);
            drop(lagging);
        }
        stop.store(true, Ordering::Relaxed);
        join_all(writers);
        assert_eq!(publisher.subscriber_count(), 1);
        // However far behind the subscriber is, its drop touches no message.
        let alive = counter.alive();
        drop(subscriber);
        assert_eq!(counter.alive(), alive);
        drop(publisher);
        assert_eq!(counter.alive(), 0);
    });
}

/// Its clone panics for one subscriber only.
struct PanicsInClone(Arc<AtomicBool>);

impl Clone for PanicsInClone {
    fn clone(&self) -> Self {
        if self.0.load(Ordering::SeqCst) {
            planned_panic();
        }
        Self(Arc::clone(&self.0))
    }
}

/// A clone that panics fails its call; the next call receives the message.
#[test]
fn r14_a_clone_that_panics_has_received_nothing() {
    let (publisher, mut unlucky) = channel(4);
    let mut lucky = unlucky.clone();
    let refuse = Arc::new(AtomicBool::new(true));
    publisher.publish(PanicsInClone(Arc::clone(&refuse)));
    publisher.publish(PanicsInClone(Arc::default()));
    must_panic(|| unlucky.try_recv());
    must_panic(|| unlucky.recv_blocking());
    assert_eq!(unlucky.position(), 1);
    refuse.store(false, Ordering::SeqCst);
    assert_eq!(lucky.try_recv_seq().map(|(seq, _)| seq), Ok(1));
    assert_eq!(unlucky.try_recv_seq().map(|(seq, _)| seq), Ok(1));
    assert_eq!(unlucky.try_recv_seq().map(|(seq, _)| seq), Ok(2));
}

/// A closure that panics leaves a void, which holds up no subscriber.
#[test]
fn r16_a_closure_that_panics_leaves_a_void() {
    must_end(|| {
        let (publisher, mut subscriber) = channel(4);
        let waiter = {
            let mut subscriber = subscriber.clone();
            thread::spawn(move || subscriber.recv_blocking())
        };
        must_panic(|| publisher.publish_with(|_| planned_panic()));
        assert_eq!(publisher.publish(2), 2);
        assert_eq!(waiter.join().unwrap(), Ok(2));
        assert_eq!(subscriber.try_recv_seq(), Ok((2, 2)));
        assert_eq!((publisher.stats().void, subscriber.stats().void), (1, 1));
    });
}

/// A batch that is dropped halfway has received exactly the events that it yielded.
#[test]
fn r17_a_half_read_batch_counts_what_it_yielded() {
    let (publisher, mut subscriber) = channel(64);
    publisher.publish_batch(vec![7u64; 10]);
    let mut batch = subscriber.try_recv_batch(8).unwrap();
    assert_eq!(
        (batch.next(), batch.next(), batch.next()),
        (Some(&7), Some(&7), Some(&7))
    );
    drop(batch);
    assert_eq!((subscriber.position(), subscriber.stats().received), (4, 3));
    assert_eq!(subscriber.try_recv_seq(), Ok((4, 7)));
    drop(subscriber.try_recv_batch(5).unwrap());
    assert_eq!(subscriber.position(), 5);
}

/// A later subscriber gets the retained part of what was published to nobody.
#[test]
fn r18_oldest_starts_at_the_retained_events() {
    for capacity in [1u64, 3, 64, 100, 999, 1_000, 1_001] {
        let (publisher, subscriber) = channel(capacity as usize);
        drop(subscriber);
        for value in 1..=1_000u64 {
            publisher.publish(value);
        }
        let mut late = publisher.subscribe_from(Start::Oldest);
        let got: Vec<_> = late.try_iter().map(Result::unwrap).collect();
        assert_eq!(got, (1 + 1_000u64.saturating_sub(capacity)..=1_000).collect::<Vec<_>>());
    }
}

/// Starting after an overwritten seq reports one exact loss.
#[test]
fn r19_starting_after_an_overwritten_seq_is_one_exact_lag() {
    let (publisher, _subscriber) = Builder::new(16).on_lag(OnLag::Oldest).channel().unwrap();
    for value in 1..=100u64 {
        publisher.publish(value);
    }
    for after in 0..=110u64 {
        let mut late = publisher.subscribe_from(Start::After(after));
        if after < 84 {
            let lagged = Lagged {
                skipped: 84 - after,
                first_missed: after + 1,
                resume_at: 85,
            };
            assert_eq!(late.try_recv(), Err(TryRecvError::Lagged(lagged)));
        }
        let got: Vec<_> = late.try_iter().map(Result::unwrap).collect();
        assert_eq!(got, (after.max(84) + 1..=100).collect::<Vec<_>>());
        assert_eq!(late.stats().lag_events, u64::from(after < 84));
    }
}

/// Large messages, a large ring and many subscribers cost twice the ring and a little for each subscriber. (`memory.rs` covers many laps.)
#[test]
fn r20_many_receivers_of_large_messages_cost_little_memory() {
    const CAPACITY: i64 = 4_096;
    const MESSAGE: i64 = 4_096;
    let before = live_bytes();
    let (publisher, subscriber) = channel::<[u8; MESSAGE as usize]>(CAPACITY as usize);
    let mut receivers: Vec<_> = (0..64).map(|_| subscriber.clone()).collect();
    let bound = 2 * CAPACITY * (MESSAGE + 64) + 64 * 64 * MESSAGE;
    for number in 0..CAPACITY + CAPACITY / 2 {
        publisher.publish([number as u8; MESSAGE as usize]);
        let receiver = &mut receivers[number as usize % 64];
        assert!(receiver.try_recv_ref().is_ok() || receiver.stats().lag_events > 0);
    }
    let used = live_bytes() - before;
    assert!(used <= bound, "{used} bytes, more than {bound}");
    drop((publisher, subscriber, receivers));
    assert_eq!(live_bytes() - before, 0);
}
