//! What one subscriber saw, and whether it adds up.

use std::time::Instant;

use doorbell::ring::{Lagged, SubscriberStats};
use hdrhistogram::Histogram;

use crate::event::Event;

/// A subscriber's own book, kept apart from the statistics of the ring so that each checks the other.
#[derive(Debug)]
pub(crate) struct Account {
    received: u64,
    skipped: u64,
    lag_events: u64,
    bytes: u64,
    /// The number of the next event, as far as the subscriber has been told.
    expected: u64,
    /// Events that came before one with a lower number, or after a gap that no lag announced.
    misplaced: u64,
    latency: Latency,
}

impl Default for Account {
    fn default() -> Self {
        Self {
            received: 0,
            skipped: 0,
            lag_events: 0,
            bytes: 0,
            expected: 1,
            misplaced: 0,
            latency: Latency::default(),
        }
    }
}

impl Account {
    pub(crate) fn received(&mut self, event: &Event, now: Instant) {
        self.received += 1;
        self.bytes += event.line.len() as u64;
        self.misplaced += u64::from(event.number != self.expected);
        self.expected = event.number + 1;
        self.latency.record(event.due, now);
    }

    /// The ring says exactly which events are lost; the next receive continues at `resume_at`.
    pub(crate) fn lagged(&mut self, lagged: Lagged) {
        self.skipped += lagged.skipped;
        self.lag_events += 1;
        self.misplaced += u64::from(lagged.first_missed != self.expected);
        self.expected = lagged.resume_at;
    }

    pub(crate) fn close(self, ring: SubscriberStats) -> Outcome {
        Outcome {
            account: self,
            ring,
            ended: Instant::now(),
        }
    }
}

/// The closed book of a subscriber.
#[derive(Debug)]
pub(crate) struct Outcome {
    account: Account,
    ring: SubscriberStats,
    /// When the subscriber had drained the closed channel.
    pub(crate) ended: Instant,
}

impl Outcome {
    pub(crate) fn received(&self) -> u64 {
        self.account.received
    }

    pub(crate) fn skipped(&self) -> u64 {
        self.account.skipped
    }

    /// Known to the ring alone: readers pass over sequence numbers whose publication failed.
    pub(crate) fn void(&self) -> u64 {
        self.ring.void
    }

    pub(crate) fn lag_events(&self) -> u64 {
        self.account.lag_events
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.account.bytes
    }

    pub(crate) fn latency(&self) -> &Latency {
        &self.account.latency
    }

    /// Whether every published event is accounted for, in order, and the ring's statistics say the same as the book.
    pub(crate) fn adds_up(&self, published: u64) -> bool {
        self.received() + self.skipped() + self.void() == published
            && self.account.misplaced == 0
            && self.ring.received == self.received()
            && self.ring.skipped == self.skipped()
            && self.ring.lag_events == self.lag_events()
    }
}

/// A histogram of latencies in nanoseconds, exact to 1 %.
#[derive(Clone, Debug)]
pub(crate) struct Latency(Histogram<u64>);

impl Default for Latency {
    fn default() -> Self {
        // It grows with the longest latency seen, so that thousands of subscribers stay cheap.
        Self(Histogram::new(2).expect("2 significant digits are supported"))
    }
}

impl Latency {
    fn record(&mut self, due: Instant, now: Instant) {
        let nanoseconds = now.saturating_duration_since(due).as_nanos() as u64;
        self.0 += nanoseconds.max(1);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0 += &other.0;
    }

    /// p50, p99, p99.9 and the maximum, in nanoseconds; `None` when nothing was received.
    pub(crate) fn percentiles(&self) -> Option<[u64; 4]> {
        let at = |quantile| self.0.value_at_quantile(quantile);
        (!self.0.is_empty()).then(|| [at(0.5), at(0.99), at(0.999), self.0.max()])
    }
}
