//! The buses that are compared.

pub(crate) mod naive;
pub(crate) mod ours;
pub(crate) mod pg_bus;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use self::ours::{NotifyQueue, Ours};

use super::tally::Receipt;
use super::tick::Tick;

/// What the benches fail with.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Whose bus, and in which form.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(crate) enum Who {
    /// Doorbell, as its documentation shows it.
    Doorbell,
    /// The same, with the bell in the transaction that appends.
    RingingInside,
    /// Doorbell's store alone: appends that tell nobody.
    Silent,
    /// One `LISTEN` connection and one replay for every subscriber.
    Naive,
    /// The crate pg-bus, as its documentation shows it.
    PgBus,
}

impl Who {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Doorbell => "doorbell",
            Self::RingingInside => "doorbell, bell inside",
            Self::Silent => "doorbell, no bells",
            Self::Naive => "naive",
            Self::PgBus => "pg-bus",
        }
    }

    /// Connects, and creates what the bus needs in the database if it is not there. `connections` is how many it may have for
    /// other things than listening.
    pub(crate) async fn connect(self, url: &str, connections: u32) -> Result<Box<dyn Candidate>, Failure> {
        Ok(match self {
            Self::Doorbell => Box::new(Ours::connect(url, connections, NotifyQueue::After).await?),
            Self::RingingInside => Box::new(Ours::connect(url, connections, NotifyQueue::InTransaction).await?),
            Self::Silent => Box::new(Ours::connect(url, connections, NotifyQueue::Off).await?),
            Self::Naive => Box::new(naive::Naive::connect(url, connections).await?),
            Self::PgBus => Box::new(pg_bus::PgBus::connect(url, connections).await?),
        })
    }
}

/// A bus as the benches use it.
#[async_trait]
pub(crate) trait Candidate: Send + Sync {
    /// Starts a task for each of these streams that takes down its events as they come. Events that are published after this has
    /// returned must all arrive.
    async fn subscribe(&self, receipts: Vec<(String, Receipt)>) -> Result<(), Failure>;

    /// Makes an event durable and tells the subscribers.
    async fn publish(&self, tick: Tick) -> Result<(), Failure>;

    /// The same for several, in one transaction.
    async fn publish_batch(&self, ticks: Vec<Tick>) -> Result<(), Failure>;

    /// Returns when nothing that was published waits to be told any more. Most buses tell before they return.
    async fn flush(&self) -> Result<(), Failure> {
        Ok(())
    }

    /// Returns when the bus says that all is well.
    async fn sound(&self) {}

    /// Returns when the bus knows that something is wrong with its server; never, if it cannot tell.
    async fn trouble(&self) {
        std::future::pending().await
    }

    /// How often this process has read events, by the bus's own count.
    fn reads(&self) -> u64;
}
