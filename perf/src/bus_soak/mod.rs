//! `bus-soak`: processes that publish and subscribe in every way, for a chosen time, with faults on request. Fails if an event
//! is lost, or if memory or connections grow.
//!
//! The test `bus_processes` runs the same work: see [`chaos`].

mod watch;

use std::time::Duration;

use clap::Args;
use throwaway_postgres::Server;

use self::watch::Watch;
use crate::server::MeasuredServer;
use crate::units::{from_one_to, print};
use doorbell_perf::bus::candidates::Failure;
use doorbell_perf::chaos::{self, Plan, Servers};

/// Publish and subscribe over Postgres in every way at once, and check every event, memory and connections
///
/// Processes append to twelve streams, singly and in batches, with and without notifications. Others subscribe: to all streams and
/// to one, fast and slow, replayed or skipping ahead when they lag, permanently and repeatedly, from every kind of start. Retention
/// removes old events throughout. Needs PostgreSQL's programs, or a server.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Duration, in seconds
    #[arg(long, value_name = "S", default_value_t = 60.0)]
    duration: f64,

    /// Publishing processes
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = from_one_to(100))]
    publishers: usize,

    /// Subscribing processes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = from_one_to(100))]
    subscribers: usize,

    /// A publisher's longest pause between two appends, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..))]
    pause: u64,

    /// Events of each stream that retention keeps, besides those of the last 30 s
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(100..))]
    keep: u64,

    /// Inject faults at most this many seconds apart, and at least 0.02: end connections; freeze, restart and kill servers;
    /// switch over; let a hostile role notify, flood and lock
    #[arg(long, value_name = "S", num_args = 0..=1, require_equals = true, default_missing_value = "5",
          conflicts_with = "url")]
    faults: Option<f64>,

    /// Seed of the faults and of what publishers and subscribers do. Default: random
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Run on this server, in a new database, instead of starting one
    #[arg(long, value_name = "postgres://...")]
    url: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let seconds = |what, value| Duration::try_from_secs_f64(value).map_err(|error| format!("{what}: {error}"));
    let plan = Plan {
        duration: seconds("--duration", options.duration)?,
        seed: options.seed.unwrap_or_else(testkit::random::seed),
        publishers: options.publishers,
        subscribers: options.subscribers,
        pause: Duration::from_millis(options.pause),
        keep: options.keep,
        between_faults: seconds("--faults", options.faults.unwrap_or_default())?,
    };
    print(&format!("seed {}\n", plan.seed));
    let mut watch;
    let outcome = if options.faults.is_some() {
        let mut servers = Servers::start()?;
        watch = Watch::new(&plan, servers.port());
        chaos::run(&plan, &servers.url(), Some(&mut servers), |progress| {
            watch.sample(progress)
        })?
    } else {
        let builder = Server::builder().setting("max_connections", 200);
        let server = MeasuredServer::find(options.url.as_deref(), builder)?;
        let database = server.database()?;
        watch = Watch::new(&plan, server.port()?);
        chaos::run(&plan, &database.url(), None, |progress| watch.sample(progress))?
    };
    print(&format!("\n{outcome}\n{watch}"));
    watch.verdict()?;
    print(
        "\nevery event accounted for, memory flat, connections bounded, every bus healthy, no connection left open\n",
    );
    Ok(())
}
