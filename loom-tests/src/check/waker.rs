//! Wakers that count, for models that poll by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

/// Counts the wake-ups of the wakers made from it, and how many of those exist.
#[derive(Clone, Default)]
pub(crate) struct WakeCounter(Arc<Count>);

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl WakeCounter {
    pub(crate) fn waker(&self) -> Waker {
        Waker::from(self.0.clone())
    }

    /// How often its wakers were woken.
    pub(crate) fn wakes(&self) -> usize {
        self.0.0.load(Ordering::Relaxed)
    }

    /// How many wakers, or clones of wakers, still exist.
    pub(crate) fn wakers(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}
