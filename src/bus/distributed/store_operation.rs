//! The operations of the bus on its store. The health keeps their failures apart: that one succeeds says nothing about another.

use std::fmt;
use std::sync::Arc;

use super::health::HealthTracker;
use crate::store::StoreError;

/// A kind of operation of the bus on its store.
///
/// ```
/// use doorbell::bus::StoreOperation;
///
/// assert_eq!(StoreOperation::Sweep.to_string(), "the sweep");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum StoreOperation {
    /// Starts new subscriptions, at the numbers that the store returns. While it fails, new subscriptions do not become ready.
    Start,
    /// Reads the events that notifications and sweeps have named. While it fails, no new events of other processes arrive.
    Read,
    /// Searches for events whose notification was lost, and for a replaced history. While it fails, such events do not arrive, and after
    /// a reconnect none do.
    Sweep,
    /// Reads the history of a stream for subscriptions that are behind. While it fails, those subscriptions do not advance.
    History,
    /// Appends events through the bus. While it fails, the bus is [`ReadOnly`](super::BusState::ReadOnly).
    Append,
}

impl fmt::Display for StoreOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "the start of subscriptions",
            Self::Read => "the read of new events",
            Self::Sweep => "the sweep",
            Self::History => "the read of history",
            Self::Append => "the append",
        })
    }
}

/// Reports to the health whether an operation succeeds. Its failure lasts until it succeeds or is no longer due: when this is dropped,
/// at the latest.
pub(super) struct OperationReport {
    health: Arc<HealthTracker>,
    operation: StoreOperation,
    id: u64,
    is_failing: bool,
}

impl OperationReport {
    /// `id` distinguishes it from all others.
    pub(super) fn new(health: Arc<HealthTracker>, operation: StoreOperation, id: u64) -> Self {
        Self {
            health,
            operation,
            id,
            is_failing: false,
        }
    }

    /// The store has done all that was asked.
    pub(super) fn succeeded(&mut self) {
        self.is_failing = false;
        self.health.store_answered(self.id);
    }

    /// The operation failed and will be repeated.
    pub(super) fn failed(&mut self, error: StoreError) {
        self.is_failing = true;
        self.health.store_failed(self.id, self.operation, error);
    }

    /// There is nothing to ask for, so nothing fails.
    pub(super) fn not_due(&mut self) {
        if std::mem::take(&mut self.is_failing) {
            self.health.store_not_asked(self.id);
        }
    }
}

impl Drop for OperationReport {
    fn drop(&mut self) {
        self.not_due();
    }
}
