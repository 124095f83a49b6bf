//! Holds subscriptions while nothing happens.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bus::candidates::{Failure, Who};
use crate::bus::tally::Tally;
use crate::bus::tick::stream_name;
use crate::bus::{process, worker};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) who: Who,
    pub(crate) url: String,
    pub(crate) port: u16,
    pub(crate) subscribers: usize,
    pub(crate) streams: usize,
    pub(crate) seconds: f64,
}

#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Processor time per second, as a part of one core.
    pub(crate) cpu: f64,
    /// What the subscriptions hold, in MiB: the process with them less the process with a connected bus.
    pub(crate) held: f64,
    /// What the process holds in all, in MiB.
    pub(crate) resident: f64,
    pub(crate) connections: usize,
    /// Reads of the store meanwhile, by the bus's own count.
    pub(crate) reads: u64,
}

pub(crate) async fn run(job: Job) -> Result<Outcome, Failure> {
    const CONNECTIONS: u32 = 4;
    let bus = job.who.connect(&job.url, CONNECTIONS).await?;
    let before = process::resident();
    let tally = Tally::new(job.streams, job.subscribers, 0, 0, false);
    let receipts = (0..job.subscribers).map(|subscriber| {
        let stream = subscriber % job.streams;
        (stream_name(stream), tally.receipt(stream))
    });
    bus.subscribe(receipts.collect()).await?;
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
