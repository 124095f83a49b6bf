//! Helpers shared by the test programs.
#![allow(dead_code, reason = "every test program uses its own part of the helpers")]

pub(crate) mod audit;
pub(crate) mod census;
pub(crate) mod sealed;
pub(crate) mod wakers;

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use self::wakers::Bell;

/// How long a test waits for something that must happen before it gives up and fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Runs `body` on its own thread and fails, instead of hanging, when it does not end.
#[track_caller]
pub(crate) fn must_end<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, ended) = mpsc::channel();
    let runner = thread::spawn(move || {
        let outcome = catch_unwind(AssertUnwindSafe(body));
        let _ = done.send(());
        outcome
    });
    match ended.recv_timeout(PATIENCE) {
        Ok(()) => match runner.join().expect("the runner catches every panic") {
            Ok(value) => value,
            Err(panic) => resume_unwind(panic),
        },
        Err(_) => panic!("still running after {PATIENCE:?}: a deadlock or a lost wake-up"),
    }
}

/// Polls `condition` until it holds; for conditions that nothing signals.
#[track_caller]
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < give_up, "never happened: {what}");
        thread::park_timeout(Duration::from_micros(200));
    }
}

/// Drives `future` on this very thread, parking in between; fails when it does not end.
#[track_caller]
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let bell = Bell::new();
    let waker = bell.waker();
    let mut rung = 0;
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        rung = bell.wait_beyond(rung);
    }
}

/// Polls `future` once with a waker that does nothing, then drops it.
pub(crate) fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// What [`panic_as_told`] panics with.
#[derive(Debug)]
pub(crate) struct AsTold;

/// Panics without the message and the backtrace that nobody wants to read by the thousand.
pub(crate) fn panic_as_told() -> ! {
    resume_unwind(Box::new(AsTold))
}

/// Runs `body`, which must panic as told.
#[track_caller]
pub(crate) fn must_panic<R>(body: impl FnOnce() -> R) {
    assert!(may_panic(body).is_none(), "this had to panic");
}

/// Runs `body`, which must panic with a message of its own, and returns that.
#[track_caller]
pub(crate) fn must_refuse<R>(body: impl FnOnce() -> R) -> String {
    let panic: Box<dyn Any + Send> = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(_) => panic!("this had to panic"),
        Err(panic) => panic,
    };
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => panic
            .downcast::<&str>()
            .map_or_else(|_| String::new(), |message| (*message).to_owned()),
    }
}

/// Runs `body`, which may panic as told (and in no other way).
pub(crate) fn may_panic<R>(body: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => Some(value),
        Err(panic) if panic.is::<AsTold>() => None,
        Err(panic) => resume_unwind(panic),
    }
}

/// Joins all threads and hands on the first panic.
#[track_caller]
pub(crate) fn join_all<R>(threads: impl IntoIterator<Item = thread::JoinHandle<R>>) -> Vec<R> {
    threads
        .into_iter()
        .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
        .collect()
}

/// A small generator of repeatable pseudo-random numbers (xorshift64*).
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        (self.roll() >> 16) % bound
    }
}
