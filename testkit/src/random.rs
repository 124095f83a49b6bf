//! Random numbers that a seed repeats: [`fastrand`]'s generator, and what tests often draw.
//!
//! A test that draws its seed prints it, so that a failure can be repeated.

use std::ops::Range;
use std::time::Duration;

pub use fastrand::Rng;

/// A seed that nobody has chosen, short enough to be typed.
pub fn seed() -> u64 {
    fastrand::u64(..1_000_000)
}

/// What tests often draw.
pub trait RngExt {
    /// True once in `n` draws on average.
    fn one_in(&mut self, n: u64) -> bool;

    /// True in `percent` of 100 draws on average.
    fn percent(&mut self, percent: u64) -> bool;

    /// A time of whole milliseconds.
    fn millis(&mut self, range: Range<u64>) -> Duration;
}

impl RngExt for Rng {
    fn one_in(&mut self, n: u64) -> bool {
        self.u64(..n) == 0
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.u64(..100) < percent
    }

    fn millis(&mut self, range: Range<u64>) -> Duration {
        Duration::from_millis(self.u64(range))
    }
}
