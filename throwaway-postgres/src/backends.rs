//! Disturbing single connections.

use nix::sys::signal::Signal;

use crate::{Error, Server, processes};

/// Single connections.
///
/// A backend is the server's process for one connection; `pg_backend_pid()` gives its number to the client.
impl Server {
    /// The backends whose client calls itself `application_name`.
    ///
    /// # Errors
    ///
    /// If the server cannot be asked.
    ///
    /// ```
    /// # fn main() -> Result<(), throwaway_postgres::Error> {
    /// let server = throwaway_postgres::Server::start()?;
    /// assert!(server.backends("nobody by this name")?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn backends(&self, application_name: &str) -> Result<Vec<u32>, Error> {
        let name = application_name.replace('\'', "''");
        let pids = self.psql(&format!(
            "SELECT pid FROM pg_stat_activity WHERE application_name = '{name}' ORDER BY backend_start"
        ))?;
        Ok(pids.lines().filter_map(|pid| pid.parse().ok()).collect())
    }

    /// Ends one connection as `pg_terminate_backend` does: the client is told.
    ///
    /// # Errors
    ///
    /// [`Error::NotABackend`] if it is none of this server's processes.
    pub fn terminate_backend(&self, pid: u32) -> Result<(), Error> {
        self.signal_backend(pid, Signal::SIGTERM)
    }

    /// Kills one backend. The server takes it for a crash: it disconnects all clients and recovers.
    ///
    /// # Errors
    ///
    /// [`Error::NotABackend`] if it is none of this server's processes.
    pub fn kill_backend(&self, pid: u32) -> Result<(), Error> {
        self.signal_backend(pid, Signal::SIGKILL)
    }

    /// Stops one backend where it stands; returns when it stands still.
    ///
    /// # Errors
    ///
    /// [`Error::NotABackend`] if it is none of this server's processes.
    pub fn freeze_backend(&self, pid: u32) -> Result<(), Error> {
        self.signal_backend(pid, Signal::SIGSTOP)?;
        processes::freeze(pid);
        Ok(())
    }

    /// Lets a frozen backend go on.
    ///
    /// # Errors
    ///
    /// [`Error::NotABackend`] if it is none of this server's processes.
    pub fn thaw_backend(&self, pid: u32) -> Result<(), Error> {
        self.signal_backend(pid, Signal::SIGCONT)
    }

    fn signal_backend(&self, pid: u32, signal: Signal) -> Result<(), Error> {
        if processes::children(self.pid()?).contains(&pid) && processes::send(pid, signal) {
            return Ok(());
        }
        Err(Error::NotABackend { pid })
    }
}
