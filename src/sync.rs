//! The one place that names the standard library's synchronisation types.
//!
//! The loom models compile the engine's own source against another module of this name, in which every atomic, cell, lock
//! and thread is loom's. Keep the two surfaces identical.

pub(crate) use core::sync::atomic::Ordering;
pub(crate) use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, fence};
pub(crate) use parking_lot::MutexGuard;
pub(crate) use std::sync::{Arc, Weak};

/// An ordering with a name. The models weaken it by that name, and `docs/memory-ordering.md` has a row for it.
macro_rules! ord {
    ($site:literal, $ordering:ident) => {
        $crate::sync::Ordering::$ordering
    };
}
pub(crate) use ord;

/// A sequentially consistent fence with a name. The models weaken or drop it by that name.
macro_rules! fence {
    ($site:literal) => {
        $crate::sync::fence($crate::sync::Ordering::SeqCst)
    };
}
pub(crate) use fence as named_fence;

/// The frequent side of an asymmetric barrier, with a name (see `barrier`). A full fence if the barrier is not `$asymmetric`.
macro_rules! light_barrier {
    ($site:literal, $asymmetric:expr) => {
        if $asymmetric {
            core::sync::atomic::compiler_fence($crate::sync::Ordering::SeqCst)
        } else {
            $crate::sync::fence($crate::sync::Ordering::SeqCst)
        }
    };
}
pub(crate) use light_barrier;

/// The rare side of an asymmetric barrier, with a name. `false` if the system refused it.
macro_rules! heavy_barrier {
    ($site:literal, $asymmetric:expr) => {
        if $asymmetric {
            $crate::barrier::heavy()
        } else {
            $crate::sync::fence($crate::sync::Ordering::SeqCst);
            true
        }
    };
}
pub(crate) use heavy_barrier;

/// Whether the barriers are asymmetric in this process.
pub(crate) use crate::barrier::is_available as barriers_are_asymmetric;

/// A protocol fault that the models can plant by name; never in a real build.
macro_rules! fault {
    ($name:literal) => {
        false
    };
}
pub(crate) use fault;

/// Busy turns before a blocking receive starts to yield.
pub(crate) const SPINS: u32 = 128;

/// Yields before a blocking receive parks.
pub(crate) const YIELDS: u32 = 8;

/// Busy turns for a sequence that is claimed but not finished: a publication takes nanoseconds unless it is preempted.
pub(crate) const UNFINISHED_SPINS: u32 = 64;

/// The most sequences one announcement covers.
pub(crate) const ANNOUNCE_MAX: u64 = 64;

/// The blocks of overflow cells, each as large as all before it.
pub(crate) const OVERFLOW_BLOCKS: usize = 33;

/// Announcements are revoked at most once in this many sequences, on average. A revocation takes some microseconds.
pub(crate) const REVOKE_EVERY: u64 = 1024;

/// How many revocations may follow each other sooner, after a time without any.
pub(crate) const REVOKE_BURST: u64 = 16;

/// How many waiting threads a publication wakes itself. Of tasks it wakes one, whose executor spreads the rest.
pub(crate) const WAKE_WIDTH: usize = 2;

/// How many waiters each woken subscriber wakes in turn.
pub(crate) const CASCADE_WIDTH: usize = 8;

/// How many waiters are woken per hold of the lock when all are to be woken.
pub(crate) const WAKE_ALL_WIDTH: usize = 32;

/// The watchdog thread; the models replace it with their own.
pub(crate) use crate::ring::wake_watchdog;

/// The thread functions that the engine needs.
pub(crate) mod thread {
    pub(crate) use std::thread::{Thread, current, park, park_timeout, yield_now};
}

/// Raises `word` to at least `value`, and returns what it was. Always a read-modify-write, even if it raises nothing.
///
/// What `fetch_max` does, as an exchange loop, because ThreadSanitizer does not see `fetch_max`.
#[inline]
pub(crate) fn raise(word: &AtomicU64, value: u64, ordering: Ordering) -> u64 {
    // Relaxed: only compared, here and on failure.
    let mut current = word.load(Ordering::Relaxed);
    loop {
        match word.compare_exchange_weak(current, current.max(value), ordering, Ordering::Relaxed) {
            Ok(before) => return before,
            Err(now) => current = now,
        }
    }
}

/// Makes a weak reference. (loom's `Arc` has no such method.)
pub(crate) fn downgrade<T>(arc: &Arc<T>) -> Weak<T> {
    Arc::downgrade(arc)
}

/// One turn of a busy wait.
#[inline(always)]
pub(crate) fn spin_hint() {
    core::hint::spin_loop();
}

/// A lock for the slow paths; publishers only try it.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock()
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock()
    }
}

/// Interior mutability whose accesses loom checks for races.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    /// Runs `read` with a pointer that is only read through.
    #[inline(always)]
    pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// Runs `write` with a pointer that may be written through.
    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }

    /// A pointer for a read that outlives the call; the read lasts until the returned value is dropped.
    #[inline(always)]
    pub(crate) fn hold(&self) -> HeldRead<T> {
        HeldRead(self.0.get())
    }
}

/// A read access in progress; see [`UnsafeCell::hold`].
#[derive(Debug)]
pub(crate) struct HeldRead<T>(*const T);

impl<T> HeldRead<T> {
    #[inline(always)]
    pub(crate) fn pointer(&self) -> *const T {
        self.0
    }
}
