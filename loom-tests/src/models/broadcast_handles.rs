//! The drop-in: waiting until nobody receives, counting handles, and weak senders.

use crate::broadcast::{self, Closed, error::TryRecvError};
use crate::check::{Ledger, WaitQueue};
use crate::registry::{Bound, Model};
use loom::thread;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

pub(crate) const MODELS: &[Model] = &[
    Model {
        name: "closed_against_the_last_drop",
        clauses: &[8, 9, 11],
        bound: Bound::Exhaustive,
        run: closed_against_the_last_drop,
    },
    Model {
        name: "closed_against_two_drops",
        clauses: &[9, 11],
        bound: Bound::Preemptions(4),
        run: closed_against_two_drops,
    },
    Model {
        name: "closed_against_subscribe",
        clauses: &[9, 11],
        bound: Bound::Exhaustive,
        run: closed_against_subscribe,
    },
    Model {
        name: "weak_sender_against_the_last",
        clauses: &[5, 11],
        bound: Bound::Exhaustive,
        run: weak_sender_against_the_last,
    },
    Model {
        name: "send_wakes_everybody",
        clauses: &[9, 11],
        bound: Bound::Preemptions(3),
        run: send_wakes_everybody,
    },
    Model {
        name: "receivers_are_counted",
        clauses: &[6, 11],
        bound: Bound::Exhaustive,
        run: receivers_are_counted,
    },
];

fn poll(closed: &mut Pin<&mut Closed<'_>>, wait_queue: &WaitQueue) -> Poll<()> {
    closed.as_mut().poll(&mut Context::from_waker(&wait_queue.waker()))
}

fn closed_against_the_last_drop() {
    let (tx, rx) = broadcast::channel::<u8>(1);
    let wait_queue = WaitQueue::default();
    let leaving = thread::spawn(move || drop(rx));
    {
        let mut closed = pin!(tx.closed());
        let pending = poll(&mut closed, &wait_queue).is_pending();
        leaving.join().unwrap();
        assert_eq!(wait_queue.rings(), usize::from(pending), "woken if it waited");
        assert!(poll(&mut closed, &wait_queue).is_ready());
    }
    assert_eq!(wait_queue.wakers(), 0, "a waker was left behind");
}

fn closed_against_two_drops() {
    let (tx, first) = broadcast::channel::<u8>(1);
    let second = tx.subscribe();
    let wait_queue = WaitQueue::default();
    let leaving = thread::spawn(move || drop(first));
    let mut closed = pin!(tx.closed());
    assert!(poll(&mut closed, &wait_queue).is_pending(), "the second is there");
    drop(second);
    leaving.join().unwrap();
    assert_eq!(wait_queue.rings(), 1, "woken by the last");
    assert!(poll(&mut closed, &wait_queue).is_ready());
}

/// Somebody comes before the wait has been polled again: it goes on.
fn closed_against_subscribe() {
    let (tx, rx) = broadcast::channel::<u8>(1);
    let wait_queue = WaitQueue::default();
    let mut closed = pin!(tx.closed());
    assert!(poll(&mut closed, &wait_queue).is_pending());
    let leaving = thread::spawn(move || drop(rx));
    let late = tx.subscribe();
    assert!(poll(&mut closed, &wait_queue).is_pending(), "one is there");
    leaving.join().unwrap();
    let before = wait_queue.rings();
    drop(late);
    assert_eq!(wait_queue.rings(), before + 1, "woken by the last, who left just now");
    assert!(poll(&mut closed, &wait_queue).is_ready());
}

/// Either the channel stays open for the upgraded sender, or it is closed for good.
fn weak_sender_against_the_last() {
    let ledger = Ledger::default();
    let (tx, mut rx) = broadcast::channel(1);
    let weak = tx.downgrade();
    let leaving = thread::spawn(move || drop(tx));
    match weak.upgrade() {
        Some(tx) => {
            let (token, label) = ledger.fresh();
            assert_eq!(tx.send(token).ok(), Some(1));
            assert_eq!(rx.try_recv().map(|token| token.label()).ok(), Some(label));
            leaving.join().unwrap();
            assert_eq!(rx.sender_strong_count(), 1);
            assert!(matches!(rx.try_recv(), Err(TryRecvError::Empty)));
        }
        None => leaving.join().unwrap(),
    }
    assert!(weak.upgrade().is_none());
    assert_eq!((weak.strong_count(), weak.weak_count()), (0, 1));
    assert!(matches!(rx.try_recv(), Err(TryRecvError::Closed)));
    drop((rx, weak));
    ledger.settle();
}

/// Three wait, and a fourth begins to, which may hold the table of waiters in the midst of the waking: it goes on with it then.
fn send_wakes_everybody() {
    let (tx, mut late) = broadcast::channel::<u8>(1);
    let mut receivers = [tx.subscribe(), tx.subscribe(), tx.subscribe()];
    let wait_queue = WaitQueue::default();
    let mut waits: Vec<_> = receivers.iter_mut().map(|rx| Box::pin(rx.recv())).collect();
    for wait in &mut waits {
        let polled = wait.as_mut().poll(&mut Context::from_waker(&wait_queue.waker()));
        assert!(polled.is_pending());
    }
    let waiting = thread::spawn(move || {
        drop(pin!(late.recv()).poll(&mut Context::from_waker(Waker::noop())));
        late
    });
    assert_eq!(tx.send(1).ok(), Some(4));
    let mut late = waiting.join().unwrap();
    assert_eq!(wait_queue.rings(), 3, "who waited is woken, and once");
    assert_eq!(late.try_recv().unwrap_or(1), 1);
}

/// Nobody is counted twice or forgotten, whichever way the count goes.
fn receivers_are_counted() {
    let (tx, rx) = broadcast::channel::<u8>(1);
    let coming = {
        let tx = tx.clone();
        thread::spawn(move || tx.subscribe())
    };
    drop(rx);
    let sent = tx.send(1).is_ok();
    let late = coming.join().unwrap();
    assert_eq!(tx.receiver_count(), 1);
    assert_eq!(late.len(), usize::from(sent && !late.is_empty()));
    assert_eq!(tx.send(2).ok(), Some(1));
    drop(late);
    assert_eq!(tx.receiver_count(), 0);
    assert!(tx.send(3).is_err());
}
