//! Databases in other encodings, and bytes that are no text.

use doorbell::listen::{ListenError, ListenMultiplexer};
use throwaway_postgres::Server;

use crate::support::{marker, notification, within};

/// Anybody can send bytes that are not UTF-8 here, and the connection does not survive them. The listener does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn raw_bytes_cost_a_connection_and_nothing_more() {
    let server = Server::builder().encoding("SQL_ASCII").locale("C").start().unwrap();
    let mux = ListenMultiplexer::connect(&server.url()).await.unwrap();
    let mut jobs = mux.subscribe("jobs").await.unwrap();
    for round in 1..=3 {
        server
            .psql("SET client_encoding = 'SQL_ASCII'; DO $$ BEGIN PERFORM pg_notify('jobs', E'\\xff'); END $$")
            .unwrap();
        assert_eq!(marker(&mut jobs).await.reconnects, round);
        server.psql("NOTIFY jobs, 'text'").unwrap();
        assert_eq!(notification(&mut jobs).await.payload(), "text");
    }
}

/// What the database cannot write is refused, by name, and hurts nobody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn characters_that_the_database_lacks_are_refused() {
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
    let heard = notification(&mut umlaut).await;
    assert_eq!((heard.channel(), heard.payload()), ("türklingel", "größer"));
    assert_eq!(mux.stats().losses, 0);
}
