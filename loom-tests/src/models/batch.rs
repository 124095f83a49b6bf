//! Batches on either side.

use super::{channel, conclude, publishing};
use crate::check::{Ledger, Step};
use crate::registry::{Bound, Model};

pub(crate) const MODELS: &[Model] = &[
    Model {
        name: "publish_batch_against_reader",
        clauses: &[1, 3, 4],
        bound: Bound::Exhaustive,
        run: publish_batch_against_reader,
    },
    Model {
        name: "publish_batch_longer_than_the_ring",
        clauses: &[3, 4],
        bound: Bound::Preemptions(3),
        run: publish_batch_longer_than_the_ring,
    },
    Model {
        name: "batch_in_slots_that_another_opened",
        clauses: &[2, 4],
        bound: Bound::Preemptions(3),
        run: batch_in_slots_that_another_opened,
    },
    Model {
        name: "half_read_batch",
        clauses: &[4, 6],
        bound: Bound::Exhaustive,
        run: half_read_batch,
    },
    Model {
        name: "receive_after_a_half_read_batch",
        clauses: &[3, 4],
        bound: Bound::Exhaustive,
        run: receive_after_a_half_read_batch,
    },
    Model {
        name: "batch_grows_while_it_is_read",
        clauses: &[3, 4, 6],
        bound: Bound::Exhaustive,
        run: batch_grows_while_it_is_read,
    },
    Model {
        name: "batch_is_folded_while_it_grows",
        clauses: &[3, 4, 6],
        bound: Bound::Exhaustive,
        run: batch_is_folded_while_it_grows,
    },
];

fn publish_batch_against_reader() {
    let ledger = Ledger::default();
    let (writer, mut reader) = channel(2, &ledger);
    let publisher = publishing(writer, |writer| {
        writer.publish_batch(1, 1);
    });
    reader.receive();
    reader.receive();
    let history = publisher.join().unwrap();
    conclude(reader, &history, &ledger);
}

/// A batch of more events than there are slots overwrites its own beginning.
fn publish_batch_longer_than_the_ring() {
    let ledger = Ledger::default();
    let (writer, mut reader) = channel(1, &ledger);
    let publisher = publishing(writer, |writer| {
        writer.publish_batch(2, 1);
    });
    reader.receive();
    reader.receive();
    let history = publisher.join().unwrap();
    conclude(reader, &history, &ledger);
}

/// A thread reads, and then publishes, which makes room; a batch in that room relies on what the thread has seen.
fn batch_in_slots_that_another_opened() {
    let ledger = Ledger::default();
    let (mut writer, mut reader) = channel(1, &ledger);
    writer.publish();
    writer.publish();
    assert_eq!(reader.receive(), Step::Lagged);
    let mut opener = writer.another();
    let opening = loom::thread::spawn(move || {
        reader.receive();
        reader.receive();
        opener.publish();
        (reader, opener.finish())
    });
    writer.publish_batch(1, 0);
    let (reader, history) = opening.join().unwrap();
    let history = history.merge(writer.finish());
    conclude(reader, &history, &ledger);
}

/// What a dropped batch did not yield is received later, or reported lost.
fn half_read_batch() {
    let ledger = Ledger::default();
    let (mut writer, mut reader) = channel(3, &ledger);
    writer.publish_batch(2, 0);
    let publisher = publishing(writer, |writer| {
        writer.publish();
        writer.publish();
    });
    if reader.receive_batch(2, 1) == Step::Received {
        assert_eq!(reader.next(), 2, "only what was yielded is acknowledged");
    }
    let history = publisher.join().unwrap();
    conclude(reader, &history, &ledger);
}

/// The announcement of the batch still stands, so the receive after it looks straight at the slot.
fn receive_after_a_half_read_batch() {
    let ledger = Ledger::default();
    let (mut writer, mut reader) = channel(3, &ledger);
    writer.publish();
    assert_eq!(reader.receive_batch(3, 1), Step::Received);
    let publisher = publishing(writer, |writer| {
        writer.publish_batch(2, 0);
        writer.publish();
    });
    reader.receive();
    reader.receive();
    let history = publisher.join().unwrap();
    conclude(reader, &history, &ledger);
}

/// The second event of the announced interval is published while the batch is open.
fn batch_grows_while_it_is_read() {
    let ledger = Ledger::default();
    let (mut writer, mut reader) = channel(3, &ledger);
    writer.publish();
    let publisher = publishing(writer, |writer| {
        writer.publish();
    });
    assert_eq!(reader.receive_batch(8, 8), Step::Received);
    let history = publisher.join().unwrap();
    conclude(reader, &history, &ledger);
}

/// The same, received by internal iteration, and half of it overwritten in the end.
fn batch_is_folded_while_it_grows() {
    let ledger = Ledger::default();
    let (mut writer, mut reader) = channel(2, &ledger);
    writer.publish();
    let publisher = publishing(writer, |writer| {
        writer.publish();
        writer.publish();
    });
    reader.fold_batch(8);
    let history = publisher.join().unwrap();
    conclude(reader, &history, &ledger);
}
