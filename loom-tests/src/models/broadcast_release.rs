//! The drop-in: what the last receiver leaves behind is released, and the next subscriber never notices.

use crate::broadcast::{self, Receiver, Sender};
use crate::check::{Ledger, Token};
use crate::registry::{Bound, Model};
use loom::thread::{self, JoinHandle};

pub(crate) const MODELS: &[Model] = &[
    Model {
        name: "release_against_send",
        clauses: &[6, 11],
        bound: Bound::Preemptions(4),
        run: release_against_send,
    },
    Model {
        name: "release_against_two_sends",
        clauses: &[6, 11],
        bound: Bound::Preemptions(2),
        run: release_against_two_sends,
    },
    Model {
        name: "release_against_subscribe",
        clauses: &[4, 6, 11],
        bound: Bound::Preemptions(3),
        run: release_against_subscribe,
    },
    Model {
        name: "release_against_two_subscribes",
        clauses: &[4, 6, 11],
        bound: Bound::Preemptions(3),
        run: release_against_two_subscribes,
    },
    Model {
        name: "release_send_and_subscribe",
        clauses: &[4, 6, 11],
        bound: Bound::Preemptions(3),
        run: release_send_and_subscribe,
    },
    Model {
        name: "two_receivers_leave",
        clauses: &[6, 11],
        bound: Bound::Preemptions(4),
        run: two_receivers_leave,
    },
];

fn sending(tx: &Sender<Token>, ledger: &Ledger) -> JoinHandle<()> {
    let (tx, (token, _)) = (tx.clone(), ledger.fresh());
    // A returned value is dropped here.
    thread::spawn(move || drop(tx.send(token)))
}

fn leaving(rx: Receiver<Token>) -> JoinHandle<()> {
    thread::spawn(move || drop(rx))
}

/// No receiver is left, so no value may be, whichever thread came last.
fn settle(tx: &Sender<Token>, ledger: &Ledger) {
    assert_eq!(tx.receiver_count(), 0);
    assert_eq!(tx.len(), 0);
    assert_eq!(ledger.alive(), 0, "values were left behind");
}

fn release_against_send() {
    let ledger = Ledger::default();
    let (tx, rx) = broadcast::channel(1);
    let sending = sending(&tx, &ledger);
    drop(rx);
    sending.join().unwrap();
    settle(&tx, &ledger);
}

fn release_against_two_sends() {
    let ledger = Ledger::default();
    let (tx, rx) = broadcast::channel(1);
    let first = sending(&tx, &ledger);
    let second = sending(&tx, &ledger);
    drop(rx);
    first.join().unwrap();
    second.join().unwrap();
    settle(&tx, &ledger);
}

/// Receives all there is: exactly as many messages as `len` says, and no lag.
fn drain(rx: &mut Receiver<Token>) -> Vec<u64> {
    let expected = rx.len();
    let mut labels = Vec::new();
    while let Ok(token) = rx.try_recv() {
        labels.push(token.label());
    }
    assert_eq!(labels.len(), expected, "messages received");
    assert!(rx.is_empty(), "lag, or a sequence without a message");
    labels
}

/// A subscriber that comes while the last one is dropped sees what is sent afterwards, and none of the sequences that the release used.
fn release_against_subscribe() {
    let ledger = Ledger::default();
    let (tx, rx) = broadcast::channel(1);
    drop(tx.send(ledger.fresh().0));
    let leaving = leaving(rx);
    let mut late = tx.subscribe();
    assert_eq!(late.len(), 0);
    let (token, label) = ledger.fresh();
    assert!(tx.send(token).is_ok(), "there is a receiver");
    assert_eq!(drain(&mut late), [label]);
    leaving.join().unwrap();
    drop(late);
    settle(&tx, &ledger);
}

/// The second to come finds the count above zero, and relies on the first.
fn release_against_two_subscribes() {
    let ledger = Ledger::default();
    let (tx, rx) = broadcast::channel(1);
    drop(tx.send(ledger.fresh().0));
    let leaving = leaving(rx);
    let other = {
        let tx = tx.clone();
        thread::spawn(move || {
            let mut rx = tx.subscribe();
            assert!(drain(&mut rx).is_empty());
            rx
        })
    };
    let mut rx = tx.subscribe();
    assert!(drain(&mut rx).is_empty());
    leaving.join().unwrap();
    drop((rx, other.join().unwrap()));
    settle(&tx, &ledger);
}

/// The new receiver gets the message or does not; either way it is settled, and the drop of the new receiver releases the rest.
fn release_send_and_subscribe() {
    let ledger = Ledger::default();
    let (tx, rx) = broadcast::channel(1);
    let sending = sending(&tx, &ledger);
    let leaving = leaving(rx);
    let mut late = tx.subscribe();
    sending.join().unwrap();
    leaving.join().unwrap();
    assert!(drain(&mut late).len() <= 1);
    drop(late);
    settle(&tx, &ledger);
}

/// One of two is the last, and has seen the end of the other's reads.
fn two_receivers_leave() {
    let ledger = Ledger::default();
    let (tx, mut rx) = broadcast::channel(1);
    let other = tx.subscribe();
    drop(tx.send(ledger.fresh().0));
    let leaving = leaving(other);
    drop(rx.try_recv());
    drop(rx);
    leaving.join().unwrap();
    settle(&tx, &ledger);
}
