//! Races between starts, subscriptions, commits and cancellations.

use std::sync::Arc;
use std::time::Duration;

use doorbell::bus::{BusError, DistributedBus, EventBus as _, FleetEvent};
use doorbell::store::Store as _;
use futures::FutureExt as _;
use testkit::within::eventually;
use throwaway_postgres::Database;

use crate::bus_support::progress::Progress;
use crate::bus_support::{builder, bus, event, expect, expect_nothing, held, note, store};

/// Subscriptions of every kind start with the bus while events are committed. Each delivers every event that was committed after it
/// was ready, once and in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriptions_race_with_the_start_and_with_commits() {
    let database = Database::fresh().unwrap();
    let store = store(&database.url()).await;
    let there = bus(&database.url()).await;
    let writer = tokio::spawn({
        let there = there.clone();
        async move {
            for _ in 0..400 {
                there.append_and_publish(note("agent-1", "hello")).await.unwrap();
            }
        }
    });
    let mut subscribers = Vec::new();
    for _ in 0..10 {
        let here = builder(&database.url(), &store).start().unwrap();
        for kind in 0..4 {
            let (here, store) = (here.clone(), store.clone());
            subscribers.push(tokio::spawn(async move {
                let mut subscription = match kind {
                    0 => here.subscribe("agent-1"),
                    1 => here.subscribe_all(),
                    2 => here.subscribe_all_ready().await.unwrap(),
                    _ => here.subscribe_from("agent-1", 0),
                };
                subscription.ready().await.unwrap();
                let at_ready = store.high_water("agent-1").await.unwrap();
                let mut last = None;
                while last != Some(400) {
                    let event = event(&mut subscription).await;
                    match last {
                        None if kind == 3 => assert_eq!(event.seq, 1),
                        None => assert!(event.seq <= at_ready + 1, "{} after {at_ready}", event.seq),
                        Some(last) => assert_eq!(event.seq, last + 1),
                    }
                    last = Some(event.seq);
                    if kind != 3 && event.seq < 400 && at_ready == 400 {
                        break;
                    }
                }
            }));
        }
    }
    writer.await.unwrap();
    // One more event for subscriptions that became ready after the last one.
    there.append_and_publish(note("agent-2", "end")).await.unwrap();
    for subscriber in subscribers {
        let subscriber = tokio::time::timeout(Duration::from_secs(20), subscriber).await;
        match subscriber {
            Ok(done) => done.unwrap(),
            Err(_) => panic!("a subscriber did not get a committed event"),
        }
    }
}

/// Cancels `ready` and `subscribe_all_ready` a thousand times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_subscriptions_leave_nothing_behind() {
    let database = Database::fresh().unwrap();
    let bus = bus(&database.url()).await;
    for n in 0..1000 {
        let subscription = bus.subscribe(&format!("agent-{n}"));
        assert!(subscription.ready().now_or_never().is_none_or(|ready| ready.is_ok()));
        if n % 2 == 0 {
            drop(subscription);
        } else {
            tokio::spawn(async move { subscription.ready().await });
        }
        let all = bus.subscribe_all_ready();
        drop(tokio::time::timeout(Duration::from_micros(n), all).await);
    }
    eventually("the end of all subscriptions", || held(&bus).1 == 0).await;
    let mut one = bus.subscribe("agent-1");
    one.ready().await.unwrap();
    bus.append_and_publish(note("agent-1", "hello")).await.unwrap();
    expect(&mut one, "agent-1", 1..=1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_buses_in_one_process_get_each_others_events() {
    const MANY: usize = 20;
    let database = Database::fresh().unwrap();
    let store = store(&database.url()).await;
    let mut buses = Vec::new();
    let mut readers = Vec::new();
    for _ in 0..MANY {
        let bus = builder(&database.url(), &store).connect().await.unwrap();
        readers.push(Progress::of(bus.subscribe_all_ready().await.unwrap(), 1));
        buses.push(bus);
    }
    let writers = buses.iter().map(|bus| async move {
        for _ in 0..10 {
            bus.append_and_publish(note("agent-1", "hello")).await.unwrap();
        }
    });
    futures::future::join_all(writers).await;
    for reader in &mut readers {
        reader.reaches("agent-1", 10 * MANY as u64).await;
    }
}

/// Each schema has its own channel, without any setting: in Rust, and in the SQL functions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buses_over_different_schemas_do_not_meet() {
    let database = Database::fresh().unwrap();
    let long = "ä".repeat(31);
    let schemas = ["doorbell", "other", "the \"third\"", &long];
    let mut buses = Vec::new();
    for schema in schemas {
        let store = doorbell::store::PostgresStore::builder().schema(schema).unwrap();
        let store = store.connect(&database.url()).await.unwrap();
        store.migrate().await.unwrap();
        let bus = builder(&database.url(), &Arc::new(store)).connect().await.unwrap();
        let all = bus.subscribe_all_ready().await.unwrap();
        buses.push((bus, all));
    }
    for (schema, (_, all)) in schemas.iter().zip(&mut buses) {
        let quoted = schema.replace('"', "\"\"");
        database
            .psql(&format!(
                "SELECT \"{quoted}\".append('agent-1', '{{\"agent_id\": \"agent-1\", \"type\": \"agent_connected\"}}', notify => true)"
            ))
            .unwrap();
        expect(all, "agent-1", 1..=1).await;
    }
    for (bus, all) in &mut buses {
        bus.append_and_publish(note("agent-1", "hello")).await.unwrap();
        expect(all, "agent-1", 2..=2).await;
    }
    eventually("arrival of all notifications", || {
        buses.iter().all(|(bus, _)| bus.stats().notifications_received >= 2)
    })
    .await;
    for (bus, all) in &mut buses {
        let stats = bus.stats();
        assert_eq!((stats.notifications_received, stats.notifications_invalid), (2, 0));
        expect_nothing(all);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bus_on_another_channel_than_its_store_is_refused() {
    let pool = || sqlx::PgPool::connect_lazy("postgres://localhost:1/nowhere").unwrap();
    let store = |channel| {
        let builder = doorbell::store::PostgresStore::<FleetEvent>::builder();
        Arc::new(builder.channel(channel).build(pool()))
    };
    let refused = DistributedBus::builder(store("one"))
        .pool(pool())
        .channel("other")
        .start();
    let BusError::ChannelMismatch { bus, store: of_store } = refused.unwrap_err() else {
        panic!("another error")
    };
    assert_eq!((bus.as_str(), of_store.as_str()), ("other", "one"));
    DistributedBus::builder(store("one"))
        .pool(pool())
        .channel("one")
        .start()
        .unwrap();
    DistributedBus::builder(store("one")).pool(pool()).start().unwrap();
}
