//! One subscriber waits while events are published: it never sleeps through one.

use super::{channel, conclude, publishing, with_watchdog};
use crate::check::{Ledger, Reader, Step, Waiting, WakeCounter, Writer};
use crate::registry::{Bound, Model};
use crate::ring::{Builder, Start};
use loom::thread;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};

pub(crate) const MODELS: &[Model] = &[
    Model {
        name: "park_against_publish",
        clauses: &[9],
        bound: Bound::Exhaustive,
        run: || {
            park_against(|writer| {
                writer.publish();
            })
        },
    },
    Model {
        name: "park_against_publish_with",
        clauses: &[9],
        bound: Bound::Exhaustive,
        run: || {
            park_against(|writer| {
                writer.publish_with();
            })
        },
    },
    Model {
        name: "park_against_batch",
        clauses: &[9],
        bound: Bound::Exhaustive,
        run: || {
            park_against(|writer| {
                writer.publish_batch(1, 0);
            })
        },
    },
    Model {
        name: "park_against_void",
        clauses: &[3, 9],
        bound: Bound::Preemptions(3),
        run: park_against_void,
    },
    Model {
        name: "task_waits_against_publish",
        clauses: &[9],
        bound: Bound::Exhaustive,
        run: || with_watchdog(task_waits_against_publish),
    },
    Model {
        name: "task_waits_without_a_watchdog",
        clauses: &[9],
        bound: Bound::Preemptions(3),
        run: task_waits_against_publish,
    },
    Model {
        name: "park_without_watchdog",
        clauses: &[9],
        bound: Bound::Exhaustive,
        run: || {
            park_without_watchdog(|writer| {
                writer.publish();
            })
        },
    },
    Model {
        name: "park_without_watchdog_against_publish_with",
        clauses: &[9],
        bound: Bound::Exhaustive,
        run: || {
            park_without_watchdog(|writer| {
                writer.publish_with();
            })
        },
    },
    Model {
        name: "park_without_watchdog_against_batch",
        clauses: &[9],
        bound: Bound::Exhaustive,
        run: || {
            park_without_watchdog(|writer| {
                writer.publish_batch(1, 0);
            })
        },
    },
    Model {
        name: "newcomer_parks_against_publish_with",
        clauses: &[9],
        bound: Bound::Preemptions(3),
        run: || newcomer_parks(true),
    },
    Model {
        name: "newcomer_parks_without_watchdog",
        clauses: &[9],
        bound: Bound::Preemptions(3),
        run: || newcomer_parks(false),
    },
    Model {
        name: "newcomer_task_against_publish_with",
        clauses: &[9],
        bound: Bound::Preemptions(3),
        run: newcomer_task,
    },
    Model {
        name: "park_behind_an_unfinished_publish",
        clauses: &[9],
        bound: Bound::Preemptions(4),
        run: park_behind_an_unfinished_publish,
    },
    Model {
        name: "park_cancelled",
        clauses: &[8, 9],
        bound: Bound::Preemptions(4),
        run: || park_cancelled(false),
    },
    Model {
        name: "park_again_after_cancelling",
        clauses: &[8, 9],
        bound: Bound::Preemptions(3),
        run: || park_cancelled(true),
    },
];

/// A thread waits for one event.
fn park_against(publish: fn(&mut Writer)) {
    let ledger = Ledger::default();
    let (writer, mut reader) = channel(1, &ledger);
    let mut keeps_open = writer.another();
    let publisher = publishing(writer, publish);
    assert_eq!(reader.wait_as_thread(), Step::Received);
    let history = publisher.join().unwrap();
    keeps_open.publish();
    let history = history.merge(keeps_open.finish());
    conclude(reader, &history, &ledger);
}

/// A void is no event, but it must wake waiters, because an event that was published before may follow it.
fn park_against_void() {
    let ledger = Ledger::default();
    let (writer, mut reader) = channel(2, &ledger);
    let keeps_open = writer.another();
    let publisher = publishing(writer, |writer| {
        writer.publish_batch(0, 1);
        writer.publish();
    });
    assert_eq!(reader.wait_as_thread(), Step::Received);
    let history = publisher.join().unwrap();
    drop(keeps_open);
    conclude(reader, &history, &ledger);
}

/// A task is polled once or twice while the event is published, and after that only when it was woken.
fn task_waits_against_publish() {
    let ledger = Ledger::default();
    let (writer, reader) = channel(1, &ledger);
    let keeps_open = writer.another();
    let mut waiting = [Waiting::new(reader)];
    let publisher = publishing(writer, |writer| {
        writer.publish();
    });
    waiting[0].poll();
    if waiting[0].is_woken() {
        waiting[0].poll();
    }
    let history = publisher.join().unwrap();
    Waiting::run_to_the_end(&mut waiting);
    drop(keeps_open);
    let [waiting] = waiting;
    conclude(waiting.reader, &history, &ledger);
}

/// The only subscriber comes while its event is published, and waits for it: a publisher that found no subscriber does not fence.
fn newcomer_parks(wake_watchdog: bool) {
    let ledger = Ledger::default();
    let (publisher, subscriber) = Builder::new(2).wake_watchdog(wake_watchdog).channel().unwrap();
    drop(subscriber);
    let writer = Writer::new(publisher, &ledger);
    let keeps_open = writer.another();
    let publisher = publishing(writer, |writer| {
        writer.publish_with();
    });
    let mut reader = Reader::new(keeps_open.publisher.subscribe_from(Start::After(0)));
    assert_eq!(reader.wait_as_thread(), Step::Received);
    let history = publisher.join().unwrap();
    drop(keeps_open);
    conclude(reader, &history, &ledger);
}

/// The same for a task, which relies on being woken if it finds its event unclaimed.
fn newcomer_task() {
    let ledger = Ledger::default();
    let (writer, reader) = channel(1, &ledger);
    drop(reader);
    let keeps_open = writer.another();
    let publisher = publishing(writer, |writer| {
        writer.publish_with();
    });
    let reader = Reader::new(keeps_open.publisher.subscribe_from(Start::After(0)));
    let mut waiting = [Waiting::new(reader)];
    waiting[0].poll();
    let history = publisher.join().unwrap();
    Waiting::run_to_the_end(&mut waiting);
    drop(keeps_open);
    let [waiting] = waiting;
    conclude(waiting.reader, &history, &ledger);
}

/// Without a watchdog the publisher must see the subscriber waiting, whatever it was doing when the subscriber came.
fn park_without_watchdog(publish: fn(&mut Writer)) {
    let ledger = Ledger::default();
    let (publisher, subscriber) = Builder::new(2).wake_watchdog(false).channel().unwrap();
    let writer = Writer::new(publisher, &ledger);
    let mut reader = Reader::new(subscriber);
    let keeps_open = writer.another();
    let publisher = publishing(writer, publish);
    assert_eq!(reader.wait_as_thread(), Step::Received);
    let history = publisher.join().unwrap();
    drop(keeps_open);
    conclude(reader, &history, &ledger);
}

/// The subscriber starts to wait while 1 is claimed and unfinished, and 2 is published.
fn park_behind_an_unfinished_publish() {
    let ledger = Ledger::default();
    let (publisher, subscriber) = Builder::new(2).wake_watchdog(false).channel().unwrap();
    let mut writer = Writer::new(publisher, &ledger);
    let mut reader = Reader::new(subscriber);
    let slow = writer.publisher.clone();
    let (token, label) = ledger.fresh();
    let publisher = thread::spawn(move || {
        let first = slow.publish_with(|_| {
            writer.publish();
            token
        });
        let mut history = writer.finish();
        history.value(first, label);
        history
    });
    assert_eq!(reader.wait_as_thread(), Step::Received);
    let history = publisher.join().unwrap();
    conclude(reader, &history, &ledger);
}

/// A cancelled wait loses nothing and leaves no waker behind, and its subscriber can wait `again`.
fn park_cancelled(again: bool) {
    let ledger = Ledger::default();
    let (writer, mut reader) = channel(1, &ledger);
    let keeps_open = writer.another();
    let wake_counter = WakeCounter::new();
    let publisher = publishing(writer, |writer| {
        writer.publish();
    });
    let waker = wake_counter.waker();
    let polled = {
        let mut wait = pin!(reader.subscriber.recv_seq());
        wait.as_mut().poll(&mut Context::from_waker(&waker))
    };
    drop(waker);
    match polled {
        Poll::Ready(result) => {
            let result = result.map(|(seq, token)| (seq, token.label()));
            assert_eq!(reader.note_waited(result), Step::Received);
        }
        Poll::Pending => {
            assert_eq!(reader.subscriber.position(), 1, "a dropped wait moves nothing");
            if again {
                assert_eq!(reader.wait_as_thread(), Step::Received);
            }
        }
    }
    let history = publisher.join().unwrap();
    assert_eq!(wake_counter.wakers(), 0, "a waker was left behind");
    drop(keeps_open);
    conclude(reader, &history, &ledger);
}
