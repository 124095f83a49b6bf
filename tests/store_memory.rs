//! The memory store and a minimal store against the common suite, and what is specific to the memory store.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use doorbell::bus::{FleetEvent, StreamEvent};
use doorbell::store::{MemoryRetention, MemoryStore, Page, RecentRange, Store, StoreError, Watermark};
use futures::executor::block_on;

#[allow(dead_code, reason = "each test binary uses a part")]
mod store_suite;
use store_suite::{Abilities, all_changes, event};

fn retention(per_stream: usize, total: usize) -> MemoryRetention {
    let number = |number| NonZeroUsize::new(number).unwrap();
    MemoryRetention {
        per_stream: number(per_stream),
        total: number(total),
    }
}

#[test]
fn memory_store_passes_the_common_suite() {
    let abilities = Abilities {
        atomic_batches: true,
        checks_keys: true,
        tracks_history: true,
    };
    block_on(store_suite::run(
        async || Arc::new(MemoryStore::new()) as Arc<dyn Store>,
        abilities,
    ));
}

#[test]
fn every_event_has_the_id_of_the_one_before() {
    let store = MemoryStore::<FleetEvent>::new();
    let trim = async |key: &str, through| {
        store.trim_now(key, through);
    };
    block_on(store_suite::chain(Arc::new(store.clone()), trim));
}

/// Implements only the required methods, like the example of the trait.
#[derive(Default)]
struct MinimalStore(Mutex<BTreeMap<String, Vec<FleetEvent>>>);

#[async_trait::async_trait]
impl Store for MinimalStore {
    async fn append(&self, event: FleetEvent) -> Result<FleetEvent, StoreError> {
        let mut streams = self.0.lock().unwrap();
        let stream = streams.entry(event.stream_key().to_owned()).or_default();
        let expected = stream.len() as u64 + 1;
        if event.seq() != 0 && event.seq() != expected {
            let stream_key = event.stream_key().to_owned();
            return Err(StoreError::SeqConflict {
                stream_key,
                expected,
                actual: event.seq(),
            });
        }
        stream.push(event.with_seq(expected));
        Ok(stream.last().unwrap().clone())
    }

    async fn replay(&self, stream_key: &str, after: u64, limit: usize) -> Result<Page<FleetEvent>, StoreError> {
        let streams = self.0.lock().unwrap();
        let stream = streams.get(stream_key).map_or(&[][..], |stream| stream);
        let after = usize::try_from(after).unwrap_or(usize::MAX);
        Ok(Page::from_events(
            stream.iter().skip(after).take(limit).cloned().collect(),
        ))
    }

    async fn high_water(&self, stream_key: &str) -> Result<u64, StoreError> {
        Ok(self
            .0
            .lock()
            .unwrap()
            .get(stream_key)
            .map_or(0, |stream| stream.len() as u64))
    }
}

#[test]
fn a_minimal_store_passes_the_common_suite() {
    let abilities = Abilities {
        atomic_batches: false,
        checks_keys: false,
        tracks_history: false,
    };
    block_on(store_suite::run(
        async || Arc::new(MinimalStore::default()) as Arc<dyn Store>,
        abilities,
    ));
}

#[test]
fn each_stream_keeps_its_newest_events() {
    let store = MemoryStore::<FleetEvent>::with_retention(retention(3, 100));
    for number in 1..=10 {
        store.append_now(event("a", &number.to_string())).unwrap();
        store.append_now(event(&format!("other-{number}"), "x")).unwrap();
    }
    let page = store.replay_now("a", 0, 100);
    assert_eq!(page.low_water, 7);
    assert_eq!(
        page.records.iter().map(|record| record.seq).collect::<Vec<_>>(),
        [8, 9, 10]
    );
    assert_eq!(store.replay_now("a", 8, 1).records[0].seq, 9);
    assert_eq!((store.len(), store.stream_count()), (13, 11));
    assert_eq!(store.append_now(event("a", "11").with_seq(11)).unwrap().seq(), 11);
}

#[test]
fn the_total_limit_removes_the_oldest_events_first() {
    let store = MemoryStore::<FleetEvent>::with_retention(retention(100, 4));
    for stream_key in ["a", "a", "b", "c", "a", "d"] {
        store.append_now(event(stream_key, "x")).unwrap();
    }
    let read = |key| {
        let page = store.replay_now(key, 0, 100);
        (
            page.low_water,
            page.records.iter().map(|record| record.seq).collect::<Vec<_>>(),
        )
    };
    assert_eq!(
        [read("a"), read("b"), read("c"), read("d")],
        [(2, vec![3]), (0, vec![1]), (0, vec![1]), (0, vec![1])]
    );
    store.append_now(event("e", "x")).unwrap();
    assert_eq!(read("b"), (1, vec![]));
    assert_eq!(
        store.append_now(event("b", "x")).unwrap().seq(),
        2,
        "numbering continues"
    );
}

#[test]
fn trimming_keeps_numbering_and_limits_correct() {
    let store = MemoryStore::<FleetEvent>::with_retention(retention(100, 5));
    for _ in 0..5 {
        store.append_now(event("a", "x")).unwrap();
    }
    assert_eq!(store.trim_now("a", 2), 2);
    assert_eq!(store.trim_now("a", 1), 0);
    assert_eq!(store.trim_now("missing", 1), 0);
    assert_eq!(store.replay_now("a", 0, 10).low_water, 2);
    assert_eq!(store.trim_now("a", u64::MAX), 3);
    assert_eq!((store.len(), store.high_water_now("a")), (0, 5));
    for _ in 0..5 {
        store.append_now(event("b", "x")).unwrap();
    }
    assert_eq!(store.len(), 5, "trimmed events do not count");
    let watermark = block_on(all_changes(&store, None, 10)).1;
    assert_eq!(store.append_now(event("a", "x")).unwrap().seq(), 6);
    let changed = block_on(all_changes(&store, Some(&watermark), 10)).0;
    assert_eq!(changed, [("a".to_owned(), 6)]);
}

#[test]
fn a_watermark_of_another_store_lists_all_streams() {
    let (one, other) = (MemoryStore::new(), MemoryStore::new());
    other.append_now(event("a", "x")).unwrap();
    one.append_now(event("b", "x")).unwrap();
    let watermark = block_on(all_changes(&one, None, 10)).1;
    for foreign in [
        watermark.as_str(),
        "",
        "garbage",
        "0:0:0:0:0",
        ":::::",
        "ffffffffffffffffffff:1:1:1:1",
    ] {
        let foreign = doorbell::store::Watermark::new(foreign);
        let (heads, _, complete) = block_on(all_changes(&other, Some(&foreign), 10));
        assert_eq!(heads, [("a".to_owned(), 1)]);
        assert!(complete);
    }
}

#[test]
fn concurrent_writers_get_consecutive_numbers() {
    let store = MemoryStore::new();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let store = store.clone();
            scope.spawn(move || {
                let mut last = 0;
                for number in 0..500 {
                    let text = format!("{writer}:{number}");
                    let stamped = if number % 10 == 0 {
                        store
                            .append_batch_now(vec![event("a", &text), event("b", &text)])
                            .unwrap()
                            .swap_remove(0)
                    } else {
                        store.append_now(event("a", &text)).unwrap()
                    };
                    assert!(stamped.seq() > last);
                    last = stamped.seq();
                }
            });
        }
    });
    let events = block_on(store_suite::read_all(&store, "a", 0, 333));
    assert_eq!(events.len(), 2000);
    assert_eq!(store.high_water_now("b"), 200);
}

/// Events may call the store when they are cloned or dropped.
#[test]
fn event_code_that_calls_the_store_does_not_deadlock() {
    use std::sync::OnceLock;

    use serde::{Deserialize, Serialize};

    static STORE: OnceLock<MemoryStore<Reentrant>> = OnceLock::new();

    #[derive(Serialize, Deserialize)]
    struct Reentrant(u64);

    fn call_store() {
        if let Some(store) = STORE.get() {
            let _ = store.len();
        }
    }

    impl Clone for Reentrant {
        fn clone(&self) -> Self {
            call_store();
            Self(self.0)
        }
    }

    impl Drop for Reentrant {
        fn drop(&mut self) {
            call_store();
        }
    }

    impl StreamEvent for Reentrant {
        fn stream_key(&self) -> &str {
            call_store();
            "reentrant"
        }
        fn seq(&self) -> u64 {
            call_store();
            self.0
        }
        fn with_seq(mut self, seq: u64) -> Self {
            call_store();
            self.0 = seq;
            self
        }
    }

    let store = STORE.get_or_init(|| MemoryStore::with_retention(retention(2, 3)));
    for _ in 0..5 {
        store.append_now(Reentrant(0)).unwrap();
        store.append_batch_now(vec![Reentrant(0), Reentrant(0)]).unwrap();
    }
    assert!(store.append_now(Reentrant(3)).is_err());
    assert_eq!(store.replay_now("reentrant", 0, 10).records.len(), 2);
    assert_eq!(store.trim_now("reentrant", 15), 2);
}

proptest::proptest! {
    #[test]
    fn memory_store_behaves_like_the_model(ops in store_suite::model::ops()) {
        let store = MemoryStore::new();
        let trim = async |key: &str, through| store.trim_now(key, through);
        block_on(store_suite::model::run(&store, trim, "run", ops));
    }
}

#[test]
fn events_that_a_watermark_did_not_show_are_recent() {
    let store = MemoryStore::<FleetEvent>::new();
    store.append_now(event("a", "1")).unwrap();
    let watermark = block_on(store.heads(&["a".into()])).unwrap().watermark;
    let range = |watermark: Option<Watermark>, after| RecentRange {
        stream_key: "a".into(),
        after,
        through: 2,
        watermark,
        max_age: Duration::from_secs(3600),
    };
    let first_recent = |range| block_on(store.first_recent(&[range])).unwrap();
    assert_eq!(first_recent(range(watermark.clone(), 0)), [None]);
    assert_eq!(first_recent(range(None, 0)), [Some(1)]);
    for text in ["2", "3"] {
        store.append_now(event("a", text)).unwrap();
    }
    assert_eq!(first_recent(range(watermark.clone(), 0)), [Some(2)]);
    store.trim_now("a", 2);
    assert_eq!(first_recent(range(watermark, 0)), [None], "3 is not in the range");
}
