//! A server of one's own.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::binaries::Binaries;
use crate::builder::Builder;
use crate::os_user::Account;
use crate::port::Port;
use crate::postmaster::{Postmaster, log_end};
use crate::shared_dir::Base;
use crate::watchdog::Home;
use crate::{Error, config, template, url};

/// How often another port is tried when somebody else has taken ours just now.
const START_TRIES: u32 = 5;
/// How long a server may take to stop.
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
    pub(crate) account: Account,
    port: Port,
    postmaster: Mutex<Option<Postmaster>>,
    // Last: the server has ended when its directory goes.
    home: Home,
}

/// How a server stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// Waits until all clients have left.
    Smart,
    /// Disconnects all clients, rolls back what they had open, and writes everything to the disk.
    Fast,
    /// Ends at once; the next start recovers as after a crash.
    Immediate,
    /// All its processes are killed; clients see a broken connection without a word.
    Kill,
}

impl Server {
    /// Starts a server with trusted connections, UTF-8, `fsync = off` and otherwise the defaults of its version.
    ///
    /// # Errors
    ///
    /// As for [`Builder::start`].
    pub fn start() -> Result<Self, Error> {
        Self::builder().start()
    }

    /// Settings for a server to be started.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn from_builder(builder: Builder) -> Result<Self, Error> {
        let account = Account::find()?;
        let base = Base::open(account)?;
        let binaries = Binaries::find(builder.binaries.as_deref(), account, &base)?;
        let home = Home::create(account)?;
        template::create_data(&builder, &binaries, account, &base, &home.path().join("data"))?;
        Self::launch(builder, binaries, account, &base, home)
    }

    /// Starts the server whose data is in `home/data`, on a port of its own.
    pub(crate) fn launch(
        builder: Builder,
        binaries: Binaries,
        account: Account,
        base: &Base,
        home: Home,
    ) -> Result<Self, Error> {
        for _ in 0..START_TRIES {
            let port = Port::reserve(base)?;
            config::write(&builder, &home.path().join("data"), port.number, home.path(), account)?;
            match Postmaster::start(&binaries, account, home.path()) {
                Ok(postmaster) => {
                    return Ok(Self {
                        builder,
                        binaries,
                        account,
                        port,
                        postmaster: Mutex::new(Some(postmaster)),
                        home,
                    });
                }
                Err(Error::Start { log, .. }) if log.contains("Address already in use") => {
                    fs::remove_file(home.path().join("log")).ok();
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::NoPort { tries: START_TRIES })
    }

    /// Where to connect: the database `postgres` as the superuser `postgres`, over TCP.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_for("postgres")
    }

    /// Where to connect, to another database of the server.
    #[must_use]
    pub fn url_for(&self, database: &str) -> String {
        url::of(self.port.number, self.password(), database)
    }

    /// The port on 127.0.0.1; the same after a restart.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number
    }

    /// The directory of the Unix socket.
    #[must_use]
    pub fn socket_directory(&self) -> PathBuf {
        self.home.path().to_owned()
    }

    /// The data directory.
    #[must_use]
    pub fn data_directory(&self) -> PathBuf {
        self.home.path().join("data")
    }

    /// The superuser's password, if connections need one.
    #[must_use]
    pub fn password(&self) -> Option<&str> {
        self.builder.password.as_deref()
    }

    /// The major version, 15 for 15.4.
    #[must_use]
    pub fn major_version(&self) -> u32 {
        self.binaries.major()
    }

    /// The process that is the parent of all others.
    ///
    /// # Errors
    ///
    /// [`Error::NotRunning`] while the server is stopped.
    pub fn pid(&self) -> Result<u32, Error> {
        self.running().as_ref().map(Postmaster::pid).ok_or(Error::NotRunning)
    }

    /// Everything the server has logged since its first start.
    #[must_use]
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.home.path().join("log")).unwrap_or_default()).into_owned()
    }

    /// Stops the server, if it runs, and returns when it has ended. A frozen one is thawed for that.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if it takes more than a minute, for example because a client does not leave; it goes on stopping.
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
            return Err(self.timeout("the server's end", STOP_LIMIT));
        }
        *running = None;
        Ok(())
    }

    /// Starts the stopped server with its data, on the same port; returns when it takes connections.
    ///
    /// # Errors
    ///
    /// [`Error::Running`], or [`Error::Start`] if it does not come up.
    pub fn start_again(&self) -> Result<(), Error> {
        let mut running = self.running();
        if running.is_some() {
            return Err(Error::Running);
        }
        *running = Some(Postmaster::start(&self.binaries, self.account, self.home.path())?);
        Ok(())
    }

    /// Stops the server and starts it again.
    ///
    /// # Errors
    ///
    /// As for [`stop`](Self::stop) and [`start_again`](Self::start_again).
    pub fn restart(&self, how: Stop) -> Result<(), Error> {
        self.stop(how)?;
        self.start_again()
    }

    /// Stops all processes of the server where they stand (`SIGSTOP`): connections stay open, and nobody answers. Returns when
    /// they stand still.
    ///
    /// # Errors
    ///
    /// [`Error::NotRunning`] while the server is stopped.
    pub fn freeze(&self) -> Result<(), Error> {
        self.running().as_mut().map(Postmaster::freeze).ok_or(Error::NotRunning)
    }

    /// Lets a frozen server go on.
    ///
    /// # Errors
    ///
    /// [`Error::NotRunning`] while the server is stopped.
    pub fn thaw(&self) -> Result<(), Error> {
        self.running().as_mut().map(Postmaster::thaw).ok_or(Error::NotRunning)
    }

    pub(crate) fn timeout(&self, what: impl Into<String>, limit: Duration) -> Error {
        Error::Timeout {
            what: what.into(),
            limit,
            log: log_end(self.home.path()),
        }
    }

    fn running(&self) -> MutexGuard<'_, Option<Postmaster>> {
        // A test that panicked elsewhere must not keep the server from being stopped.
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
