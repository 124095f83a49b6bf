//! Subscribers that come and go while publishers overwrite.

use super::{channel, conclude, publishing};
use crate::check::{Ledger, Reader, Step};
use crate::registry::{Bound, Model};
use crate::ring::Start;

pub(crate) const MODELS: &[Model] = &[
    Model {
        name: "subscribe_while_overwritten",
        clauses: &[3, 4],
        bound: Bound::Preemptions(3),
        run: || subscribe_while_overwritten(Start::Oldest),
    },
    Model {
        name: "subscribe_after_while_overwritten",
        clauses: &[3, 4],
        bound: Bound::Preemptions(3),
        run: || subscribe_while_overwritten(Start::After(0)),
    },
    Model {
        name: "subscribe_latest_while_publishing",
        clauses: &[3],
        bound: Bound::Exhaustive,
        run: subscribe_latest_while_publishing,
    },
    Model {
        name: "subscribe_beyond_the_end",
        clauses: &[3, 4],
        bound: Bound::Exhaustive,
        run: subscribe_beyond_the_end,
    },
    Model {
        name: "seat_changes_hands",
        clauses: &[4, 6],
        bound: Bound::Preemptions(3),
        run: seat_changes_hands,
    },
    Model {
        name: "seat_in_a_new_chunk",
        clauses: &[4, 6],
        bound: Bound::Preemptions(3),
        run: seat_in_a_new_chunk,
    },
    Model {
        name: "clone_while_overwritten",
        clauses: &[3, 4],
        bound: Bound::Preemptions(3),
        run: clone_while_overwritten,
    },
];

fn subscribe_while_overwritten(start: Start) {
    let ledger = Ledger::default();
    let (mut writer, reader) = channel(1, &ledger);
    drop(reader);
    writer.publish();
    let source = writer.publisher.clone();
    let publisher = publishing(writer, |writer| {
        writer.publish();
        writer.publish();
    });
    let mut reader = Reader::new(source.subscribe_from(start));
    drop(source);
    reader.receive();
    let history = publisher.join().unwrap();
    conclude(reader, &history, &ledger);
}

/// What is claimed after `subscribe` returned is delivered, and what was published before it was called is not.
fn subscribe_latest_while_publishing() {
    let ledger = Ledger::default();
    let (mut writer, reader) = channel(3, &ledger);
    drop(reader);
    writer.publish();
    let mut own = writer.another();
    let publisher = publishing(writer, |writer| {
        writer.publish();
    });
    let mut reader = Reader::new(own.publisher.subscribe());
    assert!(reader.next() >= 2);
    let after = own.publish();
    assert!(reader.next() <= after);
    reader.receive();
    let history = publisher.join().unwrap().merge(own.finish());
    conclude(reader, &history, &ledger);
}

/// A start in the future silently passes over everything below it, lost or not.
fn subscribe_beyond_the_end() {
    let ledger = Ledger::default();
    let (mut writer, reader) = channel(1, &ledger);
    drop(reader);
    let mut reader = Reader::new(writer.publisher.subscribe_from(Start::After(2)));
    assert_eq!(reader.next(), 3);
    writer.publish();
    let publisher = publishing(writer, |writer| {
        writer.publish();
        writer.publish();
    });
    let step = reader.receive();
    assert!(matches!(step, Step::Empty | Step::Received), "{step:?}");
    let history = publisher.join().unwrap();
    conclude(reader, &history, &ledger);
}

/// One subscriber leaves and another takes its seat, while a publisher scans the announcements.
fn seat_changes_hands() {
    let ledger = Ledger::default();
    let (mut writer, mut reader) = channel(1, &ledger);
    let mut leaving = Reader::new(reader.subscriber.clone());
    writer.publish();
    let publisher = publishing(writer, |writer| {
        writer.publish();
        writer.publish();
    });
    leaving.receive();
    drop(leaving);
    let mut coming = Reader::new(reader.subscriber.clone());
    coming.receive_ref();
    reader.receive();
    let history = publisher.join().unwrap();
    coming.audit(&history);
    drop(coming);
    conclude(reader, &history, &ledger);
}

/// A chunk is added while a publisher scans the announcements: it finds the ninth subscriber, or that one sees the frontier.
fn seat_in_a_new_chunk() {
    let ledger = Ledger::default();
    let (mut writer, reader) = channel(1, &ledger);
    let others: Vec<_> = (1..8).map(|_| reader.subscriber.clone()).collect();
    writer.publish();
    let publisher = publishing(writer, |writer| {
        writer.publish();
        writer.publish();
    });
    let mut ninth = Reader::new(reader.subscriber.clone());
    ninth.receive_ref();
    let history = publisher.join().unwrap();
    drop(others);
    drop(reader);
    conclude(ninth, &history, &ledger);
}

fn clone_while_overwritten() {
    let ledger = Ledger::default();
    let (mut writer, mut reader) = channel(1, &ledger);
    writer.publish();
    let publisher = publishing(writer, |writer| {
        writer.publish();
        writer.publish();
    });
    reader.receive();
    let mut second = Reader::new(reader.subscriber.clone());
    assert_eq!(second.next(), reader.next());
    second.receive();
    let history = publisher.join().unwrap();
    second.audit(&history);
    drop(second);
    conclude(reader, &history, &ledger);
}
