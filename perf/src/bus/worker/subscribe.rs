//! Holds subscriptions and takes down what arrives.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bus::candidates::{Candidate, Failure};
use crate::bus::delivery_tracker::{DeliveryErrors, DeliveryTracker};
use crate::bus::timed_event::stream_name;
use crate::bus::worker::publish::{self, Load};
use crate::bus::{process, worker};
use crate::latencies::Latencies;

/// Without a delivery for so long, what has not arrived is lost.
const PATIENCE: Duration = Duration::from_secs(15);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    pub candidate: Candidate,
    pub url: String,
    pub port: u16,
    /// How many connections the bus may have for other things than listening.
    pub connections: u32,
    pub subscribers: usize,
    pub load: Load,
    /// The first events are checked, but not timed.
    pub warm_up: usize,
    /// Whether this process publishes, too, by the same bus.
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
    let delivery_tracker =
        DeliveryTracker::new(load.streams, job.subscribers, load.events, job.warm_up, job.times_each);
    let trackers = (0..job.subscribers).map(|subscriber| {
        let stream = subscriber % load.streams;
        (stream_name(stream), delivery_tracker.tracker(stream))
    });
    bus.subscribe(trackers.collect()).await?;
    worker::ready().await?;

    let (cpu, reads) = (process::cpu(), bus.reads());
    if job.publishes {
        publish::publish(&*bus, load).await?;
    }
    let mut before = u64::MAX;
    while tokio::time::timeout(PATIENCE, delivery_tracker.finished())
        .await
        .is_err()
    {
        if delivery_tracker.deliveries() == before {
            break;
        }
        before = delivery_tracker.deliveries();
    }
    Ok(Outcome {
        errors: delivery_tracker.errors(),
        cpu: (process::cpu() - cpu).as_secs_f64(),
        resident: process::resident(),
        connections: process::connections(job.port),
        reads: bus.reads() - reads,
        finished_at: delivery_tracker.finished_at(),
        each: delivery_tracker.each_delivery(),
        last: delivery_tracker.last_deliveries(),
    })
}
