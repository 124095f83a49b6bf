//! Publishes at a fixed rate.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep_until};

use crate::bus::candidates::{Candidate, Failure, Who};
use crate::bus::tick::{Tick, stream_name};
use crate::bus::worker;

/// How many connections a publisher may have.
const CONNECTIONS: u32 = 4;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) who: Who,
    pub(crate) url: String,
    pub(crate) load: Load,
}

/// Which events are published, and when.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) streams: usize,
    /// The first event; they are counted through all streams from 0.
    pub(crate) first: usize,
    pub(crate) events: usize,
    /// Events per second. The schedule is fixed at the start: a late event does not delay those after it.
    pub(crate) rate: f64,
    /// How many are published at once.
    pub(crate) burst: usize,
}

pub(crate) async fn run(job: Job) -> Result<(), Failure> {
    let bus = job.who.connect(&job.url, CONNECTIONS).await?;
    worker::ready().await?;
    publish(&*bus, job.load).await?;
    bus.flush().await
}

/// Publishes one after another, or burst after burst, round the streams.
pub(crate) async fn publish(bus: &dyn Candidate, load: Load) -> Result<(), Failure> {
    let begun = Instant::now();
    let end = load.first + load.events;
    for first in (load.first..end).step_by(load.burst) {
        sleep_until(begun + Duration::from_secs_f64((first - load.first) as f64 / load.rate)).await;
        let tick = |event| Tick::now(&stream_name(event % load.streams), (event / load.streams) as u64 + 1);
        if load.burst == 1 {
            bus.publish(tick(first)).await?;
        } else {
            bus.publish_batch((first..end.min(first + load.burst)).map(tick).collect())
                .await?;
        }
    }
    Ok(())
}
