//! Ten thousand idle subscriptions.

use throwaway_postgres::Server;

use crate::options::Options;
use crate::report::Report;
use crate::servers;
use doorbell_perf::bus::candidates::{Candidate, Failure};
use doorbell_perf::bus::worker::{Job, Worker, idle};
use doorbell_perf::table::{Align, Table};

/// The naive design would need ten thousand connections.
const CANDIDATES: &[Candidate] = &[Candidate::Doorbell, Candidate::PgBus];

pub(crate) fn measure(server: &Server, options: &Options, report: &mut Report) -> Result<(), Failure> {
    let subscribers = if options.is_measuring() { 10_000 } else { 100 };
    let mut table = Table::new(&[
        ("subscribers", Align::Left),
        ("bus", Align::Left),
        ("subscriptions, MiB", Align::Right),
        ("process, MiB", Align::Right),
        ("CPU, % of a core", Align::Right),
        ("connections", Align::Right),
        ("reads", Align::Right),
        ("transactions", Align::Right),
    ]);
    for streams in [1, subscribers / 10] {
        for &candidate in CANDIDATES {
            eprintln!("idle: {subscribers} on {streams}, {}", candidate.name());
            let database = servers::database(server)?;
            let worker = Worker::start(&Job::Idle(idle::Job {
                candidate,
                url: server.url_for(&database),
                port: server.port(),
                subscribers,
                streams,
                seconds: options.seconds(10.0),
            }))?;
            let outcome: idle::Outcome = worker.run()?;
            table.row(&[
                format!("{subscribers} on {streams} streams"),
                candidate.name().to_owned(),
                format!("{:.1}", outcome.held),
                format!("{:.1}", outcome.resident),
                format!("{:.2}", 100.0 * outcome.cpu),
                outcome.connections.to_string(),
                outcome.reads.to_string(),
                servers::transactions(server, &database)?.to_string(),
            ]);
            if candidate == Candidate::Doorbell {
                let what = format!("{subscribers} idle on {streams} streams");
                report.judge(
                    format!("{what}: memory"),
                    "≤ 64 MiB",
                    format!("{:.1} MiB", outcome.held),
                    outcome.held <= 64.0,
                );
                // The bus only sends a heartbeat and sweeps, every few seconds.
                report.judge(
                    format!("{what}: processor"),
                    "≤ 1 %",
                    format!("{:.2} %", 100.0 * outcome.cpu),
                    outcome.cpu <= 0.01,
                );
            }
        }
    }
    report.section("Idle for ten seconds", &table);
    Ok(())
}
