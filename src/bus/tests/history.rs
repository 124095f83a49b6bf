//! The history cache: pages are shared while they are fresh, and removed events become gaps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::FutureExt as _;

use crate::bus::history_cache::{HistoryCache, HistorySource};
use crate::bus::hub::{Hub, HubSettings};
use crate::bus::{BusEvent, EventBus as _, FleetEvent, Gap, LocalBus};
use crate::store::{MemoryStore, Page};

#[derive(Default)]
struct CountingSource {
    store: MemoryStore,
    reads: AtomicU64,
}

impl HistorySource<FleetEvent> for Arc<CountingSource> {
    fn read(&self, key: Arc<str>, after: u64, limit: usize, _: u32) -> BoxFuture<'static, Option<Page<FleetEvent>>> {
        self.reads.fetch_add(1, Ordering::Relaxed); // relaxed: one thread
        let page = self.store.replay_now(&key, after, limit);
        Box::pin(std::future::ready(Some(page)))
    }
}

/// Returns the number of store reads for two requests of the same page, one after the other.
fn reads_for_two_requests(keep_for: Duration) -> u64 {
    let source = Arc::new(CountingSource::default());
    for text in ["one", "two"] {
        let appended = source.store.append_now(FleetEvent::custom("agent-1", "note", text));
        appended.expect("the key is valid");
    }
    let settings = HubSettings {
        stream_capacity: 4,
        all_capacity: 4,
        pending_streams: 4,
    };
    let hub = Hub::<FleetEvent>::new(settings, Arc::default(), Box::new(|_| {}));
    let stream = hub.attach_one("agent-1", None).expect("the hub is open").stream;
    let stream = stream.expect("the subscription is to one stream");
    let cache = HistoryCache::new(Arc::new(Arc::clone(&source)), keep_for);
    for _ in 0..2 {
        let page = cache.page_after(&stream, 0, u64::MAX, 0).now_or_never().flatten();
        assert_eq!(page.map(|page| page.records.len()), Some(2));
    }
    source.reads.load(Ordering::Relaxed) // relaxed: as above
}

#[test]
fn a_fresh_page_is_served_from_the_cache() {
    assert_eq!(reads_for_two_requests(Duration::from_secs(3600)), 1);
}

#[test]
fn an_expired_page_is_read_again() {
    assert_eq!(reads_for_two_requests(Duration::ZERO), 2);
    assert_eq!(reads_for_two_requests(Duration::from_nanos(1)), 2);
}

#[test]
fn cached_events_that_were_trimmed_become_a_gap() {
    let bus = LocalBus::new();
    for n in 1..=5 {
        bus.publish(FleetEvent::custom("agent-1", "note", n.to_string()));
    }
    let next = |subscription: &mut crate::bus::BusSubscription| subscription.recv().now_or_never().flatten();
    let mut early = bus.subscribe_from("agent-1", 0);
    assert!(matches!(next(&mut early), Some(BusEvent::Event(event)) if event.seq == 1));

    assert_eq!(bus.store().trim_now("agent-1", 3), 3);
    let mut late = bus.subscribe_from("agent-1", 0);
    let gap = Gap {
        stream_key: "agent-1".into(),
        seqs: 1..=3,
    };
    assert_eq!(next(&mut late), Some(BusEvent::Gap(gap)));
    assert!(matches!(next(&mut late), Some(BusEvent::Event(event)) if event.seq == 4));
}
