//! A publisher revokes what a subscriber announced and does not read, and takes subscribers that rest out of the scans.
//!
//! A ring of capacity 2 has 4 slots, and a batch announces 2 sequences. The subscriber takes the first of them and then finds
//! nothing, so that it rests with the other still announced.

use super::{channel, conclude, publishing};
use crate::check::{Ledger, Reader, Step, Token, Writer};
use crate::registry::{Bound, Model};
use crate::ring::Subscriber;

pub(crate) const MODELS: &[Model] = &[
    Model {
        name: "revocation_against_receive",
        clauses: &[4, 6, 7],
        bound: Bound::Preemptions(3),
        run: against_receive,
    },
    Model {
        name: "revocation_against_reference",
        clauses: &[6, 7],
        bound: Bound::Preemptions(3),
        run: against_reference,
    },
    Model {
        name: "revocation_against_batch",
        clauses: &[4, 6, 7],
        bound: Bound::Preemptions(3),
        run: against_batch,
    },
    Model {
        name: "revocation_before_the_loss_is_published",
        clauses: &[3, 4, 7],
        bound: Bound::Preemptions(3),
        run: before_the_loss_is_published,
    },
    Model {
        name: "revocation_against_lag",
        clauses: &[4, 6, 7],
        bound: Bound::Preemptions(2),
        run: against_lag,
    },
    Model {
        name: "revoked_announcement_pins_nothing",
        clauses: &[2, 7],
        bound: Bound::Exhaustive,
        run: pins_nothing,
    },
    Model {
        name: "unlisting_against_announcement",
        clauses: &[6, 7],
        bound: Bound::Preemptions(2),
        run: unlisting_against_announcement,
    },
];

/// A subscriber that has announced 4 and 5, has received 4 and rests; 5 and 6 are published. The slots of 4 to 7 are in one row, so
/// that it receives 5 directly, without a look at the frontier itself.
fn resting(ledger: &Ledger) -> (Writer, Reader) {
    let (mut writer, mut reader) = channel(2, ledger);
    for _ in 0..3 {
        writer.publish();
        assert_eq!(reader.receive(), Step::Received);
    }
    writer.publish();
    assert_eq!(reader.receive_batch(2, 1), Step::Received);
    assert_eq!(reader.receive(), Step::Empty);
    writer.publish();
    writer.publish();
    (writer, reader)
}

/// The subscriber receives 5, which it announced before, while a publisher expires it, revokes it and reaches its slot.
fn against_receive() {
    let ledger = Ledger::default();
    let (writer, mut reader) = resting(&ledger);
    let publisher = publishing(writer, |writer| {
        writer.publish();
        writer.publish();
        writer.publish();
    });
    reader.receive();
    let history = publisher.join().unwrap();
    conclude(reader, &history, &ledger);
}

fn against_reference() {
    let ledger = Ledger::default();
    let (writer, mut reader) = resting(&ledger);
    let mut follower = Reader::new(reader.subscriber.resubscribe());
    let publisher = publishing(writer, |writer| {
        writer.publish();
        writer.publish();
        writer.publish();
    });
    let held = reader.subscriber.try_recv_ref();
    let label = held.as_ref().map(|held| held.label());
    let history = publisher.join().unwrap();
    if let (Ok(held), Ok(label)) = (&held, &label) {
        assert_eq!(held.label(), *label, "what is held does not change");
    }
    let received = held.map(|held| (held.seq(), held.label()));
    reader.note(received);
    follower.drain(history.end(1));
    drop(follower);
    conclude(reader, &history, &ledger);
}

fn against_batch() {
    let ledger = Ledger::default();
    let (writer, mut reader) = resting(&ledger);
    let publisher = publishing(writer, |writer| {
        writer.publish();
        writer.publish();
        writer.publish();
    });
    reader.receive_batch(1, 1);
    let history = publisher.join().unwrap();
    conclude(reader, &history, &ledger);
}

/// The publisher of 7, with which 5 is lost, is suspended while another one reaches the slot of 5: only the frontier says that 5
/// must not be read.
fn before_the_loss_is_published() {
    let ledger = Ledger::default();
    let (writer, mut reader) = resting(&ledger);
    let fast = writer.another();
    let (token, label) = ledger.fresh();
    let mut late = None;
    let seq = writer.publisher.publish_with(|_| {
        let publisher = publishing(fast, |fast| {
            fast.publish();
            fast.publish();
        });
        reader.receive();
        late = Some(publisher.join().unwrap());
        token
    });
    let mut history = writer.finish().merge(late.expect("the closure ran"));
    history.value(seq, label);
    conclude(reader, &history, &ledger);
}

/// The subscriber lags, and announces anew while its earlier announcement is revoked.
fn against_lag() {
    let ledger = Ledger::default();
    let (writer, mut reader) = resting(&ledger);
    let publisher = publishing(writer, |writer| {
        for _ in 0..4 {
            writer.publish();
        }
    });
    reader.receive();
    reader.receive();
    let history = publisher.join().unwrap();
    conclude(reader, &history, &ledger);
}

/// What rests costs no cell: every event uses its slot.
fn pins_nothing() {
    let ledger = Ledger::default();
    let (mut writer, mut reader) = resting(&ledger);
    for _ in 0..3 {
        writer.publish();
    }
    assert!(ledger.alive() <= 4, "{} values in four slots", ledger.alive());
    reader.receive();
    conclude(reader, &writer.finish(), &ledger);
}

/// Adds seven subscribers and then a ninth: only entries beyond the eighth are ever unlisted.
fn ninth(reader: &Reader) -> (Vec<Subscriber<Token>>, Reader) {
    let others = (1..8).map(|_| reader.subscriber.clone()).collect();
    (others, Reader::new(reader.subscriber.clone()))
}

/// The subscriber announces 4 while a publisher finds that it announces nothing and unlists it. The clearing before 8, whose slot
/// is that of 4, must still find the announcement.
fn unlisting_against_announcement() {
    let ledger = Ledger::default();
    let (mut writer, reader) = channel(2, &ledger);
    let (others, mut ninth) = ninth(&reader);
    for _ in 0..3 {
        writer.publish();
        assert_eq!(ninth.receive(), Step::Received);
    }
    assert_eq!(ninth.receive(), Step::Empty);
    writer.publish();
    let reading = loom::thread::spawn(move || {
        ninth.receive_ref();
        ninth
    });
    for _ in 0..4 {
        writer.publish();
    }
    let ninth = reading.join().unwrap();
    let history = writer.finish();
    drop(others);
    drop(reader);
    conclude(ninth, &history, &ledger);
}
