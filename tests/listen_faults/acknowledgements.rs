//! What becomes of those who wait for an acknowledgement that does not come.

use std::time::Duration;

use doorbell::listen::{ListenError, ListenMultiplexer, ListenState};
use throwaway_postgres::Server;

use crate::proxy::{Proxy, Verdict};
use crate::support::{notification, until, within};

/// P5, and its opposite: of two who wait for one acknowledgement, both learn of the refusal, and neither stays registered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p5_all_who_wait_share_the_refusal() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(server.port()).await;
    let mux = ListenMultiplexer::connect(&proxy.url("postgres")).await.unwrap();
    proxy.on(
        "LISTEN \"jobs\"",
        [Verdict::Refuse("53200", "out of memory, says the proxy")],
    );

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

    // Who comes later starts anew, and is not told of the old refusal.
    let mut jobs = within("a later one", mux.subscribe("jobs")).await.unwrap();
    server.psql("NOTIFY jobs, 'heard'").unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "heard");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p5_a_lost_connection_is_waited_out_by_all() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(server.port()).await;
    let mux = ListenMultiplexer::connect(&proxy.url("postgres")).await.unwrap();
    proxy.on("LISTEN \"jobs\"", [Verdict::Cut, Verdict::Cut]);

    let (one, other) = within("both", async {
        tokio::join!(mux.subscribe("jobs"), mux.subscribe("jobs"))
    })
    .await;
    let (mut one, mut other) = (one.unwrap(), other.unwrap());
    assert_eq!(proxy.connections(), 3);
    server.psql("NOTIFY jobs, 'heard'").unwrap();
    // Neither was listening before, so neither has missed anything.
    assert_eq!(notification(&mut one).await.payload(), "heard");
    assert_eq!(notification(&mut other).await.payload(), "heard");
}

/// One refused channel is no reason to refuse others that were asked for with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_channel_does_not_hurt_its_neighbours() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(server.port()).await;
    let refusal = Verdict::Refuse("53200", "out of memory, says the proxy");
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
    server.psql("NOTIFY good, 'heard'").unwrap();
    assert_eq!(notification(&mut good).await.payload(), "heard");
    // It stays registered, and is asked for again.
    within("bad at last", async {
        while bad.ready().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wait_for_an_acknowledgement_has_a_limit_and_leaves_nothing() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(server.port()).await;
    let mux = ListenMultiplexer::builder()
        .url(&proxy.url("postgres"))
        .subscribe_timeout(Duration::from_millis(200))
        .connect()
        .await
        .unwrap();
    proxy.fall_silent();
    let limited = within("the limit", mux.subscribe("jobs")).await;
    assert!(matches!(limited, Err(ListenError::NotReady { .. })), "{limited:?}");
    assert_eq!(mux.stats().subscriptions, 0);
}

/// A future dropped while the statement is on its way rolls its registration back, and the server's too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_future_leaves_no_registration() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(server.port()).await;
    let mux = ListenMultiplexer::builder()
        .url(&proxy.url("postgres"))
        .unlisten_delay(Duration::ZERO)
        .connect()
        .await
        .unwrap();
    proxy.fall_silent();
    {
        let mut subscribing = std::pin::pin!(mux.subscribe("jobs"));
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(subscribing.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
        assert_eq!(mux.stats().subscriptions, 1);
    }
    assert_eq!(mux.stats().subscriptions, 0);
    proxy.speak_again();
    // What the server heard of it, it hears taken back; or it never heard of it.
    let other = within("another channel", mux.subscribe("other")).await.unwrap();
    within("quiet", async {
        while mux.stats().listens - mux.stats().unlistens != 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    drop(other);
}

/// Trap 20: LISTEN fails until the server's notification queue is advanced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advances_the_queue_when_listen_fails_on_it() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(server.port()).await;
    let mux = ListenMultiplexer::connect(&proxy.url("postgres")).await.unwrap();
    proxy.on(
        "LISTEN \"jobs\"",
        [Verdict::Refuse(
            "58P01",
            "could not access status of transaction 1234567",
        )],
    );
    let mut jobs = within("the subscription", mux.subscribe("jobs")).await.unwrap();
    assert_eq!(proxy.seen("pg_notification_queue_usage"), 1);
    server.psql("NOTIFY jobs, 'heard'").unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "heard");
}

/// The same, when the remedy does not help: the health says so, also to those who do not wait for an acknowledgement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_beyond_remedy_shows_in_the_health() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(server.port()).await;
    let trouble = Verdict::Refuse("58P01", "could not access status of transaction 1234567");
    proxy.on("LISTEN \"jobs\"", vec![trouble; 4]);
    let mux = ListenMultiplexer::connect(&proxy.url("postgres")).await.unwrap();
    let mut jobs = mux.subscribe_lazy("jobs").unwrap();
    let deaf = until(&mux, "deafness", |health| health.state == ListenState::Degraded).await;
    assert!(matches!(deaf.reason, Some(ListenError::Listen { .. })), "{deaf:?}");
    assert_eq!(proxy.seen("pg_notification_queue_usage"), 3);
    // It is asked again after some seconds.
    let health = until(&mux, "health", |health| health.state == ListenState::Healthy).await;
    assert!(health.reason.is_none());
    server.psql("NOTIFY jobs, 'heard'").unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "heard");
}
