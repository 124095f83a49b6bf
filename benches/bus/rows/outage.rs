//! How long until everybody is up to date after the server has been away, and how long until a frozen one is noticed.

use std::time::Duration;

use throwaway_postgres::{Server, Stop};

use crate::bus::candidates::{Failure, Who};
use crate::bus::options::Options;
use crate::bus::report::{Report, median};
use crate::bus::worker::publish::Load;
use crate::bus::worker::{Job, Worker, notice, publish, subscribe};
use crate::bus::{servers, tick};
use crate::table::layout::{Align, Table};

pub(crate) fn measure(server: &Server, options: &Options, report: &mut Report) -> Result<(), Failure> {
    let mut table = Table::new(&[
        ("what", Align::Left),
        ("bus", Align::Left),
        ("median s", Align::Right),
        ("longest", Align::Right),
    ]);
    let mut row = |what: &str, who: Who, seconds: &[f64]| {
        let longest = seconds.iter().copied().fold(0.0, f64::max);
        let middle = median(seconds.iter().copied());
        table.row(&[
            what.to_owned(),
            who.name().to_owned(),
            format!("{middle:.2}"),
            format!("{longest:.2}"),
        ]);
        longest
    };
    for who in [Who::Doorbell, Who::PgBus] {
        let mut seconds = Vec::new();
        for round in 0..options.rounds() {
            eprintln!("outage: catching up, {}, round {}", who.name(), round + 1);
            seconds.push(catch_up(server, who, options, report)?);
        }
        let longest = row("everybody has caught up after a crash", who, &seconds);
        if who == Who::Doorbell {
            report.judge(
                "caught up after the server is back",
                "≤ 1 s",
                format!("{longest:.2} s"),
                longest <= 1.0,
            );
        }
    }
    // It takes its time: once is enough.
    if options.is_measuring() {
        eprintln!("outage: a frozen server");
        let seconds = noticed(server)?;
        row("a frozen server is noticed", Who::Doorbell, &[seconds]);
        report.judge(
            "a frozen server is noticed",
            "≤ 15 s",
            format!("{seconds:.1} s"),
            seconds <= 15.0,
        );
    }
    report.section("Outages", &table);
    Ok(())
}

/// Every stream gets an event, the server crashes and comes back, and every stream gets another one, of which doorbell's
/// subscribers are not told: they must find it by themselves. (pg-bus appends and tells in one, so its subscribers are.) Seconds
/// from when the server takes connections until everybody has everything.
fn catch_up(server: &Server, who: Who, options: &Options, report: &mut Report) -> Result<f64, Failure> {
    let streams = if options.is_measuring() { 100 } else { 10 };
    let database = servers::database(server)?;
    let url = server.url_for(&database);
    let publisher = |who, first| {
        Worker::start(&Job::Publish(publish::Job {
            who,
            url: url.clone(),
            load: Load {
                streams,
                first,
                events: streams,
                rate: 1_000.0,
                burst: streams,
            },
        }))
    };
    let mut subscriber = Worker::start(&Job::Subscribe(subscribe::Job {
        who,
        url: url.clone(),
        port: server.port(),
        connections: 4,
        subscribers: 10 * streams,
        load: Load {
            streams,
            first: 0,
            events: 2 * streams,
            rate: 1_000.0,
            burst: 1,
        },
        warm_up: streams,
        publishes: false,
    }))?;
    subscriber.go()?;
    publisher(who, 0)?.run::<()>()?;
    server.restart(Stop::Immediate)?;
    let back = tick::now();
    publisher(if who == Who::Doorbell { Who::Silent } else { who }, streams)?.run::<()>()?;
    let outcome: subscribe::Outcome = subscriber.outcome()?;
    report.count(format!("outage, {}", who.name()), outcome.wrongs);
    Ok(Duration::from_nanos(outcome.finished_at.saturating_sub(back)).as_secs_f64())
}

/// Seconds from when all processes of the server stand still until the bus says that something is wrong, with its default settings.
fn noticed(server: &Server) -> Result<f64, Failure> {
    let database = servers::database(server)?;
    let mut worker = Worker::start(&Job::Notice(notice::Job {
        who: Who::Doorbell,
        url: server.url_for(&database),
    }))?;
    server.freeze()?;
    let frozen = tick::now();
    worker.go()?;
    let outcome = worker.outcome::<u64>();
    server.thaw()?;
    Ok(Duration::from_nanos(outcome?.saturating_sub(frozen)).as_secs_f64())
}
