//! Who waits, and who wakes them.
//!
//! Every subscriber has at most one wait at a time, so the waiters are a table of one node per seat. A node is
//!
//! | state | meaning | left by |
//! |---|---|---|
//! | idle | does not wait | its owner, which registers |
//! | listed, waiting | waits for the next publication | a publication, which makes all of them due at once; its owner, which cancels |
//! | listed, due | there is something for it, and it has not been told | whoever notifies it; its owner, which cancels |
//! | notified | told, and has not run since | its owner, which runs, cancels or is dropped, and then hands on |
//!
//! A publication makes the waiting due in constant time and notifies a few. Each of these, when it runs (or is dropped), notifies
//! the next few, and so on: the work of waking is spread over the woken. Should they be stuck, the *ringer* thread notifies the
//! rest (`super::wake_watchdog`).
//!
//! The table is behind a lock that publishers only try. One that fails leaves a debt, which the holder pays after it has unlocked.

use core::fmt;
use core::task::Waker;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crossbeam_utils::CachePadded;

use super::builder::Wake;
use super::wait_list::{WaitList, WakeBatch};
use crate::sync::thread::Thread;
use crate::sync::wake_watchdog;
use crate::sync::{
    Arc, AtomicBool, AtomicU8, CASCADE_WIDTH, Mutex, MutexGuard, WAKE_ALL_WIDTH, WAKE_WIDTH, fault, named_fence, ord,
};

/// Somebody waits for the next publication.
const WAITING: u8 = 1;
/// Somebody is due.
const DUE: u8 = 2;
/// Overflow cells may have expired.
const PURGE: u8 = 4;
/// Publishers must fence before they look for waiters: never taken back.
const FENCE: u8 = 8;

/// A publication found the table locked.
const OWED_WAKE: u8 = 1;
/// Somebody must hand on.
const OWED_CASCADE: u8 = 2;

/// Whom to tell.
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

/// Tells the owner of a node, without the lock, that it has been notified.
#[derive(Debug)]
pub(super) struct NotifiedFlag(AtomicBool);

impl NotifiedFlag {
    pub(super) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Has the owner been notified since it registered?
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

/// The bell of one ring.
pub(crate) struct WaitQueue {
    /// What a publisher looks at: a map of [`WAITING`] and [`DUE`], which change under the lock, and of [`PURGE`] and [`FENCE`].
    flags: CachePadded<AtomicU8>,
    waiters: Mutex<WaitList>,
    /// Debts of those who found the table locked: a map of [`OWED_WAKE`] and [`OWED_CASCADE`].
    owed: AtomicU8,
    /// The ringer has something to look after here.
    armed: AtomicBool,
    wake: Wake,
    wake_watchdog: bool,
}

/// How many to notify at once.
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
            flags: CachePadded::new(AtomicU8::new(if wake_watchdog { 0 } else { FENCE })),
            waiters: Mutex::new(WaitList::new()),
            owed: AtomicU8::new(0),
            armed: AtomicBool::new(false),
            wake,
            wake_watchdog,
        }
    }

    /// Is there anything that a publisher must see to after its publication?
    #[inline(always)]
    pub(super) fn wants_attention(&self) -> bool {
        // Relaxed, pairs with `flags.add` through `park.look` and `claim`: the claim has acquired the flag of every
        // waiter that may rely on this load; the other waiters are seen after a fence.
        self.flags.load(ord!("flags.glance", Relaxed)) != 0
    }

    /// Rings if somebody waits or is due.
    pub(super) fn wake_if_needed(&self) {
        // Relaxed, pairs with `flags.add` through `park.fence` or `park.look`: the caller has fenced, or has acquired
        // the flag with its claim.
        if self.flags.load(ord!("flags.see", Relaxed)) & (WAITING | DUE) != 0 {
            self.wake_waiters();
        }
    }

    /// Asks the next publisher to free expired overflow cells.
    pub(super) fn ask_purge(&self) {
        // Relaxed, pairs with `purge.see` and `purge.take`: a request only; what it concerns has orderings of its own.
        self.flags.fetch_or(PURGE, ord!("purge.ask", Relaxed));
    }

    /// Takes up the request of [`WaitQueue::ask_purge`], if there is one.
    #[inline]
    pub(super) fn take_purge_request(&self) -> bool {
        // Relaxed, pairs with `purge.ask`: a request only; what it concerns has orderings of its own.
        self.flags.load(ord!("purge.see", Relaxed)) & PURGE != 0
            && self.flags.fetch_and(!PURGE, ord!("purge.take", Relaxed)) & PURGE != 0
    }

    /// Something was published: makes everybody due and notifies the first.
    #[cold]
    #[inline(never)]
    pub(super) fn wake_waiters(&self) {
        if let Some(mut waiters) = self.try_lock_or_owe(OWED_WAKE) {
            waiters.make_due();
            self.notify(waiters, self.publish_width());
        }
    }

    /// A notified waiter runs or goes: notifies the next.
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
        if let Some(waiters) = self.try_lock_or_owe(OWED_CASCADE) {
            self.notify(waiters, Width::Few(CASCADE_WIDTH));
        }
    }

    /// No publisher is left: notifies everybody, and lets nobody register any more.
    pub(super) fn close(&self) {
        let mut waiters = self.waiters.lock();
        waiters.close();
        waiters.make_due();
        self.notify(waiters, Width::All);
    }

    /// Registers the owner of seat `number` to be told by `target`, or replaces its target. False when the channel is closed.
    ///
    /// The caller then looks once more whether there is something to receive, as `wait` explains.
    pub(super) fn register(
        wait_queue: &Arc<Self>,
        number: usize,
        notified: &Arc<NotifiedFlag>,
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
        // A notice that the owner has not seen must be handed on all the same.
        wait_queue.notify(waiters, Width::Few(if was_notified { CASCADE_WIDTH } else { 0 }));
        drop(replaced);
        true
    }

    /// Is the owner of seat `number` listed to be told by this very waker?
    pub(super) fn keeps(&self, number: usize, waker: &Waker) -> bool {
        let waiters = self.waiters.lock();
        let keeps = waiters.keeps(number, waker);
        self.notify(waiters, Width::Few(0));
        keeps
    }

    /// The owner of seat `number` waits for a publication that may not look for it. False when there is no ringer to ask.
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

    /// The owner of seat `number` waits no longer. Whoever it should have notified is notified.
    pub(super) fn cancel(&self, number: usize) {
        let mut waiters = self.waiters.lock();
        let (target, was_notified) = waiters.cancel(number);
        let width = Width::Few(if was_notified { CASCADE_WIDTH } else { 0 });
        self.notify(waiters, width);
        drop(target);
    }

    /// The owner of seat `number` is gone for good, and does not wait.
    pub(super) fn forget(&self, number: usize) {
        let mut waiters = self.waiters.lock();
        let forgotten = waiters.forget(number);
        self.notify(waiters, Width::Few(0));
        drop(forgotten);
    }

    /// The ringer's turn: notifies those who have been due since its last turn, and those it was asked to. True to come again.
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

    /// Does the ringer have something to look after here?
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

    /// The table, or `None` after leaving a debt with whoever holds it.
    fn try_lock_or_owe(&self, debt: u8) -> Option<MutexGuard<'_, WaitList>> {
        self.waiters.try_lock().or_else(|| {
            // Release, pairs with `deferred.take`: a waiter that is notified for the deferred work sees what the work
            // is for.
            self.owed.fetch_or(debt, ord!("deferred.add", Release));
            // SeqCst fence, pairs with `deferred.fence`: this thread finds the list unlocked, or the holder of the lock
            // finds the deferred work.
            named_fence!("defer.fence");
            self.waiters.try_lock()
        })
    }

    /// Ends a hold of the table: notifies as many of the due as `width` says, and pays the debts that arose meanwhile.
    ///
    /// Foreign code (wakers) runs only while the table is unlocked; if it panics, the next waiter is notified in its place.
    fn notify<'a>(&'a self, mut waiters: MutexGuard<'a, WaitList>, mut width: Width) {
        loop {
            match width {
                Width::All => self.tell::<WAKE_ALL_WIDTH>(waiters, width),
                Width::First | Width::Few(_) => self.tell::<CASCADE_WIDTH>(waiters, width),
            }
            // SeqCst fence, pairs with `defer.fence`: this thread finds the deferred work, or the thread that deferred
            // it finds the list unlocked.
            named_fence!("deferred.fence");
            // Relaxed, pairs with `deferred.add` through `deferred.fence`: the fence makes the answer count.
            // Fault, breaks the rule that the holder of the lock does the work that was deferred to it: deferred work
            // that nobody does is a lost wake-up.
            if self.owed.load(ord!("deferred.see", Relaxed)) == 0 || fault!("deferred.ignored") {
                return;
            }
            let Some(again) = self.waiters.try_lock() else {
                return;
            };
            waiters = again;
            // Acquire, pairs with `deferred.add`: a waiter that is notified for the deferred work sees what the work is
            // for.
            let debts = self.owed.swap(0, ord!("deferred.take", Acquire));
            if debts & OWED_WAKE != 0 {
                waiters.make_due();
            }
            width = match width {
                Width::All => Width::All,
                _ if matches!(self.wake, Wake::All) => Width::All,
                _ => Width::Few(CASCADE_WIDTH),
            };
        }
    }

    /// Notifies up to `MOST` of the due, and unlocks in between.
    fn tell<const MOST: usize>(&self, mut waiters: MutexGuard<'_, WaitList>, width: Width) {
        let mut told = WakeBatch::<MOST>::new();
        match width {
            Width::First => waiters.pop_first(WAKE_WIDTH, &mut told),
            Width::Few(few) => waiters.pop_due(few, &mut told),
            Width::All => waiters.pop_due(usize::MAX, &mut told),
        }
        let leftover = waiters.has_due();
        self.set_flags(waiters.has_waiting(), leftover);
        waiters.set_notified(&told);
        drop(waiters);
        if leftover {
            if matches!(width, Width::All) {
                self.owe_cascade();
            } else if self.wake_watchdog {
                self.arm();
            }
        }
        for target in told.drain() {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target.wake())) {
                // Dropping the payload could panic again; a leak is the lesser evil.
                core::mem::forget(panic);
                self.owe_cascade();
            }
        }
    }

    /// Shows publishers and the notified how the table stands. Under the lock.
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

    fn owe_cascade(&self) {
        // Relaxed, pairs with `deferred.see`, in the same thread or by the lock: done by this thread, or by the thread
        // that holds the lock when this one tries it.
        self.owed.fetch_or(OWED_CASCADE, ord!("deferred.own", Relaxed));
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
