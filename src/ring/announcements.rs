//! Publishes, for each subscriber, what it may be reading (its *announcement*), what it is reading, and its position. Every
//! publisher can read them without a lock.
//!
//! Entries live in chunks that are only ever added, so publishers scan them without protection. Only the subscriber writes its
//! entry; publishers and statistics only read it.
//!
//! # Which entries a scan visits
//!
//! Each chunk has maps of the entries that are *listed*. A subscriber lists its entry when it announces and finds it unlisted. A
//! publisher unlists an entry that can protect nothing any more ([`Announcements::unlist`]), so that subscribers that rest cost
//! publishers nothing. The subscriber may announce anew at the same time, so unlisting takes three steps:
//!
//! 1. The entry moves from the listed half of its map word to the *leaving* half. Scans visit both.
//! 2. The publisher fences and reads the announcement again. A subscriber stores its announcement, fences and reads the map. So
//!    the publisher sees the new announcement, or the subscriber sees that it is no longer listed, and lists itself.
//! 3. The entry stops leaving. If its announcement is new, it is listed again in the same step.

use core::fmt;
use core::ops::Range;
use core::ptr::NonNull;

use crossbeam_utils::CachePadded;

use super::geometry::MAX_SEQ;
use crate::sync::{AtomicPtr, AtomicU64, Mutex, fault, named_fence, ord};

/// The announcement of a subscriber that has announced nothing.
const NOTHING: u64 = u64::MAX;

/// The length of an announcement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
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

/// What a receive reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reads {
    /// One event.
    One,
    /// Every event from one on, to the end of the announced interval.
    Many,
}

/// ```text
///  63                                    2  1  0
/// +---------------------------------------+-----+
/// |                seq                    | 0 0 |  reads this event; the word is its stamp
/// |                seq                    | 1 0 |  reads from this event on
/// |              position                 | 0 1 |  reads nothing
/// |                                       | 1 1 |  reads nothing, at a position beyond the last sequence
/// +---------------------------------------+-----+
/// ```
///
/// The position after the last sequence is written as zero, which is no position.
#[derive(Clone, Copy)]
struct ReadingWord(u64);

/// What a [`ReadingWord`] says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reading {
    One(u64),
    Many(u64),
    Nothing { position: u64 },
    NothingBeyond,
}

impl ReadingWord {
    const SHIFT: u32 = 2;
    const BEYOND: Self = Self(3);

    #[inline(always)]
    fn busy(first: u64, reads: Reads) -> Self {
        match reads {
            Reads::One => Self(first << Self::SHIFT),
            Reads::Many => Self(first << Self::SHIFT | 2),
        }
    }

    /// `position` is at most one beyond the last sequence.
    #[inline(always)]
    fn idle(position: u64) -> Self {
        Self(position << Self::SHIFT | 1)
    }

    fn decode(self) -> Reading {
        let seq = self.0 >> Self::SHIFT;
        match self.0 & 3 {
            0 => Reading::One(seq),
            2 => Reading::Many(seq),
            1 => Reading::Nothing {
                position: if seq == 0 { MAX_SEQ + 1 } else { seq },
            },
            _ => Reading::NothingBeyond,
        }
    }
}

/// Entries of the first chunk: most rings have few subscribers.
const FIRST_CHUNK: usize = 8;

/// The fewest and the most entries of a further chunk. Each chunk is as large as all before it, within these limits.
const CHUNK_SIZES: (usize, usize) = (32, 4096);

/// Entries of one map word.
const PER_WORD: usize = 32;

/// The half of a map word that says which entries are listed; the other half says which are leaving.
const LISTED: u64 = (1 << PER_WORD) - 1;

/// The state that a subscriber shows to other threads.
pub(crate) struct Entry {
    /// The interval of sequences that it may read, as [`Reach::word`] writes it, or [`NOTHING`].
    announced: AtomicU64,
    /// What it is reading, as [`ReadingWord`] writes it; otherwise its position.
    reading: AtomicU64,
    /// Its position while `reading` does not say it: within a batch, and beyond the last sequence.
    other_position: AtomicU64,
}

impl Entry {
    /// Ends a read and shows the sequence of the next receive.
    #[inline(always)]
    pub(crate) fn end(&self, position: u64) {
        // Release, pairs with `scan.reading`: a publisher that sees it finds the reads before it over.
        self.reading
            .store(ReadingWord::idle(position).0, ord!("reading.end", Release));
    }

    fn position(&self) -> u64 {
        // Relaxed, pairs with `reading.end`: a statistic.
        let word = ReadingWord(self.reading.load(ord!("positions.read", Relaxed)));
        match word.decode() {
            Reading::One(held) => held + 1,
            Reading::Nothing { position } => position,
            Reading::Many(_) | Reading::NothingBeyond => {
                // Relaxed, pairs with `position.show` and `position.show_beyond`: a statistic.
                self.other_position.load(ord!("positions.read_other", Relaxed))
            }
        }
    }
}

struct Chunk {
    /// For each entry, whether it is listed and whether it is leaving.
    maps: Box<[AtomicU64]>,
    /// One bit for each entry that belongs to a subscriber.
    taken: Box<[AtomicU64]>,
    next: AtomicPtr<Chunk>,
    entries: Box<[CachePadded<Entry>]>,
}

impl Chunk {
    fn new(entries: usize) -> Self {
        let entry = || {
            CachePadded::new(Entry {
                announced: AtomicU64::new(NOTHING),
                reading: AtomicU64::new(ReadingWord::idle(0).0),
                other_position: AtomicU64::new(0),
            })
        };
        let words = || (0..entries.div_ceil(PER_WORD)).map(|_| AtomicU64::new(0)).collect();
        Self {
            maps: words(),
            taken: words(),
            next: AtomicPtr::new(core::ptr::null_mut()),
            entries: (0..entries).map(|_| entry()).collect(),
        }
    }
}

/// A subscriber's entry; used by that subscriber alone, and given back by [`Announcements::leave`].
pub(crate) struct Seat {
    entry: NonNull<Entry>,
    chunk: NonNull<Chunk>,
    index: usize,
    /// Numbers the seats of one ring densely from 0; reused after a leave.
    number: usize,
}

// SAFETY: the pointers are only used to reach atomics of a chunk, which lives as long as the `Announcements`; a `Seat` is kept
// beside a reference count on the ring that owns them.
unsafe impl Send for Seat {}
// SAFETY: as above; nothing behind `&Seat` is mutated but atomics.
unsafe impl Sync for Seat {}

impl Seat {
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    #[inline(always)]
    fn chunk(&self) -> &Chunk {
        // SAFETY: chunks are never freed before the `Announcements`, and a seat does not outlive those (see the `Send` impl).
        unsafe { self.chunk.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn entry(&self) -> &Entry {
        // SAFETY: as in `chunk`; the entry is part of the chunk.
        unsafe { self.entry.as_ref() }
    }

    /// Announces that the subscriber may read the sequences from `start` on, as far as `reach` goes, and that it reads now.
    ///
    /// Reads of an earlier interval end here. Fences, so that the caller can check the frontier.
    pub(crate) fn announce(&mut self, start: u64, reach: Reach, reads: Reads) {
        // Release, pairs with `scan.announced`: for a scan that sees this interval, reads of the one announced before
        // are over.
        self.entry()
            .announced
            .store(reach.word(start), ord!("announce.interval", Release));
        self.begin(start, reads);
        // SeqCst fence, pairs with `frontier.fence` and `unlist.fence`: this thread sees the frontier, or the scan sees
        // the announcement; it sees that it is not listed, or the thread that unlists it sees the announcement.
        named_fence!("announce.fence");
        let map = &self.chunk().maps[self.index / PER_WORD];
        let bit = 1 << (self.index % PER_WORD);
        // Relaxed, pairs with `unlist.leave` through `announce.fence`: the fence orders the announcement before it.
        if map.load(ord!("announce.listed", Relaxed)) & bit == 0 {
            // Fault, breaks the rule that what is announced is listed: no scan would see the announcement.
            if !fault!("announce.unlisted") {
                // Relaxed, pairs with `scan.listed` through `list.fence`: the fence orders it before the caller's read
                // of the frontier.
                map.fetch_or(bit, ord!("announce.list", Relaxed));
            }
            // SeqCst fence, pairs with `frontier.fence`: this thread sees the frontier, or the scan finds it listed.
            named_fence!("list.fence");
        }
    }

    /// Withdraws the announcement.
    #[inline(always)]
    pub(crate) fn withdraw(&mut self) {
        // Release, pairs with `scan.announced`: for a scan that sees the withdrawal, reads of the interval announced
        // before are over.
        self.entry()
            .announced
            .store(NOTHING, ord!("withdraw.interval", Release));
    }

    /// Says that the subscriber reads `first`, or every event from there to the end of what it has announced. The caller must
    /// execute a light barrier and check the frontier before it reads.
    #[inline(always)]
    pub(crate) fn begin(&self, first: u64, reads: Reads) {
        // Release, pairs with `scan.reading`: for a publisher that sees it, the reads before it are over.
        self.entry()
            .reading
            .store(ReadingWord::busy(first, reads).0, ord!("reading.begin", Release));
    }

    /// Says that the subscriber reads nothing, and shows the sequence of the next receive, which may be any number.
    pub(crate) fn end(&self, position: u64) {
        if position <= MAX_SEQ + 1 {
            return self.entry().end(position);
        }
        // Relaxed, pairs with `positions.read_other`: a statistic.
        self.entry()
            .other_position
            .store(position, ord!("position.show_beyond", Relaxed));
        // Release, pairs with `scan.reading`: as `reading.end`.
        self.entry()
            .reading
            .store(ReadingWord::BEYOND.0, ord!("reading.end_beyond", Release));
    }

    /// Shows the sequence of the next receive while the subscriber reads many events.
    #[inline(always)]
    pub(crate) fn show_position_in_batch(&self, position: u64) {
        // Relaxed, pairs with `positions.read_other`: a statistic.
        self.entry()
            .other_position
            .store(position, ord!("position.show", Relaxed));
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

pub(crate) struct Announcements {
    short: u64,
    long: u64,
    first: Box<Chunk>,
    free: Mutex<Free>,
}

impl Announcements {
    /// Creates a table without entries. Announcements cover `short` or `long` sequences.
    pub(crate) fn new(short: u64, long: u64) -> Self {
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
    pub(crate) fn join(&self, position: u64) -> Seat {
        let mut free = self.free.lock();
        if free.seats.is_empty() {
            let size = free.seats_made.next_power_of_two().clamp(CHUNK_SIZES.0, CHUNK_SIZES.1);
            let chunk = NonNull::from(Box::leak(Box::new(Chunk::new(size))));
            // SAFETY: the last chunk lives as long as `self`.
            let last = unsafe { free.last.as_ref() };
            // Release, pairs with `scan.next`: scans see the contents of the chunk.
            last.next.store(chunk.as_ptr(), ord!("announcements.grow", Release));
            free.add_seats(chunk);
        }
        let seat = free.seats.pop().expect("seats were just added");
        seat.end(position);
        // Relaxed, pairs with `positions.taken`: a statistic.
        seat.chunk().taken[seat.index / PER_WORD]
            .fetch_or(1 << (seat.index % PER_WORD), ord!("announcements.take", Relaxed));
        seat
    }

    /// Gives a seat back. It stays listed until a publisher finds that it protects nothing.
    pub(crate) fn leave(&self, mut seat: Seat) {
        seat.withdraw();
        let mut free = self.free.lock();
        // Relaxed, pairs with `positions.taken`: a statistic.
        seat.chunk().taken[seat.index / PER_WORD]
            .fetch_and(!(1 << (seat.index % PER_WORD)), ord!("announcements.free", Relaxed));
        free.seats.push(seat);
    }

    /// Calls `found` with every announcement, and unlists the entries that protect nothing: those that announce nothing, and those
    /// for which `found` returns below which sequence everything was revoked, because that is their whole announcement, and they
    /// read nothing.
    ///
    /// The caller has raised the frontier and fenced: if this scan misses an announcement, its subscriber refuses it when it
    /// checks the frontier.
    pub(crate) fn announcements(&self, mut found: impl FnMut(Announcement<'_>) -> Option<u64>) {
        self.chunks(&self.first, |chunk| {
            for (word, map) in chunk.maps.iter().enumerate() {
                // Acquire, pairs with `unlist.settle` through `unlist.fence`: of an entry that was unlisted, the reads are over.
                let listed = map.load(ord!("scan.listed", Acquire));
                let (mut resting, mut revoked) = (0, 0);
                for index in bits((listed | listed >> PER_WORD) & LISTED, word) {
                    let rests_below = match self.announcement(&chunk.entries[index]) {
                        Some(announcement) => found(announcement),
                        None => Some(0),
                    };
                    if let Some(below) = rests_below {
                        resting |= 1 << (index % PER_WORD);
                        revoked = below.max(revoked);
                    }
                }
                // The entries of the first chunk cost less to visit than to unlist.
                if resting != 0 && !self.is_first(chunk) {
                    self.unlist(chunk, word, resting, revoked);
                }
            }
        });
    }

    /// Returns what `entry` announces.
    pub(crate) fn announcement<'a>(&self, entry: &'a Entry) -> Option<Announcement<'a>> {
        // Acquire, pairs with `announce.interval` and `withdraw.interval`: if a later announcement is seen, the
        // reads of the earlier one are over.
        let word = entry.announced.load(ord!("scan.announced", Acquire));
        (word != NOTHING).then(|| {
            let start = word >> 1;
            let covers = if word & 1 == 0 { self.short } else { self.long };
            Announcement {
                interval: start..start + covers,
                entry,
            }
        })
    }

    /// Takes the entries of the bits `resting` out of the scans. No receive below `revoked` can begin any more.
    fn unlist(&self, chunk: &Chunk, word: usize, resting: u64, revoked: u64) {
        let map = &chunk.maps[word];
        // Relaxed, pairs with `unlist.leave`: exchanged against.
        let mut before = map.load(ord!("unlist.peek", Relaxed));
        let leaving = loop {
            // What is leaving already is in the hands of another publisher.
            let leaving = resting & before & !(before >> PER_WORD);
            if leaving == 0 {
                return;
            }
            match map.compare_exchange_weak(
                before,
                before & !leaving | leaving << PER_WORD,
                // Relaxed, pairs with `unlist.settle`: what is leaving is still visited.
                ord!("unlist.leave", Relaxed),
                // Relaxed, pairs with `unlist.leave`: only compared again.
                ord!("unlist.leave_failed", Relaxed),
            ) {
                Ok(_) => break leaving,
                Err(current) => before = current,
            }
        };
        // SeqCst fence, pairs with `announce.fence`: this thread sees the new announcement, or its subscriber sees that
        // it is not listed.
        named_fence!("unlist.fence");
        let mut again = 0;
        for index in bits(leaving, word) {
            // Fault, breaks the rule that unlisting looks again: a subscriber that announces would be missed by scans.
            let rests = fault!("unlist.unchecked")
                || self
                    .announcement(&chunk.entries[index])
                    .is_none_or(|announced| announced.interval.end <= revoked);
            again |= u64::from(!rests) << (index % PER_WORD);
        }
        // Relaxed, pairs with `unlist.settle`: exchanged against.
        let mut before = map.load(ord!("unlist.peek_again", Relaxed));
        while let Err(current) = map.compare_exchange_weak(
            before,
            before & !(leaving << PER_WORD) | again,
            // Relaxed, pairs with `scan.listed` through `unlist.fence`: this thread has found the reads over before the fence.
            ord!("unlist.settle", Relaxed),
            // Relaxed, pairs with `unlist.settle`: only compared again.
            ord!("unlist.settle_failed", Relaxed),
        ) {
            before = current;
        }
    }

    /// Calls `found` with the position of every subscriber.
    pub(crate) fn positions(&self, mut found: impl FnMut(u64)) {
        self.chunks(&self.first, |chunk| {
            for (word, taken) in chunk.taken.iter().enumerate() {
                // Relaxed, pairs with `announcements.take`: a statistic.
                for index in bits(taken.load(ord!("positions.taken", Relaxed)), word) {
                    found(chunk.entries[index].position());
                }
            }
        });
    }

    fn is_first(&self, chunk: &Chunk) -> bool {
        core::ptr::eq(chunk, &*self.first)
    }

    /// Calls `visit` with the chunks from `chunk` on.
    fn chunks<'a>(&'a self, mut chunk: &'a Chunk, mut visit: impl FnMut(&Chunk)) {
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

/// An interval that a subscriber may read.
pub(crate) struct Announcement<'a> {
    pub(crate) interval: Range<u64>,
    pub(crate) entry: &'a Entry,
}

impl Announcement<'_> {
    /// Returns what the subscriber is reading. Says nothing about what it begins to read next.
    pub(crate) fn reads(&self) -> Range<u64> {
        // Acquire, pairs with `reading.end` and `reading.begin`: the reads before what is seen are over.
        let word = ReadingWord(self.entry.reading.load(ord!("scan.reading", Acquire)));
        match word.decode() {
            Reading::One(seq) => seq..seq + 1,
            Reading::Many(first) => first..self.interval.end,
            Reading::Nothing { .. } | Reading::NothingBeyond => 0..0,
        }
    }
}

/// Returns the indexes of the entries whose bits are set in the map word of this number.
fn bits(mut map: u64, word: usize) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let index = map.trailing_zeros() as usize;
        (index < 64).then(|| {
            map &= map - 1;
            word * PER_WORD + index
        })
    })
}

#[cfg(test)]
mod tests {
    use super::{MAX_SEQ, Reading, ReadingWord, Reads};

    #[test]
    fn a_reading_word_tells_positions_from_reads() {
        for seq in [1, 77, MAX_SEQ] {
            assert_eq!(ReadingWord::idle(seq).decode(), Reading::Nothing { position: seq });
            assert_eq!(ReadingWord::busy(seq, Reads::One).decode(), Reading::One(seq));
            assert_eq!(ReadingWord::busy(seq, Reads::Many).decode(), Reading::Many(seq));
        }
        let position = MAX_SEQ + 1;
        assert_eq!(ReadingWord::idle(position).decode(), Reading::Nothing { position });
        assert_eq!(ReadingWord::BEYOND.decode(), Reading::NothingBeyond);
    }
}
