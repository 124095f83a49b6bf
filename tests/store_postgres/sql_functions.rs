//! The SQL functions as psql and triggers call them, what is stored, and that every lookup uses an index.

use doorbell::bus::{FleetEvent, FleetEventKind};
use doorbell::store::{PostgresStore, Store as _, StoreError};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgListener;

use crate::store_suite::event;
use crate::support::Store;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn psql_and_triggers_append_and_notify() {
    let store = Store::fresh().await;
    let mut listener = PgListener::connect(&store.database.url()).await.unwrap();
    listener.listen_all(["doorbell", "other"]).await.unwrap();
    let received = async |listener: &mut PgListener| {
        let notification = listener.recv().await.unwrap();
        (notification.channel().to_owned(), notification.payload().to_owned())
    };
    let on = |payload: &str| ("doorbell".to_owned(), payload.to_owned());

    let connected = r#"'{"agent_id": "a:b", "type": "agent_connected"}'"#;
    assert_eq!(
        store.psql(&format!("SELECT doorbell.append('a:b', {connected}, notify => true)")),
        "1"
    );
    assert_eq!(received(&mut listener).await, on("a:b:1"));
    assert_eq!(
        store.psql(&format!("SELECT doorbell.append('a:b', {connected}, 2, true, 'other')")),
        "2"
    );
    assert_eq!(received(&mut listener).await, ("other".to_owned(), "a:b:2".to_owned()));
    let batch = format!(
        "SELECT doorbell.append_many(array['a:b', 'a:b'], array[{connected}, {connected}]::jsonb[], notify => true)"
    );
    assert_eq!(store.psql(&batch), "{3,4}");
    assert_eq!(received(&mut listener).await, on("a:b:3-4"));
    store.psql("SELECT doorbell.notify_events('a:b', 4)");
    assert_eq!(received(&mut listener).await, on("a:b:4"));
    store.psql("SELECT doorbell.notify_events('a:b', 1, 4)");
    assert_eq!(received(&mut listener).await, on("a:b:1-4"));
    store.psql("SELECT doorbell.notify_events('a:b', 1, 'other')");
    assert_eq!(received(&mut listener).await.0, "other");
    let records = store.replay("a:b", 0, 10).await.unwrap().records;
    assert_eq!(
        records[3].event,
        Ok(FleetEvent {
            seq: 4,
            ..FleetEvent::new("a:b", FleetEventKind::AgentConnected)
        })
    );

    // The trigger of migrations/README.md.
    let readme = include_str!("../../migrations/README.md");
    let (_, trigger) = readme.split_once("From a trigger:\n\n```sql\n").unwrap();
    let (trigger, _) = trigger.split_once("```").unwrap();
    store.psql(
        "CREATE TABLE agents (id text PRIMARY KEY, retired bool); INSERT INTO agents VALUES ('t', false), ('u', false)",
    );
    store.psql(trigger);
    store.psql("UPDATE agents SET retired = true");
    let mut payloads = [received(&mut listener).await.1, received(&mut listener).await.1];
    payloads.sort();
    assert_eq!(payloads, ["t:1", "u:1"]);
    assert_eq!(
        store.replay("t", 0, 10).await.unwrap().records[0].event,
        Ok(FleetEvent {
            seq: 1,
            ..FleetEvent::new("t", FleetEventKind::AgentRetired)
        })
    );

    // From Rust, in a transaction.
    let mut transaction = store.pool().begin().await.unwrap();
    store
        .append_in_notifying(&mut transaction, event("r", "1"))
        .await
        .unwrap();
    store
        .append_batch_in_notifying(&mut transaction, vec![event("r", "2"), event("r", "3")])
        .await
        .unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(
        [received(&mut listener).await.1, received(&mut listener).await.1],
        ["r:1", "r:2-3"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_refuse_invalid_arguments_with_a_message() {
    let store = Store::fresh().await;
    for key in ["''", "NULL", "repeat('k', 513)", "'a' || chr(30) || 'b'"] {
        for call in [
            format!("append({key}, '{{}}')"),
            format!("append_many(array[{key}]::text[], array['{{}}']::jsonb[])"),
        ] {
            let error = store
                .database
                .psql(&format!("SELECT doorbell.{call}"))
                .unwrap_err()
                .to_string();
            assert!(error.contains("stream key"), "{call}: {error}");
        }
    }
    let error = store
        .database
        .psql("SELECT doorbell.append('a', '{}', 5)")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("the event has sequence number 5, but the next is 1"),
        "{error}"
    );
    assert!(
        store
            .database
            .psql("SELECT doorbell.append_many(array['a'], '{}')")
            .is_err()
    );
    assert_eq!(store.psql("SELECT count(*) FROM doorbell.events"), "0");
}

/// An event that cannot be decoded stays in its stream, and the rest of the page is readable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undecodable_event_does_not_fail_the_page() {
    let store = Store::fresh().await;
    store.append(event("a", "1")).await.unwrap();
    for payload in [
        r#"{"agent_id": "a", "type": "from_the_future"}"#,
        "null",
        r#"{"agent_id": "b", "type": "agent_connected"}"#,
    ] {
        store.psql(&format!("SELECT doorbell.append('a', '{payload}')"));
    }
    store.append(event("a", "5")).await.unwrap();
    let records = store.replay("a", 0, 10).await.unwrap().records;
    let readable: Vec<(u64, bool)> = records
        .iter()
        .map(|record| (record.seq, record.event.is_ok()))
        .collect();
    assert_eq!(readable, [(1, true), (2, false), (3, false), (4, false), (5, true)]);
    assert!(records[3].event.as_ref().unwrap_err().reason.contains("\"b\""));
}

/// An event type whose JSON the server cannot store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_that_jsonb_refuses_is_an_encode_error() {
    #[derive(Clone, Debug, Serialize, Deserialize)]
    struct Raw {
        body: Box<serde_json::value::RawValue>,
    }
    impl doorbell::bus::StreamEvent for Raw {
        fn stream_key(&self) -> &str {
            "raw"
        }
        fn seq(&self) -> u64 {
            0
        }
        fn with_seq(self, _seq: u64) -> Self {
            self
        }
    }
    let store = Store::fresh().await;
    let raw = PostgresStore::<Raw>::builder().build(store.pool().clone());
    let body = |json: &str| Raw {
        body: serde_json::value::RawValue::from_string(json.to_owned()).unwrap(),
    };
    for json in [
        "1e200000",
        r#""\ud800""#,
        r#""\u0000""#,
        &format!("{}{}", "[".repeat(100), "1e999999".to_owned() + &"]".repeat(100)),
    ] {
        let refused = raw.append(body(json)).await;
        assert!(
            matches!(&refused, Err(StoreError::Encode { stream_key, .. }) if stream_key == "raw"),
            "{json}: {refused:?}"
        );
        let refused = raw.append_batch(vec![body("1"), body(json)]).await;
        assert!(
            matches!(&refused, Err(StoreError::Encode { .. })),
            "{json}: {refused:?}"
        );
    }
    raw.append(body(r#"{"deep": [1.50, "\\u0000"]}"#)).await.unwrap();
    assert_eq!(raw.high_water("raw").await.unwrap(), 1);
}

/// Even with plans that were made while the tables were small.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_lookup_uses_an_index() {
    let store = Store::fresh().await;
    // With small, analyzed tables the planner would choose sequential scans.
    for key in ["a", "b"] {
        store.append(event(key, "1")).await.unwrap();
    }
    store.psql("ANALYZE doorbell.events, doorbell.low_water_marks");
    let mut connection = store.pool().acquire().await.unwrap();
    let watermark: String = sqlx::query_scalar("SELECT watermark FROM doorbell.changed_since(NULL, 10)")
        .fetch_one(&mut *connection)
        .await
        .unwrap();
    let call_all = async |connection: &mut sqlx::PgConnection| {
        for _ in 0..8 {
            for statement in [
                "SELECT doorbell.append('a', '{}')",
                "SELECT doorbell.append_many(array['a', 'b'], array['{}', '{}']::jsonb[])",
                "SELECT count(*) FROM doorbell.replay_many(array['a', 'b', 'c'], array[0, 1, 0], 2)",
                "SELECT doorbell.high_waters(array['a', 'b', 'c'])",
                "SELECT watermark FROM doorbell.heads(array['a', 'b', 'c'])",
                "SELECT doorbell.first_recent(array['a', 'b'], array[0, 1], array[9, 9], array[null, null], array[10, 0])",
                "SELECT doorbell.event_ids(array['a', 'b', 'c'], array[1, 2, 3])",
                "SELECT doorbell.changed_since(NULL, 10)",
                "SELECT count(*) FROM doorbell.stream_extents('', 10)",
                "SELECT doorbell.last_seqs_before(array['a', 'b'], 0, 10)",
                "SELECT doorbell.trim_streams(array['b'], array[1])",
            ] {
                sqlx::query(statement).execute(&mut *connection).await.unwrap();
            }
            sqlx::query("SELECT doorbell.changed_since($1, 10)")
                .bind(&watermark)
                .execute(&mut *connection)
                .await
                .unwrap();
        }
    };
    call_all(&mut connection).await;
    // Now the tables are large, and the plans are cached.
    store.psql("INSERT INTO doorbell.events (stream_key, seq, payload) SELECT 's' || i % 500, 1 + i / 500, '{}' FROM generate_series(0, 19999) AS i");
    // `history_identity` has one row, which is read sequentially.
    let scanned_rows = "SELECT coalesce(string_agg(relname || ': ' || seq_tup_read, ', '), '') FROM pg_stat_xact_user_tables \
                        WHERE schemaname = 'doorbell' AND relname <> 'history_identity' AND seq_tup_read > 0";
    // What this session has read before, for example to migrate, counts until it is reported.
    sqlx::query("SELECT pg_stat_force_next_flush()")
        .execute(&mut *connection)
        .await
        .unwrap();
    let mut transaction = sqlx::Connection::begin(&mut *connection).await.unwrap();
    call_all(&mut transaction).await;
    let read: String = sqlx::query_scalar(scanned_rows)
        .fetch_one(&mut *transaction)
        .await
        .unwrap();
    assert_eq!(read, "", "rows read by sequential scans");
    transaction.rollback().await.unwrap();
}

/// The one row of `history_identity` is read sequentially, at the price of a disabled scan, for which the server would compile the query:
/// a tenth of a second for each call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_query_is_compiled_because_a_scan_is_disabled() {
    let store = Store::fresh().await;
    let compiled = store.psql(
        "SELECT string_agg(p.proname, ', ') FROM pg_proc p
         WHERE p.pronamespace = 'doorbell'::regnamespace AND p.prosrc ~ '(history_identity|is_bound)[(]'
            AND 'enable_seqscan=off' = ANY (p.proconfig) AND NOT 'jit=off' = ANY (p.proconfig)",
    );
    assert_eq!(compiled, "");
}
