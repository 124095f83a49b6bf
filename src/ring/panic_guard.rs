//! Runs foreign code that may panic several times. Without this guard, a second panic while the first unwinds aborts the process.

use core::any::Any;
use core::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Keeps the first of several panics, to be resumed at the end.
pub(super) struct PanicGuard(Cell<Option<Box<dyn Any + Send>>>);

impl PanicGuard {
    pub(super) fn new() -> Self {
        Self(Cell::new(None))
    }

    /// Runs `action` and keeps its panic, if it is the first.
    pub(super) fn run(&self, action: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(action)) {
            match self.0.take() {
                None => self.0.set(Some(panic)),
                Some(first) => {
                    self.0.set(Some(first));
                    // Dropping a payload may panic as well, so the second payload is leaked.
                    core::mem::forget(panic);
                }
            }
        }
    }

    /// Drops `value` and keeps its panic, if it is the first.
    #[inline(always)]
    pub(super) fn drop_caught<V>(&self, value: V) {
        if core::mem::needs_drop::<V>() {
            self.run(|| drop(value));
        }
    }

    /// Resumes the first panic, unless the thread is already unwinding.
    pub(super) fn resume(self) {
        if let Some(panic) = self.0.take() {
            if std::thread::panicking() {
                core::mem::forget(panic);
            } else {
                resume_unwind(panic);
            }
        }
    }
}

/// Runs `action` for every item even if some panic, then resumes the first panic.
pub(super) fn each<I>(items: impl IntoIterator<Item = I>, mut action: impl FnMut(I)) {
    let guard = PanicGuard::new();
    for item in items {
        guard.run(|| action(item));
    }
    guard.resume();
}
