//! Stream keys, from one process through the server to another.

use doorbell::bus::{BusError, EventBus as _};
use doorbell::store::{InvalidStreamKey, MAX_STREAM_KEY_BYTES};
use throwaway_postgres::Database;

use crate::bus_support::{bus, event, expect_end, expect_nothing, note};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p07_every_valid_key_is_delivered() {
    let database = Database::fresh().unwrap();
    let (here, there) = (bus(&database.url()).await, bus(&database.url()).await);
    let mut all = here.subscribe_all_ready().await.unwrap();
    let longest = "🔔".repeat(MAX_STREAM_KEY_BYTES / 4);
    let keys = [
        "a",
        "repo:foo:bar",
        "7-9:3",
        "*",
        " ",
        "o'\"\\",
        "line\nbreak\ttab\u{1}",
        "🔔",
        "x:1-2",
        "\u{7f}\u{1f}\u{200b}",
        &longest,
    ];
    for key in keys {
        let mut one = here.subscribe(key);
        one.ready().await.unwrap();
        for text in ["one", "two"] {
            let stamped = there.append_and_publish(note(key, text)).await.unwrap();
            assert_eq!(*event(&mut one).await, stamped);
            assert_eq!(*event(&mut all).await, stamped);
        }
        // The same, appended and notified by SQL.
        let quoted = key.replace('\'', "''");
        database
            .psql(&format!(
                "SELECT doorbell.append('{quoted}', jsonb_build_object('agent_id', '{quoted}', 'type', 'agent_connected'), notify => true)"
            ))
            .unwrap();
        for subscription in [&mut one, &mut all] {
            let event = event(subscription).await;
            assert_eq!((event.agent_id.as_str(), event.seq), (key, 3));
        }
    }
    assert_eq!(here.stats().notifications_invalid, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p07_invalid_keys_are_refused_before_anything_is_written() {
    let database = Database::fresh().unwrap();
    let bus = bus(&database.url()).await;
    let mut all = bus.subscribe_all_ready().await.unwrap();
    let long = "k".repeat(MAX_STREAM_KEY_BYTES + 1);
    for key in ["", &long, "a\0b", "a\u{1e}b"] {
        let refused = bus.append_and_publish(note(key, "hello")).await.unwrap_err();
        assert!(
            refused.to_string() == doorbell::store::check_stream_key(key).unwrap_err().to_string(),
            "{refused}"
        );
        let batch = vec![note("fine", "hello"), note(key, "hello")];
        assert!(bus.append_batch_and_publish(batch).await.is_err());
        let mut refused = bus.subscribe(key);
        assert!(matches!(
            refused.ready().await,
            Err(BusError::InvalidStreamKey(
                InvalidStreamKey::Empty | InvalidStreamKey::TooLong { .. } | InvalidStreamKey::Character { .. }
            ))
        ));
        expect_end(&mut refused).await;
        let counted = bus.stats().unpersisted;
        let mut stamped = note(key, "hello");
        stamped.seq = 1;
        bus.publish(stamped);
        assert_eq!(bus.stats().unpersisted, counted + 1);
    }
    assert_eq!(database.psql("SELECT count(*) FROM doorbell.events").unwrap(), "0");
    expect_nothing(&mut all);
}
