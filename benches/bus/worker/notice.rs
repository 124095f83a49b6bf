//! Waits until a bus notices that its server is in trouble.

use serde::{Deserialize, Serialize};

use crate::bus::candidates::{Failure, Who};
use crate::bus::{tick, worker};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) who: Who,
    pub(crate) url: String,
}

/// When it noticed, in nanoseconds since 1970.
pub(crate) async fn run(job: Job) -> Result<u64, Failure> {
    const CONNECTIONS: u32 = 4;
    let bus = job.who.connect(&job.url, CONNECTIONS).await?;
    bus.sound().await;
    worker::ready().await?;
    bus.trouble().await;
    Ok(tick::now())
}
