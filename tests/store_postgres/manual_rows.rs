//! P31: rows that were inserted or removed by hand concern only their own stream.

use std::time::Duration;

use doorbell::store::{Store as _, StoreError};

use crate::store_suite::event;
use crate::support::Store;

/// Statements of a superuser, and the stream that each of them spoils.
const SPOILED: [(&str, &str); 12] = [
    (
        "hole",
        "INSERT INTO doorbell.events (stream_key, seq, payload) VALUES ('hole', 100, '{}')",
    ),
    (
        "missing",
        "DELETE FROM doorbell.events WHERE stream_key = 'missing' AND seq = 2",
    ),
    (
        "last number",
        "INSERT INTO doorbell.events (stream_key, seq, payload) VALUES ('last number', 9223372036854775807, '{}')",
    ),
    (
        "high mark",
        "INSERT INTO doorbell.low_water_marks (stream_key, low_water) VALUES ('high mark', 1000000)",
    ),
    (
        "highest mark",
        "INSERT INTO doorbell.low_water_marks (stream_key, low_water) VALUES ('highest mark', 9223372036854775807)",
    ),
    (
        "only a mark",
        "INSERT INTO doorbell.low_water_marks (stream_key, low_water, low_water_xid) \
         VALUES ('only a mark', 9223372036854775807, pg_current_xact_id())",
    ),
    (
        "infinite time",
        "INSERT INTO doorbell.events (stream_key, seq, appended_at, payload) VALUES ('infinite time', 4, 'infinity', '{}')",
    ),
    (
        "infinitely old",
        "INSERT INTO doorbell.events (stream_key, seq, appended_at, payload) VALUES ('infinitely old', 1, '-infinity', '{}')",
    ),
    (
        "extreme times",
        "INSERT INTO doorbell.events (stream_key, seq, appended_at, payload) \
         VALUES ('extreme times', 4, '294276-12-31', '{}'), ('extreme times', 5, '4713-01-01 BC', '{}')",
    ),
    (
        "",
        "INSERT INTO doorbell.events (stream_key, seq, payload) VALUES ('', 1, '{}'), ('', 2, '{}')",
    ),
    (
        "key\u{1e}",
        "INSERT INTO doorbell.events (stream_key, seq, payload) VALUES (E'key\\x1e', 1, '{}'), (E'key\\x1e', 2, '{}')",
    ),
    (
        "long key",
        "INSERT INTO doorbell.events (stream_key, seq, payload) \
         VALUES (repeat('k', 2000), 1, '{}'), (repeat('k', 2000), 2, '{}')",
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p31_rows_inserted_by_hand_stop_no_other_stream_and_no_retention() {
    let store = Store::fresh().await;
    let watermark = store.changed_since(None, 10).await.unwrap().unwrap().watermark;
    for (stream, _) in SPOILED {
        // The keys of these streams are invalid.
        if !["", "key\u{1e}", "long key", "only a mark", "infinitely old"].contains(&stream) {
            for text in ["1", "2", "3"] {
                store.append(event(stream, text)).await.unwrap();
            }
        }
    }
    for (_, spoil) in SPOILED {
        store.psql(spoil);
    }
    for first in ["a", "z"] {
        assert_eq!(store.append(event(first, "x")).await.unwrap().seq, 1);
    }

    // Every stream is listed once, at its last number.
    for since in [None, Some(&watermark)] {
        let (mut listed, mut next) = (Vec::new(), since.cloned());
        loop {
            let page = store.changed_since(next.as_ref(), 3).await.unwrap().unwrap();
            listed.extend(
                page.streams
                    .into_iter()
                    .map(|stream| (stream.stream_key, stream.head.seq)),
            );
            next = Some(page.watermark);
            if !page.more {
                break;
            }
        }
        listed.sort();
        let high_waters: Vec<_> = listed.iter().map(|(key, high_water)| (&**key, *high_water)).collect();
        let last = i64::MAX.unsigned_abs();
        let long = "k".repeat(2000);
        let expected = [
            ("", 2),
            ("a", 1),
            ("extreme times", 5),
            ("high mark", 3),
            ("highest mark", 3),
            ("hole", 100),
            ("infinite time", 4),
            ("infinitely old", 1),
            ("key\u{1e}", 2),
            (&long, 2),
            ("last number", last),
            ("missing", 3),
            ("only a mark", last),
            ("z", 1),
        ];
        assert_eq!(high_waters, expected, "{since:?}");
        let keys: Vec<_> = listed.iter().map(|(key, _)| key.clone()).collect();
        let high_waters: Vec<_> = listed.iter().map(|(_, high_water)| *high_water).collect();
        assert_eq!(crate::store_suite::high_waters(&*store, &keys).await, high_waters);
    }

    // A mark above the last event is of no effect.
    for stream in ["high mark", "highest mark"] {
        let page = store.replay(stream, 0, 10).await.unwrap();
        let seqs: Vec<_> = page.records.iter().map(|record| record.seq).collect();
        assert_eq!((page.low_water, seqs), (3, vec![1, 2, 3]), "{stream}");
        assert_eq!(store.append(event(stream, "x")).await.unwrap().seq, 4);
    }
    assert_eq!(store.append(event("hole", "x")).await.unwrap().seq, 101);
    // A stream without a next number says so, also in a group with others.
    for stream in ["last number", "only a mark"] {
        let full = store.append(event(stream, "x")).await;
        assert!(
            matches!(&full, Err(error @ StoreError::StreamFull { stream_key }) if stream_key == stream && !error.is_transient()),
            "{full:?}"
        );
        let full = store.append_batch(vec![event("b", "x"), event(stream, "x")]).await;
        assert!(
            matches!(&full, Err(StoreError::StreamFull { stream_key }) if stream_key == stream),
            "{full:?}"
        );
        let others = (0..20).map(|n| {
            let store = (*store).clone();
            let stream = if n % 2 == 0 {
                format!("good {n}")
            } else {
                stream.to_owned()
            };
            async move { (n, store.append(event(&stream, "x")).await) }
        });
        for (n, appended) in futures::future::join_all(others).await {
            assert_eq!(appended.is_ok(), n % 2 == 0, "{n}: {appended:?}");
        }
    }

    // Retention removes events of every stream but the one whose oldest event is in the future.
    store.psql("UPDATE doorbell.events SET appended_at = 'infinity' WHERE stream_key = 'infinite time' AND seq = 1");
    store.trim_older_than(Duration::ZERO).await.unwrap();
    let rest = store.psql("SELECT DISTINCT stream_key FROM doorbell.events WHERE stream_key <> '' ORDER BY 1");
    assert_eq!(rest.lines().collect::<Vec<_>>(), ["extreme times", "infinite time"]);
    store.keep_last(0).await.unwrap();
    assert_eq!(
        store.psql("SELECT count(*) FROM doorbell.events WHERE stream_key <> ''"),
        "0"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p31_numbers_that_are_not_positive_are_refused() {
    let store = Store::fresh().await;
    for insert in [
        "events (stream_key, seq, payload) VALUES ('a', 0, '{}')",
        "events (stream_key, seq, payload) VALUES ('a', -1, '{}')",
        "low_water_marks (stream_key, low_water) VALUES ('a', -1)",
    ] {
        let refused = store
            .database
            .psql(&format!("INSERT INTO doorbell.{insert}"))
            .unwrap_err();
        assert!(refused.to_string().contains("violates check constraint"), "{refused}");
    }
}

/// A database that stores any bytes: what is not UTF-8 could be read by nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p31_bytes_that_are_not_utf8_are_not_appended() {
    let server = throwaway_postgres::Server::builder()
        .encoding("SQL_ASCII")
        .locale("C")
        .start()
        .unwrap();
    let store = doorbell::store::PostgresStore::connect(&server.url()).await.unwrap();
    store.migrate().await.unwrap();
    for call in [
        "append(E'\\xff', '{}')",
        "append('a', E'\"\\xff\"')",
        "append_many(array[E'\\xff'], array['{}'::jsonb])",
        "append_many(array['a', 'b'], array['{}', E'\"\\xff\"'::jsonb])",
    ] {
        let refused = server.psql(&format!("SET client_encoding = 'SQL_ASCII'; SELECT doorbell.{call}"));
        let refused = refused.unwrap_err().to_string();
        assert!(
            refused.contains("invalid byte sequence for encoding \"UTF8\""),
            "{call}: {refused}"
        );
    }
    assert_eq!(store.append(event("ä", "ö")).await.unwrap().seq, 1);
    let page = store.replay("ä", 0, 10).await.unwrap();
    assert_eq!(page.records.len(), 1);
}

/// An encoding with bytes that stand for no character.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p31_characters_that_have_no_utf8_are_not_appended() {
    let server = throwaway_postgres::Server::builder()
        .encoding("WIN1252")
        .locale("C")
        .start()
        .unwrap();
    let store = doorbell::store::PostgresStore::connect(&server.url()).await.unwrap();
    store.migrate().await.unwrap();
    for call in [
        "append('key' || chr(129), '{}')",
        "append('a', jsonb_build_object('a', chr(129)))",
        "append_many(array['key' || chr(129)], array['{}'::jsonb])",
        "append_many(array['a', 'b'], array['{}', jsonb_build_object('a', chr(129))])",
    ] {
        let refused = server.psql(&format!("SELECT doorbell.{call}"));
        let refused = refused.unwrap_err().to_string();
        assert!(
            refused.contains("has no equivalent in encoding \"UTF8\""),
            "{call}: {refused}"
        );
    }
    assert_eq!(store.append(event("ä", "€")).await.unwrap().seq, 1);
    assert_eq!(store.replay("ä", 0, 10).await.unwrap().records.len(), 1);
}
