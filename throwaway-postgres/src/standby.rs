//! Streaming replication.

use std::time::{Duration, Instant};

use crate::command::run;
use crate::shared_dir::Base;
use crate::watchdog::Home;
use crate::{Error, Server};

/// How long a standby may be behind before we give up waiting.
const REPLAY_LIMIT: Duration = Duration::from_secs(30);

/// Replication.
impl Server {
    /// Makes a hot standby of this server by pg_basebackup, with the same settings, and starts it; it streams from this one.
    ///
    /// # Errors
    ///
    /// [`Error::MissingBinary`] without a pg_basebackup of this version, [`Error::Command`] with what it says, and as for
    /// [`Builder::start`](crate::Builder::start).
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
        let base = Base::open(self.account)?;
        let home = Home::create(self.account)?;
        let mut command = self
            .account
            .command(self.binaries.program("pg_basebackup")?, home.path());
        command
            .arg("--pgdata")
            .arg(home.path().join("data"))
            .args([
                "--write-recovery-conf",
                "--wal-method=stream",
                "--checkpoint=fast",
                "--no-sync",
                "--dbname",
            ])
            .arg(self.url());
        run(&mut command, None)?;
        Self::launch(self.builder.clone(), self.binaries.clone(), self.account, &base, home)
    }

    /// Returns when `standby` shows everything that this server has committed until now.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] after 30 s, for example when the standby has been promoted.
    pub fn wait_for_standby(&self, standby: &Self) -> Result<(), Error> {
        let position = self.psql("SELECT pg_current_wal_flush_lsn()")?;
        let begun = Instant::now();
        while standby.psql(&format!("SELECT pg_last_wal_replay_lsn() >= '{position}'"))? != "t" {
            if begun.elapsed() > REPLAY_LIMIT {
                return Err(standby.timeout(format!("the replay up to {position}"), REPLAY_LIMIT));
            }
        }
        Ok(())
    }

    /// Makes this standby a primary; returns when it takes writes.
    ///
    /// # Errors
    ///
    /// [`Error::Command`] if it is none, [`Error::Timeout`] if it takes more than a minute.
    pub fn promote(&self) -> Result<(), Error> {
        const LIMIT: Duration = Duration::from_secs(60);
        if self.psql("SELECT pg_promote(true, 60)")? == "t" {
            return Ok(());
        }
        Err(self.timeout("the promotion", LIMIT))
    }
}
