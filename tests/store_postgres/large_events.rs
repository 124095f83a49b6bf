//! Events that are large, or whose text is: no event is appended that cannot be read, and no read is larger than a server or a link allows.

use std::time::Duration;

use doorbell::bus::FleetEvent;
use doorbell::store::{PostgresStore, ReplayRange, Store as _, StoreError};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;
use testkit::within::{eventually, within};
use throwaway_postgres::{Database, Server};

use crate::store_suite::event;
use crate::support::Store;

/// 81 kB of JSON, and more than 1 GB as the server writes it.
const BOMB: &str = r#"('{"extra":[' || repeat('1e131071,', 9000) || '1]}')::jsonb"#;

/// 12 MB of characters that take six bytes each in JSON.
const ESCAPES: &str = "jsonb_build_object('data', repeat(chr(1), 12000000))";

fn ranges(streams: &[(&str, u64)]) -> Vec<ReplayRange> {
    let range = |&(stream_key, after): &(&str, u64)| ReplayRange {
        stream_key: stream_key.into(),
        after,
    };
    streams.iter().map(range).collect()
}

fn is_encode_of<T>(stream: &str, result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Encode { stream_key, .. }) if stream_key == stream)
}

/// The size is the text's, whatever is stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p45_an_event_whose_text_is_too_large_is_not_appended() {
    let store = Store::fresh().await;
    for payload in [BOMB, ESCAPES] {
        // A value that comes from a table is compressed.
        for call in [
            format!("append('large', {payload})"),
            format!("append_many(array['small', 'large'], array['{{}}', {payload}])"),
            "append('large', p) FROM (SELECT p FROM public.stored) AS s (p)".to_owned(),
        ] {
            let stored =
                format!("DROP TABLE IF EXISTS public.stored; CREATE TABLE public.stored AS SELECT {payload} AS p");
            let refused = store.database.psql(&format!("{stored}; SELECT doorbell.{call}"));
            let message = refused.unwrap_err().to_string();
            assert!(message.contains("more than 64 MiB"), "{message}");
        }
    }
    let large = || event("large", &"x".repeat(65 << 20));
    assert!(is_encode_of("large", &store.append(large()).await));
    assert!(is_encode_of(
        "large",
        &store.append_batch(vec![event("small", "1"), large()]).await
    ));
    assert_eq!(store.append(event("large", &"x".repeat(4 << 20))).await.unwrap().seq, 1);
    assert_eq!(store.high_water("small").await.unwrap(), 0);
}

/// An event that serde writes shorter than the server does.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Numbers {
    key: String,
    numbers: Vec<f64>,
}

impl doorbell::bus::StreamEvent for Numbers {
    fn stream_key(&self) -> &str {
        &self.key
    }

    fn seq(&self) -> u64 {
        0
    }

    fn with_seq(self, _: u64) -> Self {
        self
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p45_the_error_names_the_stream_of_the_event_that_is_too_large() {
    let database = Database::fresh().unwrap();
    let store = PostgresStore::<Numbers>::builder()
        .connect(&database.url())
        .await
        .unwrap();
    store.migrate().await.unwrap();
    let numbers = |key: &str, count| Numbers {
        key: key.to_owned(),
        numbers: vec![1e300; count],
    };
    let batch = vec![numbers("small", 10), numbers("large", 300_000), numbers("other", 10)];
    let refused = store.append_batch(batch).await;
    assert!(is_encode_of("large", &refused), "{refused:?}");
    let appends =
        [numbers("small", 10), numbers("large", 300_000), numbers("other", 1000)].map(|event| store.append(event));
    let [small, large, other] = futures_util::future::join_all(appends).await.try_into().unwrap();
    assert!(
        small.is_ok() && other.is_ok() && is_encode_of("large", &large),
        "{large:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p45_large_events_inserted_by_hand_are_undecodable() {
    let store = Store::fresh().await;
    store.append(event("good", "hello")).await.unwrap();
    for (seq, payload) in [(1, BOMB), (2, ESCAPES)] {
        store.psql(&format!(
            "INSERT INTO doorbell.events (stream_key, seq, payload) VALUES ('large', {seq}, {payload})"
        ));
    }
    store.append(event("large", "hello")).await.unwrap();
    let pages = store
        .replay_many(&ranges(&[("large", 0), ("good", 0)]), 10)
        .await
        .unwrap();
    let [large, good] = &pages[..] else { panic!("{pages:?}") };
    let decodable: Vec<_> = large
        .records
        .iter()
        .map(|record| (record.seq, record.event.is_ok()))
        .collect();
    assert_eq!(decodable, [(1, false), (2, false), (3, true)]);
    let reason = large.records[0].event.as_ref().unwrap_err().to_string();
    assert!(reason.contains("64 MiB"), "{reason}");
    assert!(good.records.len() == 1 && !good.more && !large.more);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p45_a_page_of_large_events_is_cut_and_goes_on_where_it_ended() {
    let store = Store::fresh().await;
    let text = "x".repeat(300_000);
    store
        .append_batch((0..20).map(|_| event("large", &text)).collect())
        .await
        .unwrap();
    store.append(event("after", "hello")).await.unwrap();
    let mut after = 0;
    let mut reads = 0;
    while after < 20 {
        let pages = store
            .replay_many(&ranges(&[("none", 0), ("large", after), ("after", 0)]), 100)
            .await
            .unwrap();
        let [none, large, last] = &pages[..] else {
            panic!("{pages:?}")
        };
        assert!(none.records.is_empty() && !none.more);
        assert!((1..=8).contains(&large.records.len()), "{} events", large.records.len());
        assert!(
            large
                .records
                .iter()
                .map(|record| record.seq)
                .eq(after + 1..=after + large.records.len() as u64)
        );
        after += large.records.len() as u64;
        reads += 1;
        assert_eq!(
            (large.more, last.more, last.records.len()),
            if after < 20 { (true, true, 0) } else { (false, false, 1) }
        );
    }
    assert_eq!(reads, 3);
}

/// A limit of the server that one large page exceeds, and each event does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p45_a_read_that_exceeds_a_limit_of_the_server_is_repeated_in_parts() {
    let store = Store::fresh().await;
    store
        .append_batch((0..12).map(|n| event("a", &n.to_string())).collect())
        .await
        .unwrap();
    for sqlstate in ["53100", "53200", "53400", "25P04"] {
        store.psql(&format!(
            "DO $$ BEGIN EXECUTE regexp_replace(pg_get_functiondef('doorbell.replay_many'::regproc), E'\nBEGIN\n.*more := false', \
             E'\nBEGIN\n IF max_events > 3 OR ''full'' = ANY (stream_keys) THEN RAISE ''no room'' USING ERRCODE = ''{sqlstate}''; END IF; more := false'); END $$"
        ));
        let page = store.replay("a", 0, 100).await.unwrap();
        assert!(page.records.iter().map(|record| record.seq).eq(1..=12), "{sqlstate}");
        let refused = store.replay("full", 0, 100).await;
        assert!(
            matches!(&refused, Err(error @ StoreError::Cancelled { .. }) if error.is_transient()),
            "{refused:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p45_a_character_that_the_server_lacks_is_an_error_of_its_stream() {
    let server = Server::builder().encoding("LATIN1").locale("C").start().unwrap();
    let store = PostgresStore::connect(&server.url()).await.unwrap();
    store.migrate().await.unwrap();
    let batch = |key| vec![event("first", "é"), event(key, "snow ☃"), event("last", "1")];
    let refused = store.append_batch(batch("second")).await;
    assert!(is_encode_of("second", &refused), "{refused:?}");
    let refused = store.append_batch(vec![event("first", "1"), event("☃", "1")]).await;
    assert!(is_encode_of("☃", &refused), "{refused:?}");
    let mut transaction = store.pool().begin().await.unwrap();
    let refused = store.append_batch_in(&mut transaction, batch("third")).await;
    assert!(is_encode_of("third", &refused), "{refused:?}");
}

/// A lock of a table, which any role with rights on it may take, keeps neither calls nor the server's processes waiting for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p46_calls_that_a_lock_of_the_table_blocks_leave_nothing_behind() {
    let database = Database::fresh().unwrap();
    let pool = PgPoolOptions::new()
        .max_connections(4)
        .connect(&database.url())
        .await
        .unwrap();
    let store = PostgresStore::<FleetEvent>::builder()
        .lock_timeout(Duration::from_millis(300))
        .response_timeout(Duration::from_secs(20))
        .build(pool);
    store.migrate().await.unwrap();
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'doorbell.events'::regclass";
    let holder = PostgresStore::<FleetEvent>::connect(&database.url()).await.unwrap();
    let mut lock = holder.pool().begin().await.unwrap();
    sqlx::query("LOCK TABLE doorbell.events IN SHARE MODE")
        .execute(&mut *lock)
        .await
        .unwrap();
    let refused = |result: &Result<(), StoreError>| matches!(result, Err(StoreError::LockTimeout));
    for _ in 0..2 {
        let appends = (0..6).map(|n| store.append(event(&format!("stream-{n}"), "hello")));
        let appended = within("appends", futures_util::future::join_all(appends)).await;
        for result in appended {
            let result = result.map(drop);
            assert!(refused(&result), "{result:?}");
        }
        let batch = store
            .append_batch(vec![event("a", "1"), event("b", "1")])
            .await
            .map(drop);
        assert!(refused(&batch), "{batch:?}");
        let trimmed = store.trim("a", 1).await.map(drop);
        assert!(trimmed.is_ok() || refused(&trimmed), "{trimmed:?}");
        eventually("no process waits any more", || database.psql(waiting).unwrap() == "0").await;
    }
    lock.rollback().await.unwrap();
    let mut lock = holder.pool().begin().await.unwrap();
    sqlx::query("LOCK TABLE doorbell.events, doorbell.low_water_marks")
        .execute(&mut *lock)
        .await
        .unwrap();
    let streams = ["a".into()];
    let reads = async {
        tokio::join!(
            store.replay("a", 0, 10),
            store.heads(&streams),
            store.changed_since(None, 10)
        )
    };
    let (replayed, heads, changes) = within("reads", reads).await;
    for result in [replayed.map(drop), heads.map(drop), changes.map(drop)] {
        assert!(refused(&result), "{result:?}");
    }
    assert_eq!(database.psql(waiting).unwrap(), "0");
    lock.rollback().await.unwrap();
    let mut transaction = store.pool().begin().await.unwrap();
    store.append_in(&mut transaction, event("a", "hello")).await.unwrap();
    let setting: String = sqlx::query_scalar("SHOW lock_timeout")
        .fetch_one(&mut *transaction)
        .await
        .unwrap();
    assert_eq!(setting, "0", "the caller's transaction keeps its own");
    transaction.commit().await.unwrap();
    assert_eq!(store.append(event("stream-1", "hello")).await.unwrap().seq, 1);
}
