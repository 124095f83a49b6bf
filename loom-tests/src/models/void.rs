//! Sequences that were claimed and never carry a value.

use super::{channel, conclude, publishing};
use crate::check::Ledger;
use crate::registry::{Bound, Model};

pub(crate) const MODELS: &[Model] = &[
    Model {
        name: "claim_then_panic",
        clauses: &[3, 4, 6],
        bound: Bound::Exhaustive,
        run: claim_then_panic,
    },
    Model {
        name: "void_over_a_value",
        clauses: &[3, 4, 6],
        bound: Bound::Preemptions(3),
        run: void_over_a_value,
    },
    Model {
        name: "void_beside_publish",
        clauses: &[1, 3, 4],
        bound: Bound::Preemptions(3),
        run: void_beside_publish,
    },
];

fn claim_then_panic() {
    let ledger = Ledger::default();
    let (writer, mut reader) = channel(2, &ledger);
    let publisher = publishing(writer, |writer| {
        writer.publish_panic();
        writer.publish();
    });
    reader.receive();
    reader.receive();
    let history = publisher.join().unwrap();
    conclude(reader, &history, &ledger);
}

/// The void takes the slot of a value, which must be dropped once, and which the subscriber may be reading.
fn void_over_a_value() {
    let ledger = Ledger::default();
    let (mut writer, mut reader) = channel(1, &ledger);
    writer.publish();
    let publisher = publishing(writer, |writer| {
        writer.publish_batch(0, 1);
        writer.publish_batch(0, 1);
    });
    reader.receive();
    let history = publisher.join().unwrap();
    conclude(reader, &history, &ledger);
}

fn void_beside_publish() {
    let ledger = Ledger::default();
    let (writer, mut reader) = channel(1, &ledger);
    let other = publishing(writer.another(), |other| {
        other.publish_batch(0, 1);
    });
    let publisher = publishing(writer, |writer| {
        writer.publish();
        writer.publish();
    });
    reader.receive();
    let history = other.join().unwrap().merge(publisher.join().unwrap());
    conclude(reader, &history, &ledger);
}
