//! The roles of the processes.

use std::sync::Arc;

use doorbell::bus::{BusEvent, DistributedBus, FleetEvent};
use doorbell::store::{PostgresStore, Store as _};

const STREAM: &str = "agent-1";

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Creates the tables if they are missing, and checks that the stream is empty.
pub(super) async fn prepare(url: &str) -> Outcome {
    let store = PostgresStore::<FleetEvent>::connect(url).await?;
    store.migrate().await?;
    if store.high_water(STREAM).await? > 0 {
        return Err(format!("the store already holds a stream {STREAM:?}; use another database").into());
    }
    Ok(())
}

/// Waits until the store holds `events` events.
pub(super) async fn wait_for(url: &str, events: u64) -> Outcome {
    let bus = DistributedBus::connect(url, Arc::new(PostgresStore::connect(url).await?)).await?;
    let mut subscription = bus.subscribe_from(STREAM, 0);
    while let Some(item) = subscription.recv().await {
        if matches!(item, BusEvent::Event(event) if event.seq >= events) {
            return Ok(());
        }
    }
    Err("the bus is shut down".into())
}

/// Appends events until the stream has `events`.
pub(super) async fn publish(url: &str, events: u64) -> Outcome {
    let store = Arc::new(PostgresStore::connect(url).await?);
    let bus = DistributedBus::connect(url, store.clone()).await?;
    loop {
        let next = store.high_water(STREAM).await? + 1;
        if next > events {
            break;
        }
        bus.append_and_publish(FleetEvent::custom(STREAM, "step", next.to_string()))
            .await?;
    }
    bus.shutdown().await; // sends the last notification
    Ok(())
}

/// Receives the events from the first to the last.
pub(super) async fn follow(url: &str, events: u64) -> Outcome {
    let bus = DistributedBus::connect(url, Arc::new(PostgresStore::connect(url).await?)).await?;
    let mut subscription = bus.subscribe_from(STREAM, 0);
    let mut expected = 1;
    while expected <= events {
        match subscription.recv().await {
            Some(BusEvent::Event(event)) if event.seq == expected => expected += 1,
            Some(other) => return Err(format!("expected number {expected}, received {other:?}").into()),
            None => return Err("the bus is shut down".into()),
        }
    }
    let stats = bus.stats();
    println!(
        "follower {}: {} events, {} reads of the store, {} notifications received",
        std::process::id(),
        events,
        stats.reads + stats.replay_reads,
        stats.notifications_received
    );
    Ok(())
}
