//! The buses that are compared.

pub mod doorbell;
pub mod naive;
pub mod pg_bus;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use self::doorbell::{Doorbell, Notify};

use super::delivery_tracker::SubscriberTracker;
use super::timed_event::TimedEvent;

/// The error of every measurement.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A bus and its configuration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Candidate {
    /// Doorbell, as its documentation shows it.
    Doorbell,
    /// Doorbell, with the notification in the transaction that appends.
    NotifyInTransaction,
    /// Doorbell's store alone: appends without notifications.
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
            Self::NotifyInTransaction => "doorbell, notify in transaction",
            Self::NotifyOff => "doorbell, no notifications",
            Self::Naive => "naive",
            Self::PgBus => "pg-bus",
        }
    }

    /// Connects, and creates what the bus needs in the database if it is not there. `connections` is the
    /// limit besides its listener.
    pub async fn connect(self, url: &str, connections: u32) -> Result<Box<dyn Bus>, Failure> {
        Ok(match self {
            Self::Doorbell => Box::new(Doorbell::connect(url, connections, Notify::After).await?),
            Self::NotifyInTransaction => Box::new(Doorbell::connect(url, connections, Notify::InTransaction).await?),
            Self::NotifyOff => Box::new(Doorbell::connect(url, connections, Notify::Off).await?),
            Self::Naive => Box::new(naive::Naive::connect(url, connections).await?),
            Self::PgBus => Box::new(pg_bus::PgBus::connect(url, connections).await?),
        })
    }
}

/// A bus, as the measurements use it.
#[async_trait]
pub trait Bus: Send + Sync {
    /// Starts a task for each of these streams that records its events as they arrive. Events published after this returns must
    /// all arrive.
    async fn subscribe(&self, trackers: Vec<(String, SubscriberTracker)>) -> Result<(), Failure>;

    /// Makes an event durable and notifies the subscribers.
    async fn publish(&self, timed_event: TimedEvent) -> Result<(), Failure>;

    /// The same for several, in one transaction.
    async fn publish_batch(&self, events: Vec<TimedEvent>) -> Result<(), Failure>;

    /// Returns when no notification is pending. Most buses notify before `publish` returns.
    async fn flush(&self) -> Result<(), Failure> {
        Ok(())
    }

    /// Returns when the bus reports that it is healthy.
    async fn healthy(&self) {}

    /// Returns when the bus reports that it is unhealthy; never, if it has no such report.
    async fn unhealthy(&self) {
        std::future::pending().await
    }

    /// How often this process has read events, as the bus counts.
    fn reads(&self) -> u64;
}
