//! A subscriber that is polled by hand: it never blocks, so the model can tell afterwards whether it was woken.

use super::{Reader, Step, WakeCounter};
use crate::wake_watchdog;
use std::sync::Arc;
use std::task::{Context, Poll};

pub(crate) struct Waiting {
    pub(crate) reader: Reader,
    wake_counter: Arc<WakeCounter>,
    seen: u64,
    pub(crate) outcome: Option<Step>,
}

impl Waiting {
    pub(crate) fn new(reader: Reader) -> Self {
        Self {
            reader,
            wake_counter: WakeCounter::new(),
            seen: 0,
            outcome: None,
        }
    }

    /// Polls once, unless a receive has already ended.
    pub(crate) fn poll(&mut self) {
        if self.outcome.is_some() {
            return;
        }
        self.seen = self.wake_counter.wakes();
        let before = self.reader.subscriber.position();
        let waker = self.wake_counter.waker();
        let polled = self.reader.subscriber.poll_recv(&mut Context::from_waker(&waker));
        if let Poll::Ready(result) = polled {
            let seq = self.reader.subscriber.position().saturating_sub(1).max(before);
            let result = result.map(|token| (seq, token.label()));
            self.outcome = Some(self.reader.note_waited(result));
        }
    }

    /// Was it woken since it was last polled?
    pub(crate) fn is_woken(&self) -> bool {
        self.wake_counter.wakes() > self.seen
    }

    /// Polls if it was woken. For models with a single publication: the event must then be there.
    pub(crate) fn poll_if_woken(&mut self) {
        if self.outcome.is_none() && self.is_woken() {
            self.poll();
            assert!(self.outcome.is_some(), "woken for nothing");
        }
    }

    /// Polls every subscriber that was woken, as executors would, until none is woken. Then none may be left waiting, unless there
    /// is a watchdog to wake it, which gets two turns to do so.
    pub(crate) fn run_to_the_end(waiting: &mut [Self]) {
        let mut turns_left = 2;
        loop {
            while let Some(woken) = waiting.iter_mut().find(|one| one.outcome.is_none() && one.is_woken()) {
                woken.poll();
            }
            if waiting.iter().all(|one| one.outcome.is_some()) {
                return;
            }
            assert!(turns_left > 0 && wake_watchdog::is_there(), "a wake-up was lost");
            turns_left -= 1;
            wake_watchdog::turn();
        }
    }
}
