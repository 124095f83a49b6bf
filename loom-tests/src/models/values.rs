//! Every value is dropped exactly once, whichever handle is dropped last.

use super::{channel, publishing};
use crate::check::Ledger;
use crate::registry::{Bound, Model};
use loom::thread;

pub(crate) const MODELS: &[Model] = &[
    Model {
        name: "every_value_is_dropped_once",
        clauses: &[6],
        bound: Bound::Preemptions(3),
        run: every_value_is_dropped_once,
    },
    Model {
        name: "last_handle_goes",
        clauses: &[5, 6],
        bound: Bound::Exhaustive,
        run: last_handle_goes,
    },
    Model {
        name: "weak_publisher_against_the_last",
        clauses: &[5, 6],
        bound: Bound::Exhaustive,
        run: weak_publisher_against_the_last,
    },
];

/// Two publishers overwrite each other, then the handles are dropped in any order; the last one drops what is in slots.
fn every_value_is_dropped_once() {
    let ledger = Ledger::default();
    let (mut writer, mut reader) = channel(1, &ledger);
    writer.publish();
    let other = publishing(writer.another(), |other| {
        other.publish();
    });
    let publisher = publishing(writer, |writer| {
        writer.publish();
    });
    reader.receive();
    drop(reader);
    other.join().unwrap();
    publisher.join().unwrap();
    ledger.settle();
}

fn last_handle_goes() {
    let ledger = Ledger::default();
    let (mut writer, mut reader) = channel(2, &ledger);
    writer.publish();
    let publisher = publishing(writer, |writer| {
        writer.publish();
    });
    let reading = thread::spawn(move || {
        reader.receive();
    });
    publisher.join().unwrap();
    reading.join().unwrap();
    ledger.settle();
}

/// An upgrade either keeps the channel open or fails for good.
fn weak_publisher_against_the_last() {
    let ledger = Ledger::default();
    let (writer, mut reader) = channel(2, &ledger);
    let weak = writer.publisher.downgrade();
    let publisher = publishing(writer, |writer| {
        writer.publish();
    });
    let mut history = None;
    if let Some(publisher) = weak.upgrade() {
        let mut revived = crate::check::Writer::new(publisher, &ledger);
        assert!(!reader.subscriber.is_closed());
        revived.publish();
        history = Some(revived.finish());
    }
    let published = publisher.join().unwrap();
    let history = match history {
        Some(own) => own.merge(published),
        None => published,
    };
    assert!(weak.upgrade().is_none());
    assert!(reader.subscriber.is_closed());
    drop(weak);
    reader.receive();
    super::conclude(reader, &history, &ledger);
}
