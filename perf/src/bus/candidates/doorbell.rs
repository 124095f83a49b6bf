//! Doorbell's bus over doorbell's store, with their defaults.

use std::future;
use std::sync::Arc;

use async_trait::async_trait;
use doorbell::bus::{BusEvent, BusState, DistributedBus, EventBus};
use doorbell::store::{PostgresStore, Store};
use sqlx::postgres::PgPoolOptions;

use super::{Bus, Failure};
use crate::bus::delivery_tracker::SubscriberTracker;
use crate::bus::timed_event::TimedEvent;

/// Whether and when an append notifies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notify {
    /// After the commit, by the bus. This is its default.
    After,
    /// In the transaction, which serializes all notifying commits of the server.
    InTransaction,
    /// Never: a store without a bus.
    Off,
}

pub struct Doorbell {
    store: Arc<PostgresStore<TimedEvent>>,
    bus: Option<DistributedBus<TimedEvent>>,
    notify: Notify,
}

impl Doorbell {
    pub async fn connect(url: &str, connections: u32, notify: Notify) -> Result<Self, Failure> {
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .test_before_acquire(false)
            .connect(url)
            .await?;
        let store = Arc::new(PostgresStore::<TimedEvent>::builder().build(pool.clone()));
        store.migrate().await?;
        let bus = match notify {
            Notify::Off => None,
            // One pool for the store and the notifications.
            Notify::After | Notify::InTransaction => {
                Some(DistributedBus::builder(store.clone()).pool(pool).connect().await?)
            }
        };
        Ok(Self { store, bus, notify })
    }

    fn bus(&self) -> Result<&DistributedBus<TimedEvent>, Failure> {
        self.bus
            .as_ref()
            .ok_or_else(|| "a store without a bus has no subscribers".into())
    }
}

/// Without a number: the store assigns it.
fn unstamped(mut event: TimedEvent) -> TimedEvent {
    event.number = 0;
    event
}

#[async_trait]
impl Bus for Doorbell {
    async fn subscribe(&self, trackers: Vec<(String, SubscriberTracker)>) -> Result<(), Failure> {
        let bus = self.bus()?;
        let subscriptions: Vec<_> = trackers
            .into_iter()
            .map(|(stream, tracker)| (bus.subscribe(&stream), tracker))
            .collect();
        for (mut subscription, mut tracker) in subscriptions {
            subscription.ready().await?;
            tokio::spawn(async move {
                // Any other item shows as a gap in the numbers.
                while let Some(item) = subscription.recv().await {
                    if let BusEvent::Event(event) = item {
                        tracker.take(event.number, event.sent);
                    }
                }
            });
        }
        Ok(())
    }

    async fn publish(&self, event: TimedEvent) -> Result<(), Failure> {
        let event = unstamped(event);
        match (self.notify, &self.bus) {
            (Notify::After, Some(bus)) => {
                bus.append_and_publish(event).await?;
            }
            (Notify::InTransaction, _) => {
                // One statement is one transaction.
                let mut connection = self.store.pool().acquire().await?;
                self.store.append_in_notifying(&mut connection, event).await?;
            }
            _ => {
                self.store.append(event).await?;
            }
        }
        Ok(())
    }

    async fn publish_batch(&self, events: Vec<TimedEvent>) -> Result<(), Failure> {
        let events = events.into_iter().map(unstamped).collect();
        match &self.bus {
            Some(bus) => bus.append_batch_and_publish(events).await?,
            None => self.store.append_batch(events).await?,
        };
        Ok(())
    }

    async fn flush(&self) -> Result<(), Failure> {
        if let Some(bus) = &self.bus {
            bus.shutdown().await;
        }
        Ok(())
    }

    async fn healthy(&self) {
        if let Some(bus) = &self.bus {
            let mut changes = bus.health_changes();
            // Also ends when the bus ends.
            changes.wait_for(|health| health.state == BusState::Live).await.ok();
        }
    }

    async fn unhealthy(&self) {
        match &self.bus {
            Some(bus) => {
                let mut changes = bus.health_changes();
                // Also ends when the bus ends, which is unhealthy.
                changes.wait_for(|health| health.state != BusState::Live).await.ok();
            }
            None => future::pending().await,
        }
    }

    fn reads(&self) -> u64 {
        self.bus.as_ref().map_or(0, |bus| {
            let stats = bus.stats();
            stats.reads + stats.replay_reads
        })
    }
}
