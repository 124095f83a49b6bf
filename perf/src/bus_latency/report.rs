//! The table, its CSV, and the verdict.

use std::fmt::Write;

use super::Comparison;
use super::measure::Measurement;
use crate::units::count;
use doorbell_perf::bus::candidates::{Candidate, Failure};
use doorbell_perf::bus::delivery_tracker::DeliveryErrors;
use doorbell_perf::latencies::Latencies;

/// The columns.
pub(crate) const HEAD: &str = "\
subscribers  streams  events/s  bus       until          p50 ms    p90 ms    p99 ms  p99.9 ms    max ms  \
reads/event  connections   CPU s  lost  repeated  reordered  late p99 ms
";

const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];
const NEVER: &str = "writing to a String cannot fail";

/// Two rows for each bus: until each subscriber has an event, and until the last one has it; then doorbell's latencies divided
/// by each peer's.
pub(crate) fn rows(comparison: &Comparison) -> String {
    let mut text = String::new();
    for (candidate, measured) in &comparison.all {
        for (until, latency) in [("each", &measured.each), ("the last", &measured.last)] {
            left(&mut text, comparison, candidate.name(), until);
            for nanoseconds in points(latency) {
                write!(text, "  {:>8.2}", nanoseconds as f64 / 1e6).expect(NEVER);
            }
            if until == "each" {
                text.push('\n');
            }
        }
        let DeliveryErrors {
            lost,
            repeated,
            reordered,
        } = measured.errors;
        writeln!(
            text,
            "  {:>11.2}  {:>11}  {:>6.2}  {:>4}  {:>8}  {:>9}  {:>11.2}",
            measured.reads_per_event(),
            measured.connections,
            measured.cpu,
            count(lost),
            count(repeated),
            count(reordered),
            measured.lateness.quantile_millis(0.99),
        )
        .expect(NEVER);
    }
    ratios(&mut text, comparison);
    text
}

fn left(text: &mut String, comparison: &Comparison, candidate: &str, until: &str) {
    let setting = &comparison.setting;
    write!(
        text,
        "{:>11}  {:>7}  {:>8}  {candidate:<8}  {until:<11}",
        count(setting.subscribers as u64),
        count(setting.streams as u64),
        count(setting.rate),
    )
    .expect(NEVER);
}

fn ratios(text: &mut String, comparison: &Comparison) {
    let Some((_, doorbell)) = comparison
        .all
        .iter()
        .find(|(candidate, _)| *candidate == Candidate::Doorbell)
    else {
        return;
    };
    for (peer, theirs) in comparison
        .all
        .iter()
        .filter(|(candidate, _)| *candidate != Candidate::Doorbell)
    {
        let to = format!("doorbell / {}", peer.name());
        write!(text, "{:31}{to:<20}", "").expect(NEVER);
        for (doorbell, theirs) in points(&doorbell.last).into_iter().zip(points(&theirs.last)) {
            write!(text, "  {:>8.3}", doorbell as f64 / theirs.max(1) as f64).expect(NEVER);
        }
        text.push('\n');
    }
}

/// Two lines per bus and setting; latencies in microseconds.
pub(crate) fn csv(comparisons: &[Comparison]) -> String {
    let mut text = String::from(
        "bus,subscribers,streams,events_per_second,until,measured,p50_us,p90_us,p99_us,p99.9_us,max_us,reads_per_event,\
         connections,cpu_s,lost,repeated,reordered,late_p99_us\n",
    );
    for comparison in comparisons {
        let setting = &comparison.setting;
        for (candidate, measured) in &comparison.all {
            for (until, latency) in [("each", &measured.each), ("last", &measured.last)] {
                let [p50, p90, p99, p999, max] = points(latency).map(|nanoseconds| nanoseconds / 1_000);
                writeln!(
                    text,
                    "{},{},{},{},{until},{},{p50},{p90},{p99},{p999},{max},{:.3},{},{:.2},{},{},{},{}",
                    candidate.name(),
                    setting.subscribers,
                    setting.streams,
                    setting.rate,
                    latency.count(),
                    measured.reads_per_event(),
                    measured.connections,
                    measured.cpu,
                    measured.errors.lost,
                    measured.errors.repeated,
                    measured.errors.reordered,
                    measured.lateness.quantile(0.99) / 1_000,
                )
                .expect(NEVER);
            }
        }
    }
    text
}

/// An error if doorbell lost, repeated or reordered anything. The peers' errors are only in the table.
pub(crate) fn verdict(comparisons: &[Comparison]) -> Result<(), Failure> {
    let mut wrong = Vec::new();
    for Comparison { setting, all } in comparisons {
        for (candidate, Measurement { errors, .. }) in all {
            if *candidate == Candidate::Doorbell && *errors != DeliveryErrors::default() {
                wrong.push(format!("doorbell, {setting}: {errors:?}"));
            }
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n").into())
    }
}

fn points(latency: &Latencies) -> [u64; 5] {
    let [p50, p90, p99, p999] = QUANTILES.map(|quantile| latency.quantile(quantile));
    [p50, p90, p99, p999, latency.max()]
}
