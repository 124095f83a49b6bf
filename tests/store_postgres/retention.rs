//! Retention: low-water marks, continued numbering, bounded transactions, concurrent reads and appends.

use std::time::Duration;

use doorbell::bus::StreamEvent;
use doorbell::store::{Store as _, StoreError};

use crate::store_suite::{event, high_waters, read_all};
use crate::support::Store;

/// Appends `count` events to a stream with one statement.
fn append_many(store: &Store, stream_key: &str, count: u32) {
    store.psql(&format!(
        "SELECT cardinality(doorbell.append_many(array_fill('{stream_key}'::text, array[{count}]), \
         array_fill('{{\"agent_id\": \"{stream_key}\", \"type\": \"agent_connected\"}}'::jsonb, array[{count}])))"
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trimming_raises_the_low_water_mark_and_the_numbering_continues() {
    let store = Store::fresh().await;
    append_many(&store, "a", 2_500);
    append_many(&store, "b", 3);
    assert_eq!(
        store.trim("a", 2_400).await.unwrap(),
        2_400,
        "in transactions of a thousand"
    );
    assert_eq!(store.trim("a", 2_000).await.unwrap(), 0);
    assert_eq!(store.trim("missing", 7).await.unwrap(), 0);
    for after in [0, 5, 2_400] {
        let page = store.replay("a", after, 10).await.unwrap();
        assert_eq!((page.low_water, page.records[0].seq), (2_400, 2_401));
    }
    assert_eq!(store.trim("a", u64::MAX).await.unwrap(), 100);
    let page = store.replay("a", 0, 10).await.unwrap();
    assert_eq!((page.low_water, page.records.len()), (2_500, 0));
    assert_eq!(high_waters(&*store, &["a".into(), "b".into()]).await, [2_500, 3]);
    let conflict = store.append(event("a", "x").with_seq(1)).await;
    assert!(
        matches!(conflict, Err(StoreError::SeqConflict { expected: 2_501, .. })),
        "{conflict:?}"
    );
    assert_eq!(
        store
            .append_batch(vec![event("a", "x"), event("a", "y")])
            .await
            .unwrap()[1]
            .seq,
        2_502
    );
    assert!(matches!(store.trim("", 1).await, Err(StoreError::InvalidStreamKey(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_event_has_the_id_of_the_one_before() {
    let store = Store::fresh().await;
    let trim = async |key: &str, through| {
        store.trim(key, through).await.unwrap();
    };
    crate::store_suite::chain(std::sync::Arc::new((*store).clone()), trim).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keep_last_keeps_the_last_events_of_every_stream() {
    let store = Store::fresh().await;
    for (key, count) in [("a", 1_205), ("b", 5), ("c", 4), ("d", 1)] {
        append_many(&store, key, count);
    }
    assert_eq!(store.keep_last(u64::MAX).await.unwrap(), 0);
    assert_eq!(store.keep_last(4).await.unwrap(), 1_201 + 1);
    assert_eq!(store.keep_last(4).await.unwrap(), 0);
    let lengths = ["a", "b", "c", "d"].map(|key| {
        store.psql(&format!(
            "SELECT count(*) FROM doorbell.events WHERE stream_key = '{key}'"
        ))
    });
    assert_eq!(lengths, ["4", "4", "4", "1"]);
    assert_eq!(store.keep_last(0).await.unwrap(), 13);
    assert_eq!(store.append(event("a", "x")).await.unwrap().seq, 1_206);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trim_older_than_stops_at_the_first_younger_event() {
    let store = Store::fresh().await;
    let hour = Duration::from_secs(3_600);
    for key in ["old", "both", "young", "clock"] {
        append_many(&store, key, 1_200);
    }
    // In the stream "clock", event 3 is younger than its successors, as if the clock had been set back.
    store.psql(
        "UPDATE doorbell.events SET appended_at = now() - interval '2 hours'
         WHERE stream_key = 'old' OR stream_key = 'both' AND seq <= 1100 OR stream_key = 'clock' AND seq <> 3",
    );
    assert_eq!(store.trim_older_than(Duration::MAX).await.unwrap(), 0);
    assert_eq!(store.trim_older_than(hour).await.unwrap(), 1_200 + 1_100 + 2);
    let mut low_waters = Vec::new();
    for key in ["old", "both", "young", "clock"] {
        low_waters.push(store.replay(key, 0, 1).await.unwrap().low_water);
    }
    assert_eq!(low_waters, [1_200, 1_100, 0, 2]);
    assert_eq!(store.trim_older_than(hour).await.unwrap(), 0);
}

/// Readers see a stream without gaps above its low-water mark, and appends continue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trimming_disturbs_neither_appends_nor_reads() {
    let store = Store::fresh().await;
    let writer = tokio::spawn({
        let store = (*store).clone();
        async move {
            for number in 1..=300 {
                assert_eq!(store.append(event("a", "x")).await.unwrap().seq(), number);
            }
        }
    });
    let trimmer = tokio::spawn({
        let store = (*store).clone();
        async move {
            let mut removed = 0;
            while removed < 290 {
                removed += store.keep_last(10).await.unwrap();
            }
            removed
        }
    });
    let mut after = 0;
    while after < 300 {
        let page = store.replay("a", after, 7).await.unwrap();
        for record in &page.records {
            assert_eq!(record.seq, after.max(page.low_water) + 1);
            after = record.seq;
        }
    }
    writer.await.unwrap();
    assert_eq!(trimmer.await.unwrap(), 290);
    assert_eq!(read_all(&*store, "a", 290, 100).await.len(), 10);
}
