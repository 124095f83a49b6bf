//! How many events per second 32 writers append while each commit waits 2 ms for its flush.

use throwaway_postgres::Server;

use crate::bus::candidates::{Failure, Who};
use crate::bus::options::Options;
use crate::bus::report::Report;
use crate::bus::servers;
use crate::bus::worker::{Job, Worker, append};
use crate::table::layout::{Align, Table};

const WRITERS: usize = 32;

/// Name, bus, streams, events per append.
const WORKS: &[(&str, Who, usize, usize)] = &[
    ("one by one", Who::PgBus, WRITERS, 1),
    ("batches of 32", Who::PgBus, WRITERS, 32),
];

pub(crate) fn measure(server: &Server, options: &Options, report: &mut Report) -> Result<(), Failure> {
    let mut table = Table::new(&[
        ("work", Align::Left),
        ("streams", Align::Right),
        ("bus", Align::Left),
        ("events/s", Align::Right),
        ("append p50 ms", Align::Right),
        ("p99", Align::Right),
    ]);
    for &(name, who, streams, batch) in WORKS {
        eprintln!("appends: {name} on {streams} streams, {}", who.name());
        let outcome = one(server, options, who, WRITERS, streams, batch)?;
        table.row(&[
            name.to_owned(),
            streams.to_string(),
            who.name().to_owned(),
            format!("{:.0}", outcome.rate),
            format!("{:.1}", outcome.latency.p50),
            format!("{:.1}", outcome.latency.p99),
        ]);
    }
    report.section("Appends by 32 writers, each flush 2 ms longer", &table);
    Ok(())
}

fn one(
    server: &Server,
    options: &Options,
    who: Who,
    writers: usize,
    streams: usize,
    batch: usize,
) -> Result<append::Outcome, Failure> {
    let database = servers::database(server)?;
    Worker::start(&Job::Append(append::Job {
        who,
        url: server.url_for(&database),
        writers,
        streams,
        batch,
        seconds: options.seconds(3.0),
    }))?
    .run()
}
