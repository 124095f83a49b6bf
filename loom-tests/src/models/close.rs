//! Closing while subscribers receive or wait.

use super::{channel, conclude, publishing};
use crate::check::{Ledger, Reader, Step, Waiting};
use crate::registry::{Bound, Model};

pub(crate) const MODELS: &[Model] = &[
    Model {
        name: "close_against_receive",
        clauses: &[5],
        bound: Bound::Exhaustive,
        run: close_against_receive,
    },
    Model {
        name: "close_against_wait",
        clauses: &[5, 9],
        bound: Bound::Exhaustive,
        run: close_against_wait,
    },
    Model {
        name: "last_of_two_publishers_closes",
        clauses: &[5, 9],
        bound: Bound::Preemptions(3),
        run: last_of_two_publishers_closes,
    },
    Model {
        name: "close_wakes_every_waiter",
        clauses: &[5, 9],
        bound: Bound::Preemptions(3),
        run: close_wakes_every_waiter,
    },
];

/// Closed means that everything published has been seen.
fn close_against_receive() {
    let ledger = Ledger::default();
    let (writer, mut reader) = channel(1, &ledger);
    let publisher = publishing(writer, |writer| {
        writer.publish();
    });
    for _ in 0..3 {
        if reader.receive() == Step::Closed {
            assert_eq!(reader.labels().len(), 1, "closed before the event was received");
        }
    }
    let history = publisher.join().unwrap();
    conclude(reader, &history, &ledger);
}

fn close_against_wait() {
    let ledger = Ledger::default();
    let (writer, mut reader) = channel(1, &ledger);
    let publisher = publishing(writer, |_| {});
    assert_eq!(reader.wait_as_thread(), Step::Closed);
    let history = publisher.join().unwrap();
    conclude(reader, &history, &ledger);
}

fn last_of_two_publishers_closes() {
    let ledger = Ledger::default();
    let (writer, mut reader) = channel(2, &ledger);
    let other = publishing(writer.another(), |_| {});
    let publisher = publishing(writer, |writer| {
        writer.publish();
    });
    assert_eq!(reader.wait_as_thread(), Step::Received);
    assert_eq!(reader.wait_as_thread(), Step::Closed);
    let history = publisher.join().unwrap().merge(other.join().unwrap());
    conclude(reader, &history, &ledger);
}

/// Closing relies on no cascade: the last publisher itself wakes every waiter.
fn close_wakes_every_waiter() {
    let ledger = Ledger::default();
    let (writer, reader) = channel(1, &ledger);
    let mut second = Waiting::new(Reader::new(reader.subscriber.clone()));
    let mut first = Waiting::new(reader);
    let publisher = publishing(writer, |_| {});
    let polling = loom::thread::spawn(move || {
        second.poll();
        second
    });
    first.poll();
    let history = publisher.join().unwrap();
    let mut second = polling.join().unwrap();
    for waiting in [&mut first, &mut second] {
        if waiting.outcome.is_none() {
            assert!(waiting.is_woken(), "the close did not wake this waiter");
            waiting.poll();
        }
        assert_eq!(waiting.outcome, Some(Step::Closed));
    }
    drop(second);
    conclude(first.reader, &history, &ledger);
}
