//! `latency`: from the instant a message was due until each subscriber has it, doorbell beside tokio's broadcast.

mod measure;
mod report;

use std::time::Duration;

use clap::Args;

use self::measure::{Measurement, Receivers, Setting};
use doorbell_perf::channels::lossy::{Doorbell, Tokio};

use crate::output::Output;
use crate::plot::Chart;
use crate::units::{count, from_one_to, print};

/// Measure publish-to-receive latency at fixed rates, doorbell beside tokio's broadcast channel
///
/// One thread publishes on a schedule that never drifts. Latency runs from the instant a message was due, not from when the
/// publisher got round to it: a stall is charged to every message it delays.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Messages per second
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1_000, 10_000, 100_000],
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    rates: Vec<u64>,

    /// Numbers of subscribers
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1, 8],
          value_parser = from_one_to(10_000))]
    subscribers: Vec<usize>,

    /// How subscribers run
    #[arg(long, value_name = "KIND,...", value_delimiter = ',', value_enum,
          default_values_t = [Receivers::Threads, Receivers::Tasks])]
    receivers: Vec<Receivers>,

    /// Messages that the channel retains
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = from_one_to(1 << 24))]
    capacity: usize,

    /// Seconds of each round; the first tenth is not counted
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    seconds: f64,

    /// Rounds per setting, in which the channels take turns
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = from_one_to(1_000_000))]
    rounds: usize,

    #[command(flatten)]
    output: Output,
}

/// Both channels under one setting.
#[derive(Debug)]
struct Comparison {
    setting: Setting,
    doorbell: Measurement,
    tokio: Measurement,
}

impl Comparison {
    fn named(&self) -> [(&'static str, &Measurement); 2] {
        [("doorbell", &self.doorbell), ("tokio", &self.tokio)]
    }

    fn chart(&self) -> Chart<'_> {
        let setting = &self.setting;
        Chart {
            title: format!("{}, {}/s", report::subscribers(setting), count(setting.rate)),
            lines: self.named().map(|(name, measured)| (name, &measured.latency)).into(),
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let length = Duration::try_from_secs_f64(options.seconds).map_err(|error| format!("--seconds: {error}"))?;
    if length.is_zero() {
        return Err("--seconds: must be more than 0".into());
    }
    options.output.check()?;
    let mut comparisons = Vec::new();
    print(report::HEAD);
    for &receivers in &options.receivers {
        for &subscribers in &options.subscribers {
            for &rate in &options.rates {
                let setting = Setting {
                    receivers,
                    subscribers,
                    rate,
                    capacity: options.capacity,
                    length,
                };
                let comparison = compare(setting, options.rounds);
                print(&report::rows(&comparison));
                comparisons.push(comparison);
            }
        }
    }
    let charts: Vec<Chart<'_>> = comparisons.iter().map(Comparison::chart).collect();
    options.output.write(&report::csv(&comparisons), &charts)?;
    Ok(())
}

fn compare(setting: Setting, rounds: usize) -> Comparison {
    let mut doorbell = Measurement::default();
    let mut tokio = Measurement::default();
    for _ in 0..rounds {
        doorbell.add(measure::round::<Doorbell>(setting));
        tokio.add(measure::round::<Tokio>(setting));
    }
    Comparison {
        setting,
        doorbell,
        tokio,
    }
}
