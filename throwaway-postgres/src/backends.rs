//! Injects faults into single connections.

use nix::sys::signal::Signal;

use crate::{Error, Server, processes};

/// Injects faults into single connections.
///
/// A backend is the server's process for one connection; `pg_backend_pid()` returns its process id.
impl Server {
    /// Returns the backends of clients with this `application_name`, oldest first.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Command`] if the query fails.
    ///
    /// ```
    /// # fn main() -> Result<(), throwaway_postgres::Error> {
    /// let server = throwaway_postgres::Server::start()?;
    /// assert!(server.backends("no such client")?.is_empty());
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

    /// Terminates all backends that are connected with the given `application_name`, and returns how many. One that exits meanwhile
    /// is none: clients may disconnect at any time.
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not answer.
    pub fn terminate_backends(&self, application_name: &str) -> Result<usize, Error> {
        let pids = self.backends(application_name)?;
        Ok(pids
            .into_iter()
            .filter(|&pid| self.terminate_backend(pid).is_ok())
            .count())
    }

    /// Terminates one backend like `pg_terminate_backend`: the client gets an error.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NotABackend`] if it is not a process of this server.
    pub fn terminate_backend(&self, pid: u32) -> Result<(), Error> {
        self.signal_backend(pid, Signal::SIGTERM)
    }

    /// Kills one backend. The server treats it as a crash: it disconnects all clients and recovers.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NotABackend`] if it is not a process of this server.
    pub fn kill_backend(&self, pid: u32) -> Result<(), Error> {
        self.signal_backend(pid, Signal::SIGKILL)
    }

    /// Suspends one backend (`SIGSTOP`), and returns when it is suspended.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NotABackend`] if it is not a process of this server.
    pub fn freeze_backend(&self, pid: u32) -> Result<(), Error> {
        self.signal_backend(pid, Signal::SIGSTOP)?;
        processes::freeze(pid);
        Ok(())
    }

    /// Resumes a frozen backend.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NotABackend`] if it is not a process of this server.
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
