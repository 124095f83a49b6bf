//! Settings of the role and the database, and limits on connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use doorbell::store::{PostgresStore, ReplayRange, Store as _, StoreError};
use sqlx::postgres::PgPoolOptions;
use throwaway_postgres::{Database, Server};

use crate::store_suite::event;

/// A migrated store over its own pool, and one over a pool of the caller, made after the settings.
async fn stores_with(settings: &[&str]) -> (Database, [PostgresStore; 2]) {
    let database = Database::fresh().unwrap();
    PostgresStore::connect(&database.url())
        .await
        .unwrap()
        .migrate()
        .await
        .unwrap();
    for setting in settings {
        let sql = format!("ALTER DATABASE \"{}\" SET {setting}", database.name());
        database.psql(&sql).unwrap();
    }
    let own = PostgresStore::connect(&database.url()).await.unwrap();
    let pool = PgPoolOptions::new()
        .max_connections(4)
        .connect(&database.url())
        .await
        .unwrap();
    (database, [own, PostgresStore::new(pool)])
}

/// Several tasks append to the same streams through both stores. No append may fail.
async fn append_concurrently(stores: &[PostgresStore; 2]) {
    let mut writers = Vec::new();
    for writer in 0..8 {
        let store = stores[writer % 2].clone();
        writers.push(tokio::spawn(async move {
            for number in 0..30 {
                store
                    .append(event(&format!("stream-{}", number % 2), "hello"))
                    .await
                    .unwrap();
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    for store in stores {
        let heads = store.heads(&["stream-0".into(), "stream-1".into()]).await.unwrap();
        assert_eq!((heads.streams[0].seq, heads.streams[1].seq), (120, 120));
        let page = store.replay("stream-0", 0, 1000).await.unwrap();
        assert!(page.records.iter().map(|record| record.seq).eq(1..=120));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p27_no_append_fails_where_transactions_are_serializable_by_default() {
    let (_database, stores) = stores_with(&["default_transaction_isolation = 'serializable'"]).await;
    append_concurrently(&stores).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p27_no_append_fails_where_transactions_are_read_only_by_default() {
    let (_database, stores) = stores_with(&["default_transaction_read_only = on"]).await;
    append_concurrently(&stores).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p27_index_scans_are_used_even_if_the_database_disables_them() {
    let (database, stores) = stores_with(&["enable_indexscan = off", "enable_indexonlyscan = off"]).await;
    append_concurrently(&stores).await;
    let plan = "SELECT idx_scan > 0 FROM pg_stat_user_tables WHERE relname = 'events'";
    testkit::within::eventually("the statistics of index scans", || database.psql(plan).unwrap() == "t").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p27_an_append_that_the_server_cancels_is_a_typed_error() {
    let (_database, [own, shared]) = stores_with(&["statement_timeout = '200ms'"]).await;
    let mut lock = own.pool().begin().await.unwrap();
    own.append_in(&mut lock, event("locked", "first")).await.unwrap();
    let refused = shared.append(event("locked", "second")).await;
    assert!(
        matches!(&refused, Err(error @ StoreError::Cancelled { .. }) if error.is_transient()),
        "{refused:?}"
    );
    lock.rollback().await.unwrap();
    shared.append(event("locked", "second")).await.unwrap();
}

/// A read takes 10 ms for each event that is asked for, so that parts of more than 19 are cancelled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p27_a_read_that_is_cancelled_is_repeated_in_parts_that_the_server_has_time_for() {
    let (database, stores) = stores_with(&["statement_timeout = '200ms'"]).await;
    for _ in 0..64 {
        stores[0].append(event("long", "hello")).await.unwrap();
    }
    stores[0].append(event("short", "hello")).await.unwrap();
    stores[0].trim("long", 3).await.unwrap();
    let slow = r"DO $$ BEGIN
        EXECUTE replace(pg_get_functiondef('doorbell.replay_many'::regproc),
            E'\nBEGIN\n', E'\nBEGIN\n    PERFORM pg_sleep(max_events * 0.01);\n');
    END $$";
    database.psql(slow).unwrap();
    for store in &stores {
        let page = store.replay("long", 0, 1000).await.unwrap();
        assert!(page.records.iter().map(|record| record.seq).eq(4..=64));
        assert_eq!(page.low_water, 3);
        let page = store.replay("long", 10, 30).await.unwrap();
        assert!(page.records.iter().map(|record| record.seq).eq(11..=40));
    }
    let ranges = [("long", 50), ("no such stream", 0), ("short", 0)].map(|(stream_key, after)| ReplayRange {
        stream_key: stream_key.into(),
        after,
    });
    let pages = stores[0].replay_many(&ranges, 40).await.unwrap();
    let lengths: Vec<_> = pages.iter().map(|page| (page.records.len(), page.low_water)).collect();
    assert_eq!(lengths, [(14, 3), (0, 0), (1, 0)]);
    // Not even one event in time.
    let stuck = "CREATE OR REPLACE FUNCTION doorbell.require_server(text, anyelement) RETURNS anyelement \
                 LANGUAGE sql AS 'SELECT pg_sleep(60); SELECT $2'";
    database.psql("DROP FUNCTION doorbell.require_server").unwrap();
    database.psql(stuck).unwrap();
    let refused = stores[0].replay("short", 0, 10).await;
    assert!(matches!(refused, Err(StoreError::Cancelled { .. })), "{refused:?}");
}

/// Appends of several tasks for a while; returns their number.
async fn appends_within(store: &PostgresStore, time: Duration) -> u64 {
    let begun = Instant::now();
    let count = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let mut writers = Vec::new();
    for writer in 0..8 {
        let (store, count) = (store.clone(), Arc::clone(&count));
        writers.push(tokio::spawn(async move {
            while begun.elapsed() < time {
                store.append(event(&format!("stream-{writer}"), "hello")).await.unwrap();
                count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    count.load(std::sync::atomic::Ordering::Relaxed)
}

/// The store's pool may have three connections, but the role only one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p28_appends_go_on_with_the_only_connection_that_the_role_may_have() {
    let server = Server::start().unwrap();
    server
        .psql("CREATE ROLE limited LOGIN CONNECTION LIMIT 1; CREATE DATABASE limited OWNER limited")
        .unwrap();
    let url = server.url_for("limited").replace("//postgres@", "//limited@");
    let store = PostgresStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let limited = appends_within(&store, Duration::from_secs(3)).await;
    assert!(limited > 600, "{limited} appends in 3 s");
    let reads = tokio::time::timeout(Duration::from_secs(1), store.high_water("stream-0"));
    assert!(reads.await.expect("a read waits for no other connection").unwrap() > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p33_a_full_disk_and_a_transaction_timeout_are_transient() {
    let (database, stores) = stores_with(&[]).await;
    for sqlstate in ["53100", "25P04"] {
        database
            .psql(&format!(
                "CREATE OR REPLACE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS \
                 'BEGIN RAISE EXCEPTION ''no room'' USING ERRCODE = ''{sqlstate}''; END'; \
                 CREATE TRIGGER refuse BEFORE INSERT ON doorbell.events FOR EACH ROW EXECUTE FUNCTION public.refuse()"
            ))
            .unwrap();
        for store in &stores {
            let refused = store.append(event("a", "hello")).await;
            assert!(
                matches!(&refused, Err(error @ StoreError::Unavailable { reason }) if error.is_transient() && reason.contains("no room")),
                "{refused:?}"
            );
        }
        database.psql("DROP TRIGGER refuse ON doorbell.events").unwrap();
    }
    append_concurrently(&stores).await;
}

/// Reads of a standby need no transaction that may write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p10_a_standby_is_read_whatever_the_defaults_and_refuses_appends() {
    let primary = Server::start().unwrap();
    primary
        .psql("ALTER DATABASE postgres SET default_transaction_read_only = on")
        .unwrap();
    let here = PostgresStore::connect(&primary.url()).await.unwrap();
    here.migrate().await.unwrap();
    here.append(event("a", "hello")).await.unwrap();
    let standby = primary.standby().unwrap();
    primary.wait_for_standby(&standby).unwrap();
    let own = PostgresStore::connect(&standby.url()).await.unwrap();
    let shared = PostgresStore::new(
        PgPoolOptions::new()
            .max_connections(2)
            .connect(&standby.url())
            .await
            .unwrap(),
    );
    let pooled = PostgresStore::builder()
        .transaction_pooler(true)
        .connect(&standby.url())
        .await
        .unwrap();
    for store in [own, shared, pooled] {
        for _ in 0..2 {
            assert_eq!(store.high_water("a").await.unwrap(), 1);
            let refused = store.append(event("a", "hello")).await;
            assert!(matches!(refused, Err(StoreError::ReadOnly)), "{refused:?}");
        }
    }
}
