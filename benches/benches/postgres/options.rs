//! The command line.

use clap::Parser;

/// The bus over Postgres beside its peers
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// Only these groups: fan_out, idle, appends, notifications, outage
    groups: Vec<String>,
    /// Number of measurements of each figure; the median counts
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Passed by cargo bench
    #[arg(long, hide = true)]
    bench: bool,
    /// Run everything once, small, and measure nothing
    #[arg(long)]
    test: bool,
}

impl Options {
    pub(crate) fn wants(&self, group: &str) -> bool {
        self.groups.is_empty() || self.groups.iter().any(|wanted| wanted == group)
    }

    /// Whether to measure, or only to check that everything works.
    pub(crate) fn is_measuring(&self) -> bool {
        self.bench && !self.test
    }

    pub(crate) fn rounds(&self) -> usize {
        if self.is_measuring() { self.rounds.max(1) } else { 1 }
    }

    /// `seconds` when measuring, a fraction otherwise.
    pub(crate) fn seconds(&self, seconds: f64) -> f64 {
        if self.is_measuring() { seconds } else { 0.2 }
    }
}
