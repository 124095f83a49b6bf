//! The table and its CSV.

use std::fmt::Write;

use super::Comparison;
use super::measure::{Receivers, Setting};
use doorbell_perf::latencies::Latencies;

use crate::units::{count, microseconds};

/// The columns; latencies in microseconds.
pub(crate) const HEAD: &str = "\
subscribers    messages/s  channel         p50 µs     p99 µs   p99.9 µs     max µs        lost  publisher late p99 µs
";

const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];

/// A row for each channel, and one of doorbell's latencies divided by tokio's.
pub(crate) fn rows(comparison: &Comparison) -> String {
    let mut text = String::new();
    let setting = &comparison.setting;
    for (name, measurement) in comparison.named() {
        write!(
            text,
            "{:<11}  {:>12}  {name:<10}",
            subscribers(setting),
            count(setting.rate)
        )
        .expect(NEVER);
        for latency in points(&measurement.latency) {
            write!(text, "  {:>9}", microseconds(latency)).expect(NEVER);
        }
        let late = measurement.lateness.quantile(0.99);
        writeln!(text, "  {:>10}  {:>21}", count(measurement.lost), microseconds(late)).expect(NEVER);
    }
    write!(text, "{:27}{:<10}", "", "ratio").expect(NEVER);
    let [doorbell, tokio] = comparison.named().map(|(_, measurement)| points(&measurement.latency));
    for (doorbell, tokio) in doorbell.into_iter().zip(tokio) {
        write!(text, "  {:>9.2}", doorbell as f64 / tokio as f64).expect(NEVER);
    }
    text.push('\n');
    text
}

/// One line per channel and setting; latencies in nanoseconds.
pub(crate) fn csv(comparisons: &[Comparison]) -> String {
    let mut text = String::from(
        "channel,receivers,subscribers,messages_per_second,capacity,received,lost,p50_ns,p99_ns,p99.9_ns,max_ns,\
         publisher_late_p99_ns\n",
    );
    for comparison in comparisons {
        let setting = &comparison.setting;
        for (name, measurement) in comparison.named() {
            let [p50, p99, p999, max] = points(&measurement.latency);
            writeln!(
                text,
                "{name},{},{},{},{},{},{},{p50},{p99},{p999},{max},{}",
                receivers(setting.receivers),
                setting.subscribers,
                setting.rate,
                setting.capacity,
                measurement.latency.count(),
                measurement.lost,
                measurement.lateness.quantile(0.99),
            )
            .expect(NEVER);
        }
    }
    text
}

/// `1 thread`, `8 tasks`.
pub(crate) fn subscribers(setting: &Setting) -> String {
    let kind = receivers(setting.receivers);
    match setting.subscribers {
        1 => format!("1 {}", kind.trim_end_matches('s')),
        many => format!("{many} {kind}"),
    }
}

fn receivers(receivers: Receivers) -> &'static str {
    match receivers {
        Receivers::Threads => "threads",
        Receivers::Tasks => "tasks",
    }
}

fn points(latency: &Latencies) -> [u64; 4] {
    let [p50, p99, p999] = QUANTILES.map(|quantile| latency.quantile(quantile));
    [p50, p99, p999, latency.max()]
}

const NEVER: &str = "writing to a String cannot fail";
