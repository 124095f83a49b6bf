//! Subscribing, receiving, and shutting down.

use doorbell::listen::{Delivery, ListenError, ListenMultiplexer, ListenState};
use testkit::within::within;
use throwaway_postgres::Database;

use crate::listen_support::{notification, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notifications_arrive_in_order() {
    let database = Database::fresh().unwrap();
    let mux = ListenMultiplexer::connect(&database.url()).await.unwrap();
    let health = mux.health();
    assert_eq!(
        (health.state, health.delivery),
        (ListenState::Healthy, Delivery::Verified)
    );
    assert!(!health.server.as_ref().unwrap().pooled);
    assert_eq!(health.standby, Some(false));

    let mut jobs = mux.subscribe("jobs").await.unwrap();
    let mut same = mux.subscribe("jobs").await.unwrap();
    let mut other = mux.subscribe("other").await.unwrap();
    database
        .psql("SELECT pg_notify('jobs', n::text) FROM generate_series(1, 500) n; NOTIFY other")
        .unwrap();
    for subscription in [&mut jobs, &mut same] {
        for n in 1..=500 {
            let job = notification(subscription).await;
            assert_eq!((job.channel(), job.payload()), ("jobs", n.to_string().as_str()));
        }
    }
    let empty = notification(&mut other).await;
    assert_eq!((empty.channel(), empty.payload()), ("other", ""));
    let stats = mux.stats();
    assert_eq!((stats.channels, stats.subscriptions), (2, 3));
    assert_eq!(
        (
            stats.listens,
            stats.notifications_received,
            stats.notifications_unrouted
        ),
        (2, 501, 0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notify_sends_over_the_listening_connection() {
    let database = Database::fresh().unwrap();
    let mux = ListenMultiplexer::connect(&database.url()).await.unwrap();
    let mut quotes = mux.subscribe("it's a \"test\" \\ ").await.unwrap();
    let payloads = ["", "it's \\n E'x' \"; DROP", "\u{1f514}\n", &"x".repeat(7999)];
    for payload in payloads {
        mux.notify("it's a \"test\" \\ ", payload).await.unwrap();
        assert_eq!(notification(&mut quotes).await.payload(), payload);
    }
    assert_eq!(mux.stats().notifications_sent, 4);
    assert!(matches!(
        mux.notify("jobs", &"x".repeat(8000)).await,
        Err(ListenError::InvalidPayload(_))
    ));
    assert!(matches!(mux.notify("", "x").await, Err(ListenError::InvalidChannel(_))));
    assert_eq!(mux.stats().notifications_sent, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_ends_subscriptions_and_the_session() {
    let database = Database::fresh().unwrap();
    let mux = ListenMultiplexer::builder()
        .url(&database.url())
        .application_name("shutdown test")
        .connect()
        .await
        .unwrap();
    let mut jobs = mux.subscribe("jobs").await.unwrap();
    mux.notify("jobs", "last").await.unwrap();
    within("the shutdown", mux.shutdown()).await;
    assert_eq!(mux.health().state, ListenState::Closed);
    assert_eq!(notification(&mut jobs).await.payload(), "last");
    assert!(within("the end", jobs.recv()).await.is_none());
    assert!(matches!(jobs.ready().await, Err(ListenError::ShutDown)));
    assert!(matches!(mux.subscribe("late").await, Err(ListenError::ShutDown)));
    assert!(matches!(mux.notify("jobs", "late").await, Err(ListenError::ShutDown)));
    let left = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'shutdown test'";
    within("the end of the backend", async {
        while database.psql(left).unwrap() != "0" {
            tokio::task::yield_now().await;
        }
    })
    .await;
    within("another shutdown", mux.shutdown()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_the_last_handle_ends_every_subscription() {
    let database = Database::fresh().unwrap();
    let mux = ListenMultiplexer::connect(&database.url()).await.unwrap();
    let mut jobs = mux.subscribe("jobs").await.unwrap();
    let other = mux.clone();
    drop(mux);
    other.notify("jobs", "still there").await.unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "still there");
    drop(other);
    assert!(within("the end", jobs.recv()).await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lazy_subscription_receives_once_it_is_ready() {
    let database = Database::fresh().unwrap();
    let mux = ListenMultiplexer::builder().url(&database.url()).start().unwrap();
    let mut jobs = mux.subscribe_lazy("jobs").unwrap();
    within("ready", jobs.ready()).await.unwrap();
    database.psql("NOTIFY jobs, 'one'").unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "one");
    until(&mux, "the listening state", |health| health.is_listening()).await;
}
