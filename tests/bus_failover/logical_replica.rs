//! A logical replica: it has the publisher's events, but transactions of its own.

use std::time::Duration;

use doorbell::store::{PostgresStore, Store as _};
use testkit::within::eventually;
use throwaway_postgres::Server;

use crate::bus_support::{builder, expect, expect_nothing, note, store};

const USE_TRANSACTION_IDS: &str =
    "DO $$ BEGIN FOR i IN 1..2000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$";

/// Replicates the publication into a new store on the server.
async fn subscribe(replica: &Server, publisher: &Server, publication: &str, prepare: &str) -> PostgresStore {
    let store = PostgresStore::connect(&replica.url()).await.unwrap();
    store.migrate().await.unwrap();
    let create = format!(
        "{prepare}; CREATE SUBSCRIPTION {publication} CONNECTION '{}' PUBLICATION {publication}",
        publisher.url()
    );
    replica
        .psql(&format!("SET client_min_messages = error; {create}"))
        .unwrap();
    store
}

async fn replicated(replica: &Server, events: usize) {
    eventually("the replica has the events", || {
        replica.psql("SELECT count(*) FROM doorbell.events").unwrap() == events.to_string()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriptions_on_a_logical_replica_get_every_event() {
    let publisher = Server::builder().setting("wal_level", "logical").start().unwrap();
    let (behind, ahead) = (Server::start().unwrap(), Server::start().unwrap());
    publisher.psql(USE_TRANSACTION_IDS).unwrap();
    for _ in 0..3 {
        ahead.psql(USE_TRANSACTION_IDS).unwrap();
    }
    let origin = store(&publisher.url()).await;
    for text in ["1", "2", "3"] {
        origin.append(note("old", text)).await.unwrap();
    }
    publisher
        .psql(
            "CREATE PUBLICATION events FOR TABLE doorbell.events, doorbell.low_water_marks;
             CREATE PUBLICATION everything FOR ALL TABLES",
        )
        .unwrap();
    // With an identity of its own, and with the publisher's.
    let with_events = subscribe(&behind, &publisher, "events", "").await;
    let truncate = "TRUNCATE doorbell.migrations, doorbell.history_identity";
    let with_everything = subscribe(&ahead, &publisher, "everything", truncate).await;
    let mut replicas = Vec::new();
    for (server, replica) in [(&behind, with_events), (&ahead, with_everything)] {
        replicated(server, 3).await;
        let replica = std::sync::Arc::new(replica);
        let sweeping = builder(&server.url(), &replica).sweep_interval(Duration::from_millis(20));
        let bus = sweeping.connect().await.unwrap();
        let all = bus.subscribe_all_ready().await.unwrap();
        let mut history = bus.subscribe_from("old", 0);
        expect(&mut history, "old", 1..=3).await;
        replicas.push((server, replica, bus, all));
    }
    for number in 1..=10 {
        let key = format!("agent-{}", number % 4);
        let stamped = origin.append(note(&key, "hello")).await.unwrap();
        for (.., all) in &mut replicas {
            expect(all, &key, stamped.seq..=stamped.seq).await;
            expect_nothing(all);
        }
    }
    // What is removed before a replica has looked.
    for (server, replica, bus, _) in replicas {
        bus.shutdown().await;
        let before = replica.changed_since(None, 100).await.unwrap().unwrap();
        origin.append(note("trimmed", "and gone")).await.unwrap();
        let seq = origin.high_water("trimmed").await.unwrap();
        origin.trim("trimmed", seq).await.unwrap();
        let low_water = format!("SELECT count(*) FROM doorbell.low_water_marks WHERE low_water = {seq}");
        eventually("the replica has the low-water mark", || {
            server.psql(&low_water).unwrap() == "1"
        })
        .await;
        let changes = replica
            .changed_since(Some(&before.watermark), 100)
            .await
            .unwrap()
            .unwrap();
        assert!(
            changes.streams.iter().any(|stream| &*stream.stream_key == "trimmed"),
            "{changes:?}"
        );
    }
}
