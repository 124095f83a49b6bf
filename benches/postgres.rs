//! The bus over Postgres beside its peers, on the same servers in the same run; ends with a table of targets.
//!
//! ```sh
//! cargo bench --features postgres --bench postgres                       # a few minutes
//! cargo bench --features postgres --bench postgres -- fan_out --rounds 5 # one group, more often
//! cargo test --features postgres --bench postgres                        # each once, small: does it still work?
//! ```
//!
//! `docs/benchmarks.md` says what each figure means.

mod bus {
    pub(crate) mod candidates;
    pub(crate) mod options;
    pub(crate) mod process;
    pub(crate) mod report;
    pub(crate) mod rows;
    pub(crate) mod servers;
    pub(crate) mod tally;
    pub(crate) mod tick;
    pub(crate) mod worker;
}
mod table {
    pub(crate) mod layout;
}

use std::process::ExitCode;

use clap::Parser;

use bus::candidates::Failure;
use bus::options::Options;
use bus::report::Report;
use bus::{rows, servers, worker};

fn main() -> ExitCode {
    if worker::run_if_asked() {
        return ExitCode::SUCCESS;
    }
    let options = Options::parse();
    match run(&options) {
        Ok(report) => {
            println!("{}", report.render());
            if report.is_clean() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<Report, Failure> {
    let mut report = Report::default();
    let native = servers::native()?;
    if options.wants("fan_out") {
        rows::fan_out::measure(&native, options, &mut report)?;
    }
    if options.wants("idle") {
        rows::idle::measure(&native, options, &mut report)?;
    }
    let slow = servers::slow_flush()?;
    if options.wants("appends") {
        rows::appends::measure(&slow, options, &mut report)?;
    }
    Ok(report)
}
