//! Publishes lines as they arrive, paced or flat out.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use doorbell::ring::Publisher;
use serde::Serialize;
use tokio::sync::watch;

use crate::Event;
use crate::lines::Chunk;
use crate::progress::{Progress, REFRESH};

/// How late the operating system may wake a sleeping thread; the rest of a wait spins.
const OVERSLEEP: Duration = Duration::from_micros(150);

/// What was read and published. Serialized, it is a part of the JSON report.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Published {
    pub(crate) events: u64,
    pub(crate) bytes_read: u64,
    pub(crate) lines_truncated: u64,
    pub(crate) lines_with_invalid_utf8: u64,
    /// From the arrival of the first line.
    pub(crate) seconds: f64,
    pub(crate) events_per_second: f64,
    #[serde(skip)]
    pub(crate) started: Option<Instant>,
}

/// Publishes every chunk until the input ends, or fails with the returned error, or a signal arrives.
pub(crate) fn publish_all(
    chunks: &Receiver<io::Result<Chunk>>,
    publisher: &Publisher<Event>,
    rate: Option<u64>,
    interrupt: &watch::Receiver<bool>,
    progress: &Progress,
) -> (Published, Option<io::Error>) {
    let mut published = Published::default();
    let mut error = None;
    'chunks: while !*interrupt.borrow() {
        let chunk = match chunks.recv_timeout(REFRESH) {
            Ok(Ok(chunk)) => chunk,
            Ok(Err(failure)) => {
                error = Some(failure);
                break;
            }
            Err(RecvTimeoutError::Disconnected) => break,
            // The subscribers are still receiving.
            Err(RecvTimeoutError::Timeout) => {
                progress.show(&published, 0, publisher);
                continue;
            }
        };
        published.lines_truncated += chunk.truncated;
        published.lines_with_invalid_utf8 += chunk.invalid_utf8;
        let arrived = chunk.arrived.unwrap_or_else(Instant::now);
        let mut bytes_of_lines = 0;
        for line in chunk.lines {
            let started = *published.started.get_or_insert(arrived);
            let due = match rate {
                None => Instant::now(),
                Some(rate) => {
                    let due = arrived.max(started + since_start(published.events, rate));
                    if !wait_until(due, interrupt) {
                        break 'chunks;
                    }
                    progress.show(&published, bytes_of_lines, publisher);
                    due
                }
            };
            bytes_of_lines += line.len() as u64 + 1;
            published.events += 1;
            let number = published.events;
            publisher.publish(Event { number, due, line });
        }
        published.bytes_read += chunk.bytes;
        progress.show(&published, 0, publisher);
    }
    published.seconds = published.started.map_or(0.0, |started| started.elapsed().as_secs_f64());
    published.events_per_second = per_second(published.events, published.seconds);
    (published, error)
}

/// When a paced event is due, if the input has it by then. Computed from the start, so that neither rounding nor a late
/// event shifts later ones: a publisher that was held up catches up.
fn since_start(events_before: u64, rate: u64) -> Duration {
    Duration::from_nanos((u128::from(events_before) * 1_000_000_000 / u128::from(rate)) as u64)
}

pub(crate) fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// Returns false on a signal.
fn wait_until(due: Instant, interrupt: &watch::Receiver<bool>) -> bool {
    while !*interrupt.borrow() {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        match left.checked_sub(OVERSLEEP) {
            Some(sleep) if !sleep.is_zero() => thread::sleep(sleep.min(REFRESH)),
            _ => thread::yield_now(),
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_times_do_not_drift() {
        assert_eq!(since_start(1, 3), Duration::from_nanos(333_333_333));
        assert_eq!(since_start(3_000_000, 3), Duration::from_secs(1_000_000));
    }
}
