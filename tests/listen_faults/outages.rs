//! Lost connections: everybody is told, in order, and listens again.

use doorbell::listen::{ListenError, ListenMultiplexer, ListenState};
use throwaway_postgres::{Server, Stop};

use crate::support::{backend, marker, notification, until, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_a_terminated_backend_is_replaced_and_everybody_told() {
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
        // No notification is needed to bring about the repair.
        for subscription in &mut subscriptions {
            let marker = marker(subscription).await;
            assert_eq!(marker.reconnects, round);
            assert!(marker.lost_at <= marker.restored_at);
        }
        server.psql("NOTIFY jobs, 'after'; NOTIFY news, 'after'").unwrap();
        for subscription in &mut subscriptions {
            assert_eq!(notification(subscription).await.payload(), "after");
        }
        let health = until(&mux, "health", |health| health.state == ListenState::Healthy).await;
        assert!(health.reason.is_none());
    }
    assert_eq!(mux.stats().losses, 3);
    // The reason of an outage is the server's own word for it.
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
async fn p2_an_immediate_restart_is_survived() {
    let server = Server::start().unwrap();
    let mux = ListenMultiplexer::connect(&server.url()).await.unwrap();
    let mut jobs = mux.subscribe("jobs").await.unwrap();
    server.stop(Stop::Immediate).unwrap();
    let lost = until(&mux, "the loss", |health| health.state == ListenState::Disconnected).await;
    assert!(lost.server.is_none());
    // Somebody subscribes during the outage, and waits it out.
    let late = mux.subscribe("late");
    let (late, started) = tokio::join!(late, async { server.start_again() });
    started.unwrap();
    let mut late = late.unwrap();
    marker(&mut jobs).await;
    server.psql("NOTIFY jobs, 'after'; NOTIFY late, 'after'").unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "after");
    // It had nothing to miss.
    assert_eq!(notification(&mut late).await.payload(), "after");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_during_an_outage_is_quick() {
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

/// A notification whose connection is lost is an error, and one that finds no connection waits for the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notify_waits_for_the_end_of_an_outage() {
    let server = Server::start().unwrap();
    let mux = ListenMultiplexer::connect(&server.url()).await.unwrap();
    let mut jobs = mux.subscribe("jobs").await.unwrap();
    server.stop(Stop::Fast).unwrap();
    until(&mux, "the loss", |health| health.state == ListenState::Disconnected).await;
    let (notified, started) = tokio::join!(mux.notify("jobs", "waited"), async { server.start_again() });
    started.unwrap();
    notified.unwrap();
    marker(&mut jobs).await;
    assert_eq!(notification(&mut jobs).await.payload(), "waited");
}

/// A marker is an item like any other: a subscriber that sleeps through outages finds them in order with the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn markers_are_in_order_with_notifications() {
    let server = Server::start().unwrap();
    let mux = ListenMultiplexer::connect(&server.url()).await.unwrap();
    let mut jobs = mux.subscribe("jobs").await.unwrap();
    for round in 0..4_u32 {
        server.psql(&format!("NOTIFY jobs, '{round}'")).unwrap();
        let seen = u64::from(round) + 1;
        within("the notification", async {
            while mux.stats().notifications < seen {
                tokio::task::yield_now().await;
            }
        })
        .await;
        server.terminate_backend(backend(&mux).await).unwrap();
        let mut changes = mux.health_changes();
        within("the next connection", async {
            while mux.stats().connects < seen + 1 {
                changes.changed().await.unwrap();
            }
        })
        .await;
    }
    for round in 0..4_u32 {
        assert_eq!(notification(&mut jobs).await.payload(), round.to_string());
        assert_eq!(marker(&mut jobs).await.reconnects, u64::from(round) + 1);
    }
    assert!(jobs.try_recv().is_err());
}
