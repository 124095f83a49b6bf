//! A bus over a `MemoryStore`, without a worker.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_core::future::BoxFuture;

use super::harness::SETTINGS;
use crate::bus::history_cache::{HistoryCache, HistorySource};
use crate::bus::hub::Hub;
use crate::bus::{BusEvent, BusSubscription, FleetEvent, OnSlow};
use crate::store::{MemoryStore, Page};

struct HistoryReader(MemoryStore);

impl HistorySource<FleetEvent> for HistoryReader {
    fn read(&self, key: Arc<str>, after: u64, limit: usize) -> BoxFuture<'static, Option<Page<FleetEvent>>> {
        let page = self.0.replay_now(&key, after, limit);
        Box::pin(std::future::ready(Some(page)))
    }
}

/// A store, a hub with small rings, and pages.
pub(super) struct Bus {
    pub(super) store: MemoryStore,
    pub(super) hub: Arc<Hub<FleetEvent>>,
    pages: Arc<HistoryCache<FleetEvent>>,
}

impl Bus {
    pub(super) fn new() -> Self {
        let store = MemoryStore::new();
        Self {
            hub: Arc::new(Hub::new(SETTINGS, Arc::default(), Box::new(|| {}))),
            pages: HistoryCache::new(Arc::new(HistoryReader(store.clone())), Duration::from_secs(10)),
            store,
        }
    }

    /// A subscription that has started.
    pub(super) fn subscribe(&self, key: &str, on_slow: OnSlow) -> BusSubscription {
        let attached = self.hub.attach_one(key).expect("the hub is open");
        let unstarted = self.hub.unstarted(1).into_iter();
        let heads: Vec<_> = unstarted
            .map(|stream| (stream, self.store.high_water_now(key)))
            .collect();
        self.hub.start(heads);
        BusSubscription::new(Arc::clone(&self.hub), Arc::clone(&self.pages), attached, None, on_slow)
    }

    /// A subscription to all streams of an empty store, which has started.
    pub(super) fn subscribe_all(&self) -> BusSubscription {
        let attached = self.hub.attach_all().expect("the hub is open");
        self.hub.set_baseline(Some(HashMap::new()));
        BusSubscription::new(
            Arc::clone(&self.hub),
            Arc::clone(&self.pages),
            attached,
            None,
            OnSlow::Replay,
        )
    }

    /// Appends so many events and delivers them.
    pub(super) fn append(&self, key: &str, events: u64) {
        for _ in 0..events {
            let event = self
                .store
                .append_now(FleetEvent::custom(key, "n", ""))
                .expect("the key is good");
            self.hub.announced(key, event.seq..=event.seq);
            self.read();
        }
    }

    fn read(&self) {
        for range in self.hub.take_reads(10) {
            let page = self.store.replay_now(&range.key, range.after, 100);
            self.hub.deliver(range, page, 100);
        }
    }

    /// The history up to the head is another one from `resume_after` on.
    pub(super) fn rewind(&self, key: &str, resume_after: u64, exact: bool) {
        let cursor = self
            .hub
            .cursors(true)
            .into_iter()
            .find(|cursor| *cursor.stream.key == *key)
            .expect("it is there");
        self.hub
            .rewind(&cursor.stream, resume_after, exact, self.store.high_water_now(key));
        self.read();
    }
}

/// Everything that is there.
pub(super) fn drain(subscription: &mut BusSubscription) -> Vec<BusEvent> {
    let mut cx = Context::from_waker(Waker::noop());
    std::iter::from_fn(|| match subscription.poll_recv(&mut cx) {
        Poll::Ready(item) => item,
        Poll::Pending => None,
    })
    .collect()
}
