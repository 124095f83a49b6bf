//! Lost connections: every subscription gets `Reconnected`, in order, and then notifications again.

use doorbell::listen::{ListenError, ListenMultiplexer, ListenState};
use testkit::within::within;
use throwaway_postgres::{Server, Stop};

use crate::listen_support::{backend, notification, reconnected, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_reconnects_after_backend_termination_and_notifies_every_subscription() {
    let server = Server::start().unwrap();
    let mux = ListenMultiplexer::connect(&server.url()).await.unwrap();
    let mut subscriptions = vec![
        mux.subscribe("jobs").await.unwrap(),
        mux.subscribe("jobs").await.unwrap(),
        mux.subscribe("news").await.unwrap(),
    ];
    let mut changes = mux.health_changes();
    for round in 1..=3 {
        server.psql("NOTIFY jobs, 'before'; NOTIFY news, 'before'").unwrap();
        for subscription in &mut subscriptions {
            assert_eq!(notification(subscription).await.payload(), "before");
        }
        server.terminate_backend(backend(&mux).await).unwrap();
        // Reconnecting does not take a notification.
        for subscription in &mut subscriptions {
            let item = reconnected(subscription).await;
            assert_eq!(item.reconnects, round);
            assert!(item.disconnected_at <= item.reconnected_at);
        }
        server.psql("NOTIFY jobs, 'after'; NOTIFY news, 'after'").unwrap();
        for subscription in &mut subscriptions {
            assert_eq!(notification(subscription).await.payload(), "after");
        }
        let health = until(&mux, "the recovery", |health| health.state == ListenState::Healthy).await;
        assert!(health.reason.is_none());
    }
    assert_eq!(mux.stats().disconnects, 3);
    // The health's reason is the server's error.
    server.terminate_backend(backend(&mux).await).unwrap();
    let lost = within("the loss", async {
        loop {
            let health = changes.changed().await.unwrap();
            if health.state == ListenState::Disconnected {
                return health;
            }
        }
    })
    .await;
    assert!(matches!(lost.reason, Some(ListenError::Lost(_))), "{lost:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p2_reconnects_after_an_immediate_restart() {
    let server = Server::start().unwrap();
    let mux = ListenMultiplexer::connect(&server.url()).await.unwrap();
    let mut jobs = mux.subscribe("jobs").await.unwrap();
    server.stop(Stop::Immediate).unwrap();
    let lost = until(&mux, "the loss", |health| health.state == ListenState::Disconnected).await;
    assert!(lost.server.is_none());
    // A subscription made during the outage waits for its end.
    let late = mux.subscribe("late");
    let (late, started) = tokio::join!(late, async { server.start_again() });
    started.unwrap();
    let mut late = late.unwrap();
    reconnected(&mut jobs).await;
    server.psql("NOTIFY jobs, 'after'; NOTIFY late, 'after'").unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "after");
    // It was not acknowledged before, so it gets no `Reconnected`.
    assert_eq!(notification(&mut late).await.payload(), "after");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_during_an_outage_is_quick() {
    let server = Server::start().unwrap();
    let mux = ListenMultiplexer::connect(&server.url()).await.unwrap();
    let mut jobs = mux.subscribe("jobs").await.unwrap();
    server.stop(Stop::Fast).unwrap();
    until(&mux, "the loss", |health| health.state == ListenState::Disconnected).await;
    let started = std::time::Instant::now();
    within("the shutdown", mux.shutdown()).await;
    assert!(started.elapsed().as_secs() < 1);
    assert!(jobs.recv().await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notify_waits_through_an_outage() {
    let server = Server::start().unwrap();
    let mux = ListenMultiplexer::connect(&server.url()).await.unwrap();
    let mut jobs = mux.subscribe("jobs").await.unwrap();
    server.stop(Stop::Fast).unwrap();
    until(&mux, "the loss", |health| health.state == ListenState::Disconnected).await;
    let (notified, started) = tokio::join!(mux.notify("jobs", "waited"), async { server.start_again() });
    started.unwrap();
    notified.unwrap();
    reconnected(&mut jobs).await;
    assert_eq!(notification(&mut jobs).await.payload(), "waited");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reconnected_items_are_in_order_with_notifications() {
    let server = Server::start().unwrap();
    let mux = ListenMultiplexer::connect(&server.url()).await.unwrap();
    let mut jobs = mux.subscribe("jobs").await.unwrap();
    for round in 0..4_u32 {
        server.psql(&format!("NOTIFY jobs, '{round}'")).unwrap();
        let received = u64::from(round) + 1;
        within("the notification", async {
            while mux.stats().notifications_received < received {
                tokio::task::yield_now().await;
            }
        })
        .await;
        server.terminate_backend(backend(&mux).await).unwrap();
        let mut changes = mux.health_changes();
        within("the next connection", async {
            while mux.stats().connects < received + 1 {
                changes.changed().await.unwrap();
            }
        })
        .await;
    }
    for round in 0..4_u32 {
        assert_eq!(notification(&mut jobs).await.payload(), round.to_string());
        assert_eq!(reconnected(&mut jobs).await.reconnects, u64::from(round) + 1);
    }
    assert!(jobs.try_recv().is_err());
}
