//! Signals to a subscription where it starts.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::SetOnce;

use crate::bus::BusError;
use crate::event::foreign;

/// The position at which a subscription starts.
#[derive(Clone, Debug)]
pub(crate) enum StartPosition {
    /// Starts after this number of its stream.
    One(u64),
    /// Starts after these numbers, by index. Streams that are added later start after their base.
    All(Arc<[u64]>),
}

/// A signal that is set once, to a subscription's start or to the error that ended the subscription before it had one. Each
/// subscription has its own signal.
#[derive(Clone, Debug)]
pub(crate) struct StartSignal(Arc<SetOnce<Result<StartPosition, BusError>>>);

/// Completes when the signal is set. Does not borrow the signal, and can be polled on any executor.
pub(crate) type StartWait = Pin<Box<dyn Future<Output = Result<StartPosition, BusError>> + Send + Sync>>;

impl StartSignal {
    pub(crate) fn unset() -> Self {
        Self(Arc::new(SetOnce::new()))
    }

    pub(crate) fn already(start: Result<StartPosition, BusError>) -> Self {
        Self(Arc::new(SetOnce::from(start)))
    }

    /// Sets the signal, unless it is set. This calls wakers, which may call the bus, so the caller must not hold a lock of the
    /// bus.
    pub(crate) fn set(&self, start: Result<StartPosition, BusError>) {
        let _ = self.0.set(start); // the first value stays
    }

    /// Sets several signals, even if a waker panics. The caller must not hold a lock of the bus.
    pub(super) fn set_all(starts: impl IntoIterator<Item = (Self, Result<StartPosition, BusError>)>) {
        for (signal, start) in starts {
            foreign::run(|| signal.set(start));
        }
    }

    pub(crate) fn wait(&self) -> StartWait {
        let signal = Arc::clone(&self.0);
        Box::pin(async move { signal.wait().await.clone() })
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Poll, Wake, Waker};

    use super::*;

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker that panics");
        }
    }

    /// Sets the signal again from inside the waker.
    struct SetsAgain(StartSignal, AtomicBool);

    impl Wake for SetsAgain {
        fn wake(self: Arc<Self>) {
            self.0.set(Err(BusError::Closed));
            self.1.store(true, Ordering::Relaxed); // relaxed: one thread
        }
    }

    fn poll(wait: &mut StartWait, waker: &Waker) -> Poll<Result<u64, BusError>> {
        let start = wait.as_mut().poll(&mut Context::from_waker(waker));
        start.map_ok(|start| match start {
            StartPosition::One(after) => after,
            StartPosition::All(_) => unreachable!("the tests set the start in one stream"),
        })
    }

    #[test]
    fn the_first_value_stays() {
        let signal = StartSignal::unset();
        let mut wait = signal.wait();
        assert!(poll(&mut wait, Waker::noop()).is_pending());
        signal.set(Ok(StartPosition::One(7)));
        signal.set(Err(BusError::Closed));
        assert!(matches!(poll(&mut wait, Waker::noop()), Poll::Ready(Ok(7))));
    }

    #[test]
    fn a_waker_that_panics_does_not_affect_other_signals() {
        let (first, second) = (StartSignal::unset(), StartSignal::unset());
        let (mut first_wait, mut second_wait) = (first.wait(), second.wait());
        assert!(poll(&mut first_wait, &Waker::from(Arc::new(Panics))).is_pending());
        assert!(poll(&mut second_wait, Waker::noop()).is_pending());
        let starts = [first, second].map(|signal| (signal, Ok(StartPosition::One(7))));
        StartSignal::set_all(starts);
        assert!(matches!(poll(&mut first_wait, Waker::noop()), Poll::Ready(Ok(7))));
        assert!(matches!(poll(&mut second_wait, Waker::noop()), Poll::Ready(Ok(7))));
    }

    #[test]
    fn a_waker_may_set_the_signal() {
        let signal = StartSignal::unset();
        let mut wait = signal.wait();
        let waker = Arc::new(SetsAgain(signal.clone(), AtomicBool::new(false)));
        assert!(poll(&mut wait, &Waker::from(Arc::clone(&waker))).is_pending());
        signal.set(Ok(StartPosition::One(7)));
        assert!(waker.1.load(Ordering::Relaxed)); // relaxed: as above
        assert!(matches!(poll(&mut wait, Waker::noop()), Poll::Ready(Ok(7))));
    }
}
