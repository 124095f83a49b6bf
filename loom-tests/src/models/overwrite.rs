//! A publisher reuses the slot that a subscriber is reading.
//!
//! A ring of capacity 1, 2, 3 has 2, 4, 6 slots; the events published before the threads start leave the next publication but
//! one or two to land in the slot of the event that the subscriber asks for.

use super::{channel, conclude, publishing};
use crate::check::{Ledger, Reader, Step};
use crate::registry::{Bound, Model};

pub(crate) const MODELS: &[Model] = &[
    Model {
        name: "overwrite_against_reader",
        clauses: &[2, 3, 4],
        bound: Bound::Preemptions(3),
        run: || by_value(1, 1, 2, 1),
    },
    Model {
        name: "overwrite_against_reader_capacity_2",
        clauses: &[2, 3, 4],
        bound: Bound::Preemptions(3),
        run: || by_value(2, 2, 3, 2),
    },
    Model {
        name: "overwrite_against_reader_capacity_3",
        clauses: &[2, 3, 4],
        bound: Bound::Preemptions(3),
        run: || by_value(3, 3, 4, 2),
    },
    Model {
        name: "overwrite_after_a_new_announcement",
        clauses: &[2, 3, 4],
        bound: Bound::Preemptions(3),
        run: after_a_new_announcement,
    },
    Model {
        name: "overwrite_against_reference",
        clauses: &[2, 3, 4, 6],
        bound: Bound::Preemptions(3),
        run: || by_reference(1, 1, 2),
    },
    Model {
        name: "overwrite_against_reference_capacity_2",
        clauses: &[2, 3, 4, 6],
        bound: Bound::Preemptions(3),
        run: || by_reference(2, 2, 3),
    },
    Model {
        name: "overwrite_against_reference_capacity_3",
        clauses: &[2, 3, 4, 6],
        bound: Bound::Preemptions(3),
        run: || by_reference(3, 3, 4),
    },
    Model {
        name: "overwrite_against_batch",
        clauses: &[2, 3, 4, 6],
        bound: Bound::Preemptions(3),
        run: || by_batch(3, 3, 4),
    },
    Model {
        name: "overwrite_by_publish_with_against_reference",
        clauses: &[2, 4, 6],
        bound: Bound::Preemptions(3),
        run: by_publish_with_against_reference,
    },
    Model {
        name: "overwrite_by_batch_against_reader",
        clauses: &[1, 3, 4],
        bound: Bound::Exhaustive,
        run: by_batch_against_reader,
    },
    Model {
        name: "overwrite_against_two_readers",
        clauses: &[2, 3, 4],
        bound: Bound::Preemptions(2),
        run: against_two_readers,
    },
];

fn by_value(capacity: usize, before: usize, publications: usize, receives: usize) {
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
    for _ in 0..receives {
        reader.receive();
    }
    let history = publisher.join().unwrap();
    conclude(reader, &history, &ledger);
}

/// The subscriber reads 3 and announces 4, which the clearing before 5 leaves alone; 7 overwrites 3. Only the new announcement says
/// that the read of 3 is over.
fn after_a_new_announcement() {
    let ledger = Ledger::default();
    let (mut writer, mut reader) = channel(2, &ledger);
    for _ in 0..2 {
        writer.publish();
        assert_eq!(reader.receive(), Step::Received);
    }
    writer.publish();
    writer.publish();
    let publisher = publishing(writer, |writer| {
        writer.publish();
        writer.publish();
        writer.publish();
    });
    reader.receive();
    reader.receive();
    let history = publisher.join().unwrap();
    conclude(reader, &history, &ledger);
}

fn by_reference(capacity: usize, before: usize, publications: usize) {
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
    reader.receive_ref();
    let history = publisher.join().unwrap();
    conclude(reader, &history, &ledger);
}

fn by_batch(capacity: usize, before: usize, publications: usize) {
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
    reader.receive_batch(2, 2);
    let history = publisher.join().unwrap();
    conclude(reader, &history, &ledger);
}

fn by_publish_with_against_reference() {
    let ledger = Ledger::default();
    let (mut writer, mut reader) = channel(1, &ledger);
    writer.publish();
    let publisher = publishing(writer, |writer| {
        writer.publish();
        writer.publish_with();
    });
    reader.receive_ref();
    let history = publisher.join().unwrap();
    conclude(reader, &history, &ledger);
}

fn by_batch_against_reader() {
    let ledger = Ledger::default();
    let (mut writer, mut reader) = channel(2, &ledger);
    writer.publish();
    let publisher = publishing(writer, |writer| {
        writer.publish_batch(2, 1);
    });
    reader.receive();
    let history = publisher.join().unwrap();
    conclude(reader, &history, &ledger);
}

fn against_two_readers() {
    let ledger = Ledger::default();
    let (mut writer, mut reader) = channel(1, &ledger);
    let mut second = Reader::new(reader.subscriber.clone());
    writer.publish();
    let publisher = publishing(writer, |writer| {
        writer.publish();
        writer.publish();
    });
    let reading = loom::thread::spawn(move || {
        second.receive();
        second
    });
    reader.receive();
    let second = reading.join().unwrap();
    let history = publisher.join().unwrap();
    second.audit(&history);
    drop(second);
    conclude(reader, &history, &ledger);
}
