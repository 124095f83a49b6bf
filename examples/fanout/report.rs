//! What is reported, whatever the form.

use std::time::Duration;

use crate::account::Latency;
use crate::options::Options;
use crate::publish::Published;
use crate::team::{Kind, Member};

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) source: String,
    pub(crate) capacity: usize,
    pub(crate) max_line: usize,
    pub(crate) events_per_second_asked: Option<u64>,
    pub(crate) published: Published,
    pub(crate) members: Vec<Member>,
    pub(crate) interrupted: bool,
}

impl Report {
    pub(crate) fn new(
        source: String,
        options: &Options,
        published: Published,
        members: Vec<Member>,
        interrupted: bool,
    ) -> Self {
        Self {
            source,
            capacity: options.capacity(),
            max_line: options.max_line,
            events_per_second_asked: options.events_per_second(),
            published,
            members,
            interrupted,
        }
    }

    /// Whether every subscriber can account for every event.
    pub(crate) fn adds_up(&self) -> bool {
        self.members.iter().all(|member| self.member_adds_up(member))
    }

    pub(crate) fn member_adds_up(&self, member: &Member) -> bool {
        member.outcome.adds_up(self.published.events)
    }

    pub(crate) fn of(&self, kind: Kind) -> Vec<&Member> {
        self.members.iter().filter(|member| member.kind == kind).collect()
    }

    /// The subscribers that do their best: all but the slow ones.
    pub(crate) fn prompt(&self) -> Vec<&Member> {
        self.members.iter().filter(|member| member.kind != Kind::Slow).collect()
    }

    pub(crate) fn published_per_second(&self) -> f64 {
        per_second(self.published.events, self.published.elapsed)
    }

    /// From the arrival of the first line until the last prompt subscriber had drained the channel.
    pub(crate) fn delivery_time(&self) -> Duration {
        let ended = self.prompt().iter().map(|member| member.outcome.ended).max();
        match (self.published.started, ended) {
            (Some(started), Some(ended)) => ended.saturating_duration_since(started),
            _ => Duration::ZERO,
        }
    }

    /// Events received by the prompt subscribers, all taken together.
    pub(crate) fn deliveries(&self) -> u64 {
        self.prompt().iter().map(|member| member.outcome.received()).sum()
    }

    /// Bytes of text in those events.
    pub(crate) fn delivered_bytes(&self) -> u64 {
        self.prompt().iter().map(|member| member.outcome.bytes()).sum()
    }

    pub(crate) fn deliveries_per_second(&self) -> f64 {
        per_second(self.deliveries(), self.delivery_time())
    }
}

/// The latencies of several subscribers in one histogram.
pub(crate) fn latency_of(members: &[&Member]) -> Latency {
    let mut sum = Latency::default();
    for member in members {
        sum.add(member.outcome.latency());
    }
    sum
}

fn per_second(count: u64, time: Duration) -> f64 {
    if time.is_zero() {
        0.0
    } else {
        count as f64 / time.as_secs_f64()
    }
}
