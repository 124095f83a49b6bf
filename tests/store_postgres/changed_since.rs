//! Changes since a watermark: late commits, restarts, standbys, restored dumps, trimmed streams, pages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use doorbell::bus::FleetEvent;
use doorbell::store::{MemoryStore, PostgresStore, RecentRange, Store as _, Watermark};
use throwaway_postgres::{Server, Stop};

use crate::store_suite::{all_changes, event};
use crate::support::Store;

pub(crate) fn heads(pairs: &[(&str, u64)]) -> Vec<(String, u64)> {
    pairs.iter().map(|&(key, head)| (key.to_owned(), head)).collect()
}

/// P12: an event whose transaction was open when the watermark was taken is listed later, however old the transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_commits_late_is_listed() {
    let store = Store::fresh().await;
    let mut late = store.pool().begin().await.unwrap();
    store.append_in(&mut late, event("late", "1")).await.unwrap();
    for _ in 0..20 {
        store.append(event("busy", "x")).await.unwrap();
    }
    let (before, watermark, _) = all_changes(&*store, None, 100).await;
    assert_eq!(before, heads(&[("busy", 20)]));
    store.append(event("busy", "x")).await.unwrap();
    let (between, next, _) = all_changes(&*store, Some(&watermark), 100).await;
    assert_eq!(between, heads(&[("busy", 21)]));
    late.commit().await.unwrap();
    assert_eq!(all_changes(&*store, Some(&next), 100).await.0, heads(&[("late", 1)]));
    // Its transaction ID is lower, so it comes first.
    assert_eq!(
        all_changes(&*store, Some(&watermark), 1).await.0,
        heads(&[("late", 1), ("busy", 21)])
    );
}

/// An older transaction appends to a stream after a newer one, so the order of transaction IDs is not that of sequence numbers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_listed_once_although_an_older_transaction_appended_last() {
    let store = Store::fresh().await;
    store.psql("CREATE TABLE other (id int)");
    let mut old = store.pool().begin().await.unwrap();
    sqlx::query("INSERT INTO other VALUES (1)")
        .execute(&mut *old)
        .await
        .unwrap();
    store.append(event("a", "1")).await.unwrap();
    let watermark = all_changes(&*store, None, 10).await.1;
    store.append(event("a", "2")).await.unwrap();
    store.append_in(&mut old, event("a", "3")).await.unwrap();
    old.commit().await.unwrap();
    for limit in [1, 10] {
        assert_eq!(
            all_changes(&*store, Some(&watermark), limit).await.0,
            heads(&[("a", 3)])
        );
    }
}

/// A change between two pages is on a later page or after the last watermark, and no stream is listed twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_miss_no_concurrent_append() {
    let store = Store::fresh().await;
    let start = all_changes(&*store, None, 10).await.1;
    let batch: Vec<FleetEvent> = (0..30).map(|number| event(&format!("s{number:02}"), "x")).collect();
    store.append_batch(batch.clone()).await.unwrap();
    let mut listed = BTreeMap::new();
    let mut since = start;
    let mut pages = 0;
    loop {
        let page = store.changed_since(Some(&since), 7).await.unwrap().unwrap();
        for stream in page.streams {
            let previous = listed.insert(stream.stream_key.to_string(), stream.head.seq);
            assert_eq!(previous, None);
        }
        since = page.watermark;
        pages += 1;
        if !page.more {
            break;
        }
        store.append_batch(batch.clone()).await.unwrap();
        store.append(event("s-new", "x")).await.unwrap();
    }
    assert_eq!(pages, 5);
    let (later, _, _) = all_changes(&*store, Some(&since), 100).await;
    for (key, head) in later {
        let listed = listed.entry(key).or_default();
        *listed = head.max(*listed);
    }
    let expected = (0..30)
        .map(|number| (format!("s{number:02}"), 5))
        .chain([("s-new".to_owned(), 4)]);
    assert_eq!(listed, expected.collect());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_was_trimmed_since_is_listed() {
    let store = Store::fresh().await;
    for key in ["old", "half", "whole"] {
        store.append(event(key, "1")).await.unwrap();
    }
    store.trim("old", 1).await.unwrap();
    let watermark = all_changes(&*store, None, 10).await.1;
    for key in ["half", "whole"] {
        store
            .append_batch(vec![event(key, "2"), event(key, "3")])
            .await
            .unwrap();
    }
    store.trim("half", 2).await.unwrap();
    store.trim("whole", 3).await.unwrap();
    for limit in [1, 10] {
        let mut changed = all_changes(&*store, Some(&watermark), limit).await.0;
        changed.sort();
        assert_eq!(changed, heads(&[("half", 3), ("whole", 3)]));
        let (mut all, watermark, complete) = all_changes(&*store, None, limit).await;
        all.sort();
        assert_eq!(all, heads(&[("half", 3), ("old", 1), ("whole", 3)]));
        assert!(complete);
        assert!(all_changes(&*store, Some(&watermark), limit).await.0.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_all_streams_are_listed() {
    let server = Server::builder().durable().start().unwrap();
    let store = PostgresStore::connect(&server.url()).await.unwrap();
    store.migrate().await.unwrap();
    store.append(event("a", "1")).await.unwrap();
    let (_, watermark, _) = all_changes(&store, None, 10).await;
    server.restart(Stop::Immediate).unwrap();
    // A pooled connection that was used within the last second is not pinged, so its first use would fail.
    let store = PostgresStore::connect(&server.url()).await.unwrap();
    let (all, after, complete) = all_changes(&store, Some(&watermark), 10).await;
    assert_eq!((all, complete), (heads(&[("a", 1)]), true));
    store.append(event("b", "1")).await.unwrap();
    let (changed, _, complete) = all_changes(&store, Some(&after), 10).await;
    assert_eq!((changed, complete), (heads(&[("b", 1)]), false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_lists_all_streams_and_refuses_writes() {
    let primary = Server::start().unwrap();
    let store = PostgresStore::connect(&primary.url()).await.unwrap();
    store.migrate().await.unwrap();
    for key in ["a", "b", "c"] {
        store.append(event(key, "1")).await.unwrap();
    }
    let on_the_primary = all_changes(&store, None, 10).await.1;
    let standby = primary.standby().unwrap();
    let replica = PostgresStore::connect(&standby.url()).await.unwrap();
    replica.check_migrated().await.unwrap();
    // An open transaction on the primary, which snapshots of the standby do not list.
    let mut open = store.pool().begin().await.unwrap();
    store.append_in(&mut open, event("late", "1")).await.unwrap();
    store.append(event("a", "2")).await.unwrap();
    primary.wait_for_standby(&standby).unwrap();
    let mut since = Some(on_the_primary);
    for limit in [1, 10] {
        let (mut all, watermark, complete) = all_changes(&replica, since.as_ref(), limit).await;
        all.sort();
        assert_eq!((all, complete), (heads(&[("a", 2), ("b", 1), ("c", 1)]), true));
        since = Some(watermark);
    }
    open.commit().await.unwrap();
    primary.wait_for_standby(&standby).unwrap();
    let (all, watermark, complete) = all_changes(&replica, since.as_ref(), 10).await;
    assert_eq!((all.len(), complete), (4, true));
    let refused = replica.append(event("a", "3")).await;
    assert!(
        matches!(refused, Err(doorbell::store::StoreError::ReadOnly)),
        "{refused:?}"
    );
    assert!(matches!(
        replica.migrate().await,
        Err(doorbell::store::StoreError::ReadOnly)
    ));
    // After its promotion it has its own history.
    standby.promote().unwrap();
    let (_, watermark, complete) = all_changes(&replica, Some(&watermark), 10).await;
    assert!(complete);
    replica.append(event("a", "3")).await.unwrap();
    let (changed, _, complete) = all_changes(&replica, Some(&watermark), 10).await;
    assert_eq!((changed, complete), (heads(&[("a", 3)]), false));
}

/// A dump contains transaction IDs of the server that it was made on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_dump_lists_all_streams_until_it_is_migrated() {
    let (origin, target) = (Server::start().unwrap(), Server::start().unwrap());
    // The origin's transaction IDs are far ahead of the target's.
    origin
        .psql("DO $$ BEGIN FOR i IN 1..2000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$")
        .unwrap();
    let store = PostgresStore::connect(&origin.url()).await.unwrap();
    store.migrate().await.unwrap();
    for key in ["a", "b"] {
        store
            .append_batch(vec![event(key, "1"), event(key, "2")])
            .await
            .unwrap();
    }
    store.trim("b", 2).await.unwrap();
    let origin_watermark = all_changes(&store, None, 10).await.1;
    let dump = origin.dump("postgres").unwrap();
    target.restore("restored", &dump).unwrap();
    let restored = PostgresStore::connect(&target.url_for("restored")).await.unwrap();
    restored.check_migrated().await.unwrap();
    let mut since = origin_watermark;
    for _ in 0..2 {
        // Until the migration rebinds the tables, every call lists all streams.
        let (mut all, watermark, complete) = all_changes(&restored, Some(&since), 1).await;
        all.sort();
        assert_eq!((all, complete), (heads(&[("a", 2), ("b", 2)]), true));
        since = watermark;
    }
    restored.migrate().await.unwrap();
    let (mut all, watermark, complete) = all_changes(&restored, Some(&since), 1).await;
    all.sort();
    assert_eq!((all, complete), (heads(&[("a", 2), ("b", 2)]), true));
    assert!(all_changes(&restored, Some(&watermark), 1).await.0.is_empty());
    assert_eq!(restored.append(event("b", "3")).await.unwrap().seq, 3);
    let (changed, _, complete) = all_changes(&restored, Some(&watermark), 1).await;
    assert_eq!((changed, complete), (heads(&[("b", 3)]), false));
}

/// Ranges of streams with up to 100 events, of which those of the last `max_age` are recent, or those that the watermark did not show.
fn recent_ranges(keys: &[&str], watermark: Option<Watermark>, max_age: Duration) -> Vec<RecentRange> {
    let range = |key: &&str| RecentRange {
        stream_key: Arc::from(*key),
        after: 0,
        through: 100,
        watermark: watermark.clone(),
        max_age,
    };
    keys.iter().map(range).collect()
}

/// Which events are recent depends on when they were committed, not on when they were appended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_commits_late_is_recent_however_long_ago_it_was_appended() {
    const NEVER: Duration = Duration::ZERO;
    let store = Store::fresh().await;
    let mut late = store.pool().begin().await.unwrap();
    store.append_in(&mut late, event("late", "1")).await.unwrap();
    store
        .append_batch(vec![event("before", "1"), event("both", "1")])
        .await
        .unwrap();
    let heads = store.heads(&["late".into(), "both".into()]).await.unwrap();
    assert_eq!((heads.streams[0].seq, heads.streams[1].seq), (0, 1));
    let watermark = heads.watermark;
    assert!(watermark.is_some());
    store.append(event("both", "2")).await.unwrap();
    late.commit().await.unwrap();
    let keys = ["late", "before", "both", "no such stream"];
    let ranges = recent_ranges(&keys, watermark.clone(), NEVER);
    assert_eq!(
        store.first_recent(&ranges).await.unwrap(),
        [Some(1), None, Some(2), None]
    );
    // Not beyond the range, nor before it.
    let narrow: Vec<_> = [(1, 100), (2, 100), (0, 1)]
        .map(|(after, through)| RecentRange {
            after,
            through,
            ..ranges[2].clone()
        })
        .into();
    assert_eq!(store.first_recent(&narrow).await.unwrap(), [Some(2), None, None]);
    // Time decides where there is no watermark, or one of another store or server.
    let memory = MemoryStore::<FleetEvent>::new();
    let of_memory = memory.heads(&[]).await.unwrap().watermark;
    let of_server = watermark
        .unwrap()
        .as_str()
        .replace("history_identity\": \"", "history_identity\": \"other ");
    for meaningless in [None, of_memory, Some(Watermark::new(of_server))] {
        let all = recent_ranges(&keys, meaningless.clone(), Duration::from_secs(3600));
        assert_eq!(
            store.first_recent(&all).await.unwrap(),
            [Some(1), Some(1), Some(1), None]
        );
        let none = recent_ranges(&keys, meaningless, NEVER);
        assert_eq!(store.first_recent(&none).await.unwrap(), [None; 4]);
    }
    store.trim("both", 1).await.unwrap();
    let all = recent_ranges(&["both"], None, Duration::from_secs(3600));
    assert_eq!(store.first_recent(&all).await.unwrap(), [Some(2)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_standby_the_time_decides_which_events_are_recent() {
    let primary = Server::start().unwrap();
    let here = PostgresStore::connect(&primary.url()).await.unwrap();
    here.migrate().await.unwrap();
    here.append(event("a", "1")).await.unwrap();
    let watermark = here.heads(&[]).await.unwrap().watermark;
    let standby = primary.standby().unwrap();
    primary.wait_for_standby(&standby).unwrap();
    let there = PostgresStore::<FleetEvent>::connect(&standby.url()).await.unwrap();
    let heads = there.heads(&["a".into()]).await.unwrap();
    assert_eq!(
        (heads.streams[0].seq, heads.watermark, heads.is_standby),
        (1, None, true)
    );
    for (max_age, recent) in [(Duration::ZERO, None), (Duration::from_secs(3600), Some(1))] {
        let ranges = recent_ranges(&["a"], watermark.clone(), max_age);
        assert_eq!(there.first_recent(&ranges).await.unwrap(), [recent]);
    }
}
