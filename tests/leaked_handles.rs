//! Handles, references and futures whose destructor never runs: everything stays sound, and only they are leaked.

use std::future::Future;
use std::mem::forget;
use std::sync::Arc;
use std::task::Context;

use doorbell::ring::{TryRecvError, channel};
use testkit::threads::poll_once;
use testkit::tracked::DropCounter;
use testkit::wakers::WakeCounter;

#[test]
fn leaked_references_and_batches_are_sound() {
    let counter = DropCounter::new();
    let (publisher, mut subscriber) = channel(8);
    for round in 0..50 {
        let base = publisher.next_seq();
        for id in base..base + 8 {
            publisher.publish(counter.value(id));
        }
        while matches!(subscriber.try_recv_ref().map(forget), Err(TryRecvError::Lagged(_))) {}
        let at = subscriber.position();
        match round % 3 {
            0 => {
                let mut batch = subscriber.try_recv_batch(4).unwrap();
                assert_eq!(batch.next().map(|value| value.id()), Some(at));
                assert_eq!(batch.next().map(|value| value.id()), Some(at + 1));
                forget(batch);
                // The events that it yielded count as received, as if it had been dropped.
                assert_eq!(subscriber.position(), at + 2);
            }
            1 => {
                let held = subscriber.try_recv_ref().unwrap();
                assert_eq!((held.seq(), held.id()), (at, at));
                forget(held);
                assert_eq!(subscriber.position(), at + 1);
            }
            _ => {
                forget(subscriber.try_recv_batch(4).unwrap());
                assert_eq!(subscriber.position(), at);
            }
        }
        assert_eq!(
            subscriber.try_recv().map(|value| value.id()),
            Ok(subscriber.position() - 1)
        );
        let stats = subscriber.stats();
        assert_eq!(stats.received + stats.skipped + stats.void, subscriber.position() - 1);
    }
    drop((publisher, subscriber));
    assert_eq!(counter.alive(), 0);
}

#[test]
fn leaked_waits_are_sound() {
    let (publisher, mut subscriber) = channel::<u64>(8);
    let wake_counter = WakeCounter::new();
    let waker = wake_counter.waker();
    for round in 0..50 {
        let mut wait = Box::pin(subscriber.recv());
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        forget(wait);
        let mut wait = Box::pin(subscriber.recv_batch(3));
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        forget(wait);
        publisher.publish(round);
        match round % 3 {
            0 => assert_eq!(subscriber.try_recv(), Ok(round)),
            1 => assert_eq!(subscriber.recv_blocking(), Ok(round)),
            _ => assert!(matches!(poll_once(subscriber.recv()), std::task::Poll::Ready(Ok(got)) if got == round)),
        }
    }
    assert!(wake_counter.wakes() >= 25);
    drop((publisher, subscriber));
    // The wait list was freed with the channel; the leaked futures held no waker.
    drop(waker);
    assert_eq!(Arc::strong_count(&wake_counter), 1);
}

#[test]
fn leaked_handles_are_sound() {
    let counter = DropCounter::new();
    let (publisher, mut subscriber) = channel(4);
    for id in 0..4 {
        publisher.publish(counter.value(id));
    }
    // It reads nothing, so what it announced is revoked.
    let mut lost = subscriber.clone();
    assert!(lost.try_recv().is_ok());
    forget(lost);
    for id in 4..200 {
        publisher.publish(counter.value(id));
    }
    assert!(matches!(subscriber.try_recv(), Err(TryRecvError::Lagged(_))));
    assert_eq!(
        subscriber.try_recv().map(|value| value.id()),
        Ok(subscriber.position() - 2)
    );
    assert!(counter.alive() <= 3 * 4);
    // A leaked publisher keeps the channel open.
    forget(publisher.clone());
    drop(publisher);
    while subscriber.try_recv().is_ok() {}
    assert!(!subscriber.is_closed());
    assert!(matches!(subscriber.try_recv(), Err(TryRecvError::Empty)));
}
