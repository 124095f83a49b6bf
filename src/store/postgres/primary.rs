//! Which server the store's connections must lead to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::pg::backoff::full_jitter;

/// The maximum delay before an error after every connection has led to a standby. Its mean is half of it.
const MAX_DELAY: Duration = Duration::from_millis(320);

const FIRST_DELAY: Duration = Duration::from_millis(10);

/// What the store knows about the server behind its connections.
#[derive(Default)]
pub(super) struct Primary {
    /// The start time of the server that each bus listens on, the latest last. If there is none, any server may answer.
    expected: Mutex<Vec<(u64, Arc<str>)>>,
    /// Statements in a row that no server could run, because each was a standby.
    failures: AtomicU32,
    /// Whether a default of the role or the database makes transactions read-only.
    explicit_transactions: AtomicBool,
}

impl Primary {
    pub(super) fn expected(&self) -> Option<Arc<str>> {
        let expected = self.expected.lock();
        expected.last().map(|(_, server)| Arc::clone(server))
    }

    pub(super) fn expect(&self, bus: u64, server: Option<&str>) {
        let mut expected = self.expected.lock();
        expected.retain(|(other, _)| *other != bus);
        expected.extend(server.map(|server| (bus, server.into())));
    }

    /// Any server may answer until a bus listens on another one than this.
    pub(super) fn forget(&self, server: Option<&str>) {
        let Some(server) = server else { return };
        let mut expected = self.expected.lock();
        let before = expected.len();
        expected.retain(|(_, other)| **other != *server);
        if expected.len() < before {
            drop(expected);
            tracing::warn!("the store's new connections lead to another primary than the listening connection");
        }
    }

    /// A server has run a statement.
    pub(super) fn reached(&self) {
        // Relaxed: a delay that is too long or too short does no harm.
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Waits before an error is returned, so that callers that retry at once do not reconnect at once.
    pub(super) async fn back_off(&self) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed); // as above
        tokio::time::sleep(full_jitter(FIRST_DELAY, MAX_DELAY, failures, fastrand::f64())).await;
    }

    pub(super) fn needs_explicit_transactions(&self) -> bool {
        self.explicit_transactions.load(Ordering::Relaxed) // a flag on its own
    }

    pub(super) fn use_explicit_transactions(&self) {
        self.explicit_transactions.store(true, Ordering::Relaxed); // a flag on its own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bus_that_ends_leaves_the_server_of_the_others() {
        let primary = Primary::default();
        let expected = || primary.expected();
        primary.expect(1, Some("old"));
        primary.expect(2, Some("old"));
        primary.expect(1, None);
        assert_eq!(expected().as_deref(), Some("old"));
        primary.expect(3, Some("new"));
        assert_eq!(expected().as_deref(), Some("new"), "the latest decides");
        primary.forget(Some("old"));
        primary.expect(3, None);
        assert_eq!(expected(), None);
    }
}
