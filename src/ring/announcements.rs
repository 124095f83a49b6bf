//! Publishes, for each subscriber, what it may be reading (its *announcement*) and its position. Every publisher can read both
//! without a lock.
//!
//! Entries live in chunks that are only ever added, so publishers scan them without protection. Only the subscriber writes its
//! entry; publishers and statistics only read it.

use core::fmt;
use core::ops::Range;
use core::ptr::NonNull;

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicPtr, AtomicU64, Mutex, ord};

/// The announcement of a subscriber that reads nothing.
const NOTHING: u64 = u64::MAX;

/// The length of an announcement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reach {
    /// For single receives.
    Short,
    /// For a batch.
    Long,
}

impl Reach {
    #[inline(always)]
    fn word(self, start: u64) -> u64 {
        start << 1 | u64::from(self == Self::Long)
    }
}

/// Entries of the first chunk: most rings have few subscribers.
const FIRST_CHUNK: usize = 8;

/// Entries of every further chunk: one for each bit of its maps.
const CHUNK: usize = 64;

/// The state that a subscriber shows to other threads.
struct Entry {
    /// The interval of sequences it may be reading, as [`Reach::word`] writes it, or [`NOTHING`].
    announced: AtomicU64,
    /// The sequence of its next receive.
    position: AtomicU64,
}

struct Chunk {
    /// One bit for each entry that may carry an announcement.
    active: AtomicU64,
    /// One bit for each entry that belongs to a subscriber.
    taken: AtomicU64,
    next: AtomicPtr<Chunk>,
    entries: Box<[CachePadded<Entry>]>,
}

impl Chunk {
    fn new(entries: usize) -> Self {
        let entry = || {
            CachePadded::new(Entry {
                announced: AtomicU64::new(NOTHING),
                position: AtomicU64::new(0),
            })
        };
        Self {
            active: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            next: AtomicPtr::new(core::ptr::null_mut()),
            entries: (0..entries).map(|_| entry()).collect(),
        }
    }
}

/// A subscriber's entry; used by that subscriber alone, and given back by [`Announcements::leave`].
pub(super) struct Seat {
    entry: NonNull<Entry>,
    chunk: NonNull<Chunk>,
    index: usize,
    /// Numbers the seats of one ring densely from 0; reused after a leave.
    number: usize,
    active: bool,
}

// SAFETY: the pointers are only used to reach atomics of a chunk, which lives as long as the `Announcements`; a `Seat` is kept
// beside a reference count on the ring that owns them.
unsafe impl Send for Seat {}
// SAFETY: as above; nothing behind `&Seat` is mutated but atomics.
unsafe impl Sync for Seat {}

impl Seat {
    pub(super) fn number(&self) -> usize {
        self.number
    }

    #[inline(always)]
    fn chunk(&self) -> &Chunk {
        // SAFETY: chunks are never freed before the `Announcements`, and a seat does not outlive those (see the `Send` impl).
        unsafe { self.chunk.as_ref() }
    }

    #[inline(always)]
    fn entry(&self) -> &Entry {
        // SAFETY: as in `chunk`; the entry is part of the chunk.
        unsafe { self.entry.as_ref() }
    }

    /// Announces that the subscriber may read the sequences from `start` on, as far as `reach` goes.
    ///
    /// Reads of an earlier interval end here. The caller fences before it relies on the announcement.
    #[inline(always)]
    pub(super) fn announce(&mut self, start: u64, reach: Reach) {
        if !self.active {
            self.active = true;
            // Relaxed, pairs with `scan.active` through `announce.fence`: the caller's fence orders the bit and the
            // announcement before its read of the frontier.
            self.chunk()
                .active
                .fetch_or(1 << self.index, ord!("announce.active", Relaxed));
        }
        // Release, pairs with `scan.announced`: for a scan that sees this interval, reads of the one announced before
        // are over.
        self.entry()
            .announced
            .store(reach.word(start), ord!("announce.interval", Release));
    }

    /// Withdraws the announcement: the subscriber no longer reads anything.
    #[inline(always)]
    pub(super) fn withdraw(&mut self) {
        // Release, pairs with `scan.announced`: for a scan that sees the withdrawal, reads of the interval announced
        // before are over.
        self.entry()
            .announced
            .store(NOTHING, ord!("withdraw.interval", Release));
    }

    /// Withdraws the announcement, and takes this seat out of the scans until the next one.
    pub(super) fn rest(&mut self) {
        if self.active {
            self.active = false;
            self.withdraw();
            // Release, pairs with `scan.active`: a scan that finds the bit cleared must also find the reads over.
            self.chunk()
                .active
                .fetch_and(!(1 << self.index), ord!("rest.active", Release));
        }
    }

    /// Shows the sequence of the next receive to statistics.
    #[inline(always)]
    pub(super) fn show_position(&self, position: u64) {
        // Relaxed, pairs with `positions.read`: a statistic.
        self.entry().position.store(position, ord!("position.show", Relaxed));
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

/// The free seats, behind the lock that subscribing and leaving take.
#[derive(Debug)]
struct Free {
    seats: Vec<Seat>,
    last: NonNull<Chunk>,
    seats_made: usize,
}

// SAFETY: the pointer only reaches atomics of a chunk that lives as long as the `Announcements` that own this.
unsafe impl Send for Free {}

pub(super) struct Announcements {
    short: u64,
    long: u64,
    first: Box<Chunk>,
    free: Mutex<Free>,
}

impl Announcements {
    /// Creates a table without entries. Announcements cover `short` or `long` sequences.
    pub(super) fn new(short: u64, long: u64) -> Self {
        let first = Box::new(Chunk::new(FIRST_CHUNK));
        let pointer = NonNull::from(&*first);
        let mut free = Free {
            seats: Vec::new(),
            last: pointer,
            seats_made: 0,
        };
        free.add_seats(pointer);
        Self {
            short,
            long,
            first,
            free: Mutex::new(free),
        }
    }

    /// Takes a seat for a new subscriber that starts at `position`.
    pub(super) fn join(&self, position: u64) -> Seat {
        let mut free = self.free.lock();
        if free.seats.is_empty() {
            let chunk = NonNull::from(Box::leak(Box::new(Chunk::new(CHUNK))));
            // SAFETY: the last chunk lives as long as `self`.
            let last = unsafe { free.last.as_ref() };
            // Release, pairs with `scan.next`: scans see the contents of the chunk.
            last.next.store(chunk.as_ptr(), ord!("announcements.grow", Release));
            free.add_seats(chunk);
        }
        let seat = free.seats.pop().expect("seats were just added");
        seat.show_position(position);
        // Relaxed, pairs with `positions.taken`: a statistic.
        seat.chunk()
            .taken
            .fetch_or(1 << seat.index, ord!("announcements.take", Relaxed));
        seat
    }

    /// Gives a seat back.
    pub(super) fn leave(&self, mut seat: Seat) {
        seat.rest();
        let mut free = self.free.lock();
        // Relaxed, pairs with `positions.taken`: a statistic.
        seat.chunk()
            .taken
            .fetch_and(!(1 << seat.index), ord!("announcements.free", Relaxed));
        free.seats.push(seat);
    }

    /// Calls `found` with every announced interval.
    ///
    /// The caller has raised the frontier and fenced: if this scan misses an announcement, its subscriber refuses it when it
    /// checks the frontier.
    pub(super) fn announcements(&self, mut found: impl FnMut(Range<u64>)) {
        self.chunks(|chunk| {
            // Acquire, pairs with `rest.active`: if `rest` has cleared a bit, the reads before it are over.
            for index in bits(chunk.active.load(ord!("scan.active", Acquire))) {
                // Acquire, pairs with `announce.interval` and `withdraw.interval`: if a later announcement is seen, the
                // reads of the earlier one are over.
                let word = chunk.entries[index].announced.load(ord!("scan.announced", Acquire));
                if word != NOTHING {
                    let start = word >> 1;
                    let covers = if word & 1 == 0 { self.short } else { self.long };
                    found(start..start + covers);
                }
            }
        });
    }

    /// Calls `found` with the position of every subscriber.
    pub(super) fn positions(&self, mut found: impl FnMut(u64)) {
        self.chunks(|chunk| {
            // Relaxed, pairs with `announcements.take`: a statistic.
            for index in bits(chunk.taken.load(ord!("positions.taken", Relaxed))) {
                // Relaxed, pairs with `position.show`: a statistic.
                found(chunk.entries[index].position.load(ord!("positions.read", Relaxed)));
            }
        });
    }

    fn chunks(&self, mut visit: impl FnMut(&Chunk)) {
        let mut chunk = &*self.first;
        loop {
            visit(chunk);
            // Acquire, pairs with `announcements.grow`: the chunk is complete.
            let next = chunk.next.load(ord!("scan.next", Acquire));
            if next.is_null() {
                return;
            }
            // SAFETY: chunks are only added, and live as long as `self`.
            chunk = unsafe { &*next };
        }
    }
}

impl Free {
    fn add_seats(&mut self, chunk: NonNull<Chunk>) {
        // SAFETY: the chunk was just made, and lives as long as the `Announcements`.
        let entries = &unsafe { chunk.as_ref() }.entries;
        let made = self.seats_made;
        self.seats_made += entries.len();
        self.last = chunk;
        // Reversed, so that seats are taken in the order of their numbers.
        self.seats
            .extend(entries.iter().enumerate().rev().map(|(index, entry)| Seat {
                entry: NonNull::from(&**entry),
                chunk,
                index,
                number: made + index,
                active: false,
            }));
    }
}

impl Drop for Announcements {
    fn drop(&mut self) {
        // Relaxed, pairs with `announcements.grow` by the reference count: the last decrement of the ring's reference
        // count has ordered everything before this drop.
        let mut next = self.first.next.load(ord!("announcements.drop", Relaxed));
        while !next.is_null() {
            // SAFETY: the chunk was leaked by `join`, is reachable from here alone, and is freed once.
            let chunk = unsafe { Box::from_raw(next) };
            next = chunk.next.load(ord!("announcements.drop_next", Relaxed));
        }
    }
}

impl fmt::Debug for Announcements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Announcements").finish_non_exhaustive()
    }
}

/// Returns the positions of the set bits.
fn bits(mut map: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let index = map.trailing_zeros() as usize;
        (index < 64).then(|| {
            map &= map - 1;
            index
        })
    })
}
