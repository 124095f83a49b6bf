//! The figures of a run. Serialized, they are the JSON report.

use serde::Serialize;

use crate::latency::Latency;
use crate::options::Options;
use crate::publish::{Published, per_second};
use crate::subscribers::{Outcome, SLOW};

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) input: String,
    pub(crate) capacity: usize,
    /// Events per second; `None` for flat out.
    pub(crate) rate: Option<u64>,
    pub(crate) published: Published,
    pub(crate) delivered: Delivered,
    pub(crate) subscribers: Vec<Outcome>,
    /// Whether every subscriber can account for every event.
    pub(crate) adds_up: bool,
    pub(crate) interrupted: bool,
    pub(crate) error: Option<String>,
}

/// What the tasks and threads received together. The slow subscribers are left out.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Delivered {
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    /// From the arrival of the first line until the last of them had drained the channel.
    pub(crate) seconds: f64,
    pub(crate) events_per_second: f64,
    #[serde(rename = "latency_ns")]
    pub(crate) latency: Latency,
    #[serde(skip)]
    pub(crate) subscribers: u64,
}

impl Report {
    pub(crate) fn new(
        input: String,
        options: &Options,
        published: Published,
        mut subscribers: Vec<Outcome>,
        interrupted: bool,
        error: Option<String>,
    ) -> Self {
        for subscriber in &mut subscribers {
            subscriber.check(published.events);
        }
        let prompt = || subscribers.iter().filter(|subscriber| subscriber.kind != SLOW);
        let delivered = sum(prompt()).map_or_else(Delivered::default, |sum| {
            let started = published.started.unwrap_or(sum.ended);
            let seconds = sum.ended.saturating_duration_since(started).as_secs_f64();
            Delivered {
                events: sum.received,
                bytes: sum.bytes,
                seconds,
                events_per_second: per_second(sum.received, seconds),
                latency: sum.latency,
                subscribers: prompt().count() as u64,
            }
        });
        Self {
            input,
            capacity: options.capacity(),
            rate: options.rate(),
            adds_up: subscribers.iter().all(|subscriber| subscriber.adds_up),
            published,
            delivered,
            subscribers,
            interrupted,
            error,
        }
    }
}

pub(crate) fn sum<'a>(mut subscribers: impl Iterator<Item = &'a Outcome>) -> Option<Outcome> {
    let first = subscribers.next()?.clone();
    Some(subscribers.fold(first, Outcome::plus))
}
