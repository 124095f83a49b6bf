//! Times of single calls, which may be as short as a step of the clock.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The times of calls of one kind.
#[derive(Debug, Default)]
pub struct CallTimes(Vec<u32>);

impl CallTimes {
    #[inline]
    pub fn record(&mut self, time: Duration) {
        self.0.push(u32::try_from(time.as_nanos()).unwrap_or(u32::MAX));
    }

    /// Nanoseconds of a call on average, without the slowest tenth, which the scheduler interrupted, and without the clock's own
    /// cost. A median would be a multiple of the clock's step.
    pub fn typical(self) -> f64 {
        (self.mean_of_most() - clock_cost()).max(0.5)
    }

    fn mean_of_most(mut self) -> f64 {
        self.0.sort_unstable();
        let most = &self.0[..self.0.len() - self.0.len() / 10];
        most.iter().map(|&time| f64::from(time)).sum::<f64>() / most.len() as f64
    }
}

/// Nanoseconds between two readings of the clock with nothing between them, to subtract from what single calls took.
pub fn clock_cost() -> f64 {
    static COST: OnceLock<f64> = OnceLock::new();
    *COST.get_or_init(|| {
        let mut times = CallTimes::default();
        for _ in 0..100_000 {
            let before = Instant::now();
            times.record(before.elapsed());
        }
        times.mean_of_most()
    })
}
