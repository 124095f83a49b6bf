//! Where no notification can arrive, the bus polls, reports why, and recovers.

use std::sync::Arc;
use std::time::Duration;

use doorbell::bus::{BusState, DistributedBus, EventBus as _};
use doorbell::store::PostgresStore;
use throwaway_postgres::{Pooler, Server};

use crate::bus_support::{bus, event, expect, listener, note, until};

/// A bus whose store uses the pooler.
async fn behind(pooler: &Pooler, listen_url: &str) -> DistributedBus {
    let store = PostgresStore::builder()
        .transaction_pooler(true)
        .connect(&pooler.url())
        .await
        .unwrap();
    DistributedBus::builder(Arc::new(store))
        .url(&pooler.url())
        // Behind a pooler the heartbeat may meet another session than the LISTEN did. By default it comes after the probe.
        .listen_url(listen_url)
        .sweep_interval(crate::bus_support::NEVER)
        .poll_interval(Duration::from_millis(50))
        .start()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p10_behind_a_transaction_pooler_events_arrive_by_polling() {
    let server = Server::start().unwrap();
    let there = bus(&server.url()).await;
    let pooler = Pooler::transaction_mode(&server).unwrap();
    let bus = behind(&pooler, &pooler.url()).await;
    let health = until(&bus, BusState::Polling).await;
    let reason = health.reason.unwrap().to_string();
    assert!(reason.contains("pooler"), "{reason}");
    let mut all = bus.subscribe_all();
    let mut one = bus.subscribe("agent-1");
    all.ready().await.unwrap();
    one.ready().await.unwrap();
    let mut theirs = there.subscribe_all_ready().await.unwrap();
    for seq in 1..=20 {
        // Alternately from outside and from behind the pooler: notifications can be sent through it.
        let from = if seq % 2 == 0 { &there } else { &bus };
        from.append_and_publish(note("agent-1", "hello")).await.unwrap();
        for subscription in [&mut all, &mut one, &mut theirs] {
            expect(subscription, "agent-1", seq..=seq).await;
        }
    }
    assert_eq!(bus.health().since, health.since, "one change of state");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p10_a_listener_that_bypasses_the_pooler_gets_notifications() {
    let server = Server::start().unwrap();
    let there = bus(&server.url()).await;
    let pooler = Pooler::transaction_mode(&server).unwrap();
    let bus = behind(&pooler, &server.url()).await;
    let mut all = bus.subscribe_all_ready().await.unwrap();
    until(&bus, BusState::Live).await;
    for seq in 1..=20 {
        let from = if seq % 2 == 0 { &there } else { &bus };
        from.append_and_publish(note("agent-1", "hello")).await.unwrap();
        expect(&mut all, "agent-1", seq..=seq).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p10_on_a_hot_standby_events_arrive_by_polling_and_by_notification_once_it_is_promoted() {
    let primary = Server::start().unwrap();
    let there = bus(&primary.url()).await;
    let standby = primary.standby().unwrap();
    primary.wait_for_standby(&standby).unwrap();
    let store = Arc::new(PostgresStore::connect(&standby.url()).await.unwrap());
    let bus = DistributedBus::builder(store)
        .url(&standby.url())
        .listen(listener(&standby.url()))
        .sweep_interval(crate::bus_support::NEVER)
        .poll_interval(Duration::from_millis(50))
        .start()
        .unwrap();
    let health = until(&bus, BusState::Polling).await;
    let reason = health.reason.unwrap().to_string();
    assert!(reason.contains("standby"), "{reason}");
    let mut all = bus.subscribe_all();
    let mut one = bus.subscribe("agent-1");
    all.ready().await.unwrap();
    one.ready().await.unwrap();
    for seq in 1..=10 {
        there.append_and_publish(note("agent-1", "hello")).await.unwrap();
        expect(&mut one, "agent-1", seq..=seq).await;
        expect(&mut all, "agent-1", seq..=seq).await;
    }
    assert!(
        bus.append_and_publish(note("agent-1", "no")).await.is_err(),
        "a standby takes no writes"
    );
    assert!(bus.subscribe_all_ready().await.is_err(), "nor a LISTEN");
    assert_eq!(bus.health().state, BusState::Polling);
    drop(there);
    standby.promote().unwrap();
    until(&bus, BusState::Live).await;
    for seq in 11..=20 {
        let stamped = bus.append_and_publish(note("agent-1", "hello")).await.unwrap();
        assert_eq!(*event(&mut one).await, stamped);
        expect(&mut all, "agent-1", seq..=seq).await;
    }
    assert_eq!(bus.stats().rewinds, 0, "it is the same history");
}
