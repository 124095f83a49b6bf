//! Utilities for threads: time limits in place of hangs, a minimal executor, joins.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use crate::wakers::WakeCounter;

/// The time after which a test that waits for something fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Runs `body` on its own thread. Panics, instead of hanging, if it does not end.
#[track_caller]
pub fn must_end<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> R {
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

/// Polls `condition` until it holds, for conditions that nothing signals.
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < give_up, "never happened: {what}");
        thread::park_timeout(Duration::from_micros(200));
    }
}

/// Drives `future` on this thread. Panics if it waits for longer than [`PATIENCE`].
#[track_caller]
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let wakes = WakeCounter::new();
    let waker = wakes.waker();
    let mut seen = 0;
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        seen = wakes.wait_beyond(seen);
    }
}

/// Polls `future` once with a waker that does nothing, then drops it.
pub fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Joins all threads and propagates the first panic.
#[track_caller]
pub fn join_all<R>(threads: impl IntoIterator<Item = thread::JoinHandle<R>>) -> Vec<R> {
    threads
        .into_iter()
        .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
        .collect()
}
