//! The time until all subscribers have caught up after a crash of the server, and until a frozen server is detected.

use std::time::Duration;

use throwaway_postgres::{Server, Stop};

use crate::options::Options;
use crate::report::{Report, median};
use crate::servers;
use doorbell_perf::bus::candidates::{Candidate, Failure};
use doorbell_perf::bus::timed_event;
use doorbell_perf::bus::worker::publish::Load;
use doorbell_perf::bus::worker::{Job, Worker, detect_outage, publish, subscribe};
use doorbell_perf::table::{Align, Table};

pub(crate) fn measure(server: &Server, options: &Options, report: &mut Report) -> Result<(), Failure> {
    let mut table = Table::new(&[
        ("what", Align::Left),
        ("median s", Align::Right),
        ("longest", Align::Right),
    ]);
    let mut seconds = Vec::new();
    for round in 0..options.rounds() {
        eprintln!("outage: catching up, round {}", round + 1);
        seconds.push(catch_up(server, options, report)?);
    }
    let longest = seconds.iter().copied().fold(0.0, f64::max);
    table.row(&[
        "all subscribers have caught up after a crash".to_owned(),
        format!("{:.2}", median(seconds)),
        format!("{longest:.2}"),
    ]);
    report.judge(
        "caught up after the server is back",
        "≤ 1 s",
        format!("{longest:.2} s"),
        longest <= 1.0,
    );
    // Takes long; once is enough.
    if options.is_measuring() {
        eprintln!("outage: a frozen server");
        let seconds = detection(server)?;
        table.row(&[
            "a frozen server is detected".to_owned(),
            format!("{seconds:.2}"),
            format!("{seconds:.2}"),
        ]);
        report.judge(
            "a frozen server is detected",
            "≤ 15 s",
            format!("{seconds:.1} s"),
            seconds <= 15.0,
        );
    }
    report.section("Outages", &table);
    Ok(())
}

/// Every stream gets an event, then another one without a notification; then the server crashes and restarts. Returns the
/// seconds from the time when it accepts connections until every subscriber has both events: subscribers must reconnect, and
/// find the second event without a notification.
fn catch_up(server: &Server, options: &Options, report: &mut Report) -> Result<f64, Failure> {
    let streams = if options.is_measuring() { 100 } else { 10 };
    let database = servers::database(server)?;
    let url = server.url_for(&database);
    let load = |first, events, burst| Load {
        streams,
        first,
        events,
        rate: 1_000.0,
        burst,
    };
    let publisher = |candidate, first| {
        Worker::start(&Job::Publish(publish::Job {
            candidate,
            url: url.clone(),
            load: load(first, streams, streams),
        }))
    };
    let mut subscriber = Worker::start(&Job::Subscribe(subscribe::Job {
        candidate: Candidate::Doorbell,
        url: url.clone(),
        port: server.port(),
        connections: 4,
        subscribers: 10 * streams,
        load: load(0, 2 * streams, 1),
        warm_up: streams,
        publishes: false,
        times_each: false,
    }))?;
    let (first, second) = (
        publisher(Candidate::Doorbell, 0)?,
        publisher(Candidate::NotifyOff, streams)?,
    );
    subscriber.go()?;
    first.run::<()>()?;
    second.run::<()>()?;
    server.restart(Stop::Immediate)?;
    let back = timed_event::now();
    let outcome: subscribe::Outcome = subscriber.outcome()?;
    report.count("outage", outcome.errors);
    // A sweep just before the crash may have found the events already.
    Ok(Duration::from_nanos(outcome.finished_at.saturating_sub(back)).as_secs_f64())
}

/// Seconds from freezing all server processes until the bus reports that it is unhealthy, with its default settings.
fn detection(server: &Server) -> Result<f64, Failure> {
    let database = servers::database(server)?;
    let mut worker = Worker::start(&Job::DetectOutage(detect_outage::Job {
        candidate: Candidate::Doorbell,
        url: server.url_for(&database),
    }))?;
    server.freeze()?;
    let frozen = timed_event::now();
    worker.go()?;
    let outcome = worker.outcome::<u64>();
    server.thaw()?;
    Ok(Duration::from_nanos(outcome?.saturating_sub(frozen)).as_secs_f64())
}
