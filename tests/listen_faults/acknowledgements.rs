//! Subscribing when the server refuses, or does not answer.

use std::time::Duration;

use doorbell::listen::{ListenError, ListenMultiplexer, ListenState};
use testkit::proxy::{Fault, Proxy};
use testkit::within::within;
use throwaway_postgres::Server;

use crate::listen_support::{notification, until};

/// P5: both callers get the refusal, and neither stays registered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p5_concurrent_subscribers_share_a_refusal() {
    let server = Server::start().unwrap();
    let proxy = Proxy::start(server.port()).await.unwrap();
    let mux = ListenMultiplexer::connect(&proxy.url("postgres")).await.unwrap();
    proxy.on("LISTEN \"jobs\"", [Fault::Refuse("53200", "out of memory (injected)")]);

    let (one, other) = within("both", async {
        tokio::join!(mux.subscribe("jobs"), mux.subscribe("jobs"))
    })
    .await;
    for refused in [one, other] {
        let Err(ListenError::Listen { channel, error }) = refused else {
            panic!("expected a refusal, got {refused:?}");
        };
        assert_eq!((channel.as_str(), error.sqlstate()), ("jobs", Some("53200")));
    }
    let stats = mux.stats();
    assert_eq!((stats.refused_listens, stats.subscriptions), (1, 0));
    assert_eq!(proxy.seen("LISTEN \"jobs\""), 1);

    // A later subscriber does not get the earlier refusal.
    let mut jobs = within("a later subscription", mux.subscribe("jobs")).await.unwrap();
    server.psql("NOTIFY jobs, 'hello'").unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "hello");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p5_concurrent_subscribers_wait_through_a_lost_connection() {
    let server = Server::start().unwrap();
    let proxy = Proxy::start(server.port()).await.unwrap();
    let mux = ListenMultiplexer::connect(&proxy.url("postgres")).await.unwrap();
    proxy.on("LISTEN \"jobs\"", [Fault::Cut, Fault::Cut]);

    let (one, other) = within("both", async {
        tokio::join!(mux.subscribe("jobs"), mux.subscribe("jobs"))
    })
    .await;
    let (mut one, mut other) = (one.unwrap(), other.unwrap());
    assert_eq!(proxy.connections(), 3);
    server.psql("NOTIFY jobs, 'hello'").unwrap();
    // Neither was acknowledged before, so neither gets `Reconnected`.
    assert_eq!(notification(&mut one).await.payload(), "hello");
    assert_eq!(notification(&mut other).await.payload(), "hello");
}

/// The server refuses a batch as a whole because of one channel.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_channel_does_not_affect_others_in_its_batch() {
    let server = Server::start().unwrap();
    let proxy = Proxy::start(server.port()).await.unwrap();
    let refusal = Fault::Refuse("53200", "out of memory (injected)");
    proxy.on("LISTEN \"bad\"", [refusal.clone(), refusal]);
    let mux = ListenMultiplexer::builder()
        .url(&proxy.url("postgres"))
        .start()
        .unwrap();
    let mut good = mux.subscribe_lazy("good").unwrap();
    let bad = mux.subscribe_lazy("bad").unwrap();
    within("good", good.ready()).await.unwrap();
    assert!(matches!(
        within("bad", bad.ready()).await,
        Err(ListenError::Listen { .. })
    ));
    server.psql("NOTIFY good, 'hello'").unwrap();
    assert_eq!(notification(&mut good).await.payload(), "hello");
    // The subscription stays, and the LISTEN is repeated.
    within("the repeated LISTEN", async {
        while bad.ready().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribe_times_out_and_leaves_no_registration() {
    let server = Server::start().unwrap();
    let proxy = Proxy::start(server.port()).await.unwrap();
    let mux = ListenMultiplexer::builder()
        .url(&proxy.url("postgres"))
        .subscribe_timeout(Duration::from_millis(200))
        .connect()
        .await
        .unwrap();
    proxy.freeze();
    let limited = within("the limit", mux.subscribe("jobs")).await;
    assert!(matches!(limited, Err(ListenError::NotReady { .. })), "{limited:?}");
    assert_eq!(mux.stats().subscriptions, 0);
}

/// A future dropped while its LISTEN is in flight rolls back the registration, in the process and on the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_subscribe_future_leaves_no_registration() {
    let server = Server::start().unwrap();
    let proxy = Proxy::start(server.port()).await.unwrap();
    let mux = ListenMultiplexer::builder()
        .url(&proxy.url("postgres"))
        .unlisten_delay(Duration::ZERO)
        .connect()
        .await
        .unwrap();
    proxy.freeze();
    {
        let mut subscribing = std::pin::pin!(mux.subscribe("jobs"));
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(subscribing.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
        assert_eq!(mux.stats().subscriptions, 1);
    }
    assert_eq!(mux.stats().subscriptions, 0);
    proxy.thaw();
    // If the LISTEN reached the server, an UNLISTEN follows.
    let other = within("another channel", mux.subscribe("other")).await.unwrap();
    within("the UNLISTEN", async {
        while mux.stats().listens - mux.stats().unlistens != 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    drop(other);
}

/// LISTEN fails until the server's notification queue is advanced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_notification_queue_is_advanced() {
    let server = Server::start().unwrap();
    let proxy = Proxy::start(server.port()).await.unwrap();
    let mux = ListenMultiplexer::connect(&proxy.url("postgres")).await.unwrap();
    proxy.on(
        "LISTEN \"jobs\"",
        [Fault::Refuse("58P01", "could not access status of transaction 1234567")],
    );
    let mut jobs = within("the subscription", mux.subscribe("jobs")).await.unwrap();
    assert_eq!(proxy.seen("pg_notification_queue_usage"), 1);
    server.psql("NOTIFY jobs, 'hello'").unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "hello");
}

/// If advancing the queue does not help, the health reports it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_stays_damaged_degrades_the_health() {
    let server = Server::start().unwrap();
    let proxy = Proxy::start(server.port()).await.unwrap();
    let damaged = Fault::Refuse("58P01", "could not access status of transaction 1234567");
    proxy.on("LISTEN \"jobs\"", vec![damaged; 4]);
    let mux = ListenMultiplexer::connect(&proxy.url("postgres")).await.unwrap();
    let mut jobs = mux.subscribe_lazy("jobs").unwrap();
    let degraded = until(&mux, "the degraded state", |health| {
        health.state == ListenState::Degraded
    })
    .await;
    assert!(
        matches!(degraded.reason, Some(ListenError::Listen { .. })),
        "{degraded:?}"
    );
    assert_eq!(proxy.seen("pg_notification_queue_usage"), 3);
    // The LISTEN is repeated after 5 s.
    let health = until(&mux, "the recovery", |health| health.state == ListenState::Healthy).await;
    assert!(health.reason.is_none());
    server.psql("NOTIFY jobs, 'hello'").unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "hello");
}
