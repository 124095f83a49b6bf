//! Exponential back-off with full jitter, so that processes that failed together do not retry together.

use std::time::Duration;

use super::deadline::scaled;

/// The delays between a listener's attempts to connect: exponential back-off with full jitter.
///
/// Each delay is random between zero and a limit. The limit doubles with each failure, from 25 ms up to `max_delay`, or up to
/// `long_outage_max_delay` once the outage has lasted for `long_outage_after`. After errors that only a person can fix (a wrong
/// password), each delay is random between half of `long_outage_max_delay` and all of it. No delay is shorter than
/// 10 ms. Range: any; `Duration::MAX` is allowed.
///
/// ```
/// use doorbell::listen::{Backoff, ListenMultiplexer};
/// use std::time::Duration;
///
/// let backoff = Backoff { max_delay: Duration::from_secs(2), ..Backoff::default() };
/// let builder = ListenMultiplexer::builder().url("postgres://localhost/app").backoff(backoff);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The maximum delay while the outage is short. Default: 500 ms.
    pub max_delay: Duration,
    /// How long an outage lasts before it counts as long. Default: 2 min.
    pub long_outage_after: Duration,
    /// The maximum delay in a long outage. Default: 5 s.
    pub long_outage_max_delay: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            max_delay: Duration::from_millis(500),
            long_outage_after: Duration::from_secs(120),
            long_outage_max_delay: Duration::from_secs(5),
        }
    }
}

const FIRST_LIMIT: Duration = Duration::from_millis(25);
const MIN_DELAY: Duration = Duration::from_millis(10);

impl Backoff {
    /// The delay before the next attempt, after `failures` earlier ones in an outage of this length. `random` is between 0 and 1.
    pub(crate) fn delay(&self, failures: u32, outage: Duration, needs_intervention: bool, random: f64) -> Duration {
        let delay = if needs_intervention {
            scaled(self.long_outage_max_delay, 0.5 + random / 2.0)
        } else if outage < self.long_outage_after {
            full_jitter(FIRST_LIMIT, self.max_delay, failures, random)
        } else {
            full_jitter(FIRST_LIMIT, self.long_outage_max_delay, failures, random)
        };
        delay.max(MIN_DELAY)
    }
}

/// Retries one operation, with a growing delay after each failure.
pub(crate) struct Retry {
    first: Duration,
    max: Duration,
    failures: u32,
}

impl Retry {
    pub(crate) fn new(first: Duration, max: Duration) -> Self {
        Self {
            first,
            max,
            failures: 0,
        }
    }

    /// Continues after `failures` failures.
    pub(crate) fn after_failures(failures: u32, first: Duration, max: Duration) -> Self {
        Self { first, max, failures }
    }

    /// Records a success: the next delay is short again.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Waits after a failure.
    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.next_delay()).await;
    }

    /// Returns how long to wait after a failure.
    pub(crate) fn next_delay(&mut self) -> Duration {
        let delay = full_jitter(self.first, self.max, self.failures, fastrand::f64());
        self.failures = self.failures.saturating_add(1);
        delay
    }
}

/// A delay between zero and a limit that doubles with each failure, from `first` to `max`.
pub(crate) fn full_jitter(first: Duration, max: Duration, failures: u32, random: f64) -> Duration {
    let doubled = first.saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX));
    scaled(doubled.min(max), random)
}

/// Varies `interval` by up to a tenth in either direction.
pub(crate) fn jittered(interval: Duration) -> Duration {
    scaled(interval, 0.9 + 0.2 * fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_the_maximum_and_never_shrink_to_zero() {
        let backoff = Backoff::default();
        let longest = |failures, outage| backoff.delay(failures, Duration::from_secs(outage), false, 1.0);
        assert_eq!(longest(0, 0), Duration::from_millis(25));
        assert_eq!(longest(2, 0), Duration::from_millis(100));
        assert_eq!(longest(31, 0), Duration::from_millis(500));
        assert_eq!(longest(u32::MAX, 119), Duration::from_millis(500));
        assert_eq!(longest(u32::MAX, 120), Duration::from_secs(5));
        assert_eq!(backoff.delay(9, Duration::ZERO, false, 0.0), MIN_DELAY);
        assert_eq!(backoff.delay(0, Duration::ZERO, true, 0.0), Duration::from_millis(2500));
        assert_eq!(backoff.delay(0, Duration::ZERO, true, 1.0), Duration::from_secs(5));
    }

    #[test]
    fn the_longest_settings_do_not_overflow() {
        let longest = Backoff {
            max_delay: Duration::MAX,
            long_outage_after: Duration::MAX,
            long_outage_max_delay: Duration::MAX,
        };
        for failures in [0, 31, u32::MAX] {
            for random in [0.0, 1.0] {
                let _ = longest.delay(failures, Duration::ZERO, false, random);
                let _ = longest.delay(failures, Duration::MAX, true, random);
            }
        }
        let _ = jittered(Duration::MAX);
    }

    #[test]
    fn zero_settings_give_the_minimum_delay() {
        let zero = Backoff {
            max_delay: Duration::ZERO,
            long_outage_after: Duration::ZERO,
            long_outage_max_delay: Duration::ZERO,
        };
        assert_eq!(zero.delay(3, Duration::ZERO, false, 1.0), MIN_DELAY);
        assert_eq!(zero.delay(3, Duration::ZERO, true, 1.0), MIN_DELAY);
    }
}
