//! The histogram that every measurement of latency uses.

use std::ops::AddAssign;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Latencies in nanoseconds, to three significant digits. Serializes as the recorded values with their counts, for another
/// process to read.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Self(Histogram::new(3).expect("3 significant digits are supported"))
    }
}

impl Latencies {
    pub fn record(&mut self, latency: Duration) {
        self.0 += (latency.as_nanos() as u64).max(1);
    }

    /// How many were recorded.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    pub fn min(&self) -> u64 {
        self.0.min()
    }

    pub fn max(&self) -> u64 {
        self.0.max()
    }

    pub fn quantile(&self, quantile: f64) -> u64 {
        self.0.value_at_quantile(quantile)
    }

    pub fn quantile_millis(&self, quantile: f64) -> f64 {
        self.quantile(quantile) as f64 / 1e6
    }
}

impl AddAssign<&Self> for Latencies {
    fn add_assign(&mut self, other: &Self) {
        self.0 += &other.0;
    }
}

impl From<Vec<(u64, u64)>> for Latencies {
    fn from(counts: Vec<(u64, u64)>) -> Self {
        let mut all = Self::default();
        for (nanoseconds, count) in counts {
            all.0
                .record_n(nanoseconds, count)
                .expect("the histogram grows with its values");
        }
        all
    }
}

impl From<Latencies> for Vec<(u64, u64)> {
    fn from(all: Latencies) -> Self {
        all.0
            .iter_recorded()
            .map(|step| (step.value_iterated_to(), step.count_at_value()))
            .collect()
    }
}
