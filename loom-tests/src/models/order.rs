//! One order: every sequence once, the same event for every subscriber.

use super::{channel, conclude, publishing};
use crate::check::{Ledger, Reader};
use crate::registry::{Bound, Model};

pub(crate) const MODELS: &[Model] = &[
    Model {
        name: "two_publishers_one_subscriber",
        clauses: &[1, 3, 4],
        bound: Bound::Exhaustive,
        run: two_publishers_one_subscriber,
    },
    Model {
        name: "batch_beside_publish",
        clauses: &[1, 3, 4],
        bound: Bound::Preemptions(3),
        run: batch_beside_publish,
    },
    Model {
        name: "two_subscribers_see_the_same",
        clauses: &[1, 3, 4],
        bound: Bound::Preemptions(3),
        run: two_subscribers_see_the_same,
    },
];

fn two_publishers_one_subscriber() {
    let ledger = Ledger::default();
    let (mut one, mut reader) = channel(2, &ledger);
    let other = publishing(one.another(), |two| {
        two.publish();
    });
    one.publish();
    reader.receive();
    let history = other.join().unwrap().merge(one.finish());
    conclude(reader, &history, &ledger);
}

/// Nothing comes between the events of a batch, and a publisher's own events keep their order.
fn batch_beside_publish() {
    let ledger = Ledger::default();
    let (one, mut reader) = channel(3, &ledger);
    let other = publishing(one.another(), |two| {
        let first = two.publish();
        let second = two.publish();
        assert!(first < second);
    });
    let batching = publishing(one, |one| {
        one.publish_batch(2, 0);
    });
    reader.receive();
    let history = batching.join().unwrap().merge(other.join().unwrap());
    conclude(reader, &history, &ledger);
}

fn two_subscribers_see_the_same() {
    let ledger = Ledger::default();
    let (mut one, mut reader) = channel(2, &ledger);
    let mut second = Reader::new(reader.subscriber.clone());
    one.publish();
    let other = publishing(one.another(), |two| {
        two.publish();
        two.publish();
    });
    let reading = loom::thread::spawn(move || {
        second.receive();
        second.receive();
        second
    });
    reader.receive();
    let second = reading.join().unwrap();
    let history = other.join().unwrap().merge(one.finish());
    conclude(reader, &history, &Ledger::default());
    conclude(second, &history, &ledger);
}
