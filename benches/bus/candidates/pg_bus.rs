//! The crate pg-bus, with its defaults except for the schema: Postgres refuses names that begin with `pg_`.

use async_trait::async_trait;
use pg_bus::{Bus, Config, Filter, Item};
use sqlx_for_pg_bus::PgPool;
use sqlx_for_pg_bus::postgres::PgPoolOptions;

use super::{Candidate, Failure};
use crate::bus::tally::Receipt;
use crate::bus::tick::Tick;

pub(crate) struct PgBus {
    pool: PgPool,
    bus: Bus,
}

impl PgBus {
    pub(crate) async fn connect(url: &str, connections: u32) -> Result<Self, Failure> {
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
        let bus = Bus::start(pool.clone(), config).await?;
        Ok(Self { pool, bus })
    }
}

#[async_trait]
impl Candidate for PgBus {
    async fn subscribe(&self, receipts: Vec<(String, Receipt)>) -> Result<(), Failure> {
        let now = self.bus.now().await?;
        for (stream, mut receipt) in receipts {
            let filter = Filter {
                channels: vec![stream],
                tags: Vec::new(),
            };
            let mut subscription = self.bus.subscribe(now, filter);
            tokio::spawn(async move {
                while let Ok(item) = subscription.next().await {
                    if let Item::Message(message) = item {
                        let field = |name: &str| message.data[name].as_u64().unwrap_or_default();
                        receipt.take(field("number"), field("sent"));
                    }
                }
            });
        }
        Ok(())
    }

    async fn publish(&self, tick: Tick) -> Result<(), Failure> {
        let mut transaction = self.pool.begin().await?;
        self.bus
            .publish(&mut transaction, &tick.stream, &serde_json::to_value(&tick)?, None)
            .await?;
        transaction.commit().await?;
        Ok(())
    }

    async fn publish_batch(&self, ticks: Vec<Tick>) -> Result<(), Failure> {
        let mut transaction = self.pool.begin().await?;
        for tick in ticks {
            self.bus
                .publish(&mut transaction, &tick.stream, &serde_json::to_value(&tick)?, None)
                .await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    fn reads(&self) -> u64 {
        self.bus.stats().listener_queries + self.bus.stats().catch_ups_from_database
    }
}
