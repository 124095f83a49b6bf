//! A bus over a `MemoryStore`, whose reads are done by the test.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_core::future::BoxFuture;

use super::harness::SETTINGS;
use crate::bus::history_cache::{HistoryCache, HistorySource};
use crate::bus::hub::Hub;
use crate::bus::{BusEvent, BusSubscription, FleetEvent, OnSlow};
use crate::store::{MemoryStore, Page, StreamHead};

struct HistoryReader(MemoryStore);

impl HistorySource<FleetEvent> for HistoryReader {
    fn read(&self, key: Arc<str>, after: u64, limit: usize, _: u32) -> BoxFuture<'static, Option<Page<FleetEvent>>> {
        let page = self.0.replay_now(&key, after, limit);
        Box::pin(std::future::ready(Some(page)))
    }
}

/// A store, a hub with small rings, and a history cache.
pub(super) struct Bus {
    pub(super) store: MemoryStore,
    pub(super) hub: Arc<Hub<FleetEvent>>,
    history: Arc<HistoryCache<FleetEvent>>,
}

impl Bus {
    pub(super) fn new() -> Self {
        let store = MemoryStore::new();
        Self {
            hub: Arc::new(Hub::new(SETTINGS, Arc::default(), Box::new(|_| {}))),
            history: HistoryCache::new(Arc::new(HistoryReader(store.clone())), Duration::from_secs(10)),
            store,
        }
    }

    /// Subscribes to a stream. The subscription has started.
    pub(super) fn subscribe(&self, key: &str, on_slow: OnSlow) -> BusSubscription {
        let attached = self.hub.attach_one(key, None).expect("the hub is open");
        let unstarted = self.hub.unstarted(1).into_iter();
        let head = StreamHead {
            seq: self.store.high_water_now(key),
            id: None,
        };
        let heads: Vec<_> = unstarted.map(|stream| (stream, head)).collect();
        self.hub.signal(self.hub.start(heads));
        BusSubscription::new(
            Arc::clone(&self.hub),
            Arc::clone(&self.history),
            attached,
            None,
            on_slow,
        )
    }

    /// Subscribes to all streams of an empty store. The subscription has started.
    pub(super) fn subscribe_all(&self) -> BusSubscription {
        let attached = self.hub.attach_all().expect("the hub is open");
        self.hub.signal(self.hub.set_baseline(Some(HashMap::new())));
        BusSubscription::new(
            Arc::clone(&self.hub),
            Arc::clone(&self.history),
            attached,
            None,
            OnSlow::Replay,
        )
    }

    /// Subscribes to a stream, or to all streams of an empty store, with another source of history. The subscription has started.
    pub(super) fn subscribe_with_history(&self, all: bool, source: impl HistorySource<FleetEvent>) -> BusSubscription {
        let other = Self {
            store: self.store.clone(),
            hub: Arc::clone(&self.hub),
            history: HistoryCache::new(Arc::new(source), Duration::from_secs(10)),
        };
        if all {
            other.subscribe_all()
        } else {
            other.subscribe("stream:0", OnSlow::Replay)
        }
    }

    /// Appends events and delivers them.
    pub(super) fn append(&self, key: &str, events: u64) {
        for _ in 0..events {
            let event = self
                .store
                .append_now(FleetEvent::custom(key, "n", ""))
                .expect("the key is valid");
            self.hub.on_notification(key, event.seq..=event.seq);
            self.read();
        }
    }

    pub(super) fn read(&self) {
        for check in self.hub.take_late_checks(10) {
            self.hub.decide_late(&check, self.store.first_recent_now(&check.range));
        }
        for read in self.hub.take_reads(10, |_| true) {
            let page = self.store.replay_now(&read.key, read.after, 100);
            self.hub.deliver(read, page, 100);
        }
    }

    /// Replaces the history after `resume_after`.
    pub(super) fn rewind(&self, key: &str, resume_after: u64, exact: bool) {
        let cursor = self
            .hub
            .cursors(true)
            .into_iter()
            .find(|cursor| *cursor.stream.key == *key)
            .expect("the stream has subscriptions");
        self.hub
            .rewind(&cursor.stream, at(resume_after), exact, self.store.high_water_now(key));
        self.read();
    }
}

/// An event without an id.
pub(super) fn at(seq: u64) -> StreamHead {
    StreamHead { seq, id: None }
}

/// Receives all items that are ready.
pub(super) fn drain(subscription: &mut BusSubscription) -> Vec<BusEvent> {
    let mut cx = Context::from_waker(Waker::noop());
    std::iter::from_fn(|| match subscription.poll_recv(&mut cx) {
        Poll::Ready(item) => item,
        Poll::Pending => None,
    })
    .collect()
}
