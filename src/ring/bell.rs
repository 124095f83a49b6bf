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
//! rest (`crate::ringer`).
//!
//! The table is behind a lock that publishers only try. One that fails leaves a debt, which the holder pays after it has unlocked.

use core::fmt;
use core::task::Waker;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crossbeam_utils::CachePadded;

use super::builder::Wake;
use super::waiters::{Told, Waiters};
use crate::ringer;
use crate::sync::thread::Thread;
use crate::sync::{
    Arc, AtomicBool, AtomicU8, HAND_ON_WIDTH, Mutex, MutexGuard, WAKE_ALL_WIDTH, WAKE_WIDTH, fault, named_fence, ord,
};

/// Somebody waits for the next publication.
const WAITING: u8 = 1;
/// Somebody is due.
const DUE: u8 = 2;
/// Overflow cells may have expired.
const TIDY: u8 = 4;
/// Publishers must fence before they look for waiters: never taken back.
const FENCE: u8 = 8;

/// A publication found the table locked.
const OWED_RING: u8 = 1;
/// Somebody must hand on.
const OWED_HAND_ON: u8 = 2;

/// Whom to tell.
pub(super) enum Wakee {
    Task(Waker),
    Thread(Thread),
}

impl Wakee {
    pub(super) fn wake(self) {
        match self {
            Self::Task(waker) => waker.wake(),
            Self::Thread(thread) => thread.unpark(),
        }
    }
}

/// Tells the owner of a node, without the lock, that it has been notified.
#[derive(Debug)]
pub(super) struct Notice(AtomicBool);

impl Notice {
    pub(super) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Has the owner been notified since it registered?
    pub(super) fn is_given(&self) -> bool {
        // Acquire: pairs with `notice.give`: what made the owner due is visible.
        self.0.load(ord!("notice.see", Acquire))
    }

    pub(super) fn give(&self) {
        // Release: pairs with `notice.see`.
        self.0.store(true, ord!("notice.give", Release));
    }

    pub(super) fn take_back(&self) {
        // Relaxed: under the lock, like every `give`.
        self.0.store(false, ord!("notice.take_back", Relaxed));
    }
}

/// The bell of one ring.
pub(crate) struct Bell {
    /// What a publisher looks at: a map of [`WAITING`] and [`DUE`], which change under the lock, and of [`TIDY`] and [`FENCE`].
    flags: CachePadded<AtomicU8>,
    waiters: Mutex<Waiters>,
    /// Debts of those who found the table locked: a map of [`OWED_RING`] and [`OWED_HAND_ON`].
    owed: AtomicU8,
    /// The ringer has something to look after here.
    armed: AtomicBool,
    wake: Wake,
    backstop: bool,
}

/// How many to notify at once.
#[derive(Clone, Copy)]
enum Width {
    /// One task, or a few threads.
    First,
    Few(usize),
    All,
}

impl Bell {
    pub(super) fn new(wake: Wake, backstop: bool) -> Self {
        Self {
            flags: CachePadded::new(AtomicU8::new(if backstop { 0 } else { FENCE })),
            waiters: Mutex::new(Waiters::new()),
            owed: AtomicU8::new(0),
            armed: AtomicBool::new(false),
            wake,
            backstop,
        }
    }

    /// Is there anything that a publisher must see to after its publication?
    #[inline(always)]
    pub(super) fn wants_attention(&self) -> bool {
        // Relaxed: see `Core::finish`.
        self.flags.load(ord!("flags.glance", Relaxed)) != 0
    }

    /// Rings if somebody waits or is due.
    pub(super) fn ring_if_needed(&self) {
        // Relaxed: the caller has fenced, or has acquired the flag with its claim.
        if self.flags.load(ord!("flags.see", Relaxed)) & (WAITING | DUE) != 0 {
            self.ring();
        }
    }

    /// Asks the next publisher to free expired overflow cells.
    pub(super) fn ask_tidy(&self) {
        // Relaxed: a request, whose matter is ordered by itself.
        self.flags.fetch_or(TIDY, ord!("tidy.ask", Relaxed));
    }

    /// Takes up the request of [`Bell::ask_tidy`], if there is one.
    #[inline]
    pub(super) fn take_tidy(&self) -> bool {
        // Relaxed, both: as `tidy.ask`.
        self.flags.load(ord!("tidy.see", Relaxed)) & TIDY != 0
            && self.flags.fetch_and(!TIDY, ord!("tidy.take", Relaxed)) & TIDY != 0
    }

    /// Something was published: makes everybody due and notifies the first.
    #[cold]
    #[inline(never)]
    pub(super) fn ring(&self) {
        if let Some(mut waiters) = self.try_lock_or_owe(OWED_RING) {
            waiters.make_due();
            self.notify(waiters, self.ring_width());
        }
    }

    /// A notified waiter runs or goes: notifies the next.
    #[inline]
    pub(super) fn hand_on(&self) {
        // Relaxed: whoever notified the caller stored the flags before it gave the notice (`notice.give`).
        if self.flags.load(ord!("flags.due", Relaxed)) & DUE != 0 && !fault!("hand_on.skipped") {
            self.hand_on_now();
        }
    }

    #[cold]
    fn hand_on_now(&self) {
        if let Some(waiters) = self.try_lock_or_owe(OWED_HAND_ON) {
            self.notify(waiters, Width::Few(HAND_ON_WIDTH));
        }
    }

    /// No publisher is left: notifies everybody, and lets nobody register any more.
    pub(super) fn close(&self) {
        let mut waiters = self.waiters.lock();
        waiters.close();
        waiters.make_due();
        self.notify(waiters, Width::All);
    }

    /// Registers the owner of seat `number` to be told by `wakee`, or replaces its wakee. False when the channel is closed.
    ///
    /// The caller then looks once more whether there is something to receive, as `wait` explains.
    pub(super) fn register(bell: &Arc<Self>, number: usize, notice: &Arc<Notice>, wakee: Wakee) -> bool {
        let mut waiters = bell.waiters.lock();
        let (replaced, was_notified) = match waiters.register(number, notice, wakee) {
            Ok(registered) => registered,
            Err(refused) => {
                bell.notify(waiters, Width::Few(0));
                drop(refused);
                return false;
            }
        };
        if bell.backstop && matches!(bell.wake, Wake::HandOn) && waiters.needs_watch() {
            waiters.set_watched(ringer::watch(bell));
        }
        // A notice that the owner has not seen must be handed on all the same.
        bell.notify(waiters, Width::Few(if was_notified { HAND_ON_WIDTH } else { 0 }));
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
    pub(super) fn ask_ringer(bell: &Arc<Self>, number: usize) -> bool {
        let mut waiters = bell.waiters.lock();
        if bell.backstop && !waiters.is_watched() {
            waiters.set_watched(ringer::watch(bell));
        }
        let watched = waiters.is_watched();
        waiters.mark_unheard(number);
        bell.notify(waiters, Width::Few(0));
        if watched {
            bell.arm();
        }
        watched
    }

    /// The owner of seat `number` waits no longer. Whoever it should have notified is notified.
    pub(super) fn cancel(&self, number: usize) {
        let mut waiters = self.waiters.lock();
        let (wakee, was_notified) = waiters.cancel(number);
        let width = Width::Few(if was_notified { HAND_ON_WIDTH } else { 0 });
        self.notify(waiters, width);
        drop(wakee);
    }

    /// The owner of seat `number` is gone for good, and does not wait.
    pub(super) fn forget(&self, number: usize) {
        let mut waiters = self.waiters.lock();
        let forgotten = waiters.forget(number);
        self.notify(waiters, Width::Few(0));
        drop(forgotten);
    }

    /// The ringer's turn: notifies those who have been due since its last turn, and those it was asked to. True to come again.
    pub(crate) fn turn_of_ringer(&self) -> bool {
        // Relaxed: whoever arms after this will be seen at the next turn; what it armed for is behind the lock.
        if !self.armed.swap(false, ord!("armed.take", Relaxed)) {
            return false;
        }
        let mut waiters = self.waiters.lock();
        if waiters.has_unheard() {
            waiters.make_due();
        } else if !waiters.is_overdue() {
            let again = waiters.set_overdue();
            self.notify(waiters, Width::Few(0));
            if again {
                self.armed.store(true, ord!("armed.keep", Relaxed));
            }
            return again;
        }
        self.notify(waiters, Width::All);
        true
    }

    /// Does the ringer have something to look after here?
    pub(crate) fn is_armed(&self) -> bool {
        // Relaxed: the ringer fences before it rests.
        self.armed.load(ord!("armed.see", Relaxed))
    }

    fn arm(&self) {
        // Relaxed: `kick` fences before it looks whether the ringer rests.
        if !self.armed.swap(true, ord!("arm", Relaxed)) {
            ringer::kick();
        }
    }

    fn ring_width(&self) -> Width {
        match self.wake {
            Wake::HandOn => Width::First,
            Wake::All => Width::All,
        }
    }

    /// The table, or `None` after leaving a debt with whoever holds it.
    fn try_lock_or_owe(&self, debt: u8) -> Option<MutexGuard<'_, Waiters>> {
        self.waiters.try_lock().or_else(|| {
            // Release: pairs with `owed.take`: who is notified for the debt sees what it is for.
            self.owed.fetch_or(debt, ord!("owed.add", Release));
            // SeqCst: pairs with `owed.fence`: this thread finds the table unlocked, or the holder finds the debt.
            named_fence!("owe.fence");
            self.waiters.try_lock()
        })
    }

    /// Ends a hold of the table: notifies as many of the due as `width` says, and pays the debts that arose meanwhile.
    ///
    /// Foreign code (wakers) runs only while the table is unlocked; if it panics, the next waiter is notified in its place.
    fn notify<'a>(&'a self, mut waiters: MutexGuard<'a, Waiters>, mut width: Width) {
        loop {
            match width {
                Width::All => self.tell::<WAKE_ALL_WIDTH>(waiters, width),
                Width::First | Width::Few(_) => self.tell::<HAND_ON_WIDTH>(waiters, width),
            }
            // SeqCst: pairs with `owe.fence`.
            named_fence!("owed.fence");
            // Relaxed: the fence is what makes the answer count.
            if self.owed.load(ord!("owed.see", Relaxed)) == 0 || fault!("owed.ignored") {
                return;
            }
            let Some(again) = self.waiters.try_lock() else {
                return;
            };
            waiters = again;
            // Acquire: pairs with `owed.add`.
            let debts = self.owed.swap(0, ord!("owed.take", Acquire));
            if debts & OWED_RING != 0 {
                waiters.make_due();
            }
            width = match width {
                Width::All => Width::All,
                _ if matches!(self.wake, Wake::All) => Width::All,
                _ => Width::Few(HAND_ON_WIDTH),
            };
        }
    }

    /// Notifies up to `MOST` of the due, and unlocks in between.
    fn tell<const MOST: usize>(&self, mut waiters: MutexGuard<'_, Waiters>, width: Width) {
        let mut told = Told::<MOST>::new();
        match width {
            Width::First => waiters.pop_first(WAKE_WIDTH, &mut told),
            Width::Few(few) => waiters.pop_due(few, &mut told),
            Width::All => waiters.pop_due(usize::MAX, &mut told),
        }
        let leftover = waiters.has_due();
        self.set_flags(waiters.has_waiting(), leftover);
        waiters.give_notice(&told);
        drop(waiters);
        if leftover {
            if matches!(width, Width::All) {
                self.owe_hand_on();
            } else if self.backstop {
                self.arm();
            }
        }
        for wakee in told.drain() {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| wakee.wake())) {
                // Dropping the payload could panic again; a leak is the lesser evil.
                core::mem::forget(panic);
                self.owe_hand_on();
            }
        }
    }

    /// Shows publishers and the notified how the table stands. Under the lock.
    fn set_flags(&self, waiting: bool, due: bool) {
        let set = if waiting { WAITING } else { 0 } | if due { DUE } else { 0 };
        // Relaxed: both bits change under the lock only.
        let current = self.flags.load(ord!("flags.current", Relaxed)) & (WAITING | DUE);
        let added = set & !current;
        let removed = current & !set;
        // Relaxed, both: made visible to publishers by `park.look` or the fences, to the notified by `notice.give`.
        if added != 0 {
            self.flags.fetch_or(added, ord!("flags.add", Relaxed));
        }
        if removed != 0 {
            self.flags.fetch_and(!removed, ord!("flags.remove", Relaxed));
        }
    }

    fn owe_hand_on(&self) {
        // Relaxed: paid by this thread, or by whoever holds the table when it tries.
        self.owed.fetch_or(OWED_HAND_ON, ord!("owed.own", Relaxed));
    }
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bell")
            .field("wake", &self.wake)
            .field("backstop", &self.backstop)
            .finish_non_exhaustive()
    }
}
