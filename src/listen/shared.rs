//! What the handles, the subscriptions and the owner of the connection share.

use std::time::SystemTime;

use parking_lot::Mutex;

use super::channels::Channels;
use super::stats::ListenStats;

pub(super) struct SharedListener {
    pub(super) channels: Channels,
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

    pub(super) fn received(&self) {
        self.counters.lock().last_received = Some(SystemTime::now());
    }

    pub(super) fn last_received(&self) -> Option<SystemTime> {
        self.counters.lock().last_received
    }

    pub(super) fn stats(&self) -> ListenStats {
        let counted = self.counters.lock().stats;
        let (channels, subscriptions) = self.channels.size();
        ListenStats {
            channels,
            subscriptions,
            ..counted
        }
    }
}
