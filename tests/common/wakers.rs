//! Wakers whose rings can be counted and awaited.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{RawWaker, RawWakerVTable, Wake, Waker};
use std::time::Instant;

use super::{PATIENCE, panic_as_told};

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

/// What a [`hostile`] waker does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Clone,
    Wake,
    Drop,
}

struct Hostile {
    fault: Fault,
    /// How many handles are left, so that a leak or a double drop shows.
    handles: Arc<AtomicU64>,
}

/// A waker that panics (as told) in one of its operations, and the number of its living handles.
///
/// A handle that is dropped while its thread already panics stays quiet.
pub(crate) fn hostile(fault: Fault) -> (Waker, Arc<AtomicU64>) {
    let handles = Arc::new(AtomicU64::new(1));
    let hostile = Arc::new(Hostile {
        fault,
        handles: Arc::clone(&handles),
    });
    let raw = RawWaker::new(Arc::into_raw(hostile).cast(), &HOSTILE);
    // SAFETY: the table below counts references as `Arc` does, and the data is an `Arc<Hostile>` as it expects.
    (unsafe { Waker::from_raw(raw) }, handles)
}

static HOSTILE: RawWakerVTable = RawWakerVTable::new(hostile_clone, hostile_wake, hostile_wake_by_ref, hostile_drop);

/// # Safety
/// `data` comes from [`hostile`] and its handle is alive.
unsafe fn hostile_clone(data: *const ()) -> RawWaker {
    // SAFETY: the caller's handle keeps the value alive.
    let hostile = unsafe { &*data.cast::<Hostile>() };
    if hostile.fault == Fault::Clone {
        panic_as_told();
    }
    hostile.handles.fetch_add(1, Ordering::SeqCst);
    // SAFETY: as above; the new handle owns the reference that is counted here.
    unsafe { Arc::increment_strong_count(data.cast::<Hostile>()) };
    RawWaker::new(data, &HOSTILE)
}

/// # Safety
/// As for [`hostile_clone`]; the handle is used up.
unsafe fn hostile_wake(data: *const ()) {
    // SAFETY: the handle's reference goes over to this `Arc`.
    let hostile = unsafe { Arc::from_raw(data.cast::<Hostile>()) };
    hostile.handles.fetch_sub(1, Ordering::SeqCst);
    if hostile.fault == Fault::Wake {
        panic_as_told();
    }
}

/// # Safety
/// As for [`hostile_clone`].
unsafe fn hostile_wake_by_ref(data: *const ()) {
    // SAFETY: the caller's handle keeps the value alive.
    let hostile = unsafe { &*data.cast::<Hostile>() };
    if hostile.fault == Fault::Wake {
        panic_as_told();
    }
}

/// # Safety
/// As for [`hostile_clone`]; the handle is used up.
unsafe fn hostile_drop(data: *const ()) {
    // SAFETY: the handle's reference goes over to this `Arc`.
    let hostile = unsafe { Arc::from_raw(data.cast::<Hostile>()) };
    let before = hostile.handles.fetch_sub(1, Ordering::SeqCst);
    assert!(before > 0, "a waker dropped twice");
    if hostile.fault == Fault::Drop && !std::thread::panicking() {
        panic_as_told();
    }
}
