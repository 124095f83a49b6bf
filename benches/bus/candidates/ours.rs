//! Doorbell's bus over doorbell's store, with their defaults.

use std::future;
use std::sync::Arc;

use async_trait::async_trait;
use doorbell::bus::{BusEvent, BusState, DistributedBus, EventBus};
use doorbell::store::{PostgresStore, Store};
use sqlx::postgres::PgPoolOptions;

use super::{Candidate, Failure};
use crate::bus::tally::Receipt;
use crate::bus::tick::Tick;

/// Whether and how a bell goes with an append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotifyQueue {
    /// After the commit, by the bus: what the bus does unless told otherwise.
    After,
    /// In the transaction, which holds up every other commit that rings, in the whole server.
    InTransaction,
    /// None: a store without a bus.
    Off,
}

pub(crate) struct Ours {
    store: Arc<PostgresStore<Tick>>,
    bus: Option<DistributedBus<Tick>>,
    bells: NotifyQueue,
}

impl Ours {
    pub(crate) async fn connect(url: &str, connections: u32, bells: NotifyQueue) -> Result<Self, Failure> {
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .test_before_acquire(false)
            .connect(url)
            .await?;
        let store = Arc::new(PostgresStore::<Tick>::builder().build(pool.clone()));
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

    fn bus(&self) -> Result<&DistributedBus<Tick>, Failure> {
        self.bus
            .as_ref()
            .ok_or_else(|| "a store without a bus has no subscribers".into())
    }
}

/// Without a number: the store gives it.
fn unstamped(mut tick: Tick) -> Tick {
    tick.number = 0;
    tick
}

#[async_trait]
impl Candidate for Ours {
    async fn subscribe(&self, receipts: Vec<(String, Receipt)>) -> Result<(), Failure> {
        let bus = self.bus()?;
        let subscriptions: Vec<_> = receipts
            .into_iter()
            .map(|(stream, receipt)| (bus.subscribe(&stream), receipt))
            .collect();
        for (mut subscription, mut receipt) in subscriptions {
            subscription.ready().await?;
            tokio::spawn(async move {
                // What else may come shows as a gap in the numbers.
                while let Some(item) = subscription.recv().await {
                    if let BusEvent::Event(tick) = item {
                        receipt.take(tick.number, tick.sent);
                    }
                }
            });
        }
        Ok(())
    }

    async fn publish(&self, tick: Tick) -> Result<(), Failure> {
        let tick = unstamped(tick);
        match (self.bells, &self.bus) {
            (NotifyQueue::After, Some(bus)) => {
                bus.append_and_publish(tick).await?;
            }
            (NotifyQueue::InTransaction, _) => {
                // One statement is one transaction.
                let mut connection = self.store.pool().acquire().await?;
                self.store.append_in_notifying(&mut connection, tick).await?;
            }
            _ => {
                self.store.append(tick).await?;
            }
        }
        Ok(())
    }

    async fn publish_batch(&self, ticks: Vec<Tick>) -> Result<(), Failure> {
        let ticks = ticks.into_iter().map(unstamped).collect();
        match &self.bus {
            Some(bus) => bus.append_batch_and_publish(ticks).await?,
            None => self.store.append_batch(ticks).await?,
        };
        Ok(())
    }

    async fn flush(&self) -> Result<(), Failure> {
        if let Some(bus) = &self.bus {
            bus.shutdown().await;
        }
        Ok(())
    }

    async fn sound(&self) {
        if let Some(bus) = &self.bus {
            let mut changes = bus.health_changes();
            // Ends with the bus, too, and then nothing will be well.
            changes.wait_for(|health| health.state == BusState::Live).await.ok();
        }
    }

    async fn trouble(&self) {
        match &self.bus {
            Some(bus) => {
                let mut changes = bus.health_changes();
                // Ends with the bus, too, and that is trouble.
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
