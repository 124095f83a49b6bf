//! Events per second appended by 32 writers when each flush takes 2 ms longer.

use throwaway_postgres::Server;

use crate::options::Options;
use crate::report::{Report, median};
use crate::servers;
use doorbell_perf::bus::candidates::{Candidate, Failure};
use doorbell_perf::bus::worker::{Job, Worker, append};
use doorbell_perf::table::{Align, Table};

const WRITERS: usize = 32;

/// A way to append.
struct Work {
    name: &'static str,
    candidate: Candidate,
    streams: usize,
    /// Events per append.
    batch: usize,
    /// The least ratio of its rate to the first one, which is pg-bus's.
    target: Option<f64>,
}

const WORKS: &[Work] = &[
    work("one by one", Candidate::PgBus, 32, 1, None),
    work("batches of 32", Candidate::PgBus, 32, 32, None),
    work("one by one", Candidate::Naive, 32, 1, None),
    work("one by one", Candidate::Doorbell, 32, 1, Some(20.0)),
    work("one by one", Candidate::Doorbell, 1, 1, Some(1.0)),
    work("batches of 32", Candidate::Doorbell, 1, 32, Some(10.0)),
    work("batches of 32", Candidate::Doorbell, 32, 32, None),
];

const fn work(name: &'static str, candidate: Candidate, streams: usize, batch: usize, target: Option<f64>) -> Work {
    Work {
        name,
        candidate,
        streams,
        batch,
        target,
    }
}

pub(crate) fn measure(server: &Server, options: &Options, report: &mut Report) -> Result<(), Failure> {
    let mut table = Table::new(&[
        ("workload", Align::Left),
        ("streams", Align::Right),
        ("bus", Align::Left),
        ("events/s", Align::Right),
        ("to pg-bus", Align::Right),
        ("append p50 ms", Align::Right),
        ("p99", Align::Right),
    ]);
    let mut outcomes: Vec<Vec<append::Outcome>> = WORKS.iter().map(|_| Vec::new()).collect();
    for round in 0..options.rounds() {
        for (work, outcomes) in WORKS.iter().zip(&mut outcomes) {
            let (name, streams, candidate) = (work.name, work.streams, work.candidate.name());
            eprintln!("appends: {name} on {streams} streams, {candidate}, round {}", round + 1);
            outcomes.push(one(server, options, work.candidate, WRITERS, streams, work.batch)?);
        }
    }
    let of = |outcomes: &[append::Outcome], figure: fn(&append::Outcome) -> f64| median(outcomes.iter().map(figure));
    let first = of(&outcomes[0], |outcome| outcome.rate);
    for (work, outcomes) in WORKS.iter().zip(&outcomes) {
        let rate = of(outcomes, |outcome| outcome.rate);
        table.row(&[
            work.name.to_owned(),
            work.streams.to_string(),
            work.candidate.name().to_owned(),
            format!("{rate:.0}"),
            format!("{:.2}", rate / first),
            format!("{:.1}", of(outcomes, |outcome| outcome.latency.quantile_millis(0.5))),
            format!("{:.1}", of(outcomes, |outcome| outcome.latency.quantile_millis(0.99))),
        ]);
        if let Some(target) = work.target {
            let streams = if work.streams == 1 {
                "one stream".to_owned()
            } else {
                format!("{} streams", work.streams)
            };
            report.at_least(
                format!("appends by 32 writers on {streams}, {}, to pg-bus", work.name),
                target,
                rate / first,
            );
        }
    }
    report.section("Appends by 32 writers, each flush 2 ms longer", &table);
    Ok(())
}

/// One measurement, in its own database.
pub(super) fn one(
    server: &Server,
    options: &Options,
    candidate: Candidate,
    writers: usize,
    streams: usize,
    batch: usize,
) -> Result<append::Outcome, Failure> {
    let database = servers::database(server)?;
    Worker::start(&Job::Append(append::Job {
        candidate,
        url: server.url_for(&database),
        writers,
        streams,
        batch,
        seconds: options.seconds(2.0),
    }))?
    .run()
}
