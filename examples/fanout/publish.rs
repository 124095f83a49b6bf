//! The publisher's side: takes lines as they come and publishes them, at a pace or flat out.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use doorbell::ring::Publisher;

use crate::event::Event;
use crate::interrupt::Interrupt;
use crate::lines::Oddities;
use crate::pace::Schedule;
use crate::progress::{self, Progress};
use crate::reader::{Chunk, FromReader};

/// What went into the ring.
#[derive(Debug, Default)]
pub(crate) struct Published {
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    pub(crate) oddities: Oddities,
    /// When the first line arrived and how long the publishing took.
    pub(crate) started: Option<Instant>,
    pub(crate) elapsed: Duration,
    /// How often a paced event was due before the input had it.
    pub(crate) late_arrivals: u64,
    /// Why the input ended before its end.
    pub(crate) failure: Option<io::Error>,
}

/// Publishes what `reader` sends until it ends or the user has had enough.
pub(crate) fn publish_all(
    reader: &Receiver<FromReader>,
    publisher: &Publisher<Event>,
    events_per_second: Option<u64>,
    interrupt: &Interrupt,
    progress: &Progress,
) -> Published {
    let mut published = Published::default();
    let mut schedule = events_per_second.map(Schedule::new);
    while !interrupt.is_raised() {
        match reader.recv_timeout(progress::REFRESH) {
            Ok(FromReader::Chunk(chunk)) => {
                published.bytes += chunk.bytes;
                published.oddities = chunk.oddities;
                if chunk.lines.is_empty() {
                    continue;
                }
                published.started.get_or_insert(chunk.arrived);
                match &mut schedule {
                    None => flat_out(chunk, publisher, &mut published),
                    Some(schedule) => {
                        paced(chunk, publisher, schedule, interrupt, progress, &mut published);
                    }
                }
                progress.show(&published, publisher);
            }
            Ok(FromReader::End(failure)) => {
                published.failure = failure;
                break;
            }
            Ok(FromReader::Interrupted) | Err(RecvTimeoutError::Disconnected) => break,
            // The subscribers go on, and so does what is shown of them.
            Err(RecvTimeoutError::Timeout) => progress.show(&published, publisher),
        }
    }
    published.elapsed = published.started.map_or(Duration::ZERO, |started| started.elapsed());
    published.late_arrivals = schedule.map_or(0, |schedule| schedule.late_arrivals);
    published
}

fn flat_out(chunk: Chunk, publisher: &Publisher<Event>, published: &mut Published) {
    for line in chunk.lines {
        published.events += 1;
        publisher.publish(Event {
            number: published.events,
            due: Instant::now(),
            line,
        });
    }
}

fn paced(
    chunk: Chunk,
    publisher: &Publisher<Event>,
    schedule: &mut Schedule,
    interrupt: &Interrupt,
    progress: &Progress,
    published: &mut Published,
) {
    for line in chunk.lines {
        let due = schedule.next(chunk.arrived);
        interrupt.wait_until(due);
        if interrupt.is_raised() {
            break;
        }
        published.events += 1;
        publisher.publish(Event {
            number: published.events,
            due,
            line,
        });
        progress.show(published, publisher);
    }
}
