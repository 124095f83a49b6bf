//! Histograms on their way from one process to another.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Times in microseconds, and how often there was each.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Distribution(pub Vec<(u64, u64)>);

impl Distribution {
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let recorded = histogram.iter_recorded();
        Self(
            recorded
                .map(|step| (step.value_iterated_to(), step.count_at_value()))
                .collect(),
        )
    }
}
