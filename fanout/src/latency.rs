//! Latency percentiles.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Serialize, Serializer};

/// Nanoseconds, to two significant digits. Grows with the highest latency, so that thousands of subscribers stay cheap.
/// Serializes as its percentiles, or as null when it is empty.
#[derive(Clone, Debug)]
pub(crate) struct Latency(pub(crate) Histogram<u64>);

impl Default for Latency {
    fn default() -> Self {
        Self(Histogram::new(2).expect("2 significant digits are supported"))
    }
}

impl Latency {
    pub(crate) fn record(&mut self, latency: Duration) {
        self.0 += (latency.as_nanos() as u64).max(1);
    }

    /// Names and nanoseconds; `None` when it is empty.
    pub(crate) fn percentiles(&self) -> Option<[(&'static str, u64); 4]> {
        let at = |quantile| self.0.value_at_quantile(quantile);
        let all = [
            ("p50", at(0.5)),
            ("p99", at(0.99)),
            ("p99.9", at(0.999)),
            ("max", self.0.max()),
        ];
        (!self.0.is_empty()).then_some(all)
    }
}

impl Serialize for Latency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.percentiles() {
            Some(all) => serializer.collect_map(all),
            None => serializer.serialize_none(),
        }
    }
}
