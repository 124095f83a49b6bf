//! Holds idle subscriptions.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bus::candidates::{Candidate, Failure};
use crate::bus::delivery_tracker::DeliveryTracker;
use crate::bus::timed_event::stream_name;
use crate::bus::{process, worker};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    pub candidate: Candidate,
    pub url: String,
    pub port: u16,
    pub subscribers: usize,
    pub streams: usize,
    pub seconds: f64,
}

#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Processor time per second, as a fraction of one core.
    pub cpu: f64,
    /// Memory of the subscriptions, in MiB: the process with them minus the process with a connected bus.
    pub held: f64,
    /// Resident memory of the process, in MiB.
    pub resident: f64,
    pub connections: usize,
    /// Reads of the store in that time, by the bus's statistics.
    pub reads: u64,
}

pub async fn run(job: Job) -> Result<Outcome, Failure> {
    const CONNECTIONS: u32 = 4;
    let bus = job.candidate.connect(&job.url, CONNECTIONS).await?;
    let before = process::resident();
    let deliveries = DeliveryTracker::new(job.streams, job.subscribers, 0, 0, false);
    let trackers = (0..job.subscribers).map(|subscriber| {
        let stream = subscriber % job.streams;
        (stream_name(stream), deliveries.tracker(stream))
    });
    bus.subscribe(trackers.collect()).await?;
    worker::ready().await?;
    let (cpu, reads) = (process::cpu(), bus.reads());
    tokio::time::sleep(Duration::from_secs_f64(job.seconds)).await;
    Ok(Outcome {
        cpu: (process::cpu() - cpu).as_secs_f64() / job.seconds,
        held: process::resident() - before,
        resident: process::resident(),
        connections: process::connections(job.port),
        reads: bus.reads() - reads,
    })
}
