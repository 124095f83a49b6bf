//! The servers that are measured on. They are durable, because the flush is most of what a commit costs.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use throwaway_postgres::Server;

use doorbell_perf::bus::candidates::Failure;

/// How long sessions of an ended worker may take to disappear.
const SETTLE_LIMIT: Duration = Duration::from_secs(15);

/// A server with this machine's own flush time.
pub(crate) fn native() -> Result<Server, Failure> {
    Ok(Server::builder().durable().start()?)
}

/// A server whose commits take 2 ms longer, as with a network disk, whatever the hardware.
pub(crate) fn slow_flush() -> Result<Server, Failure> {
    Ok(Server::builder()
        .durable()
        .setting("commit_delay", 2000)
        .setting("commit_siblings", 0)
        .start()?)
}

/// A new database for each measurement, so that none sees the data of another. It is dropped with the server.
pub(crate) fn database(server: &Server) -> Result<String, Failure> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // Relaxed: the numbers only have to differ.
    let name = format!("bench_{}", COUNT.fetch_add(1, Ordering::Relaxed));
    server.psql(&format!("CREATE DATABASE {name}"))?;
    Ok(name)
}

/// The number of transactions committed in the database. Sessions report theirs when they end, so this waits for all of them
/// to end.
pub(crate) fn transactions(server: &Server, database: &str) -> Result<u64, Failure> {
    let begun = Instant::now();
    let sessions = format!("SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}'");
    while server.psql(&sessions)? != "0" {
        if begun.elapsed() > SETTLE_LIMIT {
            return Err("sessions of an ended worker are still connected".into());
        }
    }
    let count = format!("SELECT xact_commit FROM pg_stat_database WHERE datname = '{database}'");
    Ok(server.psql(&count)?.parse()?)
}
