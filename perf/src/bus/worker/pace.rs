//! Publishes on a schedule that does not drift, and measures how late each append began.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::bus::candidates::{Bus, Candidate, Failure};
use crate::bus::timed_event::{self, TimedEvent, stream_name};
use crate::bus::worker;
use crate::latencies::Latencies;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    pub candidate: Candidate,
    pub url: String,
    /// Events are spread over the streams round-robin.
    pub streams: usize,
    pub events: usize,
    /// The first events are published, but not timed.
    pub warm_up: usize,
    /// Events per second.
    pub rate: f64,
    /// Each has its own streams and connection, and one append in flight.
    pub writers: usize,
}

/// An event of the schedule, and when it is due, in nanoseconds since 1970.
struct Due {
    event: usize,
    at: u64,
}

/// Returns how long after its due time each append began.
pub async fn run(job: Job) -> Result<Latencies, Failure> {
    // One for each writer, and one for notifications.
    let bus: Arc<dyn Bus> = job
        .candidate
        .connect(&job.url, u32::try_from(job.writers)? + 1)
        .await?
        .into();
    let (mut queues, mut writers) = (Vec::new(), Vec::new());
    for _ in 0..job.writers {
        let (queue, due) = unbounded_channel();
        queues.push(queue);
        writers.push(tokio::spawn(write(Arc::clone(&bus), job.streams, job.warm_up, due)));
    }
    worker::ready().await?;
    // On a thread, because timers of the runtime have a resolution of a millisecond.
    let clock = tokio::task::spawn_blocking(move || keep_time(&job, &queues));
    let mut late = Latencies::default();
    for writer in writers {
        late += &writer.await??;
    }
    clock.await?;
    bus.flush().await?;
    Ok(late)
}

/// Sends the events to the writers as they become due. A late event does not delay later ones.
fn keep_time(job: &Job, queues: &[UnboundedSender<Due>]) {
    let (begun, begun_at) = (Instant::now(), timed_event::now());
    for event in 0..job.events {
        let offset = Duration::from_secs_f64(event as f64 / job.rate);
        thread::sleep((begun + offset).saturating_duration_since(Instant::now()));
        let at = begun_at + u64::try_from(offset.as_nanos()).expect("less than 500 years");
        let queue = &queues[event % job.streams % queues.len()];
        if queue.send(Due { event, at }).is_err() {
            return; // the writer failed and returns the error
        }
    }
}

async fn write(
    bus: Arc<dyn Bus>,
    streams: usize,
    warm_up: usize,
    mut due: UnboundedReceiver<Due>,
) -> Result<Latencies, Failure> {
    let mut late = Latencies::default();
    while let Some(Due { event, at }) = due.recv().await {
        if event >= warm_up {
            late.record(Duration::from_nanos(timed_event::now().saturating_sub(at)));
        }
        let number = (event / streams) as u64 + 1;
        bus.publish(TimedEvent::sent_at(&stream_name(event % streams), number, at))
            .await?;
    }
    Ok(late)
}
