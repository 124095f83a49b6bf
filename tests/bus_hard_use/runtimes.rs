//! Missing, foreign and ending runtimes.

use std::sync::Arc;
use std::time::Duration;

use doorbell::bus::{BusError, BusEvent, DistributedBus, EventBus as _, FleetEvent};
use doorbell::listen::ListenError;
use doorbell::store::{PostgresStore, Store as _, StoreError};
use testkit::within::LIMIT;
use throwaway_postgres::Database;

use crate::bus_support::{bus, event, expect, note};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// The bus is created, subscribed to and published on outside a runtime, and starts with the first call inside one.
#[test]
fn a_bus_made_outside_a_runtime_waits_for_one() {
    let database = Database::fresh().unwrap();
    let runtime = runtime();
    let store = runtime.block_on(async {
        let store = PostgresStore::connect(&database.url()).await.unwrap();
        store.migrate().await.unwrap();
        Arc::new(store)
    });
    let bus = DistributedBus::builder(store).url(&database.url()).start().unwrap();
    let mut all = bus.subscribe_all();
    let mut one = bus.subscribe("agent-1");
    let mut published = note("agent-1", "not in the store yet");
    published.seq = 1;
    bus.publish(published);
    assert!(matches!(bus.start(), Err(BusError::NoRuntime)));
    runtime.block_on(async {
        bus.start().unwrap();
        all.ready().await.unwrap();
        one.ready().await.unwrap();
        bus.append_and_publish(note("agent-1", "hello")).await.unwrap();
        expect(&mut all, "agent-1", 1..=1).await;
        expect(&mut one, "agent-1", 1..=1).await;
    });
}

/// Nothing panics, and nothing is written.
#[test]
fn p42_the_store_and_the_listener_outside_a_runtime_return_a_typed_error() {
    let database = Database::fresh().unwrap();
    let runtime = runtime();
    let (store, listener) = runtime.block_on(async {
        let listener = doorbell::listen::ListenMultiplexer::connect(&database.url()).await;
        (crate::bus_support::store(&database.url()).await, listener.unwrap())
    });
    let is_refused = |error: StoreError| assert!(matches!(error, StoreError::NoRuntime), "{error}");
    smol::block_on(async {
        is_refused(
            PostgresStore::<FleetEvent>::connect(&database.url())
                .await
                .map(drop)
                .unwrap_err(),
        );
        is_refused(store.migrate().await.unwrap_err());
        is_refused(store.check_migrated().await.unwrap_err());
        is_refused(store.high_water("a").await.unwrap_err());
        is_refused(store.heads(&["a".into()]).await.unwrap_err());
        is_refused(store.replay("a", 0, 1).await.unwrap_err());
        is_refused(store.changed_since(None, 1).await.unwrap_err());
        is_refused(store.event_ids(&[("a".into(), 1)]).await.unwrap_err());
        is_refused(store.append(note("a", "hello")).await.unwrap_err());
        is_refused(
            store
                .append_batch(vec![note("a", "hello"), note("b", "hello")])
                .await
                .unwrap_err(),
        );
        is_refused(store.trim("a", 1).await.unwrap_err());
        is_refused(store.keep_last(1).await.unwrap_err());
        assert!(matches!(listener.subscribe("a").await, Err(ListenError::NoRuntime)));
        assert!(matches!(listener.notify("a", "x").await, Err(ListenError::NoRuntime)));
    });
    assert_eq!(runtime.block_on(store.high_water("a")).unwrap(), 0);
}

/// Concurrent first calls on a bus that was created outside a runtime all succeed.
#[test]
fn calls_that_race_to_start_the_bus_all_find_it_started() {
    let database = Database::fresh().unwrap();
    let runtime = runtime();
    let store = runtime.block_on(crate::bus_support::store(&database.url()));
    for _ in 0..20 {
        let bus = crate::bus_support::builder(&database.url(), &store).start().unwrap();
        let barrier = Arc::new(std::sync::Barrier::new(4));
        let racers: Vec<_> = (0..4)
            .map(|_| {
                let (bus, barrier, handle) = (bus.clone(), barrier.clone(), runtime.handle().clone());
                std::thread::spawn(move || {
                    barrier.wait();
                    handle.block_on(bus.subscribe_all_ready()).map(drop)
                })
            })
            .collect();
        for racer in racers {
            racer.join().unwrap().unwrap();
        }
    }
}

/// When the bus's runtime ends, subscriptions on another executor deliver what they have, and end.
#[test]
fn subscriptions_on_another_executor_end_with_the_runtime_of_the_bus() {
    let database = Database::fresh().unwrap();
    let runtime = runtime();
    let (bus, subscriptions) = runtime.block_on(async {
        let bus = bus(&database.url()).await;
        let mut subscriptions = vec![bus.subscribe_all_ready().await.unwrap()];
        for _ in 0..10 {
            let one = bus.subscribe("agent-1");
            one.ready().await.unwrap();
            subscriptions.push(one);
        }
        (bus, subscriptions)
    });
    let (counted, count) = std::sync::mpsc::channel();
    let readers: Vec<_> = subscriptions
        .into_iter()
        .map(|mut subscription| {
            let counted = counted.clone();
            std::thread::spawn(move || {
                smol::block_on(async {
                    let mut last = 0;
                    while let Some(item) = subscription.recv().await {
                        let BusEvent::Event(event) = item else {
                            panic!("{item:?}")
                        };
                        assert_eq!(event.seq, last + 1);
                        last = event.seq;
                        counted.send(()).unwrap();
                    }
                    last
                })
            })
        })
        .collect();
    for _ in 0..100 {
        runtime
            .block_on(bus.append_and_publish(note("agent-1", "hello")))
            .unwrap();
    }
    for _ in 0..11 * 100 {
        count.recv_timeout(LIMIT).expect("every event reaches every thread");
    }
    runtime.shutdown_timeout(Duration::from_secs(5));
    for reader in readers {
        assert_eq!(reader.join().unwrap(), 100);
    }
    let refused = smol::block_on(bus.append_and_publish(note("agent-1", "too late")));
    assert!(matches!(refused, Err(BusError::Closed)), "{refused:?}");
}

/// A task that only receives does not starve other tasks.
#[tokio::test]
async fn a_busy_reader_yields_to_other_tasks() {
    let database = Database::fresh().unwrap();
    let bus = bus(&database.url()).await;
    let batch = |n| (0..n).map(|_| note("agent-1", "hello")).collect();
    for _ in 0..10 {
        bus.append_batch_and_publish(batch(500)).await.unwrap();
    }
    let mut one = bus.subscribe_from("agent-1", 0);
    // This loads the history into memory.
    expect(&mut one, "agent-1", 1..=5000).await;
    let mut again = bus.subscribe_from("agent-1", 0);
    let reading = tokio::spawn(async move {
        for seq in 1..=5000 {
            assert_eq!(event(&mut again).await.seq, seq);
        }
    });
    let mut turns = 0;
    while !reading.is_finished() {
        tokio::task::yield_now().await;
        turns += 1;
    }
    reading.await.unwrap();
    assert!(turns > 10, "{turns} turns for another task in 5000 events");
}
