//! Holds subscriptions and records what arrives.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bus::candidates::{Candidate, Failure};
use crate::bus::delivery_tracker::{DeliveryErrors, DeliveryTracker};
use crate::bus::timed_event::stream_name;
use crate::bus::worker::publish::{self, Load};
use crate::bus::{process, worker};
use crate::latencies::Latencies;

/// After this long without a delivery, events that have not arrived are lost.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    pub candidate: Candidate,
    pub url: String,
    pub port: u16,
    /// Connections that the bus may have besides its listener.
    pub connections: u32,
    pub subscribers: usize,
    pub load: Load,
    /// The first events are checked, but not timed.
    pub warm_up: usize,
    /// Whether this process also publishes, through the same bus.
    pub publishes: bool,
    /// Whether every delivery is timed, or only the last one of each event.
    pub times_each: bool,
}

#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Outcome {
    pub errors: DeliveryErrors,
    /// Seconds.
    pub cpu: f64,
    /// MiB.
    pub resident: f64,
    pub connections: usize,
    pub reads: u64,
    /// When the last event was delivered, in nanoseconds since 1970.
    pub finished_at: u64,
    /// From sending an event until each subscriber had it, if that is timed, and until the last one had it.
    pub each: Latencies,
    pub last: Latencies,
}

pub async fn run(job: Job) -> Result<Outcome, Failure> {
    let bus = job.candidate.connect(&job.url, job.connections).await?;
    let load = job.load;
    let deliveries = DeliveryTracker::new(load.streams, job.subscribers, load.events, job.warm_up, job.times_each);
    let trackers = (0..job.subscribers).map(|subscriber| {
        let stream = subscriber % load.streams;
        (stream_name(stream), deliveries.tracker(stream))
    });
    bus.subscribe(trackers.collect()).await?;
    worker::ready().await?;

    let (cpu, reads) = (process::cpu(), bus.reads());
    if job.publishes {
        publish::publish(&*bus, load).await?;
    }
    let mut before = u64::MAX;
    while tokio::time::timeout(PATIENCE, deliveries.finished()).await.is_err() {
        if deliveries.deliveries() == before {
            break;
        }
        before = deliveries.deliveries();
    }
    Ok(Outcome {
        errors: deliveries.errors(),
        cpu: (process::cpu() - cpu).as_secs_f64(),
        resident: process::resident(),
        connections: process::connections(job.port),
        reads: bus.reads() - reads,
        finished_at: deliveries.finished_at(),
        each: deliveries.each_delivery(),
        last: deliveries.last_deliveries(),
    })
}
