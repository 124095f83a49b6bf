//! Frozen and unreachable peers, and the time within which they are detected.

use std::time::{Duration, Instant};

use doorbell::listen::{ListenError, ListenMultiplexer, ListenState};
use testkit::proxy::Proxy;
use throwaway_postgres::Server;

use crate::listen_support::{backend, notification, reconnected, until};

/// The documented bound: heartbeat interval plus deadline, 10 s by default, and 15 s on a busy machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p3_a_frozen_server_is_detected_within_the_bound() {
    let server = Server::start().unwrap();
    let mux = ListenMultiplexer::connect(&server.url()).await.unwrap();
    let mut jobs = mux.subscribe("jobs").await.unwrap();
    server.freeze().unwrap();
    let frozen = Instant::now();
    let lost = until(&mux, "the detection", |health| {
        health.state == ListenState::Disconnected
    })
    .await;
    let elapsed = frozen.elapsed();
    assert!(elapsed < Duration::from_secs(15), "detected only after {elapsed:?}");
    assert!(matches!(lost.reason, Some(ListenError::Timeout { .. })), "{lost:?}");
    server.thaw().unwrap();
    reconnected(&mut jobs).await;
    server.psql("NOTIFY jobs, 'hello'").unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "hello");
}

/// Only the listener's own backend is frozen, so the next connection succeeds at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reconnects_when_only_its_backend_is_frozen() {
    let server = Server::start().unwrap();
    let mux = ListenMultiplexer::builder()
        .url(&server.url())
        .heartbeat(Duration::from_millis(100), Duration::from_millis(500))
        .connect()
        .await
        .unwrap();
    let mut jobs = mux.subscribe("jobs").await.unwrap();
    let frozen = backend(&mux).await;
    server.freeze_backend(frozen).unwrap();
    reconnected(&mut jobs).await;
    assert_ne!(backend(&mux).await, frozen);
    server.psql("NOTIFY jobs, 'hello'").unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "hello");
    server.thaw_backend(frozen).unwrap();
}

/// The connection stays open but passes nothing, as when a firewall drops its state.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_connection_is_detected_and_attempts_through_it_time_out() {
    let server = Server::start().unwrap();
    let proxy = Proxy::start(server.port()).await.unwrap();
    let mux = ListenMultiplexer::builder()
        .url(&proxy.url("postgres"))
        .heartbeat(Duration::from_millis(100), Duration::from_millis(300))
        .connect_timeout(Duration::from_millis(300))
        .connect()
        .await
        .unwrap();
    let mut jobs = mux.subscribe("jobs").await.unwrap();
    proxy.freeze();
    let lost = until(&mux, "the detection", |health| {
        health.state == ListenState::Disconnected
    })
    .await;
    assert!(matches!(lost.reason, Some(ListenError::Timeout { .. })), "{lost:?}");
    let mut changes = mux.health_changes();
    while mux.stats().failed_connects < 2 {
        changes.changed().await.unwrap();
    }
    proxy.thaw();
    reconnected(&mut jobs).await;
    server.psql("NOTIFY jobs, 'hello'").unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "hello");
}
