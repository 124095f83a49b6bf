//! A private server.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::binaries::Binaries;
use crate::builder::Builder;
use crate::os_user::OsUser;
use crate::port::Port;
use crate::postmaster::{Postmaster, log_end};
use crate::shared_dir::SharedDir;
use crate::watchdog::WatchedDir;
use crate::{Error, config, template, url};

/// The number of ports to try if another program takes the reserved one.
const START_TRIES: u32 = 5;
/// The time that a server may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// A private PostgreSQL server. Dropping it stops it and removes its data.
///
/// ```
/// use throwaway_postgres::{Server, Stop};
///
/// # fn main() -> Result<(), throwaway_postgres::Error> {
/// let server = Server::start()?;
/// server.psql("CREATE TABLE seen (id int); INSERT INTO seen VALUES (1)")?;
/// server.restart(Stop::Immediate)?; // same port, same data
/// assert_eq!(server.psql("SELECT id FROM seen")?, "1");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Server {
    pub(crate) builder: Builder,
    pub(crate) binaries: Binaries,
    pub(crate) os_user: OsUser,
    port: Port,
    postmaster: Mutex<Option<Postmaster>>,
    // Dropped last: the server must end before its directory is removed.
    dir: WatchedDir,
}

/// How a server stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// Waits until all clients have disconnected.
    Smart,
    /// Rolls back open transactions, disconnects all clients, and writes everything to the disk.
    Fast,
    /// Exits at once; the next start recovers as after a crash.
    Immediate,
    /// Kills all processes; clients get a broken connection without an error message.
    Kill,
}

impl Server {
    /// Starts a server with trusted connections, UTF-8, `fsync = off`, and otherwise PostgreSQL's defaults.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Builder::start`].
    pub fn start() -> Result<Self, Error> {
        Self::builder().start()
    }

    /// Returns a builder with the default settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn from_builder(builder: Builder) -> Result<Self, Error> {
        let os_user = OsUser::find()?;
        let shared_dir = SharedDir::open(os_user)?;
        let binaries = Binaries::find(builder.binaries.as_deref(), os_user, &shared_dir)?;
        let dir = WatchedDir::create(os_user)?;
        template::create_data(&builder, &binaries, os_user, &shared_dir, &dir.path().join("data"))?;
        Self::launch(builder, binaries, os_user, &shared_dir, dir)
    }

    /// Starts the server whose data is in `dir/data`, on a newly reserved port.
    pub(crate) fn launch(
        builder: Builder,
        binaries: Binaries,
        os_user: OsUser,
        shared_dir: &SharedDir,
        dir: WatchedDir,
    ) -> Result<Self, Error> {
        for _ in 0..START_TRIES {
            let port = Port::reserve(shared_dir)?;
            config::write(&builder, &dir.path().join("data"), port.number, dir.path(), os_user)?;
            match Postmaster::start(&binaries, os_user, dir.path()) {
                Ok(postmaster) => {
                    return Ok(Self {
                        builder,
                        binaries,
                        os_user,
                        port,
                        postmaster: Mutex::new(Some(postmaster)),
                        dir,
                    });
                }
                Err(Error::Start { log, .. }) if log.contains("Address already in use") => {
                    fs::remove_file(dir.path().join("log")).ok();
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::NoPort { tries: START_TRIES })
    }

    /// Returns the URL of the database `postgres`, as the superuser `postgres` over TCP.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_for("postgres")
    }

    /// Returns the URL of a database of the server.
    #[must_use]
    pub fn url_for(&self, database: &str) -> String {
        url::of(self.port.number, self.password(), database)
    }

    /// Returns the port on 127.0.0.1. A restart keeps it.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number
    }

    /// Returns the directory of the Unix socket.
    #[must_use]
    pub fn socket_directory(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    /// Returns the data directory.
    #[must_use]
    pub fn data_directory(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Returns the superuser's password, if one is required.
    #[must_use]
    pub fn password(&self) -> Option<&str> {
        self.builder.password.as_deref()
    }

    /// Returns the major version, such as 15 for 15.4.
    #[must_use]
    pub fn major_version(&self) -> u32 {
        self.binaries.major()
    }

    /// Returns the process id of the server's first process, the parent of all others.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NotRunning`] while the server is stopped.
    pub fn pid(&self) -> Result<u32, Error> {
        self.running().as_ref().map(Postmaster::pid).ok_or(Error::NotRunning)
    }

    /// Returns the server's whole log, since its first start.
    #[must_use]
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.dir.path().join("log")).unwrap_or_default()).into_owned()
    }

    /// Stops the server if it runs, resuming it first if it is frozen, and returns when it has exited.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Timeout`] after a minute, for example because a client stays connected. The server continues to stop.
    pub fn stop(&self, how: Stop) -> Result<(), Error> {
        let mut running = self.running();
        let Some(postmaster) = running.as_mut() else {
            return Ok(());
        };
        let signal = match how {
            Stop::Smart => Signal::SIGTERM,
            Stop::Fast => Signal::SIGINT,
            Stop::Immediate => Signal::SIGQUIT,
            Stop::Kill => {
                postmaster.kill();
                *running = None;
                return Ok(());
            }
        };
        if postmaster.stop(signal, STOP_LIMIT).is_none() {
            return Err(self.timeout("the shutdown", STOP_LIMIT));
        }
        *running = None;
        Ok(())
    }

    /// Starts the stopped server with its data, on the same port, and returns when it accepts connections.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Running`] if it is not stopped, and [`Error::Start`] if it does not start.
    pub fn start_again(&self) -> Result<(), Error> {
        let mut running = self.running();
        if running.is_some() {
            return Err(Error::Running);
        }
        *running = Some(Postmaster::start(&self.binaries, self.os_user, self.dir.path())?);
        Ok(())
    }

    /// Stops the server and starts it again.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`stop`](Self::stop) and [`start_again`](Self::start_again).
    pub fn restart(&self, how: Stop) -> Result<(), Error> {
        self.stop(how)?;
        self.start_again()
    }

    /// Suspends all processes of the server (`SIGSTOP`), and returns when they are suspended. Connections stay open, but get no
    /// answers.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NotRunning`] while the server is stopped.
    pub fn freeze(&self) -> Result<(), Error> {
        self.running().as_mut().map(Postmaster::freeze).ok_or(Error::NotRunning)
    }

    /// Resumes a frozen server.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NotRunning`] while the server is stopped.
    pub fn thaw(&self) -> Result<(), Error> {
        self.running().as_mut().map(Postmaster::thaw).ok_or(Error::NotRunning)
    }

    pub(crate) fn timeout(&self, what: impl Into<String>, limit: Duration) -> Error {
        Error::Timeout {
            what: what.into(),
            limit,
            log: log_end(self.dir.path()),
        }
    }

    fn running(&self) -> MutexGuard<'_, Option<Postmaster>> {
        // The server must be stopped even if a test has panicked with the lock held.
        self.postmaster.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(postmaster) = self.running().as_mut()
            && postmaster.stop(Signal::SIGQUIT, Duration::from_secs(5)).is_none()
        {
            postmaster.kill();
        }
    }
}
