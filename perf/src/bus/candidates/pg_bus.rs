//! The crate pg-bus, with its defaults except for the schema: Postgres refuses names that begin with `pg_`.

use async_trait::async_trait;
use pg_bus::{Config, Filter, Item};
use sqlx_for_pg_bus::PgPool;
use sqlx_for_pg_bus::postgres::PgPoolOptions;

use super::{Bus, Failure};
use crate::bus::delivery_tracker::SubscriberTracker;
use crate::bus::timed_event::TimedEvent;

pub struct PgBus {
    pool: PgPool,
    bus: pg_bus::Bus,
}

impl PgBus {
    pub async fn connect(url: &str, connections: u32) -> Result<Self, Failure> {
        let pool = PgPoolOptions::new()
            // Its listener takes one for itself.
            .max_connections(connections + 1)
            .test_before_acquire(false)
            .connect(url)
            .await?;
        let config = Config {
            schema: "messages_bus".to_owned(),
            ..Config::default()
        };
        let bus = pg_bus::Bus::start(pool.clone(), config).await?;
        Ok(Self { pool, bus })
    }
}

#[async_trait]
impl Bus for PgBus {
    async fn subscribe(&self, trackers: Vec<(String, SubscriberTracker)>) -> Result<(), Failure> {
        let now = self.bus.now().await?;
        for (stream, mut tracker) in trackers {
            let filter = Filter {
                channels: vec![stream],
                tags: Vec::new(),
            };
            let mut subscription = self.bus.subscribe(now, filter);
            tokio::spawn(async move {
                while let Ok(item) = subscription.next().await {
                    if let Item::Message(message) = item {
                        let field = |name: &str| message.data[name].as_u64().unwrap_or_default();
                        tracker.take(field("number"), field("sent"));
                    }
                }
            });
        }
        Ok(())
    }

    async fn publish(&self, timed_event: TimedEvent) -> Result<(), Failure> {
        let mut transaction = self.pool.begin().await?;
        self.bus
            .publish(
                &mut transaction,
                &timed_event.stream,
                &serde_json::to_value(&timed_event)?,
                None,
            )
            .await?;
        transaction.commit().await?;
        Ok(())
    }

    async fn publish_batch(&self, events: Vec<TimedEvent>) -> Result<(), Failure> {
        let mut transaction = self.pool.begin().await?;
        for timed_event in events {
            self.bus
                .publish(
                    &mut transaction,
                    &timed_event.stream,
                    &serde_json::to_value(&timed_event)?,
                    None,
                )
                .await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    fn reads(&self) -> u64 {
        self.bus.stats().listener_queries + self.bus.stats().catch_ups_from_database
    }
}
