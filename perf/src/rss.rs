//! Resident memory of a process after a warm-up, compared with before.

use std::fmt;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Rss {
    warm_up: Duration,
    /// The growth in bytes that is allowed.
    growth: u64,
    at_first: Option<u64>,
    later: Option<u64>,
}

impl Rss {
    pub(crate) fn new(warm_up: Duration, growth: u64) -> Self {
        Self {
            warm_up,
            growth,
            at_first: None,
            later: None,
        }
    }

    /// Samples the process with this id, or `self`, `elapsed` after the start.
    pub(crate) fn sample(&mut self, elapsed: Duration, process: &str) {
        let most = if elapsed < self.warm_up {
            &mut self.at_first
        } else {
            &mut self.later
        };
        *most = (*most).max(resident(process));
    }

    /// The highest value, in bytes.
    #[cfg(feature = "postgres")]
    pub(crate) fn max(&self) -> Option<u64> {
        self.later.max(self.at_first)
    }

    pub(crate) fn problem(&self) -> Option<String> {
        let (first, later) = (self.at_first?, self.later?);
        let has_grown = later > first + self.growth;
        has_grown.then(|| format!("resident memory grew from {first} to {later} bytes"))
    }
}

impl fmt::Display for Rss {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.later.or(self.at_first) {
            Some(bytes) => write!(formatter, "{:.1} MiB resident at most", mebibytes(bytes)),
            None => formatter.write_str("resident memory not measured"),
        }
    }
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Resident memory of a process in bytes, where `/proc` exists.
fn resident(process: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_after_the_warm_up_is_a_problem_and_before_it_is_not() {
        let mut resident = Rss::new(Duration::from_secs(1), 10);
        resident.sample(Duration::ZERO, "self");
        assert!(resident.at_first.is_some());
        let cases = [(100, 105, false), (100, 111, true), (200, 100, false)];
        for (first, later, is_problem) in cases {
            (resident.at_first, resident.later) = (Some(first), Some(later));
            assert_eq!(resident.problem().is_some(), is_problem, "{first} {later}");
        }
    }
}
