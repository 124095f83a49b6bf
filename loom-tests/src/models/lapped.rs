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
        name: "lapped_twice",
        clauses: &[2, 3, 4, 6],
        bound: Bound::Preemptions(3),
        run: lapped_twice,
    },
    Model {
        name: "lapped_by_two",
        clauses: &[2, 3, 4, 6],
        bound: Bound::Preemptions(3),
        run: lapped_by_two,
    },
    Model {
        name: "lapped_while_building",
        clauses: &[2, 3, 4, 6],
        bound: Bound::Exhaustive,
        run: lapped_while_building,
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

fn lapped_twice() {
    let ledger = Ledger::default();
    let (writer, mut reader) = channel(1, &ledger);
    let slow = publishing(writer.another(), |slow| {
        slow.publish();
    });
    let fast = publishing(writer, |fast| {
        for _ in 0..5 {
            fast.publish();
        }
    });
    let history = slow.join().unwrap().merge(fast.join().unwrap());
    reader.receive();
    conclude(reader, &history, &ledger);
}

/// Two others contend for the turn that the preempted publisher holds.
fn lapped_by_two() {
    let ledger = Ledger::default();
    let (writer, reader) = channel(1, &ledger);
    let slow = publishing(writer.another(), |slow| {
        slow.publish();
    });
    let second = publishing(writer.another(), |second| {
        second.publish();
        second.publish();
    });
    let third = publishing(writer, |third| {
        third.publish();
        third.publish();
    });
    let history = slow
        .join()
        .unwrap()
        .merge(second.join().unwrap())
        .merge(third.join().unwrap());
    conclude(reader, &history, &ledger);
}

/// The claimed sequence is held open by its closure while another publisher laps it, once and again; a subscriber that comes by
/// meanwhile sees the newer events, and the old value never takes their place.
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
        reader.receive();
        token
    });
    reader.receive();
    let mut history = late.unwrap().join().unwrap();
    history.value(first, label);
    drop(writer);
    conclude(reader, &history, &ledger);
}

/// Once the preempted publisher has finished, its slot is used again and the cells go.
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
    // Two slots, and nothing else: whatever was diverted has been freed.
    assert!(ledger.alive() <= 2, "{} values", ledger.alive());
    conclude(reader, &history, &ledger);
}
