//! Waiting for the next event, as a task or as a thread.
//!
//! Whoever finds nothing registers with the bell, and then must look once more, for what was published in between. How that look
//! is made safe depends on where the next sequence stands:
//!
//! - **Unclaimed.** The waiter reads the tail by a read-modify-write. Whoever claims the sequence later reads the tail after it,
//!   and so sees the waiter's flag. A publication needs no fence for that.
//! - **Claimed, not finished.** The waiter fences and looks at the event again. Publications during which foreign code ran, and all
//!   of a ring without backstop, fence between the event and their look at the flag, so one of the two sees the other. A plain
//!   publication does not: it takes nanoseconds, unless its thread is preempted. Then the ringer (or, for a thread, a timed park)
//!   comes back for the waiter.

use core::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use super::builder::WaitStrategy;
use super::coop;
use super::cursor::{Found, ReadCursor};
use super::error::{RecvError, RecvTimeoutError, TryRecvError};
use super::wait_queue::{NotifiedFlag, WaitQueue, WakeTarget};
use crate::sync::{Arc, SPINS, UNFINISHED_SPINS, YIELDS, fault, named_fence, ord, spin_hint, thread};

/// How long a thread sleeps before it looks again for a publication that may not look for it.
const UNSEEN_PARK: Duration = Duration::from_micros(200);

/// How many turns of a busy wait there are between two looks at the clock.
const TURNS_PER_CLOCK: u32 = 64;

/// The wait of one subscriber, if it has one.
#[derive(Debug, Default)]
pub(super) struct Wait {
    /// Made at the first wait, and known to the bell from then on.
    notified: Option<Arc<NotifiedFlag>>,
    /// Registered, and not seen notified since.
    listed: bool,
    /// Listed, but nobody may come for the owner: it must look again by itself.
    alone: bool,
}

/// How to find an event: by value and by reference, or for a batch.
pub(super) trait Find<T>: Fn(&mut ReadCursor<T>) -> Result<Found<T>, TryRecvError> {}

impl<T, F: Fn(&mut ReadCursor<T>) -> Result<Found<T>, TryRecvError>> Find<T> for F {}

/// How an attempt to register ended.
enum Enlisted<T> {
    /// The next publication will notify.
    Asleep,
    /// The publication under way may not notify.
    Unheard,
    /// There is something after all.
    Answer(Result<Found<T>, RecvError>),
}

/// What a find means to a wait: `None` when there is nothing yet.
#[inline(always)]
fn answer<T>(result: Result<Found<T>, TryRecvError>) -> Option<Result<Found<T>, RecvError>> {
    match result {
        Ok(found) => Some(Ok(found)),
        Err(TryRecvError::Lagged(lagged)) => Some(Err(RecvError::Lagged(lagged))),
        Err(TryRecvError::Closed) => Some(Err(RecvError::Closed)),
        Err(TryRecvError::Empty) => None,
    }
}

impl Wait {
    /// Finds the next event, or has the task woken for it.
    #[inline]
    pub(super) fn poll<T>(
        &mut self,
        cursor: &mut ReadCursor<T>,
        cx: &mut Context<'_>,
        find: impl Find<T>,
    ) -> Poll<Result<Found<T>, RecvError>> {
        let budget = ready!(coop::poll_proceed(cx));
        if !self.listed
            && let Some(answer) = answer(find(cursor))
        {
            budget.made_progress();
            return Poll::Ready(answer);
        }
        let answer = ready!(self.poll_patiently(cursor, cx, &find));
        budget.made_progress();
        Poll::Ready(answer)
    }

    /// What [`Wait::poll`] does when there may be something to wait for, or a wait to end.
    #[cold]
    #[inline(never)]
    fn poll_patiently<T>(
        &mut self,
        cursor: &mut ReadCursor<T>,
        cx: &mut Context<'_>,
        find: &impl Find<T>,
    ) -> Poll<Result<Found<T>, RecvError>> {
        self.resume(cursor);
        let answer = match Self::find_unhurried(cursor, find) {
            Some(answer) => answer,
            None if self.listed && !self.alone && cursor.core().wait_queue.keeps(cursor.number(), cx.waker()) => {
                return Poll::Pending;
            }
            None => match self.enlist(cursor, find, WakeTarget::Task(cx.waker().clone())) {
                Enlisted::Asleep => return Poll::Pending,
                Enlisted::Unheard => {
                    self.alone = !WaitQueue::ask_watchdog(&cursor.core().wait_queue, cursor.number());
                    if self.alone {
                        cx.waker().wake_by_ref();
                    }
                    return Poll::Pending;
                }
                Enlisted::Answer(answer) => answer,
            },
        };
        self.cancel(cursor);
        Poll::Ready(answer)
    }

    /// Finds the next event, blocking the thread for it until `deadline`.
    pub(super) fn block<T>(
        &mut self,
        cursor: &mut ReadCursor<T>,
        deadline: Option<Instant>,
        find: impl Find<T>,
    ) -> Result<Found<T>, RecvTimeoutError> {
        self.cancel(cursor);
        let strategy = cursor.core().wait;
        let mut turns: u32 = 0;
        loop {
            if let Some(answer) = answer(find(cursor)) {
                return answer.map_err(RecvTimeoutError::from);
            }
            let clock_due = turns >= SPINS || turns.is_multiple_of(TURNS_PER_CLOCK);
            if clock_due && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(RecvTimeoutError::Timeout);
            }
            turns = turns.saturating_add(1);
            match strategy {
                WaitStrategy::Spin => spin_hint(),
                _ if turns <= SPINS => spin_hint(),
                WaitStrategy::Park if turns > SPINS + YIELDS => {
                    if let Some(answer) = self.park(cursor, deadline, &find) {
                        return answer.map_err(RecvTimeoutError::from);
                    }
                }
                WaitStrategy::Park | WaitStrategy::Yield => thread::yield_now(),
            }
        }
    }

    /// Parks once, until notified or until it is time to look again.
    fn park<T>(
        &mut self,
        cursor: &mut ReadCursor<T>,
        deadline: Option<Instant>,
        find: &impl Find<T>,
    ) -> Option<Result<Found<T>, RecvError>> {
        let left = |limit: Option<Duration>| {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            left.map_or(limit, |left| Some(limit.map_or(left, |limit| limit.min(left))))
        };
        match self.enlist(cursor, find, WakeTarget::Thread(thread::current())) {
            Enlisted::Answer(answer) => {
                self.cancel(cursor);
                return Some(answer);
            }
            Enlisted::Unheard => thread::park_timeout(left(Some(UNSEEN_PARK)).unwrap_or(UNSEEN_PARK)),
            Enlisted::Asleep => {
                while !self.is_notified() {
                    match left(None) {
                        None => thread::park(),
                        Some(Duration::ZERO) => break,
                        Some(left) => thread::park_timeout(left),
                    }
                }
            }
        }
        self.cancel(cursor);
        None
    }

    fn is_notified(&self) -> bool {
        self.notified.as_ref().is_some_and(|notified| notified.is_set())
    }

    /// If the owner was notified: notes it, and notifies the next in turn.
    #[inline]
    fn resume<T>(&mut self, cursor: &ReadCursor<T>) {
        if self.listed && self.is_notified() {
            self.listed = false;
            cursor.core().wait_queue.cascade();
        }
    }

    /// Ends the wait, leaving nothing behind; if the owner was notified, notifies the next in turn.
    #[inline]
    pub(super) fn cancel<T>(&mut self, cursor: &ReadCursor<T>) {
        self.resume(cursor);
        if core::mem::take(&mut self.listed) {
            cursor.core().wait_queue.cancel(cursor.number());
        }
    }

    /// Ends all waiting: the owner is going.
    pub(super) fn finish<T>(&mut self, cursor: &ReadCursor<T>) {
        self.cancel(cursor);
        if self.notified.take().is_some() {
            cursor.core().wait_queue.forget(cursor.number());
        }
    }

    /// Finds the next event, with a little patience for a publication that is under way.
    fn find_unhurried<T>(cursor: &mut ReadCursor<T>, find: &impl Find<T>) -> Option<Result<Found<T>, RecvError>> {
        for _ in 0..UNFINISHED_SPINS {
            if let Some(answer) = answer(find(cursor)) {
                return Some(answer);
            }
            if !cursor.is_claimed() {
                return None;
            }
            spin_hint();
        }
        answer(find(cursor))
    }

    fn enlist<T>(&mut self, cursor: &mut ReadCursor<T>, find: &impl Find<T>, target: WakeTarget) -> Enlisted<T> {
        cursor.rest();
        let notified = self.notified.get_or_insert_with(|| Arc::new(NotifiedFlag::new()));
        let core = cursor.core();
        if !WaitQueue::register(&core.wait_queue, cursor.number(), notified, target) {
            // What is left, or the close itself, is there to be found.
            self.listed = false;
            return Enlisted::Answer(answer(find(cursor)).unwrap_or(Err(RecvError::Closed)));
        }
        self.listed = true;
        self.alone = false;
        // Fault, breaks the rule that a waiter looks again after it has registered: it would sleep through what was
        // published before it registered.
        if fault!("park.unchecked") {
            return Enlisted::Asleep;
        }
        if !core.always_fence {
            // Release, pairs with `claim`: a publisher that claims after this read sees the flag that `register` has
            // set.
            let tail = core.tail.fetch_add(0, ord!("park.look", Release));
            if tail <= cursor.cursor_position() {
                return Enlisted::Asleep;
            }
        }
        let always_fence = core.always_fence;
        // SeqCst fence, pairs with `wake.fence` and `wake_after_foreign.fence`: this waiter sees the event, or its
        // publisher sees the flag.
        named_fence!("park.fence");
        match answer(find(cursor)) {
            Some(answer) => Enlisted::Answer(answer),
            None if always_fence => Enlisted::Asleep,
            None => Enlisted::Unheard,
        }
    }
}
