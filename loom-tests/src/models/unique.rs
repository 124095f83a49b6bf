//! The ring of one publisher, which claims without a read-modify-write.

use crate::check::{History, Ledger, Reader, Token, Writer};
use crate::registry::{Bound, Model};
use crate::ring::{self, UniquePublisher};
use loom::thread::{self, JoinHandle};

pub(crate) const MODELS: &[Model] = &[
    Model {
        name: "unique_publisher_against_reader",
        clauses: &[1, 3, 4],
        bound: Bound::Exhaustive,
        run: || against_reader(1, 1, 2),
    },
    Model {
        name: "unique_publisher_against_reader_capacity_2",
        clauses: &[1, 3, 4],
        bound: Bound::Preemptions(3),
        run: || against_reader(2, 2, 3),
    },
    Model {
        name: "unique_publisher_against_reference",
        clauses: &[2, 4, 6],
        bound: Bound::Exhaustive,
        run: against_reference,
    },
    Model {
        name: "unique_publisher_batches",
        clauses: &[1, 3, 4],
        bound: Bound::Exhaustive,
        run: batches,
    },
];

fn channel(capacity: usize, ledger: &Ledger) -> (Writer<UniquePublisher<Token>>, Reader) {
    let (publisher, subscriber) = ring::spmc(capacity);
    (Writer::new(publisher, ledger), Reader::new(subscriber))
}

fn publishing(
    mut writer: Writer<UniquePublisher<Token>>,
    work: impl FnOnce(&mut Writer<UniquePublisher<Token>>) + 'static,
) -> JoinHandle<History> {
    thread::spawn(move || {
        work(&mut writer);
        writer.finish()
    })
}

fn against_reader(capacity: usize, before: usize, publications: usize) {
    let ledger = Ledger::default();
    let (mut writer, mut reader) = channel(capacity, &ledger);
    for _ in 0..before {
        writer.publish();
    }
    let publisher = publishing(writer, move |writer| {
        for _ in 0..publications {
            writer.publish();
        }
    });
    reader.receive();
    let history = publisher.join().unwrap();
    super::conclude(reader, &history, &ledger);
}

fn against_reference() {
    let ledger = Ledger::default();
    let (mut writer, mut reader) = channel(1, &ledger);
    writer.publish();
    let publisher = publishing(writer, |writer| {
        writer.publish();
        writer.publish_with();
    });
    reader.receive_ref();
    let history = publisher.join().unwrap();
    super::conclude(reader, &history, &ledger);
}

fn batches() {
    let ledger = Ledger::default();
    let (mut writer, mut reader) = channel(2, &ledger);
    writer.publish();
    let publisher = publishing(writer, |writer| {
        writer.publish_batch(2, 1);
    });
    reader.receive();
    let history = publisher.join().unwrap();
    super::conclude(reader, &history, &ledger);
}
