//! Wakers whose rings can be counted and awaited.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Wake, Waker};
use std::time::Instant;

use super::PATIENCE;

/// Counts its rings and lets a thread wait for them.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rings: Mutex<u64>,
    rung: Condvar,
}

impl Bell {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    pub(crate) fn rings(&self) -> u64 {
        *self.rings.lock().unwrap()
    }

    /// Waits until it has rung more than `seen` times and says how often it has.
    #[track_caller]
    pub(crate) fn wait_beyond(&self, seen: u64) -> u64 {
        let give_up = Instant::now() + PATIENCE;
        let mut rings = self.rings.lock().unwrap();
        while *rings <= seen {
            let left = give_up.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "the waker was never rung: a lost wake-up");
            rings = self.rung.wait_timeout(rings, left).unwrap().0;
        }
        *rings
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *self.rings.lock().unwrap() += 1;
        self.rung.notify_all();
    }
}

/// Counts its rings in one atomic: allocates nothing and wakes nobody.
#[derive(Debug, Default)]
pub(crate) struct Tally(AtomicU64);

impl Tally {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn rings(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

impl Wake for Tally {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// Runs a closure when it is rung, and another when it is dropped.
pub(crate) struct Trap<R: Fn() + Send + Sync, D: Fn() + Send + Sync> {
    on_ring: R,
    on_drop: D,
}

impl<R: Fn() + Send + Sync + 'static, D: Fn() + Send + Sync + 'static> Trap<R, D> {
    pub(crate) fn waker(on_ring: R, on_drop: D) -> Waker {
        Waker::from(Arc::new(Self { on_ring, on_drop }))
    }
}

impl<R: Fn() + Send + Sync, D: Fn() + Send + Sync> Wake for Trap<R, D> {
    fn wake(self: Arc<Self>) {
        (self.on_ring)();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        (self.on_ring)();
    }
}

impl<R: Fn() + Send + Sync, D: Fn() + Send + Sync> Drop for Trap<R, D> {
    fn drop(&mut self) {
        (self.on_drop)();
    }
}
