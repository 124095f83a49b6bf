//! How the tasks of the bus wake each other, and whether the history has to be checked before anything is delivered.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

#[derive(Default)]
pub(super) struct Wakeups {
    pub(super) reader: Notify,
    pub(super) isolated_reader: Notify,
    /// The reader has delivered everything that it could read.
    pub(super) reader_idle: Notify,
    pub(super) subscription_start: Notify,
    pub(super) sweeper: Notify,
    /// How often the connection was lost or made since the start. Each time the server may be another one.
    checks_requested: AtomicU64,
    /// The value of `checks_requested` for which the history was checked.
    checks_done: AtomicU64,
}

impl Wakeups {
    /// Holds back delivery until the sweeper has checked that the history is the one that was delivered.
    pub(super) fn request_history_check(&self) {
        self.checks_requested.fetch_add(1, Ordering::Release); // pairs with the load in `checks_requested`
        self.sweeper.notify_one();
    }

    pub(super) fn checks_requested(&self) -> u64 {
        self.checks_requested.load(Ordering::Acquire) // pairs with the increment
    }

    /// The history was checked. `requested` is the value of [`checks_requested`](Self::checks_requested) before the check.
    pub(super) fn history_checked(&self, requested: u64) {
        self.checks_done.store(requested, Ordering::Release); // pairs with the load below
        self.reader.notify_one();
        self.isolated_reader.notify_one();
    }

    /// Whether the store may hold another history than the one that was delivered.
    pub(super) fn needs_history_check(&self) -> bool {
        self.checks_done.load(Ordering::Acquire) != self.checks_requested() // pairs with the store above
    }
}
