//! Stores events whose slot could not be used (*diverted* events) in cells, where they are found by their slot.
//!
//! Diverting is rare: a slot is unusable only while a subscriber still reads what it holds, or while its previous publisher was
//! preempted for a whole lap. Then each slot refers to the cell of its latest diverted event ([`CellRef`]). That suffices: the
//! publisher of a sequence has raised the frontier past everything that used the slot before, so events of the same slot in
//! earlier cells are lost, and nobody looks for them any more.
//!
//! Nothing here waits for a lock. A value has memory of its own, which is freed when the event has expired; a thread may read it
//! only while it says that it reads the event. Cells are made in blocks, reused, and freed with the ring, so that a thread may look
//! at their stamps at any time.

use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::panic_guard;
use super::shared::Value;
use super::stamp::Stamp;
use crate::sync::{
    AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Mutex, MutexGuard, OVERFLOW_BLOCKS, UnsafeCell, fault, ord,
};

/// The most cells that can be made.
pub(crate) const MAX_CELLS: u64 = 1 << (OVERFLOW_BLOCKS - 1);

/// One diverted event.
struct Cell<T> {
    /// The stamp of the event that it holds, or was the last to hold.
    stamp: AtomicU64,
    /// Whether it has been published and not yet taken out.
    live: AtomicBool,
    /// The next free cell, or the next that was taken out, as [`CellRef`] writes it.
    next: AtomicU64,
    /// The value, unless the stamp is that of a void.
    value: AtomicPtr<Value<T>>,
}

impl<T> Cell<T> {
    fn new() -> Self {
        Self {
            stamp: AtomicU64::new(0),
            live: AtomicBool::new(false),
            next: AtomicU64::new(CellRef::NONE.0),
            value: AtomicPtr::new(core::ptr::null_mut()),
        }
    }
}

/// ```text
///  63              32 31               0
/// +------------------+------------------+
/// |       tag        |  cell, plus one  |  zero: no cell
/// +------------------+------------------+
/// ```
///
/// The tag is the lap of a slot's event, or counts what was taken from the free cells. It prevents that a word which has changed and
/// changed back is taken for unchanged.
#[derive(Clone, Copy, PartialEq, Eq)]
struct CellRef(u64);

impl CellRef {
    const NONE: Self = Self(0);
    const TAG_SHIFT: u32 = 32;

    #[inline(always)]
    fn new(tag: u64, cell: usize) -> Self {
        Self(tag << Self::TAG_SHIFT | (cell as u64 + 1))
    }

    fn tag(self) -> u64 {
        self.0 >> Self::TAG_SHIFT
    }

    /// Returns the lap of the event, which is before `lap`. If there are more than 2^32 laps between them, returns a later one, which
    /// is still before `lap`.
    fn lap_before(self, lap: u64) -> u64 {
        let laps = match (lap as u32).wrapping_sub(self.tag() as u32) {
            0 => 1 << 32,
            laps => u64::from(laps),
        };
        lap.saturating_sub(laps)
    }

    fn cell(self) -> Option<usize> {
        ((self.0 as u32) as usize).checked_sub(1)
    }

    fn tagged(self, tag: u64) -> Self {
        Self(tag << Self::TAG_SHIFT | u64::from(self.0 as u32))
    }
}

/// The cell of the latest diverted event of one slot.
pub(crate) struct LatestCell(AtomicU64);

impl LatestCell {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(CellRef::NONE.0))
    }
}

/// An event's slot, with what is needed to find the event's cell.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) seq: u64,
    /// How often the slots were used before.
    pub(crate) lap: u64,
    pub(crate) latest: &'a LatestCell,
}

pub(crate) struct Overflow<T> {
    /// Each block of cells is as large as all before it.
    blocks: Box<[AtomicPtr<Cell<T>>]>,
    made: AtomicUsize,
    free: AtomicU64,
    /// How many cells hold an event, or are about to.
    used: AtomicUsize,
    /// Held by the thread that takes out expired cells.
    purging: Mutex<()>,
}

// SAFETY: the blocks are owned, and a cell is a `T` (or none) and atomics.
unsafe impl<T: Send + Sync> Send for Overflow<T> {}
// SAFETY: a value is written and dropped only by a thread that has its cell to itself, and is otherwise only read.
unsafe impl<T: Send + Sync> Sync for Overflow<T> {}

/// Returns the block of a cell, and its index there.
#[inline(always)]
fn block_of(cell: usize) -> (usize, usize) {
    match cell.checked_ilog2() {
        None => (0, 0),
        Some(log) => (log as usize + 1, cell - (1 << log)),
    }
}

fn block_size(block: usize) -> usize {
    1 << block.saturating_sub(1)
}

impl<T> Overflow<T> {
    pub(crate) fn new() -> Self {
        Self {
            blocks: (0..OVERFLOW_BLOCKS)
                .map(|_| AtomicPtr::new(core::ptr::null_mut()))
                .collect(),
            made: AtomicUsize::new(0),
            free: AtomicU64::new(CellRef::NONE.0),
            used: AtomicUsize::new(0),
            purging: Mutex::new(()),
        }
    }

    /// Publishes `value` (or a void) in a cell. `replaces` is called with the lap of an earlier event of the slot before that event
    /// can no longer be found.
    ///
    /// Returns the value if `most` cells are in use, or if the event `has_expired`, which is so when a later event of the slot has
    /// been published in a cell.
    pub(crate) fn publish(
        &self,
        place: Place<'_>,
        value: Option<T>,
        most: u64,
        has_expired: impl Fn() -> bool,
        replaces: impl Fn(u64),
    ) -> Result<(), Option<T>> {
        // Relaxed, pairs with `overflow.uncount`: only counts.
        let used = self.used.fetch_add(1, ord!("overflow.count", Relaxed)) as u64;
        if used >= most.min(MAX_CELLS) {
            self.uncount(1);
            return Err(value);
        }
        let index = self.take_free();
        let cell = self.cell(index);
        let (stamp, value) = match value {
            Some(value) => {
                let value = Box::new(UnsafeCell::new(MaybeUninit::new(value)));
                (Stamp::value(place.seq), Box::into_raw(value))
            }
            None => (Stamp::void(place.seq), core::ptr::null_mut()),
        };
        // Relaxed, pairs with `overflow.value` through `overflow.publish`: the cell belongs to this thread until then.
        cell.value.store(value, ord!("overflow.set_value", Relaxed));
        // Release, pairs with `overflow.stamp_read`: a thread that sees it finds that the event before has been taken out.
        cell.stamp.store(stamp.word(), ord!("overflow.stamp", Release));
        let latest = &place.latest.0;
        // Acquire, pairs with `overflow.publish`: if it is the cell of a later event, this thread sees that this one has expired.
        let mut current = CellRef(latest.load(ord!("overflow.peek", Acquire)));
        loop {
            // Fault, breaks the rule that a cell is not replaced by that of an earlier event: the later event would never be found.
            if has_expired() && !fault!("overflow.late") {
                return Err(self.take_back(index));
            }
            if current.cell().is_some() {
                replaces(current.lap_before(place.lap));
            }
            match latest.compare_exchange_weak(
                current.0,
                CellRef::new(place.lap, index).0,
                // Release, pairs with `overflow.find`: a thread that finds the cell finds it complete, and what it replaced is
                // marked.
                ord!("overflow.publish", Release),
                // Acquire, pairs with `overflow.publish`: as `overflow.peek`.
                ord!("overflow.publish_failed", Acquire),
            ) {
                Ok(_) => break,
                Err(changed) => current = CellRef(changed),
            }
        }
        // Release, pairs with `overflow.live`: a thread that purges finds the cell complete and published.
        cell.live.store(true, ord!("overflow.enliven", Release));
        Ok(())
    }

    /// Finds the cell of an event, and in it the storage of the value, unless the sequence is void.
    ///
    /// The storage stays while the caller says that it reads the event; otherwise it must not be used.
    pub(crate) fn find(&self, place: Place<'_>) -> Option<Option<NonNull<Value<T>>>> {
        // Acquire, pairs with `overflow.publish` and `overflow.unlink`: the cell is complete, and what was taken out is marked.
        let latest = CellRef(place.latest.0.load(ord!("overflow.find", Acquire)));
        let index = latest.cell()?;
        if latest.tag() != place.lap & u64::from(u32::MAX) {
            return None;
        }
        // The lap says it, except for events that are a multiple of 2^32 laps apart.
        let stamp = self.stamp(index);
        // Relaxed, pairs with `overflow.set_value`: acquired by `overflow.find`, if the caller reads the event.
        let value = self.cell(index).value.load(ord!("overflow.value", Relaxed));
        stamp.is_of(place.seq).then(|| NonNull::new(value))
    }

    /// Takes out every cell for whose sequence `expired` returns the place. The caller drops the result while it holds no lock.
    pub(crate) fn purge<'p>(&self, expired: impl Fn(u64) -> Option<Place<'p>>) -> Expired<'_, T> {
        self.purge_locked(self.purging.lock(), expired)
    }

    /// Does the same as [`Overflow::purge`], but returns `None` if another thread is at it.
    pub(crate) fn try_purge<'p>(&self, expired: impl Fn(u64) -> Option<Place<'p>>) -> Option<Expired<'_, T>> {
        self.purging.try_lock().map(|lock| self.purge_locked(lock, expired))
    }

    fn purge_locked<'p>(&self, lock: MutexGuard<'_, ()>, expired: impl Fn(u64) -> Option<Place<'p>>) -> Expired<'_, T> {
        let place_of = expired;
        let mut expired = Expired {
            overflow: self,
            first: CellRef::NONE,
            count: 0,
        };
        self.each_made(|index, cell| {
            // Acquire, pairs with `overflow.enliven`: the cell is complete and published.
            if !cell.live.load(ord!("overflow.live", Acquire)) {
                return;
            }
            let Some(place) = place_of(self.stamp(index).seq()) else {
                return;
            };
            // A later event of the slot may have replaced it, or does so now.
            let _ = place.latest.0.compare_exchange(
                CellRef::new(place.lap, index).0,
                CellRef::NONE.0,
                // Release, pairs with `overflow.find`: a thread that does not find the cell finds the event marked as freed.
                ord!("overflow.unlink", Release),
                // Relaxed, pairs with `overflow.publish`: only compared.
                ord!("overflow.unlink_failed", Relaxed),
            );
            // Relaxed, pairs with `overflow.enliven`: read by threads that purge, which hold the lock.
            cell.live.store(false, ord!("overflow.expire", Relaxed));
            // Relaxed, pairs with `overflow.next` through `overflow.give`: this thread has the cell to itself.
            cell.next.store(expired.first.0, ord!("overflow.chain", Relaxed));
            expired.first = CellRef::new(0, index);
            expired.count += 1;
        });
        drop(lock);
        expired
    }

    /// Takes the value out of a cell that was never published, and gives the cell back.
    fn take_back(&self, index: usize) -> Option<T> {
        // SAFETY: the cell belongs to this thread, since it was not published.
        let value = unsafe { self.take_value(index) };
        self.give(CellRef::new(0, index), index);
        self.uncount(1);
        value
    }

    /// Takes the value out of a cell and frees its memory.
    ///
    /// # Safety
    ///
    /// The calling thread has the cell to itself, and has not taken its value before.
    unsafe fn take_value(&self, index: usize) -> Option<T> {
        // Relaxed, pairs with `overflow.set_value`: acquired with the cell.
        let value = NonNull::new(self.cell(index).value.load(ord!("overflow.take_value", Relaxed)))?;
        // SAFETY: it came from a box, and this thread has it to itself.
        let value = unsafe { Box::from_raw(value.as_ptr()) };
        Some(value.with_mut(|value| {
            // SAFETY: as above.
            let value = unsafe { &mut *value };
            // SAFETY: it was initialised by the publisher, and is moved out once, here.
            unsafe { value.assume_init_read() }
        }))
    }

    fn uncount(&self, cells: usize) {
        // Relaxed, pairs with `overflow.count`: only counts.
        self.used.fetch_sub(cells, ord!("overflow.uncount", Relaxed));
    }

    /// Returns whether no cell is in use, as far as this thread knows.
    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed, pairs with `overflow.count`: a hint.
        self.used.load(ord!("overflow.used", Relaxed)) == 0
    }

    /// Takes a free cell, or makes one.
    fn take_free(&self) -> usize {
        // Acquire, pairs with `overflow.give`: the thread that had the cell is finished with it.
        let mut first = CellRef(self.free.load(ord!("overflow.free", Acquire)));
        while let Some(index) = first.cell() {
            // Relaxed, pairs with `overflow.chain` and `overflow.give_last` through `overflow.free`: an old value belongs to
            // an old `first`, and then the exchange fails by its tag.
            let next = CellRef(self.cell(index).next.load(ord!("overflow.next", Relaxed)));
            // Fault, breaks the rule that each cell taken changes the tag: a cell could be given to two publishers.
            let tag = if fault!("overflow.untagged") {
                0
            } else {
                first.tag() + 1
            };
            match self.free.compare_exchange_weak(
                first.0,
                next.tagged(tag).0,
                // Relaxed, pairs with `overflow.free`: what was loaded has been acquired.
                ord!("overflow.take", Relaxed),
                // Acquire, pairs with `overflow.give`: as `overflow.free`.
                ord!("overflow.take_failed", Acquire),
            ) {
                Ok(_) => return index,
                Err(changed) => first = CellRef(changed),
            }
        }
        // Relaxed, pairs with itself: only counts; the block that has the cell is published by its own pointer.
        let index = self.made.fetch_add(1, ord!("overflow.make", Relaxed));
        self.ensure_block(block_of(index).0);
        index
    }

    /// Adds the cells from `first` to `last` to the free ones.
    fn give(&self, first: CellRef, last: usize) {
        // Relaxed, pairs with `overflow.take` and `overflow.give`: only compared.
        let mut free = CellRef(self.free.load(ord!("overflow.give_read", Relaxed)));
        loop {
            // Relaxed, pairs with `overflow.next` through `overflow.give`: the cells belong to this thread.
            self.cell(last).next.store(free.0, ord!("overflow.give_last", Relaxed));
            match self.free.compare_exchange_weak(
                free.0,
                first.tagged(free.tag()).0,
                // Release, pairs with `overflow.free`: this thread is finished with the cells.
                ord!("overflow.give", Release),
                // Relaxed, pairs with `overflow.give`: only compared again.
                ord!("overflow.give_failed", Relaxed),
            ) {
                Ok(_) => return,
                Err(changed) => free = CellRef(changed),
            }
        }
    }

    fn ensure_block(&self, block: usize) {
        // Relaxed, pairs with `overflow.add_block`: only compared with null here.
        if !self.blocks[block].load(ord!("overflow.has_block", Relaxed)).is_null() {
            return;
        }
        let cells: Box<[Cell<T>]> = (0..block_size(block)).map(|_| Cell::new()).collect();
        let cells = Box::into_raw(cells).cast::<Cell<T>>();
        let installed = self.blocks[block].compare_exchange(
            core::ptr::null_mut(),
            cells,
            // Release, pairs with `overflow.block`: the cells are complete.
            ord!("overflow.add_block", Release),
            // Relaxed, pairs with `overflow.add_block`: another thread has added the block.
            ord!("overflow.add_block_failed", Relaxed),
        );
        if installed.is_err() {
            // SAFETY: made above, and not given to anybody.
            drop(unsafe { Self::block_from(cells, block) });
        }
    }

    /// # Safety
    ///
    /// `cells` was made by `ensure_block` for this block, and is used by nobody else.
    unsafe fn block_from(cells: *mut Cell<T>, block: usize) -> Box<[Cell<T>]> {
        // SAFETY: the caller says where it comes from.
        unsafe { Box::from_raw(core::ptr::slice_from_raw_parts_mut(cells, block_size(block))) }
    }

    /// Returns a cell whose index was returned by `take_free`.
    #[inline(always)]
    fn cell(&self, index: usize) -> &Cell<T> {
        let (block, offset) = block_of(index);
        // Acquire, pairs with `overflow.add_block`: the cells are complete.
        let cells = self.blocks[block].load(ord!("overflow.block", Acquire));
        debug_assert!(!cells.is_null(), "a thread that has an index finds the block");
        // SAFETY: the block has this many cells, and was added before anybody got the index.
        let cell = unsafe { cells.add(offset) };
        // SAFETY: as above; a block lives as long as the ring, and its cells are only ever shared.
        unsafe { &*cell }
    }

    fn stamp(&self, index: usize) -> Stamp {
        // Acquire, pairs with `overflow.stamp`: a thread that sees a later event sees that the one before has been taken out.
        Stamp::from_word(self.cell(index).stamp.load(ord!("overflow.stamp_read", Acquire)))
    }

    fn each_made(&self, mut visit: impl FnMut(usize, &Cell<T>)) {
        for block in 0..self.blocks.len() {
            // Acquire, pairs with `overflow.add_block`: the cells are complete.
            let cells = self.blocks[block].load(ord!("overflow.each_block", Acquire));
            if cells.is_null() {
                // A thread may be about to add this one; a later block can exist already.
                continue;
            }
            let first = if block == 0 { 0 } else { block_size(block) };
            for offset in 0..block_size(block) {
                // SAFETY: the block has this many cells.
                let cell = unsafe { cells.add(offset) };
                // SAFETY: as above; a block lives as long as the ring, and its cells are only ever shared.
                visit(first + offset, unsafe { &*cell });
            }
        }
    }
}

impl<T> Drop for Overflow<T> {
    fn drop(&mut self) {
        let panics = panic_guard::PanicGuard::new();
        self.each_made(|index, cell| {
            // Relaxed, pairs with `overflow.enliven` by the reference count of the ring: no other thread is left.
            if cell.live.load(ord!("overflow.drop", Relaxed)) {
                // SAFETY: no other thread is left.
                panics.drop_caught(unsafe { self.take_value(index) });
            }
        });
        for (block, cells) in self.blocks.iter().enumerate() {
            // Relaxed, pairs with `overflow.add_block` by the reference count of the ring: no other thread is left.
            let cells = cells.load(ord!("overflow.drop_block", Relaxed));
            if !cells.is_null() {
                // SAFETY: made by `ensure_block`, and nobody is left to use it.
                drop(unsafe { Self::block_from(cells, block) });
            }
        }
        panics.resume();
    }
}

impl<T> fmt::Debug for Overflow<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overflow").finish_non_exhaustive()
    }
}

/// Cells taken out. Dropping this drops their values and makes them free.
pub(crate) struct Expired<'a, T> {
    overflow: &'a Overflow<T>,
    first: CellRef,
    count: usize,
}

impl<T> Drop for Expired<'_, T> {
    fn drop(&mut self) {
        let panics = panic_guard::PanicGuard::new();
        let mut next = self.first;
        let mut last = None;
        while let Some(index) = next.cell() {
            // SAFETY: the cell was taken out by this thread, when it was live.
            panics.drop_caught(unsafe { self.overflow.take_value(index) });
            // Relaxed, pairs with `overflow.chain`: written by this thread.
            next = CellRef(
                self.overflow
                    .cell(index)
                    .next
                    .load(ord!("overflow.expired_next", Relaxed)),
            );
            last = Some(index);
        }
        if let Some(last) = last {
            self.overflow.give(self.first, last);
            self.overflow.uncount(self.count);
        }
        panics.resume();
    }
}

#[cfg(test)]
mod tests {
    use super::{block_of, block_size};

    #[test]
    fn blocks_hold_every_cell_once() {
        let mut cells = 0..1000;
        for block in 0..10 {
            for offset in 0..block_size(block) {
                assert_eq!(cells.next().map(block_of), Some((block, offset)));
            }
        }
    }
}
