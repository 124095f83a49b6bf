//! A subscriber that is polled by hand: it never blocks, so the model can tell afterwards whether it was woken.

use super::{Reader, Step, WaitQueue};
use crate::wake_watchdog;
use std::task::{Context, Poll};

pub(crate) struct Waiting {
    pub(crate) reader: Reader,
    wait_queue: WaitQueue,
    heard: usize,
    pub(crate) outcome: Option<Step>,
}

impl Waiting {
    pub(crate) fn new(reader: Reader) -> Self {
        Self {
            reader,
            wait_queue: WaitQueue::default(),
            heard: 0,
            outcome: None,
        }
    }

    /// Polls once, unless a receive has ended already.
    pub(crate) fn poll(&mut self) {
        if self.outcome.is_some() {
            return;
        }
        self.heard = self.wait_queue.rings();
        let before = self.reader.subscriber.position();
        let waker = self.wait_queue.waker();
        let polled = self.reader.subscriber.poll_recv(&mut Context::from_waker(&waker));
        if let Poll::Ready(result) = polled {
            let seq = self.reader.subscriber.position().saturating_sub(1).max(before);
            let result = result.map(|token| (seq, token.label()));
            self.outcome = Some(self.reader.note_waited(result));
        }
    }

    /// Was it woken since it was last polled?
    pub(crate) fn is_rung(&self) -> bool {
        self.wait_queue.rings() > self.heard
    }

    /// Polls if it was woken, when one publication is all there is: then the event must be there.
    pub(crate) fn poll_if_rung(&mut self) {
        if self.outcome.is_none() && self.is_rung() {
            self.poll();
            assert!(self.outcome.is_some(), "woken for nothing");
        }
    }

    /// Lets executors do their work: polls whoever was woken, until nobody is woken any more. Then nobody may be left waiting,
    /// unless it is for the ringer to wake them, which gets two turns for it.
    pub(crate) fn run_to_the_end(waiting: &mut [Self]) {
        let mut turns_left = 2;
        loop {
            while let Some(woken) = waiting.iter_mut().find(|one| one.outcome.is_none() && one.is_rung()) {
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
