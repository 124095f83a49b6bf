//! Waiting for the next event, as a task or as a thread.
//!
//! A subscriber that finds no event registers with the [`WaitQueue`], and must then look once more, since an event may have been
//! published in between. Why no event is missed depends on the state of the next sequence:
//!
//! - **Unclaimed.** The waiter reads the tail by a read-modify-write. A publisher that claims the sequence later reads the tail
//!   after it, and so sees the waiter's flag. A publication needs no fence for that.
//! - **Claimed, not finished.** The waiter fences and looks for the event again. Publications during which foreign code ran, and
//!   all publications of a ring without a watchdog, fence between the event and their read of the flag, so one of the two sees
//!   the other. A plain publication does not: it takes nanoseconds, unless its thread is preempted. In that case the watchdog
//!   (or, for a thread, a timed park) wakes the waiter.

use core::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use super::builder::WaitStrategy;
use super::coop;
use super::cursor::{Found, ReadCursor};
use super::error::{RecvError, RecvTimeoutError, TryRecvError};
use super::wait_queue::{NotifiedFlag, WaitQueue, WakeTarget};
use crate::sync::{Arc, SPINS, UNFINISHED_SPINS, YIELDS, fault, named_fence, ord, spin_hint, thread};

/// How long a thread sleeps before it looks again for a publication that may not see it waiting.
const UNSEEN_PARK: Duration = Duration::from_micros(200);

/// Turns of a busy wait between two reads of the clock.
const TURNS_PER_CLOCK: u32 = 64;

/// The state of one subscriber's wait.
#[derive(Debug, Default)]
pub(super) struct Wait {
    /// Created at the first wait, and shared with the wait queue from then on.
    notified: Option<Arc<NotifiedFlag>>,
    /// Registered, and not found notified since.
    listed: bool,
    /// Listed, but the publication in progress may miss it and there is no watchdog: the task must poll again.
    must_poll: bool,
}

/// A way to find an event: by value and by reference, or for a batch.
pub(super) trait Find<T>: Fn(&mut ReadCursor<T>) -> Result<Found<T>, TryRecvError> {}

impl<T, F: Fn(&mut ReadCursor<T>) -> Result<Found<T>, TryRecvError>> Find<T> for F {}

/// The outcome of an attempt to register.
enum Enlisted<T> {
    /// The next publication will notify this waiter.
    Registered,
    /// The publication in progress may not notify this waiter.
    NeedsWatchdog,
    /// There is a result already.
    Answer(Result<Found<T>, RecvError>),
}

/// Converts the result of a find into the result of a wait; `None` if there is no event yet.
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
    /// Finds the next event, or registers the task to be woken for it.
    #[inline]
    pub(super) fn poll<T>(
        &mut self,
        cursor: &mut ReadCursor<T>,
        cx: &mut Context<'_>,
        find: impl Find<T>,
    ) -> Poll<Result<Found<T>, RecvError>> {
        let budget = ready!(coop::poll_proceed(cx));
        let looked = !self.listed;
        if looked && let Some(answer) = answer(find(cursor)) {
            budget.made_progress();
            return Poll::Ready(answer);
        }
        let answer = ready!(self.poll_slow(cursor, cx, &find, looked));
        budget.made_progress();
        Poll::Ready(answer)
    }

    /// Does the rest of [`Wait::poll`], when there is a wait to begin (after it has looked for the event) or to end.
    #[cold]
    #[inline(never)]
    fn poll_slow<T>(
        &mut self,
        cursor: &mut ReadCursor<T>,
        cx: &mut Context<'_>,
        find: &impl Find<T>,
        looked: bool,
    ) -> Poll<Result<Found<T>, RecvError>> {
        self.resume(cursor);
        let found = if looked { None } else { answer(find(cursor)) };
        let answer = match found.or_else(|| Self::find_unfinished(cursor, find)) {
            Some(answer) => answer,
            None if self.listed
                && !self.must_poll
                && cursor
                    .shared()
                    .wait_queue
                    .is_registered_with(cursor.number(), cx.waker()) =>
            {
                return Poll::Pending;
            }
            None => match self.enlist(cursor, find, WakeTarget::Task(cx.waker().clone())) {
                Enlisted::Registered => return Poll::Pending,
                Enlisted::NeedsWatchdog => {
                    self.must_poll = !WaitQueue::ask_watchdog(&cursor.shared().wait_queue, cursor.number());
                    if self.must_poll {
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

    /// Finds the next event, blocking the thread until `deadline`.
    pub(super) fn block<T>(
        &mut self,
        cursor: &mut ReadCursor<T>,
        deadline: Option<Instant>,
        find: impl Find<T>,
    ) -> Result<Found<T>, RecvTimeoutError> {
        self.cancel(cursor);
        let strategy = cursor.shared().wait;
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
            Enlisted::NeedsWatchdog => thread::park_timeout(left(Some(UNSEEN_PARK)).unwrap_or(UNSEEN_PARK)),
            Enlisted::Registered => {
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

    /// If the subscriber was notified, ends the wait and wakes the next waiters.
    #[inline]
    fn resume<T>(&mut self, cursor: &ReadCursor<T>) {
        if self.listed && self.is_notified() {
            self.listed = false;
            cursor.shared().wait_queue.cascade();
        }
    }

    /// Ends the wait and leaves no registration behind. If the subscriber was notified, wakes the next waiters.
    #[inline]
    pub(super) fn cancel<T>(&mut self, cursor: &ReadCursor<T>) {
        self.resume(cursor);
        if core::mem::take(&mut self.listed) {
            cursor.shared().wait_queue.cancel(cursor.number());
        }
    }

    /// Ends all waiting, because the subscriber is being dropped.
    pub(super) fn finish<T>(&mut self, cursor: &ReadCursor<T>) {
        self.cancel(cursor);
        if self.notified.take().is_some() {
            cursor.shared().wait_queue.forget(cursor.number());
        }
    }

    /// Spins briefly if the publication of the next event is in progress, which the caller did not find.
    fn find_unfinished<T>(cursor: &mut ReadCursor<T>, find: &impl Find<T>) -> Option<Result<Found<T>, RecvError>> {
        for _ in 0..UNFINISHED_SPINS {
            if !cursor.is_claimed() {
                return None;
            }
            spin_hint();
            if let Some(answer) = answer(find(cursor)) {
                return Some(answer);
            }
        }
        None
    }

    fn enlist<T>(&mut self, cursor: &mut ReadCursor<T>, find: &impl Find<T>, target: WakeTarget) -> Enlisted<T> {
        let notified = self.notified.get_or_insert_with(|| Arc::new(NotifiedFlag::new()));
        let shared = cursor.shared();
        if !WaitQueue::register(&shared.wait_queue, cursor.number(), notified, self.listed, target) {
            // Closed: find what is retained, or report the close.
            self.listed = false;
            return Enlisted::Answer(answer(find(cursor)).unwrap_or(Err(RecvError::Closed)));
        }
        self.listed = true;
        self.must_poll = false;
        // Fault, breaks the rule that a waiter looks again after it has registered: it would sleep through what was
        // published before it registered.
        if fault!("park.unchecked") {
            return Enlisted::Registered;
        }
        if !shared.always_fence {
            // Release, pairs with `claim`: a publisher that claims after this read sees the flag that `register` has
            // set.
            let tail = shared.tail.fetch_add(0, ord!("park.look", Release));
            if tail <= cursor.cursor_position() {
                return Enlisted::Registered;
            }
        }
        let always_fence = shared.always_fence;
        // SeqCst fence, pairs with `wake.fence` and `wake_after_foreign.fence`: this waiter sees the event, or its
        // publisher sees the flag.
        named_fence!("park.fence");
        match answer(find(cursor)) {
            Some(answer) => Enlisted::Answer(answer),
            None if always_fence => Enlisted::Registered,
            None => Enlisted::NeedsWatchdog,
        }
    }
}
