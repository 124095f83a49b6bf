//! Peers that say nothing any more, and the bound within which that is noticed.

use std::time::{Duration, Instant};

use doorbell::listen::{ListenError, ListenMultiplexer, ListenState};
use throwaway_postgres::Server;

use crate::proxy::Proxy;
use crate::support::{backend, marker, notification, until};

/// The documented bound: heartbeat interval plus deadline, by default 10 s, and 15 s on a busy machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p3_a_frozen_server_is_noticed_within_the_bound() {
    let server = Server::start().unwrap();
    let mux = ListenMultiplexer::connect(&server.url()).await.unwrap();
    let mut jobs = mux.subscribe("jobs").await.unwrap();
    server.freeze().unwrap();
    let frozen = Instant::now();
    let noticed = until(&mux, "notice", |health| health.state == ListenState::Disconnected).await;
    let taken = frozen.elapsed();
    assert!(taken < Duration::from_secs(15), "noticed only after {taken:?}");
    assert!(
        matches!(noticed.reason, Some(ListenError::Timeout { .. })),
        "{noticed:?}"
    );
    server.thaw().unwrap();
    marker(&mut jobs).await;
    server.psql("NOTIFY jobs, 'heard'").unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "heard");
}

/// Only the listener's own backend stands still; the others go on, so the next connection is made at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_backend_is_left_behind() {
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
    marker(&mut jobs).await;
    assert_ne!(backend(&mux).await, frozen);
    server.psql("NOTIFY jobs, 'heard'").unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "heard");
    server.thaw_backend(frozen).unwrap();
}

/// A line on which nothing arrives any more and nothing breaks: a firewall that forgot the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_gone_dead_is_noticed_and_the_next_attempt_is_bounded_too() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(server.port()).await;
    let mux = ListenMultiplexer::builder()
        .url(&proxy.url("postgres"))
        .heartbeat(Duration::from_millis(100), Duration::from_millis(300))
        .connect_timeout(Duration::from_millis(300))
        .connect()
        .await
        .unwrap();
    let mut jobs = mux.subscribe("jobs").await.unwrap();
    proxy.fall_silent();
    let noticed = until(&mux, "notice", |health| health.state == ListenState::Disconnected).await;
    assert!(
        matches!(noticed.reason, Some(ListenError::Timeout { .. })),
        "{noticed:?}"
    );
    let mut changes = mux.health_changes();
    while mux.stats().failed_connects < 2 {
        changes.changed().await.unwrap();
    }
    proxy.speak_again();
    marker(&mut jobs).await;
    server.psql("NOTIFY jobs, 'heard'").unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "heard");
}
