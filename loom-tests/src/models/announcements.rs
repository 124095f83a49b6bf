//! The announcements by themselves: one subscriber, and two publishers that clear at once.

use crate::registry::{Bound, Model};
use crate::ring::announcements::{Announcements, Reach, Reads, Seat};
use crate::sync::{Arc, AtomicU64, UnsafeCell, raise};
use loom::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use loom::sync::atomic::fence;
use loom::thread;

pub(crate) const MODELS: &[Model] = &[
    Model {
        name: "two_clearings_against_the_end_of_a_read",
        clauses: &[6, 7],
        bound: Bound::Preemptions(3),
        run: against_end,
    },
    Model {
        name: "two_clearings_against_an_announcement",
        clauses: &[6, 7],
        bound: Bound::Preemptions(3),
        run: against_announcement,
    },
];

/// The event that is read and overwritten.
const SEQ: u64 = 5;

struct Ring {
    announcements: Announcements,
    frontier: AtomicU64,
    revoked: AtomicU64,
    slot: UnsafeCell<u64>,
}

impl Ring {
    /// A ring, and the seat of a subscriber that scans can unlist: those of the first chunk always stay listed.
    fn new() -> (Arc<Self>, Seat) {
        let announcements = Announcements::new(1, 1);
        let mut seat = announcements.join(SEQ);
        for _ in 0..8 {
            seat = announcements.join(SEQ);
        }
        let ring = Self {
            announcements,
            frontier: AtomicU64::new(0),
            revoked: AtomicU64::new(0),
            slot: UnsafeCell::new(SEQ),
        };
        (Arc::new(ring), seat)
    }

    /// Receives the event, if it has not expired, as `ReadCursor` does.
    fn receive(&self, seat: &mut Seat) {
        seat.announce(SEQ, Reach::Short, Reads::One);
        if self.frontier.load(Acquire) > SEQ {
            seat.withdraw();
        } else {
            self.slot.with(|value| {
                // SAFETY: that no publisher writes it meanwhile is what the model checks.
                assert_eq!(unsafe { *value }, SEQ);
            });
        }
        seat.end(SEQ + 1);
    }

    /// Expires the event, and overwrites it if no subscriber can be reading it, as `RingShared::clear` and `own` do.
    fn clear(&self, overwrite: bool) {
        raise(&self.frontier, SEQ + 1, Release);
        fence(SeqCst);
        // What the heavy barrier would be: each receive fences in the models.
        raise(&self.revoked, SEQ + 1, Release);
        let revoked = self.revoked.load(Acquire);
        let mut read = false;
        self.announcements.announcements(|announced| {
            let reads = announced.reads();
            read |= reads.contains(&SEQ);
            (announced.interval.end <= revoked && reads.is_empty()).then_some(revoked)
        });
        if overwrite && !read {
            self.slot.with_mut(|value| {
                // SAFETY: as above; one publisher overwrites.
                unsafe { *value = 0 };
            });
        }
    }
}

/// The subscriber has announced and reads. One publisher may find that the read is over and unlist the entry; the other must then find
/// the same.
fn against_end() {
    let (ring, mut seat) = Ring::new();
    seat.announce(SEQ, Reach::Short, Reads::One);
    let reading = thread::spawn({
        let ring = ring.clone();
        move || {
            ring.slot.with(|value| {
                // SAFETY: announced before any publisher raised the frontier.
                assert_eq!(unsafe { *value }, SEQ);
            });
            seat.end(SEQ + 1);
        }
    });
    let clearing = thread::spawn({
        let ring = ring.clone();
        move || ring.clear(false)
    });
    ring.clear(true);
    clearing.join().unwrap();
    reading.join().unwrap();
}

/// The subscriber announces while one publisher unlists its entry and the other looks for what is announced.
fn against_announcement() {
    let (ring, mut seat) = Ring::new();
    // An announcement that is listed and protects nothing.
    seat.announce(0, Reach::Short, Reads::One);
    seat.end(1);
    let reading = thread::spawn({
        let ring = ring.clone();
        move || ring.receive(&mut seat)
    });
    let clearing = thread::spawn({
        let ring = ring.clone();
        move || ring.clear(false)
    });
    ring.clear(true);
    clearing.join().unwrap();
    reading.join().unwrap();
}
