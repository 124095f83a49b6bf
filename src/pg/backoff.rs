//! Delays between attempts, randomized so that processes that failed together do not retry together.

use std::time::Duration;

/// How far apart attempts to connect are: at random between nothing and a limit (full jitter, so that a thousand processes do
/// not come back at the same moment). The limit doubles from 25 ms up to `at_first`, and to `later` once the outage has
/// lasted for `at_first_for`. What only a person can change (a wrong password, a standby) is tried at the pace of `later` from
/// the beginning.
///
/// ```
/// use doorbell::listen::{Backoff, ListenMultiplexer};
/// use std::time::Duration;
///
/// let patient = Backoff { at_first: Duration::from_secs(2), ..Backoff::default() };
/// let builder = ListenMultiplexer::builder().url("postgres://localhost/app").backoff(patient);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The longest pause at first. 500 ms unless set.
    pub at_first: Duration,
    /// For how long that is. Two minutes unless set.
    pub at_first_for: Duration,
    /// The longest pause later. 5 s unless set.
    pub later: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            at_first: Duration::from_millis(500),
            at_first_for: Duration::from_secs(120),
            later: Duration::from_secs(5),
        }
    }
}

/// No two attempts are closer than this, whatever is set.
const SHORTEST: Duration = Duration::from_millis(10);
const FIRST: Duration = Duration::from_millis(25);

impl Backoff {
    /// The pause before the next attempt: after `failures` in a row, `outage` after the first. `random` is uniform.
    pub(crate) fn pause(&self, failures: u32, outage: Duration, lasting: bool, random: u64) -> Duration {
        if lasting {
            // At least half of it: there is no hurry, and the server's log is read by people.
            return self.later.div_f64(2.0).max(SHORTEST) + fraction(self.later.div_f64(2.0), random);
        }
        let limit = if outage < self.at_first_for {
            self.at_first
        } else {
            self.later
        };
        let doubled = FIRST.saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX));
        fraction(limit.min(doubled), random).max(SHORTEST)
    }
}

fn fraction(of: Duration, random: u64) -> Duration {
    of.mul_f64(random as f64 / u64::MAX as f64)
}

/// Repeats one operation: each delay is uniform between zero and a limit that doubles from `first` to `max` (full jitter).
pub(crate) struct Retry {
    first: Duration,
    max: Duration,
    limit: Duration,
}

impl Retry {
    pub(crate) fn new(first: Duration, max: Duration) -> Self {
        Self {
            first,
            max,
            limit: first,
        }
    }

    /// The operation has succeeded: the next delay is short again.
    pub(crate) fn reset(&mut self) {
        self.limit = self.first;
    }

    pub(crate) async fn wait(&mut self) {
        let delay = fraction(self.limit, fastrand::u64(..));
        self.limit = (self.limit * 2).min(self.max);
        tokio::time::sleep(delay).await;
    }
}

/// `interval`, plus or minus up to a tenth.
pub(crate) fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(0.9 + 0.2 * fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_grows_to_its_limit_and_never_to_nothing() {
        let backoff = Backoff::default();
        let longest = |failures, outage| backoff.pause(failures, Duration::from_secs(outage), false, u64::MAX);
        assert_eq!(longest(0, 0), Duration::from_millis(25));
        assert_eq!(longest(2, 0), Duration::from_millis(100));
        assert_eq!(longest(31, 0), Duration::from_millis(500));
        assert_eq!(longest(u32::MAX, 119), Duration::from_millis(500));
        assert_eq!(longest(u32::MAX, 120), Duration::from_secs(5));
        assert_eq!(backoff.pause(9, Duration::ZERO, false, 0), SHORTEST);
        assert_eq!(backoff.pause(0, Duration::ZERO, true, 0), Duration::from_millis(2500));
        assert_eq!(backoff.pause(0, Duration::ZERO, true, u64::MAX), Duration::from_secs(5));
    }

    #[test]
    fn odd_settings_do_no_harm() {
        let none = Backoff {
            at_first: Duration::ZERO,
            at_first_for: Duration::ZERO,
            later: Duration::ZERO,
        };
        assert_eq!(none.pause(3, Duration::ZERO, false, u64::MAX), SHORTEST);
        assert_eq!(none.pause(3, Duration::ZERO, true, u64::MAX), SHORTEST);
    }
}
