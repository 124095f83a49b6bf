//! P9: timeouts set by servers, databases and roles do not end an idle listener.

use std::time::Duration;

use doorbell::listen::{ListenError, ListenMultiplexer};
use testkit::within::within;
use throwaway_postgres::Server;

use crate::listen_support::{backend, notification};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p9_an_idle_listener_survives_the_servers_timeouts() {
    let server = Server::builder()
        .setting("idle_session_timeout", "300ms")
        .setting("statement_timeout", "300ms")
        .setting("idle_in_transaction_session_timeout", "300ms")
        .setting("lock_timeout", "300ms")
        .start()
        .unwrap();
    let mux = ListenMultiplexer::builder()
        .url(&server.url())
        .heartbeat(Duration::from_secs(3600), Duration::from_secs(5))
        .connect()
        .await
        .unwrap();
    let mut jobs = mux.subscribe("jobs").await.unwrap();
    let before = backend(&mux).await;
    // The server ends another idle session that is younger, so it would have ended the listener's.
    let (client, connection) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls)
        .await
        .unwrap();
    let ended = within("the end of another session", connection).await.unwrap_err();
    assert_eq!(
        ended.code(),
        Some(&tokio_postgres::error::SqlState::IDLE_SESSION_TIMEOUT)
    );
    drop(client);
    server.psql("NOTIFY jobs, 'hello'").unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "hello");
    assert_eq!(backend(&mux).await, before);
    assert_eq!(mux.stats().disconnects, 0);
}

/// Another session holds the lock that the commit of a NOTIFY needs. `notify` gives up in time, and the listener goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notify_does_not_wait_forever_for_the_notification_lock() {
    let server = Server::start().unwrap();
    let mux = ListenMultiplexer::builder()
        .url(&server.url())
        .heartbeat(Duration::from_millis(100), Duration::from_secs(2))
        .connect()
        .await
        .unwrap();
    let mut jobs = mux.subscribe("jobs").await.unwrap();
    // A transaction with a notification holds the lock while its commit waits for a replica that does not exist.
    server.set("synchronous_standby_names", "nobody").unwrap();
    let url = server.url();
    let stuck = tokio::task::spawn(async move {
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client
            .batch_execute("BEGIN; CREATE TABLE t (); NOTIFY jobs, 'stuck'; COMMIT")
            .await
    });
    within("the lock", async {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        while server.psql(waiting).unwrap() != "1" {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let Err(ListenError::Notify(error)) = mux.notify("jobs", "late").await else {
        panic!("expected a lock timeout");
    };
    assert_eq!(error.sqlstate(), Some("55P03"), "{error}");
    server.set("synchronous_standby_names", "").unwrap();
    within("the other commit", stuck).await.unwrap().unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "stuck");
    mux.notify("jobs", "hello").await.unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "hello");
    assert_eq!(mux.stats().disconnects, 0);
}
