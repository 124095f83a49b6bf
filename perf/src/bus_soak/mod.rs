//! `bus-soak`: processes that publish and subscribe in every way, for as long as you like, on a server that may be disturbed; ends
//! with an error if an event, memory or a connection went astray.
//!
//! The work is that of the test `bus_processes`: see [`chaos`].

mod watch;

use std::time::Duration;

use clap::Args;
use throwaway_postgres::Server;

use self::watch::Watch;
use crate::server::Place;
use crate::units::{from_one_to, say};
use doorbell_perf::bus::candidates::Failure;
use doorbell_perf::chaos::{self, Plan};
use doorbell_perf::random;

/// Publish and subscribe over Postgres in every way at once, and check every account, memory and connections
///
/// Processes append to twelve streams, singly and in batches, with bells before long and without. Others subscribe: to all streams
/// and to one, quick and slow, to be served or to be told what they miss, for good and in turns, from every kind of start. What is
/// old is removed meanwhile. Needs PostgreSQL's programs, or a server.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How long, in seconds
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

    /// How many events of each stream are kept
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(100..))]
    keep: u64,

    /// Disturb the server and the publishers: end connections, freeze, restart, kill; at most so many seconds apart
    #[arg(long, value_name = "S", num_args = 0..=1, require_equals = true, default_missing_value = "5",
          conflicts_with = "url")]
    faults: Option<f64>,

    /// Chooses the faults and what publishers and subscribers do; none is like another if nothing is said
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Run on this server, in a database that is made for it, instead of one that is started
    #[arg(long, value_name = "postgres://...")]
    url: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let seconds = |what, value| Duration::try_from_secs_f64(value).map_err(|error| format!("{what}: {error}"));
    let plan = Plan {
        duration: seconds("--duration", options.duration)?,
        seed: options.seed.unwrap_or_else(random::seed),
        publishers: options.publishers,
        subscribers: options.subscribers,
        pause: Duration::from_millis(options.pause),
        keep: options.keep,
        between_faults: seconds("--faults", options.faults.unwrap_or_default())?,
    };
    say(&format!("seed {}\n", plan.seed));
    let place = Place::find(
        options.url.as_deref(),
        Server::builder().setting("max_connections", 200),
    )?;
    let database = place.database()?;
    let disturbed = place.own().filter(|_| options.faults.is_some());
    let mut watch = Watch::new(&plan, place.port()?);
    let outcome = chaos::run(&plan, &database.url(), disturbed, |glance| watch.look(glance))?;
    say(&format!("\n{outcome}\n{watch}"));
    watch.verdict()?;
    say("\nevery event accounted for, memory flat, connections bounded, every bus healthy, nobody left connected\n");
    Ok(())
}
