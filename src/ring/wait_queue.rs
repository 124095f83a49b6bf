//! Keeps the waiting subscribers of one ring, and wakes them.
//!
//! A subscriber has at most one wait at a time, so the [`WaitList`] has one node per seat. The states of a node:
//!
//! | state | meaning | ends when |
//! |---|---|---|
//! | idle | does not wait | the subscriber registers |
//! | listed, waiting | waits for the next publication | a publication makes all waiting nodes due at once; the subscriber cancels |
//! | listed, due | an event was published, and the node has not been notified | a thread notifies it; the subscriber cancels |
//! | notified | notified, and has not run since | the subscriber runs, cancels or is dropped, and then wakes the next ones |
//!
//! A publication makes the waiting nodes due in constant time and notifies a few. Each of these, when it runs (or is dropped),
//! notifies the next few, and so on: the work of waking is spread over the woken subscribers. If they are stuck, the watchdog
//! thread notifies the rest (`super::wake_watchdog`).
//!
//! Publishers only try the lock of the list. A thread that fails to take it defers its work to the holder, which does the work
//! after it has unlocked.

use core::fmt;
use core::task::Waker;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::builder::Wake;
use super::wait_list::{WaitList, WakeBatch};
use crate::sync::thread::Thread;
use crate::sync::wake_watchdog;
use crate::sync::{
    Arc, AtomicBool, AtomicU8, CASCADE_WIDTH, Mutex, MutexGuard, WAKE_ALL_WIDTH, WAKE_WIDTH, fault, named_fence, ord,
};

/// A subscriber waits for the next publication.
const WAITING: u8 = 1;
/// A waiter is due.
const DUE: u8 = 2;
/// Overflow cells may have expired.
const PURGE: u8 = 4;
/// Publishers must fence before they look for waiters. This flag is never cleared.
const FENCE: u8 = 8;

/// Deferred by a publication: make the waiters due and wake the first.
const DEFERRED_WAKE: u8 = 1;
/// Deferred by a woken waiter: wake the next ones.
const DEFERRED_CASCADE: u8 = 2;

/// The task or thread that a notification wakes.
pub(super) enum WakeTarget {
    Task(Waker),
    Thread(Thread),
}

impl WakeTarget {
    pub(super) fn wake(self) {
        match self {
            Self::Task(waker) => waker.wake(),
            Self::Thread(thread) => thread.unpark(),
        }
    }
}

/// Shows a subscriber, without the lock, that its node has been notified.
#[derive(Debug)]
pub(super) struct NotifiedFlag(AtomicBool);

impl NotifiedFlag {
    pub(super) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Returns `true` if the subscriber has been notified since it registered.
    pub(super) fn is_set(&self) -> bool {
        // Acquire, pairs with `notified.set`: what made the subscriber due is visible to it.
        self.0.load(ord!("notified.see", Acquire))
    }

    pub(super) fn set(&self) {
        // Release, pairs with `notified.see`: what made the subscriber due is visible to it.
        self.0.store(true, ord!("notified.set", Release));
    }

    pub(super) fn clear(&self) {
        // Relaxed, pairs with `notified.set` by the list's lock: both happen under the lock.
        self.0.store(false, ord!("notified.clear", Relaxed));
    }
}

/// The [`WaitList`] of one ring, with its lock, flags and deferred work.
///
/// All of it fits one cache line: who waits or wakes needs all of it, and otherwise nobody writes there.
#[repr(align(64))]
pub(crate) struct WaitQueue {
    /// The flags that publishers read: [`WAITING`] and [`DUE`], which change under the lock, and [`PURGE`] and [`FENCE`].
    flags: AtomicU8,
    waiters: Mutex<WaitList>,
    /// The work of threads that found the list locked: [`DEFERRED_WAKE`] and [`DEFERRED_CASCADE`].
    deferred: AtomicU8,
    /// The watchdog has waiters to watch here.
    armed: AtomicBool,
    wake: Wake,
    wake_watchdog: bool,
}

/// The number of waiters to notify at once.
#[derive(Clone, Copy)]
enum Width {
    /// One task, or a few threads.
    First,
    Few(usize),
    All,
}

impl WaitQueue {
    pub(super) fn new(wake: Wake, wake_watchdog: bool) -> Self {
        Self {
            flags: AtomicU8::new(if wake_watchdog { 0 } else { FENCE }),
            waiters: Mutex::new(WaitList::new()),
            deferred: AtomicU8::new(0),
            armed: AtomicBool::new(false),
            wake,
            wake_watchdog,
        }
    }

    /// Returns `true` if a flag is set that a publisher must act on after its publication.
    #[inline(always)]
    pub(super) fn needs_attention(&self) -> bool {
        // Relaxed, pairs with `flags.add` through `park.look` and `claim`: the claim has acquired the flag of every
        // waiter that may rely on this load; the other waiters are seen after a fence.
        self.flags.load(ord!("flags.glance", Relaxed)) != 0
    }

    /// Wakes waiters if any waits or is due.
    pub(super) fn wake_if_needed(&self) {
        // Relaxed, pairs with `flags.add` through `park.fence` or `park.look`: the caller has fenced, or has acquired
        // the flag with its claim.
        if self.flags.load(ord!("flags.see", Relaxed)) & (WAITING | DUE) != 0 {
            self.wake_waiters();
        }
    }

    /// Asks the next publisher to free expired overflow cells.
    pub(super) fn ask_purge(&self) {
        // Relaxed, pairs with `purge.see` and `purge.take`: only a request; the work that it requests has its own orderings.
        self.flags.fetch_or(PURGE, ord!("purge.ask", Relaxed));
    }

    /// Takes the request of [`WaitQueue::ask_purge`], if there is one.
    #[inline]
    pub(super) fn take_purge_request(&self) -> bool {
        // Relaxed, pairs with `purge.ask`: only a request; the work that it requests has its own orderings.
        self.flags.load(ord!("purge.see", Relaxed)) & PURGE != 0
            && self.flags.fetch_and(!PURGE, ord!("purge.take", Relaxed)) & PURGE != 0
    }

    /// Makes every waiting node due and notifies the first, after an event was published.
    #[cold]
    #[inline(never)]
    pub(super) fn wake_waiters(&self) {
        if let Some(mut waiters) = self.try_lock_or_defer(DEFERRED_WAKE) {
            waiters.make_due();
            self.notify(waiters, self.publish_width());
        }
    }

    /// Notifies the next waiters. Called when a notified waiter runs or is dropped.
    #[inline]
    pub(super) fn cascade(&self) {
        // Relaxed, pairs with `flags.add` through `notified.set`: the thread that notified the caller stored the flags
        // before it set `notified`.
        // Fault, breaks the rule that a woken waiter wakes the next ones: if it wakes none, the rest stay asleep.
        if self.flags.load(ord!("flags.due", Relaxed)) & DUE != 0 && !fault!("cascade.skipped") {
            self.cascade_now();
        }
    }

    #[cold]
    fn cascade_now(&self) {
        if let Some(waiters) = self.try_lock_or_defer(DEFERRED_CASCADE) {
            self.notify(waiters, Width::Few(CASCADE_WIDTH));
        }
    }

    /// Notifies every waiter and refuses later registrations, because no publisher is left.
    pub(super) fn close(&self) {
        let mut waiters = self.waiters.lock();
        waiters.close();
        waiters.make_due();
        self.notify(waiters, Width::All);
    }

    /// Registers the subscriber of seat `number` to be woken through `target`, or replaces its target. Returns `false` if the
    /// channel is closed. `may_be_notified` is false if the subscriber has seen every notification so far, and woken the next ones.
    ///
    /// The caller must then look once more for an event, as the `wait` module explains.
    pub(super) fn register(
        wait_queue: &Arc<Self>,
        number: usize,
        notified: &Arc<NotifiedFlag>,
        may_be_notified: bool,
        target: WakeTarget,
    ) -> bool {
        let mut waiters = wait_queue.waiters.lock();
        let (replaced, was_notified) = match waiters.register(number, notified, target) {
            Ok(registered) => registered,
            Err(refused) => {
                wait_queue.notify(waiters, Width::Few(0));
                drop(refused);
                return false;
            }
        };
        if wait_queue.wake_watchdog && matches!(wait_queue.wake, Wake::Cascade) && waiters.needs_watch() {
            waiters.set_watched(wake_watchdog::watch(wait_queue));
        }
        // A notification that the subscriber has not seen still obliges it to wake the next ones.
        let obliged = was_notified && may_be_notified;
        wait_queue.notify(waiters, Width::Few(if obliged { CASCADE_WIDTH } else { 0 }));
        drop(replaced);
        true
    }

    /// Returns `true` if the subscriber of seat `number` is listed with this very waker.
    pub(super) fn is_registered_with(&self, number: usize, waker: &Waker) -> bool {
        let waiters = self.waiters.lock();
        let registered = waiters.is_registered_with(number, waker);
        self.notify(waiters, Width::Few(0));
        registered
    }

    /// Asks the watchdog to wake the subscriber of seat `number`, which waits for a publication that may not see it. Returns
    /// `false` if there is no watchdog to ask.
    pub(super) fn ask_watchdog(wait_queue: &Arc<Self>, number: usize) -> bool {
        let mut waiters = wait_queue.waiters.lock();
        if wait_queue.wake_watchdog && !waiters.is_watched() {
            waiters.set_watched(wake_watchdog::watch(wait_queue));
        }
        let watched = waiters.is_watched();
        waiters.mark_unseen(number);
        wait_queue.notify(waiters, Width::Few(0));
        if watched {
            wait_queue.arm();
        }
        watched
    }

    /// Ends the wait of the subscriber of seat `number`. If it was notified, notifies the next waiters in its place.
    pub(super) fn cancel(&self, number: usize) {
        let mut waiters = self.waiters.lock();
        let (target, was_notified) = waiters.cancel(number);
        let width = Width::Few(if was_notified { CASCADE_WIDTH } else { 0 });
        self.notify(waiters, width);
        drop(target);
    }

    /// Removes the subscriber of seat `number`, which does not wait.
    pub(super) fn forget(&self, number: usize) {
        let mut waiters = self.waiters.lock();
        let forgotten = waiters.forget(number);
        self.notify(waiters, Width::Few(0));
        drop(forgotten);
    }

    /// Does one turn of the watchdog: notifies the waiters that have been due since its last turn, and those of
    /// [`WaitQueue::ask_watchdog`]. Returns whether another turn is needed.
    pub(crate) fn watchdog_turn(&self) -> bool {
        // Relaxed, pairs with `arm`: arming after this is seen at the next turn; what it was armed for is behind the
        // lock.
        if !self.armed.swap(false, ord!("armed.take", Relaxed)) {
            return false;
        }
        let mut waiters = self.waiters.lock();
        if waiters.has_unseen() {
            waiters.make_due();
        } else if !waiters.is_overdue() {
            let again = waiters.set_overdue();
            self.notify(waiters, Width::Few(0));
            if again {
                // Relaxed, pairs with `armed.see`: read only by the watchdog itself, at its next turn.
                self.armed.store(true, ord!("armed.keep", Relaxed));
            }
            return again;
        }
        self.notify(waiters, Width::All);
        true
    }

    /// Returns `true` if there are waiters to watch.
    pub(crate) fn is_armed(&self) -> bool {
        // Relaxed, pairs with `arm` by the watchdog's fences: the watchdog fences before it rests.
        self.armed.load(ord!("armed.see", Relaxed))
    }

    fn arm(&self) {
        // Relaxed, pairs with `armed.see` by the watchdog's fences: `kick` fences before it checks whether the watchdog
        // rests.
        if !self.armed.swap(true, ord!("arm", Relaxed)) {
            wake_watchdog::kick();
        }
    }

    fn publish_width(&self) -> Width {
        match self.wake {
            Wake::Cascade => Width::First,
            Wake::All => Width::All,
        }
    }

    /// Locks the list, or returns `None` after deferring `work` to the thread that holds the lock.
    fn try_lock_or_defer(&self, work: u8) -> Option<MutexGuard<'_, WaitList>> {
        self.waiters.try_lock().or_else(|| {
            // Release, pairs with `deferred.take`: a waiter that is notified for the deferred work sees what the work
            // is for.
            self.deferred.fetch_or(work, ord!("deferred.add", Release));
            // SeqCst fence, pairs with `deferred.fence`: this thread finds the list unlocked, or the holder of the lock
            // finds the deferred work.
            named_fence!("defer.fence");
            self.waiters.try_lock()
        })
    }

    /// Unlocks the list, notifies as many due waiters as `width` says, and does the work that was deferred meanwhile.
    ///
    /// Foreign code (wakers) runs only while the list is unlocked; if a waker panics, the next waiter is notified in its place.
    fn notify<'a>(&'a self, mut waiters: MutexGuard<'a, WaitList>, mut width: Width) {
        loop {
            match width {
                Width::All => self.notify_batch::<WAKE_ALL_WIDTH>(waiters, width),
                Width::First => self.notify_batch::<WAKE_WIDTH>(waiters, width),
                Width::Few(0) => self.notify_batch::<0>(waiters, width),
                Width::Few(_) => self.notify_batch::<CASCADE_WIDTH>(waiters, width),
            }
            // SeqCst fence, pairs with `defer.fence`: this thread finds the deferred work, or the thread that deferred
            // it finds the list unlocked.
            named_fence!("deferred.fence");
            // Relaxed, pairs with `deferred.add` through `deferred.fence`: the fence makes the answer count.
            // Fault, breaks the rule that the holder of the lock does the work that was deferred to it: deferred work
            // that is not done is a lost wake-up.
            if self.deferred.load(ord!("deferred.see", Relaxed)) == 0 || fault!("deferred.ignored") {
                return;
            }
            let Some(again) = self.waiters.try_lock() else {
                return;
            };
            waiters = again;
            // Acquire, pairs with `deferred.add`: a waiter that is notified for the deferred work sees what the work is
            // for.
            let work = self.deferred.swap(0, ord!("deferred.take", Acquire));
            if work & DEFERRED_WAKE != 0 {
                waiters.make_due();
            }
            width = match width {
                Width::All => Width::All,
                _ if matches!(self.wake, Wake::All) => Width::All,
                _ => Width::Few(CASCADE_WIDTH),
            };
        }
    }

    /// Takes up to `MOST` due waiters, unlocks the list and notifies them.
    fn notify_batch<const MOST: usize>(&self, mut waiters: MutexGuard<'_, WaitList>, width: Width) {
        let mut batch = WakeBatch::<MOST>::new();
        match width {
            Width::First => waiters.pop_first(WAKE_WIDTH, &mut batch),
            Width::Few(few) => waiters.pop_due(few, &mut batch),
            Width::All => waiters.pop_due(usize::MAX, &mut batch),
        }
        let leftover = waiters.has_due();
        self.set_flags(waiters.has_waiting(), leftover);
        waiters.set_notified(&batch);
        drop(waiters);
        if leftover {
            if matches!(width, Width::All) {
                self.defer_cascade();
            } else if self.wake_watchdog {
                self.arm();
            }
        }
        for target in batch.drain() {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target.wake())) {
                // Dropping the payload could panic again; a leak is the lesser evil.
                core::mem::forget(panic);
                self.defer_cascade();
            }
        }
    }

    /// Shows the state of the list to publishers and to notified waiters. Called under the lock.
    fn set_flags(&self, waiting: bool, due: bool) {
        let set = if waiting { WAITING } else { 0 } | if due { DUE } else { 0 };
        // Relaxed, pairs with `flags.add` by the list's lock: both bits change only under the lock.
        let current = self.flags.load(ord!("flags.current", Relaxed)) & (WAITING | DUE);
        let added = set & !current;
        let removed = current & !set;
        // Relaxed, pairs with `flags.glance`, `flags.see` and `flags.due`: `park.look` or the fences make it visible to
        // publishers, `notified.set` to the notified.
        if added != 0 {
            self.flags.fetch_or(added, ord!("flags.add", Relaxed));
        }
        if removed != 0 {
            self.flags.fetch_and(!removed, ord!("flags.remove", Relaxed));
        }
    }

    fn defer_cascade(&self) {
        // Relaxed, pairs with `deferred.see`, in the same thread or by the lock: done by this thread, or by the thread
        // that holds the lock when this one tries it.
        self.deferred.fetch_or(DEFERRED_CASCADE, ord!("deferred.own", Relaxed));
    }
}

impl fmt::Debug for WaitQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitQueue")
            .field("wake", &self.wake)
            .field("wake_watchdog", &self.wake_watchdog)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::WaitQueue;

    #[test]
    fn the_queue_fits_one_cache_line() {
        assert_eq!(size_of::<WaitQueue>(), 64);
    }
}
