//! The clustered bus against a real server.

use std::sync::Arc;
use std::time::Duration;

use doorbell::bus::{BusEvent, BusState, DistributedBus, EventBus, FleetEvent};
use doorbell::store::MemoryStore;
use futures::StreamExt;
use throwaway_postgres::Database;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(10);

async fn next(subscription: &mut doorbell::bus::BusSubscription) -> BusEvent {
    timeout(SOON, subscription.next())
        .await
        .expect("an event comes")
        .expect("the bus is open")
}

fn note(agent: &str, text: &str) -> FleetEvent {
    FleetEvent::custom(agent, "note", text)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_buses_over_one_store() {
    let database = Database::fresh().unwrap();
    let store = Arc::new(MemoryStore::new());
    let here = DistributedBus::connect(&database.url(), store.clone()).await.unwrap();
    let there = DistributedBus::connect(&database.url(), store.clone()).await.unwrap();
    let mut all = there.subscribe_all_ready().await.unwrap();
    let mut one = there.subscribe("agent-1");
    one.ready().await.unwrap();

    for n in 0..100 {
        let stamped = here
            .append_and_publish(note(&format!("agent-{}", n % 2), "hello"))
            .await
            .unwrap();
        let BusEvent::Event(event) = next(&mut all).await else {
            panic!()
        };
        assert_eq!(*event, stamped);
    }
    for seq in 1..=50 {
        let BusEvent::Event(event) = next(&mut one).await else {
            panic!()
        };
        assert_eq!((event.agent_id.as_str(), event.seq), ("agent-1", seq));
    }
    assert_eq!(there.health().state, BusState::Live);
    println!("{:?}", there.stats());
    here.shutdown().await;
    drop(there);
    assert_eq!(timeout(SOON, all.next()).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_earlier_event_is_delivered_when_its_notification_arrives() {
    let database = Database::fresh().unwrap();
    let store = Arc::new(MemoryStore::new());
    let bus = DistributedBus::connect(&database.url(), store.clone()).await.unwrap();
    store.append_now(note("agent-1", "before")).unwrap();
    let mut all = bus.subscribe_all_ready().await.unwrap();
    database
        .psql("SELECT pg_notify('doorbell', 'agent-1:1'), pg_notify('doorbell', 'agent-2:1')")
        .unwrap();
    let BusEvent::Event(event) = next(&mut all).await else {
        panic!()
    };
    assert_eq!((event.agent_id.as_str(), event.seq), ("agent-1", 1));
    database.psql("SELECT pg_notify('doorbell', 'agent-1:1')").unwrap();
    bus.append_and_publish(note("agent-1", "after")).await.unwrap();
    let BusEvent::Event(event) = next(&mut all).await else {
        panic!()
    };
    assert_eq!(event.seq, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn terminating_the_listener_loses_nothing() {
    let database = Database::fresh().unwrap();
    let store = Arc::new(MemoryStore::new());
    let bus = DistributedBus::connect(&database.url(), store.clone()).await.unwrap();
    let mut one = bus.subscribe("agent-1");
    one.ready().await.unwrap();
    for n in 1..=200_u64 {
        if n % 50 == 0 {
            database
                .psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
                .unwrap();
        }
        store.append_now(note("agent-1", "hello")).unwrap();
        let _ = database.psql(&format!("SELECT pg_notify('doorbell', 'agent-1:{n}')"));
    }
    for seq in 1..=200 {
        let BusEvent::Event(event) = next(&mut one).await else {
            panic!()
        };
        assert_eq!(event.seq, seq);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connecting_fails_at_once_if_the_server_refuses() {
    let database = Database::fresh().unwrap();
    let url = database.url().replace(database.name(), "no_such_database");
    let refused = timeout(
        Duration::from_secs(5),
        DistributedBus::connect(&url, Arc::new(MemoryStore::new())),
    );
    let error = refused
        .await
        .expect("long before the time limit of the LISTEN")
        .unwrap_err();
    assert!(error.to_string().contains("no_such_database"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn history_is_complete_without_notifications() {
    let database = Database::fresh().unwrap();
    let store = Arc::new(MemoryStore::new());
    let builder = DistributedBus::builder(store.clone()).url(&database.url());
    let bus = builder
        .sweep_interval(Duration::from_secs(3600))
        .connect()
        .await
        .unwrap();
    let live = bus.subscribe("agent-1");
    live.ready().await.unwrap();
    store.append_now(note("agent-1", "no notification")).unwrap();
    store.append_now(note("agent-1", "for these")).unwrap();
    let mut history = bus.subscribe_from("agent-1", 0);
    for seq in 1..=2 {
        let BusEvent::Event(event) = next(&mut history).await else {
            panic!()
        };
        assert_eq!(event.seq, seq);
    }
}
