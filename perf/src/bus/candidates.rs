//! The buses that are compared.

pub mod doorbell;
pub mod naive;
pub mod pg_bus;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use self::doorbell::{Doorbell, NotifyQueue};

use super::delivery_tracker::SubscriberTracker;
use super::timed_event::TimedEvent;

/// What the benches fail with.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Whose bus, and in which form.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Candidate {
    /// Doorbell, as its documentation shows it.
    Doorbell,
    /// The same, with the bell in the transaction that appends.
    NotifyInTransaction,
    /// Doorbell's store alone: appends that tell nobody.
    NotifyOff,
    /// One `LISTEN` connection and one replay for every subscriber.
    Naive,
    /// The crate pg-bus, as its documentation shows it.
    PgBus,
}

impl Candidate {
    pub fn name(self) -> &'static str {
        match self {
            Self::Doorbell => "doorbell",
            Self::NotifyInTransaction => "doorbell, bell inside",
            Self::NotifyOff => "doorbell, no bells",
            Self::Naive => "naive",
            Self::PgBus => "pg-bus",
        }
    }

    /// Connects, and creates what the bus needs in the database if it is not there. `connections` is how many it may have for
    /// other things than listening.
    pub async fn connect(self, url: &str, connections: u32) -> Result<Box<dyn Bus>, Failure> {
        Ok(match self {
            Self::Doorbell => Box::new(Doorbell::connect(url, connections, NotifyQueue::After).await?),
            Self::NotifyInTransaction => {
                Box::new(Doorbell::connect(url, connections, NotifyQueue::InTransaction).await?)
            }
            Self::NotifyOff => Box::new(Doorbell::connect(url, connections, NotifyQueue::Off).await?),
            Self::Naive => Box::new(naive::Naive::connect(url, connections).await?),
            Self::PgBus => Box::new(pg_bus::PgBus::connect(url, connections).await?),
        })
    }
}

/// A bus as the benches use it.
#[async_trait]
pub trait Bus: Send + Sync {
    /// Starts a task for each of these streams that takes down its events as they come. Events that are published after this has
    /// returned must all arrive.
    async fn subscribe(&self, trackers: Vec<(String, SubscriberTracker)>) -> Result<(), Failure>;

    /// Makes an event durable and tells the subscribers.
    async fn publish(&self, timed_event: TimedEvent) -> Result<(), Failure>;

    /// The same for several, in one transaction.
    async fn publish_batch(&self, events: Vec<TimedEvent>) -> Result<(), Failure>;

    /// Returns when nothing that was published waits to be told any more. Most buses tell before they return.
    async fn flush(&self) -> Result<(), Failure> {
        Ok(())
    }

    /// Returns when the bus says that all is well.
    async fn healthy(&self) {}

    /// Returns when the bus knows that something is wrong with its server; never, if it cannot tell.
    async fn unhealthy(&self) {
        std::future::pending().await
    }

    /// How often this process has read events, by the bus's own count.
    fn reads(&self) -> u64;
}
