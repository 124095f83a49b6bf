//! The servers everything runs on: durable ones, since that is what a commit costs.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use throwaway_postgres::Server;

use doorbell_perf::bus::candidates::Failure;

/// How long the counters of a server may take to come to rest.
const SETTLE_LIMIT: Duration = Duration::from_secs(15);

/// A server whose commits cost what this machine's disk costs.
pub(crate) fn native() -> Result<Server, Failure> {
    Ok(Server::builder().durable().start()?)
}

/// A server whose commits take 2 ms more, as with a disk across a network, whatever this machine has.
pub(crate) fn slow_flush() -> Result<Server, Failure> {
    Ok(Server::builder()
        .durable()
        .setting("commit_delay", 2000)
        .setting("commit_siblings", 0)
        .start()?)
}

/// A fresh database on the server, which goes with it. One for each measurement, so that none finds what another left.
pub(crate) fn database(server: &Server) -> Result<String, Failure> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // Relaxed: a number of its own is all that is needed.
    let name = format!("bench_{}", COUNT.fetch_add(1, Ordering::Relaxed));
    server.psql(&format!("CREATE DATABASE {name}"))?;
    Ok(name)
}

/// How many transactions have ended in the database. Sessions report theirs when they end, so this waits until all have.
pub(crate) fn transactions(server: &Server, database: &str) -> Result<u64, Failure> {
    let begun = Instant::now();
    let sessions = format!("SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}'");
    while server.psql(&sessions)? != "0" {
        if begun.elapsed() > SETTLE_LIMIT {
            return Err("the sessions of a worker that has ended are still there".into());
        }
    }
    let count = format!("SELECT xact_commit FROM pg_stat_database WHERE datname = '{database}'");
    Ok(server.psql(&count)?.parse()?)
}
