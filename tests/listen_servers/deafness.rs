//! P10: sessions that notifications do not reach.

use doorbell::listen::{Delivery, ListenError, ListenMultiplexer, ListenState};
use throwaway_postgres::{Pooler, Server};

use crate::support::{marker, notification, until, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_in_transaction_mode_is_recognised() {
    let server = Server::start().unwrap();
    let pooler = Pooler::transaction_mode(&server).unwrap();
    let mux = ListenMultiplexer::builder().url(&pooler.url()).start().unwrap();
    // LISTEN would be accepted, and stay with a backend that others use, too. So it is not even tried.
    let refused = within("the refusal", mux.subscribe("jobs")).await;
    assert!(matches!(refused, Err(ListenError::NotDelivered)), "{refused:?}");
    let deaf = until(&mux, "deafness", |health| health.delivery == Delivery::Failed).await;
    assert_eq!(deaf.state, ListenState::Degraded);
    assert!(deaf.server.unwrap().pooled);
    assert!(matches!(deaf.reason, Some(ListenError::NotDelivered)));
    assert!(!mux.health().is_listening());
    // Sending works all the same.
    mux.notify("jobs", "into the void").await.unwrap();
    // Who comes later is told at once.
    let refused = within("the refusal", mux.subscribe("jobs")).await;
    assert!(matches!(refused, Err(ListenError::NotDelivered)), "{refused:?}");
    // The shared backends keep none of our settings.
    let leaked = tokio_postgres_setting(&pooler, "statement_timeout").await;
    assert_eq!(leaked, "0");

    let refused = ListenMultiplexer::connect(&pooler.url()).await;
    assert!(matches!(refused, Err(ListenError::NotDelivered)), "{refused:?}");
}

async fn tokio_postgres_setting(pooler: &Pooler, name: &str) -> String {
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
        (ListenState::Healthy, Delivery::Proven)
    );
    assert!(health.server.unwrap().pooled);
    let mut jobs = mux.subscribe("jobs").await.unwrap();
    server.psql("NOTIFY jobs, 'heard'").unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "heard");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_is_told_and_its_promotion_noticed() {
    let primary = Server::start().unwrap();
    let standby = primary.standby().unwrap();
    let refused = ListenMultiplexer::connect(&standby.url()).await;
    assert!(matches!(refused, Err(ListenError::Standby)), "{refused:?}");

    let mux = ListenMultiplexer::builder().url(&standby.url()).start().unwrap();
    let mut patient = mux.subscribe_lazy("jobs").unwrap();
    let health = until(&mux, "the standby", |health| health.standby == Some(true)).await;
    assert_eq!(
        (health.state, health.delivery),
        (ListenState::Degraded, Delivery::Failed)
    );
    // Who waits is told, and not registered; who is patient stays.
    let refused = within("the refusal", mux.subscribe("jobs")).await;
    assert!(matches!(refused, Err(ListenError::Standby)), "{refused:?}");
    assert_eq!(mux.stats().subscriptions, 1);

    standby.promote().unwrap();
    until(&mux, "the promotion", |health| {
        health.is_listening() && health.standby == Some(false)
    })
    .await;
    within("ready", patient.ready()).await.unwrap();
    standby.psql("NOTIFY jobs, 'heard'").unwrap();
    assert_eq!(notification(&mut patient).await.payload(), "heard");
}

/// The listener moves with its settings: here, when the primary goes and the standby is promoted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_is_an_outage_like_any_other() {
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
    marker(&mut jobs).await;
    standby.psql("NOTIFY jobs, 'after'").unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "after");
}
