//! The overflow cells by themselves: cells that are made, found, taken out and reused by several threads.

use crate::check::{Ledger, Token};
use crate::registry::{Bound, Model};
use crate::ring::overflow::{LatestCell, Overflow, Place};
use crate::sync::{Arc, AtomicU64, raise};
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;

pub(crate) const MODELS: &[Model] = &[
    Model {
        name: "cells_are_made_by_two",
        clauses: &[7],
        bound: Bound::Exhaustive,
        run: made_by_two,
    },
    Model {
        name: "free_cells_are_taken_by_two",
        clauses: &[7],
        bound: Bound::Exhaustive,
        run: taken_by_two,
    },
    Model {
        name: "expired_cell_is_found_or_marked",
        clauses: &[4, 7],
        bound: Bound::Exhaustive,
        run: found_or_marked,
    },
    Model {
        name: "replaced_cell_is_found_or_marked",
        clauses: &[4, 7],
        bound: Bound::Exhaustive,
        run: replaced,
    },
    Model {
        name: "cell_of_a_lapped_publisher_replaces_none",
        clauses: &[2, 4, 7],
        bound: Bound::Exhaustive,
        run: lapped,
    },
];

/// Slots of the ring whose cells these are.
const SLOTS: u64 = 8;

struct Cells {
    overflow: Overflow<Token>,
    latest: Vec<LatestCell>,
    freed: Vec<AtomicU64>,
    frontier: AtomicU64,
    ledger: Ledger,
}

impl Cells {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            overflow: Overflow::new(),
            latest: (0..SLOTS).map(|_| LatestCell::new()).collect(),
            freed: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            frontier: AtomicU64::new(0),
            ledger: Ledger::default(),
        })
    }

    fn place(&self, seq: u64) -> Place<'_> {
        Place {
            seq,
            lap: seq / SLOTS,
            latest: &self.latest[(seq % SLOTS) as usize],
        }
    }

    fn mark(&self, seq: u64) {
        raise(&self.freed[(seq % SLOTS) as usize], seq, Relaxed);
    }

    /// Publishes an event, and returns the label of its value.
    fn publish(&self, seq: u64) -> Option<u64> {
        let (token, label) = self.ledger.fresh();
        let has_expired = || self.frontier.load(Relaxed) > seq;
        let replaces = |lap| self.mark(lap * SLOTS + seq % SLOTS);
        self.overflow
            .publish(self.place(seq), Some(token), SLOTS, has_expired, replaces)
            .ok()
            .map(|()| label)
    }

    fn purge(&self, expired: &[u64]) {
        drop(self.overflow.purge(|seq| {
            expired.contains(&seq).then(|| {
                self.mark(seq);
                self.place(seq)
            })
        }));
    }

    /// Asserts that an event which nobody takes out is found, and is the right one.
    fn assert_found(&self, seq: u64, label: Option<u64>) {
        let value = self.overflow.find(self.place(seq)).expect("it is found");
        let value = value.expect("it has a value");
        // SAFETY: nobody takes the event out, so its value stays where it is.
        let found = unsafe { value.as_ref() }.with(|value| {
            // SAFETY: as above.
            let value = unsafe { &*value };
            // SAFETY: the cell was published with a value.
            unsafe { value.assume_init_ref() }.label()
        });
        assert_eq!(Some(found), label);
    }

    /// Asserts that an event that was published before is still there, or marked as freed.
    fn assert_found_or_marked(&self, seq: u64) {
        if self.overflow.find(self.place(seq)).is_none() {
            assert!(self.freed[(seq % SLOTS) as usize].load(Relaxed) >= seq, "not marked");
        }
    }
}

/// Asserts that no value is leaked.
fn conclude(cells: Arc<Cells>) {
    let ledger = cells.ledger.clone();
    drop(cells);
    ledger.settle();
}

/// Two publishers make cells of the same block.
fn made_by_two() {
    let cells = Cells::new();
    let first = cells.publish(0);
    let second = cells.publish(1);
    let other = thread::spawn({
        let cells = cells.clone();
        move || cells.publish(2)
    });
    let fourth = cells.publish(3);
    let third = other.join().unwrap();
    for (seq, label) in [first, second, third, fourth].into_iter().enumerate() {
        cells.assert_found(seq as u64, label);
    }
    conclude(cells);
}

/// A publisher takes a free cell while another takes two and gives the first of them back.
fn taken_by_two() {
    let cells = Cells::new();
    cells.publish(0);
    cells.publish(1);
    cells.purge(&[0, 1]);
    let other = thread::spawn({
        let cells = cells.clone();
        move || {
            cells.publish(3);
            let label = cells.publish(4);
            cells.purge(&[3]);
            label
        }
    });
    let second = cells.publish(2);
    let fourth = other.join().unwrap();
    let fifth = cells.publish(5);
    for (seq, label) in [(2, second), (4, fourth), (5, fifth)] {
        cells.assert_found(seq, label);
    }
    conclude(cells);
}

/// A subscriber looks for an event whose cell is taken out and given to another.
fn found_or_marked() {
    let cells = Cells::new();
    cells.publish(1);
    let other = thread::spawn({
        let cells = cells.clone();
        move || {
            cells.purge(&[1]);
            cells.publish(2);
        }
    });
    cells.assert_found_or_marked(1);
    other.join().unwrap();
    conclude(cells);
}

/// A subscriber looks for an event whose cell another event of the slot replaces.
fn replaced() {
    let cells = Cells::new();
    cells.publish(1);
    let other = thread::spawn({
        let cells = cells.clone();
        move || {
            let label = cells.publish(SLOTS + 1);
            cells.purge(&[1]);
            label
        }
    });
    cells.assert_found_or_marked(1);
    let label = other.join().unwrap();
    cells.assert_found(SLOTS + 1, label);
    conclude(cells);
}

/// A publisher that was preempted for a lap comes with its cell when a later event of the slot has one.
fn lapped() {
    let cells = Cells::new();
    cells.publish(0);
    let other = thread::spawn({
        let cells = cells.clone();
        move || {
            // What the publisher of a later event has done before it diverts.
            raise(&cells.frontier, SLOTS + 1, Relaxed);
            cells.publish(2 * SLOTS)
        }
    });
    cells.publish(SLOTS);
    let label = other.join().unwrap();
    cells.assert_found(2 * SLOTS, label);
    conclude(cells);
}
