//! The engine's synchronisation facade, with loom's types behind the same surface as `src/sync.rs`.

mod atomic;

pub(crate) use atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize};
pub(crate) use loom::sync::Arc;
pub(crate) use loom::sync::atomic::{Ordering, fence};

/// Stands for a weak reference, which loom does not have: keeps its target, so that only the time of its drop differs.
#[derive(Debug)]
pub(crate) struct Weak<T>(Arc<T>);

impl<T> Weak<T> {
    pub(crate) fn upgrade(&self) -> Option<Arc<T>> {
        Some(self.0.clone())
    }

    pub(crate) fn strong_count(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

impl<T> Clone for Weak<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// See [`Weak`].
pub(crate) fn downgrade<T>(arc: &Arc<T>) -> Weak<T> {
    Weak(arc.clone())
}

/// An ordering with a name, which a mutant may weaken; looked up once per site and process.
macro_rules! ord {
    ($site:literal, $ordering:ident) => {{
        static CHOSEN: std::sync::OnceLock<$crate::sync::Ordering> = std::sync::OnceLock::new();
        *CHOSEN.get_or_init(|| $crate::mutation::ordering($site, $crate::sync::Ordering::$ordering))
    }};
}
pub(crate) use ord;

/// A sequentially consistent fence with a name, which a mutant may weaken or leave out.
macro_rules! fence {
    ($site:literal) => {{
        static CHOSEN: std::sync::OnceLock<Option<$crate::sync::Ordering>> = std::sync::OnceLock::new();
        if let Some(strength) = *CHOSEN.get_or_init(|| $crate::mutation::fence($site)) {
            $crate::sync::fence(strength);
        }
    }};
}
pub(crate) use fence as named_fence;

/// The frequent side of an asymmetric barrier. loom knows no such barrier, so here both sides are fences: what a real light barrier
/// leaves out, and the heavy side makes up for, is the fence that executes here. A mutant may weaken it or leave it out.
macro_rules! light_barrier {
    ($site:literal, $asymmetric:expr) => {{
        let _: bool = $asymmetric;
        $crate::sync::named_fence!($site)
    }};
}
pub(crate) use light_barrier;

/// The rare side of an asymmetric barrier.
macro_rules! heavy_barrier {
    ($site:literal, $asymmetric:expr) => {{
        let _: bool = $asymmetric;
        $crate::sync::named_fence!($site);
        true
    }};
}
pub(crate) use heavy_barrier;

/// See [`light_barrier`]: in the models the two sides differ in nothing.
pub(crate) fn barriers_are_asymmetric() -> bool {
    true
}

/// A protocol fault that a mutant may plant.
macro_rules! fault {
    ($name:literal) => {{
        static CHOSEN: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        *CHOSEN.get_or_init(|| $crate::mutation::fault($name))
    }};
}
pub(crate) use fault;

/// No busy turns: each would be a branch for loom to explore.
pub(crate) const SPINS: u32 = 0;

/// No yields before parking, likewise.
pub(crate) const YIELDS: u32 = 0;

/// No busy turns for an unfinished publication, likewise.
pub(crate) const UNFINISHED_SPINS: u32 = 0;

/// The most sequences one announcement covers; small capacities never get there.
pub(crate) const ANNOUNCE_MAX: u64 = 64;

/// The blocks of overflow cells, each as large as all before it.
pub(crate) const OVERFLOW_BLOCKS: usize = 4;

/// Every clearing may revoke announcements.
pub(crate) const REVOKE_EVERY: u64 = 0;

/// See [`REVOKE_EVERY`].
pub(crate) const REVOKE_BURST: u64 = 1;

/// A publication wakes one waiter, so that two waiters are enough for a cascade.
pub(crate) const WAKE_WIDTH: usize = 1;

/// A woken subscriber wakes one more, so that three are enough for a chain.
pub(crate) const CASCADE_WIDTH: usize = 1;

/// Likewise, so that two waiters take two holds of the lock.
pub(crate) const WAKE_ALL_WIDTH: usize = 1;

/// The models take the watchdog's turns themselves.
pub(crate) use crate::wake_watchdog;

/// The thread functions that the engine needs.
pub(crate) mod thread {
    use loom::sync::Notify;
    use std::time::Duration;

    pub(crate) use loom::thread::yield_now;

    // loom's own `park` shares one token with its locks and condition variables; a `Notify` of our own does not, and it
    // also wakes spuriously once.
    loom::thread_local! {
        static SELF: Thread = Thread(std::sync::Arc::new(Notify::new()));
    }

    /// A handle to wake a parked thread.
    #[derive(Clone, Debug)]
    pub(crate) struct Thread(std::sync::Arc<Notify>);

    impl Thread {
        pub(crate) fn unpark(&self) {
            self.0.notify();
        }
    }

    pub(crate) fn current() -> Thread {
        SELF.with(Clone::clone)
    }

    /// Waits for `unpark`; a wake-up that never comes is a deadlock, which fails the model.
    pub(crate) fn park() {
        SELF.with(|this| this.0.wait());
    }

    /// Times out at once, but only after other threads could run: a wait that relies on its timeout goes on; one that does not
    /// must use [`park`].
    pub(crate) fn park_timeout(_: Duration) {
        yield_now();
    }
}

/// Raises `word` to at least `value` by one read-modify-write, and returns what it was.
pub(crate) fn raise(word: &AtomicU64, value: u64, ordering: Ordering) -> u64 {
    word.fetch_max(value, ordering)
}

/// One turn of a busy wait.
pub(crate) fn spin_hint() {
    loom::hint::spin_loop();
}

/// What [`Mutex::lock`] returns.
pub(crate) type MutexGuard<'a, T> = loom::sync::MutexGuard<'a, T>;

/// A lock for the slow paths; publishers only try it.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("loom's locks are never poisoned")
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

/// Interior mutability whose accesses loom checks for races.
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(loom::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::cell::UnsafeCell::new(value))
    }

    /// Runs `read` with a pointer that is only read through.
    pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        self.0.with(read)
    }

    /// Runs `write` with a pointer that may be written through.
    pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        self.0.with_mut(write)
    }

    /// A pointer for a read that outlives the call; loom holds the cell as being read until the returned value is dropped.
    pub(crate) fn hold(&self) -> HeldRead<T> {
        HeldRead(self.0.get())
    }
}

/// A read access in progress; see [`UnsafeCell::hold`].
#[derive(Debug)]
pub(crate) struct HeldRead<T>(loom::cell::ConstPtr<T>);

impl<T> HeldRead<T> {
    pub(crate) fn pointer(&self) -> *const T {
        self.0.with(|pointer| pointer)
    }
}
