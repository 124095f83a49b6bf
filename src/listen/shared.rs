//! The state shared by the handles, the subscriptions and the worker.

use std::time::SystemTime;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::channels::Channels;
use super::stats::ListenStats;

pub(super) struct SharedListener {
    pub(super) channels: Channels,
    /// New connections lead to another primary than the session's.
    pub(super) superseded: Notify,
    counters: Mutex<Counters>,
}

#[derive(Clone, Copy, Default)]
struct Counters {
    stats: ListenStats,
    last_received: Option<SystemTime>,
}

impl SharedListener {
    pub(super) fn new(channels: Channels) -> Self {
        Self {
            channels,
            superseded: Notify::new(),
            counters: Mutex::default(),
        }
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut ListenStats)) {
        change(&mut self.counters.lock().stats);
    }

    pub(super) fn record_lag(&self, skipped: u64) {
        self.count(|stats| {
            stats.lags += 1;
            stats.items_skipped = stats.items_skipped.saturating_add(skipped);
        });
    }

    pub(super) fn record_received(&self) {
        self.counters.lock().last_received = Some(SystemTime::now());
    }

    pub(super) fn last_received(&self) -> Option<SystemTime> {
        self.counters.lock().last_received
    }

    pub(super) fn stats(&self) -> ListenStats {
        let counted = self.counters.lock().stats;
        let (channels, subscriptions) = self.channels.count();
        ListenStats {
            channels,
            subscriptions,
            ..counted
        }
    }
}
