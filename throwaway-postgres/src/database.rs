//! A database for one test.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::os_user::OsUser;
use crate::{Error, Server, binaries, sql, url};

/// An empty database, dropped with its handle.
///
/// If `DATABASE_URL` is set (`postgres://…`, with a role that can create databases), the database is created on that server.
/// Otherwise it is created on a throwaway server that all databases of this process share. Creating a database takes about 50 ms,
/// much less than starting a server.
///
/// ```
/// use throwaway_postgres::Database;
///
/// # fn main() -> Result<(), throwaway_postgres::Error> {
/// let (one, another) = (Database::fresh()?, Database::fresh()?);
/// one.psql("CREATE TABLE t (id int)")?;
/// assert_eq!(another.psql("SELECT count(*) FROM pg_tables WHERE tablename = 't'")?, "0");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Database {
    name: String,
    host: Host,
}

/// The server that a database is on.
#[derive(Debug)]
enum Host {
    Shared(&'static Server),
    Given(String),
}

impl Host {
    fn find() -> Result<Self, Error> {
        if let Some(url) = std::env::var("DATABASE_URL").ok().filter(|url| !url.is_empty()) {
            return Ok(Self::Given(url));
        }
        static SHARED: OnceLock<Result<Server, String>> = OnceLock::new();
        // A static is never dropped: the watchdog stops the server.
        match SHARED.get_or_init(|| Server::start().map_err(|error| error.to_string())) {
            Ok(server) => Ok(Self::Shared(server)),
            // The error cannot be cloned: try again to get one of the same type.
            Err(reason) => Err(Server::start().err().unwrap_or_else(|| Error::Start {
                reason: reason.clone(),
                log: String::new(),
            })),
        }
    }

    fn url(&self, database: &str) -> Result<String, Error> {
        match self {
            Self::Shared(server) => Ok(server.url_for(database)),
            Self::Given(url) => url::with_database(url, database).ok_or(Error::UnusableUrl),
        }
    }

    /// Runs SQL in a database; `None` means `postgres`, or the database in the given URL.
    fn psql(&self, database: Option<&str>, statements: &str) -> Result<String, Error> {
        match self {
            Self::Shared(server) => server.psql_in(database.unwrap_or("postgres"), statements),
            Self::Given(url) => {
                let url = database.map_or_else(|| Ok(url.clone()), |database| self.url(database))?;
                sql::psql(&binaries::any_psql()?, OsUser::find()?, &url, statements)
            }
        }
    }
}

impl Database {
    /// Creates a database.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Builder::start`](crate::Builder::start), or, with `DATABASE_URL`, those of
    /// [`fresh_on`](Self::fresh_on).
    pub fn fresh() -> Result<Self, Error> {
        Self::create_on(Host::find()?)
    }

    /// Creates a database on the server at this URL (`postgres://…`, with a role that can create databases).
    ///
    /// # Errors
    ///
    /// Returns [`Error::UnusableUrl`] if the URL does not have this form, [`Error::MissingBinary`] without psql, and
    /// [`Error::Command`] if psql fails.
    ///
    /// ```
    /// use throwaway_postgres::{Database, Server};
    ///
    /// # fn main() -> Result<(), throwaway_postgres::Error> {
    /// let server = Server::start()?;
    /// let database = Database::fresh_on(&server.url())?;
    /// assert_eq!(database.psql("SELECT inet_server_port()")?, server.port().to_string());
    /// # Ok(())
    /// # }
    /// ```
    pub fn fresh_on(url: &str) -> Result<Self, Error> {
        Self::create_on(Host::Given(url.to_owned()))
    }

    fn create_on(host: Host) -> Result<Self, Error> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!(
            "throwaway_{:x}_{:x}_{}",
            since_epoch.as_micros(),
            std::process::id(),
            // Relaxed: each caller only needs a distinct number.
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        host.url(&name)?;
        host.psql(None, &format!("CREATE DATABASE {name}"))?;
        Ok(Self { name, host })
    }

    /// Returns the URL to connect to.
    #[must_use]
    pub fn url(&self) -> String {
        // `create_on` has checked it.
        self.host.url(&self.name).unwrap_or_default()
    }

    /// Returns the name of the database.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs SQL in the database; see [`Server::psql`].
    ///
    /// # Errors
    ///
    /// Returns [`Error::Command`] with psql's error.
    pub fn psql(&self, sql: &str) -> Result<String, Error> {
        self.host.psql(Some(&self.name), sql)
    }

    /// Returns the server of the database. Other databases of this process share it, so do not stop it.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NotOurs`] if `DATABASE_URL` or the caller names the server.
    pub fn server(&self) -> Result<&'static Server, Error> {
        match &self.host {
            Host::Shared(server) => Ok(server),
            Host::Given(_) => Err(Error::NotOurs),
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // The server may have been stopped.
        self.host
            .psql(None, &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name))
            .ok();
    }
}
