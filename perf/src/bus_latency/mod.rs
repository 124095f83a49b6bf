//! `bus-latency`: the time from the instant an event was due until each subscriber has it, and until the last one has it.

mod measure;
mod report;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use throwaway_postgres::Server;

use self::measure::{Measurement, Setting};
use crate::output::Output;
use crate::plot::Chart;
use crate::server::MeasuredServer;
use crate::units::{count, from_one_to, print};
use doorbell_perf::bus::candidates::{Candidate, Failure};

/// The candidates, by name.
const CANDIDATES: [Candidate; 3] = [Candidate::Doorbell, Candidate::Naive, Candidate::PgBus];

/// Measure append-to-delivery latency of the bus over Postgres at fixed rates, beside its peers on the same server
///
/// One process publishes on a schedule that never drifts, another one holds the subscriptions. Latency runs from the instant
/// an event was due, so that a stall is charged to every event it delays. The peers are a design with a LISTEN connection and
/// a read for every subscriber, and the crate pg-bus. Needs PostgreSQL's programs, or a server.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Events per second, all streams together
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [100, 500],
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rates: Vec<u64>,

    /// Numbers of subscribers; each subscribes to one stream
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [8, 80],
          value_parser = from_one_to(100_000))]
    subscribers: Vec<usize>,

    /// Numbers of streams, over which events and subscribers are spread evenly
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1],
          value_parser = from_one_to(100_000))]
    streams: Vec<usize>,

    /// Seconds of each round; the first tenth is not counted
    #[arg(long, value_name = "S", default_value_t = 3.0)]
    seconds: f64,

    /// Rounds per setting, in which the candidates take turns
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = from_one_to(1_000_000))]
    rounds: usize,

    /// Buses to measure
    #[arg(long, value_name = "CANDIDATE,...", value_delimiter = ',', default_values = ["doorbell", "naive", "pg-bus"],
          value_parser = PossibleValuesParser::new(CANDIDATES.map(Candidate::name)).map(|name| named(&name)))]
    candidates: Vec<Candidate>,

    /// Measure on this server, in new databases, instead of starting a durable one
    #[arg(long, value_name = "postgres://...")]
    url: Option<String>,

    #[command(flatten)]
    output: Output,
}

fn named(name: &str) -> Candidate {
    let candidate = CANDIDATES.into_iter().find(|candidate| candidate.name() == name);
    candidate.expect("only possible values are parsed")
}

/// All candidates under one setting.
struct Comparison {
    setting: Setting,
    all: Vec<(Candidate, Measurement)>,
}

impl Comparison {
    fn chart(&self) -> Chart<'_> {
        let setting = &self.setting;
        let (subscribers, streams) = (count(setting.subscribers as u64), count(setting.streams as u64));
        Chart {
            title: format!("{subscribers} on {streams}, {}/s", count(setting.rate)),
            lines: self
                .all
                .iter()
                .map(|(candidate, measured)| (candidate.name(), &measured.last))
                .collect(),
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    options.output.check()?;
    let settings = settings(options)?;
    let server = MeasuredServer::find(options.url.as_deref(), Server::builder().durable())?;
    let mut comparisons = Vec::new();
    print(report::HEAD);
    for setting in settings {
        let comparison = compare(&server, setting, options)?;
        print(&report::rows(&comparison));
        comparisons.push(comparison);
    }
    let charts: Vec<Chart<'_>> = comparisons.iter().map(Comparison::chart).collect();
    options.output.write(&report::csv(&comparisons), &charts)?;
    report::verdict(&comparisons)
}

fn settings(options: &Options) -> Result<Vec<Setting>, Failure> {
    let mut settings = Vec::new();
    for &streams in &options.streams {
        for &subscribers in &options.subscribers {
            if !subscribers.is_multiple_of(streams) {
                return Err(format!("{subscribers} subscribers cannot be spread evenly over {streams} streams").into());
            }
            for &rate in &options.rates {
                settings.push(Setting::new(subscribers, streams, rate, options.seconds)?);
            }
        }
    }
    Ok(settings)
}

fn compare(server: &MeasuredServer, setting: Setting, options: &Options) -> Result<Comparison, Failure> {
    let mut all: Vec<(Candidate, Measurement)> = Vec::new();
    for &candidate in &options.candidates {
        match measure::connections(server, setting, candidate)? {
            Some(_) => all.push((candidate, Measurement::default())),
            None => eprintln!(
                "{}: {setting}: the server has too few connections, left out",
                candidate.name()
            ),
        }
    }
    for round in 0..options.rounds {
        let mut turns: Vec<usize> = (0..all.len()).collect();
        // A later turn finds a different server: fuller tables, or a write-ahead log that was just recycled.
        if round % 2 == 1 {
            turns.reverse();
        }
        for turn in turns {
            let (candidate, sum) = &mut all[turn];
            eprintln!("{}: {setting}, round {}", candidate.name(), round + 1);
            sum.add(measure::round(server, setting, *candidate)?);
        }
    }
    Ok(Comparison { setting, all })
}
