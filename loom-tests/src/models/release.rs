//! The drop-in's rule: dropping the last receiver releases all retained messages, even while others are sent.

use crate::check::{Ledger, Token, WakeCounter};
use crate::registry::{Bound, Model};
use crate::ring::{self, Builder, Publisher, Subscriber, TryRecvError};
use loom::thread;
use std::task::Context;

pub(crate) const MODELS: &[Model] = &[
    Model {
        name: "two_last_receivers",
        clauses: &[6],
        bound: Bound::Preemptions(3),
        run: two_last_receivers,
    },
    Model {
        name: "reading_receiver_goes_before_the_last",
        clauses: &[6],
        bound: Bound::Preemptions(4),
        run: reading_receiver_goes_before_the_last,
    },
    Model {
        name: "receiver_comes_while_releasing",
        clauses: &[3, 6],
        bound: Bound::Preemptions(3),
        run: receiver_comes_while_releasing,
    },
    Model {
        name: "absence_is_noticed",
        clauses: &[9],
        bound: Bound::Exhaustive,
        run: absence_is_noticed,
    },
];

/// A channel whose last subscriber releases what is retained.
fn releasing(capacity: usize) -> (Publisher<Token>, Subscriber<Token>) {
    let (publisher, mut subscriber) = ring::open(&Builder::new(capacity)).unwrap();
    subscriber.set_releasing(true);
    (publisher, subscriber)
}

fn another(of: &Subscriber<Token>) -> Subscriber<Token> {
    let mut subscriber = of.sibling();
    subscriber.set_releasing(true);
    subscriber
}

/// Each of two may be the last.
fn two_last_receivers() {
    let ledger = Ledger::default();
    let (publisher, subscriber) = releasing(1);
    let second = another(&subscriber);
    let (token, _) = ledger.fresh();
    let sender = publisher.clone();
    let leaving = thread::spawn(move || drop(second));
    let sending = thread::spawn(move || drop(sender.send(token)));
    drop(subscriber);
    leaving.join().unwrap();
    sending.join().unwrap();
    assert_eq!(ledger.alive(), 0, "no receiver is left, and a value is retained");
    drop(publisher);
}

/// What one receiver has just read is released by the other, which is dropped last.
fn reading_receiver_goes_before_the_last() {
    let ledger = Ledger::default();
    let (publisher, subscriber) = releasing(1);
    let mut second = another(&subscriber);
    let (token, label) = ledger.fresh();
    assert!(publisher.send(token).is_ok());
    let reading = thread::spawn(move || {
        assert_eq!(second.try_take().map(|token| token.label()), Ok(label));
    });
    drop(subscriber);
    reading.join().unwrap();
    assert_eq!(ledger.alive(), 0, "no receiver is left, and a value is retained");
    drop(publisher);
}

/// A receiver that subscribes while the last one releases sees neither the old values nor the voids that release them, but every
/// later send.
fn receiver_comes_while_releasing() {
    let ledger = Ledger::default();
    let (publisher, subscriber) = releasing(1);
    let (token, _) = ledger.fresh();
    assert!(publisher.send(token).is_ok());
    let leaving = thread::spawn(move || drop(subscriber));
    let mut coming = publisher.subscribe();
    let start = coming.position();
    assert_eq!(coming.try_take().map(|token| token.label()), Err(TryRecvError::Empty));
    let (token, label) = ledger.fresh();
    assert!(publisher.send(token).is_ok());
    assert_eq!(coming.try_take().map(|token| token.label()), Ok(label));
    leaving.join().unwrap();
    let stats = coming.stats();
    assert_eq!((stats.received, stats.skipped, stats.void), (1, 0, 0), "from {start}");
    drop(coming);
    drop(publisher);
    ledger.settle();
}

/// A task that waits until no subscriber is left is woken by the last one, and not before.
fn absence_is_noticed() {
    let (publisher, subscriber) = releasing(1);
    let second = subscriber.clone();
    let wake_counter = WakeCounter::new();
    let leaving = thread::spawn(move || drop(second));
    let waker = wake_counter.waker();
    let mut ticket = None;
    let gone = thread::spawn(move || drop(subscriber));
    let ready = publisher
        .counts()
        .poll_absence(&mut ticket, &Context::from_waker(&waker))
        .is_ready();
    leaving.join().unwrap();
    gone.join().unwrap();
    assert_ne!(ready, wake_counter.wakes() != 0, "woken unless no subscriber was there");
    if let Some(ticket) = ticket {
        publisher.counts().forget(ticket);
    }
    drop(waker);
    assert_eq!(wake_counter.wakers(), 0, "a waker was left behind");
    drop(publisher);
}
