//! Waiting on tokio, on another executor and on bare threads: every waiter is woken, whatever the others do.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use doorbell::ring::{Builder, Publisher, RecvTimeoutError, Subscriber, TryRecvError, WaitStrategy, Wake, channel};
use futures::StreamExt;
use testkit::panics::{may_panic, planned_panic};
use testkit::random::Rng;
use testkit::threads::{eventually, join_all, must_end};
use testkit::wakers::WakeCounter;

const MESSAGES: u64 = if cfg!(miri) { 5 } else { 150 };

/// Receives `MESSAGES` messages with one of the async receives, and reports its progress after each.
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

/// Publishes each message after all followers have the one before, so that all park in between.
fn publish_in_step(publisher: &Publisher<u64>, followers: u64, arrived: &AtomicU64) {
    for message in 0..MESSAGES {
        publisher.publish(message);
        eventually("every follower has the message", || {
            arrived.load(Ordering::SeqCst) == (message + 1) * followers
        });
    }
}

#[test]
fn waiting_works_on_one_tokio_thread() {
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
fn waiting_works_on_two_tokio_threads() {
    must_end(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        for wake in [Wake::Cascade, Wake::All] {
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
fn waiting_works_on_another_executor() {
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
fn waiting_works_on_bare_threads() {
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
fn waiting_works_for_tasks_and_threads_on_one_channel() {
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

/// A single-threaded runtime that one task blocks, so its waiting tasks cannot run until it is released.
struct Blocked {
    thread: thread::JoinHandle<()>,
    release: mpsc::Sender<()>,
}

/// Parks `tasks` tasks on such a runtime. Returns when all wait and the runtime is blocked.
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
            // The tasks run and park before this one continues.
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
fn woken_tasks_on_a_blocked_runtime_hold_up_no_other_waiter() {
    must_end(|| {
        for tasks in [2, 3, 30] {
            let (publisher, subscriber) = channel(8);
            // The first in the wait list are tasks that are woken but cannot run; waiters of every kind follow.
            let blocked = block_a_runtime(&subscriber, tasks);
            let mut parked: Vec<_> = (0..20).map(|_| (subscriber.clone(), WakeCounter::new())).collect();
            for (subscriber, wake_counter) in &mut parked {
                assert!(
                    subscriber
                        .poll_recv(&mut Context::from_waker(&wake_counter.waker()))
                        .is_pending()
                );
            }
            publisher.publish(7);
            for (subscriber, wake_counter) in &mut parked {
                wake_counter.wait_beyond(0);
                assert_eq!(subscriber.try_recv(), Ok(7));
            }
            // All this happens while the runtime is blocked.
            assert!(!blocked.thread.is_finished());
            blocked.release.send(()).unwrap();
            blocked.thread.join().unwrap();
        }
    });
}

#[test]
fn threads_behind_a_blocked_runtime_are_woken() {
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
fn timeouts_and_deadlines_are_kept() {
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
            // An available event is received even after the deadline.
            publisher.publish(1);
            publisher.publish(2);
            assert_eq!(subscriber.recv_timeout(Duration::ZERO), Ok(1));
            assert_eq!(subscriber.recv_deadline(before), Ok(2));
            // A distant deadline delays nothing, even one that the clock cannot represent.
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
fn a_wait_that_times_out_loses_nothing() {
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
                    let mut rng = Rng::with_seed(seed);
                    let (mut next, mut cancelled) = (0, 0u64);
                    while next < 2_000 {
                        // Polled once or a few times, then cancelled.
                        let mut polls = rng.u64(..3);
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
fn a_wait_for_an_unfinished_event_is_woken() {
    must_end(|| {
        for wake_watchdog in [true, false] {
            for panics in [false, true] {
                let (publisher, subscriber) = Builder::new(4).wake_watchdog(wake_watchdog).channel().unwrap();
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
                                    planned_panic();
                                }
                                1
                            })
                        })
                    })
                };
                is_claimed.recv().unwrap();
                let wake_counter = WakeCounter::new();
                let mut waiting = subscriber.clone();
                assert!(
                    waiting
                        .poll_recv(&mut Context::from_waker(&wake_counter.waker()))
                        .is_pending()
                );
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
                // The task is joined first: it may have to wake the threads.
                let mut wakes = 0;
                loop {
                    match waiting.poll_recv(&mut Context::from_waker(&wake_counter.waker())) {
                        Poll::Ready(got) => break assert_eq!(got, Ok(expected)),
                        Poll::Pending => wakes = wake_counter.wait_beyond(wakes),
                    }
                }
                assert_eq!(join_all(threads), [Ok(expected); 2]);
            }
        }
    });
}

#[test]
fn a_blocking_receive_replaces_a_pending_poll() {
    must_end(|| {
        let (publisher, mut subscriber) = channel(4);
        let wake_counter = WakeCounter::new();
        assert!(
            subscriber
                .poll_recv(&mut Context::from_waker(&wake_counter.waker()))
                .is_pending()
        );
        let mut cancelled = subscriber.clone();
        {
            let mut wait = pin!(cancelled.recv());
            assert!(
                wait.as_mut()
                    .poll(&mut Context::from_waker(&wake_counter.waker()))
                    .is_pending()
            );
        }
        let waiter = thread::spawn(move || (subscriber.recv_blocking(), subscriber));
        publisher.publish(5);
        let (got, mut subscriber) = waiter.join().unwrap();
        assert_eq!(got, Ok(5));
        assert_eq!(subscriber.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(cancelled.try_recv(), Ok(5));
    });
}
