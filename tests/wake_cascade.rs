//! Which waiters are woken, by which call, and how many at a time. Without the watchdog all of it happens on one thread, so counts are exact.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use doorbell::ring::{Builder, Publisher, Recv, Subscriber, TryRecvError, Wake};
use testkit::panics::{must_panic, planned_panic};
use testkit::wakers::WakeCounter;

/// The most waiters that the contract lets a publish wake itself.
const BY_PUBLISH: usize = 2;
/// The most waiters that a woken waiter may wake in turn.
const BY_WAITER: usize = 8;

/// A subscriber that waits, and how often it was woken.
struct Waiter {
    subscriber: Subscriber<u64>,
    wake_counter: Arc<WakeCounter>,
    waker: Waker,
}

impl Waiter {
    fn new(subscriber: &Subscriber<u64>) -> Self {
        let wake_counter = WakeCounter::new();
        Self {
            subscriber: subscriber.clone(),
            waker: wake_counter.waker(),
            wake_counter,
        }
    }

    fn poll(&mut self) -> Poll<u64> {
        self.subscriber
            .poll_recv(&mut Context::from_waker(&self.waker))
            .map(|got| got.unwrap())
    }

    fn is_woken(&self) -> bool {
        self.wake_counter.wakes() > 0
    }
}

fn parked(count: usize, wake: Wake, wake_watchdog: bool) -> (Publisher<u64>, Vec<Waiter>) {
    let (publisher, subscriber) = Builder::new(64)
        .wake(wake)
        .wake_watchdog(wake_watchdog)
        .channel()
        .unwrap();
    let mut waiters: Vec<_> = (0..count).map(|_| Waiter::new(&subscriber)).collect();
    for waiter in &mut waiters {
        assert!(waiter.poll().is_pending());
    }
    (publisher, waiters)
}

fn woken(waiters: &[Waiter]) -> usize {
    waiters.iter().filter(|waiter| waiter.is_woken()).count()
}

#[test]
fn wake_all_wakes_every_waiter_within_the_publish() {
    for wake_watchdog in [true, false] {
        for count in [1, 2, 8, 9, 300] {
            let (publisher, mut waiters) = parked(count, Wake::All, wake_watchdog);
            publisher.publish(1);
            assert!(waiters.iter().all(|waiter| waiter.wake_counter.wakes() == 1));
            for waiter in &mut waiters {
                assert_eq!(waiter.poll(), Poll::Ready(1));
                assert!(waiter.poll().is_pending());
            }
            publisher.publish_batch([2, 3]);
            assert!(waiters.iter().all(|waiter| waiter.wake_counter.wakes() == 2));
        }
    }
}

#[test]
fn a_publish_wakes_a_few_and_these_wake_the_rest() {
    for count in [1, 2, 3, 10, 1_000] {
        let (publisher, mut waiters) = parked(count, Wake::Cascade, false);
        publisher.publish(1);
        let mut known = woken(&waiters);
        assert!(
            (1..=BY_PUBLISH).contains(&known),
            "{known} of {count} were woken by the publish"
        );
        let mut done = vec![false; count];
        while let Some(next) = (0..count).find(|index| waiters[*index].is_woken() && !done[*index]) {
            assert_eq!(waiters[next].poll(), Poll::Ready(1));
            done[next] = true;
            let now = woken(&waiters);
            assert!(now - known <= BY_WAITER, "one waiter woke {}", now - known);
            known = now;
        }
        assert_eq!(known, count, "the cascade broke off");
        assert!(
            waiters.iter().all(|waiter| waiter.wake_counter.wakes() == 1),
            "a waiter was woken twice"
        );
    }
}

/// Ends each woken waiter's wait with `end` instead of a poll. All the others must be woken nevertheless.
fn end_waits(count: usize, mut end: impl FnMut(Waiter)) {
    let (publisher, mut waiters) = parked(count, Wake::Cascade, false);
    publisher.publish(1);
    let mut gone = 0;
    while let Some(index) = waiters.iter().position(Waiter::is_woken) {
        end(waiters.swap_remove(index));
        gone += 1;
    }
    assert_eq!(gone, count, "{} are still waiting", waiters.len());
}

#[test]
fn a_woken_subscriber_that_is_dropped_cascades() {
    end_waits(50, drop);
}

#[test]
fn a_woken_subscriber_whose_task_panics_cascades() {
    end_waits(50, |waiter| {
        must_panic(move || {
            let _waiter = waiter;
            planned_panic()
        });
    });
}

#[test]
fn a_woken_subscriber_that_receives_without_waiting_and_is_dropped_cascades() {
    end_waits(50, |mut waiter| assert_eq!(waiter.subscriber.try_recv(), Ok(1)));
}

#[test]
fn a_woken_subscriber_that_blocks_cascades() {
    let mut kept = Vec::new();
    end_waits(50, |mut waiter| {
        assert_eq!(waiter.subscriber.recv_blocking(), Ok(1));
        kept.push(waiter);
    });
}

#[test]
fn a_woken_subscriber_that_becomes_a_stream_cascades() {
    let mut kept = Vec::new();
    end_waits(50, |waiter| {
        let mut stream = waiter.subscriber.into_stream();
        let next = futures::Stream::poll_next(Pin::new(&mut stream), &mut Context::from_waker(Waker::noop()));
        assert_eq!(next, Poll::Ready(Some(Ok(1))));
        kept.push(stream);
    });
}

#[test]
fn a_woken_future_that_is_dropped_cascades() {
    let (publisher, subscriber) = Builder::new(64).wake_watchdog(false).channel().unwrap();
    let mut subscribers: Vec<Subscriber<u64>> = (0..50).map(|_| subscriber.clone()).collect();
    let mut waits: Vec<(Pin<Box<Recv<'_, u64>>>, _)> = subscribers
        .iter_mut()
        .map(|subscriber| {
            let (mut wait, wake_counter) = (Box::pin(subscriber.recv()), WakeCounter::new());
            let waker = wake_counter.waker();
            assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            (wait, wake_counter)
        })
        .collect();
    publisher.publish(1);
    let mut gone = 0;
    while let Some(index) = waits.iter().position(|(_, wake_counter)| wake_counter.wakes() > 0) {
        // Cancelled without another poll.
        drop(waits.swap_remove(index));
        gone += 1;
    }
    assert_eq!(gone, 50);
    drop(waits);
    for subscriber in &mut subscribers {
        assert_eq!(subscriber.try_recv(), Ok(1), "the cancelled wait received nothing");
    }
}

#[test]
fn cancelled_waiters_do_not_break_the_cascade() {
    let (publisher, mut waiters) = parked(60, Wake::Cascade, false);
    let mut index = 0;
    waiters.retain(|_| {
        index += 1;
        index % 3 != 0
    });
    let count = waiters.len();
    publisher.publish(1);
    let mut got = 0;
    while let Some(index) = waiters.iter().position(Waiter::is_woken) {
        let mut waiter = waiters.swap_remove(index);
        assert_eq!(waiter.poll(), Poll::Ready(1));
        got += 1;
    }
    assert_eq!(got, count);
}

#[test]
fn stuck_waiters_wait_for_the_next_publish_without_a_watchdog() {
    let (publisher, waiters) = parked(20, Wake::Cascade, false);
    let mut known = 0;
    for publish in 1..=20 {
        publisher.publish(publish);
        let now = woken(&waiters);
        assert!(now - known <= BY_PUBLISH);
        assert!(now > known || known == 20, "publish {publish} woke nobody");
        known = now;
    }
    assert_eq!(known, 20);
    assert!(
        waiters.iter().all(|waiter| waiter.wake_counter.wakes() == 1),
        "a waiter is woken once until it runs"
    );
}

#[test]
fn the_watchdog_wakes_the_waiters_behind_stuck_ones() {
    let (publisher, subscriber) = Builder::new(64).channel::<u64>().unwrap();
    // These are woken first, and never run.
    let mut stuck: Vec<_> = (0..3).map(|_| Waiter::new(&subscriber)).collect();
    for waiter in &mut stuck {
        assert!(waiter.poll().is_pending());
    }
    for round in 1..=5 {
        let mut others: Vec<_> = (0..100).map(|_| (publisher.subscribe(), WakeCounter::new())).collect();
        for (subscriber, wake_counter) in &mut others {
            assert!(
                subscriber
                    .poll_recv(&mut Context::from_waker(&wake_counter.waker()))
                    .is_pending()
            );
        }
        publisher.publish(round);
        for (subscriber, wake_counter) in &mut others {
            wake_counter.wait_beyond(0);
            assert_eq!(wake_counter.wakes(), 1);
            assert_eq!(subscriber.try_recv(), Ok(round));
        }
    }
    for waiter in &mut stuck {
        assert_eq!(waiter.poll(), Poll::Ready(1));
    }
}

#[test]
fn polling_again_with_another_waker_replaces_the_first() {
    let (publisher, mut waiters) = parked(1, Wake::Cascade, true);
    let waiter = &mut waiters[0];
    let second = WakeCounter::new();
    let waker = Waker::from(Arc::clone(&second));
    assert!(
        waiter
            .subscriber
            .poll_recv(&mut Context::from_waker(&waker))
            .is_pending()
    );
    // Polling again with the same waker changes nothing.
    assert!(
        waiter
            .subscriber
            .poll_recv(&mut Context::from_waker(&waker))
            .is_pending()
    );
    publisher.publish(1);
    assert_eq!((waiter.wake_counter.wakes(), second.wakes()), (0, 1));
    assert_eq!(waiter.poll(), Poll::Ready(1));
}

#[test]
fn no_waiter_is_woken_without_a_reason() {
    let (publisher, mut waiters) = parked(5, Wake::All, true);
    drop(publisher.subscribe());
    drop(publisher.clone());
    assert_eq!(publisher.publish_batch([]), 1..1);
    assert_eq!(woken(&waiters), 0);
    for waiter in &mut waiters {
        assert_eq!(waiter.subscriber.try_recv(), Err(TryRecvError::Empty));
    }
    publisher.publish(1);
    for waiter in &mut waiters {
        assert_eq!(waiter.poll(), Poll::Ready(1));
    }
    // They do not wait now, so the next publish wakes none of them.
    publisher.publish(2);
    assert!(waiters.iter().all(|waiter| waiter.wake_counter.wakes() == 1));
}

#[test]
fn a_waiter_behind_a_void_gets_the_next_event() {
    for wake in [Wake::Cascade, Wake::All] {
        let (publisher, mut waiters) = parked(3, wake, false);
        must_panic(|| publisher.publish_with(|_| planned_panic()));
        // Whether or not a void wakes the waiter, it still receives the next event.
        for waiter in &mut waiters {
            assert!(waiter.poll().is_pending());
        }
        publisher.publish(2);
        let mut left = waiters;
        while let Some(index) = left.iter().position(|waiter| waiter.is_woken()) {
            let mut waiter = left.swap_remove(index);
            assert_eq!(waiter.poll(), Poll::Ready(2));
            assert_eq!(waiter.subscriber.stats().void, 1);
        }
        assert!(left.is_empty());
    }
}

#[test]
fn a_cancelled_wait_costs_at_most_one_spurious_wake_up() {
    let (publisher, subscriber) = Builder::new(8).wake_watchdog(false).channel::<u64>().unwrap();
    let mut subscriber = subscriber;
    let wake_counter = WakeCounter::new();
    let waker = wake_counter.waker();
    for round in 1..=100 {
        {
            let mut wait = pin!(subscriber.recv());
            assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        publisher.publish(round);
        assert_eq!(subscriber.try_recv(), Ok(round));
    }
    assert!(wake_counter.wakes() <= 1);
}
