//! Holds subscriptions and takes down what arrives.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bus::candidates::{Failure, Who};
use crate::bus::distribution::Distribution;
use crate::bus::tally::{Latency, Tally, Wrongs};
use crate::bus::tick::stream_name;
use crate::bus::worker::publish::{self, Load};
use crate::bus::{process, worker};

/// Without a delivery for so long, what has not arrived is lost.
const PATIENCE: Duration = Duration::from_secs(15);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) who: Who,
    pub(crate) url: String,
    pub(crate) port: u16,
    /// How many connections the bus may have for other things than listening.
    pub(crate) connections: u32,
    pub(crate) subscribers: usize,
    pub(crate) load: Load,
    /// The first events are checked, but not timed.
    pub(crate) warm_up: usize,
    /// Whether this process publishes, too, by the same bus.
    pub(crate) publishes: bool,
    /// Whether every delivery is timed, and all times are told.
    pub(crate) times_each: bool,
}

#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) latency: Latency,
    pub(crate) wrongs: Wrongs,
    /// Seconds.
    pub(crate) cpu: f64,
    /// MiB.
    pub(crate) resident: f64,
    pub(crate) connections: usize,
    pub(crate) reads: u64,
    /// When the last event was delivered, in nanoseconds since 1970.
    pub(crate) finished_at: u64,
    /// From when an event was sent until each subscriber had it, and until the last one had it; if that was asked for.
    pub(crate) each: Distribution,
    pub(crate) last: Distribution,
}

pub(crate) async fn run(job: Job) -> Result<Outcome, Failure> {
    let bus = job.who.connect(&job.url, job.connections).await?;
    let load = job.load;
    let tally = Tally::new(load.streams, job.subscribers, load.events, job.warm_up, job.times_each);
    let receipts = (0..job.subscribers).map(|subscriber| {
        let stream = subscriber % load.streams;
        (stream_name(stream), tally.receipt(stream))
    });
    bus.subscribe(receipts.collect()).await?;
    worker::ready().await?;

    let (cpu, reads) = (process::cpu(), bus.reads());
    if job.publishes {
        publish::publish(&*bus, load).await?;
    }
    let mut before = u64::MAX;
    while tokio::time::timeout(PATIENCE, tally.finished()).await.is_err() {
        if tally.deliveries() == before {
            break;
        }
        before = tally.deliveries();
    }
    Ok(Outcome {
        latency: tally.latency(),
        wrongs: tally.wrongs(),
        cpu: (process::cpu() - cpu).as_secs_f64(),
        resident: process::resident(),
        connections: process::connections(job.port),
        reads: bus.reads() - reads,
        finished_at: tally.finished_at(),
        each: tally.each_delivery(),
        last: if job.times_each {
            tally.last_deliveries()
        } else {
            Distribution::default()
        },
    })
}
