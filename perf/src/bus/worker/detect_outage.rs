//! Waits until a bus reports that it is unhealthy.

use serde::{Deserialize, Serialize};

use crate::bus::candidates::{Candidate, Failure};
use crate::bus::{timed_event, worker};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    pub candidate: Candidate,
    pub url: String,
}

/// Returns the time of the report, in nanoseconds since 1970.
pub async fn run(job: Job) -> Result<u64, Failure> {
    const CONNECTIONS: u32 = 4;
    let bus = job.candidate.connect(&job.url, CONNECTIONS).await?;
    bus.healthy().await;
    worker::ready().await?;
    bus.unhealthy().await;
    Ok(timed_event::now())
}
