//! Publishes a text line by line to tasks, threads and slow subscribers, then reports what each received, skipped and waited.
//!
//! `cargo run --release -p fanout -- --help` lists the options. Start reading in `subscribers.rs`, which has the receive loops
//! that survive a lag.

mod input;
mod latency;
mod lines;
mod options;
mod progress;
mod publish;
mod report;
mod subscribers;
mod table;

use std::error::Error;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use doorbell::ring;
use tokio::sync::watch;

use crate::input::Input;
use crate::options::Options;
use crate::progress::Progress;
use crate::report::Report;
use crate::subscribers::Subscribers;

/// Exit statuses, as `--help` documents them. Clap exits with 2 for wrong usage.
const UNACCOUNTED: u8 = 1;
const INPUT_OR_OUTPUT: u8 = 3;
const INTERRUPTED: u8 = 130;

/// One line of the input. Cloning it is cheap: subscribers share the text.
#[derive(Clone, Debug)]
struct Event {
    /// Counts the events from 1.
    number: u64,
    /// When it was published or, in a paced run, when it was due. Latency runs from here.
    due: Instant,
    /// The line, without its line ending.
    line: Arc<str>,
}

fn main() -> ExitCode {
    let status = run(&Options::parse()).unwrap_or_else(|error| {
        print_error(&error.to_string());
        INPUT_OR_OUTPUT
    });
    ExitCode::from(status)
}

/// Runs to the end and returns the exit status.
fn run(options: &Options) -> Result<u8, Box<dyn Error>> {
    let input = Input::new(options.input.clone())?;
    let interrupt = interrupt().map_err(|error| format!("cannot handle Ctrl-C: {error}"))?;
    let (publisher, subscriber) = ring::channel::<Event>(options.capacity());
    let subscribers = Subscribers::start(options, &subscriber, &interrupt)
        .map_err(|error| format!("cannot start the subscribers: {error}"))?;
    drop(subscriber);

    let progress = Progress::new(input.size());
    let chunks = lines::start_reader(input.clone(), options.max_line)
        .map_err(|error| format!("cannot start the reader: {error}"))?;
    let (published, error) = publish::publish_all(&chunks, &publisher, options.rate(), &interrupt, &progress);
    // Dropping the last publisher closes the channel. Subscribers drain what it retains, then end.
    drop(publisher);
    progress.draining();
    let outcomes = subscribers.join();
    progress.finish();

    let interrupted = *interrupt.borrow();
    let message = error.as_ref().map(ToString::to_string);
    let report = Report::new(input.to_string(), options, published, outcomes, interrupted, message);
    let text = if options.json {
        format!("{:#}\n", serde_json::to_value(&report)?)
    } else {
        table::render(&report, options.max_line)
    };
    write_stdout(&text).map_err(|error| format!("cannot write the report: {error}"))?;
    if let Some(error) = &error {
        print_error(&input.cannot_read(error));
    }
    Ok(match (report.adds_up, error) {
        (false, _) => UNACCOUNTED,
        (true, Some(_)) => INPUT_OR_OUTPUT,
        (true, None) if interrupted => INTERRUPTED,
        (true, None) => 0,
    })
}

/// Handles Ctrl-C, SIGTERM and SIGHUP: the first ends the run with a report, the second ends the process.
fn interrupt() -> Result<watch::Receiver<bool>, ctrlc::Error> {
    let (interrupt, receiver) = watch::channel(false);
    ctrlc::set_handler(move || {
        if interrupt.send_replace(true) {
            std::process::exit(INTERRUPTED.into());
        }
    })?;
    Ok(receiver)
}

/// A closed pipe (`| head -1`) is not an error.
fn write_stdout(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Unlike `eprintln!`, does not panic when standard error is closed.
fn print_error(message: &str) {
    let _ = writeln!(io::stderr(), "fanout: {message}");
}
