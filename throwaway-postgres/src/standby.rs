//! Streaming replication.

use std::time::{Duration, Instant};

use crate::command::run;
use crate::config::put;
use crate::shared_dir::SharedDir;
use crate::watchdog::WatchedDir;
use crate::{Error, Server, Stop};

/// The time to wait for a standby to catch up.
const REPLAY_LIMIT: Duration = Duration::from_secs(30);

/// Streaming replication.
impl Server {
    /// Creates a hot standby of this server with pg_basebackup, with the same settings, and starts it. It streams from this server.
    ///
    /// # Errors
    ///
    /// Returns [`Error::MissingBinary`] without a pg_basebackup of this version, [`Error::Command`] with its error, and the
    /// errors of [`Builder::start`](crate::Builder::start).
    ///
    /// ```
    /// use throwaway_postgres::Server;
    ///
    /// # fn main() -> Result<(), throwaway_postgres::Error> {
    /// let primary = Server::start()?;
    /// let standby = primary.standby()?;
    /// primary.psql("CREATE TABLE t AS SELECT 7 AS id")?;
    /// primary.wait_for_standby(&standby)?;
    /// assert_eq!(standby.psql("SELECT id FROM t")?, "7");
    /// standby.promote()?;
    /// standby.psql("INSERT INTO t VALUES (8)")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn standby(&self) -> Result<Self, Error> {
        let shared_dir = SharedDir::open(self.os_user)?;
        let dir = WatchedDir::create(self.os_user)?;
        let mut command = self
            .os_user
            .command(self.binaries.program("pg_basebackup")?, dir.path());
        command
            .arg("--pgdata")
            .arg(dir.path().join("data"))
            .args([
                "--write-recovery-conf",
                "--wal-method=stream",
                "--checkpoint=fast",
                "--no-sync",
                "--dbname",
            ])
            .arg(self.url());
        run(&mut command, None)?;
        Self::launch(
            self.builder.clone(),
            self.binaries.clone(),
            self.os_user,
            &shared_dir,
            dir,
        )
    }

    /// Waits until `standby` has replayed everything that this server has committed so far.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Timeout`] after 30 s, for example if the standby has been promoted.
    pub fn wait_for_standby(&self, standby: &Self) -> Result<(), Error> {
        let position = self.psql("SELECT pg_current_wal_flush_lsn()")?;
        let started = Instant::now();
        while standby.psql(&format!("SELECT pg_last_wal_replay_lsn() >= '{position}'"))? != "t" {
            if started.elapsed() > REPLAY_LIMIT {
                return Err(standby.timeout(format!("the replay up to {position}"), REPLAY_LIMIT));
            }
        }
        Ok(())
    }

    /// Promotes this standby to a primary, and returns when it accepts writes.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Command`] if it is not a standby, and [`Error::Timeout`] after a minute.
    pub fn promote(&self) -> Result<(), Error> {
        const LIMIT: Duration = Duration::from_secs(60);
        if self.psql("SELECT pg_promote(true, 60)")? == "t" {
            return Ok(());
        }
        Err(self.timeout("the promotion", LIMIT))
    }

    /// Stops this primary once `successor`, its standby, has everything that it has committed, and makes it a standby of `successor`:
    /// [`start_again`](Self::start_again) starts it as one. [`promote`](Self::promote) the successor before or after that.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`wait_for_standby`](Self::wait_for_standby) and [`stop`](Self::stop), and [`Error::Io`] if the data
    /// directory cannot be written.
    ///
    /// ```
    /// use throwaway_postgres::Server;
    ///
    /// # fn main() -> Result<(), throwaway_postgres::Error> {
    /// let old = Server::start()?;
    /// let new = old.standby()?;
    /// old.psql("CREATE TABLE t AS SELECT 7 AS id")?;
    /// old.demote(&new)?;
    /// new.promote()?;
    /// old.start_again()?;
    /// new.psql("INSERT INTO t VALUES (8)")?;
    /// new.wait_for_standby(&old)?;
    /// assert_eq!(old.psql("SELECT id FROM t ORDER BY id")?, "7\n8");
    /// # Ok(())
    /// # }
    /// ```
    pub fn demote(&self, successor: &Self) -> Result<(), Error> {
        let conninfo = successor.url().replace('\'', "''");
        self.psql(&format!("ALTER SYSTEM SET primary_conninfo = '{conninfo}'"))?;
        // A standby that is connected also receives what is committed from here on: the shutdown waits for it.
        self.wait_for_standby(successor)?;
        self.stop(Stop::Fast)?;
        put(&self.data_directory().join("standby.signal"), "", self.os_user)
    }
}
