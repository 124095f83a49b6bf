//! Appends as fast as possible.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::bus::candidates::{Candidate, Failure};
use crate::bus::timed_event::{TimedEvent, stream_name};
use crate::bus::worker;
use crate::latencies::Latencies;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    pub candidate: Candidate,
    pub url: String,
    /// Each has one append in flight.
    pub writers: usize,
    /// Writers share these evenly.
    pub streams: usize,
    /// Events per append.
    pub batch: usize,
    /// The duration, after a warm-up of a tenth of it.
    pub seconds: f64,
}

#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Events per second.
    pub rate: f64,
    /// Of one append.
    pub latency: Latencies,
}

pub async fn run(job: Job) -> Result<Outcome, Failure> {
    // One for each writer, and one for notifications.
    let bus = Arc::new(job.candidate.connect(&job.url, u32::try_from(job.writers)? + 1).await?);
    worker::ready().await?;

    // Relaxed: the flags only have to be seen soon, and the count is approximate by one append per writer.
    let (counts, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let done = Arc::new(AtomicU64::new(0));
    let mut writers = Vec::new();
    for writer in 0..job.writers {
        let (bus, counts, ends, done) = (
            Arc::clone(&bus),
            Arc::clone(&counts),
            Arc::clone(&ends),
            Arc::clone(&done),
        );
        let stream = stream_name(writer % job.streams);
        writers.push(tokio::spawn(async move {
            let mut times = Latencies::default();
            while !ends.load(Ordering::Relaxed) {
                let begun = Instant::now();
                // Without a number: the store assigns it.
                if job.batch == 1 {
                    bus.publish(TimedEvent::now(&stream, 0)).await?;
                } else {
                    bus.publish_batch((0..job.batch).map(|_| TimedEvent::now(&stream, 0)).collect())
                        .await?;
                }
                if counts.load(Ordering::Relaxed) && !ends.load(Ordering::Relaxed) {
                    done.fetch_add(job.batch as u64, Ordering::Relaxed);
                    times.record(begun.elapsed());
                }
            }
            Ok::<_, Failure>(times)
        }));
    }
    tokio::time::sleep(Duration::from_secs_f64(job.seconds / 10.0)).await;
    counts.store(true, Ordering::Relaxed);
    let begun = Instant::now();
    tokio::time::sleep(Duration::from_secs_f64(job.seconds)).await;
    let (elapsed, events) = (begun.elapsed(), done.load(Ordering::Relaxed));
    ends.store(true, Ordering::Relaxed);
    let mut times = Latencies::default();
    for writer in writers {
        times += &writer.await??;
    }
    Ok(Outcome {
        rate: events as f64 / elapsed.as_secs_f64(),
        latency: times,
    })
}
