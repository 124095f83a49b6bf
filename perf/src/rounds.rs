//! Measurements in rounds, in each of which every contender has a turn. So a slow moment of the machine falls on all of them, and
//! the rounds show how far a figure can be trusted.

use std::panic;
use std::process;

use clap::Parser;
use clap::error::ErrorKind;

use crate::bench::{self, Figure};
use crate::table::{Align, Table};

/// The command line of a bench in rounds.
#[derive(Debug, Parser)]
struct Options {
    /// Only what contains one of these, as `group/work/candidate`
    filters: Vec<String>,
    /// Number of measurements of each figure; the median counts
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Passed by cargo bench
    #[arg(long, hide = true)]
    bench: bool,
    /// Run everything once, small, and measure nothing
    #[arg(long)]
    test: bool,
    /// Accepted for all benches alike; nothing is captured
    #[arg(long, hide = true)]
    nocapture: bool,
}

/// A bench that measures in rounds.
pub struct Rounds {
    name: &'static str,
    filters: Vec<String>,
    rounds: u32,
}

/// One figure of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// Its name, appended to the name of the work; may be empty.
    pub name: &'static str,
    pub unit: Unit,
}

/// What the numbers of a measure are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Time,
    /// Nanoseconds per event; shown as events per second.
    Rate,
    /// The fraction of the events that was lost.
    Loss,
}

/// Something to measure in each round.
pub struct Contender<'a, const N: usize> {
    pub work: String,
    pub candidate: &'static str,
    pub measure: Box<dyn Fn() -> [f64; N] + 'a>,
}

impl<'a, const N: usize> Contender<'a, N> {
    pub fn new(work: impl Into<String>, candidate: &'static str, measure: impl Fn() -> [f64; N] + 'a) -> Self {
        Self {
            work: work.into(),
            candidate,
            measure: Box::new(measure),
        }
    }
}

/// What a contender measured.
#[derive(Clone, Debug)]
pub struct Outcome<const N: usize> {
    pub work: String,
    pub candidate: &'static str,
    pub figures: [Figure; N],
}

impl Rounds {
    /// Starts the bench `name`, which is also the name of its group, with this many rounds if the command line does not say.
    /// Returns nothing, but says so, if the command line has options of criterion, which are meant for the other benches of the
    /// same `cargo bench`.
    ///
    /// From then on a panic in any thread ends the process, since other threads may spin until that one answers.
    pub fn start(name: &'static str, rounds: u32) -> Option<Self> {
        let options = match Options::try_parse() {
            Ok(options) => options,
            Err(error) if error.kind() == ErrorKind::UnknownArgument => {
                eprintln!("{name} is skipped: {error}");
                return None;
            }
            Err(error) => error.exit(),
        };
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            report(panic);
            process::exit(101);
        }));
        bench::start(name);
        let rounds = options.rounds.unwrap_or(rounds);
        Some(Self {
            name,
            filters: options.filters,
            rounds: if bench::is_measuring() { rounds } else { 1 },
        })
    }

    /// Lets the contenders that the filters allow take turns; prints and records their figures.
    pub fn compare<const N: usize>(&self, measures: [Measure; N], contenders: &[Contender<'_, N>]) -> Vec<Outcome<N>> {
        let wanted: Vec<&Contender<'_, N>> = contenders
            .iter()
            .filter(|contender| self.wants(contender, &measures))
            .collect();
        let mut samples = vec![[const { Vec::new() }; N]; wanted.len()];
        for round in 0..self.rounds as usize {
            for turn in 0..wanted.len() {
                // Another one begins in each round.
                let index = (round + turn) % wanted.len();
                for (samples, sample) in samples[index].iter_mut().zip((wanted[index].measure)()) {
                    samples.push(sample);
                }
            }
        }
        let outcomes: Vec<Outcome<N>> = wanted
            .iter()
            .zip(samples)
            .map(|(contender, samples)| Outcome {
                work: contender.work.clone(),
                candidate: contender.candidate,
                figures: samples.map(figure),
            })
            .collect();
        if bench::is_measuring() && !outcomes.is_empty() {
            self.record(&measures, &outcomes);
            println!("\n{}", table(&measures, &outcomes));
        }
        outcomes
    }

    fn wants<const N: usize>(&self, contender: &Contender<'_, N>, measures: &[Measure; N]) -> bool {
        let Contender { work, candidate, .. } = contender;
        measures
            .iter()
            .map(|measure| self.id(work, measure, candidate))
            .chain([format!("{}/{work}/{candidate}", self.name)])
            .any(|id| self.allows(&id))
    }

    /// Whether the filters allow `group/work/candidate`.
    pub fn allows(&self, id: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| id.contains(filter))
    }

    fn id(&self, work: &str, measure: &Measure, candidate: &str) -> String {
        match measure.name {
            "" => format!("{}/{work}/{candidate}", self.name),
            name => format!("{}/{work}_{name}/{candidate}", self.name),
        }
    }

    fn record<const N: usize>(&self, measures: &[Measure; N], outcomes: &[Outcome<N>]) {
        for outcome in outcomes {
            for (measure, &figure) in measures.iter().zip(&outcome.figures) {
                match measure.unit {
                    Unit::Time | Unit::Rate => {
                        bench::figure(&self.id(&outcome.work, measure, outcome.candidate), figure);
                    }
                    Unit::Loss if figure.median > 0.0 => bench::remark(
                        &self.id(&outcome.work, &measures[0], outcome.candidate),
                        &format!("{} lost", measure.unit.show(figure.median)),
                    ),
                    Unit::Loss => {}
                }
            }
        }
    }
}

fn table<const N: usize>(measures: &[Measure; N], outcomes: &[Outcome<N>]) -> String {
    let names = measures.map(|measure| match (measure.name, measure.unit) {
        ("", _) => "time",
        (name, _) => name,
    });
    let mut columns = vec![("work", Align::Left), ("candidate", Align::Left)];
    for name in names {
        columns.push((name, Align::Right));
        columns.push(("95 %", Align::Left));
    }
    let mut table = Table::new(&columns);
    for outcome in outcomes {
        let mut row = vec![outcome.work.clone(), outcome.candidate.to_owned()];
        for (measure, figure) in measures.iter().zip(&outcome.figures) {
            let show = |number| measure.unit.show(number);
            row.push(show(figure.median));
            row.push(format!("{} to {}", show(figure.low), show(figure.high)));
        }
        table.row(&row);
    }
    table.render()
}

impl Unit {
    fn show(self, number: f64) -> String {
        match self {
            Unit::Time => time(number),
            Unit::Rate if number < 1e4 => format!("{:.2} M/s", 1e3 / number),
            Unit::Rate => format!("{:.2} k/s", 1e6 / number),
            Unit::Loss => format!("{:.1} %", 100.0 * number),
        }
    }
}

/// A time in nanoseconds with a unit that suits it.
pub fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        n if n < 1e3 => format!("{n:.1} ns"),
        n if n < 1e6 => format!("{:.1} µs", n / 1e3),
        n => format!("{:.1} ms", n / 1e6),
    }
}

/// The median of the samples and its 95 % confidence interval, which lies between two of them. With fewer than six samples it is
/// their whole range, which holds the median less surely.
pub fn figure(mut samples: Vec<f64>) -> Figure {
    samples.sort_by(f64::total_cmp);
    let count = samples.len();
    let median = (samples[(count - 1) / 2] + samples[count / 2]) / 2.0;
    // The median lies below the sample at `rank` if at most `rank` samples do: a binomial distribution.
    let (mut rank, mut term, mut below) = (0, 0.5_f64.powi(count as i32), 0.0);
    loop {
        below += term;
        if below > 0.025 || rank + 1 >= count.div_ceil(2) {
            break;
        }
        term *= (count - rank) as f64 / (rank + 1) as f64;
        rank += 1;
    }
    let rank = rank.saturating_sub(1);
    Figure {
        median,
        low: samples[rank],
        high: samples[count - 1 - rank],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_follows_the_binomial_distribution() {
        // Ranks from tables of the sign test.
        for (count, rank) in [(1, 1), (2, 1), (5, 1), (6, 1), (9, 2), (11, 2), (12, 3), (25, 8)] {
            let Figure { low, high, .. } = figure((1..=count).map(f64::from).collect());
            assert_eq!((low, high), (f64::from(rank), f64::from(count + 1 - rank)), "{count}");
        }
    }
}
