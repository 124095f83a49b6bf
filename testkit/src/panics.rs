//! Planned panics, and closures that must panic.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The payload of [`planned_panic`].
#[derive(Debug)]
pub struct Planned;

/// Panics without a message or a backtrace on stderr.
pub fn planned_panic() -> ! {
    resume_unwind(Box::new(Planned))
}

/// Runs `body`. Returns `None` if it made a planned panic. Other panics continue.
pub fn may_panic<R>(body: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => Some(value),
        Err(panic) if panic.is::<Planned>() => None,
        Err(panic) => resume_unwind(panic),
    }
}

/// Runs `body`, which must make a planned panic.
#[track_caller]
pub fn must_panic<R>(body: impl FnOnce() -> R) {
    assert!(may_panic(body).is_none(), "no panic");
}

/// Runs `body`, which must panic with a message, and returns the message.
#[track_caller]
pub fn panic_message<R>(body: impl FnOnce() -> R) -> String {
    let panic: Box<dyn Any + Send> = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(_) => panic!("no panic"),
        Err(panic) => panic,
    };
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => panic
            .downcast::<&str>()
            .map_or_else(|_| String::new(), |message| (*message).to_owned()),
    }
}
