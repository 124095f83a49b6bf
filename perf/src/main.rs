//! Long measurements of doorbell. `README.md` says what they measure, and what they do not.

#[cfg(feature = "postgres")]
mod bus_latency;
#[cfg(feature = "postgres")]
mod bus_soak;
mod latency;
mod output;
mod plot;
mod rss;
#[cfg(feature = "postgres")]
mod server;
mod soak;
mod units;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

/// Long measurements of doorbell
#[derive(Debug, Parser)]
#[command(name = "doorbell-perf")]
#[cfg_attr(
    not(feature = "postgres"),
    command(after_help = "`--features postgres` adds bus-latency and bus-soak.")
)]
enum Command {
    Latency(latency::Options),
    Soak(soak::Options),
    #[cfg(feature = "postgres")]
    BusLatency(bus_latency::Options),
    #[cfg(feature = "postgres")]
    BusSoak(bus_soak::Options),
}

fn main() -> ExitCode {
    #[cfg(feature = "postgres")]
    if is_part_of_a_measurement() {
        return ExitCode::SUCCESS;
    }
    let outcome = match Command::parse() {
        Command::Latency(options) => latency::run(&options),
        Command::Soak(options) => soak::run(&options),
        #[cfg(feature = "postgres")]
        Command::BusLatency(options) => bus_latency::run(&options).map_err(|failure| failure.to_string()),
        #[cfg(feature = "postgres")]
        Command::BusSoak(options) => bus_soak::run(&options).map_err(|failure| failure.to_string()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = writeln!(io::stderr(), "doorbell-perf: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Does the work of one process of a measurement, if this process is one.
#[cfg(feature = "postgres")]
fn is_part_of_a_measurement() -> bool {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    doorbell_perf::bus::worker::run_if_asked() || doorbell_perf::chaos::run_child(&words)
}
