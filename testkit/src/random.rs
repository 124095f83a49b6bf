//! Seeded random numbers: [`fastrand`]'s generator, and draws that tests often need.
//!
//! A test that draws its seed prints it, so that a failure can be repeated.

use std::ops::Range;
use std::time::Duration;

pub use fastrand::Rng;

/// A random seed, short enough to type.
pub fn seed() -> u64 {
    fastrand::u64(..1_000_000)
}

/// Draws that tests often need.
pub trait RngExt {
    /// Returns true once in `n` draws on average.
    fn one_in(&mut self, n: u64) -> bool;

    /// Returns true in `percent` of 100 draws on average.
    fn percent(&mut self, percent: u64) -> bool;

    /// A duration of whole milliseconds.
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
