//! Timeouts configured on the server.

use std::time::Duration;

use doorbell::bus::BusState;
use testkit::within::eventually;
use throwaway_postgres::Server;

use crate::bus_support::{LISTENER, builder, bus, expect, note, store, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p09_the_bus_survives_timeouts_of_the_server_and_the_role() {
    let server = Server::builder()
        .setting("idle_session_timeout", "1200ms")
        .setting("statement_timeout", "2s")
        .start()
        .unwrap();
    server
        .psql(
            "ALTER ROLE postgres SET statement_timeout = '1s';
             ALTER ROLE postgres SET idle_in_transaction_session_timeout = '300ms'",
        )
        .unwrap();
    let store = store(&server.url()).await;
    // The heartbeat interval exceeds `idle_session_timeout`.
    let here = builder(&server.url(), &store)
        .listen(
            doorbell::listen::ListenMultiplexer::builder()
                .url(&server.url())
                .heartbeat(Duration::from_secs(2), Duration::from_secs(2)),
        )
        .connect()
        .await
        .unwrap();
    let there = bus(&server.url()).await;
    let mut all = here.subscribe_all_ready().await.unwrap();
    for seq in 1..=3 {
        eventually("the server ends the idle sessions of the pools", || {
            let left = server.psql(&format!(
                "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' \
                 AND pid <> pg_backend_pid() AND application_name <> '{LISTENER}'"
            ));
            left.unwrap().trim() == "0"
        })
        .await;
        there.append_and_publish(note("agent-1", "hello")).await.unwrap();
        expect(&mut all, "agent-1", seq..=seq).await;
    }
    until(&here, BusState::Live).await;
    assert_eq!(
        here.listen_stats().unwrap().disconnects,
        0,
        "the listener was never lost"
    );
}
