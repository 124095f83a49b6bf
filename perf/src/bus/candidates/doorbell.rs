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

/// Whether and how a bell goes with an append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotifyQueue {
    /// After the commit, by the bus: what the bus does unless told otherwise.
    After,
    /// In the transaction, which holds up every other commit that rings, in the whole server.
    InTransaction,
    /// None: a store without a bus.
    Off,
}

pub struct Doorbell {
    store: Arc<PostgresStore<TimedEvent>>,
    bus: Option<DistributedBus<TimedEvent>>,
    bells: NotifyQueue,
}

impl Doorbell {
    pub async fn connect(url: &str, connections: u32, bells: NotifyQueue) -> Result<Self, Failure> {
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .test_before_acquire(false)
            .connect(url)
            .await?;
        let store = Arc::new(PostgresStore::<TimedEvent>::builder().build(pool.clone()));
        store.migrate().await?;
        let bus = match bells {
            NotifyQueue::Off => None,
            // One pool for the store and the bells.
            NotifyQueue::After | NotifyQueue::InTransaction => {
                Some(DistributedBus::builder(store.clone()).pool(pool).connect().await?)
            }
        };
        Ok(Self { store, bus, bells })
    }

    fn bus(&self) -> Result<&DistributedBus<TimedEvent>, Failure> {
        self.bus
            .as_ref()
            .ok_or_else(|| "a store without a bus has no subscribers".into())
    }
}

/// Without a number: the store gives it.
fn unstamped(mut timed_event: TimedEvent) -> TimedEvent {
    timed_event.number = 0;
    timed_event
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
                // What else may come shows as a gap in the numbers.
                while let Some(item) = subscription.recv().await {
                    if let BusEvent::Event(timed_event) = item {
                        tracker.take(timed_event.number, timed_event.sent);
                    }
                }
            });
        }
        Ok(())
    }

    async fn publish(&self, timed_event: TimedEvent) -> Result<(), Failure> {
        let timed_event = unstamped(timed_event);
        match (self.bells, &self.bus) {
            (NotifyQueue::After, Some(bus)) => {
                bus.append_and_publish(timed_event).await?;
            }
            (NotifyQueue::InTransaction, _) => {
                // One statement is one transaction.
                let mut connection = self.store.pool().acquire().await?;
                self.store.append_in_notifying(&mut connection, timed_event).await?;
            }
            _ => {
                self.store.append(timed_event).await?;
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
            // Ends with the bus, too, and then nothing will be well.
            changes.wait_for(|health| health.state == BusState::Live).await.ok();
        }
    }

    async fn unhealthy(&self) {
        match &self.bus {
            Some(bus) => {
                let mut changes = bus.health_changes();
                // Ends with the bus, too, and that is unhealthy.
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
