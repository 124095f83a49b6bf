//! Fans a text out, line by line, to subscribers of three kinds and reports what each received, missed and waited for.
//!
//! `cargo run --release --example fanout -- --help` tells the options. Start reading in `subscribers.rs`: it shows the loops
//! that survive a lag.

mod account;
mod event;
mod exit;
mod interrupt;
mod json;
mod lines;
mod options;
mod pace;
mod progress;
mod publish;
mod reader;
mod report;
mod source;
mod subscribers;
mod table;
mod team;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::Parser;
use doorbell::ring;

use crate::event::Event;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::options::Options;
use crate::progress::Progress;
use crate::report::Report;
use crate::source::Source;
use crate::team::Team;

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            complain(&failure.message);
            ExitCode::from(failure.status)
        }
    }
}

/// The whole run, up to its exit status.
fn run(options: &Options) -> Result<u8, Failure> {
    let source = Source::new(options.input.clone());
    source.check(options.repeat)?;
    let (to_publisher, from_reader) = reader::channel();
    let interrupt = Interrupt::listen(to_publisher.clone())
        .map_err(|error| Failure::new(format!("cannot listen for Ctrl-C: {error}")))?;

    let (publisher, subscriber) = ring::channel::<Event>(options.capacity());
    let team = Team::start(options, &subscriber, &interrupt)
        .map_err(|error| Failure::new(format!("cannot start the subscribers: {error}")))?;
    drop(subscriber);

    let progress = Progress::new(source.size().map(|size| size.saturating_mul(options.repeat)));
    reader::start(source.clone(), options.repeat, options.max_line, to_publisher)
        .map_err(|error| Failure::new(format!("cannot start the reader: {error}")))?;
    let published = publish::publish_all(
        &from_reader,
        &publisher,
        options.events_per_second(),
        &interrupt,
        &progress,
    );
    // The last publisher closes the channel: everybody drains what is retained, then ends.
    drop(publisher);
    progress.draining();
    let members = team.join();
    progress.finish();

    let failure = published.failure.as_ref().map(|error| source.cannot_read(error));
    let report = Report::new(source.to_string(), options, published, members, interrupt.is_raised());
    let text = if options.json {
        json::render(&report)
    } else {
        table::render(&report)
    };
    write(&text).map_err(|error| Failure::new(format!("cannot write the report: {error}")))?;
    if let Some(failure) = &failure {
        complain(failure);
    }
    Ok(if !report.adds_up() {
        exit::DOES_NOT_ADD_UP
    } else if failure.is_some() {
        exit::INPUT_OR_OUTPUT
    } else if report.interrupted {
        exit::INTERRUPTED
    } else {
        exit::OK
    })
}

/// Writes to standard output. A reader that has seen enough and left (`| head -1`) is no error.
fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}

/// Writes to standard error, where even a failure to do so is no reason to panic.
fn complain(message: &str) {
    let _ = writeln!(io::stderr(), "fanout: {message}");
}
