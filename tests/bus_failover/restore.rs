//! Restored dumps: the same events under other transaction ids, and some events lost.

use std::sync::Arc;

use doorbell::bus::{BusEvent, BusState, EventBus as _, Rewound};
use doorbell::store::PostgresStore;
use throwaway_postgres::Server;

use crate::bus_support::writer::append;
use crate::bus_support::{builder, expect, expect_nothing, next, note, store, until};

/// A new bus on a restored database delivers everything in the dump and everything new.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bus_on_a_restored_dump_delivers() {
    let server = Server::start().unwrap();
    let before = store(&server.url()).await;
    let old = builder(&server.url(), &before).connect().await.unwrap();
    for _ in 0..20 {
        old.append_and_publish(note("agent-1", "hello")).await.unwrap();
    }
    old.shutdown().await;
    let dump = server.dump("postgres").unwrap();
    server.restore("restored", &dump).unwrap();
    let url = server.url_for("restored");
    // Without `migrate`, and with it, as recommended after a restore.
    for (round, migrated) in [false, true].into_iter().enumerate() {
        let store = Arc::new(PostgresStore::connect(&url).await.unwrap());
        if migrated {
            store.migrate().await.unwrap();
        }
        let bus = builder(&url, &store)
            .sweep_interval(std::time::Duration::from_millis(50))
            .connect()
            .await
            .unwrap();
        let first = 20 + 3 * round as u64;
        let mut all = bus.subscribe_all_ready().await.unwrap();
        let mut history = bus.subscribe_from("agent-1", 0);
        expect(&mut history, "agent-1", 1..=first).await;
        bus.append_and_publish(note("agent-1", "hello")).await.unwrap();
        // No notification: the sweep must find these.
        server
            .psql_in(
                "restored",
                "SELECT doorbell.append('agent-1', jsonb_build_object('agent_id', 'agent-1', 'type', 'agent_connected')) \
                 FROM generate_series(1, 2)",
            )
            .unwrap();
        expect(&mut all, "agent-1", first + 1..=first + 3).await;
        expect(&mut history, "agent-1", first + 1..=first + 3).await;
        expect_nothing(&mut all);
        bus.shutdown().await;
        store.pool().close().await;
    }
}

/// The database of a running bus is replaced by a restored dump.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bus_reports_what_was_lost_when_its_database_is_replaced() {
    let server = Server::start().unwrap();
    server.psql("CREATE DATABASE live").unwrap();
    let url = server.url_for("live");
    let store = store(&url).await;
    let bus = builder(&url, &store).connect().await.unwrap();
    let mut all = bus.subscribe_all_ready().await.unwrap();
    let mut one = bus.subscribe("kept");
    one.ready().await.unwrap();
    for seq in 1..=5 {
        for key in ["kept", "lost"] {
            bus.append_and_publish(note(key, "hello")).await.unwrap();
            expect(&mut all, key, seq..=seq).await;
        }
    }
    expect(&mut one, "kept", 1..=5).await;
    let dump = server.dump("live").unwrap();
    bus.append_and_publish(note("lost", "after the dump")).await.unwrap();
    expect(&mut all, "lost", 6..=6).await;
    server.restore("restored", &dump).unwrap();
    server
        .psql(
            "ALTER DATABASE live CONNECTION LIMIT 0;
             ALTER DATABASE live ALLOW_CONNECTIONS false;
             SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'live'",
        )
        .unwrap();
    testkit::within::eventually("the end of all connections", || {
        let connected = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'live'";
        server.psql(connected).unwrap() == "0"
    })
    .await;
    server
        .psql("ALTER DATABASE live RENAME TO gone; ALTER DATABASE restored RENAME TO live")
        .unwrap();
    let BusEvent::Rewound(rewound) = next(&mut all).await else {
        panic!("expected a rewind")
    };
    let expected = Rewound {
        stream_key: "lost".into(),
        delivered: 6,
        resume_after: 5,
        exact: true,
    };
    assert_eq!(rewound, expected);
    until(&bus, BusState::Live).await;
    // One after the other: streams have no order among each other.
    append(&bus, "lost", 6).await;
    expect(&mut all, "lost", 6..=6).await;
    append(&bus, "kept", 6).await;
    expect(&mut all, "kept", 6..=6).await;
    expect(&mut one, "kept", 6..=6).await;
    assert_eq!(bus.stats().rewinds, 1);
}
