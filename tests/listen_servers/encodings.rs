//! Databases in other encodings, and payloads that are not UTF-8.

use doorbell::listen::{ListenError, ListenMultiplexer};
use testkit::within::within;
use throwaway_postgres::Server;

use crate::listen_support::{notification, reconnected};

/// tokio-postgres fails the connection on a payload that is not UTF-8. The listener reconnects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_that_is_not_utf8_only_costs_a_reconnect() {
    let server = Server::builder().encoding("SQL_ASCII").locale("C").start().unwrap();
    let mux = ListenMultiplexer::connect(&server.url()).await.unwrap();
    let mut jobs = mux.subscribe("jobs").await.unwrap();
    for round in 1..=3 {
        server
            .psql("SET client_encoding = 'SQL_ASCII'; DO $$ BEGIN PERFORM pg_notify('jobs', E'\\xff'); END $$")
            .unwrap();
        assert_eq!(reconnected(&mut jobs).await.reconnects, round);
        server.psql("NOTIFY jobs, 'text'").unwrap();
        assert_eq!(notification(&mut jobs).await.payload(), "text");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn characters_outside_the_database_encoding_are_refused() {
    let server = Server::builder().encoding("LATIN1").locale("C").start().unwrap();
    let mux = ListenMultiplexer::connect(&server.url()).await.unwrap();
    let mut umlaut = mux.subscribe("türklingel").await.unwrap();
    let refused = within("the refusal", mux.subscribe("\u{1f514}")).await;
    let Err(ListenError::Listen { error, .. }) = refused else {
        panic!("expected a refusal, got {refused:?}");
    };
    assert_eq!(error.sqlstate(), Some("22P05"));
    let refused = mux.notify("türklingel", "\u{1f514}").await;
    assert!(matches!(refused, Err(ListenError::Notify(_))), "{refused:?}");
    mux.notify("türklingel", "größer").await.unwrap();
    let received = notification(&mut umlaut).await;
    assert_eq!((received.channel(), received.payload()), ("türklingel", "größer"));
    assert_eq!(mux.stats().disconnects, 0);
}
