//! What the handles, the subscriptions and the owner of the connection share.

use std::time::SystemTime;

use parking_lot::Mutex;

use super::registry::Registry;
use super::stats::ListenStats;

pub(super) struct Shared {
    pub(super) registry: Registry,
    counters: Mutex<Counters>,
}

#[derive(Clone, Copy, Default)]
struct Counters {
    stats: ListenStats,
    last_heard: Option<SystemTime>,
}

impl Shared {
    pub(super) fn new(registry: Registry) -> Self {
        Self {
            registry,
            counters: Mutex::default(),
        }
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut ListenStats)) {
        change(&mut self.counters.lock().stats);
    }

    pub(super) fn lagged(&self, skipped: u64) {
        self.count(|stats| {
            stats.lags += 1;
            stats.lost_to_lag = stats.lost_to_lag.saturating_add(skipped);
        });
    }

    pub(super) fn heard(&self) {
        self.counters.lock().last_heard = Some(SystemTime::now());
    }

    pub(super) fn last_heard(&self) -> Option<SystemTime> {
        self.counters.lock().last_heard
    }

    pub(super) fn stats(&self) -> ListenStats {
        let counted = self.counters.lock().stats;
        let (channels, subscriptions) = self.registry.size();
        ListenStats {
            channels,
            subscriptions,
            ..counted
        }
    }
}
