//! P10: sessions that receive no notifications.

use doorbell::listen::{Delivery, ListenError, ListenMultiplexer, ListenState};
use testkit::within::within;
use throwaway_postgres::{Pooler, Server};

use crate::listen_support::{notification, reconnected, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_in_transaction_mode_is_detected() {
    let server = Server::start().unwrap();
    let pooler = Pooler::transaction_mode(&server).unwrap();
    let mux = ListenMultiplexer::builder().url(&pooler.url()).start().unwrap();
    // LISTEN would succeed, on a backend that other clients share. So it is not sent.
    let refused = within("the refusal", mux.subscribe("jobs")).await;
    assert!(matches!(refused, Err(ListenError::NotDelivered)), "{refused:?}");
    let degraded = until(&mux, "the failed probe", |health| health.delivery == Delivery::Failed).await;
    assert_eq!(degraded.state, ListenState::Degraded);
    assert!(degraded.server.unwrap().pooled);
    assert!(matches!(degraded.reason, Some(ListenError::NotDelivered)));
    assert!(!mux.health().is_listening());
    // Sending still works.
    mux.notify("jobs", "hello").await.unwrap();
    // A later subscriber is refused at once.
    let refused = within("the refusal", mux.subscribe("jobs")).await;
    assert!(matches!(refused, Err(ListenError::NotDelivered)), "{refused:?}");
    // The listener's settings do not leak to the shared backends.
    assert_eq!(show(&pooler, "statement_timeout").await, "0");

    let refused = ListenMultiplexer::connect(&pooler.url()).await;
    assert!(matches!(refused, Err(ListenError::NotDelivered)), "{refused:?}");
}

async fn show(pooler: &Pooler, name: &str) -> String {
    let (client, connection) = tokio_postgres::connect(&pooler.url(), tokio_postgres::NoTls)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let rows = client.simple_query(&format!("SHOW {name}")).await.unwrap();
    drop(client);
    connection.await.unwrap().unwrap();
    let value = rows.iter().find_map(|row| match row {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    value.unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_in_session_mode_works() {
    let server = Server::start().unwrap();
    let pooler = Pooler::session_mode(&server).unwrap();
    let mux = ListenMultiplexer::connect(&pooler.url()).await.unwrap();
    let health = mux.health();
    assert_eq!(
        (health.state, health.delivery),
        (ListenState::Healthy, Delivery::Verified)
    );
    assert!(health.server.unwrap().pooled);
    let mut jobs = mux.subscribe("jobs").await.unwrap();
    server.psql("NOTIFY jobs, 'hello'").unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "hello");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_and_its_promotion_are_detected() {
    let primary = Server::start().unwrap();
    let standby = primary.standby().unwrap();
    let refused = ListenMultiplexer::connect(&standby.url()).await;
    assert!(matches!(refused, Err(ListenError::Standby)), "{refused:?}");

    let mux = ListenMultiplexer::builder().url(&standby.url()).start().unwrap();
    let mut lazy = mux.subscribe_lazy("jobs").unwrap();
    let health = until(&mux, "the standby", |health| health.standby == Some(true)).await;
    assert_eq!(
        (health.state, health.delivery),
        (ListenState::Degraded, Delivery::Failed)
    );
    // `subscribe` fails and leaves no registration; the lazy subscription stays.
    let refused = within("the refusal", mux.subscribe("jobs")).await;
    assert!(matches!(refused, Err(ListenError::Standby)), "{refused:?}");
    assert_eq!(mux.stats().subscriptions, 1);

    standby.promote().unwrap();
    until(&mux, "the promotion", |health| {
        health.is_listening() && health.standby == Some(false)
    })
    .await;
    within("ready", lazy.ready()).await.unwrap();
    standby.psql("NOTIFY jobs, 'hello'").unwrap();
    assert_eq!(notification(&mut lazy).await.payload(), "hello");
}

/// The connection options name both servers; the primary stops and the standby is promoted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reconnects_to_the_new_primary_after_a_failover() {
    let primary = Server::start().unwrap();
    let standby = primary.standby().unwrap();
    let url = format!(
        "host=127.0.0.1,127.0.0.1 port={},{} user=postgres dbname=postgres target_session_attrs=read-write",
        primary.port(),
        standby.port()
    );
    let mux = ListenMultiplexer::connect(&url).await.unwrap();
    let mut jobs = mux.subscribe("jobs").await.unwrap();
    primary.psql("NOTIFY jobs, 'before'").unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "before");
    primary.stop(throwaway_postgres::Stop::Immediate).unwrap();
    standby.promote().unwrap();
    reconnected(&mut jobs).await;
    standby.psql("NOTIFY jobs, 'after'").unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "after");
}
