//! Wakers that count, call back or panic.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{RawWaker, RawWakerVTable, Wake, Waker};
use std::time::Instant;

use crate::panics::planned_panic;
use crate::threads::PATIENCE;

/// Counts the wake-ups of its wakers, and lets a thread wait for them. A wake-up allocates nothing.
#[derive(Debug, Default)]
pub struct WakeCounter {
    wakes: Mutex<u64>,
    woken: Condvar,
}

impl WakeCounter {
    /// Creates a counter at zero.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Creates a waker that counts here.
    pub fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    /// Returns how many of its wakers exist, including clones. Also counts further handles of the counter.
    pub fn wakers(self: &Arc<Self>) -> usize {
        Arc::strong_count(self) - 1
    }

    /// Returns how often its wakers were woken.
    pub fn wakes(&self) -> u64 {
        *self.wakes.lock().unwrap()
    }

    /// Waits for more than `seen` wake-ups and returns how many there were. Panics after [`PATIENCE`].
    #[track_caller]
    pub fn wait_beyond(&self, seen: u64) -> u64 {
        let give_up = Instant::now() + PATIENCE;
        let mut wakes = self.wakes.lock().unwrap();
        while *wakes <= seen {
            let left = give_up.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no wake-up within {PATIENCE:?}: a lost wake-up");
            wakes = self.woken.wait_timeout(wakes, left).unwrap().0;
        }
        *wakes
    }
}

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *self.wakes.lock().unwrap() += 1;
        self.woken.notify_all();
    }
}

/// Creates a waker that calls `on_wake` when it is woken and `on_drop` when its last clone is dropped.
pub fn callback_waker(on_wake: impl Fn() + Send + Sync + 'static, on_drop: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Callback { on_wake, on_drop }))
}

struct Callback<W: Fn(), D: Fn()> {
    on_wake: W,
    on_drop: D,
}

impl<W: Fn() + Send + Sync, D: Fn() + Send + Sync> Wake for Callback<W, D> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        (self.on_wake)();
    }
}

impl<W: Fn(), D: Fn()> Drop for Callback<W, D> {
    fn drop(&mut self) {
        (self.on_drop)();
    }
}

/// The operation in which a [`panicking_waker`] panics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PanicsIn {
    /// `Waker::clone`.
    Clone,
    /// `Waker::wake` and `Waker::wake_by_ref`.
    Wake,
    /// Dropping a handle, unless its thread already panics.
    Drop,
}

struct Panicking {
    panics_in: PanicsIn,
    /// The number of handles that are left, which reveals a leak or a double drop.
    handles: Arc<AtomicU64>,
}

/// Creates a waker that makes a planned panic in one of its operations. Also returns the number of its living handles.
pub fn panicking_waker(panics_in: PanicsIn) -> (Waker, Arc<AtomicU64>) {
    let handles = Arc::new(AtomicU64::new(1));
    let panicking = Arc::new(Panicking {
        panics_in,
        handles: Arc::clone(&handles),
    });
    let raw = RawWaker::new(Arc::into_raw(panicking).cast(), &VTABLE);
    // SAFETY: the table below counts references as `Arc` does, and the data is an `Arc<Panicking>` as it expects.
    (unsafe { Waker::from_raw(raw) }, handles)
}

static VTABLE: RawWakerVTable =
    RawWakerVTable::new(panicking_clone, panicking_wake, panicking_wake_by_ref, panicking_drop);

/// # Safety
/// `data` comes from [`panicking_waker`] and its handle is alive.
unsafe fn panicking_clone(data: *const ()) -> RawWaker {
    // SAFETY: the caller's handle keeps the value alive.
    let panicking = unsafe { &*data.cast::<Panicking>() };
    if panicking.panics_in == PanicsIn::Clone {
        planned_panic();
    }
    panicking.handles.fetch_add(1, Ordering::SeqCst);
    // SAFETY: as above; the new handle owns the reference that is counted here.
    unsafe { Arc::increment_strong_count(data.cast::<Panicking>()) };
    RawWaker::new(data, &VTABLE)
}

/// # Safety
/// Like [`panicking_clone`]; consumes the handle.
unsafe fn panicking_wake(data: *const ()) {
    // SAFETY: this `Arc` takes over the handle's reference.
    let panicking = unsafe { Arc::from_raw(data.cast::<Panicking>()) };
    panicking.handles.fetch_sub(1, Ordering::SeqCst);
    if panicking.panics_in == PanicsIn::Wake {
        planned_panic();
    }
}

/// # Safety
/// See [`panicking_clone`].
unsafe fn panicking_wake_by_ref(data: *const ()) {
    // SAFETY: the caller's handle keeps the value alive.
    let panicking = unsafe { &*data.cast::<Panicking>() };
    if panicking.panics_in == PanicsIn::Wake {
        planned_panic();
    }
}

/// # Safety
/// Like [`panicking_clone`]; consumes the handle.
unsafe fn panicking_drop(data: *const ()) {
    // SAFETY: this `Arc` takes over the handle's reference.
    let panicking = unsafe { Arc::from_raw(data.cast::<Panicking>()) };
    let before = panicking.handles.fetch_sub(1, Ordering::SeqCst);
    assert!(before > 0, "a waker dropped twice");
    if panicking.panics_in == PanicsIn::Drop && !std::thread::panicking() {
        planned_panic();
    }
}
