//! A publisher that is preempted between its claim and its publication, for a whole lap or more.

use super::{channel, conclude, publishing};
use crate::check::{Ledger, Step};
use crate::registry::{Bound, Model};

pub(crate) const MODELS: &[Model] = &[
    Model {
        name: "preempted_publisher_is_lapped",
        clauses: &[2, 3, 4, 6],
        bound: Bound::Preemptions(3),
        run: preempted_publisher_is_lapped,
    },
    Model {
        name: "lapped_by_two",
        clauses: &[2, 3, 4, 6],
        bound: Bound::Preemptions(2),
        run: lapped_by_two,
    },
    Model {
        name: "lapped_while_building",
        clauses: &[2, 3, 4, 6],
        bound: Bound::Preemptions(3),
        run: lapped_while_building,
    },
    Model {
        name: "lapped_publisher_against_reader",
        clauses: &[2, 3, 4],
        bound: Bound::Exhaustive,
        run: lapped_publisher_against_reader,
    },
    Model {
        name: "lapped_and_lost_at_once",
        clauses: &[3, 4, 7],
        bound: Bound::Preemptions(3),
        run: lapped_and_lost_at_once,
    },
    Model {
        name: "slot_comes_back_after_a_lapped_publisher",
        clauses: &[2, 3, 7],
        bound: Bound::Preemptions(3),
        run: slot_comes_back_after_a_lapped_publisher,
    },
];

/// With two slots, the third publication needs the slot of the first.
fn preempted_publisher_is_lapped() {
    let ledger = Ledger::default();
    let (writer, mut reader) = channel(1, &ledger);
    let slow = publishing(writer.another(), |slow| {
        slow.publish();
    });
    let fast = publishing(writer, |fast| {
        fast.publish();
        fast.publish();
    });
    reader.receive();
    let history = slow.join().unwrap().merge(fast.join().unwrap());
    conclude(reader, &history, &ledger);
}

/// The first sequence is held open by its closure while two others take the slots after it; when it finishes, both of them and
/// the one that waits for the turn it gives up may come at once.
fn lapped_by_two() {
    let ledger = Ledger::default();
    let (writer, reader) = channel(1, &ledger);
    let mut fast = writer.another();
    let (token, label) = ledger.fresh();
    let mut others = Vec::new();
    let first = writer.publisher.publish_with(|_| {
        fast.publish();
        fast.publish();
        for other in [fast.another(), fast.another()] {
            others.push(publishing(other, |other| {
                other.publish();
            }));
        }
        token
    });
    let mut history = fast.finish();
    for other in others {
        history = history.merge(other.join().unwrap());
    }
    history.value(first, label);
    drop(writer);
    conclude(reader, &history, &ledger);
}

/// The claimed sequence is held open by its closure while another publisher laps it twice, and finishes while that one
/// comes round to its slot: the old value never replaces a newer one.
fn lapped_while_building() {
    let ledger = Ledger::default();
    let (writer, mut reader) = channel(1, &ledger);
    let mut fast = writer.another();
    let (token, label) = ledger.fresh();
    let mut late = None;
    let first = writer.publisher.publish_with(|_| {
        assert_eq!(reader.receive(), Step::Empty);
        fast.publish();
        fast.publish();
        fast.publish();
        late = Some(publishing(fast, |fast| {
            fast.publish();
        }));
        token
    });
    let mut history = late.unwrap().join().unwrap();
    history.value(first, label);
    drop(writer);
    conclude(reader, &history, &ledger);
}

/// A subscriber receives while the lapped publisher finishes: it sees the newer events.
fn lapped_publisher_against_reader() {
    let ledger = Ledger::default();
    let (writer, mut reader) = channel(1, &ledger);
    let mut fast = writer.another();
    let (token, label) = ledger.fresh();
    let mut reading = None;
    let first = writer.publisher.publish_with(|_| {
        fast.publish();
        fast.publish();
        reading = Some(loom::thread::spawn(move || {
            reader.receive();
            reader.receive();
            reader
        }));
        token
    });
    let reader = reading.unwrap().join().unwrap();
    let mut history = fast.finish();
    history.value(first, label);
    drop(writer);
    conclude(reader, &history, &ledger);
}

/// A publisher that is lapped while its slot is being read has nowhere to write: its event is lost at once. A subscriber that
/// waits for it gets a lag, and continues after it.
fn lapped_and_lost_at_once() {
    let ledger = Ledger::default();
    let (mut writer, mut reader) = channel(1, &ledger);
    writer.publish();
    let mut holder = reader.subscriber.clone();
    let held = holder.try_recv_ref().expect("event 1 is there");
    writer.publish();
    assert_eq!(reader.receive(), Step::Lagged);
    assert_eq!(reader.receive(), Step::Received);
    let reading = loom::thread::spawn(move || {
        reader.receive();
        reader
    });
    let slow = writer.publisher.clone();
    let (token, label) = ledger.fresh();
    let third = slow.publish_with(|_| {
        writer.publish();
        writer.publish();
        token
    });
    let reader = reading.join().unwrap();
    let mut history = writer.finish();
    history.value(third, label);
    drop(slow);
    drop(held);
    drop(holder);
    conclude(reader, &history, &ledger);
}

/// Once the preempted publisher has finished, its slot is used again and the cells are freed.
fn slot_comes_back_after_a_lapped_publisher() {
    let ledger = Ledger::default();
    let (mut writer, reader) = channel(1, &ledger);
    let slow = publishing(writer.another(), |slow| {
        slow.publish();
    });
    for _ in 0..3 {
        writer.publish();
    }
    let mut history = slow.join().unwrap();
    for _ in 0..6 {
        writer.publish();
    }
    history = history.merge(writer.finish());
    // Two slots and nothing else: everything diverted has been freed.
    assert!(ledger.alive() <= 2, "{} values", ledger.alive());
    conclude(reader, &history, &ledger);
}
