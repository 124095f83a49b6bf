//! A value that is set once, and awaited by any number of tasks on any executor.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

pub(crate) struct Gate<T>(Mutex<State<T>>);

enum State<T> {
    /// Whoever waits, by the number that its [`Opened`] got; numbers are given in ascending order.
    Shut {
        next: u64,
        waiting: Vec<(u64, Waker)>,
    },
    Open(T),
}

impl<T: Clone> Gate<T> {
    pub(crate) fn shut() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Shut {
            next: 0,
            waiting: Vec::new(),
        })))
    }

    pub(crate) fn open(value: T) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Open(value))))
    }

    /// Sets the value, unless there is one, and wakes whoever waits. Calls wakers, so the caller holds no lock that a waker may want.
    pub(crate) fn set(&self, value: T) {
        let before = {
            let mut state = self.0.lock();
            if matches!(*state, State::Open(_)) {
                return;
            }
            std::mem::replace(&mut *state, State::Open(value))
        };
        if let State::Shut { waiting, .. } = before {
            for (_, waker) in waiting {
                waker.wake();
            }
        }
    }

    /// Completes when the value is set.
    pub(crate) fn opened(self: Arc<Self>) -> Opened<T> {
        Opened {
            gate: self,
            number: None,
        }
    }
}

/// See [`Gate::opened`].
pub(crate) struct Opened<T: Clone> {
    gate: Arc<Gate<T>>,
    number: Option<u64>,
}

impl<T: Clone> Future for Opened<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        match &mut *this.gate.0.lock() {
            State::Open(value) => Poll::Ready(value.clone()),
            State::Shut { next, waiting } => {
                let number = *this.number.get_or_insert_with(|| {
                    *next += 1;
                    *next
                });
                match waiting.binary_search_by_key(&number, |&(number, _)| number) {
                    Ok(at) => waiting[at].1.clone_from(cx.waker()),
                    Err(at) => waiting.insert(at, (number, cx.waker().clone())),
                }
                Poll::Pending
            }
        }
    }
}

impl<T: Clone> Drop for Opened<T> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let waker = match &mut *self.gate.0.lock() {
            State::Open(_) => None,
            State::Shut { waiting, .. } => waiting
                .binary_search_by_key(&number, |&(number, _)| number)
                .ok()
                .map(|at| waiting.remove(at)),
        };
        drop(waker); // outside the lock: a waker's drop may be anybody's code
    }
}
