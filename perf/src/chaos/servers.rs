//! The servers of a run with faults: a primary and its standby behind one address, which leads to one of them.

use std::thread::sleep;
use std::time::Duration;

use sqlx::{Connection as _, PgConnection};
use testkit::proxy::Proxy;
use testkit::random::{Rng, RngExt as _};
use throwaway_postgres::Server;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::{Failure, named};
use crate::bus::timed_event::now;
use crate::child::{LIMIT, runtime};

/// The `application_name` of the probe.
const PROBE: &str = "chaos probe";

/// The time between two attempts of the probe.
const PROBE_INTERVAL: Duration = Duration::from_millis(5);

/// A primary and its standby. Both end when this is dropped.
pub struct Servers {
    primary: Server,
    standby: Server,
    proxy: Proxy,
    /// Runs the proxy.
    runtime: Runtime,
}

impl Servers {
    pub fn start() -> Result<Self, Failure> {
        let primary = Server::builder()
            .setting("max_connections", 200)
            // The standby is disconnected for a while after some faults, and must find what it missed.
            .setting("wal_keep_size", "512MB")
            .setting("wal_retrieve_retry_interval", "100ms")
            .start()?;
        let standby = primary.standby()?;
        let runtime = runtime();
        let proxy = runtime.block_on(Proxy::start(primary.port()))?;
        proxy.stop_recording();
        Ok(Self {
            primary,
            standby,
            proxy,
            runtime,
        })
    }

    /// The URL of the address that leads to the primary.
    pub fn url(&self) -> String {
        self.proxy.url("postgres")
    }

    /// The port of that address.
    pub fn port(&self) -> u16 {
        self.proxy.address().port()
    }

    pub(super) fn primary(&self) -> &Server {
        &self.primary
    }

    /// The URLs of both servers, past the common address.
    pub(super) fn direct_urls(&self) -> [String; 2] {
        [self.primary.url(), self.standby.url()]
    }

    /// Makes the standby the primary, and the primary its standby. Nothing that was committed is lost. Returns the time at which a new
    /// connection to the address first found the new primary writable.
    pub(super) fn switch_over(&mut self, rng: &mut Rng) -> Result<u64, Failure> {
        let (old, new) = (&self.primary, &self.standby);
        old.demote(new)?;
        // Usually clients reconnect to the old primary while it is a standby, and stay connected to it.
        let old_returns_first = rng.percent(70);
        if old_returns_first {
            old.start_again()?;
            sleep(rng.millis(0..1_000));
        }
        let url = self.url();
        let probe = self
            .runtime
            .spawn(async move { timeout(LIMIT, first_writable(url)).await });
        if rng.percent(30) {
            self.proxy.redirect(new.port());
            sleep(rng.millis(0..500));
        }
        new.promote()?;
        self.proxy.redirect(new.port());
        if !old_returns_first {
            sleep(rng.millis(0..500));
            old.start_again()?;
        }
        std::mem::swap(&mut self.primary, &mut self.standby);
        let writable = self.runtime.block_on(probe)?;
        writable.map_err(|_| "the probe did not find the new primary writable".into())
    }
}

/// When a new connection first writes. An attempt has no limit of its own: on a busy machine a connection may take long, for the bus, too.
async fn first_writable(url: String) -> u64 {
    let url = named(&url, PROBE);
    while write(&url).await.is_err() {
        tokio::time::sleep(PROBE_INTERVAL).await;
    }
    now()
}

/// Writes on a new connection, which it returns.
async fn write(url: &str) -> Result<PgConnection, sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    // A standby cannot assign a transaction ID.
    let write = sqlx::query("SELECT pg_catalog.pg_current_xact_id()");
    write.execute(&mut connection).await?;
    Ok(connection)
}
