//! No call allocates once the channel is warm. Allocations are counted on the calling thread.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use doorbell::ring::{
    Builder, Publisher, RecvTimeoutError, Start, Subscriber, TryRecvError, WaitStrategy, Wake, channel,
};
use futures::Stream;
use testkit::alloc::{CountingAllocator, allocations};
use testkit::threads::{eventually, must_end};
use testkit::wakers::WakeCounter;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

type Words = [u64; 4];

/// Runs `step` to warm up, then checks that it does not allocate.
fn steady(what: &str, step: impl FnMut(u64)) {
    steady_but_for(what, 0, step);
}

/// Like `steady`, but up to `one_off` late allocations are permitted once.
fn steady_but_for(what: &str, one_off: u64, mut step: impl FnMut(u64)) {
    const STEPS: u64 = 3_000;
    (0..STEPS / 5).for_each(&mut step);
    let mut measure = || allocations(|| (STEPS..2 * STEPS).for_each(&mut step));
    let count = measure();
    if count != 0 {
        assert!(count <= one_off, "{what} allocates {count} times");
        assert_eq!(measure(), 0, "{what} allocates again");
    }
}

const CAPACITIES: [usize; 4] = [1, 3, 64, 200];

#[test]
fn publishing_allocates_nothing() {
    for capacity in CAPACITIES {
        let (publisher, _idle) = channel::<Words>(capacity);
        steady("publish", |number| drop_seq(publisher.publish([number; 4])));
        steady("publish_with", |_| drop_seq(publisher.publish_with(|seq| [seq; 4])));
        steady("publish_batch", |number| {
            assert_eq!(publisher.publish_batch([[number; 4]; 10]).count(), 10)
        });
        steady("publish_batch of more than a lap", |number| {
            let seqs = publisher.publish_batch((0..300u32).map(|_| [number; 4]));
            assert_eq!(seqs.count(), 300);
        });
        steady("a short publish_batch", |number| {
            assert_eq!(publisher.publish_batch(Short(5, number)).count(), 6)
        });
        steady("cloning a publisher", |_| drop(publisher.clone()));
        steady("statistics", |_| assert_eq!(publisher.stats().subscribers, 1));
    }
}

fn drop_seq(seq: u64) {
    assert!(seq > 0);
}

/// An iterator that claims one item more than it yields.
struct Short(usize, u64);

impl Iterator for Short {
    type Item = Words;

    fn next(&mut self) -> Option<Words> {
        self.0 = self.0.checked_sub(1)?;
        Some([self.1; 4])
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0 + 1, Some(self.0 + 1))
    }
}

impl ExactSizeIterator for Short {}

/// Publishes one event and receives it with `receive`.
fn receiving(what: &str, receive: impl Fn(&mut Subscriber<Words>) -> Option<Words>) {
    for capacity in CAPACITIES {
        let (publisher, mut subscriber) = channel::<Words>(capacity);
        steady(what, |number| {
            publisher.publish([number; 4]);
            assert_eq!(receive(&mut subscriber), Some([number; 4]));
        });
    }
}

fn ready<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

#[test]
fn receiving_by_value_allocates_nothing() {
    receiving("try_recv", |subscriber| subscriber.try_recv().ok());
    receiving("try_recv_seq", |subscriber| {
        subscriber.try_recv_seq().ok().map(|(_, value)| value)
    });
    receiving("recv", |subscriber| ready(subscriber.recv())?.ok());
    receiving("recv_seq", |subscriber| Some(ready(subscriber.recv_seq())?.ok()?.1));
    receiving("recv_lossy", |subscriber| ready(subscriber.recv_lossy())?);
    receiving("recv_blocking", |subscriber| subscriber.recv_blocking().ok());
    receiving("recv_timeout", |subscriber| {
        subscriber.recv_timeout(Duration::from_secs(9)).ok()
    });
    receiving("recv_deadline", |subscriber| {
        subscriber.recv_deadline(Instant::now()).ok()
    });
    receiving("iter", |subscriber| subscriber.iter().next()?.ok());
    receiving("try_iter", |subscriber| subscriber.try_iter().next()?.ok());
}

#[test]
fn receiving_by_reference_allocates_nothing() {
    receiving("try_recv_ref", |subscriber| {
        subscriber.try_recv_ref().ok().map(|held| *held)
    });
    receiving("recv_ref", |subscriber| {
        ready(subscriber.recv_ref())?.ok().map(|held| *held)
    });
    receiving("recv_ref_blocking", |subscriber| {
        subscriber.recv_ref_blocking().ok().map(|held| *held)
    });
    receiving("try_recv_batch", |subscriber| {
        subscriber.try_recv_batch(64).ok()?.next().copied()
    });
    receiving("recv_batch", |subscriber| {
        ready(subscriber.recv_batch(64))?.ok()?.next().copied()
    });
    receiving("recv_batch_blocking", |subscriber| {
        subscriber.recv_batch_blocking(64).ok()?.next().copied()
    });
}

#[test]
fn batches_allocate_nothing() {
    let (publisher, mut subscriber) = channel::<Words>(256);
    steady("batches of 64", |number| {
        publisher.publish_batch([[number; 4]; 64]);
        let mut got = 0;
        while let Ok(batch) = subscriber.try_recv_batch(64) {
            got += batch.count();
        }
        assert_eq!(got, 64);
    });
}

#[test]
fn lagging_allocates_nothing() {
    let (publisher, mut subscriber) = channel::<Words>(8);
    steady("lag", |number| {
        publisher.publish_batch([[number; 4]; 20]);
        assert!(matches!(subscriber.try_recv(), Err(TryRecvError::Lagged(_))));
        while subscriber.try_recv().is_ok() {}
    });
}

#[test]
fn a_stream_allocates_nothing() {
    let (publisher, subscriber) = channel::<Words>(8);
    let mut stream = subscriber.into_stream();
    steady("the stream", |number| {
        publisher.publish([number; 4]);
        let next = Pin::new(&mut stream).poll_next(&mut Context::from_waker(Waker::noop()));
        assert_eq!(next, Poll::Ready(Some(Ok([number; 4]))));
    });
}

#[test]
fn parking_and_waking_allocate_nothing() {
    for wake in [Wake::Cascade, Wake::All] {
        for wake_watchdog in [true, false] {
            for parked in [1, 3, 20] {
                parked_and_woken_with(wake, wake_watchdog, parked);
            }
        }
    }
}

fn parked_and_woken_with(wake: Wake, wake_watchdog: bool, parked: usize) {
    let (publisher, subscriber) = Builder::new(16)
        .wake(wake)
        .wake_watchdog(wake_watchdog)
        .channel::<Words>()
        .unwrap();
    let mut waiting: Vec<_> = (0..parked)
        .map(|_| {
            let wake_counter = WakeCounter::new();
            (subscriber.clone(), wake_counter.waker(), wake_counter)
        })
        .collect();
    drop(subscriber);
    // The lock of the wait list allocates its own queue when the watchdog first contends for it, at an unknown time.
    let one_off = if wake_watchdog { 4 } else { 0 };
    steady_but_for("parking and waking", one_off, |number| {
        for (subscriber, waker, _) in &mut waiting {
            assert!(subscriber.poll_recv(&mut Context::from_waker(waker)).is_pending());
        }
        publisher.publish([number; 4]);
        // Whether or not it was woken yet, the next poll finds the message.
        for (subscriber, waker, _) in &mut waiting {
            assert_eq!(
                subscriber.poll_recv(&mut Context::from_waker(waker)),
                Poll::Ready(Ok([number; 4]))
            );
        }
    });
    assert!(waiting[0].2.wakes() > 0);
}

#[test]
fn cancelled_waits_allocate_nothing() {
    let (publisher, mut subscriber) = channel::<Words>(16);
    let waker = WakeCounter::new().waker();
    steady("a cancelled recv", |_| {
        let mut wait = pin!(subscriber.recv());
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    });
    steady("a cancelled recv_batch", |_| {
        let mut wait = pin!(subscriber.recv_batch(8));
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    });
    publisher.publish([1; 4]);
    assert_eq!(subscriber.try_recv(), Ok([1; 4]));
}

#[test]
fn waits_that_time_out_allocate_nothing() {
    for strategy in [WaitStrategy::Park, WaitStrategy::Yield, WaitStrategy::Spin] {
        let (_publisher, mut subscriber) = Builder::new(4).wait(strategy).channel::<Words>().unwrap();
        let mut wait = |micros| assert!(subscriber.recv_timeout(Duration::from_micros(micros)).is_err());
        if strategy == WaitStrategy::Park {
            // The first wait that parks allocates the subscriber's wait node.
            eventually("the subscriber parks", || allocations(|| wait(1_000)) > 0);
        }
        wait(20);
        assert_eq!(allocations(|| (0..100).for_each(|_| wait(20))), 0, "{strategy:?}");
    }
}

#[test]
fn parking_for_each_message_allocates_nothing() {
    must_end(|| {
        const ROUNDS: u64 = if cfg!(miri) { 10 } else { 300 };
        let (publisher, mut subscriber) = channel::<Words>(4);
        let (answer, answered) = (publisher.clone(), 100);
        let (echo, mut echoed) = channel::<Words>(4);
        let echoing = thread::spawn(move || {
            let mut step = || {
                let value = subscriber.recv_blocking().unwrap();
                echo.publish(value);
            };
            (0..answered).for_each(|_| step());
            allocations(|| (0..ROUNDS).for_each(|_| step()))
        });
        let mut step = |number: u64| {
            answer.publish([number; 4]);
            assert_eq!(echoed.recv_blocking(), Ok([number; 4]));
        };
        (0..answered).for_each(&mut step);
        let mine = allocations(|| (0..ROUNDS).for_each(&mut step));
        // The lock of the wait list allocates its own queue when it is first contended, at an unknown time.
        let theirs = echoing.join().unwrap();
        assert!(mine + theirs <= 4, "{mine} and {theirs} allocations in {ROUNDS} rounds");
    });
}

#[test]
fn a_held_reference_allocates_only_while_it_is_held() {
    let (publisher, mut subscriber) = channel::<Words>(32);
    let mut idle = subscriber.clone();
    steady("publish", |number| drop_seq(publisher.publish([number; 4])));
    while subscriber.try_recv().is_err() {}
    let held = subscriber.try_recv_ref().unwrap();
    let before = *held;
    let laps = 200;
    let count = allocations(|| (0..laps * 32).for_each(|number| drop_seq(publisher.publish([number; 4]))));
    // In each lap, at most one cell, and two lists when cells are freed; not one cell for each event that was announced with the
    // held one, at most four.
    assert!(
        count <= 3 * laps,
        "{count} allocations in {laps} laps around one held reference"
    );
    assert_eq!(*held, before);
    drop(held);
    while subscriber.try_recv() != Err(TryRecvError::Empty) {}
    steady("publish after it", |number| {
        publisher.publish([number; 4]);
        assert!(subscriber.try_recv().is_ok());
    });
    assert!(idle.try_recv().is_err());
}

/// Reads all events with `drain`, then nothing while the publisher continues for many laps.
fn idle_after(what: &str, drain: impl Fn(&mut Subscriber<Words>)) {
    let (publisher, mut subscriber) = channel::<Words>(32);
    for _ in 0..5 {
        for count in [1, 20, 32, 40] {
            publisher.publish_batch(vec![[7; 4]; count]);
            drain(&mut subscriber);
            assert_eq!(subscriber.backlog(), 0);
        }
    }
    steady(what, |number| drop_seq(publisher.publish([number; 4])));
}

#[test]
fn an_idle_subscriber_causes_no_allocation() {
    idle_after("publish after try_recv", |subscriber| {
        while subscriber.try_recv() != Err(TryRecvError::Empty) {}
    });
    idle_after("publish after try_recv_ref", |subscriber| {
        while !matches!(subscriber.try_recv_ref(), Err(TryRecvError::Empty)) {}
    });
    for max in [1, 7, 64] {
        idle_after("publish after try_recv_batch", |subscriber| {
            loop {
                match subscriber.try_recv_batch(max) {
                    Ok(batch) => batch.for_each(|_| {}),
                    Err(TryRecvError::Empty) => break,
                    Err(_) => {}
                }
            }
        });
        idle_after("publish after recv_batch", |subscriber| {
            let waker = Waker::noop();
            while let Poll::Ready(batch) = pin!(subscriber.recv_batch(max)).poll(&mut Context::from_waker(waker)) {
                if let Ok(batch) = batch {
                    batch.for_each(|_| {});
                }
            }
        });
    }
    idle_after("publish after recv_timeout", |subscriber| {
        while subscriber.recv_timeout(Duration::ZERO) != Err(RecvTimeoutError::Timeout) {}
    });
    idle_after("publish after a lag", |subscriber| {
        while subscriber.try_recv().is_ok() {}
        while subscriber.try_iter().next().is_some() {}
    });
}

#[test]
fn subscribing_repeatedly_allocates_little() {
    let (publisher, _subscriber): (Publisher<Words>, _) = channel(8);
    publisher.publish([1; 4]);
    let churn = |_| {
        let mut fresh = publisher.subscribe_from(Start::Oldest);
        assert_eq!(fresh.try_recv(), Ok([1; 4]));
    };
    (0..100).for_each(churn);
    // A subscriber may allocate a little memory of its own.
    let count = allocations(|| (0..1_000).for_each(churn));
    assert!(count <= 4_000, "{count} allocations for 1,000 subscribers");
}

#[test]
fn only_receiving_by_value_copies_strings() {
    let (publisher, mut by_ref) = channel::<String>(16);
    let mut by_value = by_ref.clone();
    let mut published = 0;
    let count = allocations(|| {
        for _ in 0..200 {
            publisher.publish("a string that needs the heap".to_owned());
            published += by_ref.try_recv_ref().unwrap().len();
        }
    });
    assert_eq!(count, 200, "one allocation for each string, none for reading it");
    assert!(matches!(by_ref.try_recv_ref(), Err(TryRecvError::Empty)));
    assert!(published > 0);
    while by_value.try_recv() != Err(TryRecvError::Empty) {}
    let count = allocations(|| {
        for _ in 0..200 {
            publisher.publish("a string that needs the heap".to_owned());
            by_value.try_recv().unwrap();
        }
    });
    assert_eq!(count, 400, "one allocation for each string, one for its copy");
    eventually("the other subscriber lags", || {
        matches!(by_ref.try_recv(), Err(TryRecvError::Lagged(_)))
    });
}
