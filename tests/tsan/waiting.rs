//! Waiting tasks and threads, with an executor that the sanitizer can follow.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use doorbell::ring::{Builder, Subscriber};
use testkit::sealed::Sealed;
use testkit::threads::join_all;

use crate::shared;

const ROUNDS: u64 = 120;

/// Unparks a thread, and sets its own atomic flag.
struct Unpark {
    woken: AtomicBool,
    thread: Thread,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// The waker and its flag, which are never freed: `Arc` frees behind a fence, which the sanitizer does not see.
fn lasting_waker() -> (Waker, Arc<Unpark>) {
    let unpark = Arc::new(Unpark {
        woken: AtomicBool::new(false),
        thread: thread::current(),
    });
    std::mem::forget(Arc::clone(&unpark));
    (Waker::from(Arc::clone(&unpark)), unpark)
}

fn drive<F: Future>(future: F, waker: &Waker, unpark: &Unpark) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(waker)) {
            return value;
        }
        while !unpark.woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

fn await_all(mut subscriber: Subscriber<Sealed>, arrived: &AtomicU64, way: u64) {
    let (waker, unpark) = lasting_waker();
    for round in 0..ROUNDS {
        let value = match way % 3 {
            0 => drive(subscriber.recv(), &waker, &unpark).unwrap(),
            1 => *drive(subscriber.recv_ref(), &waker, &unpark).unwrap(),
            _ => *drive(subscriber.recv_batch(1), &waker, &unpark)
                .unwrap()
                .next()
                .unwrap(),
        };
        assert_eq!(value.open(), (0, round));
        // Cancelled at once and started again.
        let mut abandoned = pin!(subscriber.recv());
        if let Poll::Ready(early) = abandoned.as_mut().poll(&mut Context::from_waker(&waker)) {
            panic!("{early:?} before it was published");
        }
        arrived.fetch_add(1, Ordering::AcqRel);
    }
}

pub(crate) fn tasks_and_threads(wake: doorbell::ring::Wake, wake_watchdog: bool) {
    let builder = Builder::new(4).wake(wake).wake_watchdog(wake_watchdog);
    let (publisher, subscriber) = builder.channel::<Sealed>().unwrap();
    let arrived = shared(AtomicU64::new(0));
    let mut threads = Vec::new();
    for way in 0..3 {
        let waiting = subscriber.clone();
        threads.push(thread::spawn(move || await_all(waiting, arrived, way)));
        let mut waiting = subscriber.clone();
        threads.push(thread::spawn(move || {
            for round in 0..ROUNDS {
                assert_eq!(waiting.recv_blocking().unwrap().open(), (0, round));
                arrived.fetch_add(1, Ordering::AcqRel);
            }
        }));
    }
    for round in 0..ROUNDS {
        publisher.publish(Sealed::new(0, round));
        while arrived.load(Ordering::Acquire) < 6 * (round + 1) {
            thread::yield_now();
        }
    }
    join_all(threads);
    drop((publisher, subscriber));
}
