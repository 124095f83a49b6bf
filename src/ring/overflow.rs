//! Stores events whose slot could not be used (*diverted* events) in separate cells, where they are found by sequence.
//!
//! Diverting is rare: a slot is unusable only while a subscriber still reads what it holds, or while its previous publisher was
//! preempted for a whole lap. Publishing a cell is a push on a lock-free stack. Subscribers move the stack into a table under a
//! small lock and look their sequence up there; publishers only try that lock. The number of cells is bounded.

use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::shared::Value;
use crate::sync::{AtomicPtr, AtomicUsize, Mutex, MutexGuard, UnsafeCell, ord};

/// One diverted event. It is never moved, and is freed only when no subscriber can reach it.
struct Cell<T> {
    seq: u64,
    /// False if the sequence is void, that is, carries no event.
    has_value: bool,
    value: Value<T>,
    next: *mut Cell<T>,
}

impl<T> Cell<T> {
    /// The storage of the value, unless the sequence is void.
    fn value(&self) -> Option<&Value<T>> {
        self.has_value.then_some(&self.value)
    }
}

impl<T> Drop for Cell<T> {
    fn drop(&mut self) {
        if self.has_value {
            self.value.with_mut(|value| {
                // SAFETY: the thread that drops a cell is the only one that can reach it.
                let value = unsafe { &mut *value };
                // SAFETY: `has_value` says that it was initialised; it is dropped once, here.
                unsafe { value.assume_init_drop() };
            });
        }
    }
}

/// The cells that were moved out of the stack.
struct Table<T>(Vec<NonNull<Cell<T>>>);

// SAFETY: the table owns its cells, and a cell is a `T` (or none) and plain words.
unsafe impl<T: Send + Sync> Send for Table<T> {}

pub(super) struct Overflow<T> {
    stack: AtomicPtr<Cell<T>>,
    table: Mutex<Table<T>>,
}

impl<T> Overflow<T> {
    pub(super) fn new() -> Self {
        Self {
            stack: AtomicPtr::new(core::ptr::null_mut()),
            table: Mutex::new(Table(Vec::new())),
        }
    }

    /// Publishes `value` (or a void) as `seq`. The caller has already counted the cell in [`LiveCells`].
    pub(super) fn push(&self, seq: u64, value: Option<T>) {
        let cell = Box::into_raw(Box::new(Cell {
            seq,
            has_value: value.is_some(),
            value: UnsafeCell::new(value.map_or_else(MaybeUninit::uninit, MaybeUninit::new)),
            next: core::ptr::null_mut(),
        }));
        // Relaxed, pairs with `overflow.push`: only compared; the exchange below orders the push.
        let mut head = self.stack.load(ord!("overflow.head", Relaxed));
        loop {
            // SAFETY: the cell is ours until the exchange succeeds.
            unsafe { (*cell).next = head };
            match self.stack.compare_exchange_weak(
                head,
                cell,
                // Release, pairs with `overflow.take`: a thread that takes the stack sees the cell.
                ord!("overflow.push", Release),
                // Relaxed, pairs with `overflow.push`: only compared again.
                ord!("overflow.push_failed", Relaxed),
            ) {
                Ok(_) => return,
                Err(current) => head = current,
            }
        }
    }

    /// Finds the cell of `seq`, and in it the storage of the value, unless the sequence is void.
    ///
    /// The storage stays while the caller says that it reads `seq`; otherwise it must not be used.
    pub(super) fn find(&self, seq: u64) -> Option<Option<NonNull<Value<T>>>> {
        let mut table = self.table.lock();
        self.drain(&mut table);
        table.0.iter().find_map(|cell| {
            // SAFETY: cells in the table are alive while the lock is held, and only their value is ever written.
            let cell = unsafe { cell.as_ref() };
            (cell.seq == seq).then(|| cell.value().map(NonNull::from))
        })
    }

    /// Takes out every cell that is `expired`. The caller drops the values while it holds no lock.
    pub(super) fn purge(&self, expired: impl Fn(u64) -> bool) -> Expired<T> {
        self.purge_table(self.table.lock(), expired)
    }

    /// Does the same as [`Overflow::purge`], but returns `None` if another thread holds the table.
    pub(super) fn try_purge(&self, expired: impl Fn(u64) -> bool) -> Option<Expired<T>> {
        self.table.try_lock().map(|table| self.purge_table(table, expired))
    }

    fn purge_table(&self, mut table: MutexGuard<'_, Table<T>>, expired: impl Fn(u64) -> bool) -> Expired<T> {
        self.drain(&mut table);
        let is_expired = |cell: &mut NonNull<Cell<T>>| {
            // SAFETY: cells in the table are alive, and their `seq` never changes.
            expired(unsafe { cell.as_ref() }.seq)
        };
        Expired(table.0.extract_if(.., is_expired).collect())
    }

    fn drain(&self, table: &mut Table<T>) {
        // Relaxed, pairs with `overflow.push`: an empty stack needs no order.
        if self.stack.load(ord!("overflow.peek", Relaxed)).is_null() {
            return;
        }
        // Acquire, pairs with `overflow.push`: the cells are complete.
        let mut next = self.stack.swap(core::ptr::null_mut(), ord!("overflow.take", Acquire));
        while let Some(cell) = NonNull::new(next) {
            // SAFETY: the swap made the whole stack ours, and cells on it are alive.
            next = unsafe { cell.as_ref() }.next;
            table.0.push(cell);
        }
    }
}

impl<T> Drop for Overflow<T> {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        self.drain(&mut table);
        let cells = Expired(core::mem::take(&mut table.0));
        drop(table);
        drop(cells);
    }
}

impl<T> fmt::Debug for Overflow<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overflow").finish_non_exhaustive()
    }
}

/// Cells taken out of the table. Dropping this frees them and drops their values.
pub(super) struct Expired<T>(Vec<NonNull<Cell<T>>>);

impl<T> Expired<T> {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl<T> Drop for Expired<T> {
    fn drop(&mut self) {
        let cells = core::mem::take(&mut self.0);
        super::panic_guard::each(cells, |cell| {
            // SAFETY: the cell came from a box, was taken out of the table by us alone, and no subscriber can reach it.
            drop(unsafe { Box::from_raw(cell.as_ptr()) });
        });
    }
}

/// The number of cells that exist, kept on the cache line that subscribers read anyway.
pub(super) type LiveCells = AtomicUsize;
