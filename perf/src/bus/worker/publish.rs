//! Publishes at a fixed rate.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep_until};

use crate::bus::candidates::{Bus, Candidate, Failure};
use crate::bus::timed_event::{TimedEvent, stream_name};
use crate::bus::worker;

/// Connections of a publisher.
const CONNECTIONS: u32 = 4;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    pub candidate: Candidate,
    pub url: String,
    pub load: Load,
}

/// Which events are published, and when.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Load {
    pub streams: usize,
    /// The first event. Events are counted from 0 over all streams.
    pub first: usize,
    pub events: usize,
    /// Events per second. The schedule is fixed at the start: a late event does not delay those after it.
    pub rate: f64,
    /// Events published in one batch.
    pub burst: usize,
}

pub async fn run(job: Job) -> Result<(), Failure> {
    let bus = job.candidate.connect(&job.url, CONNECTIONS).await?;
    worker::ready().await?;
    publish(&*bus, job.load).await?;
    bus.flush().await
}

/// Publishes events or bursts one after another, to the streams round-robin.
pub async fn publish(bus: &dyn Bus, load: Load) -> Result<(), Failure> {
    let begun = Instant::now();
    let end = load.first + load.events;
    for first in (load.first..end).step_by(load.burst) {
        sleep_until(begun + Duration::from_secs_f64((first - load.first) as f64 / load.rate)).await;
        let timed_event =
            |event| TimedEvent::now(&stream_name(event % load.streams), (event / load.streams) as u64 + 1);
        if load.burst == 1 {
            bus.publish(timed_event(first)).await?;
        } else {
            bus.publish_batch((first..end.min(first + load.burst)).map(timed_event).collect())
                .await?;
        }
    }
    Ok(())
}
