//! Lag: exact, reported once, and never mistaken for anything else.

use super::{channel, conclude, publishing};
use crate::check::{Ledger, Reader, Step, Token, Writer};
use crate::registry::{Bound, Model};
use crate::ring::{Builder, OnLag, Publisher};

pub(crate) const MODELS: &[Model] = &[
    Model {
        name: "exact_lag",
        clauses: &[4],
        bound: Bound::Exhaustive,
        run: exact_lag,
    },
    Model {
        name: "exact_lag_of_two_publishers",
        clauses: &[4],
        bound: Bound::Preemptions(2),
        run: exact_lag_of_two_publishers,
    },
    Model {
        name: "lag_leaves_headroom",
        clauses: &[4],
        bound: Bound::Exhaustive,
        run: || lag_by_policy(OnLag::Headroom(1)),
    },
    Model {
        name: "lag_resumes_at_the_latest",
        clauses: &[4],
        bound: Bound::Exhaustive,
        run: || lag_by_policy(OnLag::Latest),
    },
    Model {
        name: "returned_publish_makes_lost",
        clauses: &[4],
        bound: Bound::Exhaustive,
        run: returned_publish_makes_lost,
    },
    Model {
        name: "unfinished_is_not_lost_early",
        clauses: &[3, 4],
        bound: Bound::Preemptions(3),
        run: unfinished_is_not_lost_early,
    },
];

/// One receive with everything that a loss must satisfy at the moment it is reported.
fn receive_exactly(reader: &mut Reader, publisher: &Publisher<Token>) -> Step {
    let before = reader.next();
    let step = reader.receive();
    if step == Step::Lagged {
        let capacity = reader.subscriber.capacity() as u64;
        let resumed = reader.next();
        assert!(resumed > before);
        assert!(
            publisher.next_seq() >= resumed + capacity,
            "at {resumed}: the last one skipped was not lost"
        );
    }
    step
}

fn exact_lag() {
    let ledger = Ledger::default();
    let (mut writer, mut reader) = channel(1, &ledger);
    writer.publish();
    let observer = writer.publisher.clone();
    let publisher = publishing(writer, |writer| {
        writer.publish();
    });
    receive_exactly(&mut reader, &observer);
    receive_exactly(&mut reader, &observer);
    drop(observer);
    let history = publisher.join().unwrap();
    conclude(reader, &history, &ledger);
}

fn exact_lag_of_two_publishers() {
    let ledger = Ledger::default();
    let (mut writer, mut reader) = channel(1, &ledger);
    writer.publish();
    let observer = writer.publisher.clone();
    let other = publishing(writer.another(), |writer| {
        writer.publish();
    });
    let publisher = publishing(writer, |writer| {
        writer.publish();
    });
    receive_exactly(&mut reader, &observer);
    receive_exactly(&mut reader, &observer);
    drop(observer);
    let history = publisher.join().unwrap().merge(other.join().unwrap());
    conclude(reader, &history, &ledger);
}

fn lag_by_policy(policy: OnLag) {
    let ledger = Ledger::default();
    let (publisher, subscriber) = Builder::new(2).on_lag(policy).channel().unwrap();
    let mut writer = Writer::new(publisher, &ledger);
    let mut reader = Reader::new(subscriber);
    writer.publish();
    writer.publish();
    let observer = writer.publisher.clone();
    let publisher = publishing(writer, |writer| {
        writer.publish();
        writer.publish();
    });
    let step = reader.receive();
    let (resumed, end) = (reader.next(), observer.next_seq());
    if step == Step::Lagged {
        match policy {
            // One above the oldest, which is at most two behind the end.
            OnLag::Headroom(_) => assert!(resumed < end && end <= 5),
            _ => assert!(resumed <= end && resumed >= 4),
        }
    }
    drop(observer);
    let history = publisher.join().unwrap();
    assert_eq!(history.end(1), 5);
    // What follows is alone: 3 and 4 are retained, so nothing below 3 may come, and nothing from there on may be missing.
    let step = reader.receive();
    match (step, reader.next()) {
        (Step::Received, 4 | 5) | (Step::Closed, 5) => {}
        (Step::Lagged, resumed) => assert_eq!(resumed, if policy == OnLag::Latest { 5 } else { 4 }),
        (step, next) => panic!("{step:?} before {next}"),
    }
    while reader.receive() == Step::Received {}
    assert_eq!(reader.next(), 5);
    drop(reader);
    ledger.settle();
}

/// A loss that happened before the receive is always reported, whatever storage still stands.
fn returned_publish_makes_lost() {
    let ledger = Ledger::default();
    let (mut writer, mut reader) = channel(1, &ledger);
    writer.publish();
    let returned = loom::sync::Arc::new(loom::sync::atomic::AtomicBool::new(false));
    let seen = returned.clone();
    let publisher = publishing(writer, move |writer| {
        writer.publish();
        returned.store(true, loom::sync::atomic::Ordering::Release);
    });
    let lost = seen.load(loom::sync::atomic::Ordering::Acquire);
    let step = reader.receive();
    if lost {
        assert_eq!(step, Step::Lagged, "1 was lost when 2 had been published");
        assert_eq!(reader.receive(), Step::Received);
    }
    let history = publisher.join().unwrap();
    conclude(reader, &history, &ledger);
}

/// Two publications stay unfinished while a third overtakes them: until it is published nothing is lost, and once something is
/// lost the third is there.
fn unfinished_is_not_lost_early() {
    let ledger = Ledger::default();
    let (writer, mut reader) = channel(1, &ledger);
    let observer = writer.publisher.clone();
    let (one, one_label) = ledger.fresh();
    let (two, two_label) = ledger.fresh();
    let mut publisher = None;
    let mut writer = Some(writer);
    observer.publish_with(|seq| {
        assert_eq!(seq, 1);
        observer.publish_with(|seq| {
            assert_eq!(seq, 2);
            let third = writer.take().unwrap();
            publisher = Some(publishing(third, |third| {
                third.publish();
            }));
            if reader.receive() == Step::Lagged {
                assert_eq!(reader.next(), 3);
                assert_eq!(reader.receive(), Step::Received, "3 is published when 1 and 2 are lost");
            }
            two
        });
        one
    });
    let mut history = publisher.unwrap().join().unwrap();
    history.value(1, one_label);
    history.value(2, two_label);
    drop(observer);
    conclude(reader, &history, &ledger);
}
