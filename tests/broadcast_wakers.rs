//! Which receivers of the drop-in are woken, when, and wakers that use the channel themselves.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;

use doorbell::broadcast::{self, Sender};
use doorbell::ring::Wake;
use testkit::threads::{block_on, eventually, join_all, must_end};
use testkit::tracked::{DropCounter, Tracked};
use testkit::wakers::{PanicsIn, WakeCounter, callback_waker, panicking_waker};

fn poll<F: Future>(future: &mut Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(waker))
}

/// `send` wakes every waiting receiver once before it returns.
#[test]
fn a_send_wakes_every_waiting_receiver() {
    for count in [1, 2, 7, 8, 9, 64, 1000] {
        let tx = Sender::new(4);
        let mut receivers: Vec<_> = (0..count).map(|_| tx.subscribe()).collect();
        let wake_counter = WakeCounter::new();
        let waker = wake_counter.waker();
        let mut waits: Vec<_> = receivers.iter_mut().map(|rx| Box::pin(rx.recv())).collect();
        for wait in &mut waits {
            assert!(poll(&mut wait.as_mut(), &waker).is_pending());
        }
        assert_eq!(tx.send(5).unwrap(), count);
        assert_eq!(wake_counter.wakes() as usize, count);
        for wait in &mut waits {
            assert_eq!(poll(&mut wait.as_mut(), &waker), Poll::Ready(Ok(5)));
        }
        assert_eq!(wake_counter.wakes() as usize, count);
    }
}

/// With `Wake::Cascade`, a send wakes a few, and each of these wakes more when it runs.
#[test]
fn a_cascading_send_wakes_a_few_and_these_wake_the_rest() {
    let (tx, first) = broadcast::channel_with(4, Wake::Cascade);
    let mut receivers: Vec<_> = (0..99).map(|_| tx.subscribe()).collect();
    receivers.push(first);
    let wake_counter = WakeCounter::new();
    let waker = wake_counter.waker();
    let mut waits: Vec<_> = receivers.iter_mut().map(|rx| Box::pin(rx.recv())).collect();
    for wait in &mut waits {
        assert!(poll(&mut wait.as_mut(), &waker).is_pending());
    }
    assert_eq!(tx.send(5).unwrap(), 100);
    for wait in &mut waits {
        assert_eq!(poll(&mut wait.as_mut(), &waker), Poll::Ready(Ok(5)));
    }
    drop(waits);
    eventually("all are woken", || wake_counter.wakes() == 100);
}

#[test]
fn the_last_sender_wakes_every_waiting_receiver() {
    let (tx, mut first) = broadcast::channel::<u8>(4);
    let mut second = first.resubscribe();
    let wake_counter = WakeCounter::new();
    let waker = wake_counter.waker();
    let (mut one, mut two) = (pin!(first.recv()), pin!(second.recv()));
    assert!(poll(&mut one, &waker).is_pending());
    assert!(poll(&mut two, &waker).is_pending());
    let other = tx.clone();
    drop(tx);
    assert_eq!(wake_counter.wakes(), 0);
    drop(other);
    assert_eq!(wake_counter.wakes(), 2);
    let closed = Poll::Ready(Err(broadcast::error::RecvError::Closed));
    assert_eq!(poll(&mut one, &waker), closed);
    assert_eq!(poll(&mut two, &waker), closed);
}

/// Wakers may send, subscribe, or drop senders and receivers, inside the send or the drop that woke them.
#[test]
fn wakers_may_use_the_channel() {
    must_end(|| {
        let (tx, mut waiting) = broadcast::channel(4);
        let mut watching = tx.subscribe();
        let props = Mutex::new(Some((tx.clone(), tx.subscribe())));
        let sender = tx.clone();
        let waker = callback_waker(
            move || {
                if let Some((tx, rx)) = props.lock().unwrap().take() {
                    drop(rx);
                    tx.send(2).unwrap();
                    drop(tx.subscribe());
                    drop(tx);
                }
            },
            move || drop(sender.send(3)),
        );
        let mut wait = Box::pin(waiting.recv());
        assert!(poll(&mut wait.as_mut(), &waker).is_pending());
        assert_eq!(tx.send(1).unwrap(), 3);
        assert_eq!(block_on(wait), Ok(1));
        assert_eq!(watching.try_recv(), Ok(1));
        assert_eq!(watching.try_recv(), Ok(2), "sent by the waker");
        drop(waker);
        assert_eq!(watching.try_recv(), Ok(3), "sent by the drop of the waker");
        assert_eq!(tx.receiver_count(), 2);
    });
}

/// A waker may drop the last receiver inside a send.
#[test]
fn a_waker_may_drop_the_last_receiver() {
    must_end(|| {
        let counter = DropCounter::new();
        let (tx, rx) = broadcast::channel(4);
        let last = Arc::new(Mutex::new(None));
        let taken = last.clone();
        let waker = callback_waker(move || drop(taken.lock().unwrap().take()), || {});
        let mut wait = Box::pin(async move {
            let mut rx: broadcast::Receiver<Tracked> = rx;
            let first = rx.recv().await.unwrap().id();
            (first, rx)
        });
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        *last.lock().unwrap() = Some(wait);
        assert_eq!(tx.send(counter.value(1)).unwrap(), 1);
        assert_eq!(tx.receiver_count(), 0);
        assert_eq!(counter.alive(), 0, "the drop inside the send releases the values");
    });
}

/// A waker that panics affects neither the send nor the other waiters. (A listed difference.)
#[test]
fn a_waker_that_panics_does_not_affect_others() {
    let (tx, mut first) = broadcast::channel(4);
    let mut second = tx.subscribe();
    let (waker, _) = panicking_waker(PanicsIn::Wake);
    let wake_counter = WakeCounter::new();
    let mut one = Box::pin(first.recv());
    let mut two = Box::pin(second.recv());
    assert!(poll(&mut one.as_mut(), &waker).is_pending());
    assert!(poll(&mut two.as_mut(), &wake_counter.waker()).is_pending());
    assert_eq!(tx.send(1).unwrap(), 2);
    assert_eq!(wake_counter.wakes(), 1);
    assert_eq!(block_on(one), Ok(1));
    assert_eq!(block_on(two), Ok(1));
}

#[test]
fn closed_completes_when_no_receiver_is_left() {
    let (tx, rx) = broadcast::channel::<u8>(4);
    let other = tx.subscribe();
    let wake_counter = WakeCounter::new();
    let mut closed = pin!(tx.closed());
    assert!(poll(&mut closed, &wake_counter.waker()).is_pending());
    drop(rx);
    assert_eq!(wake_counter.wakes(), 0);
    drop(other);
    assert_eq!(wake_counter.wakes(), 1);
    assert!(poll(&mut closed, &wake_counter.waker()).is_ready());
    block_on(tx.closed());
}

/// If the waker subscribes, the wait continues until that receiver is dropped.
#[test]
fn closed_keeps_waiting_if_its_waker_subscribes() {
    must_end(|| {
        let (tx, rx) = broadcast::channel::<u8>(4);
        let subscriber = tx.clone();
        let subscribed = Arc::new(Mutex::new(None));
        let kept = subscribed.clone();
        let waker = callback_waker(move || *kept.lock().unwrap() = Some(subscriber.subscribe()), || {});
        let mut closed = pin!(tx.closed());
        assert!(poll(&mut closed, &waker).is_pending());
        drop(rx);
        assert_eq!(tx.receiver_count(), 1, "the waker subscribed");
        let wake_counter = WakeCounter::new();
        assert!(poll(&mut closed, &wake_counter.waker()).is_pending());
        drop(subscribed.lock().unwrap().take());
        assert_eq!(wake_counter.wakes(), 1);
        assert!(poll(&mut closed, &wake_counter.waker()).is_ready());
    });
}

/// Many wait for `closed` and some cancel: no waker is left behind.
#[test]
fn closed_leaves_no_waker_behind() {
    let (tx, rx) = broadcast::channel::<u8>(4);
    let wake_counter = WakeCounter::new();
    let waker = wake_counter.waker();
    let mut waits: Vec<_> = (0..100).map(|_| Box::pin(tx.closed())).collect();
    for wait in &mut waits {
        assert!(poll(&mut wait.as_mut(), &waker).is_pending());
    }
    let mut index = 0;
    waits.retain(|_| {
        index += 1;
        index % 3 == 0
    });
    drop(rx);
    assert_eq!(wake_counter.wakes() as usize, waits.len());
    drop(waits);
    drop(waker);
    assert_eq!(Arc::strong_count(&wake_counter), 1);
}

/// Senders on other threads repeatedly wait until no receiver is left.
#[test]
fn closed_completes_on_other_threads() {
    must_end(|| {
        for _ in 0..500 {
            let (tx, rx) = broadcast::channel::<u8>(4);
            let waits: Vec<_> = (0..2)
                .map(|_| {
                    let tx = tx.clone();
                    thread::spawn(move || block_on(tx.closed()))
                })
                .collect();
            let other = tx.subscribe();
            let leaving = thread::spawn(move || drop(other));
            drop(rx);
            join_all(waits);
            leaving.join().unwrap();
        }
    });
}
