//! A frozen server or a dead network connection: no error and no response.

use std::sync::Arc;
use std::time::{Duration, Instant};

use doorbell::bus::{BusState, DistributedBus};
use doorbell::store::PostgresStore;
use testkit::proxy::Proxy;
use throwaway_postgres::Server;

use crate::bus_support::progress::Progress;
use crate::bus_support::writer::Writer;
use crate::bus_support::{blocking, builder, bus, expect, note, store, until, until_health};

/// Freezes the server and returns how long the bus took to detect that.
async fn freeze_until_noticed(server: &Arc<Server>, bus: &DistributedBus) -> Duration {
    let freezing = server.clone();
    blocking(move || freezing.freeze().unwrap()).await;
    let frozen = Instant::now();
    until_health(bus, "the change of health", |health| health.state != BusState::Live).await;
    frozen.elapsed()
}

/// A heartbeat of 100 ms and a deadline of 500 ms make 600 ms; the bound is three times that, for a busy machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p03_a_frozen_server_is_detected_within_the_bound_and_nothing_is_lost() {
    let server = Arc::new(Server::start().unwrap());
    let (here, there) = (bus(&server.url()).await, bus(&server.url()).await);
    let mut all = Progress::of(here.subscribe_all_ready().await.unwrap(), 1);
    let mut writer = Writer::start(there.clone(), "agent-1", 0);
    for _ in 0..3 {
        writer.committed(20).await;
        let taken = freeze_until_noticed(&server, &here).await;
        assert!(taken < Duration::from_millis(1800), "detected only after {taken:?}");
        server.thaw().unwrap();
        until(&here, BusState::Live).await;
    }
    let last = writer.stop().await;
    all.reaches("agent-1", last).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p03_a_frozen_server_is_detected_within_15_s_by_default() {
    let server = Arc::new(Server::start().unwrap());
    let bus = DistributedBus::connect(&server.url(), store(&server.url()).await)
        .await
        .unwrap();
    let mut all = bus.subscribe_all_ready().await.unwrap();
    until(&bus, BusState::Live).await;
    let taken = freeze_until_noticed(&server, &bus).await;
    println!("a frozen server was detected after {taken:?} by default");
    assert!(taken < Duration::from_secs(15), "detected only after {taken:?}");
    server.thaw().unwrap();
    until(&bus, BusState::Live).await;
    bus.append_and_publish(note("agent-1", "hello")).await.unwrap();
    expect(&mut all, "agent-1", 1..=1).await;
}

/// A firewall drops the state of all connections. The bus and the store open new ones and continue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p03_dead_connections_are_replaced() {
    let server = Server::start().unwrap();
    let proxy = Proxy::start(server.port()).await.unwrap();
    let quick = PostgresStore::builder().response_timeout(Duration::from_secs(1));
    let store = Arc::new(quick.connect(&proxy.url("postgres")).await.unwrap());
    store.migrate().await.unwrap();
    let here = builder(&proxy.url("postgres"), &store).connect().await.unwrap();
    let there = bus(&server.url()).await;
    let mut all = here.subscribe_all_ready().await.unwrap();
    for seq in 1..=20 {
        there.append_and_publish(note("agent-1", "hello")).await.unwrap();
        expect(&mut all, "agent-1", seq..=seq).await;
    }
    proxy.black_hole();
    for seq in 21..=40 {
        there.append_and_publish(note("agent-1", "hello")).await.unwrap();
        expect(&mut all, "agent-1", seq..=seq).await;
    }
    until(&here, BusState::Live).await;
}
