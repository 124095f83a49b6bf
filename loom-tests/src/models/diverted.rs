//! Events whose slot a subscriber is still reading: they are diverted and found, and the slot is used again later.

use super::{channel, conclude, publishing};
use crate::check::{Ledger, Reader, Step};
use crate::registry::{Bound, Model};

pub(crate) const MODELS: &[Model] = &[
    Model {
        name: "held_reference_diverts",
        clauses: &[2, 4, 6, 7],
        bound: Bound::Exhaustive,
        run: held_reference_diverts,
    },
    Model {
        name: "reference_dropped_while_diverting",
        clauses: &[2, 4, 6, 7],
        bound: Bound::Preemptions(3),
        run: reference_dropped_while_diverting,
    },
    Model {
        name: "slot_is_restored",
        clauses: &[2, 6, 7],
        bound: Bound::Preemptions(3),
        run: slot_is_restored,
    },
    Model {
        name: "diverted_event_is_read_while_it_expires",
        clauses: &[4, 6, 7],
        bound: Bound::Preemptions(3),
        run: diverted_event_is_read_while_it_expires,
    },
    Model {
        name: "two_readers_find_a_diverted_event",
        clauses: &[4, 6, 7],
        bound: Bound::Preemptions(2),
        run: two_readers_find_a_diverted_event,
    },
    Model {
        name: "two_publishers_divert",
        clauses: &[2, 4, 6, 7],
        bound: Bound::Preemptions(2),
        run: two_publishers_divert,
    },
];

/// The subscriber holds event 1 for good while another subscriber follows the publisher, whose events 3 and 5 need that slot.
fn held_reference_diverts() {
    let ledger = Ledger::default();
    let (mut writer, reader) = channel(1, &ledger);
    let mut holder = reader.subscriber.clone();
    let mut follower = reader;
    writer.publish();
    let held = holder.try_recv_ref().expect("event 1 is there");
    let label = held.label();
    let publisher = publishing(writer, |writer| {
        writer.publish();
        writer.publish();
    });
    follower.receive();
    let history = publisher.join().unwrap();
    assert_eq!(held.label(), label);
    drop(held);
    drop(holder);
    conclude(follower, &history, &ledger);
}

/// The reference is dropped while a publisher looks for it.
fn reference_dropped_while_diverting() {
    let ledger = Ledger::default();
    let (mut writer, mut reader) = channel(1, &ledger);
    writer.publish();
    let publisher = publishing(writer, |writer| {
        writer.publish();
        writer.publish();
    });
    reader.receive_ref();
    let history = publisher.join().unwrap();
    conclude(reader, &history, &ledger);
}

/// After the reference is dropped, publications use the slot again and the cells are freed.
fn slot_is_restored() {
    let ledger = Ledger::default();
    let (mut writer, mut reader) = channel(1, &ledger);
    writer.publish();
    let mut holder = Reader::new(reader.subscriber.clone());
    let publisher = publishing(writer.another(), |writer| {
        writer.publish();
        writer.publish();
        writer.publish();
    });
    holder.receive_ref();
    let mut history = publisher.join().unwrap();
    while holder.receive() != Step::Empty {}
    for _ in 0..6 {
        writer.publish();
    }
    history = history.merge(writer.finish());
    assert!(ledger.alive() <= 2, "{} values in two slots", ledger.alive());
    holder.audit(&history);
    drop(holder);
    reader.receive();
    conclude(reader, &history, &ledger);
}

/// A subscriber reads an event out of a cell while publications expire it and free cells.
fn diverted_event_is_read_while_it_expires() {
    let ledger = Ledger::default();
    let (mut writer, mut reader) = channel(1, &ledger);
    let mut holder = reader.subscriber.clone();
    writer.publish();
    let held = holder.try_recv_ref().expect("event 1 is there");
    writer.publish();
    writer.publish();
    assert_eq!(reader.receive(), Step::Lagged);
    assert_eq!(reader.next(), 3);
    let publisher = publishing(writer, |writer| {
        writer.publish();
        writer.publish();
    });
    reader.receive_ref();
    let history = publisher.join().unwrap();
    drop(held);
    drop(holder);
    conclude(reader, &history, &ledger);
}

fn two_readers_find_a_diverted_event() {
    let ledger = Ledger::default();
    let (mut writer, mut reader) = channel(1, &ledger);
    let mut holder = reader.subscriber.clone();
    writer.publish();
    let held = holder.try_recv_ref().expect("event 1 is there");
    writer.publish();
    assert_eq!(reader.receive(), Step::Lagged);
    assert_eq!(reader.receive(), Step::Received);
    let mut second = Reader::new(reader.subscriber.clone());
    let publisher = publishing(writer, |writer| {
        writer.publish();
    });
    let reading = loom::thread::spawn(move || {
        second.receive();
        second
    });
    reader.receive();
    let history = publisher.join().unwrap();
    let second = reading.join().unwrap();
    second.audit(&history);
    drop(second);
    drop(held);
    drop(holder);
    conclude(reader, &history, &ledger);
}

fn two_publishers_divert() {
    let ledger = Ledger::default();
    let (mut writer, reader) = channel(1, &ledger);
    let mut holder = reader.subscriber.clone();
    writer.publish();
    let held = holder.try_recv_ref().expect("event 1 is there");
    let other = publishing(writer.another(), |other| {
        other.publish();
    });
    let publisher = publishing(writer, |writer| {
        writer.publish();
        writer.publish();
    });
    let history = publisher.join().unwrap().merge(other.join().unwrap());
    drop(held);
    drop(holder);
    conclude(reader, &history, &ledger);
}
