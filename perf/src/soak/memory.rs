//! Checks that memory stays flat: the number of live payloads, which has an exact bound, and the resident size.

use std::fmt;
use std::time::Duration;

use super::payload;
use crate::rss::Rss;
use crate::units::count;

/// The resident size may grow by this much after the warm-up; more is a leak.
const GROWTH: u64 = 8 << 20;

/// The bounds and the samples.
#[derive(Debug)]
pub(crate) struct Memory {
    live_bound: u64,
    resident: Rss,
}

impl Memory {
    pub(crate) fn new(warm_up: Duration, live_bound: u64) -> Self {
        Self {
            live_bound,
            resident: Rss::new(warm_up, GROWTH),
        }
    }

    /// Takes a sample, `elapsed` after the start.
    pub(crate) fn sample(&mut self, elapsed: Duration) {
        self.resident.sample(elapsed, "self");
    }

    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if most_live() > self.live_bound {
            problems.push(format!(
                "{} payloads alive at once, more than {}",
                most_live(),
                self.live_bound
            ));
        }
        problems.extend(self.resident.problem());
        problems
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} payloads alive at most (bound {}), {}",
            count(most_live()),
            count(self.live_bound),
            self.resident,
        )
    }
}

fn most_live() -> u64 {
    payload::most().unsigned_abs()
}
