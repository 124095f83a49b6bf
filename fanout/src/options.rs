//! The command line.

use std::path::PathBuf;

use clap::Parser;
use clap::builder::RangedU64ValueParser;

const AFTER_HELP: &str = "\
Every line is one event. Invalid UTF-8 is replaced, a line longer than --max-line is cut, and both are counted.

Latency runs from the publication of an event to its receipt. With --rate it runs from the instant the event was due, \
so that a stalled publisher does not hide latency.

Ctrl-C ends the run early with a report; a second Ctrl-C ends it at once.

Exit status:
  0    received + skipped = published, for every subscriber
  1    the counts of some subscriber do not add up, or it saw events out of order
  2    wrong usage
  3    the input could not be read to its end, or the report could not be written
  130  stopped by a signal

With 3 and 130, what came before is reported.";

/// Publishes every line of a text to many subscribers, and reports what each received and missed.
#[derive(Debug, Parser)]
#[command(name = "fanout", version, after_help = AFTER_HELP)]
pub(crate) struct Options {
    /// File to read, or - for standard input [default: a PostgreSQL log that is built in]
    #[arg(value_name = "FILE|-")]
    pub(crate) input: Option<PathBuf>,

    /// Subscribers that are tokio tasks and receive in batches
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = range(0, 100_000))]
    pub(crate) tasks: usize,

    /// Subscribers that are threads and iterate
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = range(0, 1_000))]
    pub(crate) threads: usize,

    /// Subscribers that are too slow: tokio tasks that sleep after every event until the input ends
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = range(0, 100_000))]
    pub(crate) slow: usize,

    /// How long a slow subscriber sleeps after every event, in milliseconds; it finishes a sleep when the input ends
    #[arg(long, value_name = "MS", default_value_t = 1)]
    pub(crate) delay_ms: u64,

    /// Events that the ring retains; it uses memory for up to twice as many lines [default: 1024 for the built-in log, else 16384]
    #[arg(long, value_name = "N", value_parser = range(1, 1 << 24))]
    capacity: Option<usize>,

    /// Events per second; 0 publishes flat out [default: 2000 for the built-in log, else 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    rate: Option<u64>,

    /// Longest line that is published whole, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 4 * 1024, value_parser = range(1, 1 << 30))]
    pub(crate) max_line: usize,

    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl Options {
    /// The built-in log is short; with the smaller ring it shows what a lag looks like.
    pub(crate) fn capacity(&self) -> usize {
        let default = if self.input.is_none() { 1024 } else { 16 * 1024 };
        self.capacity.unwrap_or(default)
    }

    /// Events per second, or `None` for flat out.
    pub(crate) fn rate(&self) -> Option<u64> {
        let default = if self.input.is_none() { 2_000 } else { 0 };
        Some(self.rate.unwrap_or(default)).filter(|rate| *rate > 0)
    }
}

fn range(min: u64, max: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(min..=max)
}
