//! Closing a channel: retained events are received first, every waiter is woken, and a closed channel never reopens.

use std::pin::Pin;
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use doorbell::ring::{
    Builder, OnLag, RecvError, RecvTimeoutError, Start, Subscriber, TryRecvError, WaitStrategy, Wake, channel,
};
use futures::Stream;
use testkit::threads::{block_on, eventually, join_all, must_end};
use testkit::wakers::WakeCounter;

fn closed(subscriber: &mut Subscriber<u64>) {
    assert!(subscriber.is_closed());
    let end = subscriber.position();
    for _ in 0..2 {
        assert_eq!(subscriber.try_recv(), Err(TryRecvError::Closed));
        assert_eq!(subscriber.try_recv_seq(), Err(TryRecvError::Closed));
        assert_eq!(block_on(subscriber.recv()), Err(RecvError::Closed));
        assert_eq!(block_on(subscriber.recv_seq()), Err(RecvError::Closed));
        assert_eq!(block_on(subscriber.recv_lossy()), None);
        assert_eq!(subscriber.recv_blocking(), Err(RecvError::Closed));
        assert_eq!(
            subscriber.recv_timeout(Duration::from_secs(60)),
            Err(RecvTimeoutError::Closed)
        );
        assert!(matches!(subscriber.try_recv_ref(), Err(TryRecvError::Closed)));
        assert!(matches!(subscriber.recv_ref_blocking(), Err(RecvError::Closed)));
        assert!(matches!(subscriber.try_recv_batch(5), Err(TryRecvError::Closed)));
        assert!(matches!(subscriber.recv_batch_blocking(5), Err(RecvError::Closed)));
        assert!(matches!(block_on(subscriber.recv_ref()), Err(RecvError::Closed)));
        assert!(matches!(block_on(subscriber.recv_batch(5)), Err(RecvError::Closed)));
        assert_eq!(subscriber.iter().next(), None);
        assert_eq!(subscriber.try_iter().next(), None);
    }
    assert_eq!(subscriber.position(), end);
    let mut stream = subscriber.clone().into_stream();
    let next = Pin::new(&mut stream).poll_next(&mut Context::from_waker(Waker::noop()));
    assert_eq!(next, Poll::Ready(None));
}

#[test]
fn every_receive_drains_and_then_returns_closed() {
    must_end(|| {
        let (publisher, mut subscriber) = channel(16);
        let mut others: Vec<_> = (0..5).map(|_| subscriber.clone()).collect();
        publisher.publish_batch([1, 2, 3]);
        drop(publisher);
        assert_eq!(subscriber.try_recv(), Ok(1));
        assert_eq!(block_on(subscriber.recv()), Ok(2));
        assert_eq!(subscriber.recv_blocking(), Ok(3));
        closed(&mut subscriber);
        assert_eq!(others[0].iter().map(Result::unwrap).collect::<Vec<_>>(), [1, 2, 3]);
        closed(&mut others[0]);
        assert_eq!(others[1].try_iter().map(Result::unwrap).collect::<Vec<_>>(), [1, 2, 3]);
        closed(&mut others[1]);
        assert_eq!(others[2].try_recv_batch(9).unwrap().copied().next(), Some(1));
        assert_eq!(others[2].recv_batch_blocking(1).unwrap().copied().next(), Some(2));
        assert_eq!(*others[2].recv_ref_blocking().unwrap(), 3);
        closed(&mut others[2]);
        assert_eq!(block_on(others[3].recv_lossy()), Some(1));
        assert_eq!(others[3].recv_timeout(Duration::ZERO), Ok(2));
        assert_eq!(block_on(others[3].recv_seq()), Ok((3, 3)));
        closed(&mut others[3]);
        // One that never received.
        assert!(others[4].is_closed());
        assert_eq!(others[4].backlog(), 3);
    });
}

#[test]
fn a_loss_is_reported_before_closed() {
    let (publisher, subscriber) = Builder::new(4).on_lag(OnLag::Oldest).channel().unwrap();
    for seq in 1..=10 {
        publisher.publish(seq);
    }
    drop(publisher);
    let mut reader = subscriber.clone();
    assert!(matches!(reader.try_recv(), Err(TryRecvError::Lagged(lagged)) if lagged.skipped == 6));
    assert_eq!(reader.try_iter().map(Result::unwrap).collect::<Vec<_>>(), [7, 8, 9, 10]);
    closed(&mut reader);
    // The original has its own counts.
    let mut reader = subscriber;
    assert!(matches!(block_on(reader.recv()), Err(RecvError::Lagged(lagged)) if lagged.resume_at == 7));
    assert_eq!(block_on(reader.recv()), Ok(7));
}

#[test]
fn lagging_to_the_latest_of_a_closed_channel_ends_closed() {
    let (publisher, mut subscriber) = Builder::new(2).on_lag(OnLag::Latest).channel().unwrap();
    for seq in 1..=5 {
        publisher.publish(seq);
    }
    drop(publisher);
    assert!(matches!(subscriber.try_recv(), Err(TryRecvError::Lagged(lagged)) if lagged.resume_at == 6));
    closed(&mut subscriber);
}

#[test]
fn only_the_last_publisher_closes() {
    let (publisher, mut subscriber) = channel::<u64>(4);
    let second = publisher.clone();
    let weak = second.downgrade();
    drop(publisher);
    assert!(!subscriber.is_closed());
    assert_eq!(subscriber.try_recv(), Err(TryRecvError::Empty));
    let third = weak.upgrade().expect("one publisher is left");
    assert_eq!(third.stats().publishers, 2);
    drop(second);
    third.publish(1);
    assert!(!subscriber.is_closed());
    drop(third);
    assert!(weak.upgrade().is_none(), "a closed channel does not reopen");
    assert!(weak.clone().upgrade().is_none());
    assert_eq!(subscriber.try_recv(), Ok(1));
    closed(&mut subscriber);
}

#[test]
fn dropping_the_only_publisher_closes() {
    let (publisher, mut subscriber) = channel(4);
    publisher.publish(1);
    let mut late = publisher.subscribe();
    drop(publisher);
    assert_eq!(subscriber.try_recv(), Ok(1));
    closed(&mut subscriber);
    closed(&mut late);
}

#[test]
fn subscribers_created_after_close_drain_from_their_start() {
    let (publisher, subscriber) = channel(4);
    publisher.publish_batch([1, 2]);
    drop(publisher);
    closed(&mut subscriber.resubscribe());
    let mut clone = subscriber.clone();
    assert_eq!(clone.try_recv(), Ok(1));
    assert_eq!(clone.try_recv(), Ok(2));
    closed(&mut clone);
}

#[test]
fn close_ends_waits_for_future_seqs() {
    must_end(|| {
        let (publisher, _subscriber) = channel::<u64>(4);
        let mut beyond = publisher.subscribe_from(Start::After(10));
        let mut never = publisher.subscribe_from(Start::After(u64::MAX));
        for seq in 1..=5 {
            publisher.publish(seq);
        }
        let waiters = [beyond.clone(), never.clone()].map(|mut waiter| thread::spawn(move || waiter.recv_blocking()));
        drop(publisher);
        closed(&mut beyond);
        closed(&mut never);
        assert_eq!(join_all(waiters), [Err(RecvError::Closed); 2]);
    });
}

#[test]
fn publishing_without_subscribers_works() {
    let (publisher, subscriber) = channel(4);
    drop(subscriber);
    assert_eq!(publisher.subscriber_count(), 0);
    assert_eq!(publisher.stats().slowest_position, None);
    for seq in 1..=100 {
        assert_eq!(publisher.publish(seq), seq);
    }
    let mut late = publisher.subscribe_from(Start::Oldest);
    drop(publisher);
    assert_eq!(
        late.try_iter().map(Result::unwrap).collect::<Vec<_>>(),
        [97, 98, 99, 100]
    );
    closed(&mut late);
}

#[test]
fn close_wakes_every_waiting_thread() {
    must_end(|| {
        for strategy in [WaitStrategy::Park, WaitStrategy::Yield, WaitStrategy::Spin] {
            let spinning = strategy != WaitStrategy::Park;
            let (publisher, subscriber) = Builder::new(4).wait(strategy).channel::<u64>().unwrap();
            let started = Arc::new(Barrier::new(if spinning { 3 } else { 21 }));
            let waiters: Vec<_> = (0..if spinning { 2 } else { 20 })
                .map(|index| {
                    let (mut subscriber, started) = (subscriber.clone(), Arc::clone(&started));
                    thread::spawn(move || {
                        started.wait();
                        match index % 4 {
                            0 => subscriber.recv_blocking().err(),
                            1 => subscriber.recv_ref_blocking().err(),
                            2 => subscriber.recv_batch_blocking(3).err(),
                            _ => subscriber.iter().next().map_or(Some(RecvError::Closed), |_| None),
                        }
                    })
                })
                .collect();
            started.wait();
            drop(publisher);
            assert!(
                join_all(waiters)
                    .into_iter()
                    .all(|error| error == Some(RecvError::Closed))
            );
        }
    });
}

#[test]
fn close_wakes_every_waker_before_drop_returns() {
    for (wake, wake_watchdog) in [(Wake::Cascade, true), (Wake::Cascade, false), (Wake::All, true)] {
        for waiters in [1, 2, 9, 100] {
            let (publisher, subscriber) = Builder::new(4)
                .wake(wake)
                .wake_watchdog(wake_watchdog)
                .channel::<u64>()
                .unwrap();
            let mut waiting: Vec<_> = (0..waiters).map(|_| (subscriber.clone(), WakeCounter::new())).collect();
            for (subscriber, wake_counter) in &mut waiting {
                assert!(
                    subscriber
                        .poll_recv(&mut Context::from_waker(&wake_counter.waker()))
                        .is_pending()
                );
            }
            drop(publisher);
            for (subscriber, wake_counter) in &mut waiting {
                assert_eq!(wake_counter.wakes(), 1, "with {waiters} waiters");
                assert_eq!(block_on(subscriber.recv()), Err(RecvError::Closed));
            }
        }
    }
}

#[test]
fn close_never_overtakes_the_last_message() {
    must_end(|| {
        const ROUNDS: u64 = if cfg!(miri) { 20 } else { 1_500 };
        let started = Arc::new(Barrier::new(4));
        let (senders, threads): (Vec<_>, Vec<_>) = (0..3)
            .map(|me| {
                let (sender, subscribers) = mpsc::channel::<Subscriber<u64>>();
                let started = Arc::clone(&started);
                let thread = thread::spawn(move || {
                    for (round, mut subscriber) in (0..).zip(subscribers) {
                        started.wait();
                        let got = match me {
                            0 => subscriber.recv_blocking(),
                            1 => block_on(subscriber.recv()),
                            _ => try_until_it_ends(&mut subscriber),
                        };
                        assert_eq!(got, Ok(round));
                        assert_eq!(subscriber.recv_blocking(), Err(RecvError::Closed));
                    }
                });
                (sender, thread)
            })
            .unzip();
        for round in 0..ROUNDS {
            let (publisher, subscriber) = channel(2);
            for sender in &senders {
                sender.send(subscriber.clone()).unwrap();
            }
            started.wait();
            publisher.publish(round);
            drop(publisher);
        }
        drop(senders);
        join_all(threads);
    });
}

fn try_until_it_ends(subscriber: &mut Subscriber<u64>) -> Result<u64, RecvError> {
    loop {
        match subscriber.try_recv() {
            Ok(value) => return Ok(value),
            Err(TryRecvError::Empty) => thread::yield_now(),
            Err(TryRecvError::Closed) => return Err(RecvError::Closed),
            Err(TryRecvError::Lagged(lagged)) => return Err(RecvError::Lagged(lagged)),
        }
    }
}

#[test]
fn upgrades_may_race_the_last_drop() {
    must_end(|| {
        const ROUNDS: u64 = if cfg!(miri) { 20 } else { 600 };
        for _ in 0..ROUNDS {
            let (publisher, mut subscriber) = channel::<u64>(64);
            let start = Arc::new(Barrier::new(3));
            let upgraders = [1, 2].map(|_| {
                let (weak, start) = (publisher.downgrade(), Arc::clone(&start));
                thread::spawn(move || {
                    start.wait();
                    let mut published = 0;
                    while let Some(publisher) = weak.upgrade() {
                        published += 1;
                        publisher.publish(published);
                        if published == 5 {
                            break;
                        }
                    }
                    published
                })
            });
            start.wait();
            drop(publisher);
            let published: u64 = join_all(upgraders).into_iter().sum();
            let mut got = 0;
            loop {
                match subscriber.try_recv() {
                    Ok(_) => got += 1,
                    Err(TryRecvError::Closed) => break,
                    Err(error) => panic!("{error:?} after every publisher was dropped"),
                }
            }
            assert_eq!(got, published);
        }
    });
}

#[test]
fn many_threads_may_close_at_once() {
    must_end(|| {
        const ROUNDS: u64 = if cfg!(miri) { 10 } else { 200 };
        for _ in 0..ROUNDS {
            let (publisher, subscriber) = channel::<u64>(16);
            let start = Arc::new(Barrier::new(4));
            let waiter = {
                let mut subscriber = subscriber.clone();
                thread::spawn(move || {
                    let mut got = 0;
                    while subscriber.recv_blocking().is_ok() {
                        got += 1;
                    }
                    got
                })
            };
            let closers: Vec<_> = (0..4)
                .map(|number| {
                    let (publisher, start) = (publisher.clone(), Arc::clone(&start));
                    thread::spawn(move || {
                        start.wait();
                        publisher.publish(number);
                    })
                })
                .collect();
            drop(publisher);
            assert_eq!(waiter.join().unwrap(), 4);
            join_all(closers);
            eventually("the channel is closed", || subscriber.is_closed());
        }
    });
}
