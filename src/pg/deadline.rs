//! Deadlines that cannot overflow.

use std::time::Duration;

use tokio::time::Instant;

/// Further away than any process lives, and within the range of every clock.
const NEVER: Duration = Duration::from_secs(86_400 * 365 * 30);

/// Returns the instant after this time. `Duration::MAX` means never.
pub(crate) fn deadline_in(time: Duration) -> Instant {
    Instant::now() + time.min(NEVER)
}

/// Multiplies a duration, at most up to `Duration::MAX`.
pub(crate) fn scaled(duration: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(duration.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_durations_do_not_overflow() {
        assert!(deadline_in(Duration::MAX) > Instant::now() + NEVER / 2);
        assert!(deadline_in(Duration::ZERO) <= Instant::now());
        assert_eq!(scaled(Duration::MAX, 1.1), Duration::MAX);
        assert_eq!(scaled(Duration::MAX, 0.0), Duration::ZERO);
        assert_eq!(scaled(Duration::from_secs(10), 0.5), Duration::from_secs(5));
    }
}
