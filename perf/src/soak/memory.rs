//! Whether memory stays flat: the payloads alive, which have an exact bound, and the size of the process.

use std::fmt;
use std::time::Duration;

use super::payload;
use crate::units::count;

/// The resident size may grow by this much after the warm-up; more is a leak.
const GROWTH: u64 = 8 << 20;

/// What is allowed, and what was seen.
#[derive(Debug)]
pub(crate) struct Memory {
    warm_up: Duration,
    live_bound: u64,
    resident_at_first: Option<u64>,
    resident_later: Option<u64>,
}

impl Memory {
    pub(crate) fn new(warm_up: Duration, live_bound: u64) -> Self {
        Self {
            warm_up,
            live_bound,
            resident_at_first: None,
            resident_later: None,
        }
    }

    /// Looks once more, so long after the start.
    pub(crate) fn look(&mut self, elapsed: Duration) {
        let resident = resident();
        if elapsed < self.warm_up {
            self.resident_at_first = self.resident_at_first.max(resident);
        } else {
            self.resident_later = self.resident_later.max(resident);
        }
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
        if let (Some(first), Some(later)) = (self.resident_at_first, self.resident_later)
            && later > first + GROWTH
        {
            problems.push(format!("resident memory grew from {first} to {later} bytes"));
        }
        problems
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} payloads alive at most (bound {})",
            count(most_live()),
            count(self.live_bound)
        )?;
        match self.resident_later.or(self.resident_at_first) {
            Some(bytes) => write!(
                formatter,
                ", {:.1} MiB resident at most",
                bytes as f64 / f64::from(1 << 20)
            ),
            None => write!(formatter, ", resident memory not measured on this system"),
        }
    }
}

fn most_live() -> u64 {
    payload::most().unsigned_abs()
}

/// Bytes of memory that the process occupies, where the system tells it the way Linux does.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}
