//! The drop-in: waiting until there is no receiver, counting handles, and weak senders.

use crate::broadcast::{self, Closed, error::TryRecvError};
use crate::check::{Ledger, WakeCounter};
use crate::registry::{Bound, Model};
use loom::thread;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
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
        name: "send_wakes_every_waiter",
        clauses: &[9, 11],
        bound: Bound::Preemptions(3),
        run: send_wakes_every_waiter,
    },
    Model {
        name: "receivers_are_counted",
        clauses: &[6, 11],
        bound: Bound::Exhaustive,
        run: receivers_are_counted,
    },
];

fn poll(closed: &mut Pin<&mut Closed<'_>>, wake_counter: &Arc<WakeCounter>) -> Poll<()> {
    closed.as_mut().poll(&mut Context::from_waker(&wake_counter.waker()))
}

fn closed_against_the_last_drop() {
    let (tx, rx) = broadcast::channel::<u8>(1);
    let wake_counter = WakeCounter::new();
    let leaving = thread::spawn(move || drop(rx));
    {
        let mut closed = pin!(tx.closed());
        let pending = poll(&mut closed, &wake_counter).is_pending();
        leaving.join().unwrap();
        assert_eq!(wake_counter.wakes(), u64::from(pending), "woken if it waited");
        assert!(poll(&mut closed, &wake_counter).is_ready());
    }
    assert_eq!(wake_counter.wakers(), 0, "a waker was left behind");
}

fn closed_against_two_drops() {
    let (tx, first) = broadcast::channel::<u8>(1);
    let second = tx.subscribe();
    let wake_counter = WakeCounter::new();
    let leaving = thread::spawn(move || drop(first));
    let mut closed = pin!(tx.closed());
    assert!(poll(&mut closed, &wake_counter).is_pending(), "the second is there");
    drop(second);
    leaving.join().unwrap();
    assert_eq!(wake_counter.wakes(), 1, "woken by the last");
    assert!(poll(&mut closed, &wake_counter).is_ready());
}

/// A receiver subscribes before the wait is polled again: the wait goes on.
fn closed_against_subscribe() {
    let (tx, rx) = broadcast::channel::<u8>(1);
    let wake_counter = WakeCounter::new();
    let mut closed = pin!(tx.closed());
    assert!(poll(&mut closed, &wake_counter).is_pending());
    let leaving = thread::spawn(move || drop(rx));
    let late = tx.subscribe();
    assert!(poll(&mut closed, &wake_counter).is_pending(), "one is there");
    leaving.join().unwrap();
    let before = wake_counter.wakes();
    drop(late);
    assert_eq!(
        wake_counter.wakes(),
        before + 1,
        "woken by the last, which was just dropped"
    );
    assert!(poll(&mut closed, &wake_counter).is_ready());
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

/// Three wait and a fourth begins to. It may hold the lock of the wait list during the wake-ups, and then does the deferred work.
fn send_wakes_every_waiter() {
    let (tx, mut late) = broadcast::channel::<u8>(1);
    let mut receivers = [tx.subscribe(), tx.subscribe(), tx.subscribe()];
    let wake_counter = WakeCounter::new();
    let mut waits: Vec<_> = receivers.iter_mut().map(|rx| Box::pin(rx.recv())).collect();
    for wait in &mut waits {
        let polled = wait.as_mut().poll(&mut Context::from_waker(&wake_counter.waker()));
        assert!(polled.is_pending());
    }
    let waiting = thread::spawn(move || {
        drop(pin!(late.recv()).poll(&mut Context::from_waker(Waker::noop())));
        late
    });
    assert_eq!(tx.send(1).ok(), Some(4));
    let mut late = waiting.join().unwrap();
    assert_eq!(wake_counter.wakes(), 3, "every waiter is woken once");
    assert_eq!(late.try_recv().unwrap_or(1), 1);
}

/// No receiver is counted twice or missed, whichever way the count changes.
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
