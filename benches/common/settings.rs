//! What every bench has in common: sizes, criterion's settings, and how a bench is started.

use std::time::Duration;

use criterion::Criterion;

use super::run;

/// The message of most benches: 32 bytes of plain data.
pub(crate) type Message = [u64; 4];

/// Every channel holds this many messages.
pub(crate) const CAPACITY: usize = 1024;

/// A paced publisher sends this many, half the capacity, and waits until every subscriber has them.
pub(crate) const BURST: u64 = CAPACITY as u64 / 2;

/// The size of batches, published or received.
pub(crate) const BATCH: u64 = 64;

/// The message with this number; what arrives is checked against it.
#[inline]
pub(crate) fn message(number: u64) -> Message {
    [number, 1, 2, 3]
}

/// The sum of `count` numbers from `first`: what a subscriber that lost nothing has added up.
pub(crate) fn sum_of_numbers(first: u64, count: u64) -> u64 {
    (first..first + count).fold(0, u64::wrapping_add)
}

/// Starts the bench `name` and runs it; `name` is the target's name and the name of its only group.
///
/// Few resamples and no plots: the medians are what the table of ratios reads, and the whole suite has to fit in minutes.
pub(crate) fn run_bench(name: &str, samples: usize, measure: Duration, bench: impl FnOnce(&mut Criterion)) {
    run::start(name);
    let mut criterion = Criterion::default()
        .without_plots()
        .warm_up_time(Duration::from_millis(250))
        .measurement_time(measure)
        .sample_size(samples)
        .nresamples(2_000)
        .configure_from_args();
    bench(&mut criterion);
    criterion.final_summary();
}
