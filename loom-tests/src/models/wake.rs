//! Several subscribers wait: a publication wakes one, which wakes the next.

use super::{channel, publishing, with_watchdog};
use crate::check::{History, Ledger, Reader, Waiting, WakeCounter};
use crate::registry::{Bound, Model};
use loom::thread;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};

pub(crate) const MODELS: &[Model] = &[
    Model {
        name: "registration_lock_held",
        clauses: &[2, 9],
        bound: Bound::Preemptions(3),
        run: || with_watchdog(registration_lock_held),
    },
    Model {
        name: "cascade_along_a_chain",
        clauses: &[9],
        bound: Bound::Preemptions(3),
        run: cascade_along_a_chain,
    },
    Model {
        name: "cascade_with_a_dropped_waiter",
        clauses: &[8, 9],
        bound: Bound::Preemptions(3),
        run: cascade_with_a_dropped_waiter,
    },
    Model {
        name: "cascade_with_a_dropped_subscriber",
        clauses: &[8, 9],
        bound: Bound::Preemptions(3),
        run: cascade_with_a_dropped_subscriber,
    },
    Model {
        name: "two_publications_one_waiter",
        clauses: &[9],
        bound: Bound::Preemptions(3),
        run: two_publications_one_waiter,
    },
];

fn waiting(reader: &Reader) -> Waiting {
    Waiting::new(Reader::new(reader.subscriber.clone()))
}

fn settle(waiting: Vec<Waiting>, history: &History, ledger: &Ledger) {
    for one in &waiting {
        one.reader.audit(history);
    }
    drop(waiting);
    ledger.settle();
}

/// Two subscribers register while the publisher looks for waiters: it may find the lock taken by either. (There is a watchdog, so
/// that no task wakes itself; it takes no turn before the end.)
fn registration_lock_held() {
    let ledger = Ledger::default();
    let (writer, reader) = channel(1, &ledger);
    let keeps_open = writer.another();
    let mut second = waiting(&reader);
    let mut first = Waiting::new(reader);
    let publisher = publishing(writer, |writer| {
        writer.publish();
    });
    let polling = thread::spawn(move || {
        second.poll();
        second.poll_if_woken();
        second
    });
    first.poll();
    first.poll_if_woken();
    let history = publisher.join().unwrap();
    let mut all = vec![first, polling.join().unwrap()];
    Waiting::run_to_the_end(&mut all);
    drop(keeps_open);
    settle(all, &history, &ledger);
}

/// Three are already waiting; the woken ones run while the publisher is still at work.
fn cascade_along_a_chain() {
    let ledger = Ledger::default();
    let (writer, reader) = channel(1, &ledger);
    let keeps_open = writer.another();
    let mut all = vec![waiting(&reader), waiting(&reader)];
    let mut first = Waiting::new(reader);
    first.poll();
    for one in &mut all {
        one.poll();
    }
    let publisher = publishing(writer, |writer| {
        writer.publish();
    });
    first.poll();
    let history = publisher.join().unwrap();
    all.push(first);
    Waiting::run_to_the_end(&mut all);
    drop(keeps_open);
    settle(all, &history, &ledger);
}

/// The first waiter is dropped while the publisher may have chosen it to be woken; the second must be woken.
fn cascade_with_a_dropped_waiter() {
    let ledger = Ledger::default();
    let (writer, mut reader) = channel(1, &ledger);
    let keeps_open = writer.another();
    let second = waiting(&reader);
    let wake_counter = WakeCounter::new();
    let waker = wake_counter.waker();
    let publisher;
    let mut all = vec![second];
    {
        let mut wait = pin!(reader.subscriber.recv_seq());
        assert!(matches!(
            wait.as_mut().poll(&mut Context::from_waker(&waker)),
            Poll::Pending
        ));
        all[0].poll();
        publisher = publishing(writer, |writer| {
            writer.publish();
        });
    }
    let history = publisher.join().unwrap();
    Waiting::run_to_the_end(&mut all);
    drop(waker);
    assert_eq!(wake_counter.wakers(), 0, "a waker was left behind");
    drop(keeps_open);
    drop(reader);
    settle(all, &history, &ledger);
}

/// The same, but the whole subscriber is dropped.
fn cascade_with_a_dropped_subscriber() {
    let ledger = Ledger::default();
    let (writer, reader) = channel(1, &ledger);
    let keeps_open = writer.another();
    let mut all = vec![waiting(&reader)];
    let mut first = Waiting::new(reader);
    first.poll();
    all[0].poll();
    let publisher = publishing(writer, |writer| {
        writer.publish();
    });
    drop(first);
    let history = publisher.join().unwrap();
    Waiting::run_to_the_end(&mut all);
    drop(keeps_open);
    settle(all, &history, &ledger);
}

/// Two publishers wake at once, and the waiter comes back between the wake-ups.
fn two_publications_one_waiter() {
    let ledger = Ledger::default();
    let (writer, reader) = channel(2, &ledger);
    let keeps_open = writer.another();
    let mut all = vec![waiting(&reader), Waiting::new(reader)];
    for one in &mut all {
        one.poll();
    }
    let other = publishing(writer.another(), |other| {
        other.publish();
    });
    let publisher = publishing(writer, |writer| {
        writer.publish();
    });
    let mut first = all.pop().expect("two wait");
    first.poll();
    let history = publisher.join().unwrap().merge(other.join().unwrap());
    all.push(first);
    Waiting::run_to_the_end(&mut all);
    drop(keeps_open);
    settle(all, &history, &ledger);
}
