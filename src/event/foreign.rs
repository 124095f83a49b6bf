//! Runs foreign code: wakers, and the `Drop` of the event type.
//!
//! It may call the bus or the store, so none of their locks may be held, and it may panic. A publisher runs the wakers of other
//! subscribers and drops the events of other publishers, and is not at fault. So the panic ends here, after the panic hook has
//! reported it.

#[cfg(feature = "postgres")]
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs foreign code. Its panic ends here.
pub(crate) fn run(code: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(code)) {
        std::mem::forget(payload); // dropping it may panic, too
    }
}

/// Returns the message of a panic.
#[cfg(feature = "postgres")]
pub(crate) fn message_of(panic: Box<dyn Any + Send>) -> String {
    if let Some(message) = panic.downcast_ref::<&str>() {
        (*message).to_owned()
    } else if let Some(message) = panic.downcast_ref::<String>() {
        message.clone()
    } else {
        std::mem::forget(panic); // dropping it may panic, too
        "the payload is not a string".to_owned()
    }
}

/// Drops its values as [foreign code](self), one by one. To be declared before a lock is taken, so that it is dropped after the
/// lock's release.
pub(crate) struct DropLater<T>(pub(crate) Vec<T>);

impl<T> DropLater<T> {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }
}

impl<T> Drop for DropLater<T> {
    fn drop(&mut self) {
        for value in self.0.drain(..) {
            run(|| drop(value));
        }
    }
}
