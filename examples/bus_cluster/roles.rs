//! What the processes do.

use std::sync::Arc;

use doorbell::bus::{BusEvent, DistributedBus, FleetEvent};
use doorbell::store::{PostgresStore, Store as _};

const STREAM: &str = "agent-1";

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Makes the tables, if they are not there, and starts from an empty stream.
pub(super) async fn prepare(url: &str) -> Outcome {
    let store = PostgresStore::<FleetEvent>::connect(url).await?;
    store.migrate().await?;
    if store.high_water(STREAM).await? > 0 {
        return Err(format!("the store holds a stream {STREAM:?} already; use another database").into());
    }
    Ok(())
}

/// Completes when the store holds so many events. Asks the bus, of course.
pub(super) async fn wait_for(url: &str, events: u64) -> Outcome {
    let bus = DistributedBus::connect(url, Arc::new(PostgresStore::connect(url).await?)).await?;
    let mut subscription = bus.subscribe_from(STREAM, 0);
    while let Some(item) = subscription.recv().await {
        if matches!(item, BusEvent::Event(event) if event.seq >= events) {
            return Ok(());
        }
    }
    Err("the bus has ended".into())
}

/// Appends what is missing of `events`.
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
    bus.shutdown().await; // sends the last doorbell
    Ok(())
}

/// Follows from the beginning until the last event.
pub(super) async fn follow(url: &str, events: u64) -> Outcome {
    let bus = DistributedBus::connect(url, Arc::new(PostgresStore::connect(url).await?)).await?;
    let mut subscription = bus.subscribe_from(STREAM, 0);
    let mut expected = 1;
    while expected <= events {
        match subscription.recv().await {
            Some(BusEvent::Event(event)) if event.seq == expected => expected += 1,
            Some(other) => return Err(format!("number {expected} was expected, and this came: {other:?}").into()),
            None => return Err("the bus has ended".into()),
        }
    }
    let stats = bus.stats();
    println!(
        "follower {}: {} events, {} reads of the store, {} doorbells heard",
        std::process::id(),
        events,
        stats.reads + stats.replay_reads,
        stats.notifications_received
    );
    Ok(())
}
