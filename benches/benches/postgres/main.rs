//! The bus over Postgres beside its peers, on the same servers in the same run; ends with a table of targets.
//!
//! ```sh
//! cargo bench --features postgres --bench postgres                       # about five minutes
//! cargo bench --features postgres --bench postgres -- fan_out --rounds 5 # one group, more often
//! cargo test --features postgres --bench postgres                        # everything once, small, without measuring
//! ```
//!
//! `docs/benchmarks.md` says what each figure means.

mod options;
mod report;
mod rows;
mod servers;

use std::process::ExitCode;

use clap::Parser;

use doorbell_perf::bus::candidates::Failure;
use doorbell_perf::bus::worker;
use options::Options;
use report::Report;

fn main() -> ExitCode {
    if worker::run_if_asked() {
        return ExitCode::SUCCESS;
    }
    let options = Options::parse();
    let mut report = Report::default();
    let outcome = run(&options, &mut report);
    // Print also what was measured before a failure.
    println!("{}", report.render(options.is_measuring()));
    match outcome {
        Ok(()) if report.is_clean() => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let native = servers::native()?;
    let slow = servers::slow_flush()?;
    if options.wants("fan_out") {
        rows::fan_out::measure(&native, options, report)?;
    }
    if options.wants("idle") {
        rows::idle::measure(&native, options, report)?;
    }
    if options.wants("appends") {
        rows::appends::measure(&slow, options, report)?;
    }
    if options.wants("notifications") {
        rows::notifications::measure(&slow, "2 ms", 0.9, options, report)?;
        rows::notifications::measure(&native, "native", 0.8, options, report)?;
    }
    if options.wants("outage") {
        rows::outage::measure(&native, options, report)?;
    }
    Ok(())
}
