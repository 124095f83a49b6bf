//! Waiting on tokio, on another executor and on bare threads: nobody is forgotten, whatever the others do.

mod common;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use doorbell::ring::{
    Builder, Publisher, RecvTimeoutError, Subscriber, TryRecvError, WaitStrategy, Wake, channel, spmc,
};
use futures::StreamExt;

use crate::common::wakers::Bell;
use crate::common::{Dice, PATIENCE, block_on, eventually, join_all, may_panic, must_end, panic_as_told};

const MESSAGES: u64 = if cfg!(miri) { 5 } else { 150 };

/// Receives `MESSAGES` in turn, in one of the async ways, and says how far it has come after each.
async fn follow(mut subscriber: Subscriber<u64>, way: usize, arrived: Arc<AtomicU64>) {
    let mut next = 0;
    let mut stream = (way % 5 == 4).then(|| subscriber.clone().into_stream());
    while next < MESSAGES {
        match way % 5 {
            0 => assert_eq!(subscriber.recv().await, Ok(next)),
            1 => assert_eq!(*subscriber.recv_ref().await.unwrap(), next),
            2 => {
                let batch = subscriber.recv_batch(16).await.unwrap();
                let mut got = 0;
                for value in batch {
                    assert_eq!(*value, next + got);
                    got += 1;
                }
                next += got;
                arrived.fetch_add(got, Ordering::SeqCst);
                continue;
            }
            3 => assert_eq!(subscriber.recv_lossy().await, Some(next)),
            _ => assert_eq!(stream.as_mut().unwrap().next().await, Some(Ok(next))),
        }
        next += 1;
        arrived.fetch_add(1, Ordering::SeqCst);
    }
}

/// Publishes one message at a time, each after everybody has the one before, so that everybody parks in between.
fn publish_in_step(publisher: &Publisher<u64>, followers: u64, arrived: &AtomicU64) {
    for message in 0..MESSAGES {
        publisher.publish(message);
        eventually("everybody has the message", || {
            arrived.load(Ordering::SeqCst) == (message + 1) * followers
        });
    }
}

#[test]
fn tokio_with_one_thread() {
    must_end(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (publisher, subscriber) = channel(8);
            let arrived = Arc::new(AtomicU64::new(0));
            let tasks: Vec<_> = (0..50)
                .map(|way| tokio::spawn(follow(subscriber.clone(), way, Arc::clone(&arrived))))
                .collect();
            for message in 0..MESSAGES {
                publisher.publish(message);
                while arrived.load(Ordering::SeqCst) < (message + 1) * 50 {
                    tokio::task::yield_now().await;
                }
            }
            for task in tasks {
                task.await.unwrap();
            }
        });
    });
}

#[test]
fn tokio_with_two_threads() {
    must_end(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        for wake in [Wake::HandOn, Wake::All] {
            let (publisher, subscriber) = Builder::new(8).wake(wake).channel().unwrap();
            let arrived = Arc::new(AtomicU64::new(0));
            let tasks: Vec<_> = (0..100)
                .map(|way| runtime.spawn(follow(subscriber.clone(), way, Arc::clone(&arrived))))
                .collect();
            publish_in_step(&publisher, 100, &arrived);
            for task in tasks {
                runtime.block_on(task).unwrap();
            }
        }
    });
}

#[test]
fn another_executor() {
    must_end(|| {
        let (publisher, subscriber) = channel(8);
        let arrived = Arc::new(AtomicU64::new(0));
        let executor = Arc::new(smol::Executor::new());
        let tasks: Vec<_> = (0..40)
            .map(|way| executor.spawn(follow(subscriber.clone(), way, Arc::clone(&arrived))))
            .collect();
        let (stop, stopped) = smol::channel::bounded::<()>(1);
        let workers = [1, 2].map(|_| {
            let (executor, stopped) = (Arc::clone(&executor), stopped.clone());
            thread::spawn(move || smol::block_on(executor.run(stopped.recv())))
        });
        publish_in_step(&publisher, 40, &arrived);
        smol::block_on(async {
            for task in tasks {
                task.await;
            }
        });
        drop(stop);
        join_all(workers);
    });
}

#[test]
fn bare_threads() {
    must_end(|| {
        for strategy in [WaitStrategy::Park, WaitStrategy::Yield] {
            let (publisher, subscriber) = Builder::new(8).wait(strategy).channel().unwrap();
            let arrived = Arc::new(AtomicU64::new(0));
            let threads: Vec<_> = (0..8)
                .map(|way| {
                    let (mut subscriber, arrived) = (subscriber.clone(), Arc::clone(&arrived));
                    thread::spawn(move || {
                        for message in 0..MESSAGES {
                            match way % 4 {
                                0 => assert_eq!(subscriber.recv_blocking(), Ok(message)),
                                1 => assert_eq!(*subscriber.recv_ref_blocking().unwrap(), message),
                                2 => assert_eq!(subscriber.recv_batch_blocking(1).unwrap().next(), Some(&message)),
                                _ => assert_eq!(subscriber.iter().next(), Some(Ok(message))),
                            }
                            arrived.fetch_add(1, Ordering::SeqCst);
                        }
                    })
                })
                .collect();
            publish_in_step(&publisher, 8, &arrived);
            join_all(threads);
        }
    });
}

#[test]
fn everything_at_once_on_one_channel() {
    must_end(|| {
        let (publisher, subscriber) = channel(8);
        let arrived = Arc::new(AtomicU64::new(0));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        for way in 0..10 {
            runtime.spawn(follow(subscriber.clone(), way, Arc::clone(&arrived)));
        }
        let threads: Vec<_> = (0..6)
            .map(|way| {
                let (mut subscriber, arrived) = (subscriber.clone(), Arc::clone(&arrived));
                thread::spawn(move || {
                    if way % 2 == 0 {
                        return smol::block_on(follow(subscriber, way, arrived));
                    }
                    for message in 0..MESSAGES {
                        assert_eq!(subscriber.recv_blocking(), Ok(message));
                        arrived.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        publish_in_step(&publisher, 16, &arrived);
        join_all(threads);
    });
}

/// A runtime of one thread whose waiting tasks cannot run, because another task blocks it, until told.
struct Blocked {
    thread: thread::JoinHandle<()>,
    release: mpsc::Sender<()>,
}

/// Parks `tasks` on such a runtime; returns when all wait and the runtime is blocked.
fn block_a_runtime(subscriber: &Subscriber<u64>, tasks: usize) -> Blocked {
    let (release, released) = mpsc::channel();
    let (blocked, is_blocked) = mpsc::channel();
    let subscribers: Vec<_> = (0..tasks).map(|_| subscriber.clone()).collect();
    let thread = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async move {
            let waiting: Vec<_> = subscribers
                .into_iter()
                .map(|mut subscriber| tokio::spawn(async move { subscriber.recv().await }))
                .collect();
            // The tasks run, and park, before this one goes on.
            tokio::task::yield_now().await;
            blocked.send(()).unwrap();
            released.recv().unwrap();
            for waiting in waiting {
                assert_eq!(waiting.await.unwrap(), Ok(7));
            }
        });
    });
    is_blocked.recv().unwrap();
    Blocked { thread, release }
}

#[test]
fn woken_tasks_on_a_blocked_runtime_hold_up_nobody() {
    must_end(|| {
        for tasks in [2, 3, 30] {
            let (publisher, subscriber) = channel(8);
            // First in line are tasks that will be woken and cannot run; behind them others, of every kind.
            let blocked = block_a_runtime(&subscriber, tasks);
            let mut bells: Vec<_> = (0..20).map(|_| (subscriber.clone(), Bell::new())).collect();
            for (subscriber, bell) in &mut bells {
                assert!(
                    subscriber
                        .poll_recv(&mut Context::from_waker(&bell.waker()))
                        .is_pending()
                );
            }
            publisher.publish(7);
            for (subscriber, bell) in &mut bells {
                bell.wait_beyond(0);
                assert_eq!(subscriber.try_recv(), Ok(7));
            }
            // All of that while the runtime is stuck.
            assert!(!blocked.thread.is_finished());
            blocked.release.send(()).unwrap();
            blocked.thread.join().unwrap();
        }
    });
}

#[test]
fn threads_behind_a_blocked_runtime() {
    must_end(|| {
        let (publisher, subscriber) = channel(8);
        let blocked = block_a_runtime(&subscriber, 10);
        let started = Arc::new(Barrier::new(7));
        let threads: Vec<_> = (0..6)
            .map(|_| {
                let (mut subscriber, started) = (subscriber.clone(), Arc::clone(&started));
                thread::spawn(move || {
                    started.wait();
                    subscriber.recv_blocking()
                })
            })
            .collect();
        started.wait();
        publisher.publish(7);
        assert!(join_all(threads).into_iter().all(|got| got == Ok(7)));
        blocked.release.send(()).unwrap();
        blocked.thread.join().unwrap();
    });
}

#[test]
fn timeouts_and_deadlines() {
    must_end(|| {
        for strategy in [WaitStrategy::Park, WaitStrategy::Yield, WaitStrategy::Spin] {
            let (publisher, mut subscriber) = Builder::new(4).wait(strategy).channel().unwrap();
            let wait = Duration::from_millis(5);
            let before = Instant::now();
            assert_eq!(subscriber.recv_timeout(wait), Err(RecvTimeoutError::Timeout));
            assert!(before.elapsed() >= wait);
            let deadline = Instant::now() + wait;
            assert_eq!(subscriber.recv_deadline(deadline), Err(RecvTimeoutError::Timeout));
            assert!(Instant::now() >= deadline);
            // What is there is received, even after the deadline.
            publisher.publish(1);
            publisher.publish(2);
            assert_eq!(subscriber.recv_timeout(Duration::ZERO), Ok(1));
            assert_eq!(subscriber.recv_deadline(before), Ok(2));
            // A far deadline does not keep anybody, nor one that no clock reaches.
            for far in [Duration::from_secs(3_600), Duration::MAX] {
                let mut waiting = subscriber.clone();
                let waiter = thread::spawn(move || waiting.recv_timeout(far));
                publisher.publish(3);
                assert_eq!(waiter.join().unwrap(), Ok(3));
                assert_eq!(subscriber.try_recv(), Ok(3));
            }
            for _ in 0..9 {
                publisher.publish(4);
            }
            assert!(
                matches!(subscriber.recv_timeout(wait), Err(RecvTimeoutError::Lagged(lagged)) if lagged.skipped == 5)
            );
        }
    });
}

#[test]
fn a_wait_that_timed_out_has_lost_nothing() {
    must_end(|| {
        let (publisher, mut subscriber) = channel(1_024);
        let stop = Arc::new(AtomicBool::new(false));
        let reader = thread::spawn(move || {
            let (mut next, mut timeouts) = (0, 0u64);
            loop {
                match subscriber.recv_timeout(Duration::from_micros(next % 50)) {
                    Ok(value) => {
                        assert_eq!(value, next);
                        next += 1;
                    }
                    Err(RecvTimeoutError::Timeout) => timeouts += 1,
                    Err(RecvTimeoutError::Closed) => return (next, timeouts),
                    Err(RecvTimeoutError::Lagged(lagged)) => panic!("{lagged:?}"),
                }
            }
        });
        for value in 0..1_000 {
            publisher.publish(value);
            if value % 10 == 0 {
                thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
        drop(publisher);
        assert_eq!(reader.join().unwrap().0, 1_000);
    });
}

#[test]
fn cancelled_receives_lose_nothing() {
    must_end(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        let (publisher, subscriber) = channel::<u64>(4_096);
        let tasks: Vec<_> = (0..8)
            .map(|seed| {
                let mut subscriber = subscriber.clone();
                runtime.spawn(async move {
                    let mut dice = Dice::new(seed);
                    let (mut next, mut cancelled) = (0, 0u64);
                    while next < 2_000 {
                        // Polled once or a few times, and then given up.
                        let mut polls = dice.below(3);
                        let given_up = poll_fn(|cx| {
                            if polls == 0 {
                                return Poll::Ready(());
                            }
                            polls -= 1;
                            cx.waker().wake_by_ref();
                            Poll::Pending
                        });
                        tokio::select! {
                            biased;
                            got = subscriber.recv_seq() => {
                                assert_eq!(got, Ok((next + 1, next)));
                                next += 1;
                            }
                            () = given_up => {
                                cancelled += 1;
                                tokio::task::yield_now().await;
                            }
                        }
                    }
                    cancelled
                })
            })
            .collect();
        for value in 0..2_000 {
            publisher.publish(value);
            if value % 8 == 0 {
                thread::yield_now();
            }
        }
        for task in tasks {
            runtime.block_on(task).unwrap();
        }
    });
}

#[test]
fn a_wait_begun_while_its_event_is_being_built() {
    must_end(|| {
        for backstop in [true, false] {
            for panics in [false, true] {
                let (publisher, subscriber) = Builder::new(4).backstop(backstop).channel().unwrap();
                let (claimed, is_claimed) = mpsc::channel();
                let (release, released) = mpsc::channel::<()>();
                let builder = {
                    let publisher = publisher.clone();
                    thread::spawn(move || {
                        may_panic(|| {
                            publisher.publish_with(|_| {
                                claimed.send(()).unwrap();
                                released.recv().unwrap();
                                if panics {
                                    panic_as_told();
                                }
                                1
                            })
                        })
                    })
                };
                is_claimed.recv().unwrap();
                let bell = Bell::new();
                let mut waiting = subscriber.clone();
                assert!(waiting.poll_recv(&mut Context::from_waker(&bell.waker())).is_pending());
                let threads = [1, 2].map(|_| {
                    let mut subscriber = subscriber.clone();
                    thread::spawn(move || subscriber.recv_blocking())
                });
                release.send(()).unwrap();
                assert_eq!(builder.join().unwrap().is_none(), panics);
                let expected = if panics {
                    publisher.publish(2);
                    2
                } else {
                    1
                };
                assert_eq!(join_all(threads), [Ok(expected); 2]);
                let mut rings = 0;
                while waiting.try_recv() != Ok(expected) {
                    assert_eq!(waiting.try_recv(), Err(TryRecvError::Empty));
                    rings = bell.wait_beyond(rings);
                }
            }
        }
    });
}

/// Threads that park for each message, thousands of times, with no pause of the publisher but to let them.
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
    let mut dice = Dice::new(readers as u64);
    for round in 0..rounds {
        publish(round);
        let give_up = Instant::now() + PATIENCE;
        while arrived.load(Ordering::Acquire) < (round + 1) * readers as u64 {
            assert!(Instant::now() < give_up, "a lost wake-up in round {round}");
            // Sometimes the readers have long parked when the next message comes, sometimes they are about to.
            if dice.below(4) == 0 {
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
        for (wake, backstop) in [(Wake::HandOn, true), (Wake::HandOn, false), (Wake::All, false)] {
            let make = || -> (Box<dyn FnMut(u64) + Send>, _) {
                let (publisher, subscriber) = Builder::new(4).wake(wake).backstop(backstop).channel().unwrap();
                (Box::new(move |value| drop_seq(publisher.publish(value))), subscriber)
            };
            park_and_publish(make, 2, ROUNDS);
            park_and_publish(make, 5, ROUNDS / 4);
        }
    });
}

#[test]
fn no_wake_up_is_lost_by_the_other_ways_to_publish() {
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
        let unique = || -> (Box<dyn FnMut(u64) + Send>, _) {
            let (mut publisher, subscriber) = spmc(4);
            (Box::new(move |value| drop_seq(publisher.publish(value))), subscriber)
        };
        park_and_publish(unique, 3, ROUNDS);
    });
}

fn drop_seq(seq: u64) {
    assert!(seq > 0);
}

#[test]
fn several_publishers_and_parked_readers() {
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
        // The publishers stay, so that no close can make up for a lost ring.
        let sums = join_all(readers);
        assert_eq!(sums, [3 * EACH * (EACH + 1) / 2; 6]);
        assert!(!subscriber.is_closed());
        drop(publisher);
    });
}

#[test]
fn a_blocking_receive_after_a_pending_poll() {
    must_end(|| {
        let (publisher, mut subscriber) = channel(4);
        let bell = Bell::new();
        assert!(
            subscriber
                .poll_recv(&mut Context::from_waker(&bell.waker()))
                .is_pending()
        );
        let mut cancelled = subscriber.clone();
        {
            let mut wait = pin!(cancelled.recv());
            assert!(wait.as_mut().poll(&mut Context::from_waker(&bell.waker())).is_pending());
        }
        let waiter = thread::spawn(move || (subscriber.recv_blocking(), subscriber));
        publisher.publish(5);
        let (got, mut subscriber) = waiter.join().unwrap();
        assert_eq!(got, Ok(5));
        assert_eq!(subscriber.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(cancelled.try_recv(), Ok(5));
    });
}
