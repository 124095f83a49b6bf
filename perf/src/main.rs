//! Long measurements of doorbell. `README.md` tells what they measure, and what they do not.

mod latency;
mod soak;
mod units;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

/// Long measurements of doorbell
#[derive(Debug, Parser)]
#[command(name = "doorbell-perf")]
enum Command {
    Latency(latency::Options),
    Soak(soak::Options),
}

fn main() -> ExitCode {
    let outcome = match Command::parse() {
        Command::Latency(options) => latency::run(&options),
        Command::Soak(options) => soak::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = writeln!(io::stderr(), "doorbell-perf: {failure}");
            ExitCode::FAILURE
        }
    }
}
