//! The thread that wakes due waiters whose predecessors are stuck. There is one per process, started when a ring first needs it.
//!
//! It checks only *armed* wait queues, once every [`TURN`], and parks without a time limit when none is armed, so an idle process
//! pays nothing for it. It notifies a waiter that has been due for two turns, that is, at most about two turns plus the
//! scheduler's delay after a publication.

use std::sync::OnceLock;
use std::thread::Thread;
use std::time::Duration;

use crate::ring::WaitQueue;
use crate::sync::{Arc, AtomicBool, Mutex, Ordering, Weak, downgrade, fence};

/// The time between two turns.
const TURN: Duration = Duration::from_millis(1);

/// Turns without work before the thread rests.
const IDLE_TURNS: u32 = 20;

struct Watchdog {
    wait_queues: Mutex<Vec<Weak<WaitQueue>>>,
    /// The thread is about to park without a time limit, or has.
    resting: AtomicBool,
    thread: OnceLock<Thread>,
}

static WATCHDOG: OnceLock<Option<&'static Watchdog>> = OnceLock::new();

/// Watches `wait_queue` from now on, for as long as it exists. Returns `false` if the thread could not be started.
pub(crate) fn watch(wait_queue: &Arc<WaitQueue>) -> bool {
    let Some(watchdog) = *WATCHDOG.get_or_init(start) else {
        return false;
    };
    let mut wait_queues = watchdog.wait_queues.lock();
    wait_queues.retain(|wait_queue| wait_queue.strong_count() != 0);
    wait_queues.push(downgrade(wait_queue));
    true
}

/// Ends the watchdog's rest, because a wait queue was armed.
pub(crate) fn kick() {
    if let Some(Some(watchdog)) = WATCHDOG.get() {
        // SeqCst: pairs with the fence in `rest`: this thread sees the rest, or the watchdog sees the armed wait queue.
        fence(Ordering::SeqCst);
        // Relaxed: the fence makes the answer count.
        if watchdog.resting.load(Ordering::Relaxed)
            && let Some(thread) = watchdog.thread.get()
        {
            thread.unpark();
        }
    }
}

fn start() -> Option<&'static Watchdog> {
    let watchdog: &'static Watchdog = Box::leak(Box::new(Watchdog {
        wait_queues: Mutex::new(Vec::new()),
        resting: AtomicBool::new(false),
        thread: OnceLock::new(),
    }));
    let handle = std::thread::Builder::new()
        .name("doorbell-watchdog".into())
        .spawn(move || watchdog.run())
        .ok()?;
    watchdog.thread.get_or_init(|| handle.thread().clone());
    Some(watchdog)
}

impl Watchdog {
    fn run(&self) {
        self.thread.get_or_init(std::thread::current);
        let mut idle_turns = 0;
        let mut armed = Vec::new();
        loop {
            self.find_armed(&mut armed);
            let mut busy = false;
            for wait_queue in armed.drain(..) {
                busy |= wait_queue.watchdog_turn();
            }
            if busy {
                idle_turns = 0;
            } else {
                idle_turns += 1;
            }
            if idle_turns < IDLE_TURNS {
                std::thread::park_timeout(TURN);
            } else {
                self.rest(&mut armed);
                idle_turns = 0;
            }
        }
    }

    fn find_armed(&self, armed: &mut Vec<Arc<WaitQueue>>) {
        let wait_queues = self.wait_queues.lock();
        armed.extend(
            wait_queues
                .iter()
                .filter_map(Weak::upgrade)
                .filter(|wait_queue| wait_queue.is_armed()),
        );
    }

    fn rest(&self, armed: &mut Vec<Arc<WaitQueue>>) {
        // Relaxed: the fence orders it.
        self.resting.store(true, Ordering::Relaxed);
        // SeqCst: pairs with the fence in `kick`.
        fence(Ordering::SeqCst);
        self.find_armed(armed);
        if armed.is_empty() {
            std::thread::park();
        }
        armed.clear();
        // Relaxed: a kick that still sees the rest unparks the thread once more than needed.
        self.resting.store(false, Ordering::Relaxed);
    }
}
